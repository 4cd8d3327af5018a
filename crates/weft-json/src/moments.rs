//! Dates and times as most files write them; what is written otherwise is left to Arrow's parser.

/// Microseconds of a second and of a day.
const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 86_400 * SECOND_US;

/// Digits of a second's fraction, at most.
const FRACTION_DIGITS_MAX: usize = 6;

/// Days from the first of January 1970 on to the date that is written `YYYY-MM-DD`.
pub(crate) fn date(text: &str) -> Option<i32> {
    match text.as_bytes() {
        bytes if bytes.len() == 10 => days(bytes),
        _ => None,
    }
}

/// Microseconds from the start of 1970 on to the moment that is written `YYYY-MM-DD hh:mm:ss`, or with a T, and perhaps a fraction of
/// at most six digits. With `is_zoned` a Z has to follow.
pub(crate) fn timestamp(text: &str, is_zoned: bool) -> Option<i64> {
    let mut bytes = text.as_bytes();
    if is_zoned {
        bytes = bytes.strip_suffix(b"Z")?;
    }
    let (date, rest) = bytes.split_at_checked(10)?;
    let (separator, time) = rest.split_first()?;
    if !matches!(separator, b' ' | b'T') {
        return None;
    }
    Some(i64::from(days(date)?) * DAY_US + time_of_day(time)?)
}

/// Microseconds of a day to the time that is written `hh:mm:ss`, perhaps with a fraction.
fn time_of_day(bytes: &[u8]) -> Option<i64> {
    let (&[a, b, b':', c, d, b':', e, f], fraction) = bytes.split_first_chunk::<8>()? else {
        return None;
    };
    let (hours, minutes, seconds) = (pair(a, b)?, pair(c, d)?, pair(e, f)?);
    if hours > 23 || minutes > 59 || seconds > 59 {
        return None;
    }
    let whole = (hours * 60 + minutes) * 60 + seconds;
    Some(i64::from(whole) * SECOND_US + fraction_of(fraction)?)
}

/// Microseconds of a fraction with its point, or of none.
fn fraction_of(bytes: &[u8]) -> Option<i64> {
    let Some((point, digits)) = bytes.split_first() else { return Some(0) };
    if *point != b'.' || digits.is_empty() || digits.len() > FRACTION_DIGITS_MAX {
        return None;
    }
    let mut micros = 0;
    for place in 0..FRACTION_DIGITS_MAX {
        micros = micros * 10 + i64::from(digit(*digits.get(place).unwrap_or(&b'0'))?);
    }
    Some(micros)
}

fn digit(byte: u8) -> Option<i32> {
    byte.is_ascii_digit().then(|| i32::from(byte - b'0'))
}

fn pair(tens: u8, ones: u8) -> Option<i32> {
    Some(digit(tens)? * 10 + digit(ones)?)
}

/// Days to the date of ten bytes. Years count from March on, so that the day that some have more is their last one.
fn days(bytes: &[u8]) -> Option<i32> {
    let &[a, b, c, d, b'-', e, f, b'-', g, h] = bytes else { return None };
    let (year, month, day) = (pair(a, b)? * 100 + pair(c, d)?, pair(e, f)?, pair(g, h)?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let month_days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=month_days).contains(&day) {
        return None;
    }
    let march_year = if month <= 2 { year - 1 } else { year };
    let march_month = (month + 9) % 12;
    let centuries = march_year.div_euclid(100);
    let leap_days = march_year.div_euclid(4) - centuries + march_year.div_euclid(400);
    Some(march_year * 365 + leap_days + (march_month * 153 + 2) / 5 + day - 1 - 719_468)
}

#[cfg(test)]
mod tests {
    use arrow::compute::kernels::cast_utils::{Parser, string_to_datetime};
    use arrow::datatypes::Date32Type;
    use chrono::Utc;

    use super::*;

    #[test]
    fn dates_are_those_of_arrow() {
        for year in
            [0, 1, 4, 99, 100, 400, 1600, 1899, 1900, 1969, 1970, 1999, 2000, 2024, 2100, 9999]
        {
            for month in 0..=13 {
                for day in 0..=32 {
                    let text = format!("{year:04}-{month:02}-{day:02}");
                    assert_eq!(date(&text), Date32Type::parse(&text), "{text}");
                }
            }
        }
        for text in ["", "2020-1-01", "2020-01-01 ", "+020-01-01", "2020/01/01", "20200101xx"] {
            assert_eq!(date(text), None, "{text}");
        }
    }

    #[test]
    fn timestamps_are_those_of_arrow() {
        let texts = [
            "1996-03-13 23:59:59",
            "1969-12-31T00:00:01.5",
            "2000-02-29T12:34:56.123456",
            "0001-01-01 00:00:00.000001",
        ];
        for text in texts {
            let micros = string_to_datetime(&Utc, text).unwrap().timestamp_micros();
            assert_eq!(timestamp(text, false), Some(micros), "{text}");
            assert_eq!(timestamp(&format!("{text}Z"), true), Some(micros), "{text}");
            assert_eq!(timestamp(text, true), None);
        }
        let others = [
            "1996-03-13",
            "1996-03-13 24:00:00",
            "1996-03-13 23:60:00",
            "1996-03-13 23:59:60",
            "1996-03-13 23:59",
            "1996-03-13 23:59:59.",
            "1996-03-13 23:59:59.1234567",
            "1996-03-13 23:59:59+01",
            "1996-03-13x23:59:59",
            "1996-02-30 00:00:00",
            "1996-03-13 23:59:59.12x",
        ];
        for text in others {
            assert_eq!(timestamp(text, false), None, "{text}");
        }
    }
}
