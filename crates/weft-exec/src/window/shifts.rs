//! Functions that give the argument of one other row: lag and lead, first_value, last_value and nth_value.

use std::ops::Range;

use super::column::Column;
use super::frames::Frames;
use super::functions::Shift;
use super::morsel::Rows;
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

/// Writes lag and lead.
pub(super) async fn write_shift(
    shift: &Shift,
    rows: &Rows<'_>,
    argument: &Column,
    out: &mut Column,
    pace: &mut Pace,
) {
    for_lane!(argument.lane(), T => shifted::<T>(shift, rows, argument, out, pace).await);
}

async fn shifted<T: Value>(
    shift: &Shift,
    rows: &Rows<'_>,
    argument: &Column,
    out: &mut Column,
    pace: &mut Pace,
) {
    let default = shift.default.as_ref().map(|constant| constant.value::<T>());
    let ignores_nulls = shift.ignores_nulls && argument.has_nulls() && shift.back != 0;
    let distance = usize::try_from(shift.back.unsigned_abs()).unwrap_or(usize::MAX);
    for partition in rows.partitions() {
        let places = if ignores_nulls { known(argument, partition.clone()) } else { Vec::new() };
        // Of those places, how many lie before the row.
        let mut before = 0usize;
        for start in partition.clone().step_by(STRIDE) {
            for row in start..partition.end.min(start + STRIDE) {
                let is_place = ignores_nulls && argument.is_valid(row);
                let other = match (ignores_nulls, shift.back >= 0) {
                    (false, true) => {
                        row.checked_sub(distance).filter(|row| *row >= partition.start)
                    }
                    (false, false) => row.checked_add(distance).filter(|row| *row < partition.end),
                    (true, true) => before.checked_sub(distance).map(|place| places[place]),
                    (true, false) => {
                        let place = (before + usize::from(is_place)).checked_add(distance - 1);
                        place.and_then(|place| places.get(place).copied())
                    }
                };
                before += usize::from(is_place);
                match (other, default) {
                    (None, Some(default)) => out.values_mut::<T>()[row] = default,
                    (other, _) => copy::<T>(argument, other, out, row),
                }
            }
            pace.keep().await;
        }
    }
}

/// Writes the argument of the row with a number in each frame, counted from 1 on, or from -1 on backwards.
pub(super) async fn write_nth(
    number: i64,
    ignores_nulls: bool,
    frames: &mut Frames<'_>,
    rows: &Rows<'_>,
    argument: &Column,
    out: &mut Column,
    pace: &mut Pace,
) {
    for_lane!(argument.lane(), T => {
        nth::<T>(number, ignores_nulls, frames, rows, argument, out, pace).await;
    });
}

async fn nth<T: Value>(
    number: i64,
    ignores_nulls: bool,
    frames: &mut Frames<'_>,
    rows: &Rows<'_>,
    argument: &Column,
    out: &mut Column,
    pace: &mut Pace,
) {
    let ignores_nulls = ignores_nulls && argument.has_nulls();
    let mut until_look = STRIDE;
    for partition in rows.partitions() {
        frames.begin(partition.clone(), pace).await;
        let places = if ignores_nulls { known(argument, partition.clone()) } else { Vec::new() };
        let mut row = partition.start;
        while row < partition.end {
            let (frame, end) = frames.next(row);
            let found = if ignores_nulls {
                let first = places.partition_point(|place| *place < frame.start);
                let last = places.partition_point(|place| *place < frame.end);
                in_range(number, first..last).map(|place| places[place])
            } else {
                in_range(number, frame)
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
}

/// The element with a number of a range.
pub(super) fn in_range(number: i64, range: Range<usize>) -> Option<usize> {
    let distance = usize::try_from(number.unsigned_abs()).ok()?;
    let place = match number {
        0 => return None,
        1.. => range.start.checked_add(distance - 1)?,
        _ => range.end.checked_sub(distance)?,
    };
    range.contains(&place).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_counted_from_both_ends() {
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
}
