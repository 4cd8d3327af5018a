//! A window over rows that do not fit into memory: they come in their order from a merge, some at a time.
//!
//! Workers take turns to cut off what is to be evaluated. Whole partitions are evaluated by whoever has taken them, all
//! workers at once. If a partition has more rows than are worth gathering, and the functions need no more than some rows
//! around each and something that is carried over from those before, it is evaluated as its rows come, by who has the
//! turn; else its rows are gathered as long as there is memory.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weft_rt::memory::{Ledger, Reservation};

use super::column::Column;
use super::functions::{Function, Kind};
use super::held::held;
use super::morsel::{Rows, column, evaluate};
use super::needs::{Needs, end};
use super::running::{Carry, Evaluating, write_aggregate, write_nth, write_ranks};
use super::sorted_rows::{Copied, Pending, SortedRows};
use super::source::{MORSEL_ROWS, OPERATOR, Shared};
use super::starts::{Starts, starts_of_few};
use crate::error::Result;
use crate::pace::Pace;
use crate::query::Context;
use crate::sort::entries::Entry;
use crate::sort::external::MergedRows;
use crate::spill::Settled;
use crate::tuple::budget::Budget;

/// Of the budget, the part that is gathered at once if that is less than the rows of a morsel.
const CHUNK_PART: u64 = 16;

/// The part that all that is gathered takes about, at most.
const CHUNKS_PART: u64 = 4;

/// Of the budget, the part that results and arguments of rows that are evaluated together take about, and what they take
/// for each row and function.
const EVALUATED_PART: u64 = 8;
const FUNCTION_BYTES: usize = 40;

/// The rows of a merge, cut into pieces that can be evaluated.
#[derive(Debug)]
pub(super) struct Stream {
    /// Who has it may use the state.
    turn: Ledger,
    has_ended: AtomicBool,
    state: Mutex<Option<State>>,
    /// What others leave to it.
    _settled: Option<Settled>,
}

/// Rows to be evaluated.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) rows: SortedRows,
    pub(super) range: Range<usize>,
    /// Of each set of fields.
    pub(super) starts: Vec<Starts>,
    /// The results of all rows that are at hand, if they are known already.
    pub(super) results: Option<Vec<Column>>,
    /// Memory for all that.
    pub(super) memory: Reservation,
}

#[derive(Debug)]
struct State {
    ledger: Ledger,
    merged: MergedRows,
    /// Rows that are worth being evaluated together.
    rows_wanted: usize,
    /// The merge has no more.
    is_last: bool,
    /// What the functions need; nothing if they need whole partitions.
    needs: Option<Needs>,
    /// First the rows that are kept for a function, then some that were evaluated before, then the others.
    pending: Pending,
    kept: usize,
    /// The first row that was not evaluated.
    first: usize,
    /// It is of the partition of which rows were evaluated last.
    is_continued: bool,
    /// For each function.
    carries: Vec<Carry>,
}

