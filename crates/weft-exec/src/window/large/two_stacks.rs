//! What is held of a frame that goes forward over blocks: two stacks (Tangwongsan, Hirzel, Schneider, "Low-latency
//! sliding-window aggregation in worst-case constant time", 2017), of which the first has whole blocks where it can.
//!
//! A state is kept of each block. Of a frame, the rows at the front are in the first stack: for the block where the frame
//! begins, a state for each row of all from there on; for those behind it, a state for each block. The rows behind these
//! are one state. So frames may have any number of rows, and nothing has to be taken out of a state. A frame that leaves rows
//! out has two sides, the rows before those and the rows behind them, with two stacks each.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::super::column::Column;
use super::super::folds::{Count, Extreme, ExtremeText, Fold, Moments, Sum, Truth};
use super::super::functions::Aggregate;
use crate::error::Result;
use crate::for_lanes;
use crate::lane::{Lane, for_number};
use crate::text::Str;

/// The part of a side that a frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// None of it.
    Nothing,
    /// From a row of the first stack on.
    Row(usize),
    /// The second stack.
    Back,
}

/// What is held of frames, side by side. Blocks and rows have the numbers that they have in the partition.
pub(super) trait Stacks: Send {
    /// Keeps the state of one more block, which has so many rows.
    fn summarize(&mut self, argument: Option<&Column>, rows: usize);

    /// How many blocks have a state.
    fn summarized(&self) -> usize;

    /// States of blocks before this are not needed any more.
    fn forget(&mut self, block: usize);

    /// Bytes of all states.
    fn bytes(&self) -> usize;

    /// Nothing is held of a side.
    fn clear(&mut self, side: usize);

    /// More rows at the end, whose numbers are those in the argument.
    fn add(&mut self, side: usize, argument: Option<&Column>, rows: Range<usize>);

    /// A block more at the end.
    fn add_block(&mut self, side: usize, block: usize);

    /// All that is held is in the first stack: rows of the block before these, the blocks, and the rows that were added since
    /// nothing was held.
    fn stack_blocks(&mut self, side: usize, blocks: Range<usize>);

    /// Rows of a block, the first of which has the number `first`, are on top of those behind it.
    fn stack_rows(
        &mut self,
        side: usize,
        argument: Option<&Column>,
        rows: Range<usize>,
        first: usize,
        block: usize,
    );

    /// Writes the result of a frame that has these parts of the sides, and rows of an argument between them.
    fn write(
        &self,
        from: [From; SIDES],
        between: (Option<&Column>, Range<usize>),
        out: &mut Column,
        rows: Range<usize>,
    ) -> Result<()>;
}

/// Before the rows that are left out of a frame, and behind them. If none are, the first one has the frame.
pub(super) const SIDES: usize = 2;

impl fmt::Debug for dyn Stacks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Stacks({} blocks)", self.summarized())
    }
}

/// What holds an aggregate of an argument in this lane.
pub(super) fn stacks(aggregate: Aggregate, lane: Option<Lane>) -> Box<dyn Stacks> {
    let (Some(lane), false) = (lane, aggregate == Aggregate::Count) else {
        return boxed(Count);
    };
    let digits = match aggregate {
        Aggregate::Average { digits } => Some(digits),
        _ => None,
    };
    match aggregate {
        Aggregate::Moment(moment) => boxed(Moments(moment)),
        Aggregate::All | Aggregate::Any => boxed(Truth { is_any: aggregate == Aggregate::Any }),
        Aggregate::Min | Aggregate::Max => {
            let is_max = aggregate == Aggregate::Max;
            for_lanes!(lane, T => boxed(Extreme::<T>::new(is_max)), [
                Bool: crate::lane::Bool, I8: i8, I16: i16, I32: i32, I64: i64, U8: u8, U16: u16, U32: u32, U64: u64,
                I128: i128, F32: f32, F64: f64
            ], else boxed(ExtremeText(Extreme::<Str>::new(is_max))))
        }
        _ => for_number!(lane, T => boxed(Sum::<T>::new(digits))),
    }
}

fn boxed<F: Fold>(fold: F) -> Box<dyn Stacks> {
    Box::new(TwoStacks {
        fold,
        summaries: VecDeque::new(),
        text_bytes: 0,
        gone: 0,
        sides: [(); SIDES].map(|()| Side::default()),
    })
}

fn text_bytes<F: Fold>(state: &F::State) -> usize {
    F::text(state).map_or(0, |text| text.len())
}

