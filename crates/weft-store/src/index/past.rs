//! Entries that have left an index's tree, for readers of earlier snapshots.
//!
//! All versions of an index share one tree. A commit that deletes rows takes their entries from it and leaves them here for as
//! long as a version is in use that has the rows. An entry comes here before it leaves the tree, so a reader that looks into
//! the tree first and here afterwards misses none; it may meet one in both places.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weft_rt::memory::{Ledger, Reservation};

use crate::index::key_run::KeyRun;

/// Bytes that an entry takes beside its key, twice.
const ENTRY_BYTES: u64 = 160;
/// Bytes by which the memory of all entries grows.
const STEP_BYTES: u64 = 64 << 10;

/// When a version of an index was made: how many times entries had left its tree by then.
#[derive(Debug)]
pub(crate) struct Moment(u64);

/// What an entry is found by: its key, as the tree has it, and its row.
pub(crate) type PastKey = (Arc<[u8]>, u64);

/// An entry that has left a tree.
#[derive(Clone, Debug)]
pub(crate) struct PastEntry {
    /// Its key, as the tree has it.
    pub(crate) key: Arc<[u8]>,
    /// Its row.
    pub(crate) row: u64,
    /// What it includes.
    pub(crate) included: Arc<[u8]>,
}

/// The entries that have left a tree and that a version in use may still need.
#[derive(Debug, Default)]
pub(crate) struct Past {
    state: Mutex<State>,
    /// The number of entries, to be read without the lock.
    len: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// When each entry left, and what it includes.
    left: BTreeMap<PastKey, (u64, Arc<[u8]>)>,
    /// When entries left, in this order, and the bytes that each takes.
    order: VecDeque<(u64, PastKey, u64)>,
    /// The moments of versions that may be in use.
    moments: Vec<Weak<Moment>>,
    /// How many times entries have left.
    times: u64,
    bytes: u64,
    memory: Option<Reservation>,
}

fn bytes_of(entry: &PastEntry) -> u64 {
    2 * entry.key.len() as u64 + entry.included.len() as u64 + ENTRY_BYTES
}

impl State {
    fn moment(&mut self) -> Arc<Moment> {
        let moment = Arc::new(Moment(self.times));
        self.moments.push(Arc::downgrade(&moment));
        moment
    }

    /// Forgets entries that no version in use needs.
    fn purge(&mut self) {
        self.moments.retain(|moment| moment.strong_count() > 0);
        let oldest = self.moments.iter().filter_map(|of| Some(of.upgrade()?.0)).min();
        let oldest = oldest.unwrap_or(self.times);
        while let Some((left, ..)) = self.order.front()
            && *left <= oldest
            && let Some((left, key, bytes)) = self.order.pop_front()
        {
            if self.left.get(&key).is_some_and(|(last, _)| *last == left) {
                self.left.remove(&key);
            }
            self.bytes -= bytes;
        }
        if self.bytes == 0 {
            self.memory = None;
        }
    }

    /// Reserves memory for `bytes` more; false if there is none.
    fn reserve(&mut self, bytes: u64, ledger: &Ledger) -> bool {
        let reserved = self.memory.as_ref().map_or(0, Reservation::bytes);
        let wanted = (self.bytes + bytes).saturating_sub(reserved).next_multiple_of(STEP_BYTES);
        match (&mut self.memory, wanted) {
            (_, 0) => true,
            (Some(memory), _) => memory.try_grow(wanted),
            (memory, _) => {
                *memory = ledger.try_reserve(wanted);
                memory.is_some()
            }
        }
    }
}

impl Past {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The moment of a version of the tree as it is.
    pub(crate) fn moment(&self) -> Arc<Moment> {
        self.state().moment()
    }

    /// Keeps entries that are about to leave the tree; gives the moment of the version without them. `None` if there is no
    /// memory for them.
    pub(crate) fn keep(
        &self,
        run: &KeyRun,
        full_key: impl Fn(&[u8], u64) -> Vec<u8>,
        ledger: &Ledger,
    ) -> Option<Arc<Moment>> {
        let mut state = self.state();
        state.purge();
        let entries = run.entries().map(|(key, row, included)| PastEntry {
            key: Arc::from(full_key(key, row)),
            row,
            included: Arc::from(included),
        });
        let entries: Vec<PastEntry> = entries.collect();
        let bytes = entries.iter().map(bytes_of).sum();
        if !state.reserve(bytes, ledger) {
            self.len.store(state.left.len(), Ordering::Release);
            return None;
        }
        state.bytes += bytes;
        state.times += 1;
        let left = state.times;
        for entry in entries {
            let bytes = bytes_of(&entry);
            let PastEntry { key, row, included } = entry;
            state.order.push_back((left, (key.clone(), row), bytes));
            state.left.insert((key, row), (left, included));
        }
        self.len.store(state.left.len(), Ordering::Release);
        Some(state.moment())
    }

