//! Pages as they are on disk: a header, tuples from there on, long strings from the back. Strings that states keep behind
//! addresses lie among them, too, so that no byte refers to an address. If there are strings, and no lists or sets, tuples lie
//! on disk one behind the other ([`Dense`]), and take the form that they have in memory when they are read.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 to 15 | the spill area's: checksum and address |
//! | 16 to 23 | number of tuples |
//! | 24 to 31 | bytes of a tuple |
//! | 32 … | tuples |

use std::sync::Arc;

use weft_rt::io::IoBuf;
use weft_rt::memory::Reservation;
use weft_rt::prefetch_line;
use weft_store::spill::HEADER_BYTES as AREA_BYTES;

use crate::tasks::Counted;
use crate::tuple::Layout;
use crate::tuple::dense::{Dense, DenseSize};
use crate::tuple::pack::{Form, long_bytes, pack};
use crate::tuple::page::Slot;

/// What the length of a page is a multiple of.
pub(crate) const GRAIN_BYTES: usize = 4 << 10;
/// Bytes of a page on disk, unless its only tuple needs more; also in memory where that is scarce.
pub(crate) const FROZEN_BYTES_MAX: usize = 64 << 10;
/// Bytes that it may take in memory elsewhere: on disk its tuples need less.
pub(crate) const THAWED_BYTES_MAX: usize = 128 << 10;
/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
const TUPLES_AT: usize = AREA_BYTES;
const TUPLE_BYTES_AT: usize = TUPLES_AT + 8;
const HEADER_BYTES: usize = TUPLE_BYTES_AT + 8;

/// Bytes of the page for a first tuple of `first_bytes` and others, `all_bytes` together.
pub(crate) fn page_bytes(first_bytes: usize, all_bytes: usize) -> usize {
    page_bytes_within(FROZEN_BYTES_MAX, first_bytes, all_bytes)
}

/// The same, `most_bytes` at most unless the first tuple needs more.
pub(crate) fn page_bytes_within(most_bytes: usize, first_bytes: usize, all_bytes: usize) -> usize {
    let bytes = (HEADER_BYTES + all_bytes).min(most_bytes).max(HEADER_BYTES + first_bytes);
    bytes.next_multiple_of(GRAIN_BYTES)
}

/// A page that is being filled.
#[derive(Debug)]
pub(crate) struct Freezing {
    buffer: IoBuf,
    tuples: usize,
    tuple_bytes: usize,
    /// Bytes that it may take in memory.
    bytes_max: usize,
    /// Where long strings begin, or would in memory.
    strings: usize,
    dense: Option<Filled>,
}

/// A page with tuples that do not lie on disk as in memory.
#[derive(Debug)]
struct Filled {
    dense: Arc<Dense>,
    /// Bytes of the page that are taken.
    bytes: usize,
}

/// A page that is to be written.
#[derive(Debug)]
pub(crate) struct Full {
    pub(crate) buffer: IoBuf,
    pub(crate) tuples: usize,
    /// What it is in memory.
    pub(crate) thawing: Thawing,
}

/// What a page becomes when it is read.
#[derive(Clone, Debug)]
pub(crate) struct Thawing {
    /// Bytes that it takes in memory.
    pub(crate) bytes: usize,
    dense: Option<Arc<Dense>>,
}

impl Freezing {
    /// An empty page for tuples of a layout, of [`page_bytes`]. If they take less on disk than in memory, it may take up to
    /// `thawed_bytes` there if that is more.
    pub(crate) fn new(bytes: usize, thawed_bytes: usize, layout: &Layout) -> Freezing {
        assert!(layout.bytes().is_multiple_of(8), "tuples are aligned");
        let dense =
            layout.dense().map(|dense| Filled { dense: dense.clone(), bytes: HEADER_BYTES });
        // A dense page has no gap.
        let buffer =
            if dense.is_some() { IoBuf::to_be_filled(bytes) } else { IoBuf::zeroed(bytes) };
        let bytes_max = if dense.is_some() { bytes.max(thawed_bytes) } else { bytes };
        let tuple_bytes = layout.bytes();
        Freezing { buffer, tuples: 0, tuple_bytes, bytes_max, strings: bytes_max, dense }
    }

