//! `strftime`: dates and times to text, by the formats of C that DuckDB knows.

use std::sync::Arc;

use chrono::{Datelike, NaiveDateTime, Timelike};
use datafusion::arrow::array::{ArrayRef, StringViewArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DfResult, exec_err};
use datafusion::logical_expr::ScalarUDF;

use super::calendar::{date_time, moments};
use super::scalar::{Call, Kind, Rows, Scalar, TIMESTAMP, Types, gives, is_moment};

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![Scalar::function(&["strftime"], format_types, strftime)]
}

pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

pub(super) const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A moment and a format, in either order.
fn format_types(call: &Call<'_>) -> DfResult<Types> {
    let arguments = match call.types {
        [format, moment] if is_moment(moment) && !is_moment(format) => {
            call.takes(&[Kind::Text, Kind::Timestamp])
        }
        _ => call.takes(&[Kind::Timestamp, Kind::Text]),
    };
    // Moments with a zone are shown in UTC, as everywhere.
    let arguments = arguments.map(|types| {
        let without_zone = |given: DataType| if is_moment(&given) { TIMESTAMP } else { given };
        types.into_iter().map(without_zone).collect()
    });
    gives(arguments, DataType::Utf8View)
}

fn strftime(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let first = usize::from(!is_moment(rows.arguments[0].values.data_type()));
    let moments = moments(rows, first)?;
    let formats = rows.column::<StringViewArray>(1 - first)?;
    rows.each::<String, StringViewArray>(|row| match (moments.get(row), formats.get(row)) {
        (Some(moment), Some(format)) => formatted(date_time(moment)?, format).map(Some),
        _ => Ok(None),
    })
}

/// A text of a moment.
///
/// # Errors
/// If the format has an unknown specifier.
fn formatted(at: NaiveDateTime, format: &str) -> DfResult<String> {
    let mut text = String::new();
    let mut chars = format.chars();
    while let Some(char) = chars.next() {
        if char != '%' {
            text.push(char);
            continue;
        }
        let mut specifier = chars.next();
        let is_short = specifier == Some('-');
        if is_short {
            specifier = chars.next();
        }
        let Some(part) = specifier.and_then(|specifier| formatted_part(at, specifier, is_short))
        else {
            return unknown(format, specifier);
        };
        text.push_str(&part);
    }
    Ok(text)
}

pub(super) fn unknown<T>(format: &str, specifier: Option<char>) -> DfResult<T> {
    match specifier {
        Some(specifier) => exec_err!("the format '{format}' has %{specifier}, which is unknown"),
        None => exec_err!("the format '{format}' ends in %: write %% for a percent sign"),
    }
}

fn formatted_part(at: NaiveDateTime, specifier: char, is_short: bool) -> Option<String> {
    let hour_12 = (at.hour() + 11) % 12 + 1;
    let day_of_year = at.ordinal0();
    let week = |first: u32| (day_of_year + 7 - first) / 7;
    let from_sunday = at.weekday().num_days_from_sunday();
    let number = |number: u32, width: usize| match is_short {
        true => number.to_string(),
        false => format!("{number:0width$}"),
    };
    let year_2 = at.year().rem_euclid(100).unsigned_abs();
    Some(match specifier {
        'a' => DAYS[from_sunday as usize][..3].to_owned(),
        'A' => DAYS[from_sunday as usize].to_owned(),
        'b' | 'h' => MONTHS[at.month0() as usize][..3].to_owned(),
        'B' => MONTHS[at.month0() as usize].to_owned(),
        'c' => at.format("%Y-%m-%d %H:%M:%S").to_string(),
        'd' => number(at.day(), 2),
        'f' => number(at.nanosecond() / 1_000, 6),
        'g' => number(at.nanosecond() / 1_000_000, 3),
        'n' => number(at.nanosecond(), 9),
        'G' => format!("{:04}", at.iso_week().year()),
        'H' => number(at.hour(), 2),
        'I' => number(hour_12, 2),
        'j' => number(day_of_year + 1, 3),
        'm' => number(at.month(), 2),
        'M' => number(at.minute(), 2),
        'p' => if at.hour() < 12 { "AM" } else { "PM" }.to_owned(),
        'S' => number(at.second(), 2),
        'u' => (at.weekday().num_days_from_monday() + 1).to_string(),
        'U' => number(week(from_sunday), 2),
        'V' => number(at.iso_week().week(), 2),
        'w' => from_sunday.to_string(),
        'W' => number(week(at.weekday().num_days_from_monday()), 2),
        'x' => at.format("%Y-%m-%d").to_string(),
        'X' => at.format("%H:%M:%S").to_string(),
        'y' => number(year_2, 2),
        'Y' => format!("{:04}", at.year()),
        'z' => "+00".to_owned(),
        'Z' => String::new(),
        '%' => "%".to_owned(),
        _ => return None,
    })
}
