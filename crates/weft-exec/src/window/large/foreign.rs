//! Aggregates that are not ours, of frames of any size: the rows come in and go out block by block.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::ArrayRef;
use weft_rt::memory::Reservation;

use super::super::aggregates::{Held, is_ahead};
use super::super::column::{Column, array};
use super::super::exclusion::{Change, Kept, all};
use super::super::foreign::ForeignHeld;
use super::super::functions::{Foreign, Function};
use super::account;
use super::blocks::{Blocks, Loaded};
use super::cursor::Cursor;
use super::frames::Frames;
use crate::error::{ExecError, Result};
use crate::pace::Pace;

/// Most rows of frames of which each is aggregated anew.
const ANEW_MAX: usize = 64 << 10;

/// Such an aggregate on its way through the partition.
#[derive(Debug)]
pub(super) struct Accumulated {
    held: ForeignHeld,
    fields: Vec<usize>,
    foreign: Arc<dyn Foreign>,
    frames: Frames,
    is_from_start: bool,
    /// The rows of the frame before; if some are left out, all of them, and what is kept.
    holds: Range<usize>,
    kept: Kept,
    /// Where rows come in, and where they go out, of each part that is kept.
    enter: [Inputs; 3],
    leave: [Inputs; 3],
    memory: Reservation,
}

/// The arguments of a block's rows.
#[derive(Debug)]
struct Inputs {
    cursor: Cursor,
    arrays: Vec<ArrayRef>,
    memory: Option<Reservation>,
}

impl Accumulated {
    /// # Errors
    /// [`ExecError::TooLarge`] if it cannot be aggregated; what the aggregate finds wrong.
    pub(super) fn new(
        function: &Function,
        foreign: &Arc<dyn Foreign>,
        frames: Frames,
        is_from_start: bool,
        blocks: &Blocks,
    ) -> Result<Accumulated> {
        let empty = foreign.input_types().iter().map(arrow_array::new_empty_array).collect();
        let held = ForeignHeld::new(&**foreign, empty)?;
        let (removes, grows) = match frames.excludes() {
            true => (held.removes_any(), false),
            false => (held.removes(), is_from_start),
        };
        if !grows && frames.is_to_end() && !removes {
            return Err(too_large(blocks));
        }
        let inputs = |()| Inputs { cursor: Cursor::new(None), arrays: Vec::new(), memory: None };
        Ok(Accumulated {
            held,
            fields: function.arguments.clone(),
            foreign: foreign.clone(),
            frames,
            is_from_start,
            holds: 0..0,
            kept: all(0..0),
            enter: [(); 3].map(inputs),
            leave: [(); 3].map(inputs),
            memory: blocks.input.ledger.empty(),
        })
    }

    /// True if all rows of the partition have to be seen first.
    pub(super) fn is_to_end(&self) -> bool {
        self.frames.is_to_end()
    }

    /// Takes in the rows of blocks that have come, if all frames begin with the partition and end with it.
    ///
    /// # Errors
    /// As [`Accumulated::write`].
    pub(super) async fn note(&mut self, blocks: &mut Blocks, pace: &mut Pace) -> Result<()> {
        if self.is_from_start && self.frames.is_to_end() && !self.frames.excludes() {
            self.add(0, self.holds.end..blocks.rows(), blocks, pace).await?;
            self.holds = 0..blocks.rows();
        }
        Ok(())
    }

    /// The results for a block, for which memory is reserved as they grow.
    ///
    /// # Errors
    /// Those of [`Blocks::extend`] and [`Blocks::load`]; [`ExecError::TooLarge`]; what the aggregate finds wrong.
    pub(super) async fn write(
        &mut self,
        here: &Arc<Loaded>,
        blocks: &mut Blocks,
        out: &mut Column,
        memory: &mut Reservation,
        pace: &mut Pace,
    ) -> Result<()> {
        let framed = self.frames.of_block(here, blocks, pace).await?;
        for framed in framed {
            if self.frames.excludes() {
                let kept = self.frames.kept(&framed, here);
                self.hold_kept(kept, blocks, pace).await?;
                self.holds = framed.frame;
            } else if framed.frame != self.holds {
                self.hold(framed.frame, blocks, pace).await?;
            }
            if let Some(making) = self.held.make(out, pace) {
                making.await?;
            }
            self.held.write(out, framed.rows)?;
            // Results may be much longer than rows.
            account(out, memory, blocks).await?;
            pace.keep().await;
        }
        self.held.end(out)
    }

