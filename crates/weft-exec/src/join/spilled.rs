//! What of a finished build side is on disk: whole partitions, and which of their tuples have matched.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_rt::memory::Reservation;

use super::BUILD;
use super::expel::{Promised, partition_of};
use super::unit::OnDisk;
use crate::error::Result;
use crate::pace::Pace;
use crate::query::Context;
use crate::spill::Settled;
use crate::spill::any_page::AnyPage;
use crate::spill::mask::Snapshot;
use crate::spill::writer::{SpilledPage, Spills};
use crate::tuple::budget::patiently;
use crate::tuple::layout::NEXT_OFFSET;

/// Partitions of a build side on disk. They stay there until the last one who may look tuples up has taken them, or is gone.
#[derive(Debug)]
pub(crate) struct Spilled {
    pub(super) spills: Spills,
    /// Those that are on disk.
    mask: Snapshot,
    /// Bits of the hash that lead to a partition.
    bits: u32,
    partitions: Vec<Partition>,
    /// Bits of the hash that lead to a partition of the probe side.
    pub(super) probe_bits: u32,
    /// Memory for the probe side, until that begins.
    promised: Mutex<Option<Settled>>,
    /// Marks are looked at.
    pub(super) keeps_marks: bool,
    _marks: Reservation,
}

/// A partition on disk.
#[derive(Debug, Default)]
pub(super) struct Partition {
    /// Each with the number of its first tuple in the partition, until somebody takes them.
    pages: Mutex<Vec<NumberedPage>>,
    tuples: u64,
    /// What all pages have.
    pub(super) on_disk: OnDisk,
    /// A bit for each tuple, set if it has matched, if marks are kept.
    marks: Vec<AtomicU64>,
}

impl Partition {
    fn pages_mut(&mut self) -> &mut Vec<NumberedPage> {
        self.pages.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if there is something of it on disk, or was before it was taken.
    pub(super) fn is_on_disk(&self) -> bool {
        self.tuples > 0
    }

    /// Its pages, which stay with it for others.
    pub(super) fn pages(&self) -> Vec<NumberedPage> {
        self.lock().clone()
    }

    /// Its pages, which nobody else asks for any more: their places are free as soon as they are dropped.
    pub(super) fn take(&self) -> Vec<NumberedPage> {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<NumberedPage>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A page of a partition.
#[derive(Clone, Debug)]
pub(super) struct NumberedPage {
    pub(super) page: Arc<SpilledPage>,
    /// The number of its first tuple, if tuples do not have their numbers in their chain words.
    pub(super) first: Option<u64>,
}

impl Spilled {
    /// Of these pages, in partitions of so many bits of the hash; with room for marks if somebody looks at them.
    ///
    /// # Errors
    /// [`ExecError::Memory`](crate::ExecError::Memory)
    pub(super) async fn new(
        spills: Spills,
        (bits, pages): (u32, Vec<SpilledPage>),
        promised: Promised,
        keeps_marks: bool,
        context: &Context,
    ) -> Result<Spilled> {
        let mut partitions: Vec<Partition> = Vec::new();
        partitions.resize_with(1 << bits, Partition::default);
        let mut pace = Pace::default();
        for page in pages {
            let partition = &mut partitions[page.partition];
            let (first, tuples) = (Some(partition.tuples), page.tuples as u64);
            let page = NumberedPage { page: Arc::new(page), first };
            partition.on_disk.add(&page);
            partition.pages_mut().push(page);
            partition.tuples += tuples;
            pace.keep().await;
        }
        let words = |partition: &Partition| partition.tuples.div_ceil(u64::BITS.into());
        let mut marks = spills.ledger.empty();
        if keeps_marks {
            let bytes = partitions.iter().map(words).sum::<u64>() * size_of::<u64>() as u64;
            let ledger = spills.ledger.clone();
            let granted = move || async move {
                patiently(BUILD, &ledger, bytes, ledger.reserve_or_spill(bytes)).await
            };
            marks = context.on_a_worker(granted).await?;
            for partition in &mut partitions {
                partition.marks.resize_with(words(partition) as usize, AtomicU64::default);
            }
        }
        let mask = spills.mask.snapshot();
        let probe_bits = promised.probe_bits;
        let promised = Mutex::new(Some(Settled::new(&spills.spilling, promised.bytes)));
        Ok(Spilled {
            spills,
            mask,
            bits,
            partitions,
            probe_bits,
            promised,
            keeps_marks,
            _marks: marks,
        })
    }

    /// The probe side begins: what was promised is there for whoever shares the memory.
    pub(super) fn keep_promise(&self) {
        drop(self.promised.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// True if tuples of that hash are on disk.
    #[inline(always)]
    pub(super) fn has(&self, hash: u64) -> bool {
        self.mask.has(self.partition_of(hash))
    }

    /// The partition of a hash.
    #[inline(always)]
    pub(super) fn partition_of(&self, hash: u64) -> usize {
        partition_of(hash, self.bits)
    }

    /// Number of tuples.
    pub(super) fn tuples(&self) -> usize {
        self.partitions.iter().map(|partition| partition.tuples as usize).sum()
    }

    /// The partitions, by their numbers.
    pub(super) fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// Notes that a tuple of a partition has matched.
    pub(super) fn mark(&self, partition: usize, number: u64) {
        let word = &self.partitions[partition].marks[(number / 64) as usize];
        word.fetch_or(1 << (number % 64), Ordering::Relaxed);
    }

    /// True if a tuple of a partition has matched.
    pub(super) fn is_marked(&self, partition: usize, number: u64) -> bool {
        let word = &self.partitions[partition].marks[(number / 64) as usize];
        word.load(Ordering::Relaxed) >> (number % 64) & 1 == 1
    }
}

/// Writes the numbers of a page's tuples, from `first` on, into their chain words.
///
/// # Safety
/// Nobody else uses the tuples, which are in no chain.
pub(super) unsafe fn number_tuples(page: &AnyPage, first: u64) {
    for number in 0..page.tuples() {
        // SAFETY: within the header, aligned as tuples are.
        unsafe {
            page.tuple(number).add(NEXT_OFFSET).cast::<u64>().write(first + number as u64);
        }
    }
}

/// The number that a tuple has in its chain word.
///
/// # Safety
/// It has one.
pub(super) unsafe fn number_of(tuple: *const u8) -> u64 {
    // SAFETY: within the header, aligned as tuples are.
    unsafe { tuple.add(NEXT_OFFSET).cast::<u64>().read() }
}
