//! Values in PostgreSQL's binary format, which its send functions define.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Float16Type, Float32Type, Float64Type};
use pgwire::api::Type;

use crate::text;
use crate::{json, types};

/// Days from 1970-01-01 to 2000-01-01, where PostgreSQL's dates and timestamps begin.
pub(crate) const EPOCH_DAYS: i64 = 10_957;

/// Microseconds from 1970-01-01 to 2000-01-01.
pub(crate) const EPOCH_US: i64 = EPOCH_DAYS * 86_400_000_000;

/// Digits of a numeric lie in groups of four.
const GROUP_DIGITS: usize = 4;

/// The sign of a numeric that is negative.
pub(crate) const NUMERIC_NEGATIVE: u16 = 0x4000;

/// Writes the value of a row, which is not NULL. Returns false if it has no binary form: it is out of range.
pub(crate) fn write_value(array: &dyn Array, row: usize, wire: &Type, out: &mut Vec<u8>) -> bool {
    if let DataType::Dictionary(..) = array.data_type() {
        let dictionary = array.as_any_dictionary();
        let key = dictionary.normalized_keys()[row];
        return write_value(dictionary.values().as_ref(), key, wire, out);
    }
    match *wire {
        Type::BOOL => out.push(array.as_boolean().value(row).into()),
        Type::INT2 | Type::INT4 | Type::INT8 | Type::OID => {
            let Some(value) = text::integer(array, row) else { return false };
            let width = usize::from(types::width_bytes(wire).unsigned_abs());
            out.extend_from_slice(&value.to_be_bytes()[16 - width..]);
        }
        Type::FLOAT4 => {
            let value = match array.data_type() {
                DataType::Float16 => array.as_primitive::<Float16Type>().value(row).to_f32(),
                _ => array.as_primitive::<Float32Type>().value(row),
            };
            out.extend_from_slice(&value.to_be_bytes());
        }
        Type::FLOAT8 => {
            out.extend_from_slice(&array.as_primitive::<Float64Type>().value(row).to_be_bytes());
        }
        Type::NUMERIC => {
            let digits = text::decimal(array, row)
                .or_else(|| text::integer(array, row).map(|value| value.to_string()));
            let Some(digits) = digits else { return false };
            write_numeric(&digits, out);
        }
        Type::BYTEA => match text::bytes(array, row) {
            Some(bytes) => out.extend_from_slice(bytes),
            None => return false,
        },
        Type::UUID => {
            let mut value = String::new();
            text::write_value(array, row, &mut value);
            match weft::uuid_bytes(&value) {
                Some(bytes) => out.extend_from_slice(&bytes),
                None => return false,
            }
        }
        Type::DATE => {
            let days = text::days(array, row).map(|days| days - EPOCH_DAYS);
            match days.and_then(|days| i32::try_from(days).ok()) {
                Some(days) => out.extend_from_slice(&days.to_be_bytes()),
                None => return false,
            }
        }
        Type::TIME => match text::time_us(array, row) {
            Some(microseconds) => out.extend_from_slice(&microseconds.to_be_bytes()),
            None => return false,
        },
        Type::TIMESTAMP | Type::TIMESTAMPTZ => {
            let since = text::timestamp_us(array, row).and_then(|us| us.checked_sub(EPOCH_US));
            match since {
                Some(microseconds) => out.extend_from_slice(&microseconds.to_be_bytes()),
                None => return false,
            }
        }
        Type::INTERVAL => {
            let Some(parts) = text::interval(array, row) else { return false };
            out.extend_from_slice(&parts.microseconds.to_be_bytes());
            out.extend_from_slice(&parts.days.to_be_bytes());
            out.extend_from_slice(&parts.months.to_be_bytes());
        }
        _ => match json::list_items(array, row) {
            Some(items) if *wire != Type::JSON => {
                let item = types::item_type(wire);
                let item = item.unwrap_or_else(|| types::wire_type(items.data_type()));
                // The items of the catalog's vectors are counted from 0 on.
                let is_vector = matches!(*wire, Type::INT2_VECTOR | Type::OID_VECTOR);
                return write_array(items.as_ref(), &item, i32::from(!is_vector), out);
            }
            _ => {
                let mut value = String::new();
                text::write_value(array, row, &mut value);
                out.extend_from_slice(value.as_bytes());
            }
        },
    }
    true
}

