//! Aggregates of frames that leave rows out, and of those of whose aggregates nothing can be taken out again: rows before those and rows behind them are held apart, in two stacks each
//! (Tangwongsan, Hirzel, Schneider, "Low-latency sliding-window aggregation in worst-case constant time", 2017), whose
//! states are merged for each row.

use std::ops::Range;

use super::aggregates::is_ahead;
use super::column::Column;
use super::folds::{Count, Extreme, Fold, Moments, Sum, Truth};
use super::frames::Frames;
use super::functions::Aggregate;
use super::morsel::Rows;
use crate::error::Result;
use crate::for_lane;
use crate::lane::for_number;
use crate::pace::Pace;
use crate::tuple::budget::Budget;

/// Rows between two looks at the clock.
const STRIDE: usize = 4 << 10;

/// Writes the aggregate of what is kept of each row's frame.
///
/// # Errors
/// [`crate::ExecError::Overflow`]; [`crate::ExecError::Memory`]
pub(super) async fn write<'a>(
    aggregate: Aggregate,
    frames: &mut Frames<'a>,
    rows: &Rows<'a>,
    argument: Option<&Column>,
    out: &mut Column,
    budget: &mut Budget,
    pace: &mut Pace,
) -> Result<()> {
    let mut way = Way { frames, rows, argument, budget, until_look: STRIDE, pace };
    let (Some(values), false) = (argument, aggregate == Aggregate::Count) else {
        return way.write(Count, out).await;
    };
    let digits = match aggregate {
        Aggregate::Average { digits } => Some(digits),
        _ => None,
    };
    match aggregate {
        Aggregate::Moment(moment) => way.write(Moments(moment), out).await,
        Aggregate::All | Aggregate::Any => {
            way.write(Truth { is_any: aggregate == Aggregate::Any }, out).await
        }
        Aggregate::Min | Aggregate::Max => {
            let is_max = aggregate == Aggregate::Max;
            for_lane!(values.lane(), T => way.write(Extreme::<T>::new(is_max), out).await)
        }
        _ => for_number!(values.lane(), T => way.write(Sum::<T>::new(digits), out).await),
    }
}

/// The way through the rows.
struct Way<'a, 'b> {
    frames: &'a mut Frames<'b>,
    rows: &'a Rows<'b>,
    argument: Option<&'a Column>,
    budget: &'a mut Budget,
    until_look: usize,
    pace: &'a mut Pace,
}

impl Way<'_, '_> {
    async fn write<F: Fold>(&mut self, fold: F, out: &mut Column) -> Result<()> {
        // The rows before and those behind are no more than all.
        self.budget.reserve((self.rows.count() * size_of::<F::State>()) as u64).await?;
        for partition in self.rows.partitions() {
            self.frames.begin(partition.clone(), self.pace).await;
            let [mut before, mut behind] = [(); 2].map(|()| Sliding::<F>::new(partition.start));
            let mut row = partition.start;
            while row < partition.end {
                let (frame, end) = self.frames.next(row);
                let [first, own, last] = self.frames.kept(row, frame);
                before.go(&fold, first, self).await;
                behind.go(&fold, last, self).await;
                let mut state = F::State::default();
                before.add_to(&fold, &mut state);
                fold.add(&mut state, self.argument, own);
                behind.add_to(&fold, &mut state);
                fold.write(&state, out, row..end)?;
                self.keep_pace(end - row).await;
                row = end;
            }
        }
        out.account(self.budget).await
    }

    /// Lets others run after some rows.
    async fn keep_pace(&mut self, rows: usize) {
        self.until_look = self.until_look.saturating_sub(rows);
        if self.until_look == 0 {
            self.pace.keep().await;
            self.until_look = STRIDE;
        }
    }
}

/// What is held of rows whose ends only go forward.
struct Sliding<F: Fold> {
    held: Range<usize>,
    /// Of each of the first rows, the last of them first, that row and those of them behind it.
    front: Vec<F::State>,
    front_end: usize,
    /// Of the other rows.
    back: F::State,
}

impl<F: Fold> Sliding<F> {
    fn new(at: usize) -> Sliding<F> {
        Sliding { held: at..at, front: Vec::new(), front_end: at, back: F::State::default() }
    }

    /// These are held instead.
    async fn go(&mut self, fold: &F, rows: Range<usize>, way: &mut Way<'_, '_>) {
        if rows == self.held {
            return;
        }
        if !is_ahead(&self.held, &rows) {
            *self = Sliding::new(rows.start);
        }
        let mut next = self.held.end;
        while next < rows.end {
            let until = rows.end.min(next + STRIDE);
            fold.add(&mut self.back, way.argument, next..until);
            way.keep_pace(until - next).await;
            next = until;
        }
        let has_lost = rows.start > self.held.start;
        self.held = rows;
        let Range { start, end } = self.held;
        if !has_lost {
            return;
        }
        if start <= self.front_end {
            self.front.truncate(self.front_end - start);
            return;
        }
        self.front.clear();
        (self.back, self.front_end) = (F::State::default(), end);
        let mut state = F::State::default();
        for row in (start..end).rev() {
            let mut more = F::State::default();
            fold.add(&mut more, way.argument, row..row + 1);
            fold.merge(&mut more, &state);
            self.front.push(more.clone());
            state = more;
            if row % STRIDE == 0 {
                way.keep_pace(STRIDE).await;
            }
        }
    }

    /// Adds what is held to the state of rows before.
    fn add_to(&self, fold: &F, state: &mut F::State) {
        if let Some(front) = self.front.last() {
            fold.merge(state, front);
        }
        fold.merge(state, &self.back);
    }
}
