//! The budget of what the morsels of a scan have read and not decoded yet.
//!
//! It is a part of the memory limit, whatever else a statement needs. A morsel waits for its turn there, and then reserves its
//! bytes in the ledger; where the ledger has none left, one morsel at a time goes on without, so that a scan always ends.

use weft_rt::memory::{Ledger, Reservation};

use crate::error::Result;

/// Of the memory limit, the part that a scan may have in flight.
const PART: u64 = 8;

/// Bytes that a worker has in flight at most; and bytes that a scan may have in flight in any case.
const WORKER_BYTES: u64 = 64 << 20;
const BYTES_MIN: u64 = 1 << 20;

/// The budget of one scan.
#[derive(Debug)]
pub struct InFlight {
    bytes: Ledger,
    /// A single morsel goes on without memory of the ledger.
    unreserved: Ledger,
    ledger: Ledger,
}

/// What a morsel has of it until it has been read.
#[derive(Debug)]
pub struct Grant {
    _turn: Reservation,
    _memory: Reservation,
}

impl InFlight {
    /// Of a scan by so many workers within this ledger.
    pub fn new(ledger: &Ledger, workers: usize) -> InFlight {
        let most = WORKER_BYTES.saturating_mul(workers as u64).max(BYTES_MIN);
        let bytes = (ledger.limit() / PART).clamp(BYTES_MIN, most);
        InFlight { bytes: Ledger::new(bytes), unreserved: Ledger::new(1), ledger: ledger.clone() }
    }

    /// Bytes that may be in flight at once.
    pub fn limit(&self) -> u64 {
        self.bytes.limit()
    }

    /// Waits for the turn of a morsel that reads so many bytes.
    ///
    /// # Errors
    /// Those of the ledger.
    pub async fn reserve(&self, bytes: u64) -> Result<Grant> {
        let turn = self.bytes.reserve(bytes.clamp(1, self.bytes.limit() / 2)).await?;
        let memory = match self.ledger.try_reserve(bytes) {
            Some(memory) => memory,
            None => self.unreserved.reserve(1).await?,
        };
        Ok(Grant { _turn: turn, _memory: memory })
    }
}
