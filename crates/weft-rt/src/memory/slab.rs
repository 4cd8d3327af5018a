//! Blocks of 64 KiB to 1 MiB on huge pages, for memory that is read in no order: tuples that chains of hash tables lead to.
//!
//! On pages of 4 KiB almost every such access misses the processor's table of address translations too, and walks the page
//! tables, which takes longer than the access where the system is a guest. The heap has huge pages only by chance, as it
//! grows by less than one. So chunks of one huge page each are taken from the system and cut into blocks.
//!
//! A huge page is resident as a whole. What of it is free is used again first, lowest addresses first; what is too much, as
//! [`keep_blocks`] says, goes back to the system: whole chunks if there are any, else the pages of blocks. All that is resident
//! counts as allocated ([`live_bytes`](super::heap::live_bytes)), used or not; but a ledger that watches the heap, and is not
//! small ([`SPARE_FROM`]), takes what is free for what it is: it goes to whoever takes memory next, or goes back when that
//! leaves no place for it.

use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::io::arena::{Arena, HUGE_PAGE_BYTES};

/// Bytes of the smallest blocks, and what all of them are multiples of.
pub const BLOCK_BYTES_MIN: usize = 64 << 10;

/// Bytes of the largest ones.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;

/// Pieces of a chunk, of the size of the smallest blocks. Each has a bit of a mask.
const PIECES: usize = HUGE_PAGE_BYTES / BLOCK_BYTES_MIN;

/// All of them.
const ALL: u32 = u32::MAX;

/// Chunks with free pieces that are looked at for a block.
const LOOKED_AT: usize = 16;

/// Bytes that go back at once, about: that takes the system a few hundred microseconds.
pub(super) const RETURNED_BYTES: usize = 4 << 20;

/// The limit from which on a ledger that watches the heap takes free blocks for free: what it then has too much for a moment is
/// within what a process may have beyond a limit.
pub const SPARE_FROM: u64 = 2 << 30;

/// Chunks of which nobody has anything that go back at once at most: some may not be resident.
const CHUNKS_RETURNED: usize = 8;

/// Most bytes that are free and resident; without any there are no blocks.
static CAPACITY: AtomicUsize = AtomicUsize::new(0);

/// Bytes that are resident.
static RESIDENT: AtomicUsize = AtomicUsize::new(0);

/// Of those, the ones that are free.
static FREE: AtomicUsize = AtomicUsize::new(0);

static SLAB: Mutex<Slab> = Mutex::new(Slab::new());

/// From now on there are blocks, unless `capacity_bytes` is 0, and so many bytes of free ones are kept.
pub fn keep_blocks(capacity_bytes: usize) {
    CAPACITY.store(capacity_bytes, Ordering::Relaxed);
    while give_back(capacity_bytes) {}
}

/// Bytes that are resident and free: what others have given back, and who takes blocks next will use.
pub fn free_bytes() -> usize {
    FREE.load(Ordering::Relaxed)
}

/// Gives some of what is free back to the system, if that is more than `capacity_bytes`; true if it still is.
pub fn give_back(capacity_bytes: usize) -> bool {
    if free_bytes() <= capacity_bytes {
        return false;
    }
    let surplus = lock().take_surplus(capacity_bytes);
    let pieces = surplus.give_back();
    if !pieces.is_empty() {
        lock().settle(&pieces);
    }
    free_bytes() > capacity_bytes
}

/// Bytes that blocks have, and those that are free of the chunks that they are cut from.
pub(super) fn resident_bytes() -> usize {
    RESIDENT.load(Ordering::Relaxed)
}

/// Some memory, of the size of a block, that nobody else has; given back when it is dropped.
#[derive(Debug)]
pub struct Block {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a block owns its memory, as a `Box<[u8]>` would.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// A block of `bytes`, aligned to that, with anything in it. `None` if there are no such blocks: because of their size,
    /// which is a power of two from [`BLOCK_BYTES_MIN`] to [`BLOCK_BYTES_MAX`], because nobody has called [`keep_blocks`], or
    /// because the system has no memory left.
    pub fn new(bytes: usize) -> Option<Block> {
        let is_block =
            bytes.is_power_of_two() && (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&bytes);
        if !is_block || CAPACITY.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let pieces = bytes / BLOCK_BYTES_MIN;
        if let Some(start) = lock().take(pieces) {
            return Some(Block { start, bytes });
        }
        // The system may take long: nobody waits for it here.
        let arena = Arena::new(HUGE_PAGE_BYTES).ok()?;
        let start = arena.as_ptr();
        let mut slab = lock();
        slab.add(arena);
        slab.take_at(start.as_ptr() as usize, 0, pieces);
        drop(slab);
        give_back(CAPACITY.load(Ordering::Relaxed));
        Some(Block { start, bytes })
    }

