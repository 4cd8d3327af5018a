//! `min` and `max` of floating point numbers, infinities and NaN included, of intervals, and of lists and structs: DataFusion's
//! start from the largest finite numbers, compare months first, then days, and not what lies nested in each other.
//!
//! Numbers are compared as integers of the same order, in which NaN is greater than everything, intervals by their
//! lengths (`intervals.rs`), lists and structs as rows of bytes of the same order.

use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{Array, ArrayRef, BinaryArray, new_null_array};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::compute::kernels::arity::unary;
use datafusion::arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int32Type, Int64Type, IntervalUnit,
};
use datafusion::arrow::row::{RowConverter, SortField};
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
            nested if nested.is_nested() => {
                let fields = [SortField::new(nested.clone())];
                RowConverter::supports_fields(&fields).then_some(DataType::Binary)
            }
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
            nested if nested.is_nested() => {
                let rows = converter(nested)?.convert_columns(&[Arc::clone(values)])?;
                let bytes = rows.iter().enumerate();
                let bytes = bytes.map(|(at, row)| values.is_valid(at).then(|| row.data().to_vec()));
                Ok(Arc::new(bytes.collect::<BinaryArray>()))
            }
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
            nested if nested.is_nested() => {
                let converter = converter(nested)?;
                let null = converter.convert_columns(&[new_null_array(nested, 1)])?;
                let parser = converter.parser();
                let rows = results.as_binary::<i32>().iter().map(|bytes| match bytes {
                    Some(bytes) => parser.parse(bytes),
                    None => null.row(0),
                });
                let restored = converter.convert_rows(rows)?;
                match restored.into_iter().next() {
                    Some(values) => Ok(values),
                    None => internal_err!("rows of one column have none"),
                }
            }
            other => internal_err!("{other} has its own order"),
        }
    }

    fn slides_distinct(self) -> bool {
        true
    }
}

/// Makes rows of bytes of lists and structs that are ordered as these are, with NULL last.
fn converter(nested: &DataType) -> DfResult<RowConverter> {
    let options = SortOptions { descending: false, nulls_first: false };
    Ok(RowConverter::new(vec![SortField::new_with_options(nested.clone(), options)])?)
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
