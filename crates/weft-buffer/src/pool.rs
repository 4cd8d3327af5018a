//! The buffer pool of a database: from page numbers to pages, within the memory budget.
//!
//! One pool serves all page tables and all page sizes. It takes what memory is free in the ledger, keeps
//! pages in it after their last use, and gives it back when others lack it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_rt::io::File;
use weft_rt::memory::Ledger;
use weft_rt::{announce, prefetch_line, yield_now};

use crate::cooling::Turn;
use crate::devices::Devices;
use crate::error::BufferError;
use crate::frame_size::FrameSize;
use crate::frame_state::{Phase, Use};
use crate::frames::Frames;
use crate::guard::{Anchor, PageGuard, PageGuardMut};
use crate::hits::thread_number;
use crate::optimistic::OptimisticPage;
use crate::page::{self, PageError, PageId};
use crate::page_cache::{PageCache, Pin};
use crate::page_table::{PageCheck, PageTable};
use crate::swip::SwipState;

/// Pages from this size on are announced before they are verified; smaller ones come faster than
/// another coroutine runs.
const ANNOUNCED_BYTES_MIN: usize = 16 << 10;

/// Anchors of a pool: threads beyond share them.
const ANCHORS: usize = 64;

/// How much memory a pool may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolOptions {
    /// Bytes that the pool reserves at once and does not give back, so that reading goes on however much
    /// others want: at least what one coroutine has guards on at a time. By default an eighth of the
    /// budget, at most 256 MiB.
    pub bytes_min: Option<u64>,
    /// Most bytes that pages of about one size may have, whatever the budget is raised to later. By
    /// default four times the budget as it is. It costs address space only, 28 times as much.
    pub bytes_max: Option<u64>,
}

/// What a pool has done so far, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Fixes that found the page in memory.
    pub hits: u64,
    /// Pages read from a device.
    pub misses: u64,
    /// Fixes that waited for a read which another coroutine had begun.
    pub shared: u64,
    /// Requests to devices for those pages: adjacent ones are read together.
    pub reads: u64,
    /// Bytes read from devices.
    pub bytes_read: u64,
    /// Pages that left memory.
    pub evictions: u64,
    /// Changed pages written to a device.
    pub write_backs: u64,
    /// Bytes of memory given back to the system: for frames of another size, or to the budget.
    pub bytes_discarded: u64,
    /// Bytes of the frames that have memory.
    pub bytes_used: u64,
    /// Bytes that the pool has reserved in the ledger.
    pub bytes_reserved: u64,
}

/// How long a coroutine waits for memory for a page.
#[derive(Clone, Copy)]
pub(crate) enum Patience<'a> {
    /// Not at all.
    None,
    /// As long as it takes.
    InLine,
    /// The same, and it is its turn.
    InTurn(&'a Turn<'a>),
}

/// Turns pages of tables into guards.
pub struct BufferPool {
    pub(crate) cache: Arc<PageCache>,
    anchors: Box<[Arc<Anchor>]>,
}

impl BufferPool {
    /// A pool over pages on `devices`, whose memory comes from `ledger`.
    ///
    /// # Errors
    /// [`BufferError::Memory`] if the system has no address space.
    pub fn dynamic(
        devices: Devices,
        ledger: Ledger,
        options: PoolOptions,
    ) -> Result<Arc<BufferPool>, BufferError> {
        let limit = ledger.limit();
        let bytes_max = options.bytes_max.unwrap_or(limit.saturating_mul(4));
        let bytes_min = options.bytes_min.unwrap_or((limit / 8).min(256 << 20));
        let frames = Frames::new(bytes_max)
            .map_err(|source| BufferError::Memory { bytes: bytes_max, source })?;
        let cache = PageCache::new(frames, devices, ledger, bytes_min);
        let anchors = (0..=ANCHORS).map(|_| Arc::new(Anchor(cache.clone()))).collect();
        Ok(Arc::new(BufferPool { cache, anchors }))
    }

    /// Adds a device, on which pages may lie from now on, and returns its number in page ids; `None` if
    /// there are 256 already.
    pub fn add_device(&self, device: File) -> Option<u8> {
        self.cache.devices.add(device)
    }

