//! Aggregates of frames that are not ours: their results are gathered until they are worth a column's while.

use std::fmt;
use std::ops::Range;

use arrow_array::{Array, ArrayRef};
use arrow_select::concat::concat;

use super::aggregates::Held;
use super::column::{Column, bytes_of};
use super::exclusion::{Change, all};
use super::frames::Frames;
use super::functions::Accumulator;
use super::morsel::Rows;
use crate::error::Result;
use crate::pace::Pace;
use crate::tuple::budget::Budget;

/// Results that are gathered, at most, and bytes of them.
const GATHERED_MAX: usize = 1024;
const GATHERED_BYTES_MAX: usize = 1 << 20;

/// Rows between two looks at the clock: each may take a while.
const STRIDE: usize = 64;

/// Rows that come in or go out at once.
const ROWS_MAX: usize = 8 << 10;

/// A foreign accumulator, and results that were not written yet.
pub(super) struct ForeignHeld {
    accumulator: Box<dyn Accumulator>,
    values: Vec<ArrayRef>,
    values_bytes: usize,
    /// The rows of each.
    rows: Vec<Range<usize>>,
    /// The result since rows came in or went out last.
    value: Option<ArrayRef>,
}

impl ForeignHeld {
    pub(super) fn new(accumulator: Box<dyn Accumulator>) -> ForeignHeld {
        let (values, rows) = (Vec::new(), Vec::new());
        ForeignHeld { accumulator, values, values_bytes: 0, rows, value: None }
    }

    /// See [`Accumulator::go_on`].
    pub(super) fn go_on(&mut self, inputs: Vec<ArrayRef>) {
        self.accumulator.go_on(inputs);
    }

    /// See [`Accumulator::removes_any`].
    pub(super) fn removes_any(&self) -> bool {
        self.accumulator.removes_any()
    }

    /// See [`Accumulator::bytes`].
    pub(super) fn bytes(&self) -> usize {
        self.accumulator.bytes()
    }

    fn flush(&mut self, out: &mut Column) -> Result<()> {
        if self.values.is_empty() {
            return Ok(());
        }
        let values: Vec<&dyn Array> = self.values.iter().map(AsRef::as_ref).collect();
        out.set_runs(&concat(&values)?, &self.rows)?;
        self.values.clear();
        self.values_bytes = 0;
        self.rows.clear();
        Ok(())
    }
}

impl fmt::Debug for ForeignHeld {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ForeignHeld({} results)", self.rows.len())
    }
}

impl Held for ForeignHeld {
    fn removes(&self) -> bool {
        self.accumulator.removes()
    }

    fn stride(&self) -> usize {
        STRIDE
    }

    fn clear(&mut self) -> Result<()> {
        self.value = None;
        self.accumulator.clear()
    }

    fn add(&mut self, rows: Range<usize>) -> Result<()> {
        self.value = None;
        self.accumulator.add(rows)
    }

    fn remove(&mut self, rows: Range<usize>) -> Result<()> {
        self.value = None;
        self.accumulator.remove(rows)
    }

    fn write(&mut self, out: &mut Column, rows: Range<usize>) -> Result<()> {
        let value = match self.value.take() {
            Some(value) => value,
            None => self.accumulator.value()?,
        };
        self.value = Some(value.clone());
        self.values_bytes += bytes_of(&value);
        self.values.push(value);
        self.rows.push(rows);
        let is_enough =
            self.values.len() >= GATHERED_MAX || self.values_bytes >= GATHERED_BYTES_MAX;
        if is_enough { self.flush(out) } else { Ok(()) }
    }

    fn end(&mut self, out: &mut Column) -> Result<()> {
        self.flush(out)
    }
}

/// Writes what is held of each row's frame, of which some rows are left out.
///
/// # Errors
/// Those of the accumulator; [`crate::ExecError::Memory`]
pub(super) async fn write_excluded(
    held: &mut ForeignHeld,
    frames: &mut Frames<'_>,
    rows: &Rows<'_>,
    out: &mut Column,
    budget: &mut Budget,
    pace: &mut Pace,
) -> Result<()> {
    let removes_any = held.removes_any();
    for partition in rows.partitions() {
        frames.begin(partition.clone(), pace).await;
        held.clear()?;
        let mut holds = all(partition.start..partition.start);
        let mut row = partition.start;
        while row < partition.end {
            let (frame, end) = frames.next(row);
            let kept = frames.kept(row, frame);
            let Change { is_anew, out: gone, come } = Change::between(&holds, &kept, removes_any);
            if is_anew {
                held.clear()?;
            }
            for rows in gone.into_iter().flat_map(pieces) {
                held.remove(rows)?;
                pace.keep().await;
            }
            for rows in come.into_iter().flat_map(pieces) {
                held.add(rows)?;
                pace.keep().await;
            }
            holds = kept;
            held.write(out, row..end)?;
            out.account(budget).await?;
            pace.keep().await;
            row = end;
        }
    }
    held.end(out)?;
    out.account(budget).await
}

/// Rows in pieces that are not many.
fn pieces(rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = rows.end;
    rows.step_by(ROWS_MAX).map(move |start| start..end.min(start + ROWS_MAX))
}