struct TwoStacks<F: Fold> {
    fold: F,
    /// Of all blocks but the first.
    summaries: VecDeque<F::State>,
    /// What these have elsewhere.
    text_bytes: usize,
    gone: usize,
    sides: [Side<F::State>; SIDES],
}

/// The stacks of a side.
#[derive(Default)]
struct Side<S> {
    /// Of the rows of a block from number `first` on, that row and all behind it in the first stack.
    rows: Vec<S>,
    /// What these have elsewhere.
    rows_text_bytes: usize,
    first: usize,
    /// Of the rows behind all whole blocks; of them and the last block, which comes before `blocks_end`; and so on.
    blocks: Vec<S>,
    blocks_end: usize,
    /// What is not in the first stack.
    back: S,
}

impl<F: Fold> TwoStacks<F> {
    fn summary(&self, block: usize) -> &F::State {
        &self.summaries[block - self.gone]
    }
}

impl<F: Fold> Stacks for TwoStacks<F> {
    fn summarize(&mut self, argument: Option<&Column>, rows: usize) {
        let mut state = F::State::default();
        self.fold.add(&mut state, argument, 0..rows);
        self.text_bytes += text_bytes::<F>(&state);
        self.summaries.push_back(state);
    }

    fn summarized(&self) -> usize {
        self.gone + self.summaries.len()
    }

    fn forget(&mut self, block: usize) {
        while self.gone < block
            && let Some(state) = self.summaries.pop_front()
        {
            self.text_bytes -= text_bytes::<F>(&state);
            self.gone += 1;
        }
    }

    fn bytes(&self) -> usize {
        let of_sides = self.sides.iter().map(|side| side.blocks.len() + side.rows.len());
        let states = self.summaries.len() + of_sides.sum::<usize>();
        let texts = self.sides.iter().map(|side| side.rows_text_bytes).sum::<usize>();
        states * size_of::<F::State>() + self.text_bytes + texts
    }

    fn clear(&mut self, side: usize) {
        self.sides[side] = Side::default();
    }

    fn add(&mut self, side: usize, argument: Option<&Column>, rows: Range<usize>) {
        self.fold.add(&mut self.sides[side].back, argument, rows);
    }

    fn add_block(&mut self, side: usize, block: usize) {
        let summary = &self.summaries[block - self.gone];
        self.fold.merge(&mut self.sides[side].back, summary);
    }

    fn stack_blocks(&mut self, side: usize, blocks: Range<usize>) {
        let mut state = std::mem::take(&mut self.sides[side].back);
        let mut states = Vec::with_capacity(blocks.len() + 1);
        let end = blocks.end;
        for block in blocks.rev() {
            let mut before = self.summary(block).clone();
            self.fold.merge(&mut before, &state);
            states.push(std::mem::replace(&mut state, before));
        }
        states.push(state);
        let side = &mut self.sides[side];
        (side.blocks, side.blocks_end) = (states, end);
    }

    fn stack_rows(
        &mut self,
        side: usize,
        argument: Option<&Column>,
        rows: Range<usize>,
        first: usize,
        block: usize,
    ) {
        let side = &mut self.sides[side];
        // Of blocks behind it, as many are on the stack.
        let behind = side.blocks_end.checked_sub(block + 1);
        let behind = behind.and_then(|behind| side.blocks.get(behind));
        let mut state = behind.cloned().unwrap_or_default();
        side.rows.clear();
        side.rows_text_bytes = 0;
        for row in rows.rev() {
            self.fold.add(&mut state, argument, row..row + 1);
            let (before, text) = (side.rows.last().and_then(F::text), F::text(&state));
            if let Some(text) = text
                && before.is_none_or(|before| !Arc::ptr_eq(before, text))
            {
                side.rows_text_bytes += text.len();
            }
            side.rows.push(state.clone());
        }
        side.rows.reverse();
        side.first = first;
    }

    fn write(
        &self,
        from: [From; SIDES],
        (argument, between): (Option<&Column>, Range<usize>),
        out: &mut Column,
        rows: Range<usize>,
    ) -> Result<()> {
        let mut state = F::State::default();
        for (number, (from, side)) in from.into_iter().zip(&self.sides).enumerate() {
            if number == 1 && !between.is_empty() {
                self.fold.add(&mut state, argument, between.clone());
            }
            match from {
                From::Nothing => continue,
                // Nothing comes before it.
                From::Row(row) if number == 0 => state = side.rows[row - side.first].clone(),
                From::Row(row) => self.fold.merge(&mut state, &side.rows[row - side.first]),
                From::Back => {}
            }
            self.fold.merge(&mut state, &side.back);
        }
        self.fold.write(&state, out, rows)
    }
}
