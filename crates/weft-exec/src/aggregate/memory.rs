//! Memory behind the groups: strings, lists and sets that outgrow a tuple. It is freed with the operator, or, what one
//! partition's groups keep, with that partition, when it is spilled.
//!
//! States take memory in the middle of a vector, where nobody can wait. What they take is a debt: when the vector is
//! finished, its owner asks the ledger for it ([`Memory::debt_bytes`]), and waits, spills or fails. So the budget is
//! exceeded by what one vector adds at most.

use std::ptr::NonNull;

use weft_rt::memory::slab::{self, Block};

use super::state::Tuple;
use crate::text::Str;
use crate::tuple::layout::HASH_OFFSET;

/// Chunks begin small: a partition may have one for a single string.
const CHUNK_BYTES_MIN: usize = 128;
const CHUNK_BYTES_MAX: usize = slab::BLOCK_BYTES_MIN;
/// What is allocated is aligned to this.
const ALIGNMENT: usize = 16;
/// But for rooms of strings, and strings without, which are aligned to nothing.
const ROOM_ALIGNMENT: usize = size_of::<u64>();

/// Memory that is freed all at once.
#[derive(Debug, Default)]
pub(super) struct Arena {
    chunks: Vec<Chunk>,
    /// Of all chunks.
    bytes: u64,
    /// Bytes of the last chunk that are free, at its end.
    free_bytes: usize,
}

/// Some of it, of the heap or on a huge page: most are as large as they can be, and would leave gaps in the heap.
#[derive(Debug)]
pub(super) struct Chunk {
    start: NonNull<u8>,
    bytes: usize,
    _owner: Owner,
}

#[derive(Debug)]
enum Owner {
    Heap { _words: Vec<u128> },
    Slab { _block: Block },
}

// SAFETY: a chunk owns its memory.
unsafe impl Send for Chunk {}
// SAFETY: as above; nobody writes through a shared reference.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// Of so many bytes, a multiple of what all is aligned to, with anything in it.
    fn new(bytes: usize) -> Chunk {
        if let Some(block) = Block::new(bytes) {
            return Chunk { start: block.start(), bytes, _owner: Owner::Slab { _block: block } };
        }
        let mut words: Vec<u128> = Vec::with_capacity(bytes / ALIGNMENT);
        let start = NonNull::from(words.spare_capacity_mut()).cast();
        Chunk { start, bytes, _owner: Owner::Heap { _words: words } }
    }
}

impl Arena {
    /// Bytes of all chunks.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many chunks.
    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// The memory, for who frees it piece by piece.
    pub(super) fn into_chunks(self) -> Vec<Chunk> {
        self.chunks
    }

    /// As [`Memory::allocate`], and the bytes that were taken for it.
    fn allocate(&mut self, bytes: usize) -> (*mut u8, u64) {
        let (start, taken_bytes) = self.take_bytes(bytes, ALIGNMENT);
        // SAFETY: the chunk has so many bytes there, which nobody else has.
        unsafe { start.write_bytes(0, bytes) };
        (start, taken_bytes)
    }

    /// The same, aligned to `alignment` bytes, with anything in it.
    fn take_bytes(&mut self, bytes: usize, alignment: usize) -> (*mut u8, u64) {
        let bytes = bytes.max(1).next_multiple_of(alignment);
        // Of a chunk the begin is aligned, and the end.
        self.free_bytes -= self.free_bytes % alignment;
        let mut taken_bytes = 0;
        if bytes > self.free_bytes {
            let before = self.chunks.last().map_or(0, |chunk| chunk.bytes);
            let next_bytes = (before * 2).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
            let chunk_bytes = bytes.next_multiple_of(ALIGNMENT).max(next_bytes);
            taken_bytes = chunk_bytes as u64;
            self.bytes += taken_bytes;
            self.chunks.push(Chunk::new(chunk_bytes));
            self.free_bytes = chunk_bytes;
        }
        let chunk = self.chunks.last().expect("one has room");
        // SAFETY: the chunk has so many bytes that are free.
        let start = unsafe { chunk.start.add(chunk.bytes - self.free_bytes).as_ptr() };
        self.free_bytes -= bytes;
        (start, taken_bytes)
    }
}

/// Memory for what lies behind tuples.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// What belongs to no partition.
    whole: Arena,
    /// What the groups of each partition keep; empty as long as there are no partitions.
    partitions: Vec<Arena>,
    debt_bytes: u64,
    /// What merged tuples keep will be freed.
    copies: bool,
}

