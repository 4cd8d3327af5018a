//! Values in PostgreSQL's text format.

use std::fmt::Write;

use arrow::array::types::{
    Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType,
};
use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Date64Type, DurationMicrosecondType,
    DurationMillisecondType, DurationNanosecondType, DurationSecondType, Float16Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, IntervalDayTimeType,
    IntervalMonthDayNanoType, IntervalUnit, IntervalYearMonthType, Time32MillisecondType,
    Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use chrono::{DateTime, Datelike, NaiveDate};

use crate::json;

const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 86_400 * SECOND_US;

/// Months, days and microseconds of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IntervalParts {
    pub(crate) months: i32,
    pub(crate) days: i32,
    pub(crate) microseconds: i64,
}

/// True of a row that is NULL, also where the array has no marks of it.
pub(crate) fn is_null(array: &dyn Array, row: usize) -> bool {
    match array.data_type() {
        DataType::Null => true,
        DataType::Dictionary(..) if array.is_valid(row) => {
            let dictionary = array.as_any_dictionary();
            is_null(dictionary.values().as_ref(), dictionary.normalized_keys()[row])
        }
        _ => array.is_null(row),
    }
}

/// Writes the value of a row, which is not NULL.
pub(crate) fn write_value(array: &dyn Array, row: usize, out: &mut String) {
    try_write(array, row, out).expect("a string takes all that is written");
}

fn try_write(array: &dyn Array, row: usize, out: &mut String) -> std::fmt::Result {
    match array.data_type() {
        DataType::Boolean => out.push(if array.as_boolean().value(row) { 't' } else { 'f' }),
        DataType::Float16 => {
            out.push_str(&float(array.as_primitive::<Float16Type>().value(row).into(), 6, false));
        }
        DataType::Float32 => {
            out.push_str(&float(array.as_primitive::<Float32Type>().value(row).into(), 6, true));
        }
        DataType::Float64 => {
            out.push_str(&float(array.as_primitive::<Float64Type>().value(row), 15, false));
        }
        DataType::Utf8 => out.push_str(array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => out.push_str(array.as_string::<i64>().value(row)),
        DataType::Utf8View => out.push_str(array.as_string_view().value(row)),
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let key = dictionary.normalized_keys()[row];
            return try_write(dictionary.values().as_ref(), key, out);
        }
        DataType::List(_)
        | DataType::LargeList(_)
        | DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::FixedSizeList(..) => match json::list_items(array, row) {
            Some(items) if !items.data_type().is_nested() => write_array(items.as_ref(), out),
            _ => json::write_value(array, row, out),
        },
        other if other.is_nested() => json::write_value(array, row, out),
        _ => {
            if let Some(text) = decimal(array, row) {
                out.push_str(&text);
            } else if let Some(parts) = interval(array, row) {
                write_interval(parts, out)?;
            } else if let Some(bytes) = bytes(array, row) {
                out.push_str("\\x");
                bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))?;
            } else if let Some(value) = integer(array, row) {
                write!(out, "{value}")?;
            } else {
                write_time(array, row, out)?;
            }
        }
    }
    Ok(())
}

/// The value of a column of integers.
pub(crate) fn integer(array: &dyn Array, row: usize) -> Option<i128> {
    fn of<T: ArrowPrimitiveType>(array: &dyn Array, row: usize) -> i128
    where
        i128: From<T::Native>,
    {
        i128::from(array.as_primitive::<T>().value(row))
    }
    Some(match array.data_type() {
        DataType::Int8 => of::<Int8Type>(array, row),
        DataType::Int16 => of::<Int16Type>(array, row),
        DataType::Int32 => of::<Int32Type>(array, row),
        DataType::Int64 => of::<Int64Type>(array, row),
        DataType::UInt8 => of::<UInt8Type>(array, row),
        DataType::UInt16 => of::<UInt16Type>(array, row),
        DataType::UInt32 => of::<UInt32Type>(array, row),
        DataType::UInt64 => of::<UInt64Type>(array, row),
        _ => return None,
    })
}

