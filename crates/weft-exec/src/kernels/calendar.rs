//! Days since 1970-01-01 as dates of the Gregorian calendar, which is taken to have always been.
//!
//! After Neri and Schneider, "Euclidean affine functions and their application to calendar algorithms" (2022): no
//! branches and no divisions of more than 32 bits, so that it is vectorized. Years begin with March there.

/// Days from the algorithm's first one to 1970-01-01: 82 times 400 years before the year 0.
const EPOCH: u32 = 719_468 + 146_097 * CYCLES;
const CYCLES: u32 = 82;
/// Days from which on, counted from the algorithm's first one, its numbers do not fit into 32 bits.
const END: u32 = 1 << 30;
/// Days of 400 years.
const CYCLE_DAYS: i64 = 146_097;

/// A date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Date {
    /// 0 is the year before the first.
    pub year: i32,
    /// 1 to 12.
    pub month: i32,
    /// 1 to 31.
    pub day: i32,
    /// 1 to 366.
    pub day_of_year: i32,
}

/// True if [`date`] is right for that day: from about the year -32,800 to 2,900,000.
#[inline(always)]
pub(crate) fn has_date(day: i32) -> bool {
    (day as u32).wrapping_add(EPOCH) < END
}

/// The date of a day.
#[inline(always)]
pub(crate) fn date(day: i32) -> Date {
    let number = (day as u32).wrapping_add(EPOCH);
    let quarters = number.wrapping_mul(4).wrapping_add(3);
    let century = quarters / 146_097;
    let quarters = (quarters % 146_097) | 3;
    let product = u64::from(quarters) * 2_939_745;
    let year_of_century = (product >> 32) as u32;
    let day_of_year = product as u32 / 2_939_745 / 4;
    let months = day_of_year * 2141 + 197_913;
    let is_next_year = u32::from(day_of_year >= 306);
    let year = (100 * century + year_of_century + is_next_year).wrapping_sub(400 * CYCLES) as i32;
    let month = (months >> 16) - 12 * is_next_year;
    let is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0));
    Date {
        year,
        month: month as i32,
        day: ((months & 0xffff) / 2141 + 1) as i32,
        day_of_year: if is_next_year == 1 {
            day_of_year as i32 - 305
        } else {
            day_of_year as i32 + 60 + i32::from(is_leap)
        },
    }
}

/// The date of any day; years beyond 32 bits become the last or first that has a place.
pub(crate) fn distant_date(day: i64) -> Date {
    // The calendar repeats itself.
    let near = date(day.rem_euclid(CYCLE_DAYS) as i32);
    let year = i64::from(near.year) + 400 * day.div_euclid(CYCLE_DAYS);
    Date { year: year.clamp(i32::MIN.into(), i32::MAX.into()) as i32, ..near }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_follow_each_other() {
        let is_leap = |year: i32| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let lengths =
            |year| [31, 28 + i32::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let mut expected = Date { year: 1970, month: 1, day: 1, day_of_year: 1 };
        for day in 0..300_000 {
            assert_eq!(date(day), expected, "{day}");
            assert_eq!(distant_date(day.into()), expected, "{day}");
            let length = lengths(expected.year)[expected.month as usize - 1];
            (expected.day, expected.day_of_year) = (expected.day + 1, expected.day_of_year + 1);
            if expected.day > length {
                (expected.day, expected.month) = (1, expected.month + 1);
            }
            if expected.month > 12 {
                (expected.month, expected.year, expected.day_of_year) = (1, expected.year + 1, 1);
            }
        }
    }

    #[test]
    fn distant_days() {
        assert_eq!(date(-1), Date { year: 1969, month: 12, day: 31, day_of_year: 365 });
        assert_eq!(date(-719_528), Date { year: 0, month: 1, day: 1, day_of_year: 1 });
        assert_eq!(date(-719_528 + 59), Date { year: 0, month: 2, day: 29, day_of_year: 60 });
        let mut random = fastrand::Rng::with_seed(17);
        for _ in 0..100_000 {
            let day = random.i32(..);
            if has_date(day) {
                assert_eq!(date(day), distant_date(day.into()), "{day}");
            }
        }
        assert!(has_date(-12_000_000) && has_date(1_000_000_000) && !has_date(i32::MIN));
        assert_eq!(distant_date(i64::MAX).year, i32::MAX);
    }
}
