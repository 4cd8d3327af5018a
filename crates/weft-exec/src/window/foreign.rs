//! Aggregates of frames that are not ours: their results are gathered until they are worth a column's while.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{Array, ArrayRef};
use arrow_select::concat::concat;
use futures::FutureExt;
use futures::future::LocalBoxFuture;

use super::aggregates::{self, Held};
use super::column::{Column, bytes_of};
use super::exclusion::{Change, all};
use super::frames::Frames;
use super::functions::{Accumulator, Foreign};
use super::morsel::Rows;
use crate::apart::{self, LONG_BYTES, Taken};
use crate::arrow::{ArrowColumn, is_encoded};
use crate::error::Result;
use crate::lane::Lane;
use crate::pace::Pace;
use crate::tuple::budget::Budget;

/// Results that are gathered, at most, and bytes of them ([`LONG_BYTES`] of those that are encoded); and no more than for so many rows
/// as are written at once.
const GATHERED_MAX: usize = 1024;
const GATHERED_BYTES_MAX: usize = 1 << 20;

/// Rows between two looks at the clock: each may take a while.
const STRIDE: usize = 64;

/// Rows that come in or go out at once, at most and at least; and bytes of their arguments. What some aggregates give depends on which
/// rows come at once (sketches): so this goes by what the rows are, and not by how long they take.
const ROWS_AT_ONCE: (usize, usize) = (16, 8 << 10);
const BYTES_AT_ONCE: usize = LONG_BYTES;

/// A foreign accumulator, and results that were not written yet.
pub(super) struct ForeignHeld {
    /// `None` while its value is made apart.
    accumulator: Option<Box<dyn Accumulator>>,
    /// Rows that it has, and how many come in or go out at once.
    rows: usize,
    at_once: usize,
    /// How long its values have taken.
    taken: Taken,
    gathered: Vec<ArrayRef>,
    gathered_bytes: usize,
    /// The rows of each, and how many they are.
    gathered_for: Vec<Range<usize>>,
    gathered_for_rows: usize,
    /// The result since rows came in or went out last.
    value: Option<Value>,
}

/// A result.
enum Value {
    /// To be gathered with others, and its bytes.
    Array(ArrayRef, usize),
    /// That took long, to be written as it is.
    Made(Arc<ArrowColumn>),
}

impl ForeignHeld {
    /// One whose rows have these arguments.
    ///
    /// # Errors
    /// What the function finds wrong.
    pub(super) fn new(of: &dyn Foreign, inputs: Vec<ArrayRef>) -> Result<ForeignHeld> {
        let at_once = at_once(&inputs);
        let accumulator = of.accumulator(inputs)?;
        Ok(ForeignHeld {
            accumulator: Some(accumulator),
            rows: 0,
            at_once,
            taken: Taken::default(),
            gathered: Vec::new(),
            gathered_bytes: 0,
            gathered_for: Vec::new(),
            gathered_for_rows: 0,
            value: None,
        })
    }

    fn accumulator(&self) -> &dyn Accumulator {
        &**self.accumulator.as_ref().expect("its value was made")
    }

    fn accumulator_mut(&mut self) -> &mut dyn Accumulator {
        &mut **self.accumulator.as_mut().expect("its value was made")
    }

    /// See [`Accumulator::go_on`].
    pub(super) fn go_on(&mut self, inputs: Vec<ArrayRef>) {
        self.at_once = at_once(&inputs);
        self.accumulator_mut().go_on(inputs);
    }

    /// See [`Accumulator::removes_any`].
    pub(super) fn removes_any(&self) -> bool {
        self.accumulator().removes_any()
    }

    /// See [`Accumulator::bytes`].
    pub(super) fn bytes(&self) -> usize {
        self.accumulator().bytes()
    }

    /// Makes a value that takes long.
    async fn make_apart(&mut self, out: &mut Column) -> Result<()> {
        self.flush(out)?;
        let lane = out.lane();
        let mut accumulator = self.accumulator.take().expect("it was put back");
        let make = move || {
            let began = Instant::now();
            let made = accumulator.value().and_then(|array| ArrowColumn::new(&array, lane));
            (accumulator, made, began.elapsed())
        };
        let (accumulator, made, took) = apart::run(make).await;
        self.accumulator = Some(accumulator);
        self.taken.note(self.rows, took);
        self.value = Some(Value::Made(Arc::new(made?)));
        Ok(())
    }

