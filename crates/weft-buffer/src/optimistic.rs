//! Pages that are read without a pin.
//!
//! A descent of a tree looks at a few words of each page. A pin would cost two atomic exchanges on a
//! cache line that all workers share, for a look of nanoseconds; an optimistic reader costs two loads. (Leis,
//! Haubenschild, Neumann, "Optimistic Lock Coupling", 2019.) It may see another page, or half a change: so
//! whatever it reads may be anything, lies within the frame, and counts only once
//! [`OptimisticPage::validate`] has said so.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::frame_state::{FrameState, FrameVersion};

/// A page in memory that may leave or change at any time.
#[derive(Clone, Copy)]
pub struct OptimisticPage<'a> {
    page: NonNull<u8>,
    /// Bytes of the frame, which are mapped while the pool is.
    bytes: usize,
    state: &'a FrameState,
    version: FrameVersion,
}

impl<'a> OptimisticPage<'a> {
    #[inline]
    pub(crate) fn new(
        page: NonNull<u8>,
        bytes: usize,
        state: &'a FrameState,
        version: FrameVersion,
    ) -> OptimisticPage<'a> {
        OptimisticPage { page, bytes, state, version }
    }

    /// True if the page has been there, unchanged, all the time: what was read of it is so.
    #[inline]
    pub fn validate(&self) -> bool {
        self.state.validate(self.version)
    }

    /// Asks for the cache line of the byte at `at`, without suspending.
    #[inline]
    pub fn prefetch_line(&self, at: usize) {
        weft_rt::prefetch_line(self.page.as_ptr().wrapping_add(at));
    }

    /// The byte at `at`; 0 beyond the frame.
    #[inline]
    pub fn u8_at(&self, at: usize) -> u8 {
        (self.u32_at(at & !3) >> (8 * (at & 3))) as u8
    }

    /// The two bytes at `at`, a multiple of two, as a little-endian number; 0 beyond the frame.
    #[inline]
    pub fn u16_at(&self, at: usize) -> u16 {
        (self.u32_at(at & !3) >> (8 * (at & 2))) as u16
    }

    /// The four bytes at `at`, a multiple of four, as a little-endian number; 0 beyond the frame.
    #[inline]
    pub fn u32_at(&self, at: usize) -> u32 {
        if at >= self.bytes || !at.is_multiple_of(4) {
            return 0;
        }
        // SAFETY: the word lies in the frame's memory, which is aligned, has a multiple of four bytes and is
        // mapped as long as the pool lives; those who write to it while others may read do so by atomics of
        // this size, or are devices.
        let word = unsafe { AtomicU32::from_ptr(self.page.as_ptr().add(at).cast()) };
        u32::from_le(word.load(Ordering::Relaxed))
    }
}

impl std::fmt::Debug for OptimisticPage<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OptimisticPage({:?}, {} bytes)", self.version, self.bytes)
    }
}
