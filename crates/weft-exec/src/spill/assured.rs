//! Memory that each worker is assured of, whatever others have taken, to merge or join what was spilled: without, a unit would be
//! partitioned anew until each part is a tuple, on a page of its own. Before, the probe side of a join goes to disk with it.

use std::sync::Arc;

use weft_rt::memory::{HeldBack, Reservation};

use super::writer::Spills;

/// A worker's memory, as a part of its part of the budget, and at most. Less than the least is of no use: it is none then.
const PART: u64 = 16;
const BYTES_MAX: u64 = 1 << 20;
const BYTES_MIN: u64 = 128 << 10;

/// What all workers of an operator have together.
#[derive(Debug)]
pub(crate) struct Assured {
    held_back: HeldBack,
    /// Each worker's.
    bytes: u64,
}

/// What one merge may still take of it when nothing else is free: so much of what its worker has, and at last
/// of what all have.
#[derive(Debug)]
pub(crate) struct OfAssured {
    assured: Arc<Assured>,
    own_left: u64,
}

impl OfAssured {
    /// Some of what the worker has.
    pub(crate) fn try_reserve_own(&mut self, bytes: u64) -> Option<Reservation> {
        let left = self.own_left.checked_sub(bytes)?;
        let memory = self.assured.held_back.try_reserve(bytes)?;
        self.own_left = left;
        Some(memory)
    }

    /// Some of whatever is held back, for one that would fail without it, and gives it back when it has ended; nothing if nothing is held
    /// back for this operator.
    pub(crate) fn try_reserve_at_last(&mut self, bytes: u64) -> Option<Reservation> {
        (self.assured.bytes > 0).then(|| self.assured.held_back.try_reserve(bytes)).flatten()
    }
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

    /// True if so much is reserved that some of it is of what is held back, here or for others.
    pub(crate) fn is_in_use(&self) -> bool {
        self.held_back.is_in_use()
    }

    /// For a merge whose worker may take `own_bytes` of its own for it.
    pub(crate) fn of(self: &Arc<Assured>, own_bytes: u64) -> OfAssured {
        let own_left = own_bytes.min(self.bytes);
        OfAssured { assured: self.clone(), own_left }
    }

    /// The same as [`Assured::try_reserve`] as far as it goes: nothing if it does not.
    pub(crate) fn reserve_or_none(&self, bytes: u64) -> Reservation {
        self.try_reserve(bytes).unwrap_or_else(|| self.held_back.empty())
    }
}

#[cfg(test)]
mod tests {
    use weft_rt::memory::Ledger;

    use super::*;

    #[test]
    fn a_merge_takes_what_its_worker_has_and_more_only_at_last() {
        let ledger = Ledger::new(1000);
        let assured = |bytes| Arc::new(Assured { held_back: ledger.hold_back(2 * bytes), bytes });
        let (hundred, none) = (assured(100), assured(0));
        let rest = ledger.try_reserve(800).unwrap();
        assert!(ledger.try_reserve(1).is_none(), "the rest is held back");
        let mut own = hundred.of(u64::MAX);
        let taken = own.try_reserve_own(60).unwrap();
        assert!(own.try_reserve_own(60).is_none() && hundred.of(0).try_reserve_own(1).is_none());
        let at_last = own.try_reserve_at_last(140).unwrap();
        assert_eq!(ledger.used(), 1000);
        assert!(own.try_reserve_at_last(1).is_none(), "above the limit");
        drop((taken, at_last));
        assert!(none.of(u64::MAX).try_reserve_own(1).is_none());
        assert!(none.of(0).try_reserve_at_last(1).is_none(), "nothing is held back for it");
        drop(rest);
    }
}
