//! Functions that give the argument of one other row: lag and lead, first_value, last_value and nth_value.

use std::ops::Range;

use super::column::Column;
use super::exclusion::Kept;
use super::frames::Frames;
use super::functions::{Given, Shift};
use super::morsel::Rows;
use crate::error::{ExecError, Result};
use crate::for_lane;
use crate::lane::Value;
use crate::pace::Pace;

/// Rows between two looks at the clock.
const STRIDE: usize = 16 << 10;

/// Copies a row, or makes it null.
fn copy<T: Value>(from: &Column, row: Option<usize>, out: &mut Column, at: usize) {
    match row.filter(|row| from.is_valid(*row)) {
        Some(row) => out.values_mut::<T>()[at] = from.values::<T>()[row],
        None => out.set_null(at),
    }
}

/// Those of `rows` whose argument is not null.
fn known(argument: &Column, rows: Range<usize>) -> Vec<usize> {
    rows.filter(|row| argument.is_valid(*row)).collect()
}

/// Writes lag and lead; `given` are the columns of [`Shift::fields`].
pub(super) async fn write_shift(
    shift: &Shift,
    rows: &Rows<'_>,
    argument: &Column,
    given: &[Option<Column>; 3],
    out: &mut Column,
    pace: &mut Pace,
) {
    for_lane!(argument.lane(), T => shifted::<T>(shift, rows, argument, given, out, pace).await);
}

async fn shifted<T: Value>(
    shift: &Shift,
    rows: &Rows<'_>,
    argument: &Column,
    [distances, defaults, _]: &[Option<Column>; 3],
    out: &mut Column,
    pace: &mut Pace,
) {
    let default = match &shift.default {
        Some(Given::Constant(constant)) => Some(constant.value::<T>()),
        _ => None,
    };
    let ignores_nulls = shift.passes_over_nulls() && argument.has_nulls();
    for partition in rows.partitions() {
        let places = if ignores_nulls { known(argument, partition.clone()) } else { Vec::new() };
        // Of those places, how many lie before the row.
        let mut before = 0usize;
        for start in partition.clone().step_by(STRIDE) {
            for row in start..partition.end.min(start + STRIDE) {
                let is_place = ignores_nulls && argument.is_valid(row);
                let counted_before = before;
                before += usize::from(is_place);
                let Some(back) = back_of(shift, distances.as_ref(), row) else {
                    out.set_null(row);
                    continue;
                };
                let distance = usize::try_from(back.unsigned_abs()).unwrap_or(usize::MAX);
                let other = if back == 0 {
                    Some(row)
                } else if ignores_nulls {
                    let place = match back > 0 {
                        true => counted_before.checked_sub(distance),
                        false => before.checked_add(distance - 1),
                    };
                    place.and_then(|place| places.get(place).copied())
                } else {
                    let other = match back > 0 {
                        true => row.checked_sub(distance),
                        false => row.checked_add(distance),
                    };
                    other.filter(|row| partition.contains(row))
                };
                match (other, default, defaults) {
                    (None, Some(default), _) => out.values_mut::<T>()[row] = default,
                    (None, None, Some(defaults)) => copy::<T>(defaults, Some(row), out, row),
                    (other, ..) => copy::<T>(argument, other, out, row),
                }
            }
            pace.keep().await;
        }
    }
}

/// How many rows before a row the other one is; `None` if the row, whose distance is in a column, does not say so.
pub(super) fn back_of(shift: &Shift, distances: Option<&Column>, row: usize) -> Option<i64> {
    let rows = match (&shift.back, distances) {
        (Given::Constant(rows), _) => *rows,
        (Given::Field(_), Some(distances)) => {
            distances.is_valid(row).then(|| distances.values::<i64>()[row])?
        }
        (Given::Field(_), None) => unreachable!("distances in a field have a column"),
    };
    Some(shift.back(rows))
}

/// Which row of a frame is wanted.
pub(super) struct Nth<'a> {
    pub(super) row: &'a Given<i64>,
    /// Those that rows have themselves.
    pub(super) numbers: Option<&'a Column>,
    pub(super) ignores_nulls: bool,
}

