//! Rows by what their keys begin with, for many prefixes at a time: the lookups of a join.
//!
//! A lookup descends as [`Tree::get`] does, and reads the rows in the leaf where it lies, optimistically: nothing is copied
//! but their ids. What a join finds may be much, so a lookup may stop in the middle, and goes on at the next key.

use std::cell::{Cell, RefCell};

use super::interleave::Interleave;
use super::mode::{Interleaved, Mode};
use super::{Looked, Tree};
use crate::error::IndexError;
use crate::key::after_prefix;

/// A lookup of the rows whose keys begin with a prefix, and how far it has come.
#[derive(Clone, Debug)]
pub struct PrefixCursor {
    /// Where it goes on: a key that begins with the prefix, or the prefix; `None` if there are no more rows.
    from: Option<Vec<u8>>,
    /// Where it ends; `None` for the end of the tree.
    end: Option<Vec<u8>>,
    /// Where the last call of [`Tree::multi_prefix`] had it go on; `None` if that call did not move it.
    moved_from: Option<Vec<u8>>,
}

impl PrefixCursor {
    /// A lookup that begins.
    pub fn new(prefix: &[u8]) -> PrefixCursor {
        let end = after_prefix(prefix);
        PrefixCursor { from: Some(prefix.to_vec()), end, moved_from: None }
    }

    /// A lookup that a round of lookups has left at `next`.
    pub(super) fn stopped(prefix: &[u8], next: Vec<u8>) -> PrefixCursor {
        let end = after_prefix(prefix);
        PrefixCursor { from: Some(next), end, moved_from: Some(prefix.to_vec()) }
    }

    /// A lookup that has found all rows at once.
    pub fn looked_up(prefix: &[u8]) -> PrefixCursor {
        let end = after_prefix(prefix);
        PrefixCursor { from: None, end, moved_from: Some(prefix.to_vec()) }
    }

    /// True if it has found all rows.
    pub fn has_ended(&self) -> bool {
        self.from.is_none()
    }

    /// The keys, as the tree has them, that the last call of [`Tree::multi_prefix`] has looked at: from the first on, and
    /// below the second.
    pub fn looked_at(&self) -> Option<(&[u8], Option<&[u8]>)> {
        let end = self.from.as_deref().or(self.end.as_deref());
        Some((self.moved_from.as_deref()?, end))
    }
}

/// Keys of entries, as the tree has them, and what the entries include, one after the other.
#[derive(Clone, Debug, Default)]
pub struct EntryBytes {
    bytes: Vec<u8>,
    /// Where the key of each entry ends, and where what it includes does.
    ends: Vec<(usize, usize)>,
}

