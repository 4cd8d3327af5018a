//! PostgreSQL's patterns of dates and times.

use chrono::{Datelike, NaiveDateTime, Timelike};
use datafusion::common::{Result as DfResult, exec_err};

use crate::functions::time_formats::{DAYS, MONTHS};

const ROMAN: [&str; 12] =
    ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

/// Days from the beginning of Julian days to the first day of the year 1.
const JULIAN_DAYS: i32 = 1_721_425;

/// What a part of a pattern stands for.
enum Part {
    /// A number of so many digits at least.
    Number(i64, usize),
    /// A text, which is filled up to so many characters.
    Text(String, usize),
}

/// Parts by their names, the longer ones before those that they begin with.
const PARTS: [&str; 46] = [
    "HH24", "HH12", "HH", "MI", "SSSSS", "SSSS", "SS", "MS", "US", "FF1", "FF2", "FF3", "FF4",
    "FF5", "FF6", "A.M.", "P.M.", "AM", "PM", "Y,YYY", "YYYY", "YYY", "YY", "IYYY", "IYY", "IY",
    "Y", "B.C.", "A.D.", "BC", "AD", "MONTH", "MON", "MM", "DAY", "DY", "DDD", "DD", "D", "IDDD",
    "ID", "IW", "WW", "W", "CC", "I",
];

/// Further parts: days since the beginning of Julian days, quarters, months in Roman numbers, zones.
const MORE: [&str; 6] = ["J", "Q", "RM", "TZH", "TZM", "OF"];

/// The text of a moment. `offset` is what the zone's clocks are ahead of UTC by, in seconds.
///
/// # Errors
/// If a quotation does not end.
pub(super) fn formatted(at: NaiveDateTime, offset: Option<i32>, pattern: &str) -> DfResult<String> {
    let mut text = String::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let Some(end) = rest[1..].find('"') else {
                return exec_err!(
                    "the pattern '{pattern}' of to_char has a \" without another one"
                );
            };
            text.push_str(&rest[1..=end]);
            rest = &rest[end + 2..];
            continue;
        }
        if first == '\\' && rest.len() > 1 {
            rest = &rest[1..];
            let escaped = rest.chars().next().unwrap_or_default();
            text.push(escaped);
            rest = &rest[escaped.len_utf8()..];
            continue;
        }
        let (behind, is_plain) = modifiers(rest);
        let Some((name, part)) = part(at, offset, behind) else {
            text.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        rest = &behind[name.len()..];
        push(&mut text, &part, is_plain);
        if let Part::Number(number, _) = part {
            for suffix in ["TH", "th"] {
                if let Some(behind) = rest.strip_prefix(suffix) {
                    let ordinal = ordinal(number);
                    text.push_str(&if suffix == "TH" {
                        ordinal.to_uppercase()
                    } else {
                        ordinal.into()
                    });
                    rest = behind;
                }
            }
        }
    }
    Ok(text)
}

/// What follows FM and TM, and whether FM leaves out what fills up.
fn modifiers(mut rest: &str) -> (&str, bool) {
    let mut is_plain = false;
    loop {
        let Some(two) = rest.get(..2) else { return (rest, is_plain) };
        match two.to_ascii_uppercase().as_str() {
            "FM" => is_plain = true,
            "TM" | "FX" => {}
            _ => return (rest, is_plain),
        }
        rest = &rest[2..];
    }
}

fn push(text: &mut String, part: &Part, is_plain: bool) {
    match part {
        Part::Number(number, _) if is_plain => text.push_str(&number.to_string()),
        Part::Number(number, digits) => {
            // The sign takes no place of a digit.
            let sign = if *number < 0 { "-" } else { "" };
            text.push_str(&format!("{sign}{:0digits$}", number.unsigned_abs()));
        }
        Part::Text(word, _) if is_plain => text.push_str(word),
        Part::Text(word, width) => text.push_str(&format!("{word:width$}")),
    }
}

/// The ending of an ordinal number.
pub(super) fn ordinal(number: i64) -> &'static str {
    match (number.unsigned_abs() % 100, number.unsigned_abs() % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    }
}

