//! The state behind a buffer pool: frames, the shelf, and who has to be told what.
//!
//! It lives as long as the pool, a guard, or a request to a device that was given up.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weft_rt::WorkerRef;
use weft_rt::io::{IoBuf, Recycle};
use weft_rt::memory::Ledger;
use weft_rt::sync::{HybridLatch, ParkingLot};

use crate::devices::Devices;
use crate::frame_state::{Claim, Phase, Unpinned, Use};
use crate::frames::Frames;
use crate::hits::Hits;
use crate::page::PageId;
use crate::page_table::{Home, PageTable, Pages};
use crate::shelf::Shelf;
use crate::swip::{Swip, SwipState};

pub(crate) struct PageCache {
    pub(crate) frames: Frames,
    pub(crate) devices: Devices,
    pub(crate) ledger: Ledger,
    /// Bytes of the ledger that the pool does not give back.
    floor_bytes: AtomicU64,
    /// After the frames: their memory is unmapped before the ledger hears of it.
    shelf: Mutex<Shelf>,
    /// Taken by whoever found no frame, so that frames go to those who came first.
    pub(crate) turn: HybridLatch,
    pub(crate) in_line: AtomicUsize,
    /// Coroutines that wait for a page to be let go of. They count themselves before they look for the
    /// last time, so that whoever lets go after that sees them.
    pub(crate) waiting: AtomicUsize,
    /// Somebody in the ledger lacks memory that this pool could not give at once.
    pub(crate) asked: AtomicBool,
    /// A worker that has changed pages, to write them when somebody lacks their memory.
    pub(crate) cleaner: Mutex<Option<WorkerRef>>,
    pub(crate) is_cleaning: AtomicBool,
    me: Weak<PageCache>,
    /// Counts what may concern those who wait.
    pub(crate) events: AtomicU64,
    pub(crate) hits: Hits,
    pub(crate) counts: Counts,
}

/// What a pool has done, apart from hits.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) misses: AtomicU64,
    pub(crate) shared: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) evictions: AtomicU64,
    pub(crate) write_backs: AtomicU64,
    pub(crate) discarded_bytes: AtomicU64,
}

impl PageCache {
    pub(crate) fn new(
        frames: Frames,
        devices: Devices,
        ledger: Ledger,
        floor_bytes: u64,
    ) -> Arc<PageCache> {
        let none = ledger.try_reserve(0).expect("nothing is always free").mapped();
        let mut shelf = Shelf::new(&frames, none);
        let floor_bytes = floor_bytes.min(ledger.limit());
        let floor_bytes =
            if shelf.memory.try_grow_from_free(floor_bytes) { floor_bytes } else { 0 };
        let cache = Arc::new_cyclic(|me| PageCache {
            cleaner: Mutex::new(None),
            is_cleaning: AtomicBool::new(false),
            me: me.clone(),
            frames,
            devices,
            ledger,
            floor_bytes: AtomicU64::new(floor_bytes),
            shelf: Mutex::new(shelf),
            turn: HybridLatch::new(),
            in_line: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            asked: AtomicBool::new(false),
            events: AtomicU64::new(0),
            hits: Hits::new(),
            counts: Counts::default(),
        });
        let weak: Weak<PageCache> = Arc::downgrade(&cache);
        cache.ledger.add_cache(weak);
        cache
    }

    pub(crate) fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of the ledger that the pool does not give back.
    pub(crate) fn floor_bytes(&self) -> u64 {
        self.floor_bytes.load(Ordering::Relaxed)
    }

    /// Changes what the pool does not give back: as far up as memory is free now, as far down as it is told.
    pub(crate) fn set_floor(&self, bytes: u64) {
        let mut shelf = self.shelf();
        let lacking = bytes.saturating_sub(shelf.memory.bytes());
        let has_all = lacking == 0 || shelf.memory.try_grow_from_free(lacking);
        let floor_bytes = if has_all { bytes } else { self.floor_bytes() };
        self.floor_bytes.store(floor_bytes, Ordering::Relaxed);
        let surplus = shelf.surplus(floor_bytes);
        drop(shelf);
        drop(surplus);
        self.tell_waiting();
    }