    /// Changes [`PoolOptions::bytes_min`], as the budget is about to be lowered or has been raised. What is not free
    /// now the pool does without.
    pub fn set_bytes_min(&self, bytes: u64) {
        self.cache.set_floor(bytes);
    }

    /// The devices that pages lie on.
    pub fn devices(&self) -> &Devices {
        &self.cache.devices
    }

    /// The budget that the pool's memory comes from.
    pub fn ledger(&self) -> &Ledger {
        &self.cache.ledger
    }

    /// What the pool has done so far, and what it holds.
    pub fn cache_stats(&self) -> CacheStats {
        let counts = &self.cache.counts;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let shelf = self.cache.shelf();
        CacheStats {
            hits: self.cache.hits.sum(),
            misses: count(&counts.misses),
            shared: count(&counts.shared),
            reads: count(&counts.reads),
            bytes_read: count(&counts.read_bytes),
            evictions: count(&counts.evictions),
            write_backs: count(&counts.write_backs),
            bytes_discarded: count(&counts.discarded_bytes),
            bytes_used: shelf.backed_bytes(),
            bytes_reserved: shelf.memory.bytes(),
        }
    }

    /// Pages in memory that are in no use or in use, but not about to be read.
    pub fn pages_in_memory(&self) -> usize {
        let (main, probation) = self.cache.shelf().listed();
        main + probation
    }

    /// Page number `page` of `table` if it is in memory and nobody changes it; never waits.
    ///
    /// # Panics
    /// If there is no such page, or another pool has pages of the table.
    #[inline]
    pub fn try_fix(&self, table: &PageTable, page: usize) -> Option<PageGuard> {
        self.try_fix_as(table, page, Use::Point)
    }

    #[inline]
    pub(crate) fn try_fix_as(
        &self,
        table: &PageTable,
        page: usize,
        wanted: Use,
    ) -> Option<PageGuard> {
        let swip = table.swip(page);
        let state = swip.state();
        let SwipState::Hot(address) = state else { return None };
        let pin = self.cache.pin(address, Phase::Loaded, swip, state, wanted)?;
        self.cache.hits.add_one();
        Some(self.guard(pin, address, table.id(page).bytes()))
    }

    /// Page number `page` of `table`, read from its device if it is not in memory. There is one read per
    /// page however many coroutines want it: the others wait for it. Runs on a worker, as it may do I/O.
    ///
    /// A coroutine may hold guards while it fixes further pages, but if all memory of the pool is held so
    /// by coroutines that wait for more of it, none goes on: hold few, or fix them together
    /// ([`BufferPool::fix_run_for_scan`]).
    ///
    /// # Errors
    /// [`BufferError::Read`] if the device fails, [`BufferError::Page`] if the page is damaged,
    /// [`BufferError::Device`] if there is no such device, [`BufferError::Budget`] if the budget is smaller
    /// than the page, [`BufferError::WriteBack`] if the only pages that could make room for this one are
    /// changed ones that cannot be written.
    ///
    /// # Panics
    /// As [`BufferPool::try_fix`].
    #[inline]
    pub async fn fix(&self, table: &Arc<PageTable>, page: usize) -> Result<PageGuard, BufferError> {
        match self.try_fix_as(table, page, Use::Point) {
            Some(guard) => Ok(guard),
            None => self.fix_in_line(table, page, Use::Point).await,
        }
    }

    /// As [`BufferPool::fix`], for a page that the caller does not expect to want again: it is among the
    /// first to leave, unless somebody else fixes it.
    ///
    /// # Errors
    /// As [`BufferPool::fix`].
    ///
    /// # Panics
    /// As [`BufferPool::fix`].
    #[inline]
    pub async fn fix_for_scan(
        &self,
        table: &Arc<PageTable>,
        page: usize,
    ) -> Result<PageGuard, BufferError> {
        match self.try_fix_as(table, page, Use::Scan) {
            Some(guard) => Ok(guard),
            None => self.fix_in_line(table, page, Use::Scan).await,
        }
    }