    /// The address of its first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The chunk that it is cut from, and its pieces there.
    fn place(&self) -> (usize, u32) {
        let address = self.start.as_ptr() as usize;
        let first = address % HUGE_PAGE_BYTES / BLOCK_BYTES_MIN;
        (address - address % HUGE_PAGE_BYTES, run(self.bytes / BLOCK_BYTES_MIN) << first)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let (chunk, pieces) = self.place();
        lock().free(chunk, pieces);
        give_back(CAPACITY.load(Ordering::Relaxed));
    }
}

fn lock() -> MutexGuard<'static, Slab> {
    SLAB.lock().unwrap_or_else(PoisonError::into_inner)
}

/// So many pieces, the first of a chunk.
fn run(pieces: usize) -> u32 {
    ALL >> (PIECES - pieces)
}

/// The first pieces of all runs of so many in a mask, a power of two, that are aligned to their number.
fn runs(mask: u32, pieces: usize) -> u32 {
    let mut found = mask;
    let mut length = 1;
    while length < pieces {
        found &= found >> length;
        length *= 2;
    }
    let aligned = (0..PIECES).step_by(pieces).fold(0, |mask, first| mask | 1 << first);
    found & aligned
}

/// The lowest piece of a mask.
fn first_of(mask: u32) -> Option<usize> {
    (mask != 0).then(|| mask.trailing_zeros() as usize)
}

/// The chunks that blocks are cut from.
struct Slab {
    /// By address.
    chunks: BTreeMap<usize, Chunk>,
    /// Those that have free pieces.
    with_free: BTreeSet<usize>,
    /// Those of which some are resident.
    with_resident: BTreeSet<usize>,
    /// Those that nobody has anything of.
    unused: BTreeSet<usize>,
    /// Bytes that are free and resident.
    free_bytes: usize,
}

/// A huge page.
struct Chunk {
    arena: Arc<Arena>,
    free: u32,
    /// Of the free pieces, those that are resident. Those in use are.
    resident: u32,
}

impl Slab {
    const fn new() -> Slab {
        Slab {
            chunks: BTreeMap::new(),
            with_free: BTreeSet::new(),
            with_resident: BTreeSet::new(),
            unused: BTreeSet::new(),
            free_bytes: 0,
        }
    }

    fn add(&mut self, arena: Arc<Arena>) {
        let address = arena.as_ptr().as_ptr() as usize;
        self.chunks.insert(address, Chunk { arena, free: ALL, resident: ALL });
        self.with_free.insert(address);
        self.with_resident.insert(address);
        self.unused.insert(address);
        RESIDENT.fetch_add(HUGE_PAGE_BYTES, Ordering::Relaxed);
        self.set_free(self.free_bytes + HUGE_PAGE_BYTES);
    }

    /// Takes so many pieces, aligned to their number.
    fn take(&mut self, pieces: usize) -> Option<NonNull<u8>> {
        let looked_at = || self.with_free.iter().take(LOOKED_AT);
        let tight = |address: &usize| Some((*address, self.chunks[address].tight_place(pieces)?));
        let any = |address: &usize| Some((*address, self.chunks[address].place(pieces)?));
        let found = looked_at().find_map(tight).or_else(|| looked_at().find_map(any));
        let (address, first) = found?;
        self.take_at(address, first, pieces);
        NonNull::new((address + first * BLOCK_BYTES_MIN) as *mut u8)
    }

    /// Takes so many pieces of a chunk, of which all are free.
    fn take_at(&mut self, address: usize, first: usize, pieces: usize) {
        let chunk = self.chunks.get_mut(&address).expect("a chunk that has free pieces");
        let taken = run(pieces) << first;
        let resident = (chunk.resident & taken).count_ones() as usize;
        if chunk.free == ALL {
            self.unused.remove(&address);
        }
        chunk.free &= !taken;
        chunk.resident &= !taken;
        if chunk.free == 0 {
            self.with_free.remove(&address);
        }
        if chunk.resident == 0 {
            self.with_resident.remove(&address);
        }
        self.set_free(self.free_bytes - resident * BLOCK_BYTES_MIN);
        RESIDENT.fetch_add((pieces - resident) * BLOCK_BYTES_MIN, Ordering::Relaxed);
    }

