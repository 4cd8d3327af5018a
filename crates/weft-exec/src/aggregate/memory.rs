//! Memory behind the groups: strings, lists and sets that outgrow a tuple. It is freed all at once, with the operator.
//!
//! States take memory in the middle of a vector, where nobody can wait. What they take is a debt: when the vector is
//! finished, its owner asks the ledger for it ([`Memory::take_debt`]), and waits or fails. So the budget is exceeded by what
//! one vector adds at most.

use crate::text::Str;

const BLOCK_BYTES_MIN: usize = 1 << 10;
const BLOCK_BYTES_MAX: usize = 64 << 10;
/// What is allocated is aligned to this.
const ALIGNMENT: usize = 16;

/// Memory for what lies behind tuples.
#[derive(Debug, Default)]
pub(super) struct Memory {
    blocks: Vec<Box<[u128]>>,
    debt_bytes: u64,
    /// Bytes of the last block that are free, at its end.
    free_bytes: usize,
}

impl Memory {
    /// `bytes` of zeros, aligned to 16 bytes, which stay there as long as this is.
    pub(super) fn allocate(&mut self, bytes: usize) -> *mut u8 {
        let bytes = bytes.max(1).next_multiple_of(ALIGNMENT);
        if bytes > self.free_bytes {
            let before = self.blocks.last().map_or(0, |block| block.len() * ALIGNMENT);
            let next_bytes = (before * 2).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
            let block_bytes = bytes.max(next_bytes);
            self.debt_bytes += block_bytes as u64;
            self.blocks.push(vec![0; block_bytes / ALIGNMENT].into_boxed_slice());
            self.free_bytes = block_bytes;
        }
        let block = self.blocks.last_mut().expect("one has room");
        let start = block.len() - self.free_bytes / ALIGNMENT;
        self.free_bytes -= bytes;
        block[start..].as_mut_ptr().cast()
    }

    /// A view of a copy of a string.
    pub(super) fn copy(&mut self, string: Str) -> Str {
        if string.is_inline() {
            return string;
        }
        let to = self.allocate(string.len());
        // SAFETY: the memory was just allocated, of that many bytes.
        unsafe { copy_to(to, string) }
    }

    /// As [`Memory::copy`], into the room at an address if the string fits there, else into a new room. Room 0 is none.
    pub(super) fn copy_into(&mut self, room: &mut u64, string: Str) -> Str {
        if string.is_inline() {
            return string;
        }
        // A room begins with the bytes that it has, in as many as keep what follows aligned.
        // SAFETY: rooms are made below.
        let has_room = *room != 0 && unsafe { (*room as *const u64).read() } >= string.len() as u64;
        if !has_room {
            let bytes = string.len().next_power_of_two();
            let new = self.allocate(ALIGNMENT + bytes);
            // SAFETY: the memory was just allocated, and is aligned to more.
            unsafe { new.cast::<u64>().write(bytes as u64) };
            *room = new as u64;
        }
        // SAFETY: a room has that many bytes, as was just seen.
        unsafe { copy_to((*room as *mut u8).add(ALIGNMENT), string) }
    }

    /// Counts `bytes` that are the owner's, and lie elsewhere.
    pub(super) fn owe(&mut self, bytes: u64) {
        self.debt_bytes += bytes;
    }

    /// Bytes that were taken since this was asked last. Whoever asks gets them from the ledger.
    #[must_use]
    #[inline]
    pub(super) fn take_debt(&mut self) -> u64 {
        std::mem::take(&mut self.debt_bytes)
    }
}

/// Copies a long string, and gives a view of the copy.
///
/// # Safety
/// There are as many bytes at `to`, initialized, and nobody reads them meanwhile; they may be the string's own.
unsafe fn copy_to(to: *mut u8, string: Str) -> Str {
    // SAFETY: strings that reach an operator are alive; the rest is promised.
    unsafe {
        std::ptr::copy(string.bytes().as_ptr(), to, string.len());
        Str::new(std::slice::from_raw_parts(to, string.len()))
    }
}
