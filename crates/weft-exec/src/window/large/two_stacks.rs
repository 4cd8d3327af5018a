//! What is held of a frame that goes forward over blocks: two stacks (Tangwongsan, Hirzel, Schneider, "Low-latency
//! sliding-window aggregation in worst-case constant time", 2017), of which the first has whole blocks where it can.
//!
//! A state is kept of each block. Of a frame, the rows at the front are in the first stack: for the block where the frame
//! begins, a state for each row of all from there on; for those behind it, a state for each block. The rows behind these
//! are one state. So frames may have any number of rows, and nothing has to be taken out of a state.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::super::column::Column;
use super::super::functions::Aggregate;
use super::folds::{Count, Extreme, ExtremeText, Fold, Sum, Truth};
use crate::error::Result;
use crate::for_lanes;
use crate::lane::{Lane, for_number};
use crate::text::Str;

/// What is held of frames. Blocks and rows have the numbers that they have in the partition.
pub(super) trait Stacks: Send {
    /// Keeps the state of one more block, which has so many rows.
    fn summarize(&mut self, argument: Option<&Column>, rows: usize);

    /// How many blocks have a state.
    fn summarized(&self) -> usize;

    /// States of blocks before this are not needed any more.
    fn forget(&mut self, block: usize);

    /// Bytes of all states.
    fn bytes(&self) -> usize;

    /// Nothing is held.
    fn clear(&mut self);

    /// More rows at the end, whose numbers are those in the argument.
    fn add(&mut self, argument: Option<&Column>, rows: Range<usize>);

    /// A block more at the end.
    fn add_block(&mut self, block: usize);

    /// All that is held is in the first stack: rows of the block before these, the blocks, and the rows that were added since
    /// nothing was held.
    fn stack_blocks(&mut self, blocks: Range<usize>);

    /// Rows of a block, the first of which has the number `first`, are on top of those behind it.
    fn stack_rows(
        &mut self,
        argument: Option<&Column>,
        rows: Range<usize>,
        first: usize,
        block: usize,
    );

    /// Writes the result of a frame that begins with a row of the first stack; with the second one if there is no row.
    fn write(&mut self, from: Option<usize>, out: &mut Column, rows: Range<usize>) -> Result<()>;

    /// Writes the result of no row.
    fn write_empty(&self, out: &mut Column, rows: Range<usize>) -> Result<()>;
}

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
        rows: Vec::new(),
        rows_text_bytes: 0,
        first: 0,
        blocks: Vec::new(),
        blocks_end: 0,
        back: F::State::default(),
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
    /// Of the rows of a block from number `first` on, that row and all behind it in the first stack.
    rows: Vec<F::State>,
    /// What these have elsewhere.
    rows_text_bytes: usize,
    first: usize,
    /// Of the rows behind all whole blocks; of them and the last block, which comes before `blocks_end`; and so on.
    blocks: Vec<F::State>,
    blocks_end: usize,
    /// What is not in the first stack.
    back: F::State,
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
        let states = self.summaries.len() + self.blocks.len() + self.rows.len();
        states * size_of::<F::State>() + self.text_bytes + self.rows_text_bytes
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.rows_text_bytes = 0;
        self.blocks.clear();
        self.back = F::State::default();
    }

    fn add(&mut self, argument: Option<&Column>, rows: Range<usize>) {
        self.fold.add(&mut self.back, argument, rows);
    }

    fn add_block(&mut self, block: usize) {
        let summary = &self.summaries[block - self.gone];
        self.fold.merge(&mut self.back, summary);
    }

    fn stack_blocks(&mut self, blocks: Range<usize>) {
        let mut state = std::mem::take(&mut self.back);
        self.blocks.clear();
        self.blocks_end = blocks.end;
        for block in blocks.rev() {
            let mut before = self.summary(block).clone();
            self.fold.merge(&mut before, &state);
            self.blocks.push(std::mem::replace(&mut state, before));
        }
        self.blocks.push(state);
    }

    fn stack_rows(
        &mut self,
        argument: Option<&Column>,
        rows: Range<usize>,
        first: usize,
        block: usize,
    ) {
        // Of blocks behind it, as many are on the stack.
        let behind = self.blocks_end.checked_sub(block + 1);
        let behind = behind.and_then(|behind| self.blocks.get(behind));
        let mut state = behind.cloned().unwrap_or_default();
        self.rows.clear();
        self.rows_text_bytes = 0;
        for row in rows.rev() {
            self.fold.add(&mut state, argument, row..row + 1);
            let (before, text) = (self.rows.last().and_then(F::text), F::text(&state));
            if let Some(text) = text
                && before.is_none_or(|before| !Arc::ptr_eq(before, text))
            {
                self.rows_text_bytes += text.len();
            }
            self.rows.push(state.clone());
        }
        self.rows.reverse();
        self.first = first;
    }

    fn write(&mut self, from: Option<usize>, out: &mut Column, rows: Range<usize>) -> Result<()> {
        let Some(from) = from else { return self.fold.write(&self.back, out, rows) };
        let mut state = self.rows[from - self.first].clone();
        self.fold.merge(&mut state, &self.back);
        self.fold.write(&state, out, rows)
    }

    fn write_empty(&self, out: &mut Column, rows: Range<usize>) -> Result<()> {
        self.fold.write(&F::State::default(), out, rows)
    }
}
