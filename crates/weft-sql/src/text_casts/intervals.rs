//! Intervals in text, as DuckDB and PostgreSQL read them: `1 year 2.5 months`, `1 day -02:30:00`, `3 hours ago`, `1-2` (years and
//! months), `1 12:30:00` (days and a time), `P1Y2M3DT4H5.5S`.
//!
//! A fraction of years is rounded to months. One of quarters and months becomes days, 30 a month, and one of these and of weeks a time.

use std::str::Chars;

/// The same interval in words that Arrow reads as they are; `None` for text that is none, or in which a number has no unit.
pub(crate) fn plain(text: &str) -> Option<String> {
    let Interval { months, days, nanoseconds } = parse(text)?;
    let (months, days) = (i32::try_from(months).ok()?, i32::try_from(days).ok()?);
    let nanoseconds = i64::try_from(nanoseconds).ok()?;
    Some(format!("{months} months {days} days {nanoseconds} nanoseconds"))
}

/// True of the name of a unit.
pub(crate) fn is_unit(name: &str) -> bool {
    unit(name).is_some()
}

#[derive(Debug, Default, PartialEq)]
struct Interval {
    months: i128,
    days: i128,
    nanoseconds: i128,
}

/// Numbers are kept as so many parts of one.
const PARTS: i128 = 1_000_000_000;
/// Digits of a number before its point: enough for every interval, and products stay far from overflow.
const DIGITS_MAX: usize = 19;

const DAY_NANOSECONDS: i128 = 86_400 * 1_000_000_000;

/// What a number counts.
#[derive(Clone, Copy)]
enum Unit {
    /// Years, or so many of them: a fraction is rounded to months.
    Years(i128),
    /// So many months: a fraction becomes days.
    Months(i128),
    /// So many days: a fraction becomes a time.
    Days(i128),
    Nanoseconds(i128),
}

fn unit(name: &str) -> Option<Unit> {
    const SECOND: i128 = 1_000_000_000;
    Some(match name.to_ascii_lowercase().as_str() {
        "millennium" | "millenniums" | "millennia" => Unit::Years(1000),
        "century" | "centuries" => Unit::Years(100),
        "decade" | "decades" => Unit::Years(10),
        "year" | "years" | "yr" | "yrs" | "y" => Unit::Years(1),
        "quarter" | "quarters" => Unit::Months(3),
        "month" | "months" | "mon" | "mons" => Unit::Months(1),
        "week" | "weeks" | "w" => Unit::Days(7),
        "day" | "days" | "d" => Unit::Days(1),
        "hour" | "hours" | "hr" | "hrs" | "h" => Unit::Nanoseconds(3600 * SECOND),
        "minute" | "minutes" | "min" | "mins" | "m" => Unit::Nanoseconds(60 * SECOND),
        "second" | "seconds" | "sec" | "secs" | "s" => Unit::Nanoseconds(SECOND),
        "millisecond" | "milliseconds" | "msec" | "msecs" | "ms" => Unit::Nanoseconds(1_000_000),
        "microsecond" | "microseconds" | "usec" | "usecs" | "us" => Unit::Nanoseconds(1_000),
        "nanosecond" | "nanoseconds" | "ns" => Unit::Nanoseconds(1),
        _ => return None,
    })
}

impl Interval {
    /// Adds so many parts of a unit.
    fn add(&mut self, parts: i128, unit: Unit) {
        match unit {
            Unit::Years(years) => {
                let months = parts * years * 12;
                self.months += (months + months.signum() * (PARTS / 2)) / PARTS;
            }
            Unit::Months(each) => {
                let months = parts * each;
                self.months += months / PARTS;
                self.add(months % PARTS * 30, Unit::Days(1));
            }
            Unit::Days(each) => {
                let days = parts * each;
                self.days += days / PARTS;
                self.nanoseconds += days % PARTS * DAY_NANOSECONDS / PARTS;
            }
            Unit::Nanoseconds(each) => self.nanoseconds += parts * each / PARTS,
        }
    }

    fn negated(self) -> Interval {
        Interval { months: -self.months, days: -self.days, nanoseconds: -self.nanoseconds }
    }
}

fn parse(text: &str) -> Option<Interval> {
    let text = text.trim();
    if let Some(parts) = text.strip_prefix(['P', 'p']) {
        return iso(parts);
    }
    let mut rest = text.strip_prefix('@').unwrap_or(text).trim_start();
    let mut interval = Interval::default();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        if rest.eq_ignore_ascii_case("ago") && rest.len() < text.len() {
            return Some(interval.negated());
        }
        let (sign, unsigned) = sign(rest);
        if let Some((time, behind)) = time(unsigned) {
            interval.nanoseconds += sign * time;
            rest = behind.trim_start();
            continue;
        }
        let (parts, behind) = number(unsigned)?;
        if let Some((months, behind)) = behind.strip_prefix('-').and_then(number) {
            interval.add(sign * parts, Unit::Years(1));
            interval.add(sign * months, Unit::Months(1));
            rest = behind.trim_start();
            continue;
        }
        let behind = behind.trim_start();
        let letters = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (name, behind) = behind.split_at(letters);
        let unit = match name {
            // Days before a time.
            "" => time(self::sign(behind).1).map(|_| Unit::Days(1))?,
            name => unit(name)?,
        };
        interval.add(sign * parts, unit);
        rest = behind.trim_start();
    }
    Some(interval)
}

