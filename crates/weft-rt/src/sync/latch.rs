//! The hybrid latch of frames and index nodes: optimistic, shared or exclusive, in one word.
//!
//! The three modes are those of Böttcher, Leis, Giceva, Neumann, "Scalable and Robust Latches for
//! Database Systems" (DaMoN 2020), who also park waiters in a lot; here what is parked is a coroutine.
//! A worker never spins for a latch, and a waiter never retries: the one who releases hands the latch
//! over to the first in line (an exclusive waiter, or all shared waiters up to the next exclusive one),
//! so a waiter that wakes up has it. While somebody waits, newcomers queue up behind: no stream of
//! readers starves a writer.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::parking_lot::{Cancelled, Parked, ParkingLot, Waiter};
use super::primitives::{AtomicU64, Ordering, fence};

/// The bit that says: held exclusively.
const EXCLUSIVE: u64 = 1;
/// The bit that says: somebody waits in the parking lot. It is set and cleared only under the lock of
/// the latch's bucket, and set whenever somebody is in its queue. Newcomers then never take the latch;
/// a free latch with this bit is about to be handed over.
const PARKED: u64 = 1 << 1;
/// One shared holder.
const SHARED_ONE: u64 = 1 << 2;
/// The count of shared holders: 20 bits.
const SHARED_MASK: u64 = ((1 << 20) - 1) * SHARED_ONE;
/// One exclusive release: the upper 42 bits. They wrap around after 4 × 10^12.
const VERSION_ONE: u64 = 1 << VERSION_SHIFT;
const VERSION_SHIFT: u32 = 22;

/// What a latch protected, at some time: changes with every exclusive release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Shared,
    Exclusive,
}

impl Mode {
    /// The word once the latch has been taken in this mode, if its holders permit it.
    fn applied_to(self, state: u64) -> Option<u64> {
        match self {
            Mode::Shared if state & EXCLUSIVE == 0 && state & SHARED_MASK != SHARED_MASK => {
                Some(state + SHARED_ONE)
            }
            Mode::Exclusive if state & (EXCLUSIVE | SHARED_MASK) == 0 => Some(state | EXCLUSIVE),
            _ => None,
        }
    }

    fn tag(self) -> usize {
        self as usize
    }

    fn of_tag(tag: usize) -> Mode {
        if tag == Mode::Shared.tag() { Mode::Shared } else { Mode::Exclusive }
    }
}

/// A latch of 8 bytes that coroutines wait for in the process-wide parking lot.
#[derive(Debug)]
pub struct HybridLatch {
    state: AtomicU64,
}

impl Default for HybridLatch {
    fn default() -> HybridLatch {
        HybridLatch::new()
    }
}

impl HybridLatch {
    /// A latch that nobody holds.
    #[cfg(not(loom))]
    pub const fn new() -> HybridLatch {
        HybridLatch { state: AtomicU64::new(0) }
    }

    /// A latch that nobody holds.
    #[cfg(loom)]
    pub fn new() -> HybridLatch {
        HybridLatch { state: AtomicU64::new(0) }
    }

    /// Begins an optimistic read; `None` while the latch is held exclusively (then wait for
    /// [`HybridLatch::shared`]: trying again would be spinning).
    ///
    /// What is then read may be torn, so it is read through atomics (relaxed suffices), and nothing
    /// is concluded from it before [`HybridLatch::validate`] has said that it was not.
    pub fn optimistic(&self) -> Option<Version> {
        let state = self.state.load(Ordering::Acquire);
        (state & EXCLUSIVE == 0).then_some(Version(state >> VERSION_SHIFT))
    }

    /// True if nobody has held the latch exclusively since `version` was read: everything read in
    /// between is consistent.
    pub fn validate(&self, version: Version) -> bool {
        // Pairs with the release fence in `ExclusiveGuard::acquired`: if any of the reads before saw
        // a write of an exclusive holder, the load below sees that holder's bit or a later version.
        fence(Ordering::Acquire);
        let state = self.state.load(Ordering::Relaxed);
        state & EXCLUSIVE == 0 && Version(state >> VERSION_SHIFT) == version
    }

