//! The directory of a hash join: where the chain of tuples begins that a hash may be found in, and a tag that knows most
//! of the hashes that it is not found with.
//!
//! 2^n entries, the high bits of a hash lead to one. An entry has the address of a tuple in its low 48 bits, and above it
//! 16 bits of a Bloom filter of all hashes in the chain, of which each sets up to three. The tuple's chain word is the entry
//! as it was before the tuple came, tag included: so neither the directory nor a chain leads to a tuple in vain, but for
//! one time in some tens.
//!
//! Partitions are the high bits of a hash too, so that the tuples of one are inserted into one range of the directory
//! (Spilly, section 5.3). Where partitions are on disk, the bits after those lead to entries: none is in vain.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::words::Words;
use crate::tuple::layout::NEXT_OFFSET;
use crate::tuple::materializer::PARTITIONS;

/// Where the tag begins in an entry.
const TAG_SHIFT: u32 = 48;
/// The bits of a tuple's address, which is a multiple of 8.
const ADDRESS_MASK: u64 = (1 << TAG_SHIFT) - 8;
/// In a tuple's chain word: the tuple has matched.
const MARK: u64 = 1;
/// Fewest entries: with no fewer than partitions, each of these has entries of its own.
const ENTRIES_MIN: usize = PARTITIONS;
/// Fewest entries of a partition's own directory.
const PART_ENTRIES_MIN: usize = 2;

/// An entry, or a tuple's chain word: the next tuple, and what the chain from there on may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link(u64);

impl Link {
    /// What an entry has.
    pub fn of(entry: u64) -> Link {
        Link(entry)
    }

    /// The address of the tuple; 0 at the chain's end.
    #[inline(always)]
    pub fn tuple(self) -> u64 {
        self.0 & ADDRESS_MASK
    }

    /// False if no tuple of the chain has that hash. There is none at its end.
    #[inline(always)]
    pub fn may_hold(self, tag: Tag) -> bool {
        self.0 & tag.0 == tag.0
    }

    /// The chain word of the tuple at `tuple`.
    ///
    /// # Safety
    /// A tuple in a chain is there.
    #[inline(always)]
    pub unsafe fn after(tuple: u64) -> Link {
        // SAFETY: as the caller promises; others only set the mark.
        Link(unsafe { chain_word(tuple) }.load(Ordering::Relaxed))
    }

    /// True if the tuple of this chain word has matched.
    #[inline(always)]
    pub fn is_marked(self) -> bool {
        self.0 & MARK != 0
    }
}

/// The bits of a hash in the tags of its chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tag(u64);

impl Tag {
    /// For chains that are gone through whatever the hash.
    pub const NONE: Tag = Tag(0);

    /// Of a hash. Partitions and entries come from its high bits, this from the low ones.
    #[inline(always)]
    pub fn of(hash: u64) -> Tag {
        let bit = |at: u32| 1 << TAG_SHIFT << (hash >> at & 15);
        Tag(bit(0) | bit(4) | bit(8))
    }
}

/// # Safety
/// A tuple whose chain word is initialized lies at `tuple`.
#[inline(always)]
unsafe fn chain_word<'a>(tuple: u64) -> &'a AtomicU64 {
    // SAFETY: within the header, aligned as tuples are; written to only atomically once others see it.
    unsafe { AtomicU64::from_ptr((tuple as *mut u8).add(NEXT_OFFSET).cast()) }
}

/// Notes that the tuple at `tuple` has matched.
///
/// # Safety
/// It is a tuple of a finished build.
#[inline(always)]
pub(crate) unsafe fn mark(tuple: u64) {
    // SAFETY: as the caller promises.
    let word = unsafe { chain_word(tuple) };
    if word.load(Ordering::Relaxed) & MARK == 0 {
        word.fetch_or(MARK, Ordering::Relaxed);
    }
}

/// Writes the first chain word of a tuple that is in no chain yet.
///
/// # Safety
/// It is a tuple that nobody else uses.
pub(crate) unsafe fn unchain(tuple: u64) {
    // SAFETY: as the caller promises; within the header, aligned as tuples are.
    unsafe { (tuple as *mut u8).add(NEXT_OFFSET).cast::<u64>().write(0) };
}

/// Puts the tuple before those of the chain that begins in `head`.
///
/// # Safety
/// It is a tuple that is in no chain and that nobody else uses. With `ALONE`, nobody else has to do with that chain.
#[inline(always)]
pub(crate) unsafe fn push<const ALONE: bool>(head: &AtomicU64, tuple: u64, tag: Tag) {
    debug_assert!(tuple & !ADDRESS_MASK == 0, "a tuple at {tuple:#x}");
    // SAFETY: as the caller promises; within the header, aligned as tuples are.
    let next = unsafe { (tuple as *mut u8).add(NEXT_OFFSET).cast::<u64>() };
    let mut old = head.load(Ordering::Relaxed);
    loop {
        // SAFETY: as above.
        unsafe { next.write(old) };
        let new = tuple | (old & !((1 << TAG_SHIFT) - 1)) | tag.0;
        if ALONE {
            return head.store(new, Ordering::Relaxed);
        }
        match head.compare_exchange_weak(old, new, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => old = now,
        }
    }
}

