//! The end of a sort that has runs: what is in memory stays there or becomes runs, too; if there are more runs than memory
//! for a page of each, some are merged to longer ones; and a merge of what there is then gives the rows.

use std::sync::{Arc, Mutex, PoisonError};

use weft_rt::memory::Reservation;
use weft_rt::sync::channel::{Receiver, Sender, bounded};

use super::entries::{Entry, all_entries, bytes_to_sort, sort};
use super::gathering::Part;
use super::merge::{BATCH_PAGES_MAX, Merge, memory_bytes};
use super::order::Order;
use super::rows::{Kept, Rows};
use super::run::{Run, RunWriter};
use crate::error::Result;
use crate::pace::Pace;
use crate::parallel::unless_cancelled;
use crate::query::Context;
use crate::spill::writer::Spills;
use crate::spill::{Settled, Share};
use crate::tasks::QueryTask;
use crate::tuple::budget::patiently;
use crate::tuple::{Materialized, Page};

/// Of its share, the part that may stay in memory: the merge needs some, and so does whoever wants its rows.
const KEPT_PART: u64 = 4;

/// Of the rest, the part that a merge takes at most.
const MERGE_PART: u64 = 2;

/// Of the runs that are merged, the part that a batch goes through as many pages of, at least.
const RUNS_PER_BATCH_PAGE: u64 = 8;

/// What the steps have in common.
pub(super) struct External<'a> {
    pub(super) operator: &'static str,
    pub(super) order: &'a Arc<Order>,
    /// So many rows are wanted.
    pub(super) most: usize,
    pub(super) spills: Spills,
    pub(super) context: &'a Context,
}

