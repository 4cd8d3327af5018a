//! The stages of a probe, each over all candidates before the next one begins.
//!
//! No loop has a branch per candidate, so that the processor goes on to the next one while the memory of the last ones
//! is on its way: first the directory's entries of all rows, then the tuples that entries with the right tag lead to, then
//! the tuples that their chain words lead to, and so on, until no chain goes on.

use weft_codec::dispatch::{Kernel, dispatch};
use weft_rt::prefetch_line;

use super::directory::{Entries, Link, Tag};
use super::keys::KeyValue;
use crate::selection::Selected;
use crate::tuple::layout::HASH_OFFSET;
use crate::vector::VECTOR_ROWS_MAX;

/// Rows of the probe side with a tuple of the build side each.
#[derive(Debug)]
pub(crate) struct Pairs {
    rows: Box<[u16; VECTOR_ROWS_MAX]>,
    tuples: Box<[u64; VECTOR_ROWS_MAX]>,
    count: usize,
}

impl Default for Pairs {
    fn default() -> Pairs {
        Pairs {
            rows: Box::new([0; VECTOR_ROWS_MAX]),
            tuples: Box::new([0; VECTOR_ROWS_MAX]),
            count: 0,
        }
    }
}

impl Pairs {
    /// How many.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The rows.
    pub fn rows(&self) -> &[u16] {
        &self.rows[..self.count]
    }

    /// The addresses of the tuples.
    pub fn tuples(&self) -> &[u64] {
        &self.tuples[..self.count]
    }

    /// Rows and tuples.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> {
        self.rows().iter().map(|row| usize::from(*row)).zip(self.tuples().iter().copied())
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds one. There is room for [`VECTOR_ROWS_MAX`].
    pub fn push(&mut self, row: usize, tuple: u64) {
        (self.rows[self.count], self.tuples[self.count]) = (row as u16, tuple);
        self.count += 1;
    }

    /// Writes where the next one goes, which may be where the last one went: the caller counts.
    #[inline(always)]
    fn put(&mut self, at: usize, row: usize, tuple: u64) {
        debug_assert!(at < VECTOR_ROWS_MAX);
        // The remainder is the number itself; the compiler sees that it is no more than the arrays have.
        self.rows[at % VECTOR_ROWS_MAX] = row as u16;
        self.tuples[at % VECTOR_ROWS_MAX] = tuple;
    }

    /// Keeps those for which `keep` is true.
    #[inline(always)]
    pub fn retain(&mut self, mut keep: impl FnMut(usize, u64) -> bool) {
        let mut kept = 0;
        for at in 0..self.count {
            let (row, tuple) = (usize::from(self.rows[at]), self.tuples[at]);
            self.put(kept, row, tuple);
            kept += usize::from(keep(row, tuple));
        }
        self.count = kept;
    }

    /// The first stage: looks up the entries of the rows, and keeps the tuples that they lead to if the tag is right.
    /// `links` is working space.
    pub fn look_up(
        &mut self,
        entries: Entries<'_>,
        hashes: &[u64],
        selected: Selected<'_>,
        links: &mut Links,
    ) {
        // So little per row that the loads of some tens of rows are under way at once.
        match selected {
            Selected::All(rows) => {
                for (link, hash) in links.iter_mut().zip(&hashes[..rows]) {
                    *link = entries.link(*hash);
                }
            }
            Selected::Some(rows) => {
                for (link, row) in links.iter_mut().zip(rows) {
                    *link = entries.link(hashes[usize::from(*row)]);
                }
            }
        }
        dispatch(KeepTagged { pairs: self, links, hashes, selected });
        self.prefetch();
    }

    /// Asks for the headers of the tuples.
    #[inline(always)]
    fn prefetch(&self) {
        self.tuples().iter().for_each(|tuple| prefetch_line(*tuple as *const u8));
    }

    /// The second stage: makes these the pairs of `open` whose hashes are equal, and notes how chains go on.
    ///
    /// # Safety
    /// All tuples of `open` are in chains of a finished build.
    #[inline(always)]
    pub unsafe fn same_hash(&mut self, open: &Pairs, hashes: &[u64], links: &mut Links) {
        // SAFETY: as the caller promises.
        unsafe {
            self.select(open, links, |row, tuple| {
                (tuple as *const u8).add(HASH_OFFSET).cast::<u64>().read() == hashes[row]
            });
        }
    }

    /// The second stage if there is but one key, of few bytes and not null: compares that at once.
    ///
    /// # Safety
    /// As [`Pairs::same_hash`]; `key_of` may be called with the addresses of tuples.
    #[inline(always)]
    pub unsafe fn same_key<T: KeyValue>(
        &mut self,
        open: &Pairs,
        keys: &[T],
        key_of: impl Fn(u64) -> T,
        links: &mut Links,
    ) {
        // SAFETY: as the caller promises.
        unsafe {
            self.select(open, links, |row, tuple| keys[row].same(key_of(tuple)));
        }
    }

    /// # Safety
    /// As [`Pairs::same_hash`].
    #[inline(always)]
    unsafe fn select(
        &mut self,
        open: &Pairs,
        links: &mut Links,
        is_same: impl Fn(usize, u64) -> bool,
    ) {
        let mut count = 0;
        for (at, (row, tuple)) in open.iter().enumerate() {
            // SAFETY: as the caller promises.
            links[at % VECTOR_ROWS_MAX] = unsafe { Link::after(tuple) };
            self.put(count, row, tuple);
            count += usize::from(is_same(row, tuple));
        }
        self.count = count;
    }

    /// The last stage: goes on to the next tuples of the chains, of rows that are `wanted`.
    #[inline(always)]
    pub fn advance(&mut self, links: &Links, hashes: &[u64], wanted: impl Fn(usize) -> bool) {
        dispatch(KeepNext { pairs: self, links, hashes, wanted });
        self.prefetch();
    }
}

/// Makes `pairs` the rows whose links have the tag of their hash.
struct KeepTagged<'a> {
    pairs: &'a mut Pairs,
    links: &'a Links,
    hashes: &'a [u64],
    selected: Selected<'a>,
}

impl Kernel for KeepTagged<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let KeepTagged { pairs, links, hashes, selected } = self;
        let mut count = 0;
        match selected {
            Selected::All(rows) => {
                for (row, (link, hash)) in links.iter().zip(&hashes[..rows]).enumerate() {
                    pairs.put(count, row, link.tuple());
                    count += usize::from(link.may_hold(Tag::of(*hash)));
                }
            }
            Selected::Some(rows) => {
                for (link, row) in links.iter().zip(rows) {
                    let row = usize::from(*row);
                    pairs.put(count, row, link.tuple());
                    count += usize::from(link.may_hold(Tag::of(hashes[row])));
                }
            }
        }
        pairs.count = count;
    }
}

/// Makes each of `pairs` the next one of its chain, if there is one with the right tag and the row is `wanted`.
struct KeepNext<'a, W> {
    pairs: &'a mut Pairs,
    links: &'a Links,
    hashes: &'a [u64],
    wanted: W,
}

impl<W: Fn(usize) -> bool> Kernel for KeepNext<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let KeepNext { pairs, links, hashes, wanted } = self;
        let mut count = 0;
        for (at, link) in links.iter().enumerate().take(pairs.count) {
            let row = usize::from(pairs.rows[at]);
            pairs.put(count, row, link.tuple());
            count += usize::from(link.may_hold(Tag::of(hashes[row])) & wanted(row));
        }
        pairs.count = count;
    }
}

/// The chain words of the pairs at hand.
pub(crate) type Links = [Link; VECTOR_ROWS_MAX];
