//! Aggregate functions of DataFusion's that work on another representation of their values, where they
//! go wrong with the values themselves.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator,
    ReversedUDAF, SetMonotonicity, Signature, StatisticsArgs, TypeSignature,
    udaf_default_return_field,
};

use crate::null_arguments::other_type;
use crate::uuids::is_uuid;

/// Another representation of the values of some types.
pub(crate) trait Representation: Copy + Debug + Eq + Hash + Send + Sync + 'static {
    /// The type that stands for a result of another type; nothing for types that stay as they are.
    fn of(self, result: &DataType) -> Option<DataType>;

    /// Values in the representation.
    fn represent(self, values: &ArrayRef) -> DfResult<ArrayRef>;

    /// Results of this type from the representation.
    ///
    /// # Errors
    /// If a result does not fit.
    fn restore(self, results: &ArrayRef, to: &DataType) -> DfResult<ArrayRef>;

    /// Whether the function also takes distinct values in a sliding window.
    fn slides_distinct(self) -> bool;
}

/// A function in a representation.
pub(crate) fn represented(
    inner: Arc<AggregateUDF>,
    representation: impl Representation,
) -> Arc<AggregateUDF> {
    let signature = inner.signature();
    let signature = match inner.name() {
        "sum" => {
            let truths = TypeSignature::Exact(vec![DataType::Boolean]);
            let types = vec![signature.type_signature.clone(), truths];
            Signature::one_of(types, signature.volatility)
        }
        _ => signature.clone(),
    };
    Arc::new(AggregateUDF::from(Represented { inner, representation, signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Represented<R> {
    inner: Arc<AggregateUDF>,
    representation: R,
    signature: Signature,
}

impl<R: Representation> Represented<R> {
    /// The field of the result in the representation, and the type that it has outside.
    fn field(&self, field: &FieldRef) -> Option<(FieldRef, DataType)> {
        let data_type = self.representation.of(field.data_type())?;
        let field_in = Arc::new(field.as_ref().clone().with_data_type(data_type));
        Some((field_in, field.data_type().clone()))
    }

    fn translated<A>(&self, inner: A, to: DataType) -> Translated<A, R> {
        Translated { inner, to, representation: self.representation }
    }
}

impl<R: Representation> AggregateUDFImpl for Represented<R> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        // It is given another type before anything is computed.
        match (types, other_type(self.name(), types)) {
            ([_], Some(data_type)) => self.inner.return_type(&[data_type]),
            _ => self.inner.return_type(types),
        }
    }

    fn return_field(&self, arguments: &[FieldRef]) -> DfResult<FieldRef> {
        let field = udaf_default_return_field(self, arguments)?;
        Ok(match arguments {
            // The least and the greatest UUID are UUIDs.
            [value] if is_uuid(value) && field.data_type().is_string() => {
                let field = field.as_ref().clone();
                Arc::new(field.with_metadata(value.metadata().clone()))
            }
            _ => field,
        })
    }

    fn state_fields(&self, mut args: StateFieldsArgs) -> DfResult<Vec<FieldRef>> {
        if let Some((field, _)) = self.field(&args.return_field) {
            args.return_field = field;
        }
        self.inner.state_fields(args)
    }

    fn accumulator(&self, mut args: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        let Some((field, to)) = self.field(&args.return_field) else {
            return self.inner.accumulator(args);
        };
        args.return_field = field;
        Ok(Box::new(self.translated(self.inner.accumulator(args)?, to)))
    }

    fn create_sliding_accumulator(
        &self,
        mut args: AccumulatorArgs,
    ) -> DfResult<Box<dyn Accumulator>> {
        let field = self.field(&args.return_field);
        match field {
            Some((field, to)) if !args.is_distinct || self.representation.slides_distinct() => {
                args.return_field = field;
                Ok(Box::new(self.translated(self.inner.create_sliding_accumulator(args)?, to)))
            }
            _ => self.inner.create_sliding_accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, mut args: AccumulatorArgs) -> bool {
        if let Some((field, _)) = self.field(&args.return_field) {
            args.return_field = field;
        }
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        mut args: AccumulatorArgs,
    ) -> DfResult<Box<dyn GroupsAccumulator>> {
        let Some((field, to)) = self.field(&args.return_field) else {
            return self.inner.create_groups_accumulator(args);
        };
        args.return_field = field;
        Ok(Box::new(self.translated(self.inner.create_groups_accumulator(args)?, to)))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn set_monotonicity(&self, _: &DataType) -> SetMonotonicity {
        // A running minimum only falls, but it begins with nulls as long as there are no values: who leaves out a sort by it
        // has them in the wrong place.
        SetMonotonicity::NotMonotonic
    }

    fn value_from_stats(&self, statistics: &StatisticsArgs) -> Option<ScalarValue> {
        match self.representation.of(statistics.return_type) {
            // Statistics know nothing of the representation.
            Some(_) => None,
            None => self.inner.value_from_stats(statistics),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// Accumulates represented values.
#[derive(Debug)]
struct Translated<A, R> {
    inner: A,
    to: DataType,
    representation: R,
}

impl<A, R: Representation> Translated<A, R> {
    fn represent(&self, values: &[ArrayRef]) -> DfResult<Vec<ArrayRef>> {
        values.iter().map(|array| self.representation.represent(array)).collect()
    }
}

impl<R: Representation> Accumulator for Translated<Box<dyn Accumulator>, R> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        let values = self.represent(values)?;
        self.inner.update_batch(&values)
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        let result = self.inner.evaluate()?.to_array()?;
        ScalarValue::try_from_array(&self.representation.restore(&result, &self.to)?, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        let values = self.represent(values)?;
        self.inner.retract_batch(&values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

impl<R: Representation> GroupsAccumulator for Translated<Box<dyn GroupsAccumulator>, R> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> DfResult<()> {
        let values = self.represent(values)?;
        self.inner.update_batch(&values, group_indices, filter, groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> DfResult<ArrayRef> {
        self.representation.restore(&self.inner.evaluate(emit_to)?, &self.to)
    }

    fn state(&mut self, emit_to: EmitTo) -> DfResult<Vec<ArrayRef>> {
        self.inner.state(emit_to)
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        group_indices: &[usize],
        groups: usize,
    ) -> DfResult<()> {
        self.inner.merge_batch(states, group_indices, groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> DfResult<Vec<ArrayRef>> {
        self.inner.convert_to_state(&self.represent(values)?, filter)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }
}
