//! Functions that say where a row is in its partition.

use std::ops::Range;

use super::column::Column;
use super::functions::{Given, Kind};
use super::morsel::Rows;
use crate::error::{ExecError, Result};
use crate::for_lanes;
use crate::lane::Value;
use crate::pace::Pace;

/// Rows between two looks at the clock.
const STRIDE: usize = 16 << 10;

/// What is known of a row.
struct Place {
    /// Its number in the partition, from 0 on.
    number: usize,
    /// Rows of the partition.
    rows: usize,
    /// The numbers of its peers.
    peers: Range<usize>,
    /// Keys in the partition that come before its own.
    keys_before: usize,
}

/// Writes the results of a function by ranks.
///
/// # Panics
/// If it is another one, or the result of another lane.
pub(super) async fn write(kind: &Kind, rows: &Rows<'_>, out: &mut Column, pace: &mut Pace) {
    let number: fn(&Place, u64) -> u64 = match kind {
        Kind::RowNumber => |place, _| place.number as u64 + 1,
        Kind::Rank => |place, _| place.peers.start as u64 + 1,
        Kind::DenseRank => |place, _| place.keys_before as u64 + 1,
        Kind::Ntile(_) => |place, parts| part_of(place.number as u64, place.rows as u64, parts) + 1,
        kind => return write_part(kind, rows, out, pace).await,
    };
    let parts =
        if let Kind::Ntile(Given::Constant(parts)) = kind { parts.unsigned_abs() } else { 0 };
    let has_peers = matches!(kind, Kind::Rank | Kind::DenseRank);
    for_lanes!(out.lane(), T => {
        each(rows, out, has_peers, pace, |place| number(place, parts) as T).await;
    }, [I64: i64, U64: u64], else panic!("ranks in {}", out.lane()));
}

/// Writes the results of a function that gives a part of the partition.
async fn write_part(kind: &Kind, rows: &Rows<'_>, out: &mut Column, pace: &mut Pace) {
    let part: fn(&Place) -> f64 = match kind {
        Kind::PercentRank => |place| place.peers.start as f64 / (place.rows as f64 - 1.0).max(1.0),
        Kind::CumeDist => |place| place.peers.end as f64 / place.rows as f64,
        _ => unreachable!("no function by ranks"),
    };
    each(rows, out, true, pace, part).await;
}

/// Writes ntile of the numbers of parts that rows have themselves.
///
/// # Errors
/// [`ExecError::NotPositive`]
pub(super) async fn write_ntile(
    parts: &Column,
    rows: &Rows<'_>,
    out: &mut Column,
    pace: &mut Pace,
) -> Result<()> {
    let mut until_look = STRIDE;
    for partition in rows.partitions() {
        let (first, count) = (partition.start, partition.len());
        for row in partition {
            let part =
                parts_of(parts, row)?.map(|of| part_of((row - first) as u64, count as u64, of));
            write_part_of(part, out, row);
            until_look -= 1;
            if until_look == 0 {
                pace.keep().await;
                until_look = STRIDE;
            }
        }
    }
    Ok(())
}

/// How many parts a row wants; `None` if it is null.
///
/// # Errors
/// [`ExecError::NotPositive`]
pub(super) fn parts_of(parts: &Column, row: usize) -> Result<Option<u64>> {
    if !parts.is_valid(row) {
        return Ok(None);
    }
    match parts.values::<i64>()[row] {
        value if value > 0 => Ok(Some(value.unsigned_abs())),
        value => Err(ExecError::NotPositive { argument: "the argument of ntile", value }),
    }
}

/// Writes the part that a row is in, from 0 on.
pub(super) fn write_part_of(part: Option<u64>, out: &mut Column, row: usize) {
    match part {
        Some(part) => for_lanes!(out.lane(), T => out.values_mut::<T>()[row] = (part + 1) as T,
            [I64: i64, U64: u64], else panic!("ranks in {}", out.lane())),
        None => out.set_null(row),
    }
}

/// Which of so many parts of a partition a row is in, from 0 on.
pub(super) fn part_of(row: u64, rows: u64, parts: u64) -> u64 {
    let (least, larger) = (rows / parts, rows % parts);
    let in_larger = larger * (least + 1);
    if row < in_larger { row / (least + 1) } else { larger + (row - in_larger) / least }
}

async fn each<T: Value>(
    rows: &Rows<'_>,
    out: &mut Column,
    has_peers: bool,
    pace: &mut Pace,
    value: impl Fn(&Place) -> T,
) {
    let mut until_look = STRIDE;
    for partition in rows.partitions() {
        let (first, count) = (partition.start, partition.len());
        let mut place = Place { number: 0, rows: count, peers: 0..0, keys_before: 0 };
        while place.number < count {
            if has_peers && place.number == place.peers.end {
                place.keys_before += usize::from(place.number > 0);
                let end = rows.peers_end(first + place.number, partition.end);
                place.peers = place.number..end - first;
            }
            let known = if has_peers { place.peers.end } else { count };
            let end = known.min(place.number + until_look);
            let values = &mut out.values_mut::<T>()[first + place.number..first + end];
            until_look -= values.len();
            for out in values {
                *out = value(&place);
                place.number += 1;
            }
            if until_look == 0 {
                pace.keep().await;
                until_look = STRIDE;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_differ_by_one_row_at_most() {
        for rows in 1..40u64 {
            for parts in 1..50u64 {
                let places: Vec<u64> = (0..rows).map(|row| part_of(row, rows, parts)).collect();
                assert!(places.is_sorted() && places.iter().all(|part| *part < parts));
                let count = |part| places.iter().filter(|of| **of == part).count();
                let counts: Vec<usize> = (0..parts.min(rows)).map(count).collect();
                assert!(counts.is_sorted_by(|a, b| a >= b), "{rows} {parts}: {counts:?}");
                assert!(counts[0] - counts[counts.len() - 1] <= 1, "{rows} {parts}");
            }
        }
    }
}
