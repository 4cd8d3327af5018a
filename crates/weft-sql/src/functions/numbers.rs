//! Functions of numbers that DataFusion lacks, and of their digits.

use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, Float64Array, Int8Array, Int64Array,
    StringViewArray, UInt64Array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DfResult, exec_err, plan_err};
use datafusion::logical_expr::ScalarUDF;

use super::elements::keys;
use super::scalar::{Call, Kind, Rows, Scalar, Types, gives};

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        Scalar::function(&["even"], double, |rows| {
            each(rows, |number| {
                let half = number / 2.0;
                2.0 * if number < 0.0 { half.floor() } else { half.ceil() }
            })
        }),
        Scalar::function(&["gamma"], double, |rows| each(rows, libm::tgamma)),
        Scalar::function(&["lgamma"], double, |rows| each(rows, libm::lgamma)),
        Scalar::function(
            &["nextafter"],
            |call| gives(call.takes(&[Kind::Double; 2]), DataType::Float64),
            |rows| {
                let (from, to) = (rows.column::<Float64Array>(0)?, rows.column::<Float64Array>(1)?);
                rows.each::<f64, Float64Array>(|row| {
                    Ok(from.get(row).zip(to.get(row)).map(|(from, to)| libm::nextafter(from, to)))
                })
            },
        ),
        Scalar::function(
            &["signbit"],
            |call| gives(call.takes(&[Kind::Double]), DataType::Boolean),
            |rows| {
                let numbers = rows.column::<Float64Array>(0)?;
                rows.each::<bool, BooleanArray>(|row| {
                    Ok(numbers.get(row).map(f64::is_sign_negative))
                })
            },
        ),
        Scalar::function(
            &["round_even", "roundbankers"],
            |call| gives(call.takes(&[Kind::Double, Kind::Integer]), DataType::Float64),
            round_even,
        ),
        Scalar::function(&["bit_count"], bit_count_types, bit_count),
        Scalar::function(&["bin", "to_binary"], bin_types, bin),
        Scalar::function(
            &["unbin", "from_binary"],
            |call| gives(call.takes(&[Kind::Text]), DataType::BinaryView),
            unbin,
        ),
        Scalar::function(
            &["to_base"],
            |call| gives(call.takes_some(&[Kind::Integer; 3], 1), DataType::Utf8View),
            to_base,
        ),
        Scalar::function(
            &["hash"],
            |call| gives(call.takes_any(Kind::Any, 1), DataType::UInt64),
            hash,
        ),
        Scalar::function(
            &["error"],
            |call| gives(call.takes(&[Kind::Text]), DataType::Null),
            |rows| {
                let messages = rows.column::<StringViewArray>(0)?;
                match (0..rows.count).find_map(|row| messages.get(row)) {
                    Some(message) => exec_err!("{message}"),
                    None => Ok(datafusion::arrow::array::new_null_array(rows.result, rows.count)),
                }
            },
        ),
    ]
}

fn double(call: &Call<'_>) -> DfResult<Types> {
    gives(call.takes(&[Kind::Double]), DataType::Float64)
}

fn each(rows: &Rows<'_>, result: fn(f64) -> f64) -> DfResult<ArrayRef> {
    let numbers = rows.column::<Float64Array>(0)?;
    rows.each::<f64, Float64Array>(|row| Ok(numbers.get(row).map(result)))
}

/// A number rounded to so many digits; one in the middle goes to the even digit.
fn round_even(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let (numbers, digits) = (rows.column::<Float64Array>(0)?, rows.column::<Int64Array>(1)?);
    rows.each::<f64, Float64Array>(|row| {
        let (Some(number), Some(digits)) = (numbers.get(row), digits.get(row)) else {
            return Ok(None);
        };
        let digits = i32::try_from(digits.clamp(-400, 400)).unwrap_or_default();
        let power = 10_f64.powi(digits.abs());
        let (scaled, is_finer) = match digits {
            0.. => (number * power, true),
            _ => (number / power, false),
        };
        if !scaled.is_finite() || power.is_infinite() {
            return Ok(Some(if is_finer { number } else { 0.0 }));
        }
        let rounded = scaled.round_ties_even();
        Ok(Some(if is_finer { rounded / power } else { rounded * power }))
    })
}

fn bit_count_types(call: &Call<'_>) -> DfResult<Types> {
    call.has(1, 1)?;
    match &call.types[0] {
        integer if integer.is_integer() => gives(Ok(call.types.to_vec()), DataType::Int8),
        _ => gives(call.takes(&[Kind::Integer]), DataType::Int8),
    }
}

