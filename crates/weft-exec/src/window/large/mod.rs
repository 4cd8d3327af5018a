//! A partition that is not gathered as a whole, because it is too large or nobody needs it.
//!
//! Its rows come in `blocks`, one after the other, which are evaluated in their order. For a function, other blocks are
//! looked at where frames begin and where they end (`frames`; by keys: `key_end`): a `cursor` is there, which goes forward
//! only. Blocks come from the merge as soon as somebody wants to know more of the rows behind; those that came and are
//! not evaluated yet, or are still looked at, lie on disk if they are many, and are read once more for each cursor. So a
//! partition of any size takes bounded memory, and is written to disk only as far as functions look ahead or behind.
//!
//! Of each block something is known wherever it is: what begins in it, how many rows are `known`, not null, and what
//! aggregates make of it (`folds`). With that `two_stacks` hold frames of any size; `aggregates` moves them. `foreign`
//! aggregates have to see all rows come and go. `ranks` go by numbers of rows, `values` takes the argument of a row.

mod aggregates;
mod blocks;
mod cursor;
mod foreign;
mod frames;
mod key_end;
mod known;
mod ranks;
mod two_stacks;
mod values;

use std::sync::Arc;

use weft_rt::memory::Reservation;

use aggregates::Aggregated;
use blocks::{Blocks, Loaded};
use foreign::Accumulated;
use frames::Frames;
use ranks::Ranked;
use values::{Nth, Shifted};

use super::column::Column;
use super::functions::{Function, Kind};
use super::sorted_rows::{Input, SortedRows};
use super::source::Shared;
use super::stream::{FUNCTION_BYTES, Piece};
use crate::error::{ExecError, Result};
use crate::pace::Pace;
use crate::spill::writer::Spills;

/// A partition on its way.
#[derive(Debug)]
pub(super) struct Large {
    blocks: Blocks,
    evaluations: Vec<Evaluation>,
    /// The next block.
    next: usize,
}

/// A function on its way through the partition.
#[derive(Debug)]
enum Evaluation {
    Ranked(Box<Ranked>),
    Shifted(Box<Shifted>),
    Nth(Box<Nth>),
    Aggregated(Box<Aggregated>),
    Accumulated(Box<Accumulated>),
}

impl Evaluation {
    fn new(function: &Function, set: usize, blocks: &Blocks) -> Result<Evaluation> {
        let argument = function.arguments.first().copied();
        let field = || argument.expect("a value is of a field");
        Ok(match &function.kind {
            Kind::Shift(shift) => Evaluation::Shifted(Box::new(Shifted::new(shift, field()))),
            Kind::Nth { row, ignores_nulls, frame } => {
                let frames = Frames::new(frame, set, blocks);
                let is_from_start = frame.is_from_start();
                let of = Nth::new(row, *ignores_nulls, frames, is_from_start, field());
                Evaluation::Nth(Box::new(of))
            }
            Kind::Aggregate(aggregate, frame) => {
                let of = Aggregated::new(*aggregate, frame, argument, set, blocks);
                Evaluation::Aggregated(Box::new(of))
            }
            Kind::Foreign(foreign, frame) => {
                let (frames, is_from_start) =
                    (Frames::new(frame, set, blocks), frame.is_from_start());
                let of = Accumulated::new(function, foreign, frames, is_from_start, blocks)?;
                Evaluation::Accumulated(Box::new(of))
            }
            Kind::Partitionwise(called) => {
                let what = format!("a partition of the window function {}", called.name());
                let limit_bytes = blocks.input.ledger.limit();
                return Err(ExecError::TooLarge { what, limit_bytes });
            }
            kind => Evaluation::Ranked(Box::new(Ranked::new(kind, set))),
        })
    }

    /// True if all rows of the partition have to be seen before the first is evaluated.
    fn is_to_end(&self) -> bool {
        match self {
            Evaluation::Ranked(of) => of.is_to_end(),
            Evaluation::Shifted(_) => false,
            Evaluation::Nth(of) => of.is_to_end(),
            Evaluation::Aggregated(of) => of.is_to_end(),
            Evaluation::Accumulated(of) => of.is_to_end(),
        }
    }