impl Nth<'_> {
    /// The number that a row wants, counted from 1 on, or from -1 on backwards; `None` if it is null.
    ///
    /// # Errors
    /// [`ExecError::NotPositive`]
    pub(super) fn of(&self, row: usize) -> Result<Option<i64>> {
        match (self.row, self.numbers) {
            (Given::Constant(number), _) => Ok(Some(*number)),
            (Given::Field(_), Some(numbers)) if numbers.is_valid(row) => {
                match numbers.values::<i64>()[row] {
                    value if value > 0 => Ok(Some(value)),
                    value => {
                        let argument = "the second argument of nth_value";
                        Err(ExecError::NotPositive { argument, value })
                    }
                }
            }
            _ => Ok(None),
        }
    }
}

/// Writes the argument of the row with a number in each frame.
///
/// # Errors
/// Those of [`Nth::of`].
pub(super) async fn write_nth(
    of: &Nth<'_>,
    frames: &mut Frames<'_>,
    rows: &Rows<'_>,
    argument: &Column,
    out: &mut Column,
    pace: &mut Pace,
) -> Result<()> {
    for_lane!(argument.lane(), T => nth::<T>(of, frames, rows, argument, out, pace).await)
}

async fn nth<T: Value>(
    of: &Nth<'_>,
    frames: &mut Frames<'_>,
    rows: &Rows<'_>,
    argument: &Column,
    out: &mut Column,
    pace: &mut Pace,
) -> Result<()> {
    let ignores_nulls = of.ignores_nulls && argument.has_nulls();
    let mut until_look = STRIDE;
    for partition in rows.partitions() {
        frames.begin(partition.clone(), pace).await;
        let places = if ignores_nulls { known(argument, partition.clone()) } else { Vec::new() };
        let mut row = partition.start;
        while row < partition.end {
            let (frame, mut end) = frames.next(row);
            if of.numbers.is_some() {
                end = row + 1;
            }
            let kept = frames.kept(row, frame);
            let found = match of.of(row)? {
                None => None,
                Some(number) if ignores_nulls => {
                    let place = |row| places.partition_point(|place| *place < row);
                    let kept = kept.map(|rows| match rows.is_empty() {
                        true => 0..0,
                        false => place(rows.start)..place(rows.end),
                    });
                    in_ranges(number, &kept).map(|place| places[place])
                }
                Some(number) => in_ranges(number, &kept),
            };
            for row in row..end {
                copy::<T>(argument, found, out, row);
            }
            until_look = until_look.saturating_sub(end - row);
            row = end;
            if until_look == 0 {
                pace.keep().await;
                until_look = STRIDE;
            }
        }
    }
    Ok(())
}

/// The element with a number of ranges behind each other.
pub(super) fn in_ranges(number: i64, ranges: &Kept) -> Option<usize> {
    let mut before = usize::try_from(number.unsigned_abs()).ok()?.checked_sub(1)?;
    let mut find = |range: &Range<usize>| {
        let is_in = before < range.len();
        let found = if number > 0 {
            range.start.wrapping_add(before)
        } else {
            range.end.wrapping_sub(before).wrapping_sub(1)
        };
        before = before.saturating_sub(range.len());
        is_in.then_some(found)
    };
    match number > 0 {
        true => ranges.iter().find_map(find),
        false => ranges.iter().rev().find_map(&mut find),
    }
}

#[cfg(test)]
mod tests {
    use super::super::exclusion::all;
    use super::*;

    #[test]
    fn elements_are_counted_from_both_ends() {
        let in_range = |number, range| in_ranges(number, &all(range));
        assert_eq!(in_range(1, 3..6), Some(3));
        assert_eq!(in_range(3, 3..6), Some(5));
        assert_eq!(in_range(4, 3..6), None);
        assert_eq!(in_range(-1, 3..6), Some(5));
        assert_eq!(in_range(-3, 3..6), Some(3));
        assert_eq!(in_range(-4, 3..6), None);
        assert_eq!(in_range(0, 3..6), None);
        assert_eq!(in_range(1, 3..3), None);
        assert_eq!(in_range(i64::MIN, 3..6), None);
    }

    #[test]
    fn elements_of_several_ranges_are_counted_through() {
        let ranges = [2..4, 7..7, 9..12];
        let rows = [2, 3, 9, 10, 11];
        for (at, row) in rows.iter().enumerate() {
            assert_eq!(in_ranges(at as i64 + 1, &ranges), Some(*row));
            assert_eq!(in_ranges(at as i64 - 5, &ranges), Some(*row));
        }
        assert_eq!(in_ranges(6, &ranges), None);
        assert_eq!(in_ranges(-6, &ranges), None);
    }
}
