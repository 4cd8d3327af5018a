//! A worker's share of the memory that an operator has, got from the ledger piece by piece.

use weft_rt::memory::{Grant, Holder, Ledger, MemoryError, Reservation};

use crate::error::{ExecError, Result};

/// Memory that is held, and who holds it. A worker has one at a time: while it waits with one, nothing that it holds
/// otherwise can come free.
#[derive(Debug)]
pub(crate) struct Budget {
    operator: &'static str,
    holder: Holder,
    reservation: Reservation,
}

impl Budget {
    /// Nothing yet. `operator` is what errors call its owner.
    pub(crate) fn new(operator: &'static str, ledger: &Ledger) -> Budget {
        Budget { operator, holder: ledger.holder(), reservation: ledger.empty() }
    }

    /// Bytes that are held.
    pub(crate) fn bytes(&self) -> u64 {
        self.reservation.bytes()
    }

    /// Takes `bytes` more if they are free.
    pub(crate) fn try_reserve(&mut self, bytes: u64) -> bool {
        self.reservation.try_grow(bytes)
    }

    /// Waits for `bytes` more.
    ///
    /// # Errors
    /// [`ExecError::Memory`] if nobody will free so many.
    pub(crate) async fn reserve(&mut self, bytes: u64) -> Result<()> {
        if bytes == 0 || self.try_reserve(bytes) {
            return Ok(());
        }
        let failed = |source| ExecError::Memory { operator: self.operator.into(), source };
        match self.holder.reserve_or_spill(bytes).await.map_err(failed)? {
            Grant::Memory(more) => self.reservation.merge(more),
            Grant::Spill => {
                let limit_bytes = self.holder.ledger().limit();
                let requested_bytes = self.reservation.bytes() + bytes;
                return Err(failed(MemoryError::TooLarge { requested_bytes, limit_bytes }));
            }
        }
        Ok(())
    }

    /// What is held, when no more will be asked for.
    pub(crate) fn finish(self) -> Reservation {
        self.reservation
    }
}
