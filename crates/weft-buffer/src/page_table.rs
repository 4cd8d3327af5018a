//! The swips of a set of pages of one size: what a scan walks along.

use crate::page::{PageId, SizeClass};
use crate::swip::Swip;

/// One swip per page, in the order of the pages.
#[derive(Debug)]
pub struct PageTable {
    class: SizeClass,
    ids: Box<[PageId]>,
    swips: Box<[Swip]>,
}

impl PageTable {
    /// A table of cold swips.
    ///
    /// # Panics
    /// If the pages differ in size.
    pub fn new(class: SizeClass, ids: impl IntoIterator<Item = PageId>) -> PageTable {
        let ids: Box<[PageId]> = ids.into_iter().collect();
        assert!(ids.iter().all(|id| id.class() == class), "pages of one table have one size");
        let swips = ids.iter().map(|&id| Swip::cold(id)).collect();
        PageTable { class, ids, swips }
    }

    /// Size of each page.
    pub fn class(&self) -> SizeClass {
        self.class
    }

    /// Number of pages.
    pub fn len(&self) -> usize {
        self.swips.len()
    }

    /// True if there are no pages.
    pub fn is_empty(&self) -> bool {
        self.swips.is_empty()
    }

    /// Bytes of all pages.
    pub fn bytes(&self) -> u64 {
        self.len() as u64 * self.class.bytes() as u64
    }

    /// The swip of page number `page`.
    ///
    /// # Panics
    /// If there is no such page.
    #[inline]
    pub fn swip(&self, page: usize) -> &Swip {
        &self.swips[page]
    }

    /// The id of page number `page`, wherever the page is now.
    ///
    /// # Panics
    /// If there is no such page.
    pub fn id(&self, page: usize) -> PageId {
        self.ids[page]
    }

    /// All swips.
    pub fn swips(&self) -> &[Swip] {
        &self.swips
    }
}
