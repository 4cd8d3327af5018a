//! Memory that each worker is assured of, whatever others have taken, to merge or join what was spilled: without, a unit would be
//! partitioned anew until each part is a tuple, on a page of its own.

use std::sync::Arc;

use weft_rt::memory::{HeldBack, Reservation};

use super::writer::Spills;

/// A worker's memory, as a part of its part of the budget, and at most. Less than the least is of no use: it is none then.
const PART: u64 = 16;
const BYTES_MAX: u64 = 1 << 20;
const BYTES_MIN: u64 = 128 << 10;

/// What all workers of an operator's second phase have together.
#[derive(Debug)]
pub(crate) struct Assured {
    held_back: HeldBack,
    /// Each worker's.
    bytes: u64,
}

impl Assured {
    /// For all who share `spills`.
    pub(crate) fn new(spills: &Spills) -> Arc<Assured> {
        let bytes = Some(spills.part_bytes(PART).min(BYTES_MAX));
        let bytes = bytes.filter(|bytes| *bytes >= BYTES_MIN).unwrap_or_default();
        let held_back = spills.ledger.hold_back(bytes * spills.workers() as u64);
        Arc::new(Assured { held_back, bytes })
    }

    /// Bytes that a worker has.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Some of a worker's, who has no more than that at once.
    pub(crate) fn try_reserve(&self, bytes: u64) -> Option<Reservation> {
        (bytes <= self.bytes).then(|| self.held_back.try_reserve(bytes)).flatten()
    }

    /// Some of what all workers have, for one that would fail without it.
    pub(crate) fn try_reserve_of_all(&self, bytes: u64) -> Option<Reservation> {
        self.held_back.try_reserve(bytes)
    }

    /// The same as [`Assured::try_reserve`] as far as it goes: nothing if it does not.
    pub(crate) fn reserve_or_none(&self, bytes: u64) -> Reservation {
        self.try_reserve(bytes).unwrap_or_else(|| self.held_back.empty())
    }
}
