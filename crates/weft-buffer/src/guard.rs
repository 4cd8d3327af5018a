//! Guards: pages in memory, for as long as somebody looks at them.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::page::{self, PAGE_HEADER_BYTES, PageHeader, PageId};
use crate::page_cache::PageCache;

/// Bytes that are compared at a time where a page is replaced.
const LINE_BYTES: usize = 64;

/// Keeps a pool's memory mapped. A pool has several, so that threads do not count their guards in one
/// and the same cache line.
#[repr(align(128))]
pub(crate) struct Anchor(pub(crate) Arc<PageCache>);

/// A page in memory: it stays there while the guard lives, whatever becomes of pool and table. Owned, so
/// that it may go to other coroutines and threads. Dereferences to the page's bytes, header included.
pub struct PageGuard {
    page: NonNull<u8>,
    bytes: usize,
    frame: u32,
    anchor: Arc<Anchor>,
}

impl PageGuard {
    /// Takes over a pin of the frame at `page`, which holds a page of `bytes` bytes.
    #[inline]
    pub(crate) fn new(
        page: NonNull<u8>,
        bytes: usize,
        frame: u32,
        anchor: Arc<Anchor>,
    ) -> PageGuard {
        PageGuard { page, bytes, frame, anchor }
    }

    /// The page's header.
    pub fn header(&self) -> PageHeader {
        page::header(self)
    }

    /// The bytes behind the header.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self[PAGE_HEADER_BYTES..]
    }
}

impl Deref for PageGuard {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the page is pinned and the anchor keeps it mapped, so its memory is initialized,
        // `bytes` long and written by nobody while the guard lives.
        unsafe { std::slice::from_raw_parts(self.page.as_ptr(), self.bytes) }
    }
}

impl AsRef<[u8]> for PageGuard {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for PageGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageGuard({:?})", self.header().id)
    }
}

impl Drop for PageGuard {
    #[inline]
    fn drop(&mut self) {
        self.anchor.0.unpin(self.frame);
    }
}

// SAFETY: a guard only reads the page, and lets go of its pin through atomics and locks.
unsafe impl Send for PageGuard {}
// SAFETY: as above.
unsafe impl Sync for PageGuard {}

/// A page in memory that nobody else uses: it stays there, and stays alone, while the guard lives.
/// Dereferences to the page's bytes, header included; what is changed in the header is lost, apart from
/// the number of tuples and the kind.
pub struct PageGuardMut {
    page: NonNull<u8>,
    bytes: usize,
    /// The frame, which this guard has locked.
    frame: u32,
    dirty: bool,
    cache: Arc<PageCache>,
}

impl PageGuardMut {
    /// Takes over the lock of a frame.
    pub(crate) fn new(cache: Arc<PageCache>, frame: u32) -> PageGuardMut {
        cache.note_changer();
        let page = cache.frames.page(frame);
        let bytes = cache.frames.get(frame).id().bytes();
        let dirty = cache.frames.state(frame).is_dirty();
        PageGuardMut { page, bytes, frame, dirty, cache }
    }

    /// Says that the page has to be written before it leaves memory. Writing through the guard says so
    /// too.
    pub fn mark_dirty(&mut self) {
        self.dirty = true;
    }

    /// Where the page lies, or will when it is written.
    pub fn id(&self) -> PageId {
        self.cache.frames.get(self.frame).id()
    }

    /// Gives the page another place: it is dirty, and what lies at the old one stays as it is.
    ///
    /// # Panics
    /// If `id` has another size.
    pub fn relocate(&mut self, id: PageId) {
        assert_eq!(id.bytes(), self.bytes, "bytes of the page and of its new place");
        self.dirty = true;
        self.cache.frames.get(self.frame).relocate(id);
    }

    /// The page is no more: its number is vacant, and it leaves memory without being written, as soon as
    /// those have looked at it who found it before.
    pub fn vacate(self) {
        let frame = self.cache.frames.get(self.frame);
        frame.relocate(PageId::vacant(self.bytes));
        frame.state.orphan();
    }

    /// Makes the page's bytes behind the header those of `image`, for optimistic readers, too: they see
    /// each word as it was or as it will be. Tuples and kind are those of the image's header.
    ///
    /// # Panics
    /// If `image` has another length.
    pub fn replace(&mut self, image: &[u8]) {
        assert_eq!(image.len(), self.bytes, "bytes of the page and of its image");
        for (line, new) in image.chunks(LINE_BYTES).enumerate() {
            let at = line * LINE_BYTES;
            // Most lines stay as they are: no other thread writes, so they may be compared as bytes.
            if self[at..at + new.len()] == *new {
                continue;
            }
            let header_words = PAGE_HEADER_BYTES.saturating_sub(at) / 4;
            for (index, word) in new.chunks_exact(4).enumerate().skip(header_words) {
                let word = u32::from_ne_bytes(word.try_into().expect("4 bytes"));
                let place = self.page.as_ptr().wrapping_add(at).cast::<u32>().wrapping_add(index);
                // SAFETY: the word lies in the page, which is aligned; a concurrent reader reads it by atomics of
                // this size.
                unsafe { AtomicU32::from_ptr(place) }.store(word, Ordering::Relaxed);
            }
        }
        // No other thread looks at the header.
        self[4..7].copy_from_slice(&image[4..7]);
    }
}

impl Deref for PageGuardMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the frame is locked by this guard, so its memory is initialized, mapped and used by
        // nobody else while the guard lives.
        unsafe { std::slice::from_raw_parts(self.page.as_ptr(), self.bytes) }
    }
}

impl DerefMut for PageGuardMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.dirty = true;
        // SAFETY: as for `deref`; `&mut self` makes the access exclusive within the guard.
        unsafe { std::slice::from_raw_parts_mut(self.page.as_ptr(), self.bytes) }
    }
}

impl Drop for PageGuardMut {
    fn drop(&mut self) {
        self.cache.unlock(self.frame, self.dirty);
    }
}

// SAFETY: the guard has the page alone, and lets go of it through atomics and locks.
unsafe impl Send for PageGuardMut {}
// SAFETY: shared access only reads the bytes.
unsafe impl Sync for PageGuardMut {}
