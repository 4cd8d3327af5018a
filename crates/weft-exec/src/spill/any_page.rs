//! Tuples in memory, on whichever page: the one that they were stored on, or one that was read.

use super::frozen::Frozen;
use crate::tuple::{Page, hash_at};

/// A page with tuples of a layout that keeps nothing behind addresses.
#[derive(Debug)]
pub(crate) enum AnyPage {
    /// It was stored here.
    Stored(Page),
    /// It was read.
    Read(Frozen),
}

impl AnyPage {
    /// Number of tuples.
    pub(crate) fn tuples(&self) -> usize {
        match self {
            AnyPage::Stored(page) => page.tuples(),
            AnyPage::Read(page) => page.tuples(),
        }
    }

    /// The address of a tuple. Valid as long as the page is, wherever that is moved.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline(always)]
    pub(crate) fn tuple(&self, number: usize) -> *mut u8 {
        match self {
            AnyPage::Stored(page) => page.tuple(number),
            AnyPage::Read(page) => page.tuple(number),
        }
    }

    /// The hash of a tuple.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline(always)]
    pub(crate) fn hash(&self, number: usize) -> u64 {
        // SAFETY: tuples of a page are complete, and begin with their hashes.
        unsafe { hash_at(self.tuple(number)) }
    }
}
