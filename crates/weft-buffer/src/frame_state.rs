//! A frame's state, one word: generation, phase and pins.
//!
//! A pin belongs to the device request that fills the frame, to the coroutine that asked for it, to
//! every coroutine that waits for it and to every guard. Whoever lets go of the last pin evicts the
//! page and frees the frame, so that neither a page that somebody uses nor memory that the kernel
//! writes to is ever reused.
//!
//! In the dynamic pool the pool itself has one more pin of every loaded page, which it takes over from
//! the device: such a page stays when the last guard goes. It is evicted by an exchange of the whole
//! word from "loaded, the pool's pin alone, unreferenced, clean, nobody waits" to "evicting", which fails
//! if anybody pinned the frame, or fixed the page, meanwhile; only then does the swip turn cold, and only
//! then is the frame free. Who changes a page, or writes it to the device, holds the frame alone: in the
//! exclusive phase no pin is taken, and none while somebody waits for that phase (draining). Pages of a
//! table that is gone are orphans: whoever makes one idle evicts it, dirty or not.
//!
//! Who reads a page without a pin (an *optimistic* reader) remembers the generation and asks afterwards
//! whether the generation is still the same, and the page open. Therefore a change of a page begins a generation, too.
//!
//! A pin is taken only if the generation is the one under which the swip was seen to lead here:
//! a frame that was reused meanwhile is never pinned by mistake.

use std::ptr::NonNull;

use weft_rt::sync::ParkingLot;

use crate::page::PageId;
use crate::primitives::{AtomicU64, Ordering, fence};
use crate::swip::{Swip, SwipState};

/// What a frame is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nobody uses it.
    Free,
    /// A device fills it.
    Loading,
    /// It holds a verified page.
    Loaded,
    /// Filling it failed or was given up; its pins are being let go of.
    Failed,
    /// It holds a verified page that one party changes or writes to the device.
    Exclusive,
    /// Its page is about to leave.
    Evicting,
    /// It holds a verified page, and somebody waits to have it alone.
    Draining,
}

/// What somebody wants a page for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// To read it, and it is worth keeping afterwards. Lets those before who want it alone.
    Point,
    /// To read it once, perhaps with guards on other pages: lets nobody before, who may wait for one of
    /// those guards.
    Scan,
    /// To have it alone.
    Alone,
}

/// What becomes of a frame whose last pins go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unpinned {
    /// Others have pins.
    Held,
    /// One pin is left, which is the pool's if the pool is dynamic.
    Idle,
    /// As idle, of a page that nobody will want again: the caller evicts it.
    Orphaned,
    /// The frame is free, and the caller's to give away.
    Freed,
}

/// What an attempt to evict came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The frame is in phase evicting, and the caller's.
    Evicting,
    /// The page has to be written first: the frame is in phase exclusive, and the caller's.
    Dirty,
    /// As dirty, but the caller may not write it.
    Unwritten,
    /// The page was fixed not long ago.
    Referenced,
    /// Somebody uses the frame, or waits to.
    Busy,
    /// There is no page, or not the one that was meant.
    Gone,
}

const PIN: u64 = 1;
const PIN_MASK: u64 = (1 << 28) - 1;
const PHASE_SHIFT: u32 = 28;
const PHASE_MASK: u64 = 7 << PHASE_SHIFT;
/// The page was fixed since the clock hand came by.
const REFERENCED: u64 = 1 << 31;
/// The page differs from what is on the device.
const DIRTY: u64 = 1 << 32;
/// Somebody without a pin waits under this frame's key. Whoever clears it unparks them.
const WANTED: u64 = 1 << 33;
/// The page's table is gone.
const ORPHAN: u64 = 1 << 34;
const GENERATION: u64 = 1 << 35;
const GENERATION_MASK: u64 = !(GENERATION - 1);

fn phase(state: u64) -> Phase {
    match (state & PHASE_MASK) >> PHASE_SHIFT {
        0 => Phase::Free,
        1 => Phase::Loading,
        2 => Phase::Loaded,
        3 => Phase::Failed,
        4 => Phase::Exclusive,
        5 => Phase::Evicting,
        _ => Phase::Draining,
    }
}

fn phase_bits(phase: Phase) -> u64 {
    (phase as u64) << PHASE_SHIFT
}

fn with_phase(state: u64, phase: Phase) -> u64 {
    state & !PHASE_MASK | phase_bits(phase)
}

/// What an optimistic reader saw a frame hold: a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameVersion(u64);

/// The generation of a frame that holds a page that no coroutine holds exclusively.
fn open_version(state: u64) -> Option<FrameVersion> {
    let is_open = matches!(phase(state), Phase::Loaded | Phase::Draining);
    is_open.then_some(FrameVersion(state & GENERATION_MASK))
}