impl EntryBytes {
    /// No entries.
    pub fn new() -> EntryBytes {
        EntryBytes::default()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Adds an entry.
    pub fn push(&mut self, key: &[u8], included: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(included);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// The key of entry number `index`, and what it includes.
    ///
    /// # Panics
    /// If there is no such entry.
    pub fn get(&self, index: usize) -> (&[u8], &[u8]) {
        let start = if index == 0 { 0 } else { self.ends[index - 1].1 };
        let (key_end, end) = self.ends[index];
        (&self.bytes[start..key_end], &self.bytes[key_end..end])
    }

    /// Forgets them, and keeps their memory.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Forgets all but the first `len` of them.
    pub(super) fn truncate(&mut self, len: usize) {
        self.ends.truncate(len);
        self.bytes.truncate(self.ends.last().map_or(0, |(_, end)| *end));
    }

    fn append(&mut self, other: &EntryBytes) {
        for index in 0..other.len() {
            let (key, included) = other.get(index);
            self.push(key, included);
        }
    }
}

/// What lookups have found.
#[derive(Default)]
struct Found {
    rows: Vec<(u32, u64)>,
    /// The entries of the rows, if they are wanted.
    entries: Option<EntryBytes>,
}

/// What a lookup has found in a leaf.
struct FoundInLeaf {
    rows: Vec<u64>,
    entries: Option<EntryBytes>,
    key: Vec<u8>,
    included: Vec<u8>,
}

impl FoundInLeaf {
    fn clear(&mut self) {
        self.rows.clear();
        if let Some(entries) = &mut self.entries {
            entries.clear();
        }
    }
}

impl Tree {
    /// Goes on with lookups, up to `width` of them at a time, until all have ended or have found about `rows_max` rows
    /// together, one at least. Gives the rows as the number of the lookup and the row's id; those of one lookup come in
    /// the order of their keys.
    ///
    /// # Errors
    /// As [`Tree::get`]: the first that comes.
    pub async fn multi_prefix(
        &self,
        cursors: &mut [PrefixCursor],
        width: usize,
        rows_max: usize,
    ) -> Result<Vec<(u32, u64)>, IndexError> {
        let found = self.find_prefixes(cursors, width, rows_max, Found::default()).await?;
        Ok(found.rows)
    }

    /// As [`Tree::multi_prefix`], with the entry of each row.
    ///
    /// # Errors
    /// As [`Tree::get`]: the first that comes.
    pub async fn multi_prefix_entries(
        &self,
        cursors: &mut [PrefixCursor],
        width: usize,
        rows_max: usize,
    ) -> Result<(Vec<(u32, u64)>, EntryBytes), IndexError> {
        let nothing = Found { rows: Vec::new(), entries: Some(EntryBytes::new()) };
        let found = self.find_prefixes(cursors, width, rows_max, nothing).await?;
        Ok((found.rows, found.entries.unwrap_or_default()))
    }

    /// Adds what lookups find to `found`, which has nothing yet.
    async fn find_prefixes(
        &self,
        cursors: &mut [PrefixCursor],
        width: usize,
        rows_max: usize,
        found: Found,
    ) -> Result<Found, IndexError> {
        let paused = Cell::new(false);
        let found = RefCell::new(found);
        let mut failed = None;
        let width = width.min(cursors.len());
        cursors.iter_mut().for_each(|cursor| cursor.moved_from = None);
        {
            let (paused, found) = (&paused, &found);
            let mut numbered = cursors.iter_mut().zip(0..).filter(|(of, _)| !of.has_ended());
            let next = || {
                if found.borrow().rows.len() >= rows_max {
                    return None;
                }
                let (cursor, number) = numbered.next()?;
                let lookup = self.go_on(Interleaved(paused), cursor, number, found, rows_max);
                Some(((), lookup))
            };
            let done = |(), looked: Looked<()>| {
                if let Err(error) = looked {
                    failed.get_or_insert(error);
                }
            };
            Interleave::new(width, paused, next, done).await;
        }
        match failed {
            None => Ok(found.into_inner()),
            Some(error) => Err(*error),
        }
    }

    /// One lookup.
    async fn go_on<M: Mode>(
        &self,
        mode: M,
        cursor: &mut PrefixCursor,
        number: u32,
        found: &RefCell<Found>,
        rows_max: usize,
    ) -> Looked<()> {
        let entries = found.borrow().entries.as_ref().map(|_| EntryBytes::new());
        let (rows, key, included) = (Vec::new(), Vec::new(), Vec::new());
        let mut in_leaf = FoundInLeaf { rows, entries, key, included };
        while let Some(from) = &cursor.from {
            let leaf = self.leaf_of(mode, from).await?;
            let room = rows_max.saturating_sub(found.borrow().rows.len()).max(1);
            let next = self.rows_in(&leaf, from, cursor.end.as_deref(), room, &mut in_leaf);
            // Other lookups may have found rows while this one waited, but none does between here and there.
            if !leaf.page.validate() {
                in_leaf.clear();
                continue;
            }
            let from = std::mem::replace(&mut cursor.from, next);
            cursor.moved_from = cursor.moved_from.take().or(from);
            let mut found = found.borrow_mut();
            found.rows.extend(in_leaf.rows.iter().map(|row| (number, *row)));
            if let (Some(entries), Some(more)) = (&mut found.entries, &in_leaf.entries) {
                entries.append(more);
            }
            in_leaf.clear();
            if found.rows.len() >= rows_max {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Finds the rows of a leaf from a key on, up to `room` of them; gives the key to go on with, if there may be more. What it
    /// gives counts only if the leaf is valid afterwards.
    fn rows_in(
        &self,
        leaf: &super::Visit<'_>,
        from: &[u8],
        end: Option<&[u8]>,
        room: usize,
        found: &mut FoundInLeaf,
    ) -> Option<Vec<u8>> {
        let node = leaf.node();
        let FoundInLeaf { rows, entries, key, included } = found;
        let is_behind = |key: &[u8]| end.is_some_and(|end| key >= end);
        for index in node.lower_bound(from).0..node.count() {
            key.clear();
            node.append_key(index, key);
            if is_behind(key) {
                return None;
            }
            if rows.len() == room {
                return Some(key.clone());
            }
            rows.push(match self.form.is_unique {
                true => node.row(index),
                false => {
                    let id = key.last_chunk::<8>();
                    id.map_or(0, |id| u64::from_be_bytes(*id))
                }
            });
            if let Some(entries) = entries {
                included.clear();
                node.append_included(index, included);
                entries.push(key, included);
            }
        }
        // A fence above `from`, or the leaf was changed meanwhile.
        node.high().filter(|high| !is_behind(high) && high.as_slice() > from)
    }
}
