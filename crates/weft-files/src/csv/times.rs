//! Dates and times as texts.
//!
//! Nearly all dates in files are three numbers between two equal separators, and what differs is their order. Such a
//! [`DateShape`] is told from the values: each value leaves those in which it is a date. Times behind dates tell by
//! themselves how they are written.

use std::sync::Arc;

use chrono::format::{Item, Parsed, StrftimeItems};
use chrono::{Datelike, NaiveDate, NaiveTime, Timelike};

/// Microseconds of a second.
const MICROS: i64 = 1_000_000;

/// Order of the numbers of a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    YearMonthDay,
    DayMonthYear,
    MonthDayYear,
    ShortYearMonthDay,
    DayMonthShortYear,
    MonthDayShortYear,
}

const ORDERS: [(Order, &str); 6] = [
    (Order::YearMonthDay, "%Y-%m-%d"),
    (Order::DayMonthYear, "%d-%m-%Y"),
    (Order::MonthDayYear, "%m-%d-%Y"),
    (Order::ShortYearMonthDay, "%y-%m-%d"),
    (Order::DayMonthShortYear, "%d-%m-%y"),
    (Order::MonthDayShortYear, "%m-%d-%y"),
];

const SEPARATORS: [u8; 3] = *b"-/.";

/// Sets of shapes of dates, one bit each.
pub(crate) type Shapes = u32;

/// All shapes.
pub(crate) const ALL_SHAPES: Shapes = (1 << (ORDERS.len() * SEPARATORS.len())) - 1;

/// Shapes in which the month comes first.
const fn month_first() -> Shapes {
    let mut separator = 0;
    let mut shapes = 0;
    while separator < SEPARATORS.len() {
        shapes |= (1 << (separator * ORDERS.len() + 2)) | (1 << (separator * ORDERS.len() + 5));
        separator += 1;
    }
    shapes
}

/// The order and separator of a date's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DateShape {
    order: Order,
    separator: u8,
}

impl DateShape {
    /// As ISO 8601 has it.
    pub(crate) const ISO: DateShape = DateShape { order: Order::YearMonthDay, separator: b'-' };

    /// The likeliest of these: with the year first, else with the day, but for times of half a day, which go with the
    /// month first.
    pub(crate) fn likeliest(shapes: Shapes, has_half_days: bool) -> Option<DateShape> {
        let american = shapes & month_first();
        let shapes = if has_half_days && american != 0 { american } else { shapes };
        (shapes != 0).then(|| {
            let number = shapes.trailing_zeros() as usize;
            let (order, _) = ORDERS[number % ORDERS.len()];
            DateShape { order, separator: SEPARATORS[number / ORDERS.len()] }
        })
    }

    /// As a format of strftime.
    pub(crate) fn format(self) -> String {
        let found = ORDERS.iter().find(|(order, _)| *order == self.order);
        let format = found.map_or("", |(_, format)| format);
        format.replace('-', &char::from(self.separator).to_string())
    }

    fn date(self, parts: &DateParts) -> Option<NaiveDate> {
        (parts.separator == self.separator).then(|| parts.in_order(self.order))?
    }
}

/// How dates and timestamps of a column are written.
#[derive(Clone, Debug)]
pub struct TimeFormat {
    text: String,
    items: Arc<Vec<Item<'static>>>,
}

impl TimeFormat {
    /// A format of strftime; `None` if it is none.
    pub fn new(text: &str) -> Option<TimeFormat> {
        let items: Vec<Item<'static>> = StrftimeItems::new(text).map(Item::to_owned).collect();
        let is_bad = items.iter().any(|item| matches!(item, Item::Error));
        (!is_bad).then(|| TimeFormat { text: text.to_owned(), items: Arc::new(items) })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn parse(&self, text: &str) -> Option<Parsed> {
        let mut parsed = Parsed::new();
        chrono::format::parse(&mut parsed, text.trim(), self.items.iter()).ok()?;
        Some(parsed)
    }

    /// The date of a text.
    pub(crate) fn date(&self, text: &str) -> Option<i32> {
        Some(days(self.parse(text)?.to_naive_date().ok()?))
    }

    /// The timestamp of a text.
    pub(crate) fn timestamp(&self, text: &str) -> Option<Instant> {
        let parsed = self.parse(text)?;
        let zone = parsed.offset();
        let time = parsed.to_naive_time().ok();
        // A format of dates alone, or one of seconds since 1970.
        let (date, time) = match (parsed.to_naive_date(), time) {
            (Ok(date), Some(time)) => (date, time),
            (Ok(date), None) if parsed.hour_div_12().is_none() => (date, NaiveTime::MIN),
            _ => {
                let at = parsed.to_naive_datetime_with_offset(zone.unwrap_or(0)).ok()?;
                (at.date(), at.time())
            }
        };
        let seconds = i64::from(time.num_seconds_from_midnight());
        let day_nanos = seconds * 1_000_000_000 + i64::from(time.nanosecond().min(999_999_999));
        Some(Instant { days: days(date), day_nanos, zone_seconds: zone, is_half_day: false })
    }
}

/// The days of a date since 1970.
fn days(date: NaiveDate) -> i32 {
    const EPOCH: i32 = 719_163;
    date.num_days_from_ce() - EPOCH
}

/// A moment as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instant {
    /// Since 1970.
    pub(crate) days: i32,
    /// Nanoseconds of the day.
    pub(crate) day_nanos: i64,
    /// Seconds east of Greenwich, if it says so.
    pub(crate) zone_seconds: Option<i32>,
    /// Its time has AM or PM.
    pub(crate) is_half_day: bool,
}

