//! The frames of a buffer pool: a range of addresses per frame size, and what is known of each frame.
//!
//! Addresses are reserved once, for as many frames of each size as could ever be wanted; memory comes
//! with the first use of a frame and goes by [`Frames::discard`]. So any frame can be told from its
//! address, and memory moves between sizes without anything being copied.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use weft_rt::io::Arena;

use crate::frame_size::{FRAME_SIZES, FrameSize};
use crate::frame_state::FrameState;
use crate::page::{PAGE_UNIT_BYTES, PageId};
use crate::page_table::Pages;
use crate::swip::{Swip, SwipState};

/// Longest range of one frame size: 2 TiB, so that all of them are half of the address space.
const RANGE_BITS_MAX: u32 = 41;
/// Shortest range that is made of a longer one because address space is limited: 64 MiB.
const RANGE_BITS_LIMITED: u32 = 26;
/// Shortest range: one huge page, two of the largest frames.
const RANGE_BITS_MIN: u32 = 21;

/// What is known of a frame. All zeros is a frame that was never used.
pub(crate) struct Frame {
    pub(crate) state: FrameState,
    /// The page that the frame holds or is loading, as bits of its id.
    id: AtomicU64,
    /// The table of that page, as a counted reference, and its number in there.
    pages: AtomicPtr<Pages>,
    page: AtomicU32,
    /// Neighbours in the list that the frame is in, and when it came there; all changed under the lock
    /// of the lists only.
    pub(crate) previous: AtomicU32,
    pub(crate) next: AtomicU32,
    pub(crate) stamp: AtomicU32,
    pub(crate) list: AtomicU8,
}

/// All frames of a pool, by number: first those of the smallest size, and so on.
pub(crate) struct Frames {
    arena: Arc<Arena>,
    /// The memory of the array of [`Frame`], which is zero where no frame was used.
    known: Arc<Arena>,
    range_bits: u32,
    /// Number of the first frame of each size, and one beyond the last of all.
    first: [u32; FRAME_SIZES + 1],
}

impl Frames {
    /// Frames of each size for `bytes` bytes, as far as there are addresses for so many.
    ///
    /// # Errors
    /// The system's error if it has no address space left.
    pub(crate) fn new(bytes: u64) -> io::Result<Frames> {
        let wanted = bytes.clamp(1, 1 << RANGE_BITS_MAX).next_power_of_two().trailing_zeros();
        let mut range_bits = wanted.clamp(RANGE_BITS_MIN, RANGE_BITS_MAX);
        let arena = loop {
            match Arena::sparse(FRAME_SIZES << range_bits) {
                Ok(arena) => break arena,
                // Address space may be limited: a pool with shorter ranges does, too.
                Err(_) if range_bits > RANGE_BITS_LIMITED => range_bits -= 1,
                Err(error) => return Err(error),
            }
        };
        let mut first = [0; FRAME_SIZES + 1];
        for size in FrameSize::all() {
            let count = (1_usize << range_bits) / size.bytes();
            first[size.index() + 1] = first[size.index()] + count as u32;
        }
        let known = Arena::sparse(first[FRAME_SIZES] as usize * size_of::<Frame>())?;
        Ok(Frames { arena, known, range_bits, first })
    }

    fn all(&self) -> &[Frame] {
        let start = self.known.as_ptr().cast::<Frame>().as_ptr();
        // SAFETY: the arena has so many bytes, page-aligned and zeroed, which are valid frames, and
        // they are only used as such.
        unsafe { std::slice::from_raw_parts(start, self.first[FRAME_SIZES] as usize) }
    }

    #[inline]
    pub(crate) fn get(&self, frame: u32) -> &Frame {
        &self.all()[frame as usize]
    }

    #[inline]
    pub(crate) fn state(&self, frame: u32) -> &FrameState {
        &self.get(frame).state
    }

    /// Numbers of the frames of a size.
    pub(crate) fn of_size(&self, size: FrameSize) -> std::ops::Range<u32> {
        self.first[size.index()]..self.first[size.index() + 1]
    }

    /// The frame whose memory starts at `page`; `None` if the address is no frame's.
    #[inline]
    pub(crate) fn at(&self, page: NonNull<u8>) -> Option<u32> {
        self.sized_at(page).map(|(frame, _)| frame)
    }

