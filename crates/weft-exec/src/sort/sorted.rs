//! Sorted tuples, and the source that gives them in their order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};
use weft_rt::memory::{Ledger, Reservation};

use super::entries::{Entry, bytes_to_sort, entries_of, sort};
use super::order::Order;
use crate::error::Result;
use crate::pipeline::{Morsel, Source, Tuples};
use crate::program::Register;
use crate::query::Context;
use crate::registers::Registers;
use crate::tuple::Materialized;
use crate::tuple::budget::patiently;

/// Tuples that the source gives at once.
const BATCH_TUPLES: usize = 64 << 10;

/// Tuples in an order.
#[derive(Debug)]
pub struct Sorted {
    entries: Vec<Entry>,
    tuples: Arc<Vec<Materialized>>,
    memory: Reservation,
}

impl Sorted {
    /// Sorts what workers have stored, and keeps the first `most`. `operator` is what errors call its owner.
    ///
    /// # Errors
    /// If there is no memory to sort with, or the query is cancelled.
    ///
    /// # Safety
    /// The tuples have the layout of the order, and their bits where hashes are.
    pub(crate) async unsafe fn sort(
        operator: &'static str,
        parts: Vec<Materialized>,
        most: usize,
        order: Arc<Order>,
        context: &Context,
    ) -> Result<Sorted> {
        let sorting = context.clone();
        let work = move || async move {
            let count = parts.iter().map(Materialized::tuples).sum();
            let mut memory = memory_to_sort(operator, count, &sorting.ledger).await?;
            let entries = entries_of(&parts).await;
            let tuples = Arc::new(parts);
            // SAFETY: the entries are of these tuples, which are as the caller promises.
            let mut entries =
                unsafe { sort(entries, &order, &tuples, &mut memory, &sorting).await? };
            entries.truncate(most);
            Ok(Sorted { entries, tuples, memory })
        };
        context.on_a_worker(work).await
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The address of the `number`th tuple, valid as long as this is.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn tuple(&self, number: usize) -> *const u8 {
        self.entries[number].tuple as *const u8
    }

    /// The addresses of the tuples from `start` on, as many as there is room for.
    ///
    /// # Panics
    /// If there are not so many.
    pub(crate) fn addresses(&self, start: usize, out: &mut [u64]) {
        let entries = &self.entries[start..][..out.len()];
        for (entry, address) in entries.iter().zip(out) {
            *address = entry.tuple;
        }
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> u64 {
        let tuples = self.tuples.iter().map(|tuples| tuples.reservation.bytes()).sum::<u64>();
        self.memory.bytes() + tuples
    }
}

/// Memory to sort so many entries with. Waits for it, on a worker.
async fn memory_to_sort(
    operator: &'static str,
    entries: usize,
    ledger: &Ledger,
) -> Result<Reservation> {
    let bytes = bytes_to_sort(entries);
    patiently(operator, ledger, bytes, ledger.reserve_or_spill(bytes)).await
}

/// Tuples in their order: one column, of addresses. One worker gets them all.
#[derive(Debug)]
pub struct SortedTuples {
    sorted: Arc<OnceLock<Sorted>>,
    is_handed_out: AtomicBool,
}

impl SortedTuples {
    /// What is in `sorted` when the source is opened; if there is nothing, there are no tuples.
    pub fn new(sorted: Arc<OnceLock<Sorted>>) -> SortedTuples {
        SortedTuples { sorted, is_handed_out: AtomicBool::new(false) }
    }
}

impl Source for SortedTuples {
    fn open<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<()>> {
        context.progress.add_total(1);
        async { Ok(()) }.boxed()
    }

    fn morsel(&self, _: usize) -> Option<Box<dyn Morsel>> {
        if self.is_handed_out.swap(true, Ordering::Relaxed) {
            return None;
        }
        Some(Box::new(SortedMorsel { sorted: self.sorted.clone(), at: 0 }))
    }
}

struct SortedMorsel {
    sorted: Arc<OnceLock<Sorted>>,
    at: usize,
}

impl Morsel for SortedMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        let end = self.sorted.get().map_or(0, Sorted::len).min(self.at + BATCH_TUPLES);
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
        let sorted = self.sorted.get().expect("there are tuples");
        let vector = registers.vector_mut(inputs[0]);
        vector.validity.set_all();
        sorted.addresses(self.start + start, &mut vector.values_mut::<u64>()[..rows]);
        Ok(())
    }
}