impl Instant {
    /// Microseconds since 1970, of UTC if it has a zone.
    pub(crate) fn micros(&self) -> i64 {
        let seconds = i64::from(self.days) * 86_400 - i64::from(self.zone_seconds.unwrap_or(0));
        seconds * MICROS + self.day_nanos / 1_000
    }

    /// Nanoseconds since 1970, of UTC if it has a zone; `None` outside of the years 1677 to 2262.
    pub(crate) fn nanos(&self) -> Option<i64> {
        let seconds = i64::from(self.days) * 86_400 - i64::from(self.zone_seconds.unwrap_or(0));
        seconds.checked_mul(1_000_000_000)?.checked_add(self.day_nanos)
    }
}

/// Three numbers of a date, as they are written.
struct DateParts {
    numbers: [u32; 3],
    digits: [usize; 3],
    separator: u8,
}

impl DateParts {
    /// The numbers that a text begins with, and where they end.
    fn of(text: &[u8]) -> Option<(DateParts, usize)> {
        let (mut numbers, mut digits) = ([0; 3], [0; 3]);
        let (mut at, mut separator) = (0, 0);
        for (part, (number, count)) in numbers.iter_mut().zip(&mut digits).enumerate() {
            if part > 0 {
                let found = *text.get(at)?;
                let is_separator = match part {
                    1 => SEPARATORS.contains(&found),
                    _ => found == separator,
                };
                if !is_separator {
                    return None;
                }
                separator = found;
                at += 1;
            }
            let rest = text.get(at..)?;
            *count = rest.iter().take(5).take_while(|byte| byte.is_ascii_digit()).count();
            if !(1..=4).contains(count) {
                return None;
            }
            *number = rest[..*count]
                .iter()
                .fold(0, |number, digit| number * 10 + u32::from(digit - b'0'));
            at += *count;
        }
        Some((DateParts { numbers, digits, separator }, at))
    }

    fn in_order(&self, order: Order) -> Option<NaiveDate> {
        let [first, second, third] = [0, 1, 2];
        let (year, month, day, is_short) = match order {
            Order::YearMonthDay => (first, second, third, false),
            Order::DayMonthYear => (third, second, first, false),
            Order::MonthDayYear => (third, first, second, false),
            Order::ShortYearMonthDay => (first, second, third, true),
            Order::DayMonthShortYear => (third, second, first, true),
            Order::MonthDayShortYear => (third, first, second, true),
        };
        let digits = if is_short { 2 } else { 4 };
        if self.digits[year] != digits || self.digits[month] > 2 || self.digits[day] > 2 {
            return None;
        }
        let value = match (is_short, self.numbers[year]) {
            (true, short @ 0..69) => 2000 + short,
            (true, short) => 1900 + short,
            (false, year) => year,
        };
        NaiveDate::from_ymd_opt(value as i32, self.numbers[month], self.numbers[day])
    }

    /// The shapes in which it is a date.
    fn shapes(&self) -> Shapes {
        let Some(separator) = SEPARATORS.iter().position(|known| *known == self.separator) else {
            return 0;
        };
        let fits = ORDERS.iter().map(|(order, _)| self.in_order(*order).is_some());
        let shapes =
            fits.enumerate().fold(0, |shapes, (number, fits)| shapes | (u32::from(fits) << number));
        shapes << (separator * ORDERS.len())
    }
}

/// The date of a text.
pub(crate) fn date(text: &str, shape: DateShape) -> Option<i32> {
    if shape == DateShape::ISO
        && let Some(days) = iso_date(text.as_bytes())
    {
        return Some(days);
    }
    let text = text.trim();
    let (parts, end) = DateParts::of(text.as_bytes())?;
    (end == text.len()).then(|| shape.date(&parts).map(days))?
}

/// The days of `YYYY-MM-DD`, without a detour.
fn iso_date(text: &[u8]) -> Option<i32> {
    let [y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1] = text else { return None };
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0_u32, |number, digit| {
            digit.is_ascii_digit().then(|| number * 10 + u32::from(digit - b'0'))
        })
    };
    let (year, month, day) =
        (number(&[*y0, *y1, *y2, *y3])?, number(&[*m0, *m1])?, number(&[*d0, *d1])?);
    NaiveDate::from_ymd_opt(year as i32, month, day).map(days)
}

