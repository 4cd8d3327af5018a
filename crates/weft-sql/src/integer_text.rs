//! Text that is cast to an integer may have a fraction or an exponent, as in DuckDB: `'1.9'` is 2, `'1e3'` 1000.
//!
//! Such text becomes that of the integer, rounded half away from zero, before Arrow casts it. Any other stays, so that
//! errors name what was written.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{ArrayRef, StringViewArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result as DfResult;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use crate::one_argument::compute_one;

/// The function: text as Arrow casts it to an integer.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct IntegerText {
    signature: Signature,
}

impl IntegerText {
    pub(crate) fn new() -> IntegerText {
        IntegerText { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for IntegerText {
    fn name(&self) -> &str {
        "integer_text"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        compute_one(self.name(), &args.args, rounded_texts)
    }
}

/// Texts of integers, as `Utf8View`, in the place of texts of other numbers.
pub(crate) fn rounded_texts(texts: &ArrayRef) -> DfResult<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8View)?;
    let views = texts.as_string_view();
    if views
        .iter()
        .flatten()
        .all(|text| text.bytes().all(|byte| !matches!(byte, b'.' | b'e' | b'E')))
    {
        return Ok(texts);
    }
    let rounded: StringViewArray =
        views.iter().map(|text| text.map(|text| integer(text).unwrap_or(text.into()))).collect();
    Ok(Arc::new(rounded))
}

/// Most digits that are put in front of the point.
const DIGITS_MAX: i64 = 38;

/// The integer that is nearest to a number with a fraction or an exponent.
fn integer(text: &str) -> Option<Cow<'_, str>> {
    let number = text.trim();
    let (sign, number) = match number.strip_prefix('-') {
        Some(number) => ("-", number),
        None => ("", number.strip_prefix('+').unwrap_or(number)),
    };
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (number, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat();
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let point = i64::try_from(whole.len()).ok()? + i64::from(exponent);
    let digit = |at: i64| match usize::try_from(at) {
        Ok(at) => digits.as_bytes().get(at).copied().unwrap_or(b'0'),
        Err(_) => b'0',
    };
    if point > DIGITS_MAX {
        return None;
    }
    let kept: String = (0..point).map(|at| char::from(digit(at))).collect();
    let kept: u128 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
    let nearest = if digit(point) >= b'5' { kept + 1 } else { kept };
    Some(format!("{sign}{nearest}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_rounded_half_away_from_zero() {
        let cases = [
            ("1.9", "2"),
            ("2.5", "3"),
            ("-2.5", "-3"),
            (" +0.49 ", "0"),
            (".5", "1"),
            ("7.", "7"),
            ("1e3", "1000"),
            ("1.25E1", "13"),
            ("5e-1", "1"),
            ("5e-2", "0"),
            ("9.99", "10"),
        ];
        for (text, expected) in cases {
            assert_eq!(integer(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_stays() {
        for text in ["", ".", "e5", "1e", "1.2.3", "abc", "1e99", "--1.5", "1e1.5"] {
            assert_eq!(integer(text), None, "{text}");
        }
    }
}