/// An array of one dimension, whose first item has the number `first`.
fn write_array(items: &dyn Array, wire: &Type, first: i32, out: &mut Vec<u8>) -> bool {
    let dimensions = i32::from(!items.is_empty());
    out.extend_from_slice(&dimensions.to_be_bytes());
    out.extend_from_slice(&i32::from(items.null_count() > 0).to_be_bytes());
    out.extend_from_slice(&wire.oid().to_be_bytes());
    if dimensions == 0 {
        return true;
    }
    let Ok(count) = i32::try_from(items.len()) else { return false };
    out.extend_from_slice(&count.to_be_bytes());
    out.extend_from_slice(&first.to_be_bytes());
    (0..items.len()).all(|row| write_field(items, row, wire, out))
}

/// Writes the length of a value and the value; -1 for NULL. Returns false as [`write_value`] does.
pub(crate) fn write_field(array: &dyn Array, row: usize, wire: &Type, out: &mut Vec<u8>) -> bool {
    if text::is_null(array, row) {
        out.extend_from_slice(&(-1_i32).to_be_bytes());
        return true;
    }
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    if !write_value(array, row, wire, out) {
        return false;
    }
    let Ok(length) = i32::try_from(out.len() - start - 4) else { return false };
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    true
}

/// A decimal number, given as digits with an optional sign and point.
fn write_numeric(text: &str, out: &mut Vec<u8>) {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (NUMERIC_NEGATIVE, digits),
        None => (0, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = whole.trim_start_matches('0');
    let head = (GROUP_DIGITS - whole.len() % GROUP_DIGITS) % GROUP_DIGITS;
    let tail = (GROUP_DIGITS - fraction.len() % GROUP_DIGITS) % GROUP_DIGITS;
    let padded = format!("{}{whole}{fraction}{}", "0".repeat(head), "0".repeat(tail));
    let mut groups: Vec<i16> = padded
        .as_bytes()
        .chunks(GROUP_DIGITS)
        .map(|group| group.iter().fold(0, |sum, digit| sum * 10 + i16::from(digit - b'0')))
        .collect();
    // The power of 10,000 of the first group.
    let mut weight = (whole.len() + head) as i64 / GROUP_DIGITS as i64 - 1;
    let zeros = groups.iter().take_while(|group| **group == 0).count();
    groups.drain(..zeros);
    weight -= zeros as i64;
    groups.truncate(groups.iter().rposition(|group| *group != 0).map_or(0, |last| last + 1));
    if groups.is_empty() {
        weight = 0;
    }
    let sign = if groups.is_empty() { 0 } else { sign };
    for part in [groups.len() as i64, weight, i64::from(sign), fraction.len() as i64] {
        out.extend_from_slice(&part.to_be_bytes()[6..]);
    }
    groups.iter().for_each(|group| out.extend_from_slice(&group.to_be_bytes()));
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date32Array, Int32Array};

    use super::*;

    fn numeric(text: &str) -> Vec<i16> {
        let mut out = Vec::new();
        write_numeric(text, &mut out);
        out.chunks(2).map(|pair| i16::from_be_bytes([pair[0], pair[1]])).collect()
    }

    // As numeric_send of PostgreSQL 15 gives them: groups, weight, sign, scale, and the groups.
    #[test]
    fn numerics_lie_in_groups_of_four_digits() {
        assert_eq!(numeric("12345.678"), [3, 1, 0, 3, 1, 2345, 6780]);
        assert_eq!(numeric("-0.0001"), [1, -1, 0x4000, 4, 1]);
        assert_eq!(numeric("0.00"), [0, 0, 0, 2]);
        assert_eq!(numeric("100000000"), [1, 2, 0, 0, 1]);
        // 0.0000 0001 2000: the first group that is not zero has the weight -2.
        assert_eq!(numeric("0.000000012"), [2, -2, 0, 9, 1, 2000]);
    }

    #[test]
    fn dates_begin_in_2000_and_null_is_minus_one() {
        let mut out = Vec::new();
        assert!(write_field(&Date32Array::from(vec![10_958]), 0, &Type::DATE, &mut out));
        assert_eq!(out, [0, 0, 0, 4, 0, 0, 0, 1]);
        out.clear();
        assert!(write_field(&Int32Array::from(vec![None]), 0, &Type::INT4, &mut out));
        assert_eq!(out, [255; 4]);
    }
}
