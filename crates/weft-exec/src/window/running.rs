//! Functions over the rows of partitions that come bit by bit: what has to be known of the rows before is carried over.

use std::ops::Range;

use super::aggregates::{Carried, Running};
use super::column::Column;
use super::functions::Kind;
use super::morsel::Rows;
use super::needs::End;
use crate::error::Result;
use crate::lane::Value;
use crate::pace::Pace;
use crate::tuple::budget::Budget;
use crate::{for_lane, for_lanes};

/// Rows between two looks at the clock.
const STRIDE: usize = 8 << 10;

/// The rows of a chunk that are evaluated.
pub(super) struct Evaluating<'a> {
    /// All rows at hand.
    pub(super) rows: &'a Rows<'a>,
    /// Those that are evaluated.
    pub(super) range: Range<usize>,
    /// The first of them is of a partition of which rows were evaluated before.
    pub(super) is_continued: bool,
}

impl Evaluating<'_> {
    /// The partitions: their rows in the range, and where they end as far as is known.
    fn partitions(&self) -> impl Iterator<Item = (Range<usize>, usize)> {
        let all = self.rows.partitions.ranges(self.range.start..self.rows.count());
        let end = self.range.end;
        all.take_while(move |rows| rows.start < end)
            .map(move |rows| (rows.start..rows.end.min(end), rows.end))
    }
}

/// What is carried over for a function.
#[derive(Debug, Default)]
pub(super) struct Carry {
    /// Rows of the partition so far.
    number: u64,
    /// The number of the first peer of the last row.
    peers_start: u64,
    /// Keys before that of the last row.
    keys_before: u64,
    /// What is held of the rows so far, and how far behind the last one those are that it holds.
    held: Option<(Carried, isize)>,
    /// A row that is needed. It is kept at hand.
    pub(super) kept: Option<usize>,
}

/// Writes row_number, rank and dense_rank.
pub(super) async fn write_ranks(
    kind: &Kind,
    evaluating: &Evaluating<'_>,
    carry: &mut Carry,
    out: &mut Column,
    pace: &mut Pace,
) {
    let value: fn(&Carry) -> u64 = match kind {
        Kind::RowNumber => |carry| carry.number + 1,
        Kind::Rank => |carry| carry.peers_start + 1,
        Kind::DenseRank => |carry| carry.keys_before + 1,
        _ => unreachable!("no function by ranks of rows before"),
    };
    let peers = evaluating.rows.peers;
    for (rows, _) in evaluating.partitions() {
        let is_new = !(evaluating.is_continued && rows.start == evaluating.range.start);
        if is_new {
            *carry = Carry::default();
        }
        for start in rows.clone().step_by(STRIDE) {
            let piece = start..rows.end.min(start + STRIDE);
            for_lanes!(out.lane(), T => {
                let out = out.values_mut::<T>();
                for row in piece {
                    if carry.number > 0 && peers.begins(row) {
                        carry.peers_start = carry.number;
                        carry.keys_before += 1;
                    }
                    out[row] = value(carry) as T;
                    carry.number += 1;
                }
            }, [I64: i64, U64: u64], else panic!("ranks in {}", out.lane()));
            pace.keep().await;
        }
    }
}

/// The end of the frame of a row that begins with its partition, and the end of the rows that have the same.
fn frame_end(
    end: End,
    row: usize,
    partition: (usize, usize),
    peers: impl FnOnce(usize, usize) -> usize,
) -> (usize, usize) {
    match end {
        End::Rows(rows) => {
            let end = (row + 1).saturating_add_signed(rows);
            (end.clamp(partition.0, partition.1), row + 1)
        }
        End::Peers => {
            let end = peers(row, partition.1);
            (end, end)
        }
    }
}

/// Writes an aggregate of frames that begin with their partitions.
///
/// # Errors
/// Those of what is held; [`ExecError::Memory`](crate::ExecError::Memory)
pub(super) async fn write_aggregate(
    held: &mut dyn Running,
    end: End,
    evaluating: &Evaluating<'_>,
    carry: &mut Carry,
    out: &mut Column,
    (budget, pace): (&mut Budget, &mut Pace),
) -> Result<()> {
    let range = &evaluating.range;
    let mut added = range.start;
    for (rows, partition_end) in evaluating.partitions() {
        let before =
            carry.held.take().filter(|_| evaluating.is_continued && rows.start == range.start);
        let mut first = rows.start;
        if let Some((carried, ahead)) = before {
            held.resume(&carried, carry.kept);
            added = rows.start.checked_add_signed(ahead).expect("rows are at hand");
            first = first.min(added);
        } else {
            held.clear()?;
            added = rows.start;
        }
        let mut row = rows.start;
        while row < rows.end {
            let peers = |row, end| evaluating.rows.peers_end(row, end);
            let (frame_end, next) = frame_end(end, row, (first, partition_end), peers);
            while added < frame_end {
                let until = frame_end.min(added + STRIDE);
                held.add(added..until)?;
                added = until;
                pace.keep().await;
            }
            let next = next.min(rows.end);
            held.write(out, row..next)?;
            if next / STRIDE != row / STRIDE {
                pace.keep().await;
            }
            row = next;
        }
        out.account(budget).await?;
    }
    let ahead = added.cast_signed() - range.end.cast_signed();
    (carry.held, carry.kept) = (Some((held.carry(), ahead)), held.kept());
    held.end(out)
}

/// Writes the argument of the `nth` row of each partition, counted from 1 on, if it lies in the frame, which begins with the
/// partition.
pub(super) async fn write_nth(
    nth: u64,
    end: End,
    evaluating: &Evaluating<'_>,
    carry: &mut Carry,
    argument: &Column,
    out: &mut Column,
    pace: &mut Pace,
) {
    for_lane!(argument.lane(), T => {
        write_nth_of::<T>(nth, end, evaluating, carry, argument, out, pace).await;
    });
}

async fn write_nth_of<T: Value>(
    nth: u64,
    end: End,
    evaluating: &Evaluating<'_>,
    carry: &mut Carry,
    argument: &Column,
    out: &mut Column,
    pace: &mut Pace,
) {
    for (rows, partition_end) in evaluating.partitions() {
        if !(evaluating.is_continued && rows.start == evaluating.range.start) {
            *carry = Carry::default();
        }
        let before = carry.number;
        if let Some(place) = (nth - 1).checked_sub(before) {
            let place = rows.start.saturating_add(usize::try_from(place).unwrap_or(usize::MAX));
            // It may lie behind the rows that are evaluated, and is looked for again then.
            carry.kept = (place < partition_end).then_some(place);
        }
        let found = carry.kept.filter(|row| argument.is_valid(*row));
        let value = found.map(|row| argument.values::<T>()[row]);
        let mut row = rows.start;
        while row < rows.end {
            let peers = |row, end| evaluating.rows.peers_end(row, end);
            // Rows that are before the range count by their number.
            let first = rows.start.saturating_sub(usize::try_from(before).unwrap_or(usize::MAX));
            let (frame_end, next) = frame_end(end, row, (first, partition_end), peers);
            let next = next.min(rows.end);
            let count = before
                .saturating_add_signed((frame_end.cast_signed() - rows.start.cast_signed()) as i64);
            match value.filter(|_| count >= nth) {
                Some(value) => out.values_mut::<T>()[row..next].fill(value),
                None => (row..next).for_each(|row| out.set_null(row)),
            }
            if next / STRIDE != row / STRIDE {
                pace.keep().await;
            }
            row = next;
        }
        carry.number = before + rows.len() as u64;
        if carry.number < nth {
            carry.kept = None;
        }
    }
}
