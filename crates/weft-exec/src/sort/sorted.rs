//! Sorted tuples, and the source that gives them in their order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};
use weft_rt::memory::Reservation;

use super::entries::{Entry, all_entries, bytes_to_sort, sort};
use super::external::{External, MergedRows};
use super::gathering::Part;
use super::merge::Merge;
use super::order::Order;
use super::rows::{Kept, load_addresses};
use crate::error::Result;
use crate::pace::Pace;
use crate::pipeline::{Morsel, Source, Tuples};
use crate::profile::{Fact, Facts};
use crate::program::Register;
use crate::query::Context;
use crate::registers::Registers;
use crate::spill::Settled;
use crate::spill::writer::Spills;
use crate::tuple::Materialized;
use crate::tuple::budget::patiently;

/// Tuples that the source gives at once.
const BATCH_TUPLES: usize = 64 << 10;

/// Tuples in an order.
#[derive(Debug)]
pub struct Sorted {
    rows: InOrder,
    /// How many tuples there are.
    tuples: u64,
    facts: Facts,
}

#[derive(Debug)]
enum InOrder {
    /// Some may have gone to disk before, but not of these.
    InMemory { kept: Kept, _settled: Option<Settled> },
    /// They are still to be merged, once.
    Runs(Mutex<Option<(Merge, Settled)>>),
}

impl Sorted {
    /// Sorts what workers have stored, and keeps the first `most`. `operator` is what errors call its owner.
    ///
    /// # Errors
    /// If there is no memory to sort with, or the query is cancelled; what went wrong with spilling.
    ///
    /// # Safety
    /// The tuples have the layout of the order, and their bits where hashes are.
    pub(crate) async unsafe fn sort(
        operator: &'static str,
        mut parts: Vec<Part>,
        most: usize,
        order: Arc<Order>,
        context: &Context,
    ) -> Result<Sorted> {
        let sorting = context.clone();
        let work = move || async move {
            let context = &sorting;
            let spills = Spills::new(context);
            parts.iter_mut().for_each(|part| part.settled = None);
            let memory = memory_to_sort(operator, &mut parts, spills.is_some(), context).await?;
            let Some(mut memory) = memory else {
                let spills = spills.expect("a place to spill to");
                let external = External { operator, order: &order, most, spills, context };
                // SAFETY: as the caller promises.
                let merge = unsafe { external.merge(parts).await? };
                let (tuples, facts) = (merge.0.tuples(), merge.0.facts());
                return Ok(Sorted { rows: InOrder::Runs(Mutex::new(Some(merge))), tuples, facts });
            };
            let tuples = Arc::new(parts.into_iter().map(|part| part.stored).collect());
            let entries = all_entries(&tuples, context).await?;
            // SAFETY: the entries are of these tuples, which are as the caller promises.
            let mut entries =
                unsafe { sort(entries, &order, &tuples, &mut memory, context).await? };
            entries.truncate(most);
            let kept = Kept { entries, tuples, memory };
            let settled = spills.map(|spills| Settled::new(&spills.spilling, kept.bytes()));
            let tuples = kept.entries.len() as u64;
            let facts =
                vec![Fact::count("tuples in memory", tuples), Fact::bytes("memory", kept.bytes())];
            let rows = InOrder::InMemory { kept, _settled: settled };
            Ok(Sorted { rows, tuples, facts })
        };
        context.on_a_worker(work).await
    }

    /// How many tuples there are.
    pub(crate) fn tuples(&self) -> u64 {
        self.tuples
    }

    /// What is known of how they were sorted.
    pub(crate) fn facts(&self) -> Facts {
        self.facts.clone()
    }

    /// The entries, if all tuples are in memory.
    pub(crate) fn entries(&self) -> Option<&[Entry]> {
        match &self.rows {
            InOrder::InMemory { kept, .. } => Some(&kept.entries),
            InOrder::Runs(_) => None,
        }
    }

    /// Gives back what `sorted` has, bit by bit, if nobody else has it.
    pub(crate) async fn close(sorted: Arc<OnceLock<Sorted>>) {
        let sorted = Arc::into_inner(sorted).and_then(OnceLock::into_inner);
        if let Some(Sorted { rows: InOrder::InMemory { kept, .. }, .. }) = sorted
            && let Some(tuples) = Arc::into_inner(kept.tuples)
        {
            let mut pace = Pace::default();
            for Materialized { pages, reservation, .. } in tuples {
                pace.drop_all(pages).await;
                drop(reservation);
            }
        }
    }

