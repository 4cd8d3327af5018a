//! A worker's share of the memory that an operator has, got from the ledger piece by piece.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use futures::future::{Either, select};
use weft_rt::memory::{Grant, Holder, Ledger, MemoryError, Reservation};
use weft_rt::sleep;

use super::patience::{LOOK, Patience};
use crate::error::{ExecError, Result};
use crate::pace::Pace;
use crate::profile::{Wait, waiting};
use crate::spill::Assured;

/// Bytes that caches give back at once, which takes some time.
const STEP_BYTES: u64 = 1 << 20;

/// Who holds no more than this with what it asks for gets it of what is held back, too: its worker may have come to it when all other
/// memory was taken, some of it by what the same worker holds and cannot give back while it waits. Enough for a first page.
const LITTLE_BYTES: u64 = 8 << 10;

/// Adds `bytes` to a reservation as [`Reservation::try_grow`] does, or nothing; a piece at a time, unless all of them are free: of two who
/// do so at once, neither may get all.
pub(crate) async fn grow_in_turns(memory: &mut Reservation, bytes: u64) -> bool {
    if memory.try_grow_from_free(bytes) {
        return true;
    }
    let (mut pace, before, mut left) = (Pace::default(), memory.bytes(), bytes);
    loop {
        let step = left.min(STEP_BYTES);
        if !memory.try_grow(step) {
            memory.shrink(memory.bytes() - before);
            return false;
        }
        left -= step;
        if left == 0 {
            return true;
        }
        pace.keep().await;
    }
}

/// Memory that is held, and who holds it. A worker has one at a time: while it waits with one, nothing that it holds
/// otherwise can come free.
#[derive(Debug)]
pub(crate) struct Budget {
    operator: &'static str,
    holder: Holder,
    reservation: Reservation,
    assured: Option<Own>,
}

/// What its worker is assured of.
#[derive(Debug)]
struct Own {
    assured: Arc<Assured>,
    bytes: u64,
    /// Some was taken that was not free otherwise, or beyond its share.
    is_needed: bool,
}

impl Budget {
    /// Nothing yet. `operator` is what errors call its owner.
    pub(crate) fn new(operator: &'static str, ledger: &Ledger) -> Budget {
        Budget { operator, holder: ledger.holder(), reservation: ledger.empty(), assured: None }
    }

    /// It may hold so many bytes of what its worker is assured of, however much others have.
    pub(crate) fn assure(&mut self, assured: Arc<Assured>, bytes: u64) {
        self.assured = Some(Own { assured, bytes, is_needed: false });
    }

    /// Bytes that it is assured of.
    pub(crate) fn assured_bytes(&self) -> u64 {
        self.assured.as_ref().map_or(0, |own| own.bytes)
    }

    /// True if it had to take some of them, or some beyond its share.
    pub(crate) fn needs_assured(&self) -> bool {
        self.assured.as_ref().is_some_and(|own| own.is_needed)
    }

    /// Takes `bytes` more if it holds no more than it is assured of then.
    pub(crate) fn try_reserve_assured(&mut self, bytes: u64) -> bool {
        let bytes_then = self.bytes() + bytes;
        let Some(own) = self.assured.as_mut().filter(|own| bytes_then <= own.bytes) else {
            return false;
        };
        let memory = own.assured.try_reserve(bytes);
        own.is_needed |= memory.is_some();
        memory.is_some_and(|memory| {
            self.reservation.merge(memory);
            true
        })
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
        let ledger = self.holder.ledger().clone();
        if ledger.used() <= self.bytes() {
            // Nobody else has any.
            let failed = || no_memory(self.operator, &ledger, bytes);
            let more = ledger.try_reserve_promised(bytes).ok_or_else(failed)?;
            self.reservation.merge(more);
            return Ok(());
        }
        if self.bytes() + bytes <= LITTLE_BYTES
            && let Some(more) = ledger.try_reserve_little(bytes)
        {
            self.reservation.merge(more);
            return Ok(());
        }
        let granted = self.holder.reserve_or_spill(bytes);
        let more = patiently(self.operator, &ledger, bytes, granted).await?;
        self.reservation.merge(more);
        Ok(())
    }

