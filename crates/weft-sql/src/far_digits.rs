//! `round` and `trunc` of floating point numbers to any number of digits: DataFusion multiplies by a power of ten that may
//! be beyond all numbers, or make the number so, and has NaN or infinity.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Float64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

/// Most digits of a power of ten that is a floating point number.
const DIGITS_MAX: i64 = 308;

/// From here on floating point numbers are whole.
const WHOLE: f64 = 9_007_199_254_740_992.0;

/// What the function gives for floating point numbers and digits; `None` for other functions and types.
///
/// # Errors
/// Those of casts between numbers.
pub(crate) fn rounded(name: &str, args: &ScalarFunctionArgs) -> DfResult<Option<ColumnarValue>> {
    let keep: fn(f64) -> f64 = match name {
        "round" => f64::round,
        "trunc" => f64::trunc,
        _ => return Ok(None),
    };
    let [number, digits] = &args.args[..] else { return Ok(None) };
    let data_type = number.data_type();
    if !matches!(data_type, DataType::Float32 | DataType::Float64) {
        return Ok(None);
    }
    let is_scalar =
        matches!((number, digits), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
    let arrays = ColumnarValue::values_to_arrays(&[number.clone(), digits.clone()])?;
    let numbers = cast(&arrays[0], &DataType::Float64)?;
    let digits = cast(&arrays[1], &DataType::Int64)?;
    let pairs =
        numbers.as_primitive::<Float64Type>().iter().zip(digits.as_primitive::<Int64Type>());
    let rounded: Float64Array =
        pairs.map(|(number, digits)| Some(to_digits(number?, digits?, keep))).collect();
    let rounded = cast(&(Arc::new(rounded) as ArrayRef), &data_type)?;
    Ok(Some(match is_scalar {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&rounded, 0)?),
        false => ColumnarValue::Array(rounded),
    }))
}

fn to_digits(number: f64, digits: i64, keep: fn(f64) -> f64) -> f64 {
    let power = |digits: i64| 10_f64.powi(i32::try_from(digits).unwrap_or(i32::MAX));
    if digits > DIGITS_MAX {
        return number;
    }
    if digits >= 0 {
        let power = power(digits);
        let shifted = number * power;
        // It has no more digits than these.
        let is_whole = !shifted.is_finite() || shifted.abs() >= WHOLE;
        return if is_whole { number } else { keep(shifted) / power };
    }
    if !number.is_finite() {
        return number;
    }
    match digits < -DIGITS_MAX {
        true => 0.0,
        false => keep(number / power(-digits)) * power(-digits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_may_be_far() {
        for (number, digits, expected) in [
            (42.1235, 1000, 42.1235),
            (42.1235, 2, 42.12),
            (1e300, 10, 1e300),
            (1234.5, -2, 1200.0),
            (42.1, -1000, 0.0),
            (f64::INFINITY, -1, f64::INFINITY),
            (1e-310, 400, 1e-310),
        ] {
            assert_eq!(to_digits(number, digits, f64::round), expected, "{number} {digits}");
        }
        assert_eq!(to_digits(-2.79, 1, f64::trunc), -2.7);
        assert!(to_digits(f64::NAN, -3, f64::round).is_nan());
    }
}