    /// Waits until the latch can be shared.
    pub async fn shared(&self) -> SharedGuard<'_> {
        if let Some(guard) = self.try_shared() {
            return guard;
        }
        Acquire::new(self, Mode::Shared).await;
        SharedGuard { latch: self }
    }

    /// Waits until the latch can be held by the caller alone.
    pub async fn exclusive(&self) -> ExclusiveGuard<'_> {
        if let Some(guard) = self.try_exclusive() {
            return guard;
        }
        Acquire::new(self, Mode::Exclusive).await;
        ExclusiveGuard::acquired(self)
    }

    /// Shares the latch if it can be had at once: not held exclusively, and nobody waits for it.
    pub fn try_shared(&self) -> Option<SharedGuard<'_>> {
        self.take_unless(PARKED, Mode::Shared).then(|| SharedGuard { latch: self })
    }

    /// Takes the latch exclusively if it can be had at once: nobody holds it or waits for it.
    pub fn try_exclusive(&self) -> Option<ExclusiveGuard<'_>> {
        self.take_unless(PARKED, Mode::Exclusive).then(|| ExclusiveGuard::acquired(self))
    }

    /// Turns an optimistic read into exclusive access without waiting: `None` if there was an
    /// exclusive holder since `version`, or the latch is shared or waited for.
    pub fn try_upgrade(&self, version: Version) -> Option<ExclusiveGuard<'_>> {
        self.validate(version).then_some(())?;
        self.try_exclusive()?.if_still(version)
    }

    /// Turns an optimistic read into exclusive access, waiting for those who share the latch. `None`
    /// if there was an exclusive holder since `version`: the caller has to read again.
    pub async fn upgrade(&self, version: Version) -> Option<ExclusiveGuard<'_>> {
        self.validate(version).then_some(())?;
        self.exclusive().await.if_still(version)
    }

    /// Takes the latch in `mode` if its holders permit it and none of the bits `barred` is set.
    fn take_unless(&self, barred: u64, mode: Mode) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let Some(taken) = mode.applied_to(state).filter(|_| state & barred == 0) else {
                return false;
            };
            let exchanged = self.state.compare_exchange_weak(
                state,
                taken,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match exchanged {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
    }

    /// Under the lock of the bucket: takes the latch if it can be had at once, and otherwise sets the
    /// parked bit and returns true: the caller has to queue up.
    fn must_park(&self, mode: Mode) -> bool {
        loop {
            if self.take_unless(PARKED, mode) {
                return false;
            }
            let state = self.state.load(Ordering::Relaxed);
            if state & PARKED != 0 {
                return true;
            }
            if mode.applied_to(state).is_some() {
                continue;
            }
            let parked = state | PARKED;
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            if self.state.compare_exchange(state, parked, success, failure).is_ok() {
                return true;
            }
        }
    }

    fn release_shared(&self) {
        let state = self.state.fetch_sub(SHARED_ONE, Ordering::Release);
        debug_assert!(state & SHARED_MASK != 0 && state & EXCLUSIVE == 0);
        if state & SHARED_MASK == SHARED_ONE && state & PARKED != 0 {
            self.hand_over();
        }
    }

    /// Gives up exclusive access, adding `change` to the word beside.
    fn release_exclusive(&self, change: u64) {
        let state = self.state.fetch_add(change.wrapping_sub(EXCLUSIVE), Ordering::Release);
        debug_assert!(state & SHARED_MASK == 0 && state & EXCLUSIVE != 0);
        if state & PARKED != 0 {
            self.hand_over();
        }
    }

    /// Gives the latch to whoever is first in line and can have it.
    #[cold]
    fn hand_over(&self) {
        // While the bucket is locked nobody but us can take the latch: its parked bit is set.
        ParkingLot::global().unpark_while(
            self.key(),
            |tag| self.take_unless(0, Mode::of_tag(tag)),
            |found| {
                if !found.more {
                    self.state.fetch_and(!PARKED, Ordering::Relaxed);
                }
            },
        );
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// The waiting part of an acquisition. When it ends, the latch is held in `mode`.
struct Acquire<'a> {
    latch: &'a HybridLatch,
    mode: Mode,
    waiter: Waiter<'static>,
}

impl<'a> Acquire<'a> {
    fn new(latch: &'a HybridLatch, mode: Mode) -> Acquire<'a> {
        Acquire { latch, mode, waiter: Waiter::new(ParkingLot::global(), latch.key(), mode.tag()) }
    }
}

impl Future for Acquire<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.into_ref();
        // SAFETY: the waiter is pinned whenever the future is: nothing moves it out.
        let waiter = unsafe { this.map_unchecked(|acquire| &acquire.waiter) };
        // Invalid: it did not have to park; unparked: the latch was handed over. Either way it is ours.
        waiter
            .poll_park(context, || this.latch.must_park(this.mode))
            .map(|(Parked::Invalid | Parked::Unparked)| ())
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        match (self.waiter.cancel(), self.mode) {
            (Cancelled::NotParked, _) => {}
            // Those behind may be compatible with the holders, as this one was not.
            (Cancelled::Dequeued, _) => self.latch.hand_over(),
            (Cancelled::Unparked { .. }, Mode::Shared) => self.latch.release_shared(),
            (Cancelled::Unparked { .. }, Mode::Exclusive) => self.latch.release_exclusive(0),
        }
    }
}

