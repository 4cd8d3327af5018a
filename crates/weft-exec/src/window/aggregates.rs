//! Aggregates of frames: what is held of a frame changes by the rows that come in and those that go out.

use std::ops::Range;

use super::column::Column;
use super::frames::Frames;
use super::morsel::Rows;
use crate::error::Result;
use crate::pace::Pace;
use crate::tuple::budget::Budget;

/// Rows that come in at once.
const STRIDE: usize = 8 << 10;

/// What is held of a frame.
pub(super) trait Held {
    /// True if rows may be removed.
    fn removes(&self) -> bool {
        true
    }

    /// Rows that may be added or written between two looks at the clock.
    fn stride(&self) -> usize {
        STRIDE
    }

    /// Nothing is.
    fn clear(&mut self) -> Result<()>;

    /// These rows, which come behind the others.
    fn add(&mut self, rows: Range<usize>) -> Result<()>;

    /// The first rows are held no more.
    fn remove(&mut self, rows: Range<usize>) -> Result<()>;

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
    let stride = held.stride();
    let mut until_look = stride;
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
                } else if holds.start < frame.start {
                    // What goes out makes room for what comes in.
                    held.remove(holds.start..frame.start)?;
                }
                let mut next = first;
                while next < frame.end {
                    let until = frame.end.min(next + STRIDE);
                    held.add(next..until)?;
                    until_look = until_look.saturating_sub(until - next);
                    next = until;
                    if until_look == 0 {
                        pace.keep().await;
                        until_look = stride;
                    }
                }
                holds = frame;
            }
            held.write(out, row..end)?;
            out.account(budget).await?;
            until_look = until_look.saturating_sub(end - row);
            row = end;
            if until_look == 0 {
                pace.keep().await;
                until_look = stride;
            }
        }
    }
    held.end(out)?;
    out.account(budget).await
}

/// True if what is held may go over into a frame.
pub(super) fn is_ahead(holds: &Range<usize>, frame: &Range<usize>) -> bool {
    holds.start <= frame.start && frame.start < holds.end && holds.end <= frame.end
}
