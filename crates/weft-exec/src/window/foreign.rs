//! Aggregates of frames that are not ours: their results are gathered until they are worth a column's while.

use std::fmt;
use std::ops::Range;

use arrow_array::{Array, ArrayRef};
use arrow_select::concat::concat;

use super::aggregates::Held;
use super::column::Column;
use super::functions::Accumulator;
use crate::error::Result;

/// Results that are gathered, at most.
const GATHERED_MAX: usize = 1024;

/// Rows between two looks at the clock: each may take a while.
const STRIDE: usize = 64;

/// A foreign accumulator, and results that were not written yet.
pub(super) struct ForeignHeld {
    accumulator: Box<dyn Accumulator>,
    values: Vec<ArrayRef>,
    /// The rows of each.
    rows: Vec<Range<usize>>,
}

impl ForeignHeld {
    pub(super) fn new(accumulator: Box<dyn Accumulator>) -> ForeignHeld {
        ForeignHeld { accumulator, values: Vec::new(), rows: Vec::new() }
    }

    /// See [`Accumulator::go_on`].
    pub(super) fn go_on(&mut self, inputs: Vec<ArrayRef>) {
        self.accumulator.go_on(inputs);
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
        self.accumulator.clear()
    }

    fn add(&mut self, rows: Range<usize>) -> Result<()> {
        self.accumulator.add(rows)
    }

    fn remove(&mut self, rows: Range<usize>) -> Result<()> {
        self.accumulator.remove(rows)
    }

    fn write(&mut self, out: &mut Column, rows: Range<usize>) -> Result<()> {
        self.values.push(self.accumulator.value()?);
        self.rows.push(rows);
        if self.values.len() < GATHERED_MAX { Ok(()) } else { self.flush(out) }
    }

    fn end(&mut self, out: &mut Column) -> Result<()> {
        self.flush(out)
    }
}
