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
        self.frame.begin_loading();
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
            SwipState::Hot(_) => self.frame.pin(Phase::Loaded, swip, state, Use::Point),
            SwipState::Loading(_) => self.frame.pin(Phase::Loading, swip, state, Use::Point),
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
            if self.frame.pin(Phase::Loaded, swip, state, Use::Point) {
                self.assert_holds(number);
                self.unpin_resident(number);
                return true;
            }
            if !block_on(self.frame.wait_while_busy(Use::Point)) {
                if self.leaves() {
                    return false;
                }
                thread::yield_now();
            }
        }
    }

    /// Lets go of a guard on a page that stays, or evicts it if its table is gone.
    fn unpin_resident(&self, number: u64) {
        let evict = || unreachable!("the pool has a pin");
        match self.frame.unpin(evict) {
            Unpinned::Held | Unpinned::Idle => {}
            Unpinned::Orphaned => self.evict_if_idle(number),
            Unpinned::Freed => panic!("the pool's pin is gone"),
        }
    }

    /// As `PageCache::evict_if_idle`.
    fn evict_if_idle(&self, number: u64) {
        if self.frame.claim(false, false) == Claim::Evicting {
            self.evict_claimed(number);
        }
    }

    fn evict_claimed(&self, number: u64) {
        self.evictions.fetch_add(1, Ordering::Relaxed);
        self.swips[number as usize].set(SwipState::Cold(id(number)));
        self.frame.evicted();
    }

    /// True if page 0 is on its way out: `BufferPool::fix` lets others run until the swip is cold.
    fn leaves(&self) -> bool {
        !matches!(self.frame.phase(), Phase::Loaded | Phase::Exclusive | Phase::Draining)
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
                if self.frame.unlock(true) {
                    self.evict_if_idle(0);
                }
                return true;
            }
            self.frame.drain(swip, state);
            if !block_on(self.frame.wait_while_busy(Use::Alone)) {
                if self.leaves() {
                    return false;
                }
                thread::yield_now();
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

/// A dirty page is written and evicted while somebody fixes it, who waits for the write.
#[test]
fn loom_write_back_races_with_fix() {
    check_up_to(2, || {
        let world = Arc::new(World::resident());
        assert!(world.change());
        world.frame.cool();
        let fixing = world.clone();
        let fixer = thread::spawn(move || fixing.fix(0));
        let disk = AtomicUsize::new(0);
        let replaced = world.replace(&disk);
        let found = fixer.join().unwrap();
        assert!(replaced || found, "a page in memory was not found");
        assert!(!replaced || disk.load(Ordering::Relaxed) == 100, "evicted without a write");
    });
}

/// A page is changed while it is written and evicted: whatever was changed is on the disk, or in memory
/// and dirty.
#[test]
fn loom_write_back_races_with_change() {
    check_up_to(2, || {
        let world = Arc::new(World::resident());
        let changing = world.clone();
        let changer = thread::spawn(move || changing.change());
        let disk = AtomicUsize::new(0);
        let replaced = world.replace(&disk);
        let changed = changer.join().unwrap();
        assert!(replaced || changed);
        if replaced {
            assert_eq!(disk.load(Ordering::Relaxed), if changed { 100 } else { 0 });
        } else {
            assert!(world.frame.is_dirty() || disk.load(Ordering::Relaxed) == 100);
        }
    });
}

/// One wants the page alone while another reads it: both get it, one after the other.
#[test]
fn loom_change_races_with_fix() {
    check_up_to(2, || {
        let world = Arc::new(World::resident());
        let fixing = world.clone();
        let fixer = thread::spawn(move || fixing.fix(0));
        assert!(world.change());
        assert!(fixer.join().unwrap());
        assert_eq!(world.frame.phase(), Phase::Loaded);
        assert!(world.frame.is_dirty());
    });
}

/// One who waits to have the page alone gives up: a reader that waits because of it goes on.
#[test]
fn loom_giving_up_a_change_lets_readers_in() {
    check_up_to(2, || {
        let world = Arc::new(World::resident());
        let swip = &world.swips[0];
        assert!(world.frame.pin(Phase::Loaded, swip, swip.state(), Use::Scan));
        world.frame.drain(swip, swip.state());
        let fixing = world.clone();
        let fixer = thread::spawn(move || fixing.fix(0));
        assert!(world.frame.stop_draining());
        world.unpin_resident(0);
        assert!(fixer.join().unwrap());
    });
}

/// The table goes while a guard goes and somebody looks for a page to evict: one of them evicts, once.
#[test]
fn loom_abandoning_races_with_the_last_guard() {
    check(|| {
        let world = Arc::new(World::resident());
        let swip = &world.swips[0];
        assert!(world.frame.pin(Phase::Loaded, swip, swip.state(), Use::Point));
        let (leaving, hunting) = (world.clone(), world.clone());
        let guard = thread::spawn(move || leaving.unpin_resident(0));
        let hunter = thread::spawn(move || hunting.evict_if_idle(0));
        if world.frame.abandon(swip, SwipState::Hot(page())) {
            world.evict_claimed(0);
        }
        guard.join().unwrap();
        hunter.join().unwrap();
        world.assert_at_rest(1, 0);
    });
}

/// The table goes while its page is changed: it leaves without a write.
#[test]
fn loom_abandoning_races_with_unlocking() {
    check(|| {
        let world = Arc::new(World::resident());
        let changing = world.clone();
        let swip = &world.swips[0];
        assert!(world.frame.lock(swip, swip.state()));
        let changer = thread::spawn(move || {
            changing.fill(0);
            if changing.frame.unlock(true) {
                changing.evict_if_idle(0);
            }
        });
        if world.frame.abandon(swip, SwipState::Hot(page())) {
            world.evict_claimed(0);
        }
        changer.join().unwrap();
        world.assert_at_rest(1, 0);
    });
}

/// An optimistic reader races with one who changes the page, then with eviction and reuse: what it has
/// validated is what one of them left.
#[test]
fn loom_optimistic_reads_are_whole() {
    use loom::sync::atomic::AtomicU64 as Word;
    check(|| {
        let frame = Arc::new((FrameState::new(), Swip::cold(id(0)), [Word::new(7), Word::new(7)]));
        frame.0.begin_loading();
        assert!(frame.1.change(SwipState::Cold(id(0)), SwipState::Loading(page())));
        frame.0.loaded(&frame.1, page(), true);
        frame.0.unpin(|| unreachable!("the pool's pin stays"));
        let reading = frame.clone();
        let reader = thread::spawn(move || {
            let (state, swip, words) = &*reading;
            let leads_here = swip.state();
            if !matches!(leads_here, SwipState::Hot(_)) {
                return;
            }
            let Some(version) = state.optimistic(swip, leads_here) else { return };
            let read = [words[1].load(Ordering::Relaxed), words[0].load(Ordering::Relaxed)];
            if state.validate(version) {
                assert!(read == [7, 7] || read == [8, 8], "{read:?} was validated");
            }
        });
        let (state, swip, words) = &*frame;
        let hot = SwipState::Hot(page());
        // The reader may just have marked the page as wanted.
        while !state.lock(swip, hot) {
            thread::yield_now();
        }
        words[0].store(8, Ordering::Relaxed);
        words[1].store(8, Ordering::Relaxed);
        state.unlock(true);
        // Written to the device, which changes nothing that is read.
        if state.claim(true, true) == Claim::Dirty {
            state.unlock(false);
        }
        if state.claim(true, true) == Claim::Evicting {
            swip.set(SwipState::Cold(id(0)));
            state.evicted();
            state.begin_loading();
            words[1].store(9, Ordering::Relaxed);
            words[0].store(9, Ordering::Relaxed);
        }
        reader.join().unwrap();
    });
}