/// The chains' beginnings.
pub(crate) struct Directory {
    entries: Words,
    skipped_bits: u32,
    shift: u32,
}

impl Directory {
    /// How many entries there are for `distinct` hashes: they fill a third to two thirds of them.
    pub fn entries_for(distinct: usize) -> usize {
        (distinct + distinct / 2).next_power_of_two().max(ENTRIES_MIN)
    }

    /// The same of a partition that is joined by itself.
    pub fn entries_for_part(distinct: usize) -> usize {
        (distinct + distinct / 2).next_power_of_two().max(PART_ENTRIES_MIN)
    }

    /// Bytes that so many entries take.
    pub fn bytes(entries: usize) -> usize {
        Words::bytes(entries)
    }

    /// `entries` without chains. The first `skipped_bits` of hashes do not count.
    ///
    /// # Errors
    /// The system's if it has no memory.
    ///
    /// # Panics
    /// If they are not a power of two, at least 2.
    pub fn new(entries: usize, skipped_bits: u32) -> std::io::Result<Directory> {
        assert!(entries.is_power_of_two() && entries > 1, "{entries} entries");
        let shift = u64::BITS - entries.trailing_zeros();
        Ok(Directory { entries: Words::new(entries)?, skipped_bits, shift })
    }

    /// Their memory.
    pub fn words(&self) -> &Words {
        &self.entries
    }

    /// All entries.
    #[inline(always)]
    pub fn entries(&self) -> Entries<'_> {
        let Directory { entries, skipped_bits, shift } = self;
        Entries { entries, skipped_bits: *skipped_bits, shift: *shift }
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Directory({} entries)", self.entries().entries.len())
    }
}

/// The entries of a directory, to be looked up in a loop.
#[derive(Clone, Copy)]
pub(crate) struct Entries<'a> {
    entries: &'a [AtomicU64],
    skipped_bits: u32,
    shift: u32,
}

impl<'a> Entries<'a> {
    /// How many.
    pub fn count(self) -> usize {
        self.entries.len()
    }

    /// Where the chain of a hash begins.
    #[inline(always)]
    pub fn head(self, hash: u64) -> &'a AtomicU64 {
        let index = (hash << self.skipped_bits >> self.shift) as usize;
        debug_assert!(index < self.entries.len());
        // SAFETY: a hash has 64 - `shift` bits left, and there are 2^(64 - `shift`) entries.
        unsafe { self.entries.get_unchecked(index) }
    }

    /// What the entry of a hash has.
    #[inline(always)]
    pub fn link(self, hash: u64) -> Link {
        Link(self.head(hash).load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(hash: u64) -> Box<[u64; 2]> {
        Box::new([hash, u64::MAX])
    }

    fn chain(directory: &Directory, hash: u64) -> Vec<u64> {
        let mut tuples = Vec::new();
        let mut link = directory.entries().link(hash);
        while link.may_hold(Tag::of(hash)) {
            tuples.push(link.tuple());
            // SAFETY: a tuple of the test.
            link = unsafe { Link::after(link.tuple()) };
        }
        tuples
    }

    #[test]
    fn chains_hold_what_was_pushed() {
        for (entries, skipped_bits) in [(64, 0), (1 << 19, 0), (1 << 19, 8)] {
            let mut random = fastrand::Rng::with_seed(5);
            let directory = Directory::new(entries, skipped_bits).unwrap();
            let mut tuples: Vec<Box<[u64; 2]>> =
                (0..3000).map(|_| header(random.u64(..))).collect();
            for (number, tuple) in tuples.iter_mut().enumerate() {
                let (hash, address) = (tuple[0], tuple.as_mut_ptr() as u64);
                // SAFETY: the tuple lives as long as the test.
                unsafe {
                    if number % 2 == 0 {
                        push::<true>(directory.entries().head(hash), address, Tag::of(hash));
                    } else {
                        push::<false>(directory.entries().head(hash), address, Tag::of(hash));
                    }
                }
            }
            for tuple in &tuples {
                let address = tuple.as_ptr() as u64;
                assert!(chain(&directory, tuple[0]).contains(&address));
                // SAFETY: as above.
                unsafe {
                    assert!(!Link::after(address).is_marked());
                    mark(address);
                    assert!(Link::after(address).is_marked());
                }
                assert!(chain(&directory, tuple[0]).contains(&address), "marked");
            }
            if entries > 3000 {
                let misses = (0..10_000).filter(|_| !chain(&directory, random.u64(..)).is_empty());
                assert!(misses.count() < 10, "tags spare tuples");
            }
        }
    }
}
