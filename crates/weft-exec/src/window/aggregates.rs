//! Aggregates of frames: what is held of a frame changes by the rows that come in and those that go out.

use std::ops::Range;

use futures::future::LocalBoxFuture;

use super::column::Column;
use super::frames::Frames;
use super::morsel::Rows;
use crate::error::Result;
use crate::pace::Pace;
use crate::tuple::budget::Budget;

/// Rows that come in, go out or are written at once.
pub(super) const STRIDE: usize = 8 << 10;

/// What is held of a frame.
pub(super) trait Held {
    /// True if rows may be removed.
    fn removes(&self) -> bool {
        true
    }

    /// Rows that may be added, removed or written between two looks at the clock.
    fn stride(&self) -> usize {
        STRIDE
    }

    /// Rows that are added or removed at once.
    fn at_once(&self) -> usize {
        STRIDE
    }

    /// Nothing is.
    fn clear(&mut self) -> Result<()>;

    /// These rows, which come behind the others.
    fn add(&mut self, rows: Range<usize>) -> Result<()>;

    /// The first rows are held no more.
    fn remove(&mut self, rows: Range<usize>) -> Result<()>;

    /// Makes the result where that takes long. To be awaited before it is written, when the rows are those of its frame.
    fn make<'a>(
        &'a mut self,
        _out: &'a mut Column,
        _pace: &'a mut Pace,
    ) -> Option<LocalBoxFuture<'a, Result<()>>> {
        None
    }

    /// Writes the result.
    fn write(&mut self, out: &mut Column, rows: Range<usize>) -> Result<()>;

    /// All results were written.
    fn end(&mut self, _out: &mut Column) -> Result<()> {
        Ok(())
    }
}

/// Writes what is held of each row's frame.
///
/// # Errors
/// Those of what is held; [`ExecError::Memory`](crate::ExecError::Memory)
pub(super) async fn write(
    held: &mut dyn Held,
    frames: &mut Frames<'_>,
    rows: &Rows<'_>,
    out: &mut Column,
    budget: &mut Budget,
    pace: &mut Pace,
) -> Result<()> {
    let mut look = Look::every(held.stride());
    for partition in rows.partitions() {
        frames.begin(partition.clone(), pace).await;
        held.clear()?;
        let mut holds = partition.start..partition.start;
        let mut row = partition.start;
        while row < partition.end {
            let (frame, end) = frames.next(row);
            if frame != holds {
                // Who goes over into the frame, and who begins anew.
                let removes = holds.start == frame.start || held.removes();
                let goes_on = removes && is_ahead(&holds, &frame);
                let first = if goes_on { holds.end } else { frame.start };
                if !goes_on {
                    held.clear()?;
                } else {
                    // What goes out makes room for what comes in.
                    let mut gone = holds.start;
                    while gone < frame.start {
                        let until = frame.start.min(gone + held.at_once());
                        held.remove(gone..until)?;
                        look.after(until - gone, pace).await;
                        gone = until;
                    }
                }
                let mut next = first;
                while next < frame.end {
                    let until = frame.end.min(next + held.at_once());
                    held.add(next..until)?;
                    look.after(until - next, pace).await;
                    next = until;
                }
                holds = frame;
            }
            if let Some(making) = held.make(out, pace) {
                making.await?;
            }
            while row < end {
                let until = end.min(row + STRIDE);
                held.write(out, row..until)?;
                out.account(budget).await?;
                look.after(until - row, pace).await;
                row = until;
            }
        }
    }
    held.end(out)?;
    out.account(budget).await
}

/// Looks at the clock every so many rows.
struct Look {
    stride: usize,
    rows_left: usize,
}

impl Look {
    fn every(stride: usize) -> Look {
        Look { stride, rows_left: stride }
    }

    /// So many rows were gone through.
    async fn after(&mut self, rows: usize, pace: &mut Pace) {
        self.rows_left = self.rows_left.saturating_sub(rows);
        if self.rows_left == 0 {
            self.rows_left = self.stride;
            pace.keep().await;
        }
    }
}

/// True if what is held may go over into a frame.
pub(super) fn is_ahead(holds: &Range<usize>, frame: &Range<usize>) -> bool {
    holds.start <= frame.start && frame.start < holds.end && holds.end <= frame.end
}
