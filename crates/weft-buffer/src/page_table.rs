//! The swips of a set of pages: what a scan walks along.
//!
//! Whoever uses the pages holds the [`PageTable`]. A buffer pool that has pages of it in memory holds
//! the swips alone, so that it learns from the table's end that nobody will want its pages again.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crate::page::PageId;
use crate::swip::Swip;

/// What a page's bytes have to be like, apart from the checksum: says what is wrong with them.
pub type PageCheck = fn(&[u8]) -> Result<(), &'static str>;

/// One swip per page, in the order of the pages, which may differ in size.
#[derive(Debug)]
pub struct PageTable {
    pages: Arc<Pages>,
    /// The pool that has, or had, pages of it in memory.
    home: OnceLock<Weak<dyn Home>>,
    /// Put to each page that is read.
    check: Option<PageCheck>,
}

/// The ids of a table's pages, and their swips.
#[derive(Debug)]
pub(crate) struct Pages {
    ids: Box<[AtomicU64]>,
    pub(crate) swips: Box<[Swip]>,
    /// What has the pages' space.
    owner: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl Pages {
    /// Where page number `page` lies now.
    #[inline]
    pub(crate) fn id(&self, page: usize) -> PageId {
        PageId::from_bits(self.ids[page].load(Ordering::Acquire)).expect("the id of a page")
    }

    /// Page number `page` has another place from now on; for the holder of its exclusive guard.
    pub(crate) fn set_id(&self, page: usize, id: PageId) {
        self.ids[page].store(id.to_bits(), Ordering::Release);
    }
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
        PageTable::make(ids, None)
    }

    /// The table of pages that are not believed before `check` has approved of them, whatever their
    /// checksum says: it is put to each page that is read, before anybody sees it.
    pub fn with_check(ids: impl IntoIterator<Item = PageId>, check: PageCheck) -> Arc<PageTable> {
        PageTable::make(ids, Some(check))
    }

    fn make(ids: impl IntoIterator<Item = PageId>, check: Option<PageCheck>) -> Arc<PageTable> {
        let ids: Vec<PageId> = ids.into_iter().collect();
        let swips = ids.iter().map(|&id| Swip::cold(id)).collect();
        let ids = ids.iter().map(|id| AtomicU64::new(id.to_bits())).collect();
        let pages = Arc::new(Pages { ids, swips, owner: OnceLock::new() });
        Arc::new(PageTable { pages, home: OnceLock::new(), check })
    }

    /// Has an owner of the pages' space live as long as the table does, and as a page of it is in memory, or on its way to a device. Only the
    /// first one counts.
    pub fn keep_alive(&self, owner: Arc<dyn Any + Send + Sync>) {
        self.pages.owner.get_or_init(|| owner);
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
        (0..self.len()).map(|page| self.id(page).bytes() as u64).sum()
    }

    /// The swip of page number `page`.
    ///
    /// # Panics
    /// If there is no such page.
    #[inline]
    pub fn swip(&self, page: usize) -> &Swip {
        &self.pages.swips[page]
    }

    /// The id of page number `page`, whether the page is in memory or not.
    ///
    /// # Panics
    /// If there is no such page.
    pub fn id(&self, page: usize) -> PageId {
        self.pages.id(page)
    }

    /// All swips.
    pub fn swips(&self) -> &[Swip] {
        &self.pages.swips
    }

    /// What its pages are checked by.
    pub(crate) fn check(&self) -> Option<PageCheck> {
        self.check
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