/// How many bits are set, of as many as the type has.
fn bit_count(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let values = &rows.arguments[0].values;
    let bits: u32 = match values.data_type() {
        DataType::Int8 | DataType::UInt8 => 8,
        DataType::Int16 | DataType::UInt16 => 16,
        DataType::Int32 | DataType::UInt32 => 32,
        _ => 64,
    };
    let numbers = bits_of(values)?;
    let mask = u64::MAX >> (64 - bits);
    rows.each::<i8, Int8Array>(|row| {
        let known = rows.arguments[0].known(row);
        Ok(known.and_then(|at| i8::try_from((numbers[at] & mask).count_ones()).ok()))
    })
}

/// The bits of integers of any type.
fn bits_of(values: &ArrayRef) -> DfResult<Vec<u64>> {
    if *values.data_type() == DataType::UInt64 {
        let numbers = values.as_primitive::<datafusion::arrow::datatypes::UInt64Type>();
        return Ok(numbers.values().to_vec());
    }
    let numbers = cast(values, &DataType::Int64)?;
    let numbers = numbers.as_primitive::<datafusion::arrow::datatypes::Int64Type>();
    Ok(numbers.values().iter().map(|number| number.cast_unsigned()).collect())
}

fn bin_types(call: &Call<'_>) -> DfResult<Types> {
    call.has(1, 1)?;
    let arguments = match &call.types[0] {
        DataType::UInt64 => Ok(vec![DataType::UInt64]),
        text if text.is_string() || text.is_binary() => call.takes(&[Kind::Bytes]),
        _ => call.takes(&[Kind::Integer]),
    };
    gives(arguments, DataType::Utf8View)
}

/// The bits of an integer without leading zeros, or those of all bytes.
fn bin(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    if rows.arguments[0].values.data_type().is_integer() {
        let numbers = bits_of(&rows.arguments[0].values)?;
        return rows.each::<String, StringViewArray>(|row| {
            Ok(rows.arguments[0].known(row).map(|at| format!("{:b}", numbers[at])))
        });
    }
    let blobs = rows.column::<BinaryViewArray>(0)?;
    rows.each::<String, StringViewArray>(|row| {
        Ok(blobs.get(row).map(|bytes| bytes.iter().map(|byte| format!("{byte:08b}")).collect()))
    })
}

/// The bytes of a text of zeros and ones.
fn unbin(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let texts = rows.column::<StringViewArray>(0)?;
    rows.each::<Vec<u8>, BinaryViewArray>(|row| {
        let Some(text) = texts.get(row) else { return Ok(None) };
        if !text.bytes().all(|digit| matches!(digit, b'0' | b'1')) {
            return exec_err!("{}: '{text}' is not made of 0 and 1", rows.name);
        }
        let padded = "0".repeat((8 - text.len() % 8) % 8) + text;
        let bytes = padded.as_bytes().chunks(8);
        Ok(Some(
            bytes.map(|bits| bits.iter().fold(0, |byte, bit| byte * 2 + (bit - b'0'))).collect(),
        ))
    })
}

/// Most digits that a number is filled up to.
const DIGITS_MAX: i64 = 64;

fn to_base(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    const DIGITS: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let (numbers, bases) = (rows.column::<Int64Array>(0)?, rows.column::<Int64Array>(1)?);
    let widths = rows.optional::<Int64Array>(2)?;
    rows.each::<String, StringViewArray>(|row| {
        let width = match &widths {
            Some(widths) => widths.get(row),
            None => Some(0),
        };
        let (Some(number), Some(base), Some(width)) = (numbers.get(row), bases.get(row), width)
        else {
            return Ok(None);
        };
        if number < 0 || !(2..=36).contains(&base) || !(0..=DIGITS_MAX).contains(&width) {
            return exec_err!(
                "to_base: the number is from 0 on, the base from 2 to 36, and the width from 0 to \
                 {DIGITS_MAX}, not {number}, {base} and {width}"
            );
        }
        let (mut digits, mut rest) = (Vec::new(), number);
        while rest > 0 || digits.is_empty() {
            digits.push(char::from(DIGITS[usize::try_from(rest % base).unwrap_or_default()]));
            rest /= base;
        }
        let missing = usize::try_from(width).unwrap_or_default().saturating_sub(digits.len());
        Ok(Some("0".repeat(missing) + &digits.into_iter().rev().collect::<String>()))
    })
}

/// A number for values, equal for equal ones, and the same in each session.
fn hash(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    // FNV-1a over the keys of the values, mixed once more at the end.
    const PRIME: u64 = 0x100_0000_01b3;
    const FIRST: u64 = 0xcbf2_9ce4_8422_2325;
    if rows.arguments.is_empty() {
        return plan_err!("hash has an argument");
    }
    let keys: Vec<_> =
        rows.arguments.iter().map(|argument| keys(&argument.values)).collect::<DfResult<_>>()?;
    rows.each::<u64, UInt64Array>(|row| {
        let mut hash = FIRST;
        for (argument, keys) in rows.arguments.iter().zip(&keys) {
            for byte in keys.row(argument.at(row)).data() {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
            }
        }
        hash = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Ok(Some(hash ^ (hash >> 29)))
    })
}
