//! A window over rows that do not fit into memory: they come in their order from a merge, some at a time.
//!
//! Workers take turns to cut off what is to be evaluated. Whole partitions are evaluated by whoever has taken them, all
//! workers at once. A partition that is not worth being gathered is evaluated by who has the turn, block by block
//! ([`Large`]).

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weft_rt::memory::{Ledger, Reservation};

use super::column::Column;
use super::functions::Function;
use super::large::Large;
use super::sorted_rows::{Input, SortedRows};
use super::source::{MORSEL_ROWS, OPERATOR, Shared};
use super::starts::{Starts, starts_of_few};
use crate::error::Result;
use crate::pace::Pace;
use crate::query::Context;
use crate::sort::entries::Entry;
use crate::sort::external::MergedRows;
use crate::spill::Settled;
use crate::spill::writer::Spills;
use crate::tuple::budget::Budget;

/// Of the budget, the part that is gathered at once if that is less than the rows of a morsel.
const CHUNK_PART: u64 = 16;

/// The part that a partition may have which is gathered to be evaluated as a whole.
const WHOLE_PART: u64 = 8;

/// The part that all that is gathered takes about, at most.
const GATHERED_PART: u64 = 4;

/// Of the budget, the part that results and arguments of rows that are evaluated together take about, and what they take
/// for each row and function.
const EVALUATED_PART: u64 = 8;
pub(super) const FUNCTION_BYTES: usize = 40;

/// The rows of a merge, cut into pieces that can be evaluated.
#[derive(Debug)]
pub(super) struct Stream {
    /// Who has it may use the state.
    turn: Ledger,
    has_ended: AtomicBool,
    state: Mutex<Option<State>>,
    /// What others leave to it.
    _settled: Settled,
}

/// Rows to be evaluated.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) rows: SortedRows,
    pub(super) range: Range<usize>,
    /// Of each set of fields.
    pub(super) starts: Vec<Starts>,
    /// The results of all rows, if they are known already.
    pub(super) results: Option<Vec<Column>>,
    /// Memory for all that.
    pub(super) memory: Reservation,
}

#[derive(Debug)]
struct State {
    rows: Left,
    spills: Spills,
    /// Rows that are worth being evaluated together.
    rows_wanted: usize,
    /// A partition of more rows is evaluated block by block.
    rows_most: usize,
}

/// The rows that were not evaluated yet.
#[derive(Debug)]
enum Left {
    /// A partition begins with the first of them.
    Partitions(Input),
    /// The first of them are of this partition.
    Large(Box<Large>),
    /// They are being looked at, or that has failed.
    Nothing,
}

impl Stream {
    /// The rows of a merge for these functions.
    pub(super) fn new(merged: MergedRows, functions: &[Function], context: &Context) -> Stream {
        let ledger = &context.ledger;
        let spills = Spills::new(context).expect("the sort has spilled");
        let settled = Settled::new(&spills.spilling, ledger.limit() / GATHERED_PART);
        let bytes_per_row = (functions.len().max(1) * FUNCTION_BYTES) as u64;
        let rows_most = (ledger.limit() / EVALUATED_PART / bytes_per_row) as usize;
        let state = State {
            rows: Left::Partitions(Input::new(merged, ledger)),
            spills,
            rows_wanted: MORSEL_ROWS.min(rows_most).max(1),
            rows_most,
        };
        let (turn, has_ended) = (Ledger::new(1), AtomicBool::new(false));
        Stream { turn, has_ended, state: Mutex::new(Some(state)), _settled: settled }
    }

    /// True if there is nothing more.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// The next rows to be evaluated; `None` if there are none.
    ///
    /// # Errors
    /// Those of the merge; [`ExecError::Memory`](crate::ExecError::Memory); those of functions.
    pub(super) async fn next(&self, shared: &Arc<Shared>) -> Result<Option<Piece>> {
        let _turn = self.turn.reserve(1).await.expect("a turn is never too large");
        // Whoever fails takes it along.
        let Some(mut state) = self.state().take() else { return Ok(None) };
        let piece = state.next(shared).await;
        if let Ok(Some(_)) = &piece {
            *self.state() = Some(state);
        } else {
            self.has_ended.store(true, Ordering::Release);
        }
        piece
    }

    fn state(&self) -> std::sync::MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    async fn next(&mut self, shared: &Arc<Shared>) -> Result<Option<Piece>> {
        loop {
            match std::mem::replace(&mut self.rows, Left::Nothing) {
                Left::Partitions(mut input) => {
                    let piece = self.partitions(&mut input, shared).await?;
                    if piece.is_some() || input.rows() == 0 {
                        self.rows = Left::Partitions(input);
                        return Ok(piece);
                    }
                    let large = Large::new(input, self.spills.clone(), shared.clone())?;
                    self.rows = Left::Large(Box::new(large));
                }
                Left::Large(mut large) => {
                    if let Some(piece) = large.next().await? {
                        self.rows = Left::Large(large);
                        return Ok(Some(piece));
                    }
                    self.rows = Left::Partitions(large.end().await?);
                }
                Left::Nothing => return Ok(None),
            }
        }
    }

    /// The next whole partitions; `None` if there are no rows, or too many of the next partition.
    async fn partitions(&self, input: &mut Input, shared: &Shared) -> Result<Option<Piece>> {
        let limit = input.ledger.limit();
        let mut pace = Pace::default();
        let mut times = 1;
        loop {
            let rows_wanted = times * self.rows_wanted;
            input.gather(rows_wanted, times as u64 * limit / CHUNK_PART).await?;
            let count = input.rows().min(rows_wanted);
            if count == 0 {
                return Ok(None);
            }
            let mut budget = Budget::new(OPERATOR, &input.ledger);
            let sets = shared.sets.len() as u64;
            let bytes = (count * size_of::<Entry>()) as u64 + Starts::bytes(count) * sets;
            budget.reserve(bytes).await?;
            let rows = SortedRows::Some(Arc::new(input.chunk(count, &mut pace).await.0));
            let Shared { layout, sets, .. } = shared;
            // SAFETY: the tuples are those of the sort, as the layout is.
            let starts = unsafe { starts_of_few(rows.entries(), layout, sets, &mut pace).await };
            let end = match starts[0].last(1, count - 1) {
                _ if input.is_last() && count == input.rows() => count,
                Some(start) => start,
                None if input.bytes() >= limit / WHOLE_PART || 2 * rows_wanted > self.rows_most => {
                    return Ok(None);
                }
                None => {
                    times *= 2;
                    continue;
                }
            };
            input.forget(end);
            let memory = budget.finish();
            return Ok(Some(Piece { rows, range: 0..end, starts, results: None, memory }));
        }
    }
}
