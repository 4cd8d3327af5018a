//! `to_char(x, pattern)` with PostgreSQL's patterns: `'YYYY-MM-DD'` for dates and times (`times.rs`), `'FM999,990.00'` for numbers
//! (`numbers.rs`). A pattern with `%` has the specifiers of C, as DataFusion has it.

mod numbers;
mod times;

use std::fmt::Write;
use std::str::FromStr;
use std::sync::Arc;

use chrono::{NaiveDateTime, Offset, TimeZone};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{
    ArrayRef, AsArray, Float64Array, StringViewArray, Time64MicrosecondArray,
    TimestampMicrosecondArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{Result as DfResult, exec_datafusion_err, plan_err};
use datafusion::logical_expr::ScalarUDF;

use super::calendar::date_time;
use super::scalar::{Call, Rows, Scalar, Types, gives, is_moment, moment_type};

/// The function.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![Scalar::function(&["to_char"], types, to_char)]
}

/// Digits of the integers that there are.
const INTEGER_DIGITS: u8 = 20;

fn types(call: &Call<'_>) -> DfResult<Types> {
    let [value, pattern] = call.types else {
        return plan_err!("to_char takes a date, time or number, and a pattern");
    };
    let value = match value {
        moment if is_moment(moment) => moment_type(moment),
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        integer if integer.is_integer() => DataType::Decimal128(INTEGER_DIGITS, 0),
        exact if exact.is_decimal() => exact.clone(),
        float if float.is_floating() => DataType::Float64,
        DataType::Null => DataType::Float64,
        _ => return plan_err!("to_char takes a date, time or number, not ({})", call.given()),
    };
    match pattern {
        text if text.is_string() || text.is_null() => {
            gives(Ok(vec![value, DataType::Utf8View]), DataType::Utf8View)
        }
        _ => plan_err!("to_char takes a pattern that is a text, not ({})", call.given()),
    }
}

fn to_char(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let patterns = rows.column::<StringViewArray>(1)?;
    match rows.arguments[0].values.data_type() {
        DataType::Timestamp(_, zone) => {
            let moments = rows.column::<TimestampMicrosecondArray>(0)?;
            let zone = zone.as_deref().map(Tz::from_str).transpose()?;
            rows.each::<String, StringViewArray>(|row| {
                let (Some(moment), Some(pattern)) = (moments.get(row), patterns.get(row)) else {
                    return Ok(None);
                };
                let at = date_time(moment)?;
                let offset = zone
                    .map_or(0, |zone| zone.offset_from_utc_datetime(&at).fix().local_minus_utc());
                let local = at + chrono::Duration::seconds(offset.into());
                of_moment(local, zone.map(|_| offset), pattern).map(Some)
            })
        }
        DataType::Time64(_) => {
            let times = rows.column::<Time64MicrosecondArray>(0)?;
            rows.each::<String, StringViewArray>(|row| match (times.get(row), patterns.get(row)) {
                (Some(time), Some(pattern)) => of_moment(date_time(time)?, None, pattern).map(Some),
                _ => Ok(None),
            })
        }
        DataType::Float64 => {
            let numbers = rows.column::<Float64Array>(0)?;
            rows.each::<String, StringViewArray>(|row| {
                match (numbers.get(row), patterns.get(row)) {
                    (Some(number), Some(pattern)) => {
                        numbers::formatted(&number.to_string(), pattern).map(Some)
                    }
                    _ => Ok(None),
                }
            })
        }
        _ => {
            // With all digits.
            let texts = cast(&rows.arguments[0].values, &DataType::Utf8View)?;
            let texts = texts.as_string_view();
            rows.each::<String, StringViewArray>(|row| {
                match (rows.arguments[0].known(row), patterns.get(row)) {
                    (Some(at), Some(pattern)) => {
                        numbers::formatted(texts.value(at), pattern).map(Some)
                    }
                    _ => Ok(None),
                }
            })
        }
    }
}

/// The text of a moment, with what the zone's clocks are ahead of UTC by, in seconds.
fn of_moment(at: NaiveDateTime, offset: Option<i32>, pattern: &str) -> DfResult<String> {
    if !pattern.contains('%') {
        return times::formatted(at, offset, pattern);
    }
    let mut text = String::new();
    let zone = offset.and_then(chrono::FixedOffset::east_opt);
    let written = match zone.and_then(|zone| zone.from_local_datetime(&at).single()) {
        Some(at) => write!(text, "{}", at.format(pattern)),
        None => write!(text, "{}", at.format(pattern)),
    };
    match written {
        Ok(()) => Ok(text),
        Err(_) => Err(exec_datafusion_err!(
            "the pattern '{pattern}' of to_char has a specifier that is unknown"
        )),
    }
}
