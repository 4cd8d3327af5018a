//! `sum` of integers that says when the result is too large: DataFusion's wraps.
//!
//! Integers are summed as decimals of 38 digits, which 2^63 rows do not exceed, and narrowed at the end.
//! All other types are DataFusion's business.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result as DfResult, ScalarValue, exec_err};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator,
    ReversedUDAF, SetMonotonicity, Signature, StatisticsArgs,
};

/// What integers are summed as.
const WIDE: DataType = DataType::Decimal128(38, 0);

/// The function.
pub(crate) fn checked_sum() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(CheckedSum { inner: sum_udaf() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedSum {
    inner: Arc<AggregateUDF>,
}

/// The same field with the type that integers are summed as.
fn widened(field: &FieldRef) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(WIDE))
}

fn is_integer(field: &FieldRef) -> bool {
    field.data_type().is_integer()
}

fn widen(values: &[ArrayRef]) -> DfResult<Vec<ArrayRef>> {
    values.iter().map(|array| Ok(cast(array, &WIDE)?)).collect()
}

fn narrow(sums: &ArrayRef, to: &DataType) -> DfResult<ArrayRef> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let Ok(narrowed) = cast_with_options(sums, to, &options) else {
        return exec_err!("the sum is out of the range of {to}: cast what is summed to DECIMAL");
    };
    Ok(narrowed)
}

impl AggregateUDFImpl for CheckedSum {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        self.inner.return_type(types)
    }

    fn state_fields(&self, mut args: StateFieldsArgs) -> DfResult<Vec<FieldRef>> {
        if is_integer(&args.return_field) {
            args.return_field = widened(&args.return_field);
        }
        self.inner.state_fields(args)
    }

    fn accumulator(&self, mut args: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        let to = args.return_field.data_type().clone();
        if !is_integer(&args.return_field) {
            return self.inner.accumulator(args);
        }
        args.return_field = widened(&args.return_field);
        Ok(Box::new(Narrowed { inner: self.inner.accumulator(args)?, to }))
    }

    fn create_sliding_accumulator(
        &self,
        mut args: AccumulatorArgs,
    ) -> DfResult<Box<dyn Accumulator>> {
        let to = args.return_field.data_type().clone();
        // There is no other sliding sum of distinct values than that of DataFusion.
        if !is_integer(&args.return_field) || args.is_distinct {
            return self.inner.create_sliding_accumulator(args);
        }
        args.return_field = widened(&args.return_field);
        Ok(Box::new(Narrowed { inner: self.inner.create_sliding_accumulator(args)?, to }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        mut args: AccumulatorArgs,
    ) -> DfResult<Box<dyn GroupsAccumulator>> {
        let to = args.return_field.data_type().clone();
        if !is_integer(&args.return_field) {
            return self.inner.create_groups_accumulator(args);
        }
        args.return_field = widened(&args.return_field);
        Ok(Box::new(Narrowed { inner: self.inner.create_groups_accumulator(args)?, to }))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(data_type)
    }

    fn value_from_stats(&self, args: &StatisticsArgs) -> Option<ScalarValue> {
        match args.return_type.is_integer() {
            // Nobody has checked that such a sum did not wrap.
            true => None,
            false => self.inner.value_from_stats(args),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// Sums integers as decimals.
#[derive(Debug)]
struct Narrowed<A> {
    inner: A,
    to: DataType,
}

impl Accumulator for Narrowed<Box<dyn Accumulator>> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        self.inner.update_batch(&widen(values)?)
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        let sum = self.inner.evaluate()?.to_array()?;
        ScalarValue::try_from_array(&narrow(&sum, &self.to)?, 0)
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
        self.inner.retract_batch(&widen(values)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

impl GroupsAccumulator for Narrowed<Box<dyn GroupsAccumulator>> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> DfResult<()> {
        self.inner.update_batch(&widen(values)?, group_indices, filter, groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> DfResult<ArrayRef> {
        narrow(&self.inner.evaluate(emit_to)?, &self.to)
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
        self.inner.convert_to_state(&widen(values)?, filter)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }
}