    /// Begins to load a page of `table`, which lies at `id`, into a free frame that is the caller's. The frame has two pins:
    /// one of the buffer returned, which the device fills, and one of the caller.
    pub(crate) fn begin<'a>(
        self: &'a Arc<PageCache>,
        frame: u32,
        table: &'a PageTable,
        page: usize,
        id: PageId,
    ) -> (Pin<'a>, IoBuf) {
        let cache = Arc::downgrade(self);
        table.settle_in(move || cache);
        self.frames.get(frame).settle(table.pages().clone(), page, id);
        self.frames.state(frame).begin_loading();
        (Pin { cache: self, swip: table.swip(page), frame }, self.buffer(frame))
    }

    /// The memory of a frame's page, for the caller who alone may use it: the frame is loading and its
    /// buffer's pin the caller's, or locked by the caller. Dropping the buffer lets go of that.
    pub(crate) fn buffer(self: &Arc<PageCache>, frame: u32) -> IoBuf {
        let phase = self.frames.state(frame).phase();
        assert!(matches!(phase, Phase::Loading | Phase::Exclusive), "buffer of a {phase:?} frame");
        let owner: Arc<dyn Recycle> = self.clone();
        let bytes = self.frames.get(frame).id().bytes();
        // SAFETY: the frame's memory, of which the page is the first part, stays mapped while `owner`
        // lives; it is nobody else's in these phases, which end when the buffer is recycled or given up
        // at the earliest.
        unsafe { IoBuf::from_owner(self.frames.page(frame), bytes, None, owner) }
    }

    /// Pins the page at `page` if it is in phase `expected` while `swip` is in state `leads_here`; `None`
    /// if it no longer is or the frame is about to be reused: the caller then looks at the swip again.
    #[inline]
    pub(crate) fn pin<'a>(
        self: &'a Arc<PageCache>,
        page: NonNull<u8>,
        expected: Phase,
        swip: &'a Swip,
        leads_here: SwipState,
        wanted: Use,
    ) -> Option<Pin<'a>> {
        let frame = self.frame_at(page);
        let pinned = self.frames.state(frame).pin(expected, swip, leads_here, wanted);
        // Not made before it is known: a pin that is dropped lets go.
        pinned.then(|| Pin { cache: self, swip, frame })
    }

    /// The frame that a swip leads to.
    #[inline]
    pub(crate) fn frame_at(&self, page: NonNull<u8>) -> u32 {
        self.frames.at(page).expect("the page table is in use by another pool")
    }

    /// Lets go of one pin.
    #[inline]
    pub(crate) fn unpin(&self, frame: u32) {
        let last = || unreachable!("the pool has a pin of every loaded page");
        match self.frames.state(frame).unpin(last) {
            Unpinned::Held => {}
            Unpinned::Idle => self.note_idle(),
            Unpinned::Orphaned => self.evict_if_idle(frame),
            Unpinned::Freed => {
                self.frames.get(frame).leave(self.frames.page(frame));
                self.give(frame);
            }
        }
    }

    /// Ends the exclusive phase of a frame that the caller has locked.
    pub(crate) fn unlock(&self, frame: u32, dirty: bool) {
        if self.frames.state(frame).unlock(dirty) {
            self.evict_if_idle(frame);
        } else {
            self.note_idle();
        }
    }

    /// Makes a frame free that is the caller's.
    pub(crate) fn give(&self, frame: u32) {
        self.shelf().put_free(&self.frames, frame);
        self.note_idle();
    }

    /// A frame is free, or a page can leave: tells whoever waits for that.
    #[inline]
    pub(crate) fn note_idle(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 || self.asked.load(Ordering::SeqCst) {
            self.attend();
        }
    }

    #[cold]
    fn attend(&self) {
        if self.asked.load(Ordering::SeqCst) {
            self.give_back_missing();
        }
        self.tell_waiting();
    }

    /// Whoever waits for a frame looks again.
    pub(crate) fn tell_waiting(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.events.fetch_add(1, Ordering::SeqCst);
            ParkingLot::global().unpark_one(self.waiting_key());
        }
    }

    /// The cache as a counted reference; `None` while it is being dropped.
    pub(crate) fn itself(&self) -> Option<Arc<PageCache>> {
        self.me.upgrade()
    }

    pub(crate) fn waiting_key(&self) -> usize {
        std::ptr::from_ref(&self.waiting) as usize
    }

    /// Ends what [`Claim::Evicting`] began: the swip turns cold, the frame is free and the caller's.
    pub(crate) fn evict(&self, shelf: &mut Shelf, frame: u32) {
        shelf.unlink(&self.frames, frame);
        let known = self.frames.get(frame);
        known.leave(self.frames.page(frame));
        known.state.evicted();
        self.counts.evictions.fetch_add(1, Ordering::Relaxed);
    }

    /// Evicts a clean page, or one of a table that is gone, unless somebody uses it or was first.
    #[cold]
    pub(crate) fn evict_if_idle(&self, frame: u32) {
        if self.frames.state(frame).claim(false, false) == Claim::Evicting {
            self.evict_claimed(frame);
        }
    }

    fn evict_claimed(&self, frame: u32) {
        let mut shelf = self.shelf();
        self.evict(&mut shelf, frame);
        shelf.put_free(&self.frames, frame);
        drop(shelf);
        self.note_idle();
    }
}