impl External<'_> {
    /// The merge that gives the rows, and what it has in memory.
    ///
    /// # Errors
    /// What went wrong with spilling; [`ExecError::Memory`](crate::ExecError::Memory)
    ///
    /// # Safety
    /// The tuples have the layout of the order, and their bits where hashes are.
    pub(super) async unsafe fn merge(&self, parts: Vec<Part>) -> Result<(Merge, Settled)> {
        let share = self.spills.share();
        // SAFETY: as the caller promises.
        let (runs, kept) = unsafe { self.runs(parts, &share).await? };
        let kept_bytes = kept.as_ref().map_or(0, Kept::bytes);
        let most_bytes = share.bytes().saturating_sub(kept_bytes) / MERGE_PART;
        let mut runs = runs;
        while fan_in(&runs, most_bytes) < runs.len() {
            runs = self.merge_some(runs, most_bytes).await?;
        }
        let memory = self.memory(&runs, most_bytes).await?;
        let settled = Settled::new(&self.spills.spilling, kept_bytes + memory.1.bytes());
        let (operator, order) = (self.operator, self.order.clone());
        let spills = self.spills.clone();
        Ok((Merge::new(operator, order, spills, runs, kept, self.most, memory), settled))
    }

    /// What is on disk, and what stays in memory.
    ///
    /// # Safety
    /// As [`External::merge`].
    async unsafe fn runs(
        &self,
        parts: Vec<Part>,
        share: &Share,
    ) -> Result<(Vec<Run>, Option<Kept>)> {
        match self.memory_to_keep(&parts, share) {
            Some(memory) => {
                let (mut runs, mut stored) = (Vec::new(), Vec::new());
                for part in parts {
                    runs.extend(part.runs.into_iter().flat_map(RunWriter::finish));
                    stored.push(part.stored);
                }
                // SAFETY: as the caller promises.
                Ok((runs, Some(unsafe { self.keep(stored, memory).await? })))
            }
            // SAFETY: as the caller promises.
            None => Ok((unsafe { self.spill(parts).await? }, None)),
        }
    }

    /// Memory to sort what did not go to disk with, if it can stay where it is.
    fn memory_to_keep(&self, parts: &[Part], share: &Share) -> Option<Reservation> {
        let tuples: usize = parts.iter().map(|part| part.stored.tuples()).sum();
        let held_bytes: u64 = parts.iter().map(|part| part.stored.reservation.bytes()).sum();
        // Entries are copied once more when they are merged.
        let bytes = bytes_to_sort(tuples) + (tuples * size_of::<Entry>()) as u64;
        let is_allowed = tuples > 0 && held_bytes + bytes <= share.bytes() / KEPT_PART;
        if is_allowed { self.spills.ledger.try_reserve(bytes) } else { None }
    }

    /// Sorts tuples where they are.
    ///
    /// # Safety
    /// As [`External::merge`].
    async unsafe fn keep(
        &self,
        stored: Vec<Materialized>,
        mut memory: Reservation,
    ) -> Result<Kept> {
        let tuples = Arc::new(stored);
        let entries = all_entries(&tuples, self.context).await?;
        let mut to_sort = memory.split(bytes_to_sort(entries.len()));
        // SAFETY: as the caller promises.
        let entries =
            unsafe { sort(entries, self.order, &tuples, &mut to_sort, self.context).await? };
        memory.merge(to_sort);
        Ok(Kept { entries, tuples, memory })
    }

    /// Makes a run of what each part has in memory, on all workers.
    ///
    /// # Safety
    /// As [`External::merge`].
    async unsafe fn spill(&self, parts: Vec<Part>) -> Result<Vec<Run>> {
        let count = parts.len();
        let parts: Vec<_> = parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
        let (parts, runs) = (Arc::new(parts), Arc::new(Mutex::new(Vec::new())));
        let (most, made) = (self.most, runs.clone());
        let work = move |_, number: usize| {
            let (parts, made) = (parts.clone(), made.clone());
            async move {
                let Part { mut stored, runs, .. } =
                    lock(&parts[number]).take().expect("a morsel has it alone");
                let mut writer = runs.expect("a place to spill to");
                let bytes = writer.lacks_bytes().min(stored.reservation.bytes());
                writer.lend(stored.reservation.split(bytes));
                let pages: Vec<Page> = stored.pages.into_iter().map(|stored| stored.page).collect();
                // SAFETY: as the caller promises.
                unsafe { writer.sort_all(pages, most).await? };
                drop(stored.reservation);
                writer.settle().await?;
                lock(&made).extend(writer.finish());
                Ok(())
            }
        };
        self.context.run_morsels(count, work).await?;
        Ok(std::mem::take(&mut *lock(&runs)))
    }

    /// Merges as many of the shortest runs as have to be fewer, or as there is memory for.
    async fn merge_some(&self, mut runs: Vec<Run>, most_bytes: u64) -> Result<Vec<Run>> {
        runs.sort_by_key(|run| run.pages.len());
        let fan_in = fan_in(&runs, most_bytes);
        let count = fan_in.min(runs.len() - fan_in + 1).max(2);
        let rest = runs.split_off(count);
        let (operator, order) = (self.operator, self.order.clone());
        // It has memory to write before all other is taken.
        let mut writer = RunWriter::new(operator, self.spills.clone(), order.clone());
        writer.keep_spare();
        let memory = self.memory(&runs, most_bytes).await?;
        let mut left_bytes = runs.iter().map(Run::bytes).sum();
        let mut merge =
            Merge::new(operator, order, self.spills.clone(), runs, None, self.most, memory);
        let mut pace = Pace::default();
        while let Some(batch) = merge.next(self.context).await? {
            for rows in batch {
                // SAFETY: the rows keep their tuples alive, and come in the order.
                unsafe { writer.add_all(&rows.entries, &mut left_bytes, &mut pace).await? };
            }
        }
        writer.end_run();
        writer.settle().await?;
        let mut runs = writer.finish();
        runs.extend(rest);
        Ok(runs)
    }

    /// The pages of a batch, and memory to merge runs with; not much more than `most_bytes`.
    async fn memory(&self, runs: &[Run], most_bytes: u64) -> Result<(u64, Reservation)> {
        let pages = page_bytes(runs);
        let longest = runs.iter().map(|run| run.pages.len() as u64).sum::<u64>().max(1);
        let mut batch_pages = BATCH_PAGES_MAX.max(batch_pages_min(runs.len())).min(longest);
        let ledger = &self.spills.ledger;
        loop {
            let bytes = memory_bytes(&pages, batch_pages);
            if batch_pages == 1 {
                let granted = ledger.reserve_or_spill(bytes);
                return Ok((1, patiently(self.operator, ledger, bytes, granted).await?));
            }
            if bytes <= most_bytes
                && let Some(memory) = ledger.try_reserve(bytes)
            {
                return Ok((batch_pages, memory));
            }
            batch_pages /= 2;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn page_bytes(runs: &[Run]) -> Vec<u64> {
    runs.iter().map(Run::page_memory_bytes).collect()
}

fn batch_pages_min(runs: usize) -> u64 {
    (runs as u64 / RUNS_PER_BATCH_PAGE).max(1)
}

/// How many of the first runs can be merged at once with so much memory.
fn fan_in(runs: &[Run], most_bytes: u64) -> usize {
    let pages = page_bytes(runs);
    let fits =
        |count: &usize| memory_bytes(&pages[..*count], batch_pages_min(*count)) <= most_bytes;
    // Memory grows with the number.
    let (mut low, mut high) = (1, runs.len());
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(&middle) { low = middle } else { high = middle - 1 }
    }
    low
}

/// Rows of a merge, in their order, batch by batch.
#[derive(Debug)]
pub(crate) struct MergedRows {
    receiver: Receiver<Vec<Rows>>,
    batch: std::vec::IntoIter<Rows>,
    /// Until it has ended.
    task: Option<QueryTask<Result<()>>>,
}

impl MergedRows {
    /// Begins a merge, on some worker. It stops when nobody wants its rows any more.
    pub(super) fn of(merge: Merge, settled: Settled, context: &Context) -> MergedRows {
        let (sender, receiver) = bounded(1);
        let (cancel, context_of_task) = (context.cancel.clone(), context.clone());
        let task = context.spawn(move || async move {
            let running = run(merge, settled, sender, &context_of_task);
            unless_cancelled(running, &cancel).await
        });
        MergedRows { receiver, batch: Vec::new().into_iter(), task: Some(task) }
    }

    /// The next rows; `None` after the last. Those before must be gone by then.
    ///
    /// # Errors
    /// Those of the merge.
    pub(crate) async fn next(&mut self) -> Result<Option<Rows>> {
        loop {
            if let Some(rows) = self.batch.next() {
                return Ok(Some(rows));
            }
            match self.receiver.recv().await {
                Some(batch) => self.batch = batch.into_iter(),
                None => match self.task.take() {
                    Some(task) => task.await??,
                    None => return Ok(None),
                },
            }
        }
    }
}

async fn run(
    mut merge: Merge,
    settled: Settled,
    sender: Sender<Vec<Rows>>,
    context: &Context,
) -> Result<()> {
    while let Some(batch) = merge.next(context).await? {
        if sender.send(batch).await.is_err() {
            break;
        }
    }
    drop(settled);
    Ok(())
}
