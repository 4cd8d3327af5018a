//! The static pool of the ADMS experiments (section 3.1): pages of one size, of which those that were
//! made permanent before a run stay hot; every other page lives in a frame only while somebody uses it.
//!
//! Its frames are those of [`BufferPool`](crate::pool::BufferPool) without what a database needs: no
//! eviction, no budget, guards that borrow. So an experiment measures the waits and nothing else.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use weft_rt::io::Arena;
use weft_rt::{Runtime, announce, yield_now};

use crate::devices::Devices;
use crate::error::BufferError;
use crate::frame_state::Phase;
use crate::page::{self, PAGE_UNIT_BYTES, PageId};
use crate::page_table::PageTable;
use crate::static_frames::{Frames, Pin};
use crate::swip::{Swip, SwipState};

/// Pages from this size on are announced before they are verified; smaller ones come faster than
/// another coroutine runs.
const ANNOUNCED_BYTES_MIN: usize = 16 << 10;

/// What a pool has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Pages read from a device.
    pub reads: u64,
    /// Fixes that waited for a read which another coroutine had begun.
    pub shared: u64,
}

/// Turns the swips of its page table into pages.
pub struct StaticPool {
    devices: Devices,
    table: Arc<PageTable>,
    page_bytes: usize,
    frames: Arc<Frames>,
    permanent: OnceLock<Arc<Arena>>,
    cache_taken: AtomicBool,
    reads: AtomicU64,
    shared: AtomicU64,
}

impl StaticPool {
    /// A pool over the pages of `table` with `frames` frames for pages that are not permanent. Each
    /// coroutine that holds a guard while it fixes another page needs two of them.
    ///
    /// # Errors
    /// [`BufferError::Memory`] if the system has none.
    ///
    /// # Panics
    /// If `frames` is 0, or the pages differ in size.
    pub fn new(
        devices: Devices,
        table: Arc<PageTable>,
        frames: usize,
    ) -> Result<StaticPool, BufferError> {
        assert!(frames > 0, "a pool needs frames to read into");
        let page_bytes = if table.is_empty() { PAGE_UNIT_BYTES } else { table.id(0).bytes() };
        let alike = |page| table.id(page).bytes() == page_bytes;
        assert!((0..table.len()).all(alike), "pages of a static pool have one size");
        let bytes = frames as u64 * page_bytes as u64;
        let frames = Frames::new(page_bytes, frames)
            .map_err(|source| BufferError::Memory { bytes, source })?;
        Ok(StaticPool {
            devices,
            table,
            page_bytes,
            frames,
            permanent: OnceLock::new(),
            cache_taken: AtomicBool::new(false),
            reads: AtomicU64::new(0),
            shared: AtomicU64::new(0),
        })
    }

    /// Readies the frames for faster transfers on every worker. Blocks this thread, which must be
    /// no worker. True if the driver could.
    pub fn register(&self, runtime: &Runtime) -> bool {
        runtime.register(self.frames.arena())
    }

    /// The pool's pages.
    pub fn table(&self) -> &PageTable {
        &self.table
    }

    /// Bytes of each page.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// The devices that the pages lie on.
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Frames for pages that are not permanent, and how many of them are free.
    pub fn frames(&self) -> (usize, usize) {
        (self.frames.len(), self.frames.free_count())
    }

    /// What the pool has done so far.
    pub fn stats(&self) -> PoolStats {
        PoolStats {
            reads: self.reads.load(Ordering::Relaxed),
            shared: self.shared.load(Ordering::Relaxed),
        }
    }

    /// The page of a hot swip; `None` if it has to be waited for.
    #[inline]
    pub fn try_fix<'a>(&'a self, swip: &'a Swip) -> Option<StaticGuard<'a>> {
        let state = swip.state();
        let SwipState::Hot(page) = state else { return None };
        match self.frames.index_of(page) {
            None => {
                let permanent = self.permanent.get().expect("a hot page is this pool's");
                assert!(permanent.contains(page, self.page_bytes), "foreign swip");
                Some(self.guard(page, None))
            }
            Some(index) => {
                let pin = self.frames.pin(index, Phase::Loaded, swip, state)?;
                Some(self.guard(page, Some(pin)))
            }
        }
    }

    /// The page that `swip` refers to, read from its device if it is not in memory. There is one
    /// read per page however many coroutines want it: the others wait for it.
    ///
    /// # Errors
    /// [`BufferError::Read`] if the device fails, [`BufferError::Page`] if the page is damaged.
    #[inline]
    pub async fn fix<'a>(&'a self, swip: &'a Swip) -> Result<StaticGuard<'a>, BufferError> {
        match self.try_fix(swip) {
            Some(guard) => Ok(guard),
            None => self.fix_slow(swip).await,
        }
    }