/// The timestamp of a text: a date, and perhaps a time and a zone.
pub(crate) fn timestamp(text: &str, shape: DateShape) -> Option<Instant> {
    let text = text.trim();
    let (parts, end) = DateParts::of(text.as_bytes())?;
    let date = shape.date(&parts)?;
    let time = behind_date(&text.as_bytes()[end..])?;
    Some(Instant {
        days: days(date),
        day_nanos: time.nanos,
        zone_seconds: time.zone_seconds,
        is_half_day: time.is_half_day,
    })
}

/// What a text says as a date or timestamp: the shapes in which it is one, and its time.
pub(crate) struct Seen {
    pub(crate) shapes: Shapes,
    pub(crate) is_date: bool,
    pub(crate) has_zone: bool,
    pub(crate) has_nanos: bool,
    pub(crate) is_half_day: bool,
}

/// What a text is as a date or timestamp, if it is one.
pub(crate) fn seen(text: &str) -> Option<Seen> {
    let text = text.trim();
    let (parts, end) = DateParts::of(text.as_bytes())?;
    let shapes = parts.shapes();
    let time = behind_date(&text.as_bytes()[end..])?;
    (shapes != 0).then(|| Seen {
        shapes,
        is_date: end == text.len(),
        has_zone: time.zone_seconds.is_some(),
        has_nanos: time.nanos % 1_000 != 0,
        is_half_day: time.is_half_day,
    })
}

/// A time of a day as it was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DayTime {
    nanos: i64,
    zone_seconds: Option<i32>,
    is_half_day: bool,
}

/// The time behind a date, midnight if there is none.
fn behind_date(text: &[u8]) -> Option<DayTime> {
    match text {
        [] => Some(DayTime::default()),
        [b'T' | b't' | b' ', rest @ ..] => day_time(rest.trim_ascii_start(), true),
        _ => None,
    }
}

/// The microseconds of a text that is a time of a day without a zone.
pub(crate) fn time(text: &str) -> Option<i64> {
    let time = day_time(text.trim().as_bytes(), false)?;
    (time.nanos % 1_000 == 0).then_some(time.nanos / 1_000)
}

/// `H:MM[:SS[.fraction]] [AM|PM] [zone]`
fn day_time(text: &[u8], may_have_zone: bool) -> Option<DayTime> {
    let (hour, rest) = number(text, 1, 2)?;
    let (minute, mut rest) = number(rest.strip_prefix(b":")?, 2, 2)?;
    let (mut second, mut fraction) = (0, 0);
    if let Some(seconds) = rest.strip_prefix(b":") {
        (second, rest) = number(seconds, 2, 2)?;
        if let [b'.' | b',', digits @ ..] = rest {
            let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if count == 0 || count > 9 {
                return None;
            }
            let value = number(digits, count, count)?.0;
            fraction = i64::from(value) * 10_i64.pow(9 - count as u32);
            rest = &digits[count..];
        }
    }
    let (hour, is_half_day, rest) = half_day(hour, rest)?;
    let zone_seconds = match rest.trim_ascii_start() {
        [] => None,
        zone if may_have_zone => Some(zone_seconds(zone)?),
        _ => return None,
    };
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = i64::from(hour * 3_600 + minute * 60 + second);
    Some(DayTime { nanos: seconds * 1_000_000_000 + fraction, zone_seconds, is_half_day })
}

/// The hour of a day by what follows the time: AM, PM or nothing.
fn half_day(hour: u32, rest: &[u8]) -> Option<(u32, bool, &[u8])> {
    let trimmed = rest.trim_ascii_start();
    let is_half = trimmed.len() >= 2 && trimmed[1].eq_ignore_ascii_case(&b'm');
    let is_afternoon = match trimmed.first().map(u8::to_ascii_lowercase) {
        Some(b'a') if is_half => false,
        Some(b'p') if is_half => true,
        _ => return Some((hour, false, rest)),
    };
    (1..=12)
        .contains(&hour)
        .then(|| (hour % 12 + if is_afternoon { 12 } else { 0 }, true, &trimmed[2..]))
}

/// `Z`, `UTC`, `+HH`, `+HHMM` or `+HH:MM`.
fn zone_seconds(text: &[u8]) -> Option<i32> {
    let (sign, rest) = match text {
        [b'Z' | b'z'] => return Some(0),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return text.eq_ignore_ascii_case(b"UTC").then_some(0),
    };
    let (hours, rest) = number(rest, 2, 2)?;
    let minutes = match rest {
        [] => 0,
        [b':', minutes @ ..] | minutes => {
            let (minutes, rest) = number(minutes, 2, 2)?;
            if !rest.is_empty() {
                return None;
            }
            minutes
        }
    };
    (hours <= 15 && minutes <= 59).then_some(sign * (hours * 3_600 + minutes * 60) as i32)
}

/// A number of so many digits, and what follows it.
fn number(text: &[u8], least: usize, most: usize) -> Option<(u32, &[u8])> {
    let count = text.iter().take(most).take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(count);
    (count >= least && !rest.first().is_some_and(u8::is_ascii_digit)).then(|| {
        let value = digits.iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0'));
        (value, rest)
    })
}
