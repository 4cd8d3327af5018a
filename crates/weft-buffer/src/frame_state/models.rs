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

const ADDRESS: usize = 0x1000;

fn page() -> NonNull<u8> {
    NonNull::new(ADDRESS as *mut u8).expect("not zero")
}

fn id(number: u64) -> PageId {
    PageId::new(0, number * 4096, 4096)
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
        self.frame.begin_loading(false);
        let to = SwipState::Loading(page());
        assert!(self.swips[number as usize].change(SwipState::Cold(id(number)), to));
    }

    /// As the device, then as the loader.
    fn load(&self, number: u64) {
        self.fill(number);
        self.frame.loaded(&self.swips[number as usize], page(), false);
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
        let freed = self.frame.unpin(evict) == Unpinned::Freed;
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
            SwipState::Hot(_) => self.frame.pin(Phase::Loaded, swip, state, true),
            SwipState::Loading(_) => self.frame.pin(Phase::Loading, swip, state, true),
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
    check_up_to(3, model);
}

fn check_up_to(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
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

impl World {
    /// A frame of a dynamic pool that holds page 0, unreferenced; nobody has a guard.
    fn resident() -> World {
        let world = World::new();
        world.load_to_stay(0);
        assert_eq!(world.frame.unpin(|| unreachable!()), Unpinned::Idle);
        world
    }

    fn load_to_stay(&self, number: u64) {
        self.fill(number);
        self.frame.loaded(&self.swips[number as usize], page(), true);
    }

    /// As `BufferPool::fix`: false if the page has to be loaded.
    fn fix(&self, number: u64) -> bool {
        let swip = &self.swips[number as usize];
        loop {
            let state = swip.state();
            if !matches!(state, SwipState::Hot(_)) {
                return false;
            }
            if self.frame.pin(Phase::Loaded, swip, state, true) {
                self.assert_holds(number);
                assert_ne!(self.frame.unpin(|| unreachable!()), Unpinned::Freed);
                return true;
            }
            if !block_on(self.frame.wait_while_busy(false)) && self.leaves() {
                return false;
            }
        }
    }

    /// True if page 0 is on its way out: `BufferPool::fix` lets others run until the swip is cold.
    fn leaves(&self) -> bool {
        self.frame.phase() != Phase::Loaded && self.frame.phase() != Phase::Exclusive
    }

    /// As `BufferPool::fix_exclusive`, changing page 0: false if the page has to be loaded.
    fn change(&self) -> bool {
        let swip = &self.swips[0];
        loop {
            let state = swip.state();
            if !matches!(state, SwipState::Hot(_)) {
                return false;
            }
            if self.frame.lock(swip, state) {
                self.fill(0);
                self.frame.unlock(true);
                return true;
            }
            if !block_on(self.frame.wait_while_busy(true)) && self.leaves() {
                return false;
            }
        }
    }

    /// As whoever needs a frame, once: writes page 0 to `disk` if need be, evicts it and loads
    /// page 1 instead. False if it may not.
    fn replace(&self, disk: &AtomicUsize) -> bool {
        let mut claim = self.frame.claim(false, true);
        if claim == Claim::Dirty {
            // SAFETY: the frame is locked; loom checks that nobody writes to it.
            let bytes = self.memory.with(|memory| unsafe { *memory });
            disk.store(bytes as usize, Ordering::Relaxed);
            self.frame.unlock(false);
            claim = self.frame.claim(false, true);
        }
        if claim != Claim::Evicting {
            return false;
        }
        self.swips[0].set(SwipState::Cold(id(0)));
        self.frame.evicted();
        self.begin(1);
        self.load_to_stay(1);
        self.assert_holds(1);
        self.frame.unpin(|| unreachable!());
        true
    }
}

/// A page is evicted, and its frame used for another one, while somebody fixes first the one and then
/// the other. Either the page was fixed, and is spared, or it was evicted.
#[test]
fn loom_evict_races_with_fix() {
    check(|| {
        let world = Arc::new(World::resident());
        let fixing = world.clone();
        let fixer = thread::spawn(move || {
            let found = fixing.fix(0);
            fixing.fix(1);
            found
        });
        let replaced = world.replace(&AtomicUsize::new(0));
        let found = fixer.join().unwrap();
        assert!(replaced != found, "replaced {replaced}, found {found}");
        let state = world.swips[0].state();
        assert_eq!(state == SwipState::Cold(id(0)), replaced);
        assert_eq!(world.frame.phase(), Phase::Loaded);
    });
}

/// The clock hand takes the mark of the page away, twice, while somebody fixes it.
#[test]
fn loom_evict_races_with_rereference() {
    check(|| {
        let world = Arc::new(World::resident());
        assert!(world.fix(0));
        assert_eq!(world.frame.claim(false, true), Claim::Referenced);
        let fixing = world.clone();
        let fixer = thread::spawn(move || fixing.fix(0));
        world.frame.cool();
        let replaced = world.replace(&AtomicUsize::new(0));
        let found = fixer.join().unwrap();
        assert!(replaced || found);
        if !replaced {
            // Nobody uses it any more: it goes at the second attempt at the latest.
            world.frame.cool();
            assert!(world.replace(&AtomicUsize::new(0)));
        }
    });
}

/// A dirty page is written and evicted while two fix it, who wait for the write.
#[test]
fn loom_write_back_races_with_fix() {
    check_up_to(2, || {
        let world = Arc::new(World::resident());
        assert!(world.change());
        world.frame.cool();
        let fixers = [0, 1].map(|_| {
            let world = world.clone();
            thread::spawn(move || world.fix(0))
        });
        let disk = AtomicUsize::new(0);
        let replaced = world.replace(&disk);
        let found = fixers.map(|fixer| fixer.join().unwrap());
        assert!(replaced || found == [true; 2], "a page in memory was not found");
        assert!(!replaced || disk.load(Ordering::Relaxed) == 100, "evicted without a write");
    });
}

/// A page is changed while it is read, written and evicted: whatever was changed is on the disk, or
/// in memory and dirty.
#[test]
fn loom_write_back_races_with_change() {
    check_up_to(2, || {
        let world = Arc::new(World::resident());
        let (changing, fixing) = (world.clone(), world.clone());
        let changer = thread::spawn(move || changing.change());
        let fixer = thread::spawn(move || fixing.fix(0));
        let disk = AtomicUsize::new(0);
        let replaced = world.replace(&disk);
        let (changed, _) = (changer.join().unwrap(), fixer.join().unwrap());
        assert!(replaced || changed);
        if replaced {
            assert_eq!(disk.load(Ordering::Relaxed), if changed { 100 } else { 0 });
        } else {
            assert!(world.frame.is_dirty() || disk.load(Ordering::Relaxed) == 100);
        }
    });
}
