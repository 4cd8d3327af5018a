//! An index as a transaction sees it: the tree that it began with, which others go on changing, and a tree of its own rows.
//!
//! Entries of the first tree count if their rows were there when the transaction began, and it has not deleted them. The other
//! tree is thrown away when the transaction ends: its commit brings the rows into the shared tree as any commit does.

use std::sync::Arc;

use crate::error::Result;
use crate::index::version::{IndexVersion, Opened};
use crate::row_set::RowSet;
use crate::snapshot::Access;
use crate::table::TableVersion;

/// Lookups that run beside each other.
const LOOKUP_WIDTH: usize = 16;

/// What a transaction has made of an index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overlay {
    /// Entries of the shared tree with rows from this one on do not count.
    pub(crate) shared_end: u64,
    /// Rows before that one that the transaction has deleted.
    pub(crate) hidden: Arc<RowSet>,
    /// The index of the transaction's own rows, if there are some.
    pub(crate) own: Option<Box<IndexVersion>>,
}

/// One of the trees that an index consists of, and which of its entries count.
pub(crate) struct Layer<'a> {
    pub(crate) opened: &'a Opened,
    end: u64,
    hidden: Option<&'a RowSet>,
}

impl Layer<'_> {
    /// Whether the entry of a row counts.
    pub(crate) fn shows(&self, row: u64) -> bool {
        row < self.end && self.hidden.is_none_or(|hidden| !hidden.contains(row))
    }
}

impl IndexVersion {
    /// The trees of the index of a table, on a worker.
    pub(crate) async fn layers(
        &self,
        version: &TableVersion,
        access: &Access,
    ) -> Result<Vec<Layer<'_>>> {
        let opened = self.open(&version.schema, access).await?;
        let Some(overlay) = &self.overlay else {
            return Ok(vec![Layer { opened, end: version.next_row_id, hidden: None }]);
        };
        let hidden = Some(&*overlay.hidden).filter(|hidden| !hidden.is_empty());
        let mut layers = vec![Layer { opened, end: overlay.shared_end, hidden }];
        if let Some(own) = &overlay.own {
            let opened = own.open(&version.schema, access).await?;
            layers.push(Layer { opened, end: version.next_row_id, hidden: None });
        }
        Ok(layers)
    }

    /// How many trees [`layers`](IndexVersion::layers) gives.
    pub(crate) fn layer_count(&self) -> usize {
        let has_own = self.overlay.as_ref().is_some_and(|overlay| overlay.own.is_some());
        if has_own { 2 } else { 1 }
    }

    /// The rows with these keys, in the order of the keys; of several with one key any.
    pub(crate) async fn find(
        &self,
        keys: &[&[u8]],
        version: &TableVersion,
        access: &Access,
    ) -> Result<Vec<Option<u64>>> {
        let failed = |source| self.definition().error(&version.schema, source);
        let mut rows = vec![None; keys.len()];
        for layer in self.layers(version, access).await? {
            let found = layer.opened.tree.multi_get(keys, LOOKUP_WIDTH).await.map_err(failed)?;
            for (row, found) in rows.iter_mut().zip(found) {
                *row = row.or(found.filter(|found| layer.shows(*found)));
            }
        }
        Ok(rows)
    }

    /// The same index for a transaction that began with it, as it is before its first change of the table.
    pub(crate) fn overlaid(&self, shared_end: u64) -> Overlay {
        self.overlay.clone().unwrap_or(Overlay { shared_end, ..Overlay::default() })
    }

    /// The same with what a transaction has made of it.
    pub(crate) fn with_overlay(&self, overlay: Overlay) -> IndexVersion {
        let (entry, handle) = (self.entry.clone(), self.handle.clone());
        IndexVersion { entry, handle, overlay: Some(overlay) }
    }
}
