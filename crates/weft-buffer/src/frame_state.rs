//! A frame's state, one word: generation, phase and pins.
//!
//! A pin belongs to the device request that fills the frame, to the coroutine that asked for it, to
//! every coroutine that waits for it and to every guard. Whoever lets go of the last pin evicts the
//! page and frees the frame, so that neither a page that somebody uses nor memory that the kernel
//! writes to is ever reused.
//!
//! A pin is taken only if the generation is the one under which the swip was seen to lead here:
//! a frame that was reused meanwhile is never pinned by mistake.

use std::ptr::NonNull;

use weft_rt::sync::ParkingLot;

use crate::page::PageId;
use crate::primitives::{AtomicU64, Ordering};
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
}

const PIN: u64 = 1;
const PIN_MASK: u64 = (1 << 32) - 1;
const PHASE_SHIFT: u32 = 32;
const PHASE_MASK: u64 = 3 << PHASE_SHIFT;
const GENERATION: u64 = 1 << 34;

fn phase(state: u64) -> Phase {
    match (state & PHASE_MASK) >> PHASE_SHIFT {
        0 => Phase::Free,
        1 => Phase::Loading,
        2 => Phase::Loaded,
        _ => Phase::Failed,
    }
}

fn phase_bits(phase: Phase) -> u64 {
    (phase as u64) << PHASE_SHIFT
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
        assert!(phase(state) == Phase::Free && state & PIN_MASK == 0, "the frame is in use");
        let generation = (state & !(PIN_MASK | PHASE_MASK)).wrapping_add(GENERATION);
        let loading = generation | phase_bits(Phase::Loading) | (2 * PIN);
        self.0.store(loading, Ordering::Release);
    }

    /// Pins the frame if it is in phase `expected` while `swip` is in state `leads_here`. False if
    /// it no longer is or the frame is about to be reused: the caller then looks at the swip again.
    #[inline]
    pub(crate) fn pin(&self, expected: Phase, swip: &Swip, leads_here: SwipState) -> bool {
        let mut state = self.0.load(Ordering::Acquire);
        loop {
            if state & PIN_MASK == 0 || phase(state) != expected || swip.state() != leads_here {
                return false;
            }
            // The swip led here while the frame was in this generation, and the exchange succeeds
            // only if it still is.
            match self.0.compare_exchange_weak(
                state,
                state + PIN,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
    }

    /// Lets go of one pin. With the last one the page is evicted, if there is one, and the frame
    /// becomes free: true.
    #[inline]
    pub(crate) fn unpin(&self, evict: impl FnOnce()) -> bool {
        let before = self.0.fetch_sub(PIN, Ordering::AcqRel);
        assert!(before & PIN_MASK > 0, "the frame has no pin to let go of");
        if before & PIN_MASK > 1 {
            return false;
        }
        if phase(before) == Phase::Loaded {
            evict();
        }
        self.0.store(before & !(PIN_MASK | PHASE_MASK), Ordering::Release);
        true
    }

    /// The frame holds the page now: lets go of the buffer's pin, turns the swip hot and wakes those
    /// who wait. The caller has a pin.
    pub(crate) fn loaded(&self, swip: &Swip, page: NonNull<u8>) {
        let change = phase_bits(Phase::Loaded) - phase_bits(Phase::Loading);
        let before = self.0.fetch_add(change - PIN, Ordering::AcqRel);
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

    fn key(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }
}

#[cfg(all(test, loom))]
mod models {
    //! Loom models: every interleaving (up to a bound on preemptions) of the races for a frame.
    //!
    //! The frame's memory is a cell that loom watches: a device that fills a frame which somebody
    //! still reads is reported as a race.
    //!
    //! `RUSTFLAGS="--cfg loom" cargo test -p weft-buffer --lib --release --target-dir target/loom`

    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, Ordering};
    use loom::thread;
    use weft_rt::sync::block_on;

    use super::*;
    use crate::page::SizeClass;

    const ADDRESS: usize = 0x1000;

    fn page() -> NonNull<u8> {
        NonNull::new(ADDRESS as *mut u8).expect("not zero")
    }

    fn id(number: u64) -> PageId {
        PageId::new(0, number * 4096, SizeClass::MIN)
    }

    /// One frame, its memory, and the swips of two pages.
    struct World {
        frame: FrameState,
        memory: UnsafeCell<u64>,
        swips: [Swip; 2],
        evictions: AtomicUsize,
        frees: AtomicUsize,
    }

    // SAFETY: loom checks each access to the memory for races, which is the point.
    unsafe impl Sync for World {}
    // SAFETY: as above.
    unsafe impl Send for World {}

    impl World {
        /// A frame that begins to load page 0.
        fn new() -> World {
            let world = World {
                frame: FrameState::new(),
                memory: UnsafeCell::new(0),
                swips: [Swip::cold(id(0)), Swip::cold(id(1))],
                evictions: AtomicUsize::new(0),
                frees: AtomicUsize::new(0),
            };
            world.begin(0);
            world
        }

        /// As whoever has taken the free frame.
        fn begin(&self, number: u64) {
            self.frame.begin_loading();
            let to = SwipState::Loading(page());
            assert!(self.swips[number as usize].change(SwipState::Cold(id(number)), to));
        }

        /// As the device, then as the loader.
        fn load(&self, number: u64) {
            self.fill(number);
            self.frame.loaded(&self.swips[number as usize], page());
        }

        fn fill(&self, number: u64) {
            // SAFETY: the frame is being loaded; loom checks that nobody else accesses it.
            self.memory.with_mut(|memory| unsafe { *memory = number + 100 });
        }

        /// As whoever has a pin of a loaded frame.
        fn assert_holds(&self, number: u64) {
            // SAFETY: the frame is pinned; loom checks that nobody writes to it.
            assert_eq!(self.memory.with(|memory| unsafe { *memory }), number + 100);
        }

        /// Lets go of a pin; true if the frame became free and is the caller's to take.
        fn unpin(&self, number: u64) -> bool {
            let evict = || {
                self.evictions.fetch_add(1, Ordering::Relaxed);
                self.swips[number as usize].set(SwipState::Cold(id(number)));
            };
            let freed = self.frame.unpin(evict);
            if freed {
                self.frees.fetch_add(1, Ordering::Relaxed);
            }
            freed
        }

        /// Loads page 1 into the frame and lets go of it.
        fn reuse(&self) {
            self.begin(1);
            self.load(1);
            self.assert_holds(1);
            self.unpin(1);
        }

        /// As `BufferPool::fix`, once: the page, if it is to be had without loading it.
        fn visit(&self, number: u64) {
            let swip = &self.swips[number as usize];
            let state = swip.state();
            let pinned = match state {
                SwipState::Hot(_) => self.frame.pin(Phase::Loaded, swip, state),
                SwipState::Loading(_) => self.frame.pin(Phase::Loading, swip, state),
                SwipState::Cold(_) => false,
            };
            if !pinned {
                return;
            }
            block_on(self.frame.wait());
            match self.frame.phase() {
                Phase::Loaded => self.assert_holds(number),
                Phase::Failed => {}
                other => panic!("a pinned frame is {other:?}"),
            }
            self.unpin(number);
        }

        fn assert_at_rest(&self, evictions: usize, frees: usize) {
            for (number, swip) in self.swips.iter().enumerate() {
                assert_eq!(swip.state(), SwipState::Cold(id(number as u64)));
            }
            assert_eq!(self.frame.phase(), Phase::Free);
            assert_eq!(self.evictions.load(Ordering::Relaxed), evictions);
            assert_eq!(self.frees.load(Ordering::Relaxed), frees);
        }
    }

    fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    /// The last pin goes and the frame is used for another page while somebody fixes the first.
    #[test]
    fn loom_fix_races_with_eviction_and_reuse() {
        check(|| {
            let world = Arc::new(World::new());
            world.load(0);
            let fixing = world.clone();
            let fixer = thread::spawn(move || {
                fixing.visit(0);
                fixing.visit(1);
            });
            let reused = world.unpin(0);
            if reused {
                world.reuse();
            }
            fixer.join().unwrap();
            let pages = if reused { 2 } else { 1 };
            world.assert_at_rest(pages, pages);
        });
    }

    /// Two wait for a load that succeeds; the last of the three evicts, once.
    #[test]
    fn loom_joining_races_with_success() {
        check(|| {
            let world = Arc::new(World::new());
            let joiners = [0, 1].map(|_| {
                let world = world.clone();
                thread::spawn(move || world.visit(0))
            });
            world.load(0);
            world.assert_holds(0);
            world.unpin(0);
            for joiner in joiners {
                joiner.join().unwrap();
            }
            world.assert_at_rest(1, 1);
        });
    }

    /// The loader gives up while somebody begins to wait, then the device lets go of the buffer;
    /// whoever was last, the frame is used for another page.
    #[test]
    fn loom_joining_races_with_failure_and_reuse() {
        check(|| {
            let world = Arc::new(World::new());
            let joining = world.clone();
            let joiner = thread::spawn(move || {
                joining.visit(0);
                joining.visit(1);
            });
            let device = world.clone();
            let device = thread::spawn(move || {
                device.fill(0);
                if device.unpin(0) {
                    device.reuse();
                }
            });
            world.frame.failed(&world.swips[0], id(0));
            let reused = world.unpin(0);
            if reused {
                world.reuse();
            }
            joiner.join().unwrap();
            device.join().unwrap();
            let frees = world.frees.load(Ordering::Relaxed);
            world.assert_at_rest(frees - 1, frees);
            assert!((1..=2).contains(&frees));
        });
    }
}
