//! What a buffer pool does with its frames while no page is fixed: which are free, which have memory,
//! and in which order pages leave. All of it lies under one lock.
//!
//! Pages that somebody fixed are in one queue, whatever their size, in the order in which they came or
//! were last spared (second chance). Pages that a scan has read and nobody fixed since are on probation
//! (the first queue of 2Q), in a queue per frame size: a scan then uses the frames of its own pages again
//! without a system call.

use std::ops::Range;
use std::sync::atomic::Ordering;

use weft_rt::io::HUGE_PAGE_BYTES;
use weft_rt::memory::Reservation;

use crate::frame_size::{FRAME_SIZES, FrameSize};
use crate::frames::Frames;

/// Bytes of a size's frames from which on memory comes by huge pages: what may lie idle in the last one is
/// half as much at most.
const HUGE_FROM_BYTES: usize = 2 * HUGE_PAGE_BYTES;

/// No frame.
const NONE: u32 = u32::MAX;

/// Where a frame is queued, as its field `list` says it.
const UNLISTED: u8 = 0;
const MAIN: u8 = 1;
const PROBATION: u8 = 2;

pub(crate) struct Shelf {
    /// What the pool has of the ledger.
    pub(crate) memory: Reservation,
    /// Bytes of the frames that have memory.
    backed_bytes: u64,
    racks: [Rack; FRAME_SIZES],
    main: List,
    probation_len: usize,
    main_bytes: u64,
    stamp: u32,
}

/// The frames of one size.
struct Rack {
    /// Free ones that have memory; the last one is the likeliest to be in a cache.
    free: Vec<u32>,
    /// Free ones without, that had some before.
    bare: Vec<u32>,
    /// The first one that was never used, and one beyond the last.
    untouched: u32,
    end: u32,
    probation: List,
}

/// A queue of frames, linked through them.
#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
    len: usize,
}

impl List {
    const EMPTY: List = List { first: NONE, last: NONE, len: 0 };
}

impl Shelf {
    pub(crate) fn new(frames: &Frames, memory: Reservation) -> Shelf {
        let rack = |index| {
            let range = frames.of_size(FrameSize::of_index(index));
            let (untouched, end) = (range.start, range.end);
            Rack { free: Vec::new(), bare: Vec::new(), untouched, end, probation: List::EMPTY }
        };
        Shelf {
            memory,
            backed_bytes: 0,
            racks: std::array::from_fn(rack),
            main: List::EMPTY,
            probation_len: 0,
            main_bytes: 0,
            stamp: 0,
        }
    }

    /// Bytes of the frames that have memory.
    pub(crate) fn backed_bytes(&self) -> u64 {
        self.backed_bytes
    }