impl Memory {
    /// From now on what merged tuples keep is copied: their owner frees it.
    pub(super) fn copy_merged(&mut self) {
        self.copies = true;
    }

    /// True if what merged tuples keep has to be copied.
    pub(super) fn copies(&self) -> bool {
        self.copies
    }

    /// From now on what a group keeps belongs to its partition, to which so many bits of its hash lead.
    pub(super) fn partition(&mut self, bits: u32) {
        self.partitions.resize_with(1 << bits, Arena::default);
    }

    /// `bytes` of zeros for a group, aligned to 16 bytes, which stay there as long as it is in memory.
    pub(super) fn allocate(&mut self, tuple: Tuple, bytes: usize) -> *mut u8 {
        let (address, taken_bytes) = self.arena_of(tuple).allocate(bytes);
        self.debt_bytes += taken_bytes;
        address
    }

    /// The same for a string, with anything in it.
    fn take_bytes(&mut self, tuple: Tuple, bytes: usize, alignment: usize) -> *mut u8 {
        let (address, taken_bytes) = self.arena_of(tuple).take_bytes(bytes, alignment);
        self.debt_bytes += taken_bytes;
        address
    }

    fn arena_of(&mut self, tuple: Tuple) -> &mut Arena {
        if self.partitions.is_empty() {
            return &mut self.whole;
        }
        // SAFETY: a tuple begins with its hash.
        let hash = unsafe { tuple.address().add(HASH_OFFSET).cast::<u64>().read() };
        let partition = (hash >> (u64::BITS - self.partitions.len().ilog2())) as usize;
        &mut self.partitions[partition]
    }

    /// A view of a copy of a string, for a group.
    pub(super) fn copy(&mut self, tuple: Tuple, string: Str) -> Str {
        if string.is_inline() {
            return string;
        }
        let to = self.take_bytes(tuple, string.len(), 1);
        // SAFETY: the memory was just taken, of that many bytes.
        unsafe { copy_to(to, string) }
    }

    /// As [`Memory::copy`], into a [`StringRoom`] if the string fits there, else into a new one.
    pub(super) fn copy_into(&mut self, tuple: Tuple, room: &mut u64, string: Str) -> Str {
        if string.is_inline() {
            return string;
        }
        if StringRoom(*room).bytes() < string.len() {
            let bytes = StringRoom(*room).bytes_beyond(string.len());
            *room = StringRoom::new(self.take_bytes(tuple, bytes, ROOM_ALIGNMENT), bytes).0;
        }
        // SAFETY: a room has that many bytes, as was just seen.
        unsafe { copy_to(StringRoom(*room).start(), string) }
    }

    /// What the groups of a partition keep, or, of none, what was kept before there were partitions.
    pub(super) fn take(&mut self, partition: Option<usize>) -> Arena {
        match partition {
            None => std::mem::take(&mut self.whole),
            Some(partition) => {
                self.partitions.get_mut(partition).map(std::mem::take).unwrap_or_default()
            }
        }
    }

    /// All of it.
    pub(super) fn into_arenas(self) -> impl Iterator<Item = Arena> {
        std::iter::once(self.whole).chain(self.partitions)
    }

    /// Bytes that belong to no partition.
    pub(super) fn whole_bytes(&self) -> u64 {
        self.whole.bytes()
    }

    /// Bytes that the groups of each partition keep, if there are partitions.
    pub(super) fn partition_bytes(&self) -> impl Iterator<Item = u64> {
        self.partitions.iter().map(Arena::bytes)
    }

    /// Frees what [`Memory::take`] gives; returns how many bytes that were paid for.
    #[must_use]
    pub(super) fn free(&mut self, partition: Option<usize>) -> u64 {
        let bytes = self.take(partition).bytes();
        self.refund(bytes)
    }

    /// Counts `bytes` less that are the owner's; returns how many of them were paid for.
    #[must_use]
    pub(super) fn refund(&mut self, bytes: u64) -> u64 {
        let unpaid_bytes = bytes.min(self.debt_bytes);
        self.debt_bytes -= unpaid_bytes;
        bytes - unpaid_bytes
    }

    /// Counts `bytes` that are the owner's, and lie elsewhere.
    pub(super) fn owe(&mut self, bytes: u64) {
        self.debt_bytes += bytes;
    }

    /// Bytes that were taken and not paid for. Whoever asks gets them from the ledger.
    #[inline]
    pub(super) fn debt_bytes(&self) -> u64 {
        self.debt_bytes
    }

    /// Notes that so many were paid for.
    pub(super) fn pay(&mut self, bytes: u64) {
        self.debt_bytes -= bytes;
    }

