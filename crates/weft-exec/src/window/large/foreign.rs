//! Aggregates that are not ours, of frames of any size: the rows come in and go out block by block.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::ArrayRef;
use weft_rt::memory::Reservation;

use super::super::aggregates::{Held, is_ahead};
use super::super::column::{Column, array};
use super::super::foreign::ForeignHeld;
use super::super::functions::{Foreign, Function};
use super::account;
use super::blocks::{Blocks, Loaded};
use super::cursor::Cursor;
use super::frames::{Framed, Frames};
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
    /// The rows of the frame before.
    holds: Range<usize>,
    /// Where rows come in, and where they go out.
    enter: Inputs,
    leave: Inputs,
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
        let held = ForeignHeld::new(foreign.accumulator(empty)?);
        if !is_from_start && frames.is_to_end() && !held.removes() {
            return Err(too_large(blocks));
        }
        let inputs = || Inputs { cursor: Cursor::new(None), arrays: Vec::new(), memory: None };
        Ok(Accumulated {
            held,
            fields: function.arguments.clone(),
            foreign: foreign.clone(),
            frames,
            is_from_start,
            holds: 0..0,
            enter: inputs(),
            leave: inputs(),
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
        if self.is_from_start && self.frames.is_to_end() {
            self.add(self.holds.end, blocks.rows(), blocks, pace).await?;
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
        for Framed { rows, frame } in framed {
            if frame != self.holds {
                self.hold(frame, blocks, pace).await?;
            }
            self.held.write(out, rows)?;
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
        let mut gone = self.holds.start;
        while goes_on && gone < frame.start {
            let (place, end) =
                self.leave.go(gone, &self.fields, &*self.foreign, blocks, pace).await?;
            let until = end.min(frame.start);
            self.held.go_on(self.leave.arrays.clone());
            self.held.remove(place..place + until - gone)?;
            gone = until;
        }
        self.add(first, frame.end, blocks, pace).await?;
        self.holds = frame;
        Ok(())
    }

    async fn add(
        &mut self,
        first: usize,
        end: usize,
        blocks: &mut Blocks,
        pace: &mut Pace,
    ) -> Result<()> {
        let mut next = first;
        while next < end {
            let (place, block_end) =
                self.enter.go(next, &self.fields, &*self.foreign, blocks, pace).await?;
            let until = block_end.min(end);
            self.held.go_on(self.enter.arrays.clone());
            self.held.add(place..place + until - next)?;
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
        let from = if self.is_from_start { self.holds.end } else { self.holds.start };
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
