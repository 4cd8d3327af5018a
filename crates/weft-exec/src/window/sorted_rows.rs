//! The rows that a window goes through: all of a sort, or a part of those that a merge gives.

use std::sync::{Arc, OnceLock};

use crate::sort::Sorted;
use crate::sort::entries::Entry;
use crate::sort::rows::Rows;

/// Sorted rows. Clones are the same rows.
#[derive(Clone, Debug)]
pub(super) enum SortedRows {
    All(Arc<OnceLock<Sorted>>),
    Part(Arc<Rows>),
}

impl SortedRows {
    /// True if they are still to be merged.
    pub(super) fn is_on_disk(&self) -> bool {
        match self {
            SortedRows::All(sorted) => {
                sorted.get().is_some_and(|sorted| sorted.entries().is_none())
            }
            SortedRows::Part(_) => false,
        }
    }

    /// In their order.
    pub(super) fn entries(&self) -> &[Entry] {
        match self {
            SortedRows::All(sorted) => sorted.get().and_then(Sorted::entries).unwrap_or_default(),
            SortedRows::Part(rows) => rows.entries(),
        }
    }
}