/// What is behind the P of ISO 8601.
fn iso(text: &str) -> Option<Interval> {
    let mut interval = Interval::default();
    let mut is_time = false;
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix(['T', 't']).filter(|_| !is_time) {
            (is_time, rest) = (true, behind);
            continue;
        }
        let (sign, unsigned) = sign(rest);
        let (parts, behind) = number(unsigned)?;
        let mut letters: Chars = behind.chars();
        let unit = match (is_time, letters.next()?.to_ascii_uppercase()) {
            (false, 'Y') => unit("year"),
            (false, 'M') => unit("month"),
            (false, 'W') => unit("week"),
            (false, 'D') => unit("day"),
            (true, 'H') => unit("hour"),
            (true, 'M') => unit("minute"),
            (true, 'S') => unit("second"),
            _ => None,
        };
        interval.add(sign * parts, unit?);
        rest = letters.as_str();
    }
    (!matches!(text, "" | "T" | "t")).then_some(interval)
}

fn sign(text: &str) -> (i128, &str) {
    match text.strip_prefix('-') {
        Some(unsigned) => (-1, unsigned),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// A number at the beginning, in parts, and what is behind it.
fn number(text: &str) -> Option<(i128, &str)> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(behind) => digits(behind),
        None => ("", rest),
    };
    if whole.len() + fraction.len() == 0 || whole.len() > DIGITS_MAX {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let nine: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    Some((whole * PARTS + nine.parse::<i128>().ok()?, rest))
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// A time at the beginning, `2:30` or `02:30:00.5`, in nanoseconds, and what is behind it.
fn time(text: &str) -> Option<(i128, &str)> {
    let (hours, rest) = digits(text);
    let (minutes, rest) = digits(rest.strip_prefix(':')?);
    let (seconds, rest) = match rest.strip_prefix(':') {
        Some(behind) => number(behind)?,
        None => (0, rest),
    };
    let (hours, minutes): (i128, i128) = (hours.parse().ok()?, minutes.parse().ok()?);
    let is_time = hours < PARTS && minutes < 60 && seconds < 60 * PARTS;
    is_time.then_some(((hours * 3600 + minutes * 60) * PARTS + seconds, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i128 = 1_000_000_000;

    #[test]
    fn intervals_are_read_as_duckdb_and_postgresql_do() {
        for (text, months, days, nanoseconds) in [
            ("0.05 YEAR", 1, 0, 0),
            ("0.04 year", 0, 0, 0),
            ("0.05 MONTH", 0, 1, 12 * 3600 * SECOND),
            ("-0.05 MONTH", 0, -1, -12 * 3600 * SECOND),
            ("0.333 months", 0, 9, 85_536 * SECOND),
            ("0.6 quarters", 1, 24, 0),
            ("0.5 weeks 3 hours", 0, 3, 15 * 3600 * SECOND),
            ("1.55 years 2.5 months", 21, 15, 0),
            ("-0.25 years", -3, 0, 0),
            ("1 month -3.5 days", 1, -3, -12 * 3600 * SECOND),
            ("1 day -2:30", 0, 1, -9_000 * SECOND),
            ("1 day 25:00", 0, 1, 90_000 * SECOND),
            ("-00:00:01", 0, 0, -SECOND),
            ("@ 1 year 2 days ago", -12, -2, 0),
            ("1y 2mon 3d 4h 5m 6s 7ms 8us", 14, 3, 14_706_007_008_000),
            ("1-2", 14, 0, 0),
            ("-1-2", -14, 0, 0),
            ("1 12:30:00", 0, 1, 45_000 * SECOND),
            ("1  mons 2 Days", 1, 2, 0),
            ("P1Y2M3DT4H5M6.5S", 14, 3, 14_706_500_000_000),
            ("PT-1.5H", 0, 0, -5_400 * SECOND),
            ("p2w", 0, 14, 0),
            ("1 minute 0.5 second", 0, 0, 60_500_000_000),
        ] {
            assert_eq!(parse(text), Some(Interval { months, days, nanoseconds }), "{text}");
        }
    }

    #[test]
    fn other_texts_are_left_to_arrow() {
        for text in [
            "",
            " ",
            "@",
            "abc",
            "100",
            "1 day 3",
            "ago",
            "1 day ago 2 hours",
            "1 hour,2 minutes",
            "P",
            "PT",
            "P1",
            "P1H",
            "1 fortnight",
            "1 day and 2 hours",
            "1:60",
            "99999999999999999999 days",
            "1.e days",
            "--1 day",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(plain("3000000000 days"), None, "days beyond what an interval has");
    }
}
