//! An index as a transaction sees it: the tree that it began with, which others go on changing, and a tree of its own rows.
//!
//! Entries of the first tree count if their rows were there when the transaction began, and it has not deleted them. The other
//! tree is thrown away when the transaction ends: its commit brings the rows into the shared tree as any commit does.

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use weft_index::{Direction, EntryBytes, IndexError, PrefixCursor, Range};

use crate::error::Result as StoreResult;
use crate::index::past::{Moment, Past, PastEntry, PastKey};
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
    past: &'a Past,
    moment: &'a Moment,
    end: u64,
    hidden: Option<&'a RowSet>,
}

impl Layer<'_> {
    /// Whether the entry of a row counts.
    pub(crate) fn shows(&self, row: u64) -> bool {
        row < self.end && self.hidden.is_none_or(|hidden| !hidden.contains(row))
    }

    /// Whether entries have left the tree.
    pub(crate) fn has_past(&self) -> bool {
        !self.past.is_empty()
    }

    /// Entries that count and have left the tree, between two bounds, in order.
    fn past(&self, from: Bound<PastKey>, to: Bound<PastKey>) -> Vec<PastEntry> {
        let mut found = self.past.between(self.moment, from, to);
        found.retain(|entry| self.shows(entry.row));
        found
    }

    /// The entry of a key of a unique index, if it counts and has left the tree.
    pub(crate) fn past_entry(&self, key: &[u8]) -> Option<PastEntry> {
        if self.past.is_empty() {
            return None;
        }
        let key: Arc<[u8]> = Arc::from(key);
        let (from, to) = (Bound::Included((key.clone(), 0)), Bound::Included((key, u64::MAX)));
        self.past(from, to).into_iter().next()
    }

    /// Adds the rows of entries that have left the tree to what lookups have just found in it, which is the rows that count; and the
    /// entries to those of the rows, if they are wanted.
    pub(crate) fn add_past(
        &self,
        cursors: &[PrefixCursor],
        found: &mut Vec<(u32, u64)>,
        mut entries: Option<&mut EntryBytes>,
    ) {
        if self.past.is_empty() {
            return;
        }
        let there: HashSet<(u32, u64)> = found.iter().copied().collect();
        for (cursor, number) in cursors.iter().zip(0..) {
            let Some((from, to)) = cursor.looked_at() else { continue };
            let to = to.map_or(Bound::Unbounded, |to| Bound::Excluded((Arc::from(to), 0)));
            let left = self.past(Bound::Included((Arc::from(from), 0)), to);
            for PastEntry { key, row, included } in left {
                if there.contains(&(number, row)) {
                    continue;
                }
                found.push((number, row));
                if let Some(entries) = &mut entries {
                    entries.push(&key, &included);
                }
            }
        }
    }

    /// The entries that count of a range of keys: those not below `low`, and below `high`.
    pub(crate) fn range<'b>(
        &'b self,
        low: Option<&[u8]>,
        high: Option<&[u8]>,
        direction: Direction,
    ) -> LayerRange<'b> {
        LayerRange {
            layer: self,
            direction,
            range: self.opened.tree.range(low, high, direction),
            low: low.map(Arc::from),
            high: high.map(Arc::from),
            last: None,
            waiting: VecDeque::new(),
            state: RangeState::Begun,
        }
    }
}

/// The entries of a layer that count, in the order of their keys, or against it.
pub(crate) struct LayerRange<'a> {
    layer: &'a Layer<'a>,
    direction: Direction,
    range: Range<'a>,
    low: Option<Arc<[u8]>>,
    high: Option<Arc<[u8]>>,
    /// The last entry of the tree.
    last: Option<LastEntry>,
    /// Entries that have left the tree, and come before that one in this direction.
    waiting: VecDeque<PastEntry>,
    state: RangeState,
}

/// An entry that was found in a tree: its key, as the tree has it, its row, and what it includes.
#[derive(Default)]
struct LastEntry {
    key: Vec<u8>,
    row: u64,
    included: Vec<u8>,
}

/// An entry of a layer.
pub(crate) struct LayerEntry<'a> {
    /// Its key, as the tree has it.
    pub(crate) key: Cow<'a, [u8]>,
    /// Its row.
    pub(crate) row: u64,
    /// What it includes.
    pub(crate) included: Cow<'a, [u8]>,
}

/// What comes after the entries that wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RangeState {
    /// The next entry of the tree.
    Begun,
    /// The last entry of the tree that was found.
    Found,
    /// Nothing.
    Ended,
}

