//! `min` and `max` of floating point numbers, infinities and NaN included, and of intervals: DataFusion's start from the
//! largest finite numbers, and compare months first, then days.
//!
//! Numbers are compared as integers of the same order, in which NaN is greater than everything, intervals by their
//! lengths (`intervals.rs`).

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::compute::kernels::arity::unary;
use datafusion::arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int32Type, Int64Type, IntervalUnit,
};
use datafusion::common::{Result as DfResult, internal_err};
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::logical_expr::AggregateUDF;

use crate::floats::{canonical_32, canonical_64};
use crate::intervals::{EXACT_LENGTH, exact_lengths, of_exact_lengths};
use crate::represented::{Representation, represented};

/// The functions.
pub(crate) fn float_extremes() -> [Arc<AggregateUDF>; 2] {
    [represented(min_udaf(), Ordered), represented(max_udaf(), Ordered)]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Ordered;

impl Representation for Ordered {
    fn of(self, result: &DataType) -> Option<DataType> {
        match result {
            DataType::Float32 => Some(DataType::Int32),
            DataType::Float64 => Some(DataType::Int64),
            DataType::Interval(IntervalUnit::MonthDayNano) => Some(EXACT_LENGTH),
            _ => None,
        }
    }

    fn represent(self, values: &ArrayRef) -> DfResult<ArrayRef> {
        match values.data_type() {
            DataType::Float32 => {
                Ok(Arc::new(unary::<Float32Type, _, Int32Type>(values.as_primitive(), |value| {
                    order_32(canonical_32(value).to_bits().cast_signed())
                })))
            }
            DataType::Float64 => {
                Ok(Arc::new(unary::<Float64Type, _, Int64Type>(values.as_primitive(), |value| {
                    order_64(canonical_64(value).to_bits().cast_signed())
                })))
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => exact_lengths(values),
            other => internal_err!("{other} has its own order"),
        }
    }

    fn restore(self, results: &ArrayRef, to: &DataType) -> DfResult<ArrayRef> {
        match to {
            DataType::Float32 => {
                Ok(Arc::new(unary::<Int32Type, _, Float32Type>(results.as_primitive(), |bits| {
                    f32::from_bits(order_32(bits).cast_unsigned())
                })))
            }
            DataType::Float64 => {
                Ok(Arc::new(unary::<Int64Type, _, Float64Type>(results.as_primitive(), |bits| {
                    f64::from_bits(order_64(bits).cast_unsigned())
                })))
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => Ok(of_exact_lengths(results)),
            other => internal_err!("{other} has its own order"),
        }
    }

    fn slides_distinct(self) -> bool {
        true
    }
}

/// Bits of a number as an integer of the same order, and back.
fn order_32(bits: i32) -> i32 {
    bits ^ ((bits >> 31).cast_unsigned() >> 1).cast_signed()
}

/// As [`order_32`].
fn order_64(bits: i64) -> i64 {
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Float64Array;

    use super::*;

    #[test]
    fn the_order_of_numbers_is_kept() {
        let numbers =
            [f64::NEG_INFINITY, f64::MIN, -1.5, -1e-300, 0.0, 1e-300, 2.0, f64::INFINITY, f64::NAN];
        let array: ArrayRef = Arc::new(Float64Array::from(numbers.to_vec()));
        let ordered = Ordered.represent(&array).unwrap();
        assert!(ordered.as_primitive::<Int64Type>().values().is_sorted_by(|a, b| a < b));
        let back = Ordered.restore(&ordered, &DataType::Float64).unwrap();
        let back = back.as_primitive::<Float64Type>().values();
        assert!(back.iter().zip(numbers).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
}