    async fn fix_slow<'a>(&'a self, swip: &'a Swip) -> Result<StaticGuard<'a>, BufferError> {
        loop {
            let state = swip.state();
            match state {
                SwipState::Hot(_) => {
                    if let Some(guard) = self.try_fix(swip) {
                        return Ok(guard);
                    }
                }
                SwipState::Loading(page) => {
                    let index = self.frames.index_of(page).expect("a swip of this pool");
                    if let Some(pin) = self.frames.pin(index, Phase::Loading, swip, state) {
                        self.shared.fetch_add(1, Ordering::Relaxed);
                        pin.wait().await;
                        if pin.phase() == Phase::Loaded {
                            return Ok(self.guard(page, Some(pin)));
                        }
                        continue; // The read failed: this coroutine tries next, or waits for who does.
                    }
                }
                SwipState::Cold(id) => {
                    if let Some(guard) = self.load(swip, id).await? {
                        return Ok(guard);
                    }
                }
            }
            // The swip is about to change its state on another worker.
            yield_now().await;
        }
    }

    /// Reads a cold page; `None` if another coroutine was first.
    async fn load<'a>(
        &'a self,
        swip: &'a Swip,
        id: PageId,
    ) -> Result<Option<StaticGuard<'a>>, BufferError> {
        let (pin, buffer) = self.frames.take(swip, id).await;
        let page = pin.page();
        if !swip.change(SwipState::Cold(id), SwipState::Loading(page)) {
            return Ok(None);
        }
        let loading = Loading { pin: Some(pin), id };
        self.reads.fetch_add(1, Ordering::Relaxed);
        let device = self.devices.of(id);
        let (result, buffer) = device.read_exact(buffer, id.offset()).await;
        result?;
        if buffer.len() >= ANNOUNCED_BYTES_MIN {
            // The bytes are in memory, not in a cache: others run while they come.
            announce(&buffer).await;
        }
        page::verify(&buffer, id).map_err(|source| BufferError::Page {
            path: device.path().into(),
            id,
            source,
        })?;
        let pin = loading.succeeded();
        pin.loaded(buffer);
        Ok(Some(self.guard(page, Some(pin))))
    }

    #[inline]
    fn guard<'a>(&self, page: NonNull<u8>, pin: Option<Pin<'a>>) -> StaticGuard<'a> {
        StaticGuard { page, bytes: self.page_bytes, _pin: pin }
    }

    /// Notes that the pool's one cache was made.
    pub(crate) fn take_cache(&self) {
        assert!(!self.cache_taken.swap(true, Ordering::Relaxed), "a pool has one static cache");
    }

    /// The arena of the permanent pages; made at the first call, with room for all pages.
    pub(crate) fn permanent(&self) -> Result<&Arc<Arena>, BufferError> {
        if let Some(arena) = self.permanent.get() {
            return Ok(arena);
        }
        let bytes = self.table.bytes();
        let arena = Arena::new(bytes.max(1) as usize)
            .map_err(|source| BufferError::Memory { bytes, source })?;
        Ok(self.permanent.get_or_init(|| arena))
    }
}

/// A load under way: turns the swip cold again if the coroutine is dropped or fails meanwhile.
struct Loading<'a> {
    pin: Option<Pin<'a>>,
    id: PageId,
}

impl<'a> Loading<'a> {
    fn succeeded(mut self) -> Pin<'a> {
        self.pin.take().expect("ends once")
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        if let Some(pin) = &self.pin {
            pin.failed(self.id);
        }
    }
}

/// A page in memory: it stays there while the guard lives.
pub struct StaticGuard<'a> {
    page: NonNull<u8>,
    bytes: usize,
    /// `None` for permanent pages, which live as long as the pool.
    _pin: Option<Pin<'a>>,
}

impl Deref for StaticGuard<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the page is permanent or pinned, so its memory is initialized, mapped, `bytes`
        // long and written by nobody while the guard lives.
        unsafe { std::slice::from_raw_parts(self.page.as_ptr(), self.bytes) }
    }
}

// SAFETY: a guard only reads the page, and lets go of its pin through atomics.
unsafe impl Send for StaticGuard<'_> {}
// SAFETY: as above.
unsafe impl Sync for StaticGuard<'_> {}
