//! `strptime`: texts to timestamps, by the formats of C that DuckDB knows.

use std::sync::Arc;

use chrono::{NaiveDate, NaiveTime, Weekday};
use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{Array, ArrayRef, StringViewArray, TimestampMicrosecondArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DfResult, exec_err, plan_err};
use datafusion::logical_expr::ScalarUDF;

use super::calendar::micros;
use super::elements::Lists;
use super::scalar::{Call, Kind, Rows, Scalar, TIMESTAMP, Types, gives, list_of};
use super::time_formats::{DAYS, MONTHS, unknown};

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        Scalar::function(&["strptime"], parse_types, |rows| strptime(rows, false)),
        Scalar::function(&["try_strptime"], parse_types, |rows| strptime(rows, true)),
    ]
}

fn parse_types(call: &Call<'_>) -> DfResult<Types> {
    call.has(2, 2)?;
    let arguments = match &call.types[1] {
        text if text.is_string() || text.is_null() => call.takes(&[Kind::Text; 2]),
        _ => {
            let item = call.item(1)?;
            if !item.is_string() && !item.is_null() {
                return plan_err!("{} takes a format, or a list of formats", call.name);
            }
            let text = Call { name: call.name, types: &call.types[..1] }.takes(&[Kind::Text]);
            text.map(|text| vec![text[0].clone(), list_of(DataType::Utf8View)])
        }
    };
    gives(arguments, TIMESTAMP)
}

/// A timestamp by a format, or by the first of several that fits. What does not fit is NULL, or an error.
fn strptime(rows: &Rows<'_>, is_try: bool) -> DfResult<ArrayRef> {
    let texts = rows.column::<StringViewArray>(0)?;
    let lists = match rows.arguments[1].values.data_type() {
        DataType::List(_) => Some(Lists::new(rows, 1)?),
        _ => None,
    };
    let formats = match &lists {
        Some(lists) => lists.values.as_string_view(),
        None => rows.arguments[1].values.as_string_view(),
    };
    rows.each::<i64, TimestampMicrosecondArray>(|row| {
        let range = match &lists {
            Some(lists) => lists.range(row),
            None => rows.arguments[1].known(row).map(|at| at..at + 1),
        };
        let (Some(text), Some(range)) = (texts.get(row), range) else { return Ok(None) };
        let known = range.filter(|&at| formats.is_valid(at)).map(|at| formats.value(at));
        let known: Vec<&str> = known.collect();
        for format in &known {
            if let Some(moment) = parsed(text, format)? {
                return Ok(Some(moment));
            }
        }
        match is_try {
            true => Ok(None),
            false => exec_err!(
                "{}: '{text}' is not of the format '{}': try_strptime gives NULL for it",
                rows.name,
                known.join("' or '")
            ),
        }
    })
}

/// What has been read of a text.
#[derive(Default)]
struct Parsed {
    year: Option<i32>,
    month: Option<u32>,
    day: Option<u32>,
    day_of_year: Option<u32>,
    iso_year: Option<i32>,
    iso_week: Option<u32>,
    /// From Monday, which is 1.
    weekday: Option<u32>,
    hour: u32,
    is_pm: Option<bool>,
    minute: u32,
    second: u32,
    nanos: u32,
    offset_seconds: i64,
}

/// The moment of a text, nothing if it does not fit the format.
///
/// # Errors
/// If the format has an unknown specifier.
fn parsed(text: &str, format: &str) -> DfResult<Option<i64>> {
    let mut parsed = Parsed::default();
    let mut rest = text.trim_start();
    let mut chars = format.trim_start().chars();
    while let Some(char) = chars.next() {
        if char.is_whitespace() {
            let trimmed = rest.trim_start();
            if trimmed.len() == rest.len() {
                return Ok(None);
            }
            rest = trimmed;
            continue;
        }
        if char != '%' {
            match rest.strip_prefix(char) {
                Some(behind) => rest = behind,
                None => return Ok(None),
            }
            continue;
        }
        let specifier = match chars.next() {
            Some('-') => chars.next(),
            other => other,
        };
        let Some(specifier) = specifier.filter(|specifier| SPECIFIERS.contains(*specifier)) else {
            return unknown(format, specifier);
        };
        match parsed.take(rest, specifier) {
            Some(behind) => rest = behind,
            None => return Ok(None),
        }
    }
    match rest.trim_end().is_empty() {
        true => Ok(parsed.moment()),
        false => Ok(None),
    }
}

/// The letters that may follow a percent sign in `strptime`.
const SPECIFIERS: &str = "aAbBhcdfgGHIjmMnpSuUVwWxXyYzZ%";

