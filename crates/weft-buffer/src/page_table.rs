//! The swips of a set of pages: what a scan walks along.
//!
//! Whoever uses the pages holds the [`PageTable`]. A buffer pool that has pages of it in memory holds
//! the swips alone, so that it learns from the table's end that nobody will want its pages again.

use std::sync::{Arc, OnceLock, Weak};

use crate::page::PageId;
use crate::swip::Swip;

/// One swip per page, in the order of the pages, which may differ in size.
#[derive(Debug)]
pub struct PageTable {
    pages: Arc<Pages>,
    /// The pool that has, or had, pages of it in memory.
    home: OnceLock<Weak<dyn Home>>,
}

/// The ids of a table's pages, and their swips.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) ids: Box<[PageId]>,
    pub(crate) swips: Box<[Swip]>,
}

/// A pool that keeps pages in memory after their last use.
pub(crate) trait Home: Send + Sync {
    /// Nobody will want these pages again.
    fn abandon(&self, pages: &Pages);
}

impl PageTable {
    /// A table of pages on the device. It may be dropped at any time, while its pages are in memory or
    /// guarded too; then changes of a page that were not flushed are forgotten.
    pub fn new(ids: impl IntoIterator<Item = PageId>) -> Arc<PageTable> {
        let ids: Box<[PageId]> = ids.into_iter().collect();
        let swips = ids.iter().map(|&id| Swip::cold(id)).collect();
        Arc::new(PageTable { pages: Arc::new(Pages { ids, swips }), home: OnceLock::new() })
    }

    /// Number of pages.
    pub fn len(&self) -> usize {
        self.pages.swips.len()
    }

    /// True if there are no pages.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all pages.
    pub fn bytes(&self) -> u64 {
        self.pages.ids.iter().map(|id| id.bytes() as u64).sum()
    }

    /// The swip of page number `page`.
    ///
    /// # Panics
    /// If there is no such page.
    #[inline]
    pub fn swip(&self, page: usize) -> &Swip {
        &self.pages.swips[page]
    }

    /// The id of page number `page`, wherever the page is now.
    ///
    /// # Panics
    /// If there is no such page.
    pub fn id(&self, page: usize) -> PageId {
        self.pages.ids[page]
    }

    /// All swips.
    pub fn swips(&self) -> &[Swip] {
        &self.pages.swips
    }

    pub(crate) fn pages(&self) -> &Arc<Pages> {
        &self.pages
    }

    /// Notes which pool is about to have pages of this table.
    pub(crate) fn settle_in(&self, home: impl FnOnce() -> Weak<dyn Home>) {
        self.home.get_or_init(home);
    }
}

impl Drop for PageTable {
    fn drop(&mut self) {
        if let Some(home) = self.home.get().and_then(Weak::upgrade) {
            home.abandon(&self.pages);
        }
    }
}