    /// Page number `page` of `table`, for the caller alone: waits until all other guards on it are gone,
    /// and lets no new ones come. Once it is written to it is dirty, and is sealed and written to its
    /// device before it leaves memory. (A coroutine that has another guard on the same page waits for
    /// itself. While somebody waits here, [`BufferPool::fix`] of the page waits too, but scans do not: so
    /// who holds guards and fixes further pages that others change fixes them in one order, as from a
    /// root to the leaves.)
    ///
    /// # Errors
    /// As [`BufferPool::fix`].
    ///
    /// # Panics
    /// As [`BufferPool::fix`].
    pub async fn fix_exclusive(
        &self,
        table: &Arc<PageTable>,
        page: usize,
    ) -> Result<PageGuardMut, BufferError> {
        let swip = table.swip(page);
        loop {
            let state = swip.state();
            let SwipState::Hot(address) = state else {
                drop(self.fix(table, page).await?);
                continue;
            };
            let frame = self.cache.frame_at(address);
            let known = self.cache.frames.state(frame);
            let _draining = Draining { cache: &self.cache, frame };
            while swip.state() == state {
                if known.lock(swip, state) {
                    return Ok(PageGuardMut::new(self.cache.clone(), frame));
                }
                known.drain(swip, state);
                if !known.wait_while_busy(Use::Alone).await {
                    yield_now().await;
                }
            }
        }
    }

    /// Makes page number `page` of `table`, which is vacant, at the place `id` out of `image`: it is in memory,
    /// and dirty. The image's header need only have tuples and kind. The caller sees to it that no other coroutine makes the page
    /// meanwhile.
    ///
    /// # Errors
    /// [`BufferError::Device`], [`BufferError::Budget`] and [`BufferError::WriteBack`] as
    /// [`BufferPool::fix`]; the page stays vacant.
    ///
    /// # Panics
    /// If the page exists, if table, place or image have another size, or if another pool has pages of the table.
    pub async fn create(
        &self,
        table: &Arc<PageTable>,
        page: usize,
        id: PageId,
        image: &[u8],
    ) -> Result<(), BufferError> {
        let swip = table.swip(page);
        let vacant = PageId::vacant(id.bytes());
        self.cache.device(id)?;
        // Those who came too late for a page of this number may still look at it.
        while let SwipState::Hot(_) = swip.state() {
            assert!(table.id(page).is_vacant(), "page {page} exists");
            yield_now().await;
        }
        let frame = self.cache.obtain(FrameSize::of_units(id.units())).await?;
        let (pin, mut buffer) = self.cache.begin(frame, table, page, id);
        let led = swip.change(SwipState::Cold(vacant), SwipState::Loading(pin.page()));
        assert!(led, "page {page} exists");
        buffer.copy_from_slice(image);
        table.pages().set_id(page, id);
        self.cache.note_changer();
        pin.created(buffer);
        Ok(())
    }

    /// Keeps page number `page` of `table` in memory, whose bytes are `image`, header included: if they were not written to its device, the page
    /// is dirty. False, and nothing happens, if there is no free frame, or another coroutine has begun to read the page.
    ///
    /// # Panics
    /// If table or image have another size, or if another pool has pages of the table.
    pub fn adopt(
        &self,
        table: &Arc<PageTable>,
        page: usize,
        (image, is_written): (&[u8], bool),
    ) -> bool {
        let swip = table.swip(page);
        let SwipState::Cold(id) = swip.state() else { return false };
        if id.is_vacant() {
            return false;
        }
        let size = FrameSize::of_units(id.units());
        let Some(frame) = self.cache.obtain_now(size) else { return false };
        let (pin, mut buffer) = self.cache.begin(frame, table, page, id);
        if !swip.change(SwipState::Cold(id), SwipState::Loading(pin.page())) {
            return false;
        }
        buffer.copy_from_slice(image);
        match is_written {
            true => pin.loaded(buffer, false),
            false => {
                self.cache.note_changer();
                pin.created(buffer);
            }
        }
        true
    }