    /// Begins to merge the tuples that are not in memory; they can be had once.
    ///
    /// # Panics
    /// If they are in memory, or somebody has them.
    pub(crate) fn merged(&self, context: &Context) -> MergedRows {
        let InOrder::Runs(merge) = &self.rows else { panic!("tuples in memory are sorted") };
        let merge = merge.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (merge, settled) = merge.expect("runs are merged once");
        MergedRows::of(merge, settled, context)
    }
}

/// Memory to sort all tuples with; `None` if some are on disk, or are to go there as there is not so much memory. Waits for
/// it if they cannot. On a worker.
async fn memory_to_sort(
    operator: &'static str,
    parts: &mut [Part],
    can_spill: bool,
    context: &Context,
) -> Result<Option<Reservation>> {
    if parts.iter().any(Part::has_spilled) {
        return Ok(None);
    }
    let ledger = &context.ledger;
    let count = parts.iter().map(|part| part.stored.tuples()).sum();
    let mut memory = ledger.empty();
    for part in parts {
        memory.merge(part.memory_of_entries());
    }
    let missing = bytes_to_sort(count).saturating_sub(memory.bytes());
    let more = match ledger.try_reserve(missing) {
        Some(more) => more,
        None if can_spill => return Ok(None),
        None => patiently(operator, ledger, missing, ledger.reserve_or_spill(missing)).await?,
    };
    memory.merge(more);
    Ok(Some(memory))
}

/// Tuples in their order: one column, of addresses. One worker gets them all.
#[derive(Debug)]
pub struct SortedTuples {
    sorted: Arc<OnceLock<Sorted>>,
    is_handed_out: AtomicBool,
    /// If they are not in memory, until a morsel has them.
    merged: Mutex<Option<MergedRows>>,
}

impl SortedTuples {
    /// What is in `sorted` when the source is opened; if there is nothing, there are no tuples.
    pub fn new(sorted: Arc<OnceLock<Sorted>>) -> SortedTuples {
        SortedTuples { sorted, is_handed_out: AtomicBool::new(false), merged: Mutex::default() }
    }

    fn merged(&self) -> MutexGuard<'_, Option<MergedRows>> {
        self.merged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for SortedTuples {
    fn tuples(&self) -> u64 {
        self.sorted.get().map_or(0, |sorted| sorted.tuples)
    }

    fn open<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<()>> {
        if let Some(sorted) = self.sorted.get()
            && sorted.entries().is_none()
        {
            *self.merged() = Some(sorted.merged(context));
        }
        async { Ok(()) }.boxed()
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Sorted::close(self.sorted).boxed()
    }

    fn morsel(&self, _: usize) -> Option<Box<dyn Morsel>> {
        if self.is_handed_out.swap(true, Ordering::Relaxed) {
            return None;
        }
        if let Some(rows) = self.merged().take() {
            return Some(Box::new(MergedMorsel { rows }));
        }
        Some(Box::new(SortedMorsel { sorted: self.sorted.clone(), at: 0 }))
    }
}

struct MergedMorsel {
    rows: MergedRows,
}

impl Morsel for MergedMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        async {
            let rows = self.rows.next().await?;
            Ok(rows.map(|rows| Box::new(rows) as Box<dyn Tuples>))
        }
        .boxed_local()
    }
}

struct SortedMorsel {
    sorted: Arc<OnceLock<Sorted>>,
    at: usize,
}

impl Morsel for SortedMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        let entries = self.sorted.get().and_then(Sorted::entries).unwrap_or_default();
        let end = entries.len().min(self.at + BATCH_TUPLES);
        let start = std::mem::replace(&mut self.at, end);
        let tuples = (start < end).then(|| {
            let sorted = self.sorted.clone();
            Box::new(SortedPart { sorted, start, end }) as Box<dyn Tuples>
        });
        async { Ok(tuples) }.boxed_local()
    }
}

struct SortedPart {
    sorted: Arc<OnceLock<Sorted>>,
    start: usize,
    end: usize,
}

impl Tuples for SortedPart {
    fn rows(&self) -> usize {
        self.end - self.start
    }

    fn load(
        &self,
        start: usize,
        rows: usize,
        inputs: &[Register],
        registers: &mut Registers,
    ) -> Result<()> {
        let entries = self.sorted.get().and_then(Sorted::entries).expect("there are tuples");
        load_addresses(&entries[self.start + start..][..rows], inputs, registers);
        Ok(())
    }
}
