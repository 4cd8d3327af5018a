//! Values of cells. Excel has dates and times as numbers of days, which the cell's format makes dates and times.

use arrow::datatypes::{DataType, TimeUnit};
use chrono::{NaiveDate, NaiveDateTime, NaiveTime};

use super::XlsxOptions;

/// Microseconds of a day.
const DAY_MICROS: i64 = 86_400_000_000;

/// Days from 1899-12-30, which number 0 would be, to 1970-01-01.
const EPOCH_DAYS: i64 = 25_569;

/// The first number of days that is the right one: Excel has a 29 February 1900, which there was not.
const FIRST_RIGHT_DAY: f64 = 60.0;

/// What the days differ by that count from 1904 on.
const DAYS_OF_1904: f64 = 1_462.0;

/// The number of 9999-12-31, the last day that Excel knows.
const LAST_DAY: f64 = 2_958_465.0;

/// What a number is, by its format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Format {
    #[default]
    Number,
    Date,
    Time,
    Timestamp,
}

impl Format {
    /// The format that Excel has built in by this number.
    pub(super) fn of_id(id: u32) -> Format {
        match id {
            14..=17 | 27..=31 | 34..=36 | 50..=58 => Format::Date,
            18..=21 | 32..=33 | 45..=47 => Format::Time,
            22 => Format::Timestamp,
            _ => Format::Number,
        }
    }

    /// The format of a code such as `yyyy-mm-dd hh:mm`.
    pub(super) fn of_code(code: &str) -> Format {
        // Formats of positive numbers come first.
        let (mut has_date, mut has_time, mut has_month) = (false, false, false);
        let mut characters = code.chars();
        while let Some(character) = characters.next() {
            match character.to_ascii_lowercase() {
                ';' => break,
                '"' => {
                    characters.by_ref().find(|character| *character == '"');
                }
                // The next character is shown, left out, or repeated.
                '\\' | '_' | '*' => {
                    characters.next();
                }
                // A colour, a currency, a condition; or hours, minutes, seconds beyond those of a day.
                '[' => {
                    let within = characters.by_ref().take_while(|character| *character != ']');
                    let within: String = within.collect::<String>().to_ascii_lowercase();
                    let is_part = |part: char| within.chars().all(|character| character == part);
                    has_time |= !within.is_empty() && "hms".chars().any(is_part);
                }
                'y' | 'd' => has_date = true,
                'h' | 's' => has_time = true,
                'm' => has_month = true,
                // `General`, and exponents: `0.00E+00`.
                'g' | 'e' if !has_date && !has_time => return Format::Number,
                '0' | '#' | '?' if !has_date && !has_time && !has_month => return Format::Number,
                _ => {}
            }
        }
        match (has_date || (has_month && !has_time), has_time) {
            (true, true) => Format::Timestamp,
            (true, false) => Format::Date,
            (false, true) => Format::Time,
            (false, false) => Format::Number,
        }
    }
}

/// The value of a cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Cell {
    #[default]
    Empty,
    Number(f64),
    Bool(bool),
    Text(String),
    /// Days since 1970.
    Date(i32),
    /// Microseconds of a day.
    Time(i64),
    /// Microseconds since 1970.
    Timestamp(i64),
    /// What a formula could not compute, such as `#DIV/0!`.
    Error(String),
}

impl Cell {
    /// A number by its format. One that is no date or time of this format stays a number.
    pub(super) fn of_number(number: f64, format: Format, is_1904: bool) -> Cell {
        if format == Format::Number || !number.is_finite() {
            return Cell::Number(number);
        }
        if format == Format::Time && (0.0..1.0).contains(&number) {
            return Cell::Time(micros(number));
        }
        let days = if is_1904 { number + DAYS_OF_1904 } else { number };
        if !(0.0..LAST_DAY + 1.0).contains(&days) || format == Format::Time {
            return Cell::Number(number);
        }
        let days = if days < FIRST_RIGHT_DAY { days + 1.0 } else { days };
        let whole = days.floor();
        let day = whole as i64 - EPOCH_DAYS;
        match format {
            Format::Date => i32::try_from(day).map_or(Cell::Number(number), Cell::Date),
            _ => Cell::Timestamp(day * DAY_MICROS + micros(days - whole)),
        }
    }