    fn free(&mut self, address: usize, pieces: u32) {
        let chunk = self.chunks.get_mut(&address).expect("the chunk of a block");
        chunk.free |= pieces;
        chunk.resident |= pieces;
        self.with_free.insert(address);
        self.with_resident.insert(address);
        if chunk.free == ALL {
            self.unused.insert(address);
        }
        self.set_free(self.free_bytes + pieces.count_ones() as usize * BLOCK_BYTES_MIN);
    }

    /// Takes what is to go back out of the slab, while more than `capacity` bytes are free: chunks of which nobody has anything,
    /// else free pieces of others.
    fn take_surplus(&mut self, capacity: usize) -> Surplus {
        let mut surplus = Surplus::default();
        let enough = self.free_bytes.saturating_sub(RETURNED_BYTES).max(capacity);
        while self.free_bytes > enough
            && surplus.chunks.len() < CHUNKS_RETURNED
            && let Some(address) = self.unused.pop_last()
        {
            self.with_free.remove(&address);
            self.with_resident.remove(&address);
            let chunk = self.chunks.remove(&address).expect("an unused one is there");
            self.forget(chunk.resident);
            surplus.chunks.push(chunk);
        }
        // High addresses first: those are used last.
        while self.free_bytes > enough
            && let Some(address) = self.with_resident.pop_last()
        {
            let chunk = self.chunks.get_mut(&address).expect("a chunk that has free pieces");
            let pieces = std::mem::take(&mut chunk.resident);
            chunk.free &= !pieces;
            // Nobody unmaps it meanwhile.
            self.unused.remove(&address);
            if chunk.free == 0 {
                self.with_free.remove(&address);
            }
            surplus.pieces.push(Pieces { address, arena: chunk.arena.clone(), pieces });
            self.forget(pieces);
        }
        surplus
    }

    /// What was taken out has gone back: pieces may be used again, by whoever has them come anew.
    fn settle(&mut self, surplus: &[Pieces]) {
        for Pieces { address, pieces, .. } in surplus {
            let chunk =
                self.chunks.get_mut(address).expect("a chunk with pieces that are not free");
            chunk.free |= pieces;
            self.with_free.insert(*address);
            if chunk.free == ALL {
                self.unused.insert(*address);
            }
        }
    }

    /// Free pieces that are resident no longer.
    fn forget(&mut self, pieces: u32) {
        let bytes = pieces.count_ones() as usize * BLOCK_BYTES_MIN;
        self.set_free(self.free_bytes - bytes);
        RESIDENT.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn set_free(&mut self, bytes: usize) {
        self.free_bytes = bytes;
        FREE.store(bytes, Ordering::Relaxed);
    }
}

/// What is on its way back to the system: nobody has it, and nobody can take it.
#[derive(Default)]
struct Surplus {
    chunks: Vec<Chunk>,
    pieces: Vec<Pieces>,
}

/// Pieces of the chunk at an address.
struct Pieces {
    address: usize,
    arena: Arc<Arena>,
    pieces: u32,
}

impl Surplus {
    /// Gives it back, outside of the lock: the system may take long. Returns the pieces of chunks that stay.
    fn give_back(self) -> Vec<Pieces> {
        drop(self.chunks);
        for Pieces { arena, pieces, .. } in &self.pieces {
            let mut left = *pieces;
            while left != 0 {
                // Pieces in a row at once: each call interrupts all threads of the process.
                let first = left.trailing_zeros();
                let count = (left >> first).trailing_ones();
                left &= !(ALL >> (u32::BITS - count) << first);
                // SAFETY: within the chunk.
                let start = unsafe { arena.as_ptr().add(first as usize * BLOCK_BYTES_MIN) };
                // SAFETY: the pieces are nobody's.
                unsafe { arena.discard(start, count as usize * BLOCK_BYTES_MIN) };
            }
        }
        self.pieces
    }
}

impl Chunk {
    /// Where so many free pieces begin that are aligned to their number; resident ones, if there are some.
    fn place(&self, pieces: usize) -> Option<usize> {
        first_of(runs(self.resident, pieces)).or_else(|| first_of(runs(self.free, pieces)))
    }

    /// The same for resident ones, of twice as many of which others are in use: who needs so many does not lose them.
    fn tight_place(&self, pieces: usize) -> Option<usize> {
        let large = if 2 * pieces <= PIECES { runs(self.free, 2 * pieces) } else { 0 };
        first_of(runs(self.resident, pieces) & !(large | large << pieces))
    }
}