impl Parsed {
    /// Reads what a specifier stands for, and gives what follows; nothing if it is something else.
    fn take<'a>(&mut self, text: &'a str, specifier: char) -> Option<&'a str> {
        let (width, least, most) = match specifier {
            'd' => (2, 1, 31),
            'm' => (2, 1, 12),
            'j' => (3, 1, 366),
            'H' => (2, 0, 23),
            'I' => (2, 1, 12),
            'M' => (2, 0, 59),
            'S' => (2, 0, 59),
            'y' => (2, 0, 99),
            'U' | 'W' | 'V' => (2, 0, 53),
            'u' => (1, 1, 7),
            'w' => (1, 0, 6),
            _ => return self.take_other(text, specifier),
        };
        let (number, rest) = number(text, width)?;
        if !(least..=most).contains(&number) {
            return None;
        }
        match specifier {
            'd' => self.day = Some(number),
            'm' => self.month = Some(number),
            'j' => self.day_of_year = Some(number),
            'H' | 'I' => self.hour = number,
            'M' => self.minute = number,
            'S' => self.second = number,
            'V' => self.iso_week = Some(number),
            'u' => self.weekday = Some(number),
            'w' => self.weekday = Some((number + 6) % 7 + 1),
            'y' => {
                let century = if number < 69 { 2000 } else { 1900 };
                self.year = i32::try_from(number + century).ok();
            }
            _ => {}
        }
        Some(rest)
    }

    fn take_other<'a>(&mut self, text: &'a str, specifier: char) -> Option<&'a str> {
        match specifier {
            'Y' | 'G' => {
                let (sign, digits) = match text.strip_prefix('-') {
                    Some(digits) => (-1, digits),
                    None => (1, text),
                };
                let (number, rest) = number(digits, 4)?;
                let year = i32::try_from(number).ok()? * sign;
                *if specifier == 'Y' { &mut self.year } else { &mut self.iso_year } = Some(year);
                Some(rest)
            }
            'a' | 'A' => {
                let (day, rest) = name(text, &DAYS)?;
                self.weekday = Some((day + 6) % 7 + 1);
                Some(rest)
            }
            'b' | 'B' | 'h' => {
                let (month, rest) = name(text, &MONTHS)?;
                self.month = Some(month + 1);
                Some(rest)
            }
            'p' => {
                let word = text.get(..2)?;
                self.is_pm = Some(match word.to_ascii_uppercase().as_str() {
                    "AM" => false,
                    "PM" => true,
                    _ => return None,
                });
                Some(&text[2..])
            }
            'f' | 'n' | 'g' => {
                let width = match specifier {
                    'g' => 3,
                    'f' => 6,
                    _ => 9,
                };
                let digits = text.bytes().take(9).take_while(u8::is_ascii_digit).count();
                let digits = digits.min(width.max(6));
                let (fraction, rest) = number(text, digits)?;
                self.nanos = fraction * 10_u32.pow(u32::try_from(9 - digits).ok()?);
                Some(rest)
            }
            'c' => {
                let rest = self.take_other(text, 'x')?.strip_prefix(' ')?;
                self.take_other(rest, 'X')
            }
            'x' => {
                let rest = self.take(text, 'Y')?.strip_prefix('-')?;
                let rest = self.take(rest, 'm')?.strip_prefix('-')?;
                self.take(rest, 'd')
            }
            'X' => {
                let rest = self.take(text, 'H')?.strip_prefix(':')?;
                let rest = self.take(rest, 'M')?.strip_prefix(':')?;
                self.take(rest, 'S')
            }
            'z' => self.take_offset(text),
            'Z' => {
                let end = text.find(|char: char| !char.is_ascii_alphanumeric());
                let (zone, rest) = text.split_at(end.unwrap_or(text.len()));
                ["UTC", "GMT", "Z"].contains(&zone.to_ascii_uppercase().as_str()).then_some(rest)
            }
            '%' => text.strip_prefix('%'),
            _ => None,
        }
    }

    /// `+01`, `-0130`, `+01:30`
    fn take_offset<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        let (sign, text) = match text.strip_prefix('-') {
            Some(text) => (-1, text),
            None => (1, text.strip_prefix('+')?),
        };
        let (hours, mut rest) = number(text, 2)?;
        let mut minutes = 0;
        if let Some((count, behind)) = number(rest.strip_prefix(':').unwrap_or(rest), 2) {
            (minutes, rest) = (count, behind);
        }
        self.offset_seconds = sign * (i64::from(hours) * 3600 + i64::from(minutes) * 60);
        Some(rest)
    }

    /// The moment, if there is such a date and time. What is not given is that of 1 January 1900.
    fn moment(&self) -> Option<i64> {
        let date = match (self.iso_year, self.iso_week, self.day_of_year) {
            (Some(year), Some(week), _) => {
                let weekday = u8::try_from(self.weekday.unwrap_or(1) - 1).ok()?;
                NaiveDate::from_isoywd_opt(year, week, Weekday::try_from(weekday).ok()?)?
            }
            (_, _, Some(day)) => NaiveDate::from_yo_opt(self.year.unwrap_or(1900), day)?,
            _ => NaiveDate::from_ymd_opt(
                self.year.unwrap_or(1900),
                self.month.unwrap_or(1),
                self.day.unwrap_or(1),
            )?,
        };
        let hour = match self.is_pm {
            Some(true) => self.hour % 12 + 12,
            Some(false) => self.hour % 12,
            None => self.hour,
        };
        let time = NaiveTime::from_hms_nano_opt(hour, self.minute, self.second, self.nanos)?;
        micros(date.and_time(time)).checked_sub(self.offset_seconds * 1_000_000)
    }
}

/// A number of at most so many digits, and what follows it.
fn number(text: &str, width: usize) -> Option<(u32, &str)> {
    let digits = text.bytes().take(width).take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(digits);
    Some((digits.parse().ok()?, rest))
}

/// The place of a name, in full or by its first three letters, and what follows it.
fn name<'a>(text: &'a str, names: &[&str]) -> Option<(u32, &'a str)> {
    let begins =
        |name: &str| text.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    let place = names.iter().position(|name| begins(&name[..3]))?;
    let name = names[place];
    let length = if begins(name) { name.len() } else { 3 };
    Some((u32::try_from(place).ok()?, &text[length..]))
}
