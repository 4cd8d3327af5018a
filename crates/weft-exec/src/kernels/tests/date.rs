use super::*;
use crate::kernels::calendar::distant_date;
use crate::program::{DatePart, DateUnit};

const PARTS: [DatePart; 10] = [
    DatePart::Year,
    DatePart::Quarter,
    DatePart::Month,
    DatePart::Week,
    DatePart::Day,
    DatePart::DayOfYear,
    DatePart::DayOfWeek,
    DatePart::Hour,
    DatePart::Minute,
    DatePart::Second,
];

/// The part of a time in seconds.
fn expected(seconds: i64, part: DatePart) -> i32 {
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400) as i32);
    let date = distant_date(day);
    match part {
        DatePart::Year => date.year,
        DatePart::Quarter => [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4][date.month as usize - 1],
        DatePart::Month => date.month,
        DatePart::Week => week(day),
        DatePart::Day => date.day,
        DatePart::DayOfYear => date.day_of_year,
        // 1970-01-01 was a Thursday.
        DatePart::DayOfWeek => [4, 5, 6, 0, 1, 2, 3][day.rem_euclid(7) as usize],
        DatePart::Hour => second / 3600,
        DatePart::Minute => second / 60 % 60,
        DatePart::Second => second % 60,
    }
}

/// Counts the Mondays from the one of the week with January 4th on.
fn week(day: i64) -> i32 {
    let monday_of = |day: i64| day - (day - 4).rem_euclid(7);
    // 400 years are so many days, and so many whole weeks.
    let day = day.rem_euclid(146_097);
    let year = distant_date(day).year;
    let first_monday = |year: i32| {
        let before = i64::from(year) - 1;
        let days =
            before * 365 + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
        monday_of(days - 719_162 + 3)
    };
    let year = (year - 1..=year + 1).rev().find(|year| first_monday(*year) <= day);
    ((monday_of(day) - first_monday(year.expect("a year"))) / 7 + 1) as i32
}

#[test]
fn known_weeks() {
    // 1970-01-01, 2021-01-03, 2021-01-04, 2020-12-31, 2018-12-31
    for (day, expected) in [(0, 1), (18_630, 53), (18_631, 1), (18_627, 53), (17_896, 1)] {
        assert_eq!(week(day), expected, "{day}");
    }
}

#[test]
fn parts() {
    let units = [
        (DateUnit::Seconds, 1),
        (DateUnit::Milliseconds, 1000),
        (DateUnit::Microseconds, 1_000_000),
        (DateUnit::Nanoseconds, 1_000_000_000),
    ];
    for part in PARTS {
        let unit = DateUnit::Days;
        let step = |inputs: &[Register], out| Step::Extract { a: inputs[0], unit, part, out };
        check(&[Lane::I32], Lane::I32, step, |inputs| {
            let [Some(Constant::I32(day))] = inputs else { return Ok(None) };
            Ok(Some(Constant::I32(expected(i64::from(*day) * 86_400, part))))
        });
        for (unit, per_second) in units {
            let step = |inputs: &[Register], out| Step::Extract { a: inputs[0], unit, part, out };
            check(&[Lane::I64], Lane::I32, step, |inputs| {
                let [Some(Constant::I64(time))] = inputs else { return Ok(None) };
                let seconds = time.div_euclid(per_second);
                Ok(Some(Constant::I32(expected(seconds, part))))
            });
        }
    }
}
