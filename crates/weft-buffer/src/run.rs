//! Fixing runs of pages for a scan.

use std::ops::Range;
use std::sync::Arc;

use crate::error::BufferError;
use crate::guard::PageGuard;
use crate::page_table::PageTable;
use crate::pool::BufferPool;

impl BufferPool {
    /// As [`BufferPool::fix_for_scan`] for each of these pages of `table`; the guards come in the order of
    /// the pages.
    ///
    /// # Errors
    /// As [`BufferPool::fix`].
    ///
    /// # Panics
    /// As [`BufferPool::fix`].
    pub async fn fix_run_for_scan(
        &self,
        table: &Arc<PageTable>,
        pages: Range<usize>,
    ) -> Result<Vec<PageGuard>, BufferError> {
        let mut guards = Vec::with_capacity(pages.len());
        for page in pages {
            guards.push(self.fix_for_scan(table, page).await?);
        }
        Ok(guards)
    }
}
