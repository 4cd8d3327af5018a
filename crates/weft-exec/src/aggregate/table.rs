//! The hash tables over groups: linear probing over entries of eight bytes, the high 16 bits of which are a tag of the hash
//! and the others the address of a tuple.
//!
//! The place of an entry comes from the high bits of the hash, as does the partition of its tuple, so that the entries of a
//! partition are a range of the table. Probing stays within the range: a range can be cleared, or be full, by itself.

use super::state::Tuple;
use crate::zeroed::Zeroed;

const ADDRESS_BITS: u32 = 48;
const ADDRESS_MASK: u64 = (1 << ADDRESS_BITS) - 1;

/// Entries, in ranges of equal size.
#[derive(Debug)]
pub(super) struct Table {
    entries: Zeroed<u64>,
    /// Groups in each range.
    groups: Vec<u32>,
    /// What a hash is shifted by to become a place.
    shift: u32,
    range_bits: u32,
    /// Bits of the hash that are the same for all of the table, and do not count.
    skipped_bits: u32,
}

impl Table {
    /// Without groups: 2^`bits` entries in 2^`range_bits` ranges, for hashes whose first `skipped_bits` are the same. Fewer of them
    /// are skipped if the hash does not have so many bits left.
    ///
    /// # Panics
    /// If there are more ranges than entries.
    pub(super) fn new(bits: u32, range_bits: u32, skipped_bits: u32) -> Table {
        assert!(bits > range_bits, "ranges of entries");
        let skipped_bits = skipped_bits.min(u64::BITS - 1 - bits);
        Table {
            entries: Zeroed::new(1 << bits),
            groups: vec![0; 1 << range_bits],
            shift: u64::BITS - bits,
            range_bits,
            skipped_bits,
        }
    }

    /// Bytes that a table takes.
    pub(super) fn bytes(bits: u32) -> u64 {
        (size_of::<u64>() as u64) << bits
    }

    /// Two to the power of this is the number of entries.
    pub(super) fn bits(&self) -> u32 {
        u64::BITS - self.shift
    }

    /// Number of ranges, as a power of two.
    pub(super) fn range_bits(&self) -> u32 {
        self.range_bits
    }

    /// Bits of the hash that are the same for all of the table.
    pub(super) fn skipped_bits(&self) -> u32 {
        self.skipped_bits
    }

    /// Where to look for a hash first.
    #[inline(always)]
    pub(super) fn home(&self, hash: u64) -> u32 {
        ((hash << self.skipped_bits) >> self.shift) as u32
    }

    /// Where to look next.
    #[inline(always)]
    pub(super) fn after(&self, place: u32) -> u32 {
        let mask = (1u32 << (self.bits() - self.range_bits)) - 1;
        (place & !mask) | ((place + 1) & mask)
    }

    /// Where a hash may be: from `place` on, the first entry that has its tag, or `None` and the free entry where it
    /// would have to be.
    #[inline(always)]
    pub(super) fn look(&self, hash: u64, place: u32) -> (u32, Option<Tuple>) {
        let tag = (hash as u16) as u64;
        let mut place = place;
        loop {
            let entry = self.entries[place as usize];
            if entry == 0 {
                return (place, None);
            }
            if entry >> ADDRESS_BITS == tag {
                // SAFETY: entries are made of tuples below, which whoever owns the table answers for.
                let tuple = unsafe { Tuple::at((entry & ADDRESS_MASK) as *mut u8) };
                return (place, Some(tuple));
            }
            place = self.after(place);
        }
    }

    /// The range of a place.
    #[inline(always)]
    pub(super) fn range(&self, place: u32) -> usize {
        (place >> (self.bits() - self.range_bits)) as usize
    }

    /// True if the range of a place must have no more groups.
    #[inline(always)]
    pub(super) fn is_full(&self, place: u32) -> bool {
        let entries = 1u32 << (self.bits() - self.range_bits);
        self.groups[self.range(place)] >= entries - entries.div_ceil(4)
    }

    /// Puts a tuple into a free entry.
    #[inline(always)]
    pub(super) fn put(&mut self, place: u32, hash: u64, tuple: Tuple) {
        let address = tuple.address() as u64;
        debug_assert_eq!(address & !ADDRESS_MASK, 0, "an address of 48 bits");
        self.entries[place as usize] = u64::from(hash as u16) << ADDRESS_BITS | address;
        let range = self.range(place);
        self.groups[range] += 1;
    }

    /// Puts a tuple into the first free entry, without looking at others.
    pub(super) fn insert(&mut self, hash: u64, tuple: Tuple) {
        self.put(self.free(hash), hash, tuple);
    }

    /// The first free entry for a hash.
    pub(super) fn free(&self, hash: u64) -> u32 {
        let mut place = self.home(hash);
        while self.entries[place as usize] != 0 {
            place = self.after(place);
        }
        place
    }

    /// Forgets the groups of a range; returns how many they were.
    pub(super) fn clear(&mut self, range: usize) -> u32 {
        let entries = 1usize << (self.bits() - self.range_bits);
        self.entries[range * entries..][..entries].fill(0);
        std::mem::take(&mut self.groups[range])
    }

    /// All groups that the table has.
    pub(super) fn tuples(&self) -> impl Iterator<Item = Tuple> {
        self.entries.iter().filter(|entry| **entry != 0).map(|entry| {
            // SAFETY: as in `look`.
            unsafe { Tuple::at((entry & ADDRESS_MASK) as *mut u8) }
        })
    }

    /// Asks for the memory of a place.
    #[inline(always)]
    pub(super) fn prefetch(&self, place: u32) {
        weft_rt::prefetch_line(&self.entries[place as usize]);
    }
}