/// The value of a column of decimals as digits with a point.
pub(crate) fn decimal(array: &dyn Array, row: usize) -> Option<String> {
    fn of<T: DecimalType>(array: &dyn Array, row: usize, precision: u8, scale: i8) -> String {
        T::format_decimal(array.as_primitive::<T>().value(row), precision, scale)
    }
    Some(match *array.data_type() {
        DataType::Decimal32(precision, scale) => of::<Decimal32Type>(array, row, precision, scale),
        DataType::Decimal64(precision, scale) => of::<Decimal64Type>(array, row, precision, scale),
        DataType::Decimal128(precision, scale) => {
            of::<Decimal128Type>(array, row, precision, scale)
        }
        DataType::Decimal256(precision, scale) => {
            of::<Decimal256Type>(array, row, precision, scale)
        }
        _ => return None,
    })
}

/// The value of a column of bytes.
pub(crate) fn bytes(array: &dyn Array, row: usize) -> Option<&[u8]> {
    Some(match array.data_type() {
        DataType::Binary => array.as_binary::<i32>().value(row),
        DataType::LargeBinary => array.as_binary::<i64>().value(row),
        DataType::BinaryView => array.as_binary_view().value(row),
        DataType::FixedSizeBinary(_) => array.as_fixed_size_binary().value(row),
        _ => return None,
    })
}

/// The value of a column of intervals or durations.
pub(crate) fn interval(array: &dyn Array, row: usize) -> Option<IntervalParts> {
    let microseconds = |microseconds| IntervalParts { months: 0, days: 0, microseconds };
    Some(match array.data_type() {
        DataType::Interval(IntervalUnit::YearMonth) => {
            let months = array.as_primitive::<IntervalYearMonthType>().value(row);
            IntervalParts { months, days: 0, microseconds: 0 }
        }
        DataType::Interval(IntervalUnit::DayTime) => {
            let value = array.as_primitive::<IntervalDayTimeType>().value(row);
            let microseconds = i64::from(value.milliseconds) * 1000;
            IntervalParts { months: 0, days: value.days, microseconds }
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
            let microseconds = value.nanoseconds / 1000;
            IntervalParts { months: value.months, days: value.days, microseconds }
        }
        DataType::Duration(TimeUnit::Second) => microseconds(
            array.as_primitive::<DurationSecondType>().value(row).saturating_mul(SECOND_US),
        ),
        DataType::Duration(TimeUnit::Millisecond) => microseconds(
            array.as_primitive::<DurationMillisecondType>().value(row).saturating_mul(1000),
        ),
        DataType::Duration(TimeUnit::Microsecond) => {
            microseconds(array.as_primitive::<DurationMicrosecondType>().value(row))
        }
        DataType::Duration(TimeUnit::Nanosecond) => {
            microseconds(array.as_primitive::<DurationNanosecondType>().value(row) / 1000)
        }
        _ => return None,
    })
}

/// Days since 1970-01-01 of a date.
pub(crate) fn days(array: &dyn Array, row: usize) -> Option<i64> {
    Some(match array.data_type() {
        DataType::Date32 => i64::from(array.as_primitive::<Date32Type>().value(row)),
        DataType::Date64 => array.as_primitive::<Date64Type>().value(row).div_euclid(86_400_000),
        _ => return None,
    })
}

/// Microseconds since midnight of a time.
pub(crate) fn time_us(array: &dyn Array, row: usize) -> Option<i64> {
    Some(match array.data_type() {
        DataType::Time32(TimeUnit::Second) => {
            i64::from(array.as_primitive::<Time32SecondType>().value(row)) * SECOND_US
        }
        DataType::Time32(_) => {
            i64::from(array.as_primitive::<Time32MillisecondType>().value(row)) * 1000
        }
        DataType::Time64(TimeUnit::Nanosecond) => {
            array.as_primitive::<Time64NanosecondType>().value(row) / 1000
        }
        DataType::Time64(_) => array.as_primitive::<Time64MicrosecondType>().value(row),
        _ => return None,
    })
}

/// Microseconds since 1970-01-01 of a timestamp; `None` also for one so far away that they do not fit.
pub(crate) fn timestamp_us(array: &dyn Array, row: usize) -> Option<i64> {
    match array.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => {
            array.as_primitive::<TimestampSecondType>().value(row).checked_mul(SECOND_US)
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            array.as_primitive::<TimestampMillisecondType>().value(row).checked_mul(1000)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Some(array.as_primitive::<TimestampMicrosecondType>().value(row))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            Some(array.as_primitive::<TimestampNanosecondType>().value(row).div_euclid(1000))
        }
        _ => None,
    }
}