impl Stream {
    /// The rows of a merge for these functions.
    pub(super) fn new(merged: MergedRows, functions: &[Function], context: &Context) -> Stream {
        let ledger = &context.ledger;
        // What is at hand, and what each worker evaluates.
        let chunks = context.runtime.workers() as u64 + 1;
        let bytes = (ledger.limit() / CHUNK_PART * chunks).min(ledger.limit() / CHUNKS_PART);
        let settled = context.spilling.as_ref().map(|spilling| Settled::new(spilling, bytes));
        let mut needs = functions.iter().map(Needs::of);
        let needs = needs.try_fold(Needs::default(), |all, needs| Some(all.join(needs?)));
        let bytes_per_row = (functions.len().max(1) * FUNCTION_BYTES) as u64;
        let rows_most = (ledger.limit() / EVALUATED_PART / bytes_per_row) as usize;
        let state = State {
            ledger: ledger.clone(),
            merged,
            rows_wanted: MORSEL_ROWS.min(rows_most).max(1),
            is_last: false,
            needs,
            pending: Pending::default(),
            kept: 0,
            first: 0,
            is_continued: false,
            carries: functions.iter().map(|_| Carry::default()).collect(),
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
    pub(super) async fn next(&self, shared: &Shared) -> Result<Option<Piece>> {
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
    async fn next(&mut self, shared: &Shared) -> Result<Option<Piece>> {
        let mut pace = Pace::default();
        let mut times = 1;
        loop {
            self.gather(times).await?;
            let count = self.pending.count().min(self.first + times * self.rows_wanted);
            if count == self.first {
                return Ok(None);
            }
            let mut budget = Budget::new(OPERATOR, &self.ledger);
            let sets = shared.sets.len() as u64;
            let bytes = (count * size_of::<Entry>()) as u64 + Starts::bytes(count) * sets;
            budget.reserve(bytes).await?;
            let rows = SortedRows::Some(Arc::new(self.pending.chunk(count)));
            // SAFETY: the tuples are those of the sort, as the layout is.
            let starts =
                unsafe { starts_of_few(&rows, &shared.layout, &shared.sets, &mut pace).await };
            // Rows that are kept are nobody's neighbours.
            starts.iter().filter(|_| self.kept > 0).for_each(|starts| starts.begin(self.kept));
            let Some((end, is_whole)) = self.end(shared, &starts, count) else {
                times *= 2;
                continue;
            };
            let mut piece = Piece {
                rows,
                range: self.first..end,
                starts,
                results: None,
                memory: self.ledger.empty(),
            };
            if self.is_continued || !is_whole {
                let results = self.evaluate(shared, &piece, &mut budget, &mut pace).await?;
                piece.results = Some(results);
            }
            piece.memory = budget.finish();
            self.go_on(end, is_whole, shared, &piece.rows).await?;
            return Ok(Some(piece));
        }
    }

    /// Gathers rows until so many times as many as are worth it were not evaluated.
    async fn gather(&mut self, times: usize) -> Result<()> {
        let rows_wanted = times * self.rows_wanted;
        let bytes_wanted = times as u64 * self.ledger.limit() / CHUNK_PART;
        let mut bytes = 0;
        while !self.is_last {
            let rows_at_hand = self.pending.count() - self.first;
            if rows_at_hand >= rows_wanted || rows_at_hand > 0 && bytes >= bytes_wanted {
                break;
            }
            let Some(rows) = self.merged.next().await? else {
                self.is_last = true;
                break;
            };
            let mut budget = Budget::new(OPERATOR, &self.ledger);
            budget.reserve(rows.bytes_to_adopt()).await?;
            bytes += budget.bytes();
            rows.adopt(budget.finish());
            self.pending.push(rows);
        }
        Ok(())
    }

    /// The end of what can be evaluated of the first `count` rows at hand, and whether it is that of a partition; `None` if more rows are
    /// needed.
    fn end(&self, shared: &Shared, starts: &[Starts], count: usize) -> Option<(usize, bool)> {
        if self.is_last && count == self.pending.count() {
            return Some((count, true));
        }
        if let Some(start) = starts[0].last(self.first + 1, count - 1) {
            return Some((start, true));
        }
        let needs = self.needs?;
        let mut end = count.checked_sub(needs.behind).filter(|end| *end > self.first)?;
        if needs.peers {
            let needs_peers = |function: &Function| Needs::of(function).is_some_and(|of| of.peers);
            let functions = shared.functions.iter().zip(&shared.peers);
            let sets: Vec<usize> = functions
                .filter(|(function, _)| needs_peers(function))
                .map(|(_, set)| *set)
                .collect();
            // Where the keys of all of them change.
            end = (self.first + 1..count.min(end + 1))
                .rev()
                .find(|row| sets.iter().all(|set| starts[*set].begins(*row)))?;
        }
        Some((end, false))
    }

    /// Evaluates rows of a partition that are not all at hand, and what else there is.
    async fn evaluate(
        &mut self,
        shared: &Shared,
        piece: &Piece,
        budget: &mut Budget,
        pace: &mut Pace,
    ) -> Result<Vec<Column>> {
        let mut results = Vec::with_capacity(shared.functions.len());
        let functions = shared.functions.iter().zip(&shared.peers).zip(&mut self.carries);
        for ((function, peers), carry) in functions {
            let rows = Rows {
                sorted: piece.rows.entries(),
                layout: &shared.layout,
                range: 0..piece.rows.entries().len(),
                partitions: &piece.starts[0],
                peers: &piece.starts[*peers],
            };
            let (range, is_continued) = (piece.range.clone(), self.is_continued);
            let evaluating = Evaluating { rows: &rows, range, is_continued };
            // SAFETY: the tuples are those of the sort, as the layout is.
            results.push(unsafe {
                match Needs::of(function) {
                    Some(needs) if needs.running => {
                        evaluate_running(function, &evaluating, carry, budget, pace).await?
                    }
                    _ => evaluate(function, &rows, budget, pace).await?,
                }
            });
        }
        Ok(results)
    }

    /// All rows before `end` were evaluated, or will be. `rows` are those at hand.
    async fn go_on(
        &mut self,
        end: usize,
        is_whole: bool,
        shared: &Shared,
        rows: &SortedRows,
    ) -> Result<()> {
        if is_whole {
            self.carries.fill_with(Carry::default);
        }
        let mut kept: Vec<usize> = Vec::new();
        for carry in &mut self.carries {
            if let Some(row) = &mut carry.kept {
                let place = kept.iter().position(|known| known == row);
                kept.extend(place.is_none().then_some(*row));
                *row = place.unwrap_or(kept.len() - 1);
            }
        }
        let mut copies = Vec::with_capacity(kept.len());
        for row in kept {
            let entry = rows.entries()[row];
            // SAFETY: the tuples are those of the sort, as the layout is.
            copies.push(unsafe { Copied::new(entry, &shared.layout, &self.ledger).await? });
        }
        let before = self.needs.map_or(0, |needs| needs.before);
        let start = if is_whole { end } else { end.saturating_sub(before).max(self.kept) };
        self.kept = copies.len();
        self.first = copies.len() + end - start;
        self.pending.replace(copies, start);
        self.is_continued = !is_whole;
        Ok(())
    }
}

/// The results of a function that carries something over.
///
/// # Safety
/// The tuples have the layout.
async unsafe fn evaluate_running(
    function: &Function,
    evaluating: &Evaluating<'_>,
    carry: &mut Carry,
    budget: &mut Budget,
    pace: &mut Pace,
) -> Result<Column> {
    let rows = evaluating.rows;
    budget.reserve((rows.count() * function.result.width()) as u64).await?;
    let mut out = Column::new(function.result, rows.count());
    let argument = match function.arguments.first() {
        // SAFETY: as the caller promises.
        Some(field) => Some(unsafe { column(*field, rows, budget, pace).await? }),
        None => None,
    };
    match (&function.kind, &argument) {
        (Kind::Aggregate(aggregate, frame), argument) => {
            let mut held = held(*aggregate, true, argument.as_ref());
            let end = end(frame).expect("frames that begin with their partition");
            let with = (&mut *budget, pace);
            write_aggregate(held.as_mut(), end, evaluating, carry, &mut out, with).await?;
        }
        (Kind::Nth { row, frame, .. }, Some(argument)) => {
            let end = end(frame).expect("frames that begin with their partition");
            let nth = row.unsigned_abs();
            write_nth(nth, end, evaluating, carry, argument, &mut out, pace).await;
        }
        (kind, _) => write_ranks(kind, evaluating, carry, &mut out, pace).await,
    }
    if let Some(argument) = argument {
        budget.release((rows.count() * argument.lane().width()) as u64);
    }
    Ok(out)
}