/// The part that a pattern begins with: as it is written, and what it stands for.
fn part(at: NaiveDateTime, offset: Option<i32>, pattern: &str) -> Option<(&str, Part)> {
    let name = PARTS.iter().chain(&MORE).find(|name| {
        pattern.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
    })?;
    let written = &pattern[..name.len()];
    let year = i64::from(at.year());
    // The year before 1 is 1 BC.
    let shown_year = if year <= 0 { 1 - year } else { year };
    let iso = at.iso_week();
    let hour_12 = i64::from((at.hour() + 11) % 12 + 1);
    let micros = i64::from(at.nanosecond() / 1_000);
    let day_of_year = i64::from(at.ordinal());
    let from_sunday = at.weekday().num_days_from_sunday();
    let from_monday = at.weekday().num_days_from_monday();
    let number = |number: i64, digits: usize| Part::Number(number, digits);
    let small = |value: u32, digits: usize| Part::Number(value.into(), digits);
    let word = |word: &str, width: usize| Part::Text(cased(word, written), width);
    let iso_day = i64::from(iso.week0() * 7 + from_monday + 1);
    let found = match *name {
        "HH24" => small(at.hour(), 2),
        "HH12" | "HH" => number(hour_12, 2),
        "MI" => small(at.minute(), 2),
        "SSSSS" | "SSSS" => small(at.num_seconds_from_midnight(), 1),
        "SS" => small(at.second(), 2),
        "MS" | "FF3" => number(micros / 1_000, 3),
        "US" | "FF6" => number(micros, 6),
        "FF1" => number(micros / 100_000, 1),
        "FF2" => number(micros / 10_000, 2),
        "FF4" => number(micros / 100, 4),
        "FF5" => number(micros / 10, 5),
        "A.M." | "P.M." => word(if at.hour() < 12 { "a.m." } else { "p.m." }, 0),
        "AM" | "PM" => word(if at.hour() < 12 { "am" } else { "pm" }, 0),
        "Y,YYY" => Part::Text(format!("{},{:03}", shown_year / 1_000, shown_year % 1_000), 0),
        "YYYY" => number(shown_year, 4),
        "YYY" => number(shown_year % 1_000, 3),
        "YY" => number(shown_year % 100, 2),
        "Y" => number(shown_year % 10, 1),
        "IYYY" => number(iso.year().into(), 4),
        "IYY" => number(i64::from(iso.year()) % 1_000, 3),
        "IY" => number(i64::from(iso.year()) % 100, 2),
        "I" => number(i64::from(iso.year()) % 10, 1),
        "B.C." | "A.D." => word(if year <= 0 { "b.c." } else { "a.d." }, 0),
        "BC" | "AD" => word(if year <= 0 { "bc" } else { "ad" }, 0),
        "MONTH" => word(MONTHS[at.month0() as usize], 9),
        "MON" => word(&MONTHS[at.month0() as usize][..3], 0),
        "MM" => small(at.month(), 2),
        "DAY" => word(DAYS[from_sunday as usize], 9),
        "DY" => word(&DAYS[from_sunday as usize][..3], 0),
        "DDD" => number(day_of_year, 3),
        "DD" => small(at.day(), 2),
        "D" => small(from_sunday + 1, 1),
        "IDDD" => number(iso_day, 3),
        "ID" => small(from_monday + 1, 1),
        "IW" => small(iso.week(), 2),
        "WW" => number((day_of_year - 1) / 7 + 1, 2),
        "W" => small((at.day() - 1) / 7 + 1, 1),
        "CC" if year <= 0 => number(-((shown_year + 99) / 100), 2),
        "CC" => number((year + 99) / 100, 2),
        "J" => number((at.date().num_days_from_ce() + JULIAN_DAYS).into(), 1),
        "Q" => small(at.month0() / 3 + 1, 1),
        "RM" => word(ROMAN[at.month0() as usize], 4),
        "TZH" => Part::Text(zone_hours(offset.unwrap_or(0)), 0),
        "TZM" => number(i64::from(offset.unwrap_or(0).abs() / 60 % 60), 2),
        _ => {
            let offset = offset.unwrap_or(0);
            let minutes = match offset.abs() / 60 % 60 {
                0 => String::new(),
                minutes => format!(":{minutes:02}"),
            };
            Part::Text(format!("{}{minutes}", zone_hours(offset)), 0)
        }
    };
    Some((written, found))
}

fn zone_hours(offset: i32) -> String {
    let sign = if offset < 0 { '-' } else { '+' };
    format!("{sign}{:02}", offset.abs() / 3_600)
}

/// A word in capitals, or small letters, or with one capital, as its pattern is written.
fn cased(word: &str, written: &str) -> String {
    let mut letters = written.chars().filter(char::is_ascii_alphabetic);
    let is_first_large = letters.next().is_some_and(|letter| letter.is_ascii_uppercase());
    let is_second_large = letters.next().is_some_and(|letter| letter.is_ascii_uppercase());
    match (is_first_large, is_second_large) {
        (true, true) => word.to_uppercase(),
        (true, false) => {
            let (first, others) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
            format!("{}{}", first.to_uppercase(), others.to_lowercase())
        }
        (false, _) => word.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use chrono::NaiveDate;

    use super::*;

    #[test]
    fn moments_follow_patterns() {
        let date = NaiveDate::from_ymd_opt(2026, 3, 1).unwrap();
        let at = date.and_hms_micro_opt(14, 5, 9, 12_300).unwrap();
        let text = |pattern| formatted(at, Some(5_400), pattern).unwrap();
        assert_eq!(text("YYYY-MM-DD HH24:MI:SS.US"), "2026-03-01 14:05:09.012300");
        assert_eq!(text("FMDay, FMDD Month YYYY HH12 am"), "Sunday, 1 March     2026 02 pm");
        assert_eq!(
            text("DY dy Dy MON FMDDth Q WW IW DDD J"),
            "SUN sun Sun MAR 1st 1 09 09 060 2461101"
        );
        assert_eq!(text("\"Year\" YY, \\Y A.M. OF TZH:TZM"), "Year 26, Y P.M. +01:30 +01:30");
        assert_eq!(text("Y,YYY CC BC RM|FMRM|SSSS"), "2,026 21 AD III |III|50709");
        assert!(formatted(at, None, "\"a").is_err());
    }
}