fn write_time(array: &dyn Array, row: usize, out: &mut String) -> std::fmt::Result {
    if let Some(days) = days(array, row) {
        return write_day(days, out);
    }
    if let Some(microseconds) = time_us(array, row) {
        return write_clock(microseconds, out);
    }
    if let Some(microseconds) = timestamp_us(array, row) {
        let before_christ = out.len();
        write_day(microseconds.div_euclid(DAY_US), out)?;
        let is_before = out[before_christ..].ends_with(" BC");
        if is_before {
            out.truncate(out.len() - 3);
        }
        out.push(' ');
        write_clock(microseconds.rem_euclid(DAY_US), out)?;
        if matches!(array.data_type(), DataType::Timestamp(_, Some(_))) {
            out.push_str("+00");
        }
        if is_before {
            out.push_str(" BC");
        }
    }
    Ok(())
}

/// A date; years before the first end with BC.
fn write_day(days: i64, out: &mut String) -> std::fmt::Result {
    let date = days
        .checked_mul(86_400)
        .and_then(|seconds| DateTime::from_timestamp(seconds, 0))
        .map_or(NaiveDate::MAX, |time| time.date_naive());
    match date.year() {
        year if year > 0 => write!(out, "{year:04}-{:02}-{:02}", date.month(), date.day()),
        year => write!(out, "{:04}-{:02}-{:02} BC", 1 - year, date.month(), date.day()),
    }
}

fn write_clock(microseconds: i64, out: &mut String) -> std::fmt::Result {
    let seconds = microseconds / SECOND_US;
    write!(out, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
    match microseconds % SECOND_US {
        0 => Ok(()),
        fraction => {
            let digits = format!("{fraction:06}");
            write!(out, ".{}", digits.trim_end_matches('0'))
        }
    }
}

/// An interval in PostgreSQL's style: `1 year 2 mons 3 days 04:05:06`.
fn write_interval(parts: IntervalParts, out: &mut String) -> std::fmt::Result {
    let (years, months) = (parts.months / 12, parts.months % 12);
    let mut is_first = true;
    let mut was_negative = false;
    for (count, name) in [(years, "year"), (months, "mon"), (parts.days, "day")] {
        if count == 0 {
            continue;
        }
        let space = if is_first { "" } else { " " };
        // A positive field after a negative one says so.
        let sign = if was_negative && count > 0 { "+" } else { "" };
        let plural = if count == 1 { "" } else { "s" };
        write!(out, "{space}{sign}{count} {name}{plural}")?;
        (is_first, was_negative) = (false, count < 0);
    }
    if parts.microseconds != 0 || is_first {
        if !is_first {
            out.push(' ');
        }
        match parts.microseconds {
            time if time < 0 => out.push('-'),
            _ if was_negative => out.push('+'),
            _ => {}
        }
        let time = parts.microseconds.unsigned_abs();
        write_clock(i64::try_from(time).unwrap_or(i64::MAX), out)?;
    }
    Ok(())
}

/// The fewest digits that tell a number, with an exponent where PostgreSQL writes one: from `digits` digits before
/// the point on, and below 0.0001.
pub(crate) fn float(value: f64, digits: i32, is_single: bool) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    #[expect(clippy::cast_possible_truncation, reason = "the value was a single-precision one")]
    let scientific = if is_single { format!("{:e}", value as f32) } else { format!("{value:e}") };
    let exponent = scientific.split_once('e').and_then(|(_, digits)| digits.parse().ok());
    match (exponent, scientific.split_once('e')) {
        (Some(exponent), Some((mantissa, _))) if !(-4..digits).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", i32::abs(exponent))
        }
        _ if is_single => format!("{}", value as f32),
        _ => format!("{value}"),
    }
}