impl Home for PageCache {
    fn abandon(&self, pages: &Pages) {
        for swip in &pages.swips {
            let state = swip.state();
            if let SwipState::Hot(page) = state
                && let Some(frame) = self.frames.at(page)
                && self.frames.state(frame).abandon(swip, state)
            {
                self.evict_claimed(frame);
            }
        }
    }
}

impl Recycle for PageCache {
    /// The device is done with a frame whose coroutine had given up, or a write has failed: what the
    /// device has of such a page is unknown, so it stays dirty.
    fn recycle(&self, page: NonNull<u8>, _: usize) {
        let frame = self.frame_at(page);
        if self.frames.state(frame).phase() == Phase::Exclusive {
            self.unlock(frame, true);
        } else {
            self.unpin(frame);
        }
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        // Guards and requests keep the cache alive, so all that is left are idle pages.
        let pages = self.shelf().pages(&self.frames);
        for frame in pages {
            self.frames.get(frame).leave(self.frames.page(frame));
        }
    }
}

/// One pin of a frame that `swip` leads to.
pub(crate) struct Pin<'a> {
    cache: &'a Arc<PageCache>,
    swip: &'a Swip,
    frame: u32,
}

impl Pin<'_> {
    pub(crate) fn page(&self) -> NonNull<u8> {
        self.cache.frames.page(self.frame)
    }

    /// Makes the pin the caller's business.
    pub(crate) fn into_frame(self) -> u32 {
        let frame = self.frame;
        std::mem::forget(self);
        frame
    }

    /// The frame holds the page now: takes over the buffer's pin, turns the swip hot and wakes the
    /// coroutines that wait for the page.
    pub(crate) fn loaded(&self, buffer: IoBuf, on_probation: bool) {
        let (page, _) = buffer.into_raw();
        assert_eq!(page, self.page(), "the buffer is this frame's");
        self.cache.frames.state(self.frame).loaded(self.swip, page, true);
        self.cache.shelf().push(&self.cache.frames, self.frame, on_probation);
    }

    /// As [`Pin::loaded`], of a page that was made in memory and is not on the device.
    pub(crate) fn created(&self, buffer: IoBuf) {
        let (page, _) = buffer.into_raw();
        assert_eq!(page, self.page(), "the buffer is this frame's");
        self.cache.frames.state(self.frame).created(self.swip, page);
        self.cache.shelf().push(&self.cache.frames, self.frame, false);
    }

    /// Loading failed or was given up: turns the swip cold again and wakes the coroutines that wait
    /// for the page, so that one of them tries next.
    pub(crate) fn failed(&self) {
        let known = self.cache.frames.get(self.frame);
        known.state.failed(self.swip, known.id());
    }

    /// Waits until the loading has ended either way; true if the page is there.
    pub(crate) async fn wait(&self) -> bool {
        let state = self.cache.frames.state(self.frame);
        state.wait().await;
        state.phase() != Phase::Failed
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        self.cache.unpin(self.frame);
    }
}