    /// Looks at the blocks that have come while they are in memory.
    async fn note(&mut self, blocks: &mut Blocks, pace: &mut Pace) -> Result<()> {
        match self {
            Evaluation::Ranked(_) => Ok(()),
            Evaluation::Shifted(of) => of.note(blocks).await,
            Evaluation::Nth(of) => of.note(blocks).await,
            Evaluation::Aggregated(of) => of.note(blocks).await,
            Evaluation::Accumulated(of) => of.note(blocks, pace).await,
        }
    }

    /// The results for a block; `memory` is theirs.
    async fn write(
        &mut self,
        here: &Arc<Loaded>,
        blocks: &mut Blocks,
        out: &mut Column,
        memory: &mut Reservation,
        pace: &mut Pace,
    ) -> Result<()> {
        match self {
            Evaluation::Ranked(of) => of.write(here, blocks, out, pace).await,
            Evaluation::Shifted(of) => of.write(here, blocks, out, pace).await,
            Evaluation::Nth(of) => of.write(here, blocks, out, pace).await,
            Evaluation::Aggregated(of) => of.write(here, blocks, out, pace).await,
            Evaluation::Accumulated(of) => of.write(here, blocks, out, memory, pace).await,
        }?;
        account(out, memory, blocks).await
    }

    /// The first row that will be looked at again, if it comes before those that were not evaluated.
    fn needs_from(&self) -> usize {
        match self {
            Evaluation::Ranked(_) => usize::MAX,
            Evaluation::Shifted(of) => of.needs_from(),
            Evaluation::Nth(of) => of.needs_from(),
            Evaluation::Aggregated(of) => of.needs_from(),
            Evaluation::Accumulated(of) => of.needs_from(),
        }
    }
}

/// Reserves memory for the strings that results own.
async fn account(out: &mut Column, memory: &mut Reservation, blocks: &mut Blocks) -> Result<()> {
    let bytes = out.take_unreserved();
    if bytes > 0 {
        memory.merge(blocks.reserved(bytes).await?);
    }
    Ok(())
}

impl Large {
    /// The partition that the first row at hand begins.
    ///
    /// # Errors
    /// [`ExecError::TooLarge`] if a function needs all of it in memory; what functions find wrong.
    pub(super) fn new(input: Input, spills: Spills, shared: Arc<Shared>) -> Result<Large> {
        let blocks = Blocks::new(input, spills, shared.clone());
        let functions = shared.functions.iter().zip(&shared.peers);
        let evaluations = functions.map(|(function, set)| Evaluation::new(function, *set, &blocks));
        let evaluations = evaluations.collect::<Result<_>>()?;
        Ok(Large { blocks, evaluations, next: 0 })
    }

    /// The next rows with their results; `None` if there are none.
    ///
    /// # Errors
    /// Those of the merge, of the spill area and of functions; [`ExecError::Memory`].
    pub(super) async fn next(&mut self) -> Result<Option<Piece>> {
        let mut pace = Pace::default();
        let Large { blocks, evaluations, next } = self;
        if *next == 0 && evaluations.iter().any(Evaluation::is_to_end) {
            // The block is in memory as long as they look at it.
            while let Some(_block) = blocks.extend().await? {
                for evaluation in &mut *evaluations {
                    evaluation.note(blocks, &mut pace).await?;
                }
            }
        }
        if *next == blocks.count() && blocks.extend().await?.is_none() {
            return Ok(None);
        }
        let here = blocks.load(*next).await?;
        let rows = here.rows();
        let bytes = (rows * (evaluations.len() + 1) * FUNCTION_BYTES) as u64;
        let mut memory = blocks.reserved(bytes).await?;
        let mut results = Vec::with_capacity(evaluations.len());
        for (number, evaluation) in evaluations.iter_mut().enumerate() {
            evaluation.note(blocks, &mut pace).await?;
            let mut out = Column::new(blocks.shared.functions[number].result, rows);
            evaluation.write(&here, blocks, &mut out, &mut memory, &mut pace).await?;
            results.push(out);
        }
        *next += 1;
        let needs = evaluations.iter().map(Evaluation::needs_from).min();
        blocks.forget(needs.unwrap_or(usize::MAX).min(here.end()));
        blocks.go_on(*next).await?;
        Ok(Some(Piece {
            rows: SortedRows::Some(here.chunk.clone()),
            range: 0..rows,
            starts: Vec::new(),
            results: Some(results),
            memory,
        }))
    }

    /// The rows of the partitions behind it.
    ///
    /// # Errors
    /// Those of writing.
    pub(super) async fn end(self) -> Result<Input> {
        self.blocks.end().await
    }
}