    /// Forgets entries that are in the tree again.
    pub(crate) fn forget(&self, run: &KeyRun, full_key: impl Fn(&[u8], u64) -> Vec<u8>) {
        let mut state = self.state();
        for (key, row) in run.iter() {
            state.left.remove(&(Arc::from(full_key(key, row)), row));
        }
        self.len.store(state.left.len(), Ordering::Release);
    }

    /// The entries that a version of this moment has, after one of them and up to another, in order.
    pub(crate) fn between(
        &self,
        moment: &Moment,
        from: Bound<PastKey>,
        to: Bound<PastKey>,
    ) -> Vec<PastEntry> {
        if self.len.load(Ordering::Acquire) == 0 || is_empty(&from, &to) {
            return Vec::new();
        }
        let state = self.state();
        let there = state.left.range((from, to)).filter(|(_, (left, _))| moment.0 < *left);
        let entry = |((key, row), (_, included)): (&PastKey, &(u64, Arc<[u8]>))| PastEntry {
            key: key.clone(),
            row: *row,
            included: included.clone(),
        };
        there.map(entry).collect()
    }

    /// True if no entry is here.
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }
}

/// Whether nothing lies between two bounds, whichever comes first.
fn is_empty(from: &Bound<PastKey>, to: &Bound<PastKey>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (
            Bound::Included(from) | Bound::Excluded(from),
            Bound::Included(to) | Bound::Excluded(to),
        ) => from >= to,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(entries: &[(u8, u64)], ledger: &Ledger) -> KeyRun {
        let mut run = KeyRun::new(ledger, true);
        entries.iter().for_each(|(key, row)| run.push(&[*key], &[], *row, &[*key, 9]));
        run.sort();
        run
    }

    fn full(key: &[u8], _row: u64) -> Vec<u8> {
        key.to_vec()
    }

    fn rows(past: &Past, moment: &Moment) -> Vec<u64> {
        let all = past.between(moment, Bound::Unbounded, Bound::Unbounded);
        let is_whole = |entry: &PastEntry| *entry.included == [entry.key[0], 9];
        assert!(all.iter().all(is_whole));
        all.into_iter().map(|entry| entry.row).collect()
    }

    #[test]
    fn a_version_has_what_left_after_it() {
        let (past, ledger) = (Past::default(), Ledger::new(1 << 20));
        let first = past.moment();
        let second = past.keep(&run(&[(1, 10), (2, 20)], &ledger), full, &ledger).unwrap();
        let third = past.keep(&run(&[(1, 30)], &ledger), full, &ledger).unwrap();
        assert_eq!(rows(&past, &first), [10, 30, 20]);
        assert_eq!(rows(&past, &second), [30]);
        assert!(rows(&past, &third).is_empty());
        let one: Arc<[u8]> = Arc::from([1]);
        let (from, to) = (Bound::Excluded((one.clone(), 10)), Bound::Included((one, u64::MAX)));
        assert_eq!(past.between(&first, from, to).len(), 1);
    }

    #[test]
    fn entries_go_with_the_versions_that_need_them() {
        let (past, ledger) = (Past::default(), Ledger::new(1 << 20));
        let first = past.moment();
        let second = past.keep(&run(&[(1, 10)], &ledger), full, &ledger).unwrap();
        drop(first);
        let third = past.keep(&run(&[(2, 20)], &ledger), full, &ledger).unwrap();
        assert_eq!(rows(&past, &second), [20]);
        assert_eq!(past.state().left.len(), 1);
        drop(second);
        let fourth = past.keep(&run(&[(3, 30)], &ledger), full, &ledger).unwrap();
        drop((third, fourth));
        past.state().purge();
        assert!(past.state().left.is_empty() && past.state().order.is_empty());
        assert_eq!(ledger.used(), 0);
    }

    #[test]
    fn what_comes_back_into_the_tree_is_forgotten() {
        let (past, ledger) = (Past::default(), Ledger::new(1 << 20));
        let first = past.moment();
        let removed = run(&[(1, 10)], &ledger);
        drop(past.keep(&removed, full, &ledger).unwrap());
        past.forget(&removed, full);
        assert!(past.is_empty());
        let later = past.keep(&removed, full, &ledger).unwrap();
        assert_eq!(rows(&past, &first), [10]);
        drop((first, later));
    }

    #[test]
    fn without_memory_nothing_is_kept() {
        let (past, ledger) = (Past::default(), Ledger::new(1000));
        let first = past.moment();
        assert!(past.keep(&run(&[(1, 10)], &ledger), full, &ledger).is_none());
        assert!(rows(&past, &first).is_empty());
    }
}
