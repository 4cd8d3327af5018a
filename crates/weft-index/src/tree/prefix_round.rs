//! Lookups of prefixes that their caller interleaves: a generated coroutine awaits [`Tree::find_prefix`] for one key after the
//! other, some at a time, and collects the rows.
//!
//! Lookups of a [`PrefixRound`] share what they find and the memory that they read keys into, so that a lookup allocates nothing
//! unless its rows go on in another leaf. A round has an end: a lookup that finds too much leaves a cursor, which
//! [`Tree::multi_prefix`] goes on with.

use std::cell::{Cell, RefCell};

use super::mode::{Interleaved, Mode};
use super::prefixes::{EntryBytes, PrefixCursor};
use super::{Looked, Tree, Visit};
use crate::error::IndexError;

/// What a lookup gives: how many rows it has found, and the id of the row that its caller is to collect, or
/// [`NO_ROW`].
pub type PrefixFound = [u64; 2];

/// No row to collect: there is none, or [`PrefixRound::into_found`] has what there is.
pub const NO_ROW: u64 = u64::MAX;

/// Lookups of prefixes in one tree.
#[derive(Debug)]
pub struct PrefixRound {
    rows_max: Cell<usize>,
    is_of_whole_keys: bool,
    paused: Cell<bool>,
    found: RefCell<RoundFound>,
}

/// What lookups of a round have found.
#[derive(Debug, Default)]
pub struct RoundFound {
    /// Numbers of lookups and ids of rows, without rows that lookups gave to their caller.
    pub rows: Vec<(u32, u64)>,
    /// The entries of the rows, if they are wanted: the lookups give no rows to their caller then.
    pub entries: Option<EntryBytes>,
    /// Lookups that may find more, by number.
    pub left: Vec<(u32, PrefixCursor)>,
    /// The first error.
    pub failed: Option<Box<IndexError>>,
    /// Rows that were found, those given to the caller among them.
    count: usize,
    /// Memory for the key of an entry, and for what it includes.
    key: Vec<u8>,
    included: Vec<u8>,
}

/// How a lookup goes on after a leaf.
enum After {
    /// The leaf was changed meanwhile: with the same key.
    Again,
    /// With the next leaf, or later: so many rows were found, and this is the key to go on with.
    More(u64, Vec<u8>),
    /// It has found so many rows, and the last is to be collected by the caller if it is given.
    Ended(u64, u64),
}

impl PrefixRound {
    /// A round that ends at about `rows_max` rows, one at least. `is_of_whole_keys` says that the prefixes are keys with all
    /// columns; `wants_entries` asks for the rows' entries.
    pub fn new(rows_max: usize, is_of_whole_keys: bool, wants_entries: bool) -> PrefixRound {
        let entries = wants_entries.then(EntryBytes::new);
        let found = RefCell::new(RoundFound { entries, ..RoundFound::default() });
        let rows_max = Cell::new(rows_max.max(1));
        PrefixRound { rows_max, is_of_whole_keys, paused: Cell::new(false), found }
    }

    /// Set by a lookup that is pending, but waits for nothing but memory: it can be polled again at once.
    pub fn paused(&self) -> &Cell<bool> {
        &self.paused
    }

    /// The number of rows at which no further lookup is to begin.
    pub fn rows_max(&self) -> usize {
        self.rows_max.get()
    }

    /// Sets the number of rows at which it ends.
    pub fn set_rows_max(&self, rows_max: usize) {
        self.rows_max.set(rows_max.max(1));
    }

    /// What was found.
    pub fn into_found(self) -> RoundFound {
        self.found.into_inner()
    }
}

impl Tree {
    /// Finds the rows whose keys begin with `prefix`: lookup `number` of a round of this tree. An error goes to the round.
    pub async fn find_prefix(
        &self,
        round: &PrefixRound,
        prefix: &[u8],
        number: u32,
    ) -> PrefixFound {
        let mode = Interleaved(&round.paused);
        let wants_entries = round.found.borrow().entries.is_some();
        let looked = match round.is_of_whole_keys && self.form.is_unique && !wants_entries {
            true => self.look_up_in(mode, prefix).await.map(|row| match row {
                Some(row) => {
                    round.found.borrow_mut().count += 1;
                    [1, row]
                }
                None => [0, NO_ROW],
            }),
            false => self.rows_of_prefix(mode, round, prefix, number).await,
        };
        looked.unwrap_or_else(|error| {
            round.found.borrow_mut().failed.get_or_insert(error);
            [0, NO_ROW]
        })
    }

    async fn rows_of_prefix<M: Mode>(
        &self,
        mode: M,
        round: &PrefixRound,
        prefix: &[u8],
        number: u32,
    ) -> Looked<PrefixFound> {
        let (mut from, mut rows): (Option<Vec<u8>>, u64) = (None, 0);
        loop {
            let at = from.as_deref().unwrap_or(prefix);
            let leaf = self.leaf_of(mode, at).await?;
            let mut found = round.found.borrow_mut();
            match found.take(self, &leaf, at, prefix, number, round.rows_max()) {
                After::Again => {}
                After::Ended(more, row) if rows == 0 => return Ok([more, row]),
                After::Ended(more, row) => {
                    if row != NO_ROW {
                        found.rows.push((number, row));
                    }
                    return Ok([rows + more, NO_ROW]);
                }
                After::More(more, next) => {
                    rows += more;
                    if found.count >= round.rows_max() {
                        found.left.push((number, PrefixCursor::stopped(prefix, next)));
                        return Ok([rows, NO_ROW]);
                    }
                    from = Some(next);
                }
            }
        }
    }
}

impl RoundFound {
    /// Takes the rows of a leaf from a key on.
    fn take(
        &mut self,
        tree: &Tree,
        leaf: &Visit<'_>,
        from: &[u8],
        prefix: &[u8],
        number: u32,
        rows_max: usize,
    ) -> After {
        let node = leaf.node();
        let room = rows_max.saturating_sub(self.count).max(1);
        let before = self.rows.len();
        let (mut next, mut is_behind) = (None, false);
        for index in node.lower_bound(from).0..node.count() {
            self.key.clear();
            node.append_key(index, &mut self.key);
            if !self.key.starts_with(prefix) {
                is_behind = true;
                break;
            }
            if self.rows.len() - before == room {
                next = Some(self.key.clone());
                break;
            }
            let row = match tree.form.is_unique {
                true => node.row(index),
                false => self.key.last_chunk::<8>().map_or(0, |id| u64::from_be_bytes(*id)),
            };
            self.rows.push((number, row));
            if let Some(entries) = &mut self.entries {
                self.included.clear();
                node.append_included(index, &mut self.included);
                entries.push(&self.key, &self.included);
            }
        }
        if !is_behind && next.is_none() {
            // A fence above `from`, or the leaf was changed meanwhile.
            next = node.high().filter(|high| high.starts_with(prefix) && high.as_slice() > from);
        }
        if !leaf.page.validate() {
            self.rows.truncate(before);
            if let Some(entries) = &mut self.entries {
                entries.truncate(before);
            }
            return After::Again;
        }
        let more = self.rows.len() - before;
        self.count += more;
        match next {
            Some(next) => After::More(more as u64, next),
            None if more == 1 && self.entries.is_none() => {
                After::Ended(1, self.rows.pop().map_or(NO_ROW, |(_, row)| row))
            }
            None => After::Ended(more as u64, NO_ROW),
        }
    }
}