    /// A date, a time or both of ISO 8601.
    pub(super) fn of_iso(text: &str) -> Option<Cell> {
        let text = text.trim_end_matches('Z');
        let epoch = NaiveDate::default();
        let days = |date: NaiveDate| i32::try_from((date - epoch).num_days()).ok();
        if let Ok(date) = text.parse::<NaiveDate>() {
            return days(date).map(Cell::Date);
        }
        if let Ok(time) = text.parse::<NaiveTime>() {
            return (time - NaiveTime::MIN).num_microseconds().map(Cell::Time);
        }
        let both = text.parse::<NaiveDateTime>().ok()?;
        Some(Cell::Timestamp(both.and_utc().timestamp_micros()))
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            // Errors are refused, or NULL.
            Cell::Empty | Cell::Error(_) => Kind::Empty,
            Cell::Number(_) => Kind::Number,
            Cell::Bool(_) => Kind::Bool,
            Cell::Text(_) => Kind::Text,
            Cell::Date(_) => Kind::Date,
            Cell::Time(_) => Kind::Time,
            Cell::Timestamp(_) => Kind::Timestamp,
        }
    }

    /// The value as text.
    pub(super) fn text(&self) -> String {
        let time_of = |micros: i64| {
            let seconds = u32::try_from(micros / 1_000_000).unwrap_or_default();
            let nanos = u32::try_from(micros % 1_000_000).unwrap_or_default() * 1000;
            NaiveTime::from_num_seconds_from_midnight_opt(seconds, nanos).unwrap_or_default()
        };
        let date_of = |days: i64| NaiveDate::default() + chrono::Duration::days(days);
        match self {
            Cell::Empty => String::new(),
            Cell::Number(number) => number.to_string(),
            Cell::Bool(flag) => flag.to_string(),
            Cell::Text(text) | Cell::Error(text) => text.clone(),
            Cell::Date(days) => date_of(i64::from(*days)).to_string(),
            Cell::Time(micros) => time_of(*micros).to_string(),
            Cell::Timestamp(micros) => {
                let (days, rest) = (micros.div_euclid(DAY_MICROS), micros.rem_euclid(DAY_MICROS));
                format!("{} {}", date_of(days), time_of(rest))
            }
        }
    }
}

/// The microseconds of a part of a day: milliseconds, as Excel has no more digits that are right.
fn micros(part: f64) -> i64 {
    let millis = (part * (DAY_MICROS / 1000) as f64).round() as i64;
    millis.min(DAY_MICROS / 1000 - 1) * 1000
}

/// What the cells of a column have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Empty,
    Number,
    Bool,
    Date,
    Time,
    Timestamp,
    Text,
}

impl Kind {
    /// The kind of a column that has cells of both.
    pub(super) fn with(self, other: Kind) -> Kind {
        match (self, other) {
            (Kind::Empty, kind) | (kind, Kind::Empty) => kind,
            (one, same) if one == same => one,
            (Kind::Date, Kind::Timestamp) | (Kind::Timestamp, Kind::Date) => Kind::Timestamp,
            _ => Kind::Text,
        }
    }

    /// The kind as a column has it.
    pub(super) fn column(self, options: &XlsxOptions) -> Kind {
        match self {
            _ if options.all_text => Kind::Text,
            Kind::Empty if options.empty_as_text => Kind::Text,
            Kind::Empty => Kind::Number,
            other => other,
        }
    }

    pub(super) fn data_type(self) -> DataType {
        match self {
            Kind::Empty | Kind::Number => DataType::Float64,
            Kind::Bool => DataType::Boolean,
            Kind::Date => DataType::Date32,
            Kind::Time => DataType::Time64(TimeUnit::Microsecond),
            Kind::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Kind::Text => DataType::Utf8View,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_formats_are_told_apart() {
        for (code, expected) in [
            ("General", Format::Number),
            ("0.00", Format::Number),
            ("#,##0.00 \"days\"", Format::Number),
            ("0.00E+00", Format::Number),
            ("[Red]0;[Blue]-0", Format::Number),
            ("@", Format::Number),
            ("yyyy-mm-dd", Format::Date),
            ("[$-409]d\\-mmm\\-yy;@", Format::Date),
            ("mmm", Format::Date),
            ("hh:mm:ss", Format::Time),
            ("[h]:mm", Format::Time),
            ("mm:ss.0", Format::Time),
            ("h:mm AM/PM", Format::Time),
            ("dd.mm.yyyy hh:mm", Format::Timestamp),
            ("yyyy\"-\"mm\"T\"hh:mm", Format::Timestamp),
        ] {
            assert_eq!(Format::of_code(code), expected, "{code}");
        }
    }

    #[test]
    fn numbers_of_days_are_dates_and_times() {
        let of = |number, format| Cell::of_number(number, format, false).text();
        assert_eq!(of(1.0, Format::Date), "1900-01-01");
        assert_eq!(of(59.0, Format::Date), "1900-02-28");
        assert_eq!(of(61.0, Format::Date), "1900-03-01");
        assert_eq!(of(45_292.0, Format::Date), "2024-01-01");
        assert_eq!(of(LAST_DAY, Format::Date), "9999-12-31");
        assert_eq!(of(45_292.5, Format::Timestamp), "2024-01-01 12:00:00");
        assert_eq!(of(45_292.000_011_574, Format::Timestamp), "2024-01-01 00:00:01");
        assert_eq!(of(0.25, Format::Time), "06:00:00");
        assert_eq!(of(0.999_999_999_9, Format::Time), "23:59:59.999");
        assert_eq!(of(1.5, Format::Time), "1.5");
        assert_eq!(of(-1.0, Format::Date), "-1");
        assert_eq!(of(1e300, Format::Timestamp), Cell::Number(1e300).text());
        assert_eq!(of(f64::NAN, Format::Date), "NaN");
        assert_eq!(Cell::of_number(0.0, Format::Date, true).text(), "1904-01-01");
        assert_eq!(Cell::of_iso("2024-02-29T10:20:30Z").unwrap().text(), "2024-02-29 10:20:30");
        assert_eq!(Cell::of_iso("1969-12-31").unwrap(), Cell::Date(-1));
        assert_eq!(Cell::of_iso("10:20:30").unwrap().text(), "10:20:30");
        assert_eq!(Cell::of_iso("soon"), None);
    }
}