impl LayerRange<'_> {
    /// The next entry; `None` after the last.
    ///
    /// # Errors
    /// Those of reading the tree.
    pub(crate) async fn next(&mut self) -> Result<Option<LayerEntry<'_>>, IndexError> {
        loop {
            if let Some(PastEntry { key, row, included }) = self.waiting.pop_front() {
                let (key, included) = (Cow::Owned(key.to_vec()), Cow::Owned(included.to_vec()));
                return Ok(Some(LayerEntry { key, row, included }));
            }
            match self.state {
                RangeState::Begun => self.find().await?,
                RangeState::Found => {
                    self.state = RangeState::Begun;
                    // As long as a loop borrows what it returns, the compiler takes it for borrowed ever after.
                    if self.last.as_ref().is_some_and(|last| self.layer.shows(last.row)) {
                        break;
                    }
                }
                RangeState::Ended => return Ok(None),
            }
        }
        Ok(self.last.as_ref().map(|LastEntry { key, row, included }| LayerEntry {
            key: Cow::Borrowed(&key[..]),
            row: *row,
            included: Cow::Borrowed(&included[..]),
        }))
    }

    /// Finds the next entry of the tree, and the entries before it that had left the tree when the leaf was copied.
    async fn find(&mut self) -> Result<(), IndexError> {
        let form = self.layer.opened.tree.form();
        let found = self.range.next().await?;
        if !self.layer.past.is_empty() {
            let low = match &self.low {
                Some(low) => Bound::Included((low.clone(), 0)),
                None => Bound::Unbounded,
            };
            let high = match &self.high {
                Some(high) => Bound::Excluded((high.clone(), 0)),
                None => Bound::Unbounded,
            };
            let last = self.last.as_ref();
            let last = last.map(|last| Bound::Excluded((Arc::from(&last.key[..]), last.row)));
            let next = found.map(|entry| {
                let key = form.full_key(&entry.key, entry.row);
                Bound::Excluded((Arc::from(key), entry.row))
            });
            let (from, to) = match self.direction {
                Direction::Forwards => (last.unwrap_or(low), next.unwrap_or(high)),
                Direction::Backwards => (next.unwrap_or(low), last.unwrap_or(high)),
            };
            let mut past = self.layer.past(from, to);
            if self.direction == Direction::Backwards {
                past.reverse();
            }
            self.waiting.extend(past);
        }
        let Some(entry) = found else {
            self.state = RangeState::Ended;
            return Ok(());
        };
        let LastEntry { key, row, included } = self.last.get_or_insert_default();
        included.clear();
        included.extend_from_slice(&entry.included);
        key.clear();
        key.extend_from_slice(&entry.key);
        if !form.is_unique {
            key.extend_from_slice(&entry.row.to_be_bytes());
        }
        *row = entry.row;
        self.state = RangeState::Found;
        Ok(())
    }
}

impl IndexVersion {
    /// The trees of the index of a table, on a worker.
    pub(crate) async fn layers(
        &self,
        version: &TableVersion,
        access: &Access,
    ) -> StoreResult<Vec<Layer<'_>>> {
        let opened = self.open(&version.schema, access).await?;
        let Some(overlay) = &self.overlay else {
            return Ok(vec![self.layer(opened, version.next_row_id, None)]);
        };
        let hidden = Some(&*overlay.hidden).filter(|hidden| !hidden.is_empty());
        let mut layers = vec![self.layer(opened, overlay.shared_end, hidden)];
        if let Some(own) = &overlay.own {
            let opened = own.open(&version.schema, access).await?;
            layers.push(own.layer(opened, version.next_row_id, None));
        }
        Ok(layers)
    }

    fn layer<'a>(&'a self, opened: &'a Opened, end: u64, hidden: Option<&'a RowSet>) -> Layer<'a> {
        Layer { opened, past: &self.handle.past, moment: &self.moment, end, hidden }
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
    ) -> StoreResult<Vec<Option<u64>>> {
        let failed = |source| self.definition().error(&version.schema, source);
        let mut rows = vec![None; keys.len()];
        for layer in self.layers(version, access).await? {
            let found = layer.opened.tree.multi_get(keys, LOOKUP_WIDTH).await.map_err(failed)?;
            for ((row, found), key) in rows.iter_mut().zip(found).zip(keys) {
                let found = found.filter(|found| layer.shows(*found));
                *row = row.or(found).or_else(|| layer.past_entry(key).map(|past| past.row));
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
        IndexVersion { overlay: Some(overlay), ..self.clone() }
    }
}