    /// Page number `page` of `table`, if it is in memory and no coroutine holds it exclusively, to be read without a
    /// pin: no guard, no atomic exchange, and no promise but [`OptimisticPage::validate`].
    ///
    /// # Panics
    /// As [`BufferPool::try_fix`].
    #[inline]
    pub fn try_optimistic(&self, table: &PageTable, page: usize) -> Option<OptimisticPage<'_>> {
        let swip = table.swip(page);
        let leads_here = swip.state();
        let SwipState::Hot(address) = leads_here else { return None };
        let frames = &self.cache.frames;
        let (frame, size) = frames.sized_at(address).expect("the table is in use by another pool");
        let state = frames.state(frame);
        let version = state.optimistic(swip, leads_here)?;
        Some(OptimisticPage::new(address, size.bytes(), state, version))
    }

    /// Asks for the first `lines` cache lines of page number `page` of `table`, and for what is known of
    /// its frame, if it is in memory; false if it is not. Suspends no coroutine.
    ///
    /// # Panics
    /// As [`BufferPool::try_fix`].
    #[inline]
    pub fn prefetch_page(&self, table: &PageTable, page: usize, lines: usize) -> bool {
        let SwipState::Hot(address) = table.swip(page).state() else { return false };
        prefetch_line(std::ptr::from_ref(self.cache.frames.state(self.cache.frame_at(address))));
        for line in 0..lines {
            prefetch_line(address.as_ptr().wrapping_add(line * 64));
        }
        true
    }

    /// Writes those pages of `table` that are dirty now to their devices; says nothing about what makes them
    /// durable. Waits for guards on them, so the caller must have none on a dirty page, and no exclusive
    /// one. Goes on after an error.
    ///
    /// # Errors
    /// The first one: [`BufferError::WriteBack`], and the page stays dirty.
    pub async fn write_table(&self, table: &PageTable) -> Result<(), BufferError> {
        self.cache.write_pages(table).await
    }

    /// Writes all pages that are dirty now to their devices and makes them durable. Waits for guards on
    /// them, so the caller must have none on a dirty page, and no exclusive one. Goes on after an error.
    ///
    /// # Errors
    /// The first one: [`BufferError::WriteBack`], and the page stays dirty, or [`BufferError::Read`] if a
    /// device cannot make durable what it has.
    pub async fn flush_all(&self) -> Result<(), BufferError> {
        self.cache.flush().await
    }

    /// Evicts pages that nobody uses until those in memory have at most `target_bytes`, and gives their
    /// memory back (to the ledger down to the least that the pool was to have). Returns the bytes that it
    /// still has: more if pages are in use.
    ///
    /// # Errors
    /// [`BufferError::WriteBack`] if a dirty page cannot be written; it stays.
    pub async fn shrink_to(&self, target_bytes: u64) -> Result<u64, BufferError> {
        self.cache.shrink_to(target_bytes).await
    }

    #[inline]
    fn guard(&self, pin: Pin<'_>, address: std::ptr::NonNull<u8>, bytes: usize) -> PageGuard {
        let anchor = self.anchors[thread_number().min(ANCHORS)].clone();
        PageGuard::new(address, bytes, pin.into_frame(), anchor)
    }

    async fn fix_in_line(
        &self,
        table: &Arc<PageTable>,
        page: usize,
        wanted: Use,
    ) -> Result<PageGuard, BufferError> {
        let guard = self.fix_slow(table, page, wanted, Patience::InLine).await?;
        Ok(guard.expect("memory was waited for"))
    }

    /// Fixes a page that is perhaps not in memory; `None` if there is no memory for it, and no patience.
    pub(crate) async fn fix_slow(
        &self,
        table: &Arc<PageTable>,
        page: usize,
        wanted: Use,
        patience: Patience<'_>,
    ) -> Result<Option<PageGuard>, BufferError> {
        let (swip, bytes) = (table.swip(page), table.id(page).bytes());
        let cache = &self.cache;
        loop {
            let state = swip.state();
            match state {
                SwipState::Hot(address) => {
                    if let Some(guard) = self.try_fix_as(table, page, wanted) {
                        return Ok(Some(guard));
                    }
                    let known = cache.frames.state(cache.frame_at(address));
                    if known.wait_while_busy(wanted).await {
                        continue;
                    }
                }
                SwipState::Loading(address) => {
                    if let Some(pin) = cache.pin(address, Phase::Loading, swip, state, wanted) {
                        cache.counts.shared.fetch_add(1, Ordering::Relaxed);
                        if pin.wait().await {
                            return Ok(Some(self.guard(pin, address, bytes)));
                        }
                        continue; // The read failed: this coroutine tries next, or waits for who does.
                    }
                }
                SwipState::Cold(id) => {
                    if id.is_vacant() {
                        return Err(BufferError::Vacant { page });
                    }
                    let size = FrameSize::of_units(id.units());
                    let frame = match patience {
                        Patience::None => cache.obtain_now(size),
                        Patience::InLine => Some(cache.obtain(size).await?),
                        Patience::InTurn(turn) => Some(cache.obtain_in_turn(size, turn).await?),
                    };
                    let Some(frame) = frame else { return Ok(None) };
                    if let Some(guard) = self.load(frame, table, page, id, wanted).await? {
                        return Ok(Some(guard));
                    }
                }
            }
            // The swip is about to change its state on another worker.
            yield_now().await;
        }
    }

    /// Reads a cold page into a free frame, the caller's; `None` if another coroutine was first.
    async fn load(
        &self,
        frame: u32,
        table: &Arc<PageTable>,
        page: usize,
        id: PageId,
        wanted: Use,
    ) -> Result<Option<PageGuard>, BufferError> {
        let swip = table.swip(page);
        let (pin, buffer) = self.cache.begin(frame, table, page, id);
        let address = pin.page();
        if !swip.change(SwipState::Cold(id), SwipState::Loading(address)) {
            return Ok(None);
        }
        let loading = Loading { pin: Some(pin) };
        let device = self.cache.device(id)?;
        self.cache.note_read(1, id.bytes());
        let (result, buffer) = device.read_exact(buffer, id.offset()).await;
        result?;
        self.finish(loading, buffer, id, table.check(), wanted).await.map(Some)
    }

    /// Verifies what was read and opens the page to everybody.
    pub(crate) async fn finish(
        &self,
        loading: Loading<'_>,
        buffer: weft_rt::io::IoBuf,
        id: PageId,
        check: Option<PageCheck>,
        wanted: Use,
    ) -> Result<PageGuard, BufferError> {
        if buffer.len() >= ANNOUNCED_BYTES_MIN {
            // The bytes are in memory, not in a cache: others run while they come.
            announce(&buffer).await;
        }
        let verified = page::verify(&buffer, id).and_then(|_| match check {
            Some(check) => check(&buffer).map_err(|reason| PageError::Content { reason }),
            None => Ok(()),
        });
        verified.map_err(|source| {
            let path = self.cache.devices.of(id).path().into();
            BufferError::Page { path, id, source }
        })?;
        let pin = loading.succeeded();
        pin.loaded(buffer, wanted == Use::Scan);
        let address = pin.page();
        Ok(self.guard(pin, address, id.bytes()))
    }
}

