//! Aggregates of frames of any size: rows are added where frames end, and states are read off where they begin.

use std::sync::Arc;

use weft_rt::memory::Reservation;

use super::super::column::Column;
use super::super::frames::Frame;
use super::super::functions::Aggregate;
use super::blocks::{Blocks, Loaded};
use super::cursor::Cursor;
use super::frames::{Framed, Frames};
use super::two_stacks::{Stacks, stacks};
use crate::error::Result;
use crate::pace::Pace;

/// Frames between two looks at the clock.
const STRIDE: usize = 256;

/// An aggregate on its way through the partition.
#[derive(Debug)]
pub(super) struct Aggregated {
    stacks: Box<dyn Stacks>,
    frames: Frames,
    is_from_start: bool,
    /// States are kept of all blocks.
    has_summaries: bool,
    /// Where frames begin, where they end, and what is summed up.
    start: Cursor,
    end: Cursor,
    summed: Cursor,
    /// The row behind those of the first stack, and the one behind all that were added.
    front_end: usize,
    added: usize,
    /// The block of which the first stack has rows.
    stacked: Option<usize>,
    /// Where the last frame begins.
    last_start: usize,
    /// For states.
    memory: Reservation,
}

impl Aggregated {
    pub(super) fn new(
        aggregate: Aggregate,
        frame: &Frame,
        argument: Option<usize>,
        set: usize,
        blocks: &Blocks,
    ) -> Aggregated {
        let lane = argument.map(|field| blocks.shared.layout.field(field).lane);
        let frames = Frames::new(frame, set, blocks);
        let is_from_start = frame.is_from_start();
        let cursor = || Cursor::new(argument);
        Aggregated {
            stacks: stacks(aggregate, lane),
            is_from_start,
            has_summaries: !is_from_start || frames.is_to_end(),
            frames,
            start: cursor(),
            end: cursor(),
            summed: cursor(),
            front_end: 0,
            added: 0,
            stacked: None,
            last_start: 0,
            memory: blocks.input.ledger.empty(),
        }
    }

    /// True if all rows of the partition have to be seen first.
    pub(super) fn is_to_end(&self) -> bool {
        self.frames.is_to_end()
    }

    /// Sums up the blocks that have come.
    ///
    /// # Errors
    /// Those of [`Blocks::load`] and of the aggregate.
    pub(super) async fn note(&mut self, blocks: &mut Blocks) -> Result<()> {
        while self.has_summaries && self.stacks.summarized() < blocks.count() {
            let first = blocks.first(self.stacks.summarized());
            self.summed.go(first, blocks).await?;
            let rows = self.summed.block().rows();
            self.stacks.summarize(self.summed.column(), rows);
            self.account(blocks).await?;
        }
        Ok(())
    }

    /// Has memory for all states.
    async fn account(&mut self, blocks: &mut Blocks) -> Result<()> {
        let bytes = self.stacks.bytes() as u64;
        let more = bytes.saturating_sub(self.memory.bytes());
        if more > 0 {
            self.memory.merge(blocks.reserved(more).await?);
        }
        Ok(())
    }

    /// The results for a block.
    ///
    /// # Errors
    /// As [`Aggregated::note`].
    pub(super) async fn write(
        &mut self,
        here: &Arc<Loaded>,
        blocks: &mut Blocks,
        out: &mut Column,
        pace: &mut Pace,
    ) -> Result<()> {
        let framed = self.frames.of_block(here, blocks, pace).await?;
        self.note(blocks).await?;
        for (number, Framed { rows, frame }) in framed.into_iter().enumerate() {
            if number % STRIDE == 0 {
                pace.keep().await;
            }
            self.last_start = frame.start;
            if frame.is_empty() {
                self.stacks.write_empty(out, rows)?;
                continue;
            }
            if frame.start > self.front_end {
                self.begin_anew(frame.start, frame.end, blocks).await?;
            } else {
                self.add_until(frame.end, blocks, pace).await?;
            }
            let mut from = None;
            if frame.start < self.front_end {
                self.stack_rows(frame.start, blocks).await?;
                from = Some(frame.start);
            }
            self.stacks.write(from, out, rows)?;
        }
        self.stacks.forget(blocks.of_row(self.needs_from()));
        self.memory.shrink(self.memory.bytes().saturating_sub(self.stacks.bytes() as u64));
        Ok(())
    }

    /// All rows of a frame go to the first stack.
    async fn begin_anew(&mut self, start: usize, end: usize, blocks: &mut Blocks) -> Result<()> {
        self.stacks.clear();
        let (first, last) = (blocks.of_row(start), blocks.of_row(end));
        if last > first && blocks.first(last) < end {
            self.end.go(blocks.first(last), blocks).await?;
            self.stacks.add(self.end.column(), 0..self.end.place(end));
        }
        self.stacks.stack_blocks(first + 1..last);
        (self.front_end, self.added, self.stacked) = (end, end, None);
        self.account(blocks).await
    }

    /// Adds all rows before `end`.
    async fn add_until(&mut self, end: usize, blocks: &mut Blocks, pace: &mut Pace) -> Result<()> {
        while self.added < end {
            let block = blocks.of_row(self.added);
            let (first, next) = (blocks.first(block), blocks.first(block + 1));
            if self.added == first && next <= end && block < self.stacks.summarized() {
                self.stacks.add_block(block);
                self.added = next;
                continue;
            }
            if self.end.go(self.added, blocks).await? {
                pace.keep().await;
            }
            let until = end.min(next);
            let rows = self.end.place(self.added)..self.end.place(until);
            self.stacks.add(self.end.column(), rows);
            self.added = until;
        }
        Ok(())
    }

    /// The first stack has the rows of the block where a frame begins.
    async fn stack_rows(&mut self, start: usize, blocks: &mut Blocks) -> Result<()> {
        let is_there = self.stacked.is_some_and(|block| start < blocks.first(block + 1));
        if is_there {
            return Ok(());
        }
        self.start.go(start, blocks).await?;
        let (block, end) = (self.start.block().number, self.start.block().end());
        let rows = self.start.place(start)..self.start.place(end.min(self.front_end));
        self.stacks.stack_rows(self.start.column(), rows, start, block);
        self.stacked = Some(block);
        self.account(blocks).await
    }

    /// The first row that will be looked at again.
    pub(super) fn needs_from(&self) -> usize {
        let from = if self.is_from_start { self.added } else { self.last_start };
        from.min(self.frames.needs_from())
    }
}
