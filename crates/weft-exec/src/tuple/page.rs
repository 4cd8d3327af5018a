//! A page of materialized tuples: tuples of one layout from the front on, as in an array; their long strings from the
//! back. No byte of it refers to its address, so that a page can be moved, written to a device and read back.

use std::alloc::{Layout as Memory, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::ptr::NonNull;

use weft_rt::memory::slab::Block;
use weft_rt::prefetch_line;

/// What a page's memory is aligned to: a cache line.
const ALIGNMENT: usize = 64;

/// Memory with tuples in it.
pub struct Page {
    memory: NonNull<u8>,
    /// The memory's owner, if it is not from the heap.
    block: Option<Block>,
    bytes: usize,
    tuples: usize,
    tuple_bytes: usize,
    /// Where long strings begin; what is between the tuples and them is free.
    strings: usize,
}

// SAFETY: a page owns its memory, as a `Box<[u8]>` would.
unsafe impl Send for Page {}
// SAFETY: as above; through a shared page nothing is changed but by operators that synchronize themselves.
unsafe impl Sync for Page {}

/// Room for a tuple and for its long strings.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Where the tuple goes.
    pub tuple: *mut u8,
    /// Where its long strings go.
    pub strings: *mut u8,
}

impl Page {
    /// An empty page of `bytes` for tuples of `tuple_bytes`. The memory is not touched.
    pub fn new(bytes: usize, tuple_bytes: usize) -> Page {
        assert!(bytes > 0 && tuple_bytes > 0 && tuple_bytes.is_multiple_of(8));
        let block = Block::new(bytes);
        let memory = block.as_ref().map_or_else(|| Page::from_heap(bytes), Block::start);
        Page { memory, block, bytes, tuples: 0, tuple_bytes, strings: bytes }
    }

    fn from_heap(bytes: usize) -> NonNull<u8> {
        let memory = Page::memory(bytes);
        // SAFETY: of more than 0 bytes.
        NonNull::new(unsafe { alloc(memory) }).unwrap_or_else(|| handle_alloc_error(memory))
    }

    fn memory(bytes: usize) -> Memory {
        Memory::from_size_align(bytes, ALIGNMENT).expect("a page is less than the address space")
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of tuples.
    pub fn tuples(&self) -> usize {
        self.tuples
    }

    /// The address of a tuple. Valid as long as the page is, wherever the page itself is moved.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn tuple(&self, number: usize) -> *mut u8 {
        assert!(number < self.tuples, "tuple {number} of {}", self.tuples);
        // SAFETY: within the memory, as `slots` has seen to.
        unsafe { self.memory.as_ptr().add(number * self.tuple_bytes) }
    }

    /// The addresses of all tuples, valid as long as the page is.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = *const u8> {
        (0..self.tuples).map(|number| self.tuple(number).cast_const())
    }

    /// Bytes that tuples and their long strings take.
    pub fn used_bytes(&self) -> usize {
        self.tuples * self.tuple_bytes + self.bytes - self.strings
    }

    /// How many more tuples have room, if they have no long strings.
    pub fn room(&self) -> usize {
        (self.strings - self.tuples * self.tuple_bytes) / self.tuple_bytes
    }

    /// Room for a tuple and `long_bytes` of strings; `None` if there is not so much. It must be written to before
    /// anybody reads tuples of the page.
    #[inline]
    pub fn slot(&mut self, long_bytes: usize) -> Option<Slot> {
        let front = self.tuples * self.tuple_bytes;
        if front + self.tuple_bytes + long_bytes > self.strings {
            return None;
        }
        self.tuples += 1;
        self.strings -= long_bytes;
        // Many pages are filled at once: the processor does not foresee where the next tuple of this one goes.
        prefetch_line(self.memory.as_ptr().wrapping_add(front + self.tuple_bytes + ALIGNMENT));
        // SAFETY: both are within the memory, as was just seen.
        unsafe {
            Some(Slot {
                tuple: self.memory.as_ptr().add(front),
                strings: self.memory.as_ptr().add(self.strings),
            })
        }
    }

    /// Takes back the last `tuples` slots, of tuples without long strings.
    pub fn take_back(&mut self, tuples: usize) {
        assert!(
            tuples <= self.tuples && self.strings == self.bytes,
            "slots of tuples without strings"
        );
        self.tuples -= tuples;
    }

    /// Forgets all but the first `tuples`. What their long strings take is not free again.
    pub(crate) fn keep_first(&mut self, tuples: usize) {
        assert!(tuples <= self.tuples, "{tuples} of {} tuples", self.tuples);
        self.tuples = tuples;
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if self.block.is_none() {
            // SAFETY: allocated in `new` with the same size and alignment.
            unsafe { dealloc(self.memory.as_ptr(), Page::memory(self.bytes)) }
        }
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Page({} tuples, {} bytes)", self.tuples, self.bytes)
    }
}
