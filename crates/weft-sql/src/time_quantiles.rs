//! `median` and `percentile_cont` of dates and timestamps, which DataFusion lacks: a timestamp between two of them, to the
//! microsecond. Of everything else they are as they were.

use std::sync::Arc;

use datafusion::arrow::array::PrimitiveArray;
use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, Signature,
    Volatility,
};
use weft_exec::aggregate::Quantile;

use crate::collected::quantile;

/// The function, of times as well.
pub(crate) fn of_times(inner: Arc<AggregateUDF>) -> Arc<AggregateUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(AggregateUDF::from(OfTimes { inner, signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfTimes {
    inner: Arc<AggregateUDF>,
    signature: Signature,
}

/// The type that times are computed with, and that the result has; `None` for other types.
fn timestamp(of: &DataType) -> Option<DataType> {
    match of {
        DataType::Date32 | DataType::Date64 => {
            Some(DataType::Timestamp(TimeUnit::Microsecond, None))
        }
        DataType::Timestamp(_, zone) => {
            Some(DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))
        }
        _ => None,
    }
}

fn is_of_times(fields: &[FieldRef]) -> bool {
    fields.first().is_some_and(|field| timestamp(field.data_type()).is_some())
}

impl AggregateUDFImpl for OfTimes {
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
        let field = |data_type: &DataType| Arc::new(Field::new("", data_type.clone(), true));
        let of = |types: &[DataType]| -> DfResult<Vec<DataType>> {
            let fields: Vec<FieldRef> = types.iter().map(field).collect();
            let coerced = fields_with_udf(&fields, self.inner.as_ref())?;
            Ok(coerced.iter().map(|field| field.data_type().clone()).collect())
        };
        let Some(time) = types.first().and_then(timestamp) else { return of(types) };
        // All else is as for numbers.
        let mut others = types.to_vec();
        others[0] = DataType::Float64;
        let mut coerced = of(&others)?;
        coerced[0] = time;
        Ok(coerced)
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types.first().and_then(timestamp) {
            Some(time) => Ok(time),
            None => self.inner.return_type(types),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> DfResult<Vec<FieldRef>> {
        if !is_of_times(args.input_fields) {
            return self.inner.state_fields(args);
        }
        let item = Field::new_list_field(args.input_fields[0].data_type().clone(), true);
        Ok(vec![Arc::new(Field::new_list("values", item, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        if !is_of_times(args.expr_fields) {
            return self.inner.accumulator(args);
        }
        let quantile = match args.exprs.len() {
            1 => Quantile::ascending(0.5),
            _ => quantile(self.name(), &args)?,
        };
        let (is_distinct, to) = (args.is_distinct, args.return_field.data_type().clone());
        Ok(Box::new(Times { quantile, is_distinct, to, values: Vec::new() }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !is_of_times(args.expr_fields) && self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> DfResult<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(args)
    }

    fn supports_within_group_clause(&self) -> bool {
        self.inner.supports_within_group_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// The times of a group, in microseconds.
#[derive(Debug)]
struct Times {
    quantile: Quantile,
    is_distinct: bool,
    to: DataType,
    values: Vec<i64>,
}

impl Times {
    fn add(&mut self, times: &ArrayRef) {
        let times: &PrimitiveArray<TimestampMicrosecondType> = times.as_primitive();
        self.values.extend(times.iter().flatten());
    }
}

/// The time so far, 0 to 1, on the way from one to another.
fn between(low: i64, high: i64, part: f64) -> i64 {
    let difference = i128::from(high) - i128::from(low);
    let way = difference as f64 * part;
    let whole = i128::from(low) + way.floor() as i128;
    // In the middle, away from the epoch.
    let is_up = way.fract() > 0.5 || way.fract() == 0.5 && whole >= 0;
    // It is never more than the difference, but for large ones that are no floats.
    i64::try_from(whole + i128::from(is_up)).map_or(high, |time| time.min(high))
}

impl Accumulator for Times {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        self.add(&values[0]);
        Ok(())
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        let mut values = self.values.clone();
        if self.is_distinct {
            values.sort_unstable();
            values.dedup();
        }
        if values.is_empty() {
            return ScalarValue::try_new_null(&self.to);
        }
        let (place, part) = self.quantile.position(values.len());
        let (_, low, above) = values.select_nth_unstable(place);
        let low = *low;
        let high = above.iter().copied().min().unwrap_or(low);
        ScalarValue::Int64(Some(between(low, high, part))).cast_to(&self.to)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<i64>()
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        let values = PrimitiveArray::<Int64Type>::from(std::mem::take(&mut self.values));
        let values = values.reinterpret_cast::<TimestampMicrosecondType>();
        let values = values.with_data_type(self.to.clone());
        Ok(vec![SingleRowListArrayBuilder::new(Arc::new(values)).build_list_scalar()])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        for values in states[0].as_list::<i32>().iter().flatten() {
            self.add(&values);
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        let times: &PrimitiveArray<TimestampMicrosecondType> = values[0].as_primitive();
        // The frame's rows leave in the order in which they came.
        self.values.drain(..times.len() - times.null_count());
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_to_microseconds() {
        assert_eq!(between(-1, 2, 0.5), 1);
        assert_eq!(between(-1, 2, 0.333), 0);
        assert_eq!(between(-4, -1, 0.5), -3);
        assert_eq!(between(1, 4, 0.5), 3);
        assert_eq!(between(10, 17, 0.7), 15);
        assert_eq!(between(5, 5, 0.9), 5);
        assert_eq!(between(i64::MIN, i64::MAX, 0.0), i64::MIN);
        assert_eq!(between(i64::MIN, i64::MAX, 1.0), i64::MAX);
    }
}