    /// Gives `bytes` back.
    ///
    /// # Panics
    /// If fewer are held.
    pub(crate) fn release(&mut self, bytes: u64) {
        self.reservation.shrink(bytes);
    }

    /// Takes memory that was got elsewhere.
    pub(crate) fn take(&mut self, memory: Reservation) {
        self.reservation.merge(memory);
    }

    /// Lends some of what is held, `bytes` at most. It does not come back.
    pub(crate) fn lend(&mut self, bytes: u64) -> Reservation {
        self.reservation.split(bytes.min(self.bytes()))
    }

    /// What is held, when no more will be asked for.
    pub(crate) fn finish(self) -> Reservation {
        self.reservation
    }
}

/// Waits for `bytes` on behalf of `operator`, which may have other memory that it can give back. On a worker.
///
/// # Errors
/// As [`patiently`].
pub(crate) async fn reserved(
    operator: &'static str,
    ledger: &Ledger,
    bytes: u64,
) -> Result<Reservation> {
    match ledger.try_reserve(bytes) {
        Some(memory) => Ok(memory),
        None => patiently(operator, ledger, bytes, ledger.reserve_or_spill(bytes)).await,
    }
}

/// The `bytes` that `granted` waits for on behalf of `operator`. On a worker.
///
/// It keeps its place in line as long as others give memory back; told to spill, which it cannot, it goes to the end of it.
/// What it would fail without it takes of the limit that its statement began with, if that was lowered since.
///
/// # Errors
/// [`ExecError::Memory`] if nobody will free so many, or nobody frees any, nor does anything that might come to that ([`Patience`]).
pub(crate) async fn patiently(
    operator: &'static str,
    ledger: &Ledger,
    bytes: u64,
    granted: impl Future<Output = std::result::Result<Grant, MemoryError>>,
) -> Result<Reservation> {
    let failed = |source| ExecError::Memory { operator: operator.into(), source };
    let promised = || ledger.try_reserve_promised(bytes);
    let granted = async {
        match granted.await? {
            Grant::Memory(memory) => Ok(memory),
            Grant::Spill => match promised() {
                Some(memory) => Ok(memory),
                None => ledger.reserve(bytes).await,
            },
        }
    };
    let mut granted = pin!(granted);
    let mut patience = Patience::new(ledger);
    loop {
        let mut look = pin!(sleep(LOOK));
        let selected = select(granted.as_mut(), look.as_mut());
        match waiting(Wait::Memory, selected).await {
            Either::Left((granted, _)) => {
                return granted.or_else(|error| promised().ok_or_else(|| failed(error)));
            }
            Either::Right(_) if patience.is_out(ledger) => {
                log::debug!(
                    "{operator} waits for {bytes} bytes in vain; {} of {} are reserved, and {} taken without",
                    ledger.used(),
                    ledger.limit(),
                    ledger.unreserved()
                );
                return promised().ok_or_else(|| no_memory(operator, ledger, bytes));
            }
            Either::Right(_) => {}
        }
    }
}

/// `operator` cannot have `bytes` more.
fn no_memory(operator: &'static str, ledger: &Ledger, bytes: u64) -> ExecError {
    let (requested_bytes, limit_bytes) = (ledger.used() + bytes, ledger.limit());
    let source = MemoryError::TooLarge { requested_bytes, limit_bytes };
    ExecError::Memory { operator: operator.into(), source }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn who_has_next_to_nothing_gets_some_of_what_is_held_back() {
        let ledger = Ledger::new(64 << 10);
        let _held_back = ledger.hold_back(16 << 10);
        let _rest = ledger.try_reserve(48 << 10).unwrap();
        let mut budget = Budget::new("a test", &ledger);
        assert!(!budget.try_reserve(280));
        budget.reserve(280).now_or_never().expect("no need to wait").unwrap();
        budget.reserve(LITTLE_BYTES - 280).now_or_never().expect("no need to wait").unwrap();
        assert_eq!((budget.bytes(), ledger.used()), (LITTLE_BYTES, (48 << 10) + LITTLE_BYTES));
    }
}