/// A list as PostgreSQL writes arrays: `{1,NULL,"a b"}`.
fn write_array(items: &dyn Array, out: &mut String) {
    out.push('{');
    let mut item = String::new();
    for row in 0..items.len() {
        if row > 0 {
            out.push(',');
        }
        if items.is_null(row) {
            out.push_str("NULL");
            continue;
        }
        item.clear();
        write_value(items, row, &mut item);
        let is_plain = !item.is_empty()
            && !item.eq_ignore_ascii_case("null")
            && !item.contains(|char: char| {
                matches!(char, '{' | '}' | ',' | '"' | '\\') || char.is_whitespace()
            });
        if is_plain {
            out.push_str(&item);
            continue;
        }
        out.push('"');
        for char in item.chars() {
            if matches!(char, '"' | '\\') {
                out.push('\\');
            }
            out.push(char);
        }
        out.push('"');
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, BinaryArray, Date32Array, Float32Array, Float64Array, IntervalMonthDayNanoArray,
        ListArray, StringArray, TimestampMicrosecondArray,
    };
    use arrow::datatypes::{Field, IntervalMonthDayNano};

    use super::*;

    fn text(array: impl Array + 'static) -> String {
        let mut out = String::new();
        write_value(&array, 0, &mut out);
        out
    }

    // The expected texts are what PostgreSQL 15 prints.
    #[test]
    fn floats_have_an_exponent_where_postgresql_writes_one() {
        let double = |value: f64| text(Float64Array::from(vec![value]));
        assert_eq!(double(0.1), "0.1");
        assert_eq!(double(1e14), "100000000000000");
        assert_eq!(double(1e15), "1e+15");
        assert_eq!(double(1.5e-5), "1.5e-05");
        assert_eq!(double(-1e300), "-1e+300");
        assert_eq!(double(f64::NEG_INFINITY), "-Infinity");
        assert_eq!(double(-0.0), "-0");
        assert_eq!(text(Float32Array::from(vec![1e6])), "1e+06");
        assert_eq!(text(Float32Array::from(vec![0.1])), "0.1");
    }

    #[test]
    fn null_is_null_without_marks() {
        assert!(is_null(&arrow::array::NullArray::new(1), 0));
        let keys = arrow::array::Int8Array::from(vec![0, 1]);
        let values = arrow::array::StringArray::from(vec![Some("a"), None]);
        let dictionary = arrow::array::DictionaryArray::new(keys, std::sync::Arc::new(values));
        assert!(!is_null(&dictionary, 0) && is_null(&dictionary, 1));
    }

    #[test]
    fn dates_and_times_are_iso() {
        assert_eq!(text(Date32Array::from(vec![0])), "1970-01-01");
        assert_eq!(text(Date32Array::from(vec![-735_000])), "0044-08-22 BC");
        let timestamp = |value| TimestampMicrosecondArray::from(vec![value]);
        assert_eq!(text(timestamp(1_500_000)), "1970-01-01 00:00:01.5");
        assert_eq!(text(timestamp(-1)), "1969-12-31 23:59:59.999999");
        assert_eq!(text(timestamp(0).with_timezone("UTC")), "1970-01-01 00:00:00+00");
    }

    #[test]
    fn intervals_are_in_the_style_of_postgresql() {
        let interval = |months, days, nanoseconds| {
            let value = IntervalMonthDayNano::new(months, days, nanoseconds);
            text(IntervalMonthDayNanoArray::from(vec![value]))
        };
        assert_eq!(interval(14, 3, 14_706_000_000_000), "1 year 2 mons 3 days 04:05:06");
        assert_eq!(interval(0, 0, 0), "00:00:00");
        assert_eq!(interval(-1, 2, -1_500_000_000), "-1 mons +2 days -00:00:01.5");
        assert_eq!(interval(-1, 0, 1_000_000_000), "-1 mons +00:00:01");
    }

    #[test]
    fn arrays_quote_what_they_must() {
        let items: ArrayRef =
            Arc::new(StringArray::from(vec![Some("a"), None, Some("b c"), Some("\"\\"), Some("")]));
        let field = Arc::new(Field::new("item", DataType::Utf8, true));
        let offsets = arrow::buffer::OffsetBuffer::from_lengths([5]);
        let list = ListArray::new(field, offsets, items, None);
        assert_eq!(text(list), r#"{a,NULL,"b c","\"\\",""}"#);
        assert_eq!(text(BinaryArray::from_vec(vec![b"\x00\xff"])), "\\x00ff");
    }
}