    /// Rows go out and come in.
    async fn hold(
        &mut self,
        frame: Range<usize>,
        blocks: &mut Blocks,
        pace: &mut Pace,
    ) -> Result<()> {
        let is_more = self.holds.start == frame.start && self.holds.end <= frame.end;
        let goes_on = is_more || self.held.removes() && is_ahead(&self.holds, &frame);
        let first = if goes_on { self.holds.end } else { frame.start };
        if !goes_on {
            if !self.held.removes() && frame.len() > ANEW_MAX {
                return Err(too_large(blocks));
            }
            self.held.clear()?;
        }
        if goes_on {
            self.remove(0, self.holds.start..frame.start, blocks, pace).await?;
        }
        self.add(0, first..frame.end, blocks, pace).await?;
        self.holds = frame;
        Ok(())
    }

    /// The same for what is kept of a frame.
    async fn hold_kept(&mut self, kept: Kept, blocks: &mut Blocks, pace: &mut Pace) -> Result<()> {
        let change = Change::between(&self.kept, &kept, self.held.removes_any());
        if change.is_anew {
            let rows: usize = kept.iter().map(Range::len).sum();
            if !self.held.removes_any() && rows > ANEW_MAX {
                return Err(too_large(blocks));
            }
            self.held.clear()?;
        }
        for (part, rows) in change.out.into_iter().enumerate() {
            self.remove(part, rows, blocks, pace).await?;
        }
        for (part, rows) in change.come.into_iter().enumerate() {
            self.add(part, rows, blocks, pace).await?;
        }
        self.kept = kept;
        Ok(())
    }

    async fn remove(
        &mut self,
        part: usize,
        rows: Range<usize>,
        blocks: &mut Blocks,
        pace: &mut Pace,
    ) -> Result<()> {
        let mut gone = rows.start;
        while gone < rows.end {
            let leave = &mut self.leave[part];
            let (place, end) = leave.go(gone, &self.fields, &*self.foreign, blocks, pace).await?;
            let until = end.min(rows.end).min(gone + self.held.at_once());
            self.held.go_on(leave.arrays.clone());
            self.held.remove(place..place + until - gone)?;
            pace.keep().await;
            gone = until;
        }
        Ok(())
    }

    async fn add(
        &mut self,
        part: usize,
        rows: Range<usize>,
        blocks: &mut Blocks,
        pace: &mut Pace,
    ) -> Result<()> {
        let mut next = rows.start;
        while next < rows.end {
            let enter = &mut self.enter[part];
            let (place, block_end) =
                enter.go(next, &self.fields, &*self.foreign, blocks, pace).await?;
            let until = block_end.min(rows.end).min(next + self.held.at_once());
            self.held.go_on(enter.arrays.clone());
            self.held.add(place..place + until - next)?;
            pace.keep().await;
            next = until;
            if next == block_end {
                let bytes = self.held.bytes() as u64;
                let more = bytes.saturating_sub(self.memory.bytes());
                if more > 0 {
                    let memory = blocks.reserved(more).await;
                    self.memory.merge(memory.map_err(|error| or_too_large(error, blocks))?);
                }
            }
        }
        Ok(())
    }

    /// The first row that will be looked at again.
    pub(super) fn needs_from(&self) -> usize {
        let from = match self.frames.excludes() {
            // Rows may be aggregated anew; those that are kept may go out.
            true => self.holds.start.min(self.kept[0].start),
            false if self.is_from_start => self.holds.end,
            false => self.holds.start,
        };
        from.min(self.frames.needs_from())
    }
}

impl Inputs {
    /// Goes to a row; returns its number in its block, and the row behind the block's last one.
    async fn go(
        &mut self,
        row: usize,
        fields: &[usize],
        foreign: &dyn Foreign,
        blocks: &mut Blocks,
        pace: &mut Pace,
    ) -> Result<(usize, usize)> {
        if self.cursor.go(row, blocks).await? {
            (self.arrays, self.memory) = (Vec::new(), None);
            let (rows, layout) = (0..self.cursor.block().rows(), blocks.shared.layout.clone());
            let entries = self.cursor.block().chunk.entries();
            for (field, data_type) in fields.iter().zip(foreign.input_types()) {
                // SAFETY: the tuples are those of the sort, as the layout is.
                let array = unsafe {
                    array(entries, rows.clone(), &layout, *field, data_type, pace).await?
                };
                self.arrays.push(array);
            }
            let bytes: usize = self.arrays.iter().map(|array| array.get_buffer_memory_size()).sum();
            self.memory = Some(blocks.reserved(bytes as u64).await?);
        }
        Ok((self.cursor.place(row), self.cursor.block().end()))
    }
}

/// What is wrong if there is no memory for a frame.
fn or_too_large(error: ExecError, blocks: &Blocks) -> ExecError {
    if matches!(error, ExecError::Memory { .. }) { too_large(blocks) } else { error }
}

fn too_large(blocks: &Blocks) -> ExecError {
    let limit_bytes = blocks.input.ledger.limit();
    ExecError::TooLarge { what: "the frame of a window function".into(), limit_bytes }
}