/// Shared access, until it is dropped.
#[derive(Debug)]
#[must_use = "dropping the guard releases the latch"]
pub struct SharedGuard<'a> {
    latch: &'a HybridLatch,
}

impl Drop for SharedGuard<'_> {
    fn drop(&mut self) {
        self.latch.release_shared();
    }
}

/// Exclusive access, until it is dropped; the latch then has the next version.
#[derive(Debug)]
#[must_use = "dropping the guard releases the latch"]
pub struct ExclusiveGuard<'a> {
    latch: &'a HybridLatch,
}

impl<'a> ExclusiveGuard<'a> {
    fn acquired(latch: &'a HybridLatch) -> ExclusiveGuard<'a> {
        // Whoever sees a write of this holder, and then validates, sees that there is this holder.
        fence(Ordering::Release);
        ExclusiveGuard { latch }
    }

    /// The version that optimistic readers before this holder saw.
    pub fn version(&self) -> Version {
        Version(self.latch.state.load(Ordering::Relaxed) >> VERSION_SHIFT)
    }

    /// Goes on with shared access; what was written is published under the next version. Nobody can
    /// get in between.
    pub fn downgrade(self) -> SharedGuard<'a> {
        let latch = self.latch;
        std::mem::forget(self);
        let change = VERSION_ONE + SHARED_ONE - EXCLUSIVE;
        let state = latch.state.fetch_add(change, Ordering::Release);
        debug_assert!(state & SHARED_MASK == 0 && state & EXCLUSIVE != 0);
        if state & PARKED != 0 {
            latch.hand_over();
        }
        SharedGuard { latch }
    }

    /// Releases the latch under the same version: the caller has changed nothing, so optimistic
    /// readers need not read again.
    pub fn release_unchanged(self) {
        let latch = self.latch;
        std::mem::forget(self);
        latch.release_exclusive(0);
    }

    fn if_still(self, version: Version) -> Option<ExclusiveGuard<'a>> {
        if self.version() == version {
            return Some(self);
        }
        self.release_unchanged();
        None
    }
}

impl Drop for ExclusiveGuard<'_> {
    fn drop(&mut self) {
        self.latch.release_exclusive(VERSION_ONE);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
