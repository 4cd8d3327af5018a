//! Pages as they are on disk: a header, tuples from there on, long strings from the back. Strings that states keep behind
//! addresses lie among them, too, so that no byte refers to an address.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 to 15 | the spill area's: checksum and address |
//! | 16 to 23 | number of tuples |
//! | 24 to 31 | bytes of a tuple |
//! | 32 … | tuples |

use weft_rt::io::IoBuf;
use weft_rt::memory::Reservation;
use weft_store::spill::HEADER_BYTES as AREA_BYTES;

use crate::tasks::Counted;
use crate::tuple::page::Slot;

/// What the length of a page is a multiple of.
pub(crate) const GRAIN_BYTES: usize = 4 << 10;
/// Bytes of a page, unless its only tuple needs more.
pub(crate) const FROZEN_BYTES_MAX: usize = 64 << 10;
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
    /// Where long strings begin.
    strings: usize,
}

impl Freezing {
    /// An empty page in a buffer of [`page_bytes`].
    pub(crate) fn new(buffer: IoBuf, tuple_bytes: usize) -> Freezing {
        assert!(tuple_bytes.is_multiple_of(8), "tuples are aligned");
        let strings = buffer.len();
        Freezing { buffer, tuples: 0, tuple_bytes, strings }
    }

    /// Room for a tuple and `long_bytes` of strings; `None` if there is not so much.
    pub(crate) fn slot(&mut self, long_bytes: usize) -> Option<Slot> {
        let front = HEADER_BYTES + self.tuples * self.tuple_bytes;
        if front + self.tuple_bytes + long_bytes > self.strings {
            return None;
        }
        self.tuples += 1;
        self.strings -= long_bytes;
        Some(Slot {
            tuple: self.buffer[front..].as_mut_ptr(),
            strings: self.buffer[self.strings..].as_mut_ptr(),
        })
    }

    /// The finished page.
    pub(crate) fn finish(mut self) -> IoBuf {
        self.buffer[TUPLES_AT..][..8].copy_from_slice(&(self.tuples as u64).to_le_bytes());
        self.buffer[TUPLE_BYTES_AT..][..8]
            .copy_from_slice(&(self.tuple_bytes as u64).to_le_bytes());
        self.buffer
    }

    /// Number of tuples.
    pub(crate) fn tuples(&self) -> usize {
        self.tuples
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
    pub(crate) fn new(buffer: IoBuf, tuples: usize, held: (Reservation, Counted)) -> Frozen {
        let number = |at: usize| {
            u64::from_le_bytes(buffer[at..at + 8].try_into().expect("8 bytes")) as usize
        };
        let tuple_bytes = number(TUPLE_BYTES_AT);
        assert_eq!(number(TUPLES_AT), tuples, "the page that was written");
        assert!(HEADER_BYTES + tuples * tuple_bytes <= buffer.len(), "tuples of a page");
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