impl std::fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BufferPool({:?})", self.cache_stats())
    }
}

impl PageCache {
    /// The device of a page.
    pub(crate) fn device(&self, id: PageId) -> Result<&File, BufferError> {
        let missing = || BufferError::Device { id, devices: self.devices.count() };
        self.devices.get(id).ok_or_else(missing)
    }

    /// Counts a request to a device for so many pages of together `bytes` bytes.
    pub(crate) fn note_read(&self, pages: u64, bytes: usize) {
        self.counts.misses.fetch_add(pages, Ordering::Relaxed);
        self.counts.reads.fetch_add(1, Ordering::Relaxed);
        self.counts.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// A load under way: turns the swip cold again if the coroutine is dropped or fails meanwhile.
pub(crate) struct Loading<'a> {
    pub(crate) pin: Option<Pin<'a>>,
}

impl<'a> Loading<'a> {
    fn succeeded(mut self) -> Pin<'a> {
        self.pin.take().expect("ends once")
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        if let Some(pin) = &self.pin {
            pin.failed();
        }
    }
}

/// One who waits to have a page alone, and keeps others from it meanwhile.
struct Draining<'a> {
    cache: &'a PageCache,
    frame: u32,
}

impl Drop for Draining<'_> {
    fn drop(&mut self) {
        if self.cache.frames.state(self.frame).stop_draining() {
            self.cache.note_idle();
        }
    }
}