    fn make_here(&mut self, lane: Lane) -> Result<Value> {
        let began = Instant::now();
        let array = self.accumulator_mut().value()?;
        let value = if ArrowColumn::takes_long(&array) {
            Value::Made(Arc::new(ArrowColumn::new(&array, lane)?))
        } else {
            let bytes = bytes_of(&array);
            Value::Array(array, bytes)
        };
        self.taken.note(self.rows, began.elapsed());
        Ok(value)
    }

    fn flush(&mut self, out: &mut Column) -> Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let values: Vec<&dyn Array> = self.gathered.iter().map(AsRef::as_ref).collect();
        let made = Arc::new(ArrowColumn::new(&concat(&values)?, out.lane())?);
        out.set_runs(&made, &self.gathered_for)?;
        self.gathered.clear();
        self.gathered_for.clear();
        (self.gathered_bytes, self.gathered_for_rows) = (0, 0);
        Ok(())
    }
}

impl fmt::Debug for ForeignHeld {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ForeignHeld({} results)", self.gathered.len())
    }
}

impl Held for ForeignHeld {
    fn removes(&self) -> bool {
        self.accumulator().removes()
    }

    fn stride(&self) -> usize {
        STRIDE
    }

    fn at_once(&self) -> usize {
        self.at_once
    }

    fn clear(&mut self) -> Result<()> {
        (self.value, self.rows) = (None, 0);
        self.accumulator_mut().clear()
    }

    fn add(&mut self, rows: Range<usize>) -> Result<()> {
        (self.value, self.rows) = (None, self.rows + rows.len());
        self.accumulator_mut().add(rows)
    }

    fn remove(&mut self, rows: Range<usize>) -> Result<()> {
        (self.value, self.rows) = (None, self.rows - rows.len());
        self.accumulator_mut().remove(rows)
    }

    fn make<'a>(
        &'a mut self,
        out: &'a mut Column,
        _: &'a mut Pace,
    ) -> Option<LocalBoxFuture<'a, Result<()>>> {
        let is_apart = self.value.is_none() && self.taken.is_long(self.rows);
        is_apart.then(|| self.make_apart(out).boxed_local())
    }

    fn write(&mut self, out: &mut Column, rows: Range<usize>) -> Result<()> {
        let value = match self.value.take() {
            Some(value) => value,
            None => self.make_here(out.lane())?,
        };
        match &value {
            Value::Array(array, bytes) => {
                self.gathered_bytes += bytes;
                self.gathered.push(array.clone());
                self.gathered_for_rows += rows.len();
                self.gathered_for.push(rows);
            }
            Value::Made(made) => out.set_runs(made, &[rows])?,
        }
        self.value = Some(value);
        let is_encoded = |array: &ArrayRef| is_encoded(array.data_type());
        let bytes_max = match self.gathered.last().is_some_and(is_encoded) {
            true => LONG_BYTES,
            false => GATHERED_BYTES_MAX,
        };
        let is_enough = self.gathered.len() >= GATHERED_MAX
            || self.gathered_bytes >= bytes_max
            || self.gathered_for_rows >= aggregates::STRIDE;
        if is_enough { self.flush(out) } else { Ok(()) }
    }

    fn end(&mut self, out: &mut Column) -> Result<()> {
        self.flush(out)
    }
}

/// Rows with these arguments that come in or go out at once.
fn at_once(inputs: &[ArrayRef]) -> usize {
    let rows = inputs.first().map_or(0, |input| input.len());
    let bytes: usize = inputs.iter().map(|input| input.get_buffer_memory_size()).sum();
    let (least, most) = ROWS_AT_ONCE;
    (BYTES_AT_ONCE * rows.max(1) / bytes.max(1)).clamp(least, most)
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
            let gone = gone.into_iter().map(|rows| (rows, false));
            for (rows, comes) in gone.chain(come.into_iter().map(|rows| (rows, true))) {
                let mut next = rows.start;
                while next < rows.end {
                    let some = next..rows.end.min(next + held.at_once());
                    next = some.end;
                    if comes {
                        held.add(some)?
                    } else {
                        held.remove(some)?
                    }
                    pace.keep().await;
                }
            }
            holds = kept;
            if let Some(making) = held.make(out, pace) {
                making.await?;
            }
            while row < end {
                let some = row..end.min(row + aggregates::STRIDE);
                row = some.end;
                held.write(out, some)?;
                out.account(budget).await?;
                pace.keep().await;
            }
        }
    }
    held.end(out)?;
    out.account(budget).await
}