    /// Bytes of the ledger that no frame has.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.memory.bytes() - self.backed_bytes
    }

    /// Pages in memory that are not on probation, and those that are.
    pub(crate) fn listed(&self) -> (usize, usize) {
        (self.main.len, self.probation_len)
    }

    pub(crate) fn listed_of(&self, size: FrameSize) -> usize {
        self.racks[size.index()].probation.len
    }

    /// A free frame of this size that has memory.
    pub(crate) fn take_free(&mut self, size: FrameSize) -> Option<u32> {
        self.racks[size.index()].free.pop()
    }

    /// A free frame of any size that has memory.
    pub(crate) fn take_any_free(&mut self) -> Option<u32> {
        self.racks.iter_mut().find_map(|rack| rack.free.pop())
    }

    /// Puts a free frame back that has memory.
    pub(crate) fn put_free(&mut self, frames: &Frames, frame: u32) {
        self.racks[frames.size(frame).index()].free.push(frame);
    }

    /// Puts a free frame back whose memory was given back to the system.
    pub(crate) fn put_bare(&mut self, frames: &Frames, frame: u32) {
        let size = frames.size(frame);
        self.backed_bytes -= size.bytes() as u64;
        self.racks[size.index()].bare.push(frame);
    }

    /// True if every frame of the size's range has memory.
    pub(crate) fn is_exhausted(&self, size: FrameSize) -> bool {
        let rack = &self.racks[size.index()];
        rack.bare.is_empty() && rack.untouched == rack.end
    }

    /// A frame that had no memory, given some from the ledger; `None` if that has none free, or every
    /// frame of the size has some.
    pub(crate) fn back(&mut self, size: FrameSize) -> Option<u32> {
        if self.is_exhausted(size) {
            return None;
        }
        let bytes = size.bytes() as u64;
        let lacks = bytes.saturating_sub(self.spare_bytes());
        if lacks > 0 && !self.memory.try_grow_from_free(lacks) {
            return None;
        }
        let rack = &mut self.racks[size.index()];
        let frame = rack.bare.pop().unwrap_or_else(|| {
            rack.untouched += 1;
            rack.untouched - 1
        });
        self.backed_bytes += bytes;
        Some(frame)
    }

    /// The frames that begin the next huge page of the size's range and end in it, given memory from the ledger;
    /// `None` if that has not so much free, or if it is not the turn of a huge page. The caller takes the
    /// memory and puts the frames where they belong. (What the page has behind them is resident, but counts when the turn of the
    /// frame comes that begins there: less than a frame of each size.)
    pub(crate) fn back_huge_page(
        &mut self,
        frames: &Frames,
        size: FrameSize,
    ) -> Option<Range<u32>> {
        let rack = &self.racks[size.index()];
        let offset = (rack.untouched - frames.of_size(size).start) as usize * size.bytes();
        // Ranges begin at huge pages.
        let page = (offset + size.bytes() - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        if !rack.bare.is_empty() || offset < HUGE_FROM_BYTES || page < offset {
            return None;
        }
        let count = ((page + HUGE_PAGE_BYTES - offset) / size.bytes()) as u32;
        let taken = rack.untouched..rack.untouched + count;
        if taken.end > rack.end {
            return None;
        }
        let bytes = (taken.len() * size.bytes()) as u64;
        let lacks = bytes.saturating_sub(self.spare_bytes());
        if lacks > 0 && !self.memory.try_grow_from_free(lacks) {
            return None;
        }
        self.racks[size.index()].untouched = taken.end;
        self.backed_bytes += bytes;
        Some(taken)
    }

    /// What the pool has of the ledger beyond its frames' memory and the `floor_bytes`, to be dropped
    /// without the lock.
    pub(crate) fn surplus(&mut self, floor_bytes: u64) -> Reservation {
        let kept = self.backed_bytes.max(floor_bytes);
        let surplus = self.memory.bytes().saturating_sub(kept);
        self.memory.split(surplus)
    }

    fn list(&mut self, frames: &Frames, frame: u32, list: u8) -> &mut List {
        match list {
            MAIN => &mut self.main,
            _ => &mut self.racks[frames.size(frame).index()].probation,
        }
    }

    /// Puts a page at the end of its queue.
    pub(crate) fn push(&mut self, frames: &Frames, frame: u32, on_probation: bool) {
        let kind = if on_probation { PROBATION } else { MAIN };
        let known = frames.get(frame);
        assert_eq!(known.list.swap(kind, Ordering::Relaxed), UNLISTED, "frame {frame} is queued");
        self.stamp = self.stamp.wrapping_add(1);
        known.stamp.store(self.stamp, Ordering::Relaxed);
        if on_probation {
            self.probation_len += 1;
        } else {
            self.main_bytes += frames.size(frame).bytes() as u64;
        }
        let list = self.list(frames, frame, kind);
        known.previous.store(list.last, Ordering::Relaxed);
        known.next.store(NONE, Ordering::Relaxed);
        match list.last {
            NONE => list.first = frame,
            last => frames.get(last).next.store(frame, Ordering::Relaxed),
        }
        list.last = frame;
        list.len += 1;
    }

    /// Takes a page out of its queue, if it is in one.
    pub(crate) fn unlink(&mut self, frames: &Frames, frame: u32) {
        let known = frames.get(frame);
        let kind = known.list.swap(UNLISTED, Ordering::Relaxed);
        if kind == UNLISTED {
            return;
        }
        if kind == PROBATION {
            self.probation_len -= 1;
        } else {
            self.main_bytes -= frames.size(frame).bytes() as u64;
        }
        let list = self.list(frames, frame, kind);
        let previous = known.previous.load(Ordering::Relaxed);
        let next = known.next.load(Ordering::Relaxed);
        match previous {
            NONE => list.first = next,
            previous => frames.get(previous).next.store(next, Ordering::Relaxed),
        }
        match next {
            NONE => list.last = previous,
            next => frames.get(next).previous.store(previous, Ordering::Relaxed),
        }
        list.len -= 1;
    }

    /// The page that has been longest in the main queue.
    pub(crate) fn first_of_main(&self) -> Option<u32> {
        (self.main.first != NONE).then_some(self.main.first)
    }

    /// The page of this size that has been longest on probation.
    pub(crate) fn first_on_probation(&self, size: FrameSize) -> Option<u32> {
        let first = self.racks[size.index()].probation.first;
        (first != NONE).then_some(first)
    }

    /// The page that has been longest on probation.
    pub(crate) fn oldest_on_probation(&self, frames: &Frames) -> Option<u32> {
        if self.probation_len == 0 {
            return None;
        }
        let firsts = self.racks.iter().map(|rack| rack.probation.first);
        firsts.filter(|&first| first != NONE).max_by_key(|&first| self.age(frames, first))
    }

    /// Pages that came to the queues since this one did.
    fn age(&self, frames: &Frames, frame: u32) -> u32 {
        self.stamp.wrapping_sub(frames.get(frame).stamp.load(Ordering::Relaxed))
    }

    /// True if a page on probation is not far younger than the oldest one.
    pub(crate) fn is_old(&self, frames: &Frames, frame: u32) -> bool {
        let oldest = self.oldest_on_probation(frames).map_or(0, |oldest| self.age(frames, oldest));
        self.age(frames, frame) >= oldest / 4
    }

    /// True if the main queue has so much of the memory that scans have less than an eighth.
    pub(crate) fn is_main_long(&self) -> bool {
        self.main_bytes > self.backed_bytes / 8 * 7
    }

    /// All pages in the queues.
    pub(crate) fn pages(&self, frames: &Frames) -> Vec<u32> {
        let mut pages = Vec::with_capacity(self.main.len + self.probation_len);
        let lists = self.racks.iter().map(|rack| rack.probation).chain([self.main]);
        for list in lists {
            let mut frame = list.first;
            while frame != NONE {
                pages.push(frame);
                frame = frames.get(frame).next.load(Ordering::Relaxed);
            }
        }
        pages
    }
}
