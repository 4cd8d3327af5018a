//! Memory of versions, accounted with the runtime's budget.
//!
//! Each context of transactions takes credit in large steps and pays its versions from that, so that the
//! budget is not asked for each version. What is freed is credit again.

use std::sync::Mutex;

use weft_rt::memory::{Ledger, Reservation};

use crate::error::{Result, TxnError};
use crate::primitives::lock;

/// Credit that a context takes at a time.
const CREDIT_BYTES: u64 = 64 << 10;
/// Of more credit than this a context gives half back.
const CREDIT_BYTES_MAX: u64 = 256 << 10;
/// What is reserved at a time, if so much is free.
const STEP_BYTES: u64 = 1 << 20;
/// More than this is not kept for contexts to come.
const KEPT_BYTES: u64 = 4 << 20;

/// What versions have of the budget.
pub(crate) struct VersionMemory {
    ledger: Ledger,
    state: Mutex<State>,
}

struct State {
    reserved: Reservation,
    /// Bytes of it that are in no context's hands.
    free: u64,
}

impl VersionMemory {
    pub(crate) fn new(ledger: Ledger) -> VersionMemory {
        let state = Mutex::new(State { reserved: ledger.empty(), free: 0 });
        VersionMemory { ledger, state }
    }

    /// Memory for other things than versions.
    pub(crate) fn reserve_apart(&self, bytes: u64) -> Result<Reservation> {
        self.ledger.try_reserve(bytes).ok_or(TxnError::Memory { bytes })
    }

    /// Adds `bytes` at least to a credit; false if they are not free.
    pub(crate) fn lend(&self, credit: &mut u64, bytes: u64) -> bool {
        let mut state = lock(&self.state);
        let wanted = bytes.max(CREDIT_BYTES);
        for lent in [wanted, bytes] {
            if state.free < lent {
                let missing = lent - state.free;
                let step = missing.max(STEP_BYTES);
                let grown = [step, missing].into_iter().find(|&step| state.reserved.try_grow(step));
                state.free += grown.unwrap_or(0);
            }
            if state.free >= lent {
                state.free -= lent;
                *credit += lent;
                return true;
            }
        }
        false
    }

    /// Gives back what a credit has beyond what it needs; all of it if `keep` is 0.
    pub(crate) fn settle(&self, credit: &mut u64, keep: u64) {
        if keep > 0 && *credit <= CREDIT_BYTES_MAX {
            return;
        }
        let back = *credit - keep.min(*credit);
        *credit -= back;
        let mut state = lock(&self.state);
        state.free += back;
        if state.free > KEPT_BYTES {
            let too_much = state.free - KEPT_BYTES / 2;
            state.free -= too_much;
            state.reserved.shrink(too_much);
        }
    }

    /// Credit that a context keeps.
    pub(crate) const KEEP_BYTES: u64 = CREDIT_BYTES_MAX / 2;

    /// Bytes that versions have, and contexts for versions to come.
    pub(crate) fn used(&self) -> u64 {
        let state = lock(&self.state);
        state.reserved.bytes() - state.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_lent_and_comes_back() {
        let ledger = Ledger::new(3 << 20);
        let memory = VersionMemory::new(ledger.clone());
        let mut credit = 0;
        assert!(memory.lend(&mut credit, 100));
        assert_eq!((credit, ledger.used()), (CREDIT_BYTES, STEP_BYTES));
        assert!(memory.lend(&mut credit, 5 << 19));
        assert!(!memory.lend(&mut credit, 1 << 20), "the limit");
        assert_eq!(memory.used(), credit);
        memory.settle(&mut credit, VersionMemory::KEEP_BYTES);
        assert_eq!(credit, VersionMemory::KEEP_BYTES);
        memory.settle(&mut credit, 0);
        assert_eq!((credit, memory.used()), (0, 0));
        drop(memory);
        assert_eq!(ledger.used(), 0);
    }
}