    /// The frame whose memory starts at `page`, and its size.
    #[inline]
    pub(crate) fn sized_at(&self, page: NonNull<u8>) -> Option<(u32, FrameSize)> {
        let offset = page.as_ptr().addr().wrapping_sub(self.arena.as_ptr().as_ptr().addr());
        let index = offset >> self.range_bits;
        if index >= FRAME_SIZES {
            return None;
        }
        let size = FrameSize::of_index(index);
        // Fits, as a range has at most 2^29 units.
        let unit = ((offset & ((1 << self.range_bits) - 1)) / PAGE_UNIT_BYTES) as u32;
        Some((self.first[index] + unit / size.units() as u32, size))
    }

    pub(crate) fn size(&self, frame: u32) -> FrameSize {
        FrameSize::of_index(self.first.partition_point(|&first| first <= frame) - 1)
    }

    /// Address of a frame's memory.
    pub(crate) fn page(&self, frame: u32) -> NonNull<u8> {
        let size = self.size(frame);
        let index = (frame - self.first[size.index()]) as usize;
        // SAFETY: the frame lies in its size's range, which lies in the arena.
        unsafe { self.arena.as_ptr().add((size.index() << self.range_bits) + index * size.bytes()) }
    }

    /// Takes memory for frames of one size that have none, on huge pages where they fill some.
    pub(crate) fn populate(&self, frames: std::ops::Range<u32>) {
        let bytes = frames.len() * self.size(frames.start).bytes();
        self.arena.populate(self.page(frames.start), bytes);
    }

    /// Gives a frame's memory back to the system.
    ///
    /// # Safety
    /// The frame must be free, and the caller's.
    pub(crate) unsafe fn discard(&self, frame: u32) {
        // SAFETY: the frame is free, so neither device nor guard uses its memory.
        unsafe { self.arena.discard(self.page(frame), self.size(frame).bytes()) };
    }
}

impl Frame {
    /// Notes the page that a free frame, the caller's, is about to load.
    pub(crate) fn settle(&self, pages: Arc<Pages>, page: usize, id: PageId) {
        // Nobody looks at these before the frame is loading.
        self.id.store(id.to_bits(), Ordering::Relaxed);
        self.page.store(page as u32, Ordering::Relaxed);
        let before = self.pages.swap(Arc::into_raw(pages).cast_mut(), Ordering::Relaxed);
        assert!(before.is_null(), "the frame belongs to a page");
    }

    /// The page that the frame holds; for whoever has a pin or has claimed it.
    pub(crate) fn id(&self) -> PageId {
        let id = self.id.load(Ordering::Relaxed);
        PageId::from_bits(id).expect("the id of a loaded page")
    }

    /// The page has another place from now on; for the holder of its exclusive guard.
    pub(crate) fn relocate(&self, id: PageId) {
        let pages = self.pages.load(Ordering::Relaxed);
        assert!(!pages.is_null(), "a frame without a page was relocated");
        // SAFETY: the reference that `settle` counted, which stays while the frame is locked.
        let pages = unsafe { &*pages };
        pages.set_id(self.page.load(Ordering::Relaxed) as usize, id);
        self.id.store(id.to_bits(), Ordering::Relaxed);
    }

    /// The page leaves: its swip turns cold if it led to `hot`. For whoever has claimed the frame, or has
    /// let go of its last pin.
    pub(crate) fn leave(&self, hot: NonNull<u8>) {
        let pages = self.pages.swap(std::ptr::null_mut(), Ordering::Relaxed);
        assert!(!pages.is_null(), "a frame without a page was left");
        // SAFETY: the reference that `settle` counted, taken out once.
        let pages = unsafe { Arc::from_raw(pages) };
        let swip: &Swip = &pages.swips[self.page.load(Ordering::Relaxed) as usize];
        if swip.state() == SwipState::Hot(hot) {
            swip.set(SwipState::Cold(self.id()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_frames_belong_together() {
        let frames = Frames::new(3 << 20).unwrap();
        let mut seen = 0;
        for size in FrameSize::all() {
            let range = frames.of_size(size);
            assert_eq!(range.start, seen);
            seen = range.end;
            for frame in [range.start, range.start + 1, range.end - 1] {
                assert_eq!(frames.size(frame), size);
                assert_eq!(frames.at(frames.page(frame)), Some(frame));
            }
        }
        let outside = NonNull::from(&mut 5_u64).cast();
        assert_eq!(frames.at(outside), None);
    }
}