/// True if who wants the page has to wait.
fn is_busy(state: u64, wanted: Use) -> bool {
    let is_used = state & PIN_MASK > PIN;
    match phase(state) {
        Phase::Exclusive => true,
        Phase::Loaded => wanted == Use::Alone && is_used,
        Phase::Draining => wanted == Use::Point || (wanted == Use::Alone && is_used),
        _ => false,
    }
}

/// The state of one frame. It does not move while the frame is in use: its address is the key under
/// which those who wait for the page are parked.
#[derive(Debug)]
pub(crate) struct FrameState(AtomicU64);

impl FrameState {
    /// A free frame.
    pub(crate) fn new() -> FrameState {
        FrameState(AtomicU64::new(0))
    }

    pub(crate) fn phase(&self) -> Phase {
        phase(self.0.load(Ordering::Acquire))
    }

    /// Begins the next generation of a free frame, with two pins: one of the buffer that the device
    /// fills, one of the coroutine that asked for it. Only whoever took the frame from the free ones
    /// may do so.
    pub(crate) fn begin_loading(&self) {
        let state = self.0.load(Ordering::Relaxed);
        assert!(
            phase(state) == Phase::Free && state & PIN_MASK == 0,
            "the frame is in use: {state:#x}"
        );
        let generation = (state & GENERATION_MASK).wrapping_add(GENERATION);
        let loading = generation | phase_bits(Phase::Loading) | (2 * PIN);
        self.0.store(loading, Ordering::Release);
        // An optimistic reader who sees what the device writes sees the phase, too.
        fence(Ordering::Release);
    }

    /// Begins to read the page that `swip`, in state `leads_here`, leads to, without a pin. `None` if
    /// a coroutine holds the page exclusively, or the swip leads elsewhere by now. The page is spared when the clock
    /// hand comes by next.
    ///
    /// What is then read may be another page's, or half changed: it is read through atomics (relaxed
    /// suffices), and nothing is concluded from it before [`FrameState::validate`] has said that it was not.
    #[inline]
    pub(crate) fn optimistic(&self, swip: &Swip, leads_here: SwipState) -> Option<FrameVersion> {
        let state = self.0.load(Ordering::Acquire);
        let version = open_version(state)?;
        if swip.state() != leads_here {
            return None;
        }
        if state & REFERENCED == 0 {
            // Not of a frame that has been reused meanwhile.
            self.exchange(state, state | REFERENCED);
        }
        Some(version)
    }

    /// True if the frame has held the page, unchanged, since `version` was read.
    #[inline]
    pub(crate) fn validate(&self, version: FrameVersion) -> bool {
        // Pairs with the release fences of the thread that changes or reuses the frame: if any of the reads before
        // saw what they wrote, the load below sees their phase or a later generation.
        fence(Ordering::Acquire);
        open_version(self.0.load(Ordering::Relaxed)) == Some(version)
    }