    /// Packs a tuple; false if there is no room for it.
    ///
    /// # Safety
    /// There is a complete one of the layout, without lists and sets, in that form.
    #[inline(always)]
    pub(crate) unsafe fn add(&mut self, layout: &Layout, tuple: *const u8, form: Form) -> bool {
        let Some(filled) = &self.dense else {
            // SAFETY: as promised; the slot has room for the tuple.
            unsafe {
                let Some(slot) = self.slot(long_bytes(layout, tuple)) else { return false };
                pack(layout, tuple, form, slot);
            }
            return true;
        };
        // SAFETY: as promised.
        let size = unsafe { filled.dense.size(tuple) };
        // A single tuple has room: it takes no more on disk than in memory.
        let is_full = filled.bytes + size.bytes > self.buffer.len();
        if is_full || !self.has_room(size.long_bytes) {
            return false;
        }
        self.take(size.long_bytes);
        let Some(filled) = &mut self.dense else { unreachable!("it was there") };
        // SAFETY: as promised.
        unsafe { filled.dense.put(tuple, form, size, &mut self.buffer[filled.bytes..]) };
        filled.bytes += size.bytes;
        true
    }

    /// Room for a tuple as it lies on disk: its begin, and where its strings follow; `None` if there is not so much.
    ///
    /// # Panics
    /// If tuples lie on disk as in memory.
    #[inline]
    pub(crate) fn dense_slot(&mut self, size: DenseSize) -> Option<Slot> {
        let has_room = self.has_room(size.long_bytes);
        let filled = self.dense.as_mut().expect("tuples as on disk");
        let begin = filled.bytes;
        if begin + size.bytes > self.buffer.len() || !has_room {
            return None;
        }
        filled.bytes += size.bytes;
        let strings = begin + filled.dense.run_bytes();
        self.take(size.long_bytes);
        let start = self.buffer[begin..][..size.bytes].as_mut_ptr();
        // Many pages are filled at once, as where tuples are stored in memory.
        prefetch_line(start.wrapping_add(size.bytes + LINE_BYTES));
        Some(Slot { tuple: start, strings: start.wrapping_add(strings - begin) })
    }

    /// Number of tuples.
    pub(crate) fn tuples(&self) -> usize {
        self.tuples
    }

    /// Room for a tuple and `long_bytes` of strings; `None` if there is not so much.
    ///
    /// # Panics
    /// If tuples do not lie on disk as in memory.
    pub(crate) fn slot(&mut self, long_bytes: usize) -> Option<Slot> {
        assert!(self.dense.is_none(), "tuples as in memory");
        if !self.has_room(long_bytes) {
            return None;
        }
        let front = self.front();
        self.take(long_bytes);
        Some(Slot {
            tuple: self.buffer[front..].as_mut_ptr(),
            strings: self.buffer[self.strings..].as_mut_ptr(),
        })
    }

    /// Where the tuples end, in memory.
    fn front(&self) -> usize {
        HEADER_BYTES + self.tuples * self.tuple_bytes
    }

    /// Bytes that its tuples and their strings take in memory.
    pub(crate) fn tuples_bytes(&self) -> usize {
        self.tuples * self.tuple_bytes + self.bytes_max - self.strings
    }

    fn has_room(&self, long_bytes: usize) -> bool {
        self.front() + self.tuple_bytes + long_bytes <= self.strings
    }

    fn take(&mut self, long_bytes: usize) {
        self.tuples += 1;
        self.strings -= long_bytes;
    }

    /// The finished page.
    pub(crate) fn finish(self) -> Full {
        let bytes = self.bytes_max - (self.strings - self.front());
        let Freezing { mut buffer, tuples, tuple_bytes, dense, .. } = self;
        buffer[..TUPLES_AT].fill(0);
        buffer[TUPLES_AT..][..8].copy_from_slice(&(tuples as u64).to_le_bytes());
        buffer[TUPLE_BYTES_AT..][..8].copy_from_slice(&(tuple_bytes as u64).to_le_bytes());
        let thawing = match dense {
            None => Thawing { bytes: buffer.len(), dense: None },
            Some(Filled { dense, bytes: used_bytes }) => {
                let whole = used_bytes.next_multiple_of(GRAIN_BYTES);
                buffer[used_bytes..whole].fill(0);
                buffer.truncate(whole);
                Thawing { bytes: bytes.next_multiple_of(8), dense: Some(dense) }
            }
        };
        Full { buffer, tuples, thawing }
    }
}

