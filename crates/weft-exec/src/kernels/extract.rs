//! EXTRACT: parts of dates and timestamps.

use super::alarm::Alarm;
use super::calendar::{Date, date, distant_date, has_date};
use super::map::{Operation, Same, cheapest, map};
use crate::program::{DatePart, DateUnit, Register};
use crate::registers::Registers;
use crate::vector::Vector;

const DAY_SECONDS: i64 = 86_400;

/// `out` is a part of `a`.
pub(crate) fn run(
    registers: &mut Registers,
    a: Register,
    unit: DateUnit,
    part: DatePart,
    out: Register,
) {
    registers.write(out, |registers, out| {
        out.validity.copy_from(&registers.vector(a).validity);
        match unit {
            DateUnit::Days => from_days(registers, a, part, out),
            DateUnit::Seconds => from_time::<1>(registers, a, part, out),
            DateUnit::Milliseconds => from_time::<1_000>(registers, a, part, out),
            DateUnit::Microseconds => from_time::<1_000_000>(registers, a, part, out),
            DateUnit::Nanoseconds => from_time::<1_000_000_000>(registers, a, part, out),
        }
    });
}

/// A part of a date.
trait Part: Copy {
    /// Of a day, whose date the function gives.
    fn of(day: i64, date: impl Fn(i64) -> Date) -> i32;
}

macro_rules! parts {
    ($($name:ident: |$day:ident, $date:ident| $part:expr),*) => {$(
        #[derive(Clone, Copy)]
        struct $name;

        impl Part for $name {
            #[inline(always)]
            fn of($day: i64, $date: impl Fn(i64) -> Date) -> i32 {
                $part
            }
        }
    )*};
}

parts!(
    Year: |day, date| date(day).year,
    Quarter: |day, date| (date(day).month + 2) / 3,
    Month: |day, date| date(day).month,
    // The week of a day is that of its Thursday, and has its number in the Thursday's year.
    Week: |day, date| (date(day - (day + 3).rem_euclid(7) + 3).day_of_year - 1) / 7 + 1,
    Day: |day, date| date(day).day,
    DayOfYear: |day, date| date(day).day_of_year,
    DayOfWeek: |day, _date| (day + 4).rem_euclid(7) as i32
);

/// The part of a day, which rings for one that is too far away.
#[derive(Clone, Copy)]
struct Near<P>(P);

impl<P: Part> Operation<i32, ()> for Near<P> {
    type Out = i32;
    type Alarm = bool;

    #[inline(always)]
    fn apply(self, day: i32, _: (), trace: &mut bool) -> i32 {
        // A week may look at days around.
        *trace |= !(has_date(day.wrapping_sub(7)) & has_date(day.wrapping_add(7)));
        P::of(day.into(), |day| date(day as i32))
    }
}

impl<P: Part, const PER_SECOND: i64> Operation<i64, ()> for NearTime<P, PER_SECOND> {
    type Out = i32;
    type Alarm = bool;

    #[inline(always)]
    fn apply(self, time: i64, _: (), trace: &mut bool) -> i32 {
        let day = time.div_euclid(DAY_SECONDS * PER_SECOND);
        *trace |= i64::from(day as i32) != day;
        self.0.apply(day as i32, (), trace)
    }
}

#[derive(Clone, Copy)]
struct NearTime<P, const PER_SECOND: i64>(Near<P>);

fn from_days(registers: &Registers, a: Register, part: DatePart, out: &mut Vector) {
    match part {
        DatePart::Year => days(registers, a, Year, out),
        DatePart::Quarter => days(registers, a, Quarter, out),
        DatePart::Month => days(registers, a, Month, out),
        DatePart::Week => days(registers, a, Week, out),
        DatePart::Day => days(registers, a, Day, out),
        DatePart::DayOfYear => days(registers, a, DayOfYear, out),
        DatePart::DayOfWeek => days(registers, a, DayOfWeek, out),
        DatePart::Hour | DatePart::Minute | DatePart::Second => {
            out.values_mut::<i32>()[..registers.rows()].fill(0);
        }
    }
}

fn days<P: Part>(registers: &Registers, a: Register, part: P, out: &mut Vector) {
    let (values, out) = (registers.values::<i32>(a), out.values_mut::<i32>());
    if map(Near(part), values, Same(()), cheapest(registers, 4), out).rang() {
        registers.selected().for_each(|row| out[row] = P::of(values[row].into(), distant_date));
    }
}

fn from_time<const PER_SECOND: i64>(
    registers: &Registers,
    a: Register,
    part: DatePart,
    out: &mut Vector,
) {
    match part {
        DatePart::Year => time_days::<_, PER_SECOND>(registers, a, Year, out),
        DatePart::Quarter => time_days::<_, PER_SECOND>(registers, a, Quarter, out),
        DatePart::Month => time_days::<_, PER_SECOND>(registers, a, Month, out),
        DatePart::Week => time_days::<_, PER_SECOND>(registers, a, Week, out),
        DatePart::Day => time_days::<_, PER_SECOND>(registers, a, Day, out),
        DatePart::DayOfYear => time_days::<_, PER_SECOND>(registers, a, DayOfYear, out),
        DatePart::DayOfWeek => time_days::<_, PER_SECOND>(registers, a, DayOfWeek, out),
        DatePart::Hour => time_of_day::<PER_SECOND>(registers, a, 3600, 24, out),
        DatePart::Minute => time_of_day::<PER_SECOND>(registers, a, 60, 60, out),
        DatePart::Second => time_of_day::<PER_SECOND>(registers, a, 1, 60, out),
    }
}

fn time_days<P: Part, const PER_SECOND: i64>(
    registers: &Registers,
    a: Register,
    part: P,
    out: &mut Vector,
) {
    let (values, out) = (registers.values::<i64>(a), out.values_mut::<i32>());
    let near = NearTime::<P, PER_SECOND>(Near(part));
    if map(near, values, Same(()), cheapest(registers, 2), out).rang() {
        registers.selected().for_each(|row| {
            out[row] = P::of(values[row].div_euclid(DAY_SECONDS * PER_SECOND), distant_date);
        });
    }
}

fn time_of_day<const PER_SECOND: i64>(
    registers: &Registers,
    a: Register,
    seconds: i64,
    modulus: i64,
    out: &mut Vector,
) {
    let (values, out) = (registers.values::<i64>(a), out.values_mut::<i32>());
    registers.selected().for_each(|row| {
        out[row] =
            (values[row].div_euclid(PER_SECOND).div_euclid(seconds)).rem_euclid(modulus) as i32;
    });
}
