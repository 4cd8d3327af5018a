//! What one user of a budget has reserved of it, a query say: counted by those who want to know, beside the budget's own account.

use crate::sync::primitives::{AtomicU64, Ordering};

/// Bytes reserved through a handle ([`Ledger::tallied`](super::Ledger::tallied)) and its clones.
#[derive(Debug)]
pub struct Tally {
    bytes: AtomicU64,
    peak_bytes: AtomicU64,
    /// The budget when it began to be counted.
    promised_bytes: u64,
}

impl Tally {
    pub(super) fn new(promised_bytes: u64) -> Tally {
        Tally { bytes: AtomicU64::new(0), peak_bytes: AtomicU64::new(0), promised_bytes }
    }

    pub(super) fn promised(&self) -> u64 {
        self.promised_bytes
    }

    pub(super) fn add(&self, bytes: u64) {
        let now = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak_bytes.fetch_max(now, Ordering::Relaxed);
    }

    pub(super) fn remove(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes that are reserved now.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Most bytes that were reserved at a time.
    pub fn peak(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed)
    }
}