/// Bytes of a tuple in memory, as a page that was read tells.
///
/// # Panics
/// If it has not as many tuples as were written.
fn checked_tuple_bytes(read: &IoBuf, tuples: usize, thawing: &Thawing) -> usize {
    let number =
        |at: usize| u64::from_le_bytes(read[at..at + 8].try_into().expect("8 bytes")) as usize;
    let tuple_bytes = number(TUPLE_BYTES_AT);
    assert_eq!(number(TUPLES_AT), tuples, "the page that was written");
    assert!(HEADER_BYTES + tuples * tuple_bytes <= thawing.bytes, "tuples of a page");
    tuple_bytes
}

/// A page that was read, for whoever goes through its tuples once, one after the other.
#[derive(Debug)]
pub(crate) enum Passing {
    /// Whose tuples lie on disk as in memory.
    Frozen(Frozen),
    /// Whose tuples lie in the buffer as on disk.
    Dense(DensePage),
}

impl Passing {
    /// The page in a buffer that the spill area has checked.
    ///
    /// # Panics
    /// If it has not as many tuples as were written.
    pub(crate) fn new(
        read: IoBuf,
        tuples: usize,
        thawing: &Thawing,
        held: (Reservation, Counted),
    ) -> Passing {
        let Some(dense) = &thawing.dense else {
            return Passing::Frozen(Frozen::new(read, tuples, thawing, held));
        };
        checked_tuple_bytes(&read, tuples, thawing);
        Passing::Dense(DensePage { read, next: 0, tuples, dense: dense.clone(), held })
    }

    /// Number of tuples.
    pub(crate) fn tuples(&self) -> usize {
        match self {
            Passing::Frozen(page) => page.tuples(),
            Passing::Dense(page) => page.tuples(),
        }
    }

    /// Its memory, when nobody refers to it any more.
    pub(crate) fn into_memory(self) -> Reservation {
        match self {
            Passing::Frozen(page) => page.into_memory(),
            Passing::Dense(DensePage { read, held, .. }) => {
                drop(read);
                held.0
            }
        }
    }
}

/// A page that was read, with its tuples as they lie on disk.
#[derive(Debug)]
pub(crate) struct DensePage {
    read: IoBuf,
    /// Where the next tuple begins.
    next: usize,
    tuples: usize,
    dense: Arc<Dense>,
    held: (Reservation, Counted),
}

impl DensePage {
    /// Number of tuples.
    pub(crate) fn tuples(&self) -> usize {
        self.tuples
    }

    /// The tuples, one behind the other.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.read[HEADER_BYTES..]
    }

    /// How they lie.
    pub(crate) fn dense(&self) -> &Dense {
        &self.dense
    }

    /// Goes on by as many tuples as there are `places`, which are set to where these begin.
    ///
    /// # Panics
    /// If there are not so many.
    pub(crate) fn pass(&mut self, places: &mut [usize]) {
        self.next = self.dense.find(&self.read[HEADER_BYTES..], self.next, places);
    }
}

/// A page that was read.
#[derive(Debug)]
pub(crate) struct Frozen {
    buffer: IoBuf,
    tuples: usize,
    tuple_bytes: usize,
    /// Its memory, and the task that has read it.
    held: (Reservation, Counted),
}

impl Frozen {
    /// The page in a buffer that the spill area has checked.
    ///
    /// # Panics
    /// If it has not as many tuples as were written.
    pub(crate) fn new(
        read: IoBuf,
        tuples: usize,
        thawing: &Thawing,
        held: (Reservation, Counted),
    ) -> Frozen {
        let tuple_bytes = checked_tuple_bytes(&read, tuples, thawing);
        let buffer = match &thawing.dense {
            None => read,
            Some(dense) => {
                let mut memory = IoBuf::to_be_filled(thawing.bytes);
                dense.thaw(&read[HEADER_BYTES..], tuples, &mut memory[HEADER_BYTES..]);
                memory
            }
        };
        Frozen { buffer, tuples, tuple_bytes, held }
    }

    /// Bytes of its memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.held.0.bytes()
    }

    /// Its memory, when nobody refers to it any more.
    pub(crate) fn into_memory(self) -> Reservation {
        drop(self.buffer);
        self.held.0
    }

    /// Number of tuples.
    pub(crate) fn tuples(&self) -> usize {
        self.tuples
    }

    /// The address of a tuple. Valid as long as the page is, wherever the page itself is moved.
    ///
    /// # Panics
    /// If there are not so many.
    pub(crate) fn tuple(&self, number: usize) -> *mut u8 {
        assert!(number < self.tuples, "tuple {number} of {}", self.tuples);
        let start = self.buffer.as_ptr().as_ptr();
        start.wrapping_add(HEADER_BYTES + number * self.tuple_bytes)
    }
}
