//! `percentile_cont` whose results are exact: DataFusion rounds how far the result lies on the way from one value to the
//! next down to six digits.
//!
//! Values are kept as DataFusion keeps them. Of its states, which are lists of them, the result is computed here.

use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{ArrayRef, BooleanArray, Float64Array, ListArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::{Result as DfResult, ScalarValue, internal_err};
use datafusion::functions_aggregate::percentile_cont::percentile_cont_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator,
    Signature,
};
use weft_exec::aggregate::{Quantile, between};

use crate::collected::quantile;
use crate::floats::canonical_64;

/// The function.
pub(crate) fn exact_quantiles() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(Exact { inner: percentile_cont_udaf() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Exact {
    inner: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for Exact {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        self.inner.return_type(types)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> DfResult<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        // Nothing but nulls.
        if args.expr_fields[0].data_type().is_null() {
            return self.inner.accumulator(args);
        }
        let quantile = quantile(self.name(), &args)?;
        let to = args.return_field.data_type().clone();
        Ok(Box::new(Of { inner: self.inner.accumulator(args)?, quantile, to }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> DfResult<Box<dyn GroupsAccumulator>> {
        let quantile = quantile(self.name(), &args)?;
        let to = args.return_field.data_type().clone();
        Ok(Box::new(Of { inner: self.inner.create_groups_accumulator(args)?, quantile, to }))
    }

    fn supports_within_group_clause(&self) -> bool {
        true
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// An accumulator of values, and what is made of them.
#[derive(Debug)]
struct Of<A> {
    inner: A,
    quantile: Quantile,
    /// The type of the result.
    to: DataType,
}

impl<A> Of<A> {
    /// The results of lists of values.
    fn results(&self, lists: &ListArray) -> DfResult<ArrayRef> {
        let results: DfResult<Vec<Option<f64>>> = lists
            .iter()
            .map(|values| match values {
                Some(values) => self.result(&values),
                None => Ok(None),
            })
            .collect();
        Ok(cast(&Float64Array::from(results?), &self.to)?)
    }

    fn result(&self, values: &ArrayRef) -> DfResult<Option<f64>> {
        let values = cast(values, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        let mut known: Vec<f64> = values.iter().flatten().map(canonical_64).collect();
        if known.is_empty() {
            return Ok(None);
        }
        let (place, part) = self.quantile.position(known.len());
        let (_, low, above) = known.select_nth_unstable_by(place, f64::total_cmp);
        let low = *low;
        let high = above.iter().copied().min_by(f64::total_cmp).unwrap_or(low);
        Ok(Some(between(low, high, part)))
    }
}

fn list_of(states: &[ArrayRef]) -> DfResult<&ListArray> {
    match states.first().and_then(|state| state.as_list_opt::<i32>()) {
        Some(list) => Ok(list),
        None => internal_err!("percentile_cont keeps lists of values"),
    }
}

impl Accumulator for Of<Box<dyn Accumulator>> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        self.inner.update_batch(values)
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        // Taken out, and put back: the frame of a window may go on.
        let states: DfResult<Vec<ArrayRef>> =
            self.inner.state()?.iter().map(ScalarValue::to_array).collect();
        let states = states?;
        let result = self.results(list_of(&states)?)?;
        self.inner.merge_batch(&states)?;
        ScalarValue::try_from_array(&result, 0)
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
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

impl GroupsAccumulator for Of<Box<dyn GroupsAccumulator>> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> DfResult<()> {
        self.inner.update_batch(values, group_indices, filter, groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> DfResult<ArrayRef> {
        let states = self.inner.state(emit_to)?;
        self.results(list_of(&states)?)
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
        // The inner one takes the values alone.
        self.inner.convert_to_state(&values[..1], filter)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }
}
