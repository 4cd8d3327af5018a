//! The hash index of query 14: part key to the place of the part, its page and its tuple there.
//!
//! Chained, as the paper's (seed 000, section 3.2): an array of buckets, each the number of its first
//! entry, and an array of entries, each with the number of the next. A lookup touches memory in two
//! kinds of places, the bucket and one entry per step, and each is exposed, so that a coroutine can
//! prefetch a place, let others run, and come back:
//!
//! ```text
//! let bucket = index.bucket(key);          // address arithmetic only: prefetch index.bucket_address(bucket)
//! let mut at = index.first(bucket);        // reads the bucket:        prefetch index.entry_address(entry)
//! while let Some(entry) = at { … at = index.entry(entry).next(); }
//! ```

use super::error::TpchError;
use super::page_file::PageTable;
use super::part_page::PartPage;

/// The end of a chain.
const NONE: u32 = u32::MAX;

/// Number of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketNumber(usize);

/// Number of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryNumber(u32);

/// An entry: where the part with this key lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct PartEntry {
    /// p_partkey.
    pub key: u32,
    /// Number of the part page, from 0.
    pub page: u32,
    next: u32,
    /// Tuple in the page, from 0.
    pub tuple: u16,
}

impl PartEntry {
    /// The next entry of the chain.
    pub fn next(&self) -> Option<EntryNumber> {
        (self.next != NONE).then_some(EntryNumber(self.next))
    }
}

/// The index; see the module.
#[derive(Debug)]
pub struct PartIndex {
    buckets: Vec<u32>,
    entries: Vec<PartEntry>,
    shift: u32,
}

impl PartIndex {
    /// An empty index that is fast for up to `parts` parts.
    pub fn with_capacity(parts: usize) -> PartIndex {
        let buckets = (2 * parts).next_power_of_two().max(2);
        PartIndex {
            buckets: vec![NONE; buckets],
            entries: Vec::with_capacity(parts),
            shift: 64 - buckets.trailing_zeros(),
        }
    }

    /// The index of all parts of a table.
    ///
    /// # Errors
    /// [`TpchError`] if a page cannot be read.
    pub fn build(parts: &PageTable) -> Result<PartIndex, TpchError> {
        let mut index = PartIndex::with_capacity(parts.rows as usize);
        parts.for_each_page(|page, bytes| {
            index.insert_page(page as u32, &PartPage::new(bytes)?);
            Ok(())
        })?;
        Ok(index)
    }

    /// Adds the parts of page number `page`.
    ///
    /// # Panics
    /// If the index would have 2^32 - 1 entries or more.
    pub fn insert_page(&mut self, page: u32, parts: &PartPage<'_>) {
        for (tuple, &key) in parts.partkey.iter().enumerate() {
            let number = u32::try_from(self.entries.len()).expect("fewer than 2^32 parts");
            assert!(number != NONE, "the index is full");
            let BucketNumber(bucket) = self.bucket(key);
            let next = std::mem::replace(&mut self.buckets[bucket], number);
            self.entries.push(PartEntry { key, page, next, tuple: tuple as u16 });
        }
    }

    /// Entries in the index.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bucket of `key`; touches no memory.
    pub fn bucket(&self, key: u32) -> BucketNumber {
        BucketNumber((u64::from(key).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize)
    }

    /// Where the bucket lies, for a prefetch.
    pub fn bucket_address(&self, bucket: BucketNumber) -> *const u8 {
        self.buckets.as_ptr().wrapping_add(bucket.0).cast()
    }

    /// The first entry of the bucket's chain; reads the bucket.
    pub fn first(&self, bucket: BucketNumber) -> Option<EntryNumber> {
        let first = self.buckets[bucket.0];
        (first != NONE).then_some(EntryNumber(first))
    }

    /// Where the entry lies, for a prefetch.
    pub fn entry_address(&self, entry: EntryNumber) -> *const u8 {
        self.entries.as_ptr().wrapping_add(entry.0 as usize).cast()
    }

    /// The entry.
    pub fn entry(&self, entry: EntryNumber) -> &PartEntry {
        &self.entries[entry.0 as usize]
    }

    /// The entry of `key`, all steps at once.
    pub fn get(&self, key: u32) -> Option<&PartEntry> {
        let mut at = self.first(self.bucket(key));
        while let Some(number) = at {
            let entry = self.entry(number);
            if entry.key == key {
                return Some(entry);
            }
            at = entry.next();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use weft_buffer::page::PageId;

    use super::super::layout::{Tuple, seal};
    use super::super::part_page::PartTuple;
    use super::*;

    #[test]
    fn finds_every_key_and_no_other_even_with_long_chains() {
        // Room for one part only: two buckets, chains of dozens.
        let mut index = PartIndex::with_capacity(1);
        let mut words = vec![0u64; 512];
        let page: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        for number in 0..5 {
            let tuple = |i: u32| PartTuple {
                retailprice: 1,
                partkey: 1000 * number + 7 * i,
                size: 1,
                name: String::new(),
                mfgr: String::new(),
                brand: String::new(),
                r#type: "",
                container: "",
                comment: "",
            };
            PartTuple::write_page(&(0..24).map(tuple).collect::<Vec<_>>(), page);
            seal(PartTuple::TABLE, page, 24, PageId::new(0, 4096, 4096));
            index.insert_page(number, &PartPage::new(page).expect("a part page"));
        }
        assert_eq!(index.len(), 120);
        for key in 0..6000 {
            let expected = (key < 5000 && key % 1000 % 7 == 0 && key % 1000 / 7 < 24)
                .then_some((key / 1000, (key % 1000 / 7) as u16));
            assert_eq!(index.get(key).map(|e| (e.page, e.tuple)), expected, "key {key}");
        }
    }
}