    /// Bytes that were taken and not paid for, which whoever asks pays for now.
    #[must_use]
    #[inline]
    pub(super) fn take_debt(&mut self) -> u64 {
        std::mem::take(&mut self.debt_bytes)
    }
}

/// Memory for a string that a group keeps and may change its mind about: the address, and above it how many bytes there are. 0 is none.
#[derive(Clone, Copy)]
struct StringRoom(u64);

/// Addresses have fewer bits.
const ADDRESS_BITS: u32 = 48;
/// Bytes of a room are counted in words up to here. Beyond they are a power of two, and this is added to its exponent.
const WORDS_MAX: u64 = 1 << 15;

impl StringRoom {
    /// One of so many bytes, of [`StringRoom::bytes_beyond`].
    fn new(start: *mut u8, bytes: usize) -> StringRoom {
        let (address, words) = (start as u64, (bytes / ROOM_ALIGNMENT) as u64);
        assert!(address >> ADDRESS_BITS == 0, "an address of {ADDRESS_BITS} bits");
        let size = if words < WORDS_MAX { words } else { WORDS_MAX + u64::from(bytes.ilog2()) };
        StringRoom(size << ADDRESS_BITS | address)
    }

    fn start(self) -> *mut u8 {
        (self.0 & ((1 << ADDRESS_BITS) - 1)) as *mut u8
    }

    fn bytes(self) -> usize {
        let size = self.0 >> ADDRESS_BITS;
        if size < WORDS_MAX { size as usize * ROOM_ALIGNMENT } else { 1 << (size - WORDS_MAX) }
    }

    /// Bytes of the room that comes instead of this one, for a string for which it is too small. The first has just as much as that needs:
    /// of many groups most have but one row.
    fn bytes_beyond(self, string_bytes: usize) -> usize {
        let is_first = self.0 == 0 && string_bytes < WORDS_MAX as usize * ROOM_ALIGNMENT;
        let bytes = if is_first { string_bytes } else { string_bytes.next_power_of_two() };
        bytes.next_multiple_of(ROOM_ALIGNMENT)
    }
}

/// Copies a long string, and gives a view of the copy.
///
/// # Safety
/// There are as many bytes at `to`, and nobody reads them meanwhile; they may be the string's own.
unsafe fn copy_to(to: *mut u8, string: Str) -> Str {
    // SAFETY: strings that reach an operator are alive; the rest is promised.
    unsafe {
        std::ptr::copy(string.bytes().as_ptr(), to, string.len());
        Str::new(std::slice::from_raw_parts(to, string.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_know_what_they_have() {
        let mut arena = Arena::default();
        let most = WORDS_MAX as usize * ROOM_ALIGNMENT;
        for length in [13, 16, 17, 4096, most - 8, most - 7, most - 1, most, most + 1, 3 * most] {
            let mut room = StringRoom(0);
            assert_eq!(room.bytes(), 0);
            for length in [length, 2 * length, 2 * length + 1] {
                let bytes = room.bytes_beyond(length);
                assert!(
                    bytes >= length && bytes < 2 * length + ROOM_ALIGNMENT,
                    "{bytes}, {length}"
                );
                let (start, _) = arena.take_bytes(bytes, ROOM_ALIGNMENT);
                room = StringRoom::new(start, bytes);
                assert_eq!((room.start(), room.bytes()), (start, bytes));
            }
        }
        assert_eq!(StringRoom(0).bytes_beyond(27), 32);
    }

    #[test]
    fn a_room_is_used_again() {
        let layout = crate::tuple::Layout::new(&[(crate::lane::Lane::U64, false)]);
        let mut page = crate::tuple::Page::new(1 << 10, layout.bytes());
        // SAFETY: a slot is a tuple's own.
        let tuple = unsafe { Tuple::at(page.slot(0).unwrap().tuple) };
        let (mut memory, mut room) = (Memory::default(), 0);
        let texts = ["a string of 23 bytes ...", "short", "another of 20 bytes.", &"x".repeat(500)];
        let mut rooms = Vec::new();
        for text in texts.into_iter().chain(["y", &"z".repeat(512)]) {
            let kept = memory.copy_into(tuple, &mut room, Str::new(text.as_bytes()));
            // SAFETY: what was kept is in memory.
            assert_eq!(unsafe { kept.bytes() }, text.as_bytes());
            rooms.push(room);
        }
        assert!(rooms[..3].iter().all(|room| *room == rooms[0]));
        assert!(rooms[3..].iter().all(|room| *room == rooms[3]) && rooms[3] != rooms[0]);
    }
}
