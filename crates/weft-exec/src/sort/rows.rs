//! Sorted rows in memory: entries, and what their tuples lie in.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weft_rt::memory::Reservation;

use super::entries::Entry;
use super::units::Segment;
use crate::error::Result;
use crate::pipeline::Tuples;
use crate::program::Register;
use crate::registers::Registers;
use crate::spill::frozen::Frozen;
use crate::tuple::Materialized;
use crate::zeroed::Zeroed;

/// Memory for the pages that a merge reads. A page takes of it what it needs, and gives it back when nobody refers to it.
#[derive(Debug)]
pub(super) struct Pool {
    free: Mutex<Reservation>,
}

impl Pool {
    pub(super) fn new(memory: Reservation) -> Arc<Pool> {
        Arc::new(Pool { free: Mutex::new(memory) })
    }

    /// So many bytes, if they are free.
    pub(super) fn take(&self, bytes: u64) -> Option<Reservation> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        (free.bytes() >= bytes).then(|| free.split(bytes))
    }

    fn put(&self, memory: Reservation) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).merge(memory);
    }
}

/// A page of a run in memory.
#[derive(Debug)]
pub(super) struct ReadPage {
    page: Option<Frozen>,
    pool: Arc<Pool>,
    /// Its memory is not the pool's any more.
    is_adopted: AtomicBool,
}

impl ReadPage {
    /// A page whose memory goes to the pool.
    pub(super) fn new(page: Frozen, pool: Arc<Pool>) -> ReadPage {
        ReadPage { page: Some(page), pool, is_adopted: AtomicBool::new(false) }
    }

    /// Bytes that somebody else has to reserve to have the page for longer.
    fn bytes_to_adopt(&self) -> u64 {
        if self.is_adopted.load(Ordering::Relaxed) { 0 } else { self.page().memory_bytes() }
    }

    /// The pool gets what is reserved from `memory` in place of the page's.
    fn adopt(&self, memory: &mut Reservation) {
        let bytes = self.bytes_to_adopt();
        self.is_adopted.store(true, Ordering::Relaxed);
        self.pool.put(memory.split(bytes));
    }

    fn page(&self) -> &Frozen {
        self.page.as_ref().expect("there is one until it is dropped")
    }

    /// Number of tuples.
    pub(super) fn tuples(&self) -> usize {
        self.page().tuples()
    }

    /// The entry of a tuple.
    pub(super) fn entry(&self, number: usize) -> Entry {
        // SAFETY: the page has the tuple.
        unsafe { Entry::of(self.page().tuple(number)) }
    }
}

impl Drop for ReadPage {
    fn drop(&mut self) {
        let Some(page) = self.page.take() else { return };
        let memory = page.into_memory();
        if !self.is_adopted.load(Ordering::Relaxed) {
            self.pool.put(memory);
        }
    }
}

/// Sorted tuples that did not go to disk.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) entries: Zeroed<Entry>,
    pub(super) tuples: Arc<Vec<Materialized>>,
    /// Of the entries.
    pub(super) memory: Reservation,
}

impl Kept {
    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> u64 {
        let tuples = self.tuples.iter().map(|tuples| tuples.reservation.bytes()).sum::<u64>();
        self.memory.bytes() + tuples
    }
}

/// Sorted tuples, a part of a page or of what did not go to disk.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Page(Arc<ReadPage>, Range<usize>),
    Kept(Arc<Kept>, Range<usize>),
}

impl Piece {
    fn range(&self) -> &Range<usize> {
        match self {
            Piece::Page(_, range) | Piece::Kept(_, range) => range,
        }
    }

    /// The tuples of a range of these.
    pub(super) fn part(&self, part: Range<usize>) -> Piece {
        let first = self.range().start;
        let range = first + part.start..first + part.end;
        debug_assert!(range.end <= self.range().end, "a part of {:?}", self.range());
        match self {
            Piece::Page(page, _) => Piece::Page(page.clone(), range),
            Piece::Kept(kept, _) => Piece::Kept(kept.clone(), range),
        }
    }
}

impl Segment for Piece {
    fn count(&self) -> usize {
        self.range().len()
    }

    fn entry(&self, number: usize) -> Entry {
        let number = self.range().start + number;
        match self {
            Piece::Page(page, _) => page.entry(number),
            Piece::Kept(kept, _) => kept.entries[number],
        }
    }
}

/// Sorted rows, and what keeps their tuples alive.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(super) entries: Vec<Entry>,
    pub(super) pieces: Vec<Piece>,
}

impl Rows {
    /// Bytes to be reserved by who will have the rows for longer than until it asks for more.
    pub(crate) fn bytes_to_adopt(&self) -> u64 {
        self.pages().map(ReadPage::bytes_to_adopt).sum()
    }

    /// Takes the rows over, with memory for them, which the merge has instead. One at a time does that.
    pub(crate) fn adopt(&self, mut memory: Reservation) {
        self.pages().for_each(|page| page.adopt(&mut memory));
    }

    fn pages(&self) -> impl Iterator<Item = &ReadPage> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Page(page, _) => Some(&**page),
            Piece::Kept(..) => None,
        })
    }

    /// In their order.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

impl Tuples for Rows {
    fn rows(&self) -> usize {
        self.entries.len()
    }

    fn load(
        &self,
        start: usize,
        rows: usize,
        inputs: &[Register],
        registers: &mut Registers,
    ) -> Result<()> {
        load_addresses(&self.entries[start..start + rows], inputs, registers);
        Ok(())
    }
}

/// Puts the addresses of tuples into the first of the registers.
pub(crate) fn load_addresses(entries: &[Entry], inputs: &[Register], registers: &mut Registers) {
    let vector = registers.vector_mut(inputs[0]);
    vector.validity.set_all();
    for (entry, address) in entries.iter().zip(vector.values_mut::<u64>()) {
        *address = entry.tuple;
    }
}
