//! Aggregates of frames of any size: rows are added where frames end, and states are read off where they begin.

use std::ops::Range;
use std::sync::Arc;

use weft_rt::memory::Reservation;

use super::super::column::Column;
use super::super::frames::Frame;
use super::super::functions::Aggregate;
use super::blocks::{Blocks, Loaded};
use super::cursor::Cursor;
use super::frames::Frames;
use super::two_stacks::{From, SIDES, Stacks, stacks};
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
    /// What is summed up.
    summed: Cursor,
    sides: [Side; SIDES],
    /// The block that is evaluated, if frames leave out rows of it.
    own: Cursor,
    /// Where the last frame begins.
    last_start: usize,
    /// For states.
    memory: Reservation,
}

/// The way of the two stacks of a side.
#[derive(Debug)]
struct Side {
    number: usize,
    /// Where its rows begin, and where they end.
    start: Cursor,
    end: Cursor,
    /// The row behind those of the first stack, and the one behind all that were added.
    front_end: usize,
    added: usize,
    /// The row behind those of the first stack that have a state of their own: they are of one block.
    stacked_end: usize,
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
        let side = |number| {
            let (start, end) = (cursor(), cursor());
            Side { number, start, end, front_end: 0, added: 0, stacked_end: 0 }
        };
        Aggregated {
            stacks: stacks(aggregate, lane),
            is_from_start,
            has_summaries: !is_from_start || frames.is_to_end() || frames.excludes(),
            frames,
            summed: cursor(),
            sides: std::array::from_fn(side),
            own: cursor(),
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
            account(&mut self.memory, &*self.stacks, blocks).await?;
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
        if self.frames.excludes() {
            self.own.set(here.clone(), blocks).await?;
        }
        for (number, framed) in framed.into_iter().enumerate() {
            if number % STRIDE == 0 {
                pace.keep().await;
            }
            self.last_start = framed.frame.start;
            let [before, own, behind] = self.frames.kept(&framed, here);
            let mut from = [From::Nothing; SIDES];
            for ((from, side), rows) in from.iter_mut().zip(&mut self.sides).zip([before, behind]) {
                if !rows.is_empty() {
                    let (stacks, memory) = (&mut *self.stacks, &mut self.memory);
                    *from = side.hold(rows, stacks, memory, blocks, pace).await?;
                }
            }
            let (argument, own) = match own.is_empty() {
                true => (None, 0..0),
                false => (self.own.column(), own.start - here.first..own.end - here.first),
            };
            self.stacks.write(from, (argument, own), out, framed.rows)?;
        }
        self.stacks.forget(blocks.of_row(self.needs_from()));
        self.memory.shrink(self.memory.bytes().saturating_sub(self.stacks.bytes() as u64));
        Ok(())
    }

    /// The first row that will be looked at again.
    pub(super) fn needs_from(&self) -> usize {
        let from = if self.is_from_start { self.sides[0].added } else { self.last_start };
        from.min(self.frames.needs_from())
    }
}

/// Has memory for all states.
async fn account(memory: &mut Reservation, stacks: &dyn Stacks, blocks: &mut Blocks) -> Result<()> {
    let more = (stacks.bytes() as u64).saturating_sub(memory.bytes());
    if more > 0 {
        memory.merge(blocks.reserved(more).await?);
    }
    Ok(())
}

impl Side {
    /// Holds the rows of a frame, and says what the frame has of those that are held.
    async fn hold(
        &mut self,
        rows: Range<usize>,
        stacks: &mut dyn Stacks,
        memory: &mut Reservation,
        blocks: &mut Blocks,
        pace: &mut Pace,
    ) -> Result<From> {
        if rows.start > self.front_end {
            self.begin_anew(rows.start, rows.end, stacks, blocks).await?;
            account(memory, stacks, blocks).await?;
        } else {
            self.add_until(rows.end, stacks, blocks, pace).await?;
        }
        if rows.start == self.front_end {
            return Ok(From::Back);
        }
        if rows.start >= self.stacked_end {
            self.stack_rows(rows.start, stacks, blocks).await?;
            account(memory, stacks, blocks).await?;
        }
        Ok(From::Row(rows.start))
    }

    /// All rows of a frame go to the first stack.
    async fn begin_anew(
        &mut self,
        start: usize,
        end: usize,
        stacks: &mut dyn Stacks,
        blocks: &mut Blocks,
    ) -> Result<()> {
        stacks.clear(self.number);
        let (first, last) = (blocks.of_row(start), blocks.of_row(end));
        if last > first && blocks.first(last) < end {
            self.end.go(blocks.first(last), blocks).await?;
            stacks.add(self.number, self.end.column(), 0..self.end.place(end));
        }
        stacks.stack_blocks(self.number, first + 1..last);
        (self.front_end, self.added, self.stacked_end) = (end, end, 0);
        Ok(())
    }

    /// Adds all rows before `end`.
    async fn add_until(
        &mut self,
        end: usize,
        stacks: &mut dyn Stacks,
        blocks: &mut Blocks,
        pace: &mut Pace,
    ) -> Result<()> {
        while self.added < end {
            let block = blocks.of_row(self.added);
            let (first, next) = (blocks.first(block), blocks.first(block + 1));
            if self.added == first && next <= end && block < stacks.summarized() {
                stacks.add_block(self.number, block);
                self.added = next;
                continue;
            }
            if self.end.go(self.added, blocks).await? {
                pace.keep().await;
            }
            let until = end.min(next);
            let rows = self.end.place(self.added)..self.end.place(until);
            stacks.add(self.number, self.end.column(), rows);
            self.added = until;
        }
        Ok(())
    }

    /// The first stack has the rows of the block where a frame begins.
    async fn stack_rows(
        &mut self,
        start: usize,
        stacks: &mut dyn Stacks,
        blocks: &mut Blocks,
    ) -> Result<()> {
        self.start.go(start, blocks).await?;
        let (block, end) = (self.start.block().number, self.start.block().end());
        self.stacked_end = end.min(self.front_end);
        let rows = self.start.place(start)..self.start.place(self.stacked_end);
        stacks.stack_rows(self.number, self.start.column(), rows, start, block);
        Ok(())
    }
}