    /// Pins the frame if it is in phase `expected` while `swip` is in state `leads_here`. False if
    /// it no longer is or the frame is about to be reused: the caller then looks at the swip again.
    /// A page pinned for a point is spared when the clock hand comes by next.
    #[inline]
    pub(crate) fn pin(
        &self,
        expected: Phase,
        swip: &Swip,
        leads_here: SwipState,
        wanted: Use,
    ) -> bool {
        let flags = if wanted == Use::Point { REFERENCED } else { 0 };
        let mut state = self.0.load(Ordering::Acquire);
        loop {
            let found = phase(state);
            let is_open = found == expected
                || (found == Phase::Draining && expected == Phase::Loaded && wanted == Use::Scan);
            if state & PIN_MASK == 0 || !is_open || swip.state() != leads_here {
                return false;
            }
            // The swip led here while the frame was in this generation, and the exchange succeeds
            // only if it still is.
            match self.0.compare_exchange_weak(
                state,
                (state + PIN) | flags,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
    }

    /// Lets go of one pin. With the last one the page is evicted, if there is one, and the frame
    /// becomes free.
    #[inline]
    pub(crate) fn unpin(&self, evict: impl FnOnce()) -> Unpinned {
        // Sequentially consistent: whoever waits for a frame has said so before it looked at this one,
        // or sees that the pin is gone.
        let before = self.0.fetch_sub(PIN, Ordering::SeqCst);
        assert!(before & PIN_MASK > 0, "the frame has no pin to let go of");
        if before & PIN_MASK > PIN {
            if before & PIN_MASK > 2 * PIN {
                return Unpinned::Held;
            }
            if before & WANTED != 0 {
                self.0.fetch_and(!WANTED, Ordering::AcqRel);
                ParkingLot::global().unpark_all(self.key());
            }
            return if before & ORPHAN != 0 { Unpinned::Orphaned } else { Unpinned::Idle };
        }
        if phase(before) == Phase::Loaded {
            evict();
        }
        self.0.store(before & GENERATION_MASK, Ordering::Release);
        Unpinned::Freed
    }

    /// The frame holds the page now: turns the swip hot and wakes those who wait. The buffer's pin
    /// becomes the pool's if the page is to `stay` after the last guard, and goes otherwise. The
    /// caller has a pin.
    pub(crate) fn loaded(&self, swip: &Swip, page: NonNull<u8>, stay: bool) {
        let change = phase_bits(Phase::Loaded) - phase_bits(Phase::Loading);
        let gone = if stay { 0 } else { PIN };
        let before = self.0.fetch_add(change - gone, Ordering::AcqRel);
        swip.set(SwipState::Hot(page));
        // Whoever waits has a pin beside the buffer's and the caller's, and nobody joins any more.
        if before & PIN_MASK > 2 * PIN {
            ParkingLot::global().unpark_all(self.key());
        }
    }

    /// Loading failed or was given up: turns the swip cold again and wakes those who wait, so that
    /// one of them tries next. The caller has a pin.
    pub(crate) fn failed(&self, swip: &Swip, id: PageId) {
        swip.set(SwipState::Cold(id));
        let change = phase_bits(Phase::Failed) - phase_bits(Phase::Loading);
        self.0.fetch_add(change, Ordering::AcqRel);
        ParkingLot::global().unpark_all(self.key());
    }

    /// Waits until the loading has ended either way. The caller has a pin.
    pub(crate) async fn wait(&self) {
        while self.phase() == Phase::Loading {
            ParkingLot::global().park(self.key(), || self.phase() == Phase::Loading).await;
        }
    }

    /// Takes an idle page of the dynamic pool for eviction; one that was fixed not long ago only by
    /// `force`, one that has to be written first only if the caller `may_write`.
    pub(crate) fn claim(&self, force: bool, may_write: bool) -> Claim {
        let state = self.0.load(Ordering::SeqCst);
        match phase(state) {
            Phase::Loaded if state & PIN_MASK == PIN && state & WANTED == 0 => {}
            Phase::Loaded | Phase::Loading | Phase::Exclusive | Phase::Draining => {
                return Claim::Busy;
            }
            Phase::Free | Phase::Failed | Phase::Evicting => return Claim::Gone,
        }
        let is_orphan = state & ORPHAN != 0;
        if state & REFERENCED != 0 && !force && !is_orphan {
            return Claim::Referenced;
        }
        let (phase, claim) = if state & DIRTY == 0 || is_orphan {
            (Phase::Evicting, Claim::Evicting)
        } else if may_write {
            (Phase::Exclusive, Claim::Dirty)
        } else {
            return Claim::Unwritten;
        };
        if self.exchange(state, with_phase(state, phase)) { claim } else { Claim::Busy }
    }

    /// Nobody will fix the page again that `swip`, in state `leads_here`, leads to. True if nobody uses
    /// it either: it is in phase evicting then, and the caller's. If somebody does, they will evict it.
    pub(crate) fn abandon(&self, swip: &Swip, leads_here: SwipState) -> bool {
        let mut state = self.0.load(Ordering::Acquire);
        loop {
            let in_use = match phase(state) {
                Phase::Loaded => state & PIN_MASK > PIN,
                Phase::Exclusive | Phase::Draining => true,
                Phase::Free | Phase::Loading | Phase::Failed | Phase::Evicting => return false,
            };
            if swip.state() != leads_here {
                return false;
            }
            let abandoned =
                if in_use { state | ORPHAN } else { with_phase(state, Phase::Evicting) };
            match self.0.compare_exchange_weak(
                state,
                abandoned,
                Ordering::SeqCst,
                Ordering::Acquire,
            ) {
                Ok(_) => return !in_use,
                Err(now) => state = now,
            }
        }
    }

    /// The clock hand came by: the next time, the page has to have been fixed anew.
    pub(crate) fn cool(&self) {
        self.0.fetch_and(!REFERENCED, Ordering::AcqRel);
    }

    /// Ends the phase evicting: the frame is free, and the caller's. The swip is cold by now.
    pub(crate) fn evicted(&self) {
        let state = self.0.load(Ordering::Relaxed);
        assert!(phase(state) == Phase::Evicting, "evicted without a claim");
        self.0.store(state & GENERATION_MASK, Ordering::Release);
        // As in `begin_loading`: the memory may go back to the system.
        fence(Ordering::Release);
    }

    /// Keeps further coroutines from the page, if `swip` leads here and others have guards on it, so
    /// that the caller's turn comes to have it alone.
    pub(crate) fn drain(&self, swip: &Swip, leads_here: SwipState) {
        let state = self.0.load(Ordering::Acquire);
        if phase(state) == Phase::Loaded && state & PIN_MASK > PIN && swip.state() == leads_here {
            // If it has changed, it is worth another look.
            self.exchange(state, with_phase(state, Phase::Draining));
        }
    }

    /// One who waited for the page alone does not any more: lets all others in. False if it did not
    /// keep anybody out.
    pub(crate) fn stop_draining(&self) -> bool {
        let mut state = self.0.load(Ordering::Acquire);
        while phase(state) == Phase::Draining {
            let open = with_phase(state, Phase::Loaded) & !WANTED;
            match self.0.compare_exchange_weak(state, open, Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) => {
                    ParkingLot::global().unpark_all(self.key());
                    return true;
                }
                Err(now) => state = now,
            }
        }
        false
    }

    /// Takes the page for the caller alone, if nobody has a guard on it and `swip` leads here.
    pub(crate) fn lock(&self, swip: &Swip, leads_here: SwipState) -> bool {
        let state = self.0.load(Ordering::Acquire);
        let locked = matches!(phase(state), Phase::Loaded | Phase::Draining)
            && state & PIN_MASK == PIN
            && swip.state() == leads_here
            && self.exchange(state, with_phase(state, Phase::Exclusive) | REFERENCED);
        // An optimistic reader who sees what the caller writes sees the phase, too.
        fence(Ordering::Release);
        locked
    }

    /// As [`FrameState::loaded`], of a page that was made in memory and is not on the device.
    #[cfg(not(loom))]
    pub(crate) fn created(&self, swip: &Swip, page: NonNull<u8>) {
        self.0.fetch_or(DIRTY | REFERENCED, Ordering::AcqRel);
        self.loaded(swip, page, true);
    }

    /// The page, which the caller has alone, will not be wanted again: the last pin to go evicts it.
    #[cfg(not(loom))]
    pub(crate) fn orphan(&self) {
        let before = self.0.fetch_or(ORPHAN, Ordering::AcqRel);
        assert!(phase(before) == Phase::Exclusive, "a page of others was given up");
    }

    /// Takes a dirty page for being written. False if it is in use; `None` if there is none.
    #[cfg(not(loom))]
    pub(crate) fn lock_dirty(&self) -> Option<bool> {
        let state = self.0.load(Ordering::Acquire);
        match phase(state) {
            Phase::Exclusive => Some(false),
            _ if state & DIRTY == 0 || state & ORPHAN != 0 => None,
            Phase::Loaded | Phase::Draining if state & PIN_MASK == PIN => {
                Some(self.exchange(state, with_phase(state, Phase::Exclusive)))
            }
            Phase::Loaded | Phase::Draining => Some(false),
            _ => None,
        }
    }

    /// Ends the exclusive phase and wakes who waited for it. The page is `dirty` from now on, which begins a
    /// generation, or clean. True if it is an orphan: the caller evicts it.
    pub(crate) fn unlock(&self, dirty: bool) -> bool {
        let mut state = self.0.load(Ordering::Relaxed);
        loop {
            assert!(phase(state) == Phase::Exclusive, "unlocked, but not locked");
            let mut open = state & !(PHASE_MASK | WANTED | DIRTY) | phase_bits(Phase::Loaded);
            if dirty {
                open = (open | DIRTY).wrapping_add(GENERATION);
            }
            if state & WANTED != 0 {
                open |= REFERENCED;
            }
            match self.0.compare_exchange_weak(state, open, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        if state & WANTED != 0 {
            ParkingLot::global().unpark_all(self.key());
        }
        state & ORPHAN != 0
    }

    /// True if the page was changed.
    pub(crate) fn is_dirty(&self) -> bool {
        self.0.load(Ordering::Acquire) & DIRTY != 0
    }

    /// Waits, without a pin, until the page can perhaps be had. False at once if nothing keeps the caller
    /// from it.
    pub(crate) async fn wait_while_busy(&self, wanted: Use) -> bool {
        let state = self.0.load(Ordering::Acquire);
        if !is_busy(state, wanted) {
            return false;
        }
        let marked = state | WANTED;
        let exchanged =
            self.0.compare_exchange(state, marked, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if exchanged {
            let must_wait = || {
                let state = self.0.load(Ordering::Acquire);
                state & WANTED != 0 && is_busy(state, wanted)
            };
            ParkingLot::global().park(self.key(), must_wait).await;
        }
        // Otherwise the frame has just changed its state: worth another look.
        exchanged
    }

    fn exchange(&self, from: u64, to: u64) -> bool {
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }
}

#[cfg(all(test, loom))]
mod models;
