//! Rows that are about to be changed: who wants one that a transaction has changed waits for the transaction's end.
//!
//! A transaction locks the rows of before that it deletes, updated ones among them, those that it reads to change them later
//! (`found.rs`), and the keys of a few rows that it inserts (`keys.rs`), and keeps them locked until it has ended; a commit of a
//! statement outside of transactions has its rows locked while it lasts. Locks are of rows as they are: an update gives a row another id, so
//! a statement that has waited looks for its rows once more. Rows may be locked by several owners that only read them. A circle of
//! transactions that wait for each other is found by the one that would close it. Who has locked what, and who waits for whom, is told by
//! [`RowLocks::list`].

mod found;
mod keys;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_rt::sync::oneshot;

use crate::error::{Result, StoreError};
use crate::row_set::RowSet;

pub use found::{FoundRows, WhenLocked};
pub(crate) use found::{dead_rows, lock_found};
use keys::KEYS_MAX;
pub(crate) use keys::{NewKeys, check_keys, keys_of};

/// How strongly a row is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockMode {
    /// Others may lock it so as well, and none changes it.
    Shared,
    /// Nobody else has it.
    Exclusive,
}

/// What an owner of locks has locked, and for whom it waits.
#[derive(Clone, Debug)]
pub struct HeldLocks {
    /// The owner, numbered since the database was opened.
    pub owner: u64,
    /// The connection of the session that it belongs to, as the program that has begun it numbers connections.
    pub pid: i32,
    /// What it has of tables.
    pub tables: Vec<HeldTable>,
    /// The owners for whose end it waits.
    pub waits_for: Vec<u64>,
    /// The number of the table of whose rows or keys it wants one while it waits.
    pub waits_in: Option<u64>,
}

/// Rows and keys of a table that an owner has locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldTable {
    /// The table's number.
    pub table: u64,
    /// Rows that it has for itself.
    pub exclusive_rows: u64,
    /// Rows that others may have locked so as well.
    pub shared_rows: u64,
    /// Keys of rows that it has inserted.
    pub keys: u64,
}

/// The locked rows of an open database.
#[derive(Debug, Default)]
pub(crate) struct RowLocks(Mutex<Owners>);

#[derive(Debug, Default)]
struct Owners {
    next: u64,
    by_id: BTreeMap<u64, Owner>,
}

/// What a transaction, or a commit, has locked.
#[derive(Default)]
struct Owner {
    pid: i32,
    /// What it has of tables, by the tables' identities.
    tables: BTreeMap<u64, Locked>,
    /// The owners for whose end it waits.
    waits_for: Vec<u64>,
    /// The table in which it wants something that they have.
    waits_in: Option<u64>,
    /// Told when it has ended.
    waiting: Vec<oneshot::Sender<()>>,
}

/// What an owner has locked of a table.
#[derive(Debug, Default)]
struct Locked {
    exclusive: RowSet,
    shared: RowSet,
    /// Hashes of keys of its unique indexes.
    keys: HashSet<u64>,
}

impl Locked {
    /// Whether another owner has to wait for it to lock a row so.
    fn refuses(&self, row: u64, mode: LockMode) -> bool {
        self.exclusive.contains(row) || mode == LockMode::Exclusive && self.shared.contains(row)
    }

    fn rows(&mut self, mode: LockMode) -> &mut RowSet {
        match mode {
            LockMode::Shared => &mut self.shared,
            LockMode::Exclusive => &mut self.exclusive,
        }
    }
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owner").field("tables", &self.tables).finish_non_exhaustive()
    }
}

/// Rows and keys of a table that are to be locked.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The table's identity.
    pub(crate) table: u64,
    pub(crate) mode: LockMode,
    pub(crate) rows: RowSet,
    /// Hashes of keys.
    pub(crate) keys: Vec<u64>,
}

impl Wanted {
    /// Rows of a table that are to be changed.
    pub(crate) fn changed(table: u64, rows: RowSet) -> Wanted {
        Wanted { table, mode: LockMode::Exclusive, rows, keys: Vec::new() }
    }

    fn is_refused_by(&self, locked: &Locked) -> bool {
        let has_one = |held: &RowSet| match held.len() < self.rows.len() {
            true => held.iter().any(|row| self.rows.contains(row)),
            false => self.rows.iter().any(|row| held.contains(row)),
        };
        has_one(&locked.exclusive)
            || self.mode == LockMode::Exclusive && has_one(&locked.shared)
            || self.keys.iter().any(|key| locked.keys.contains(key))
    }
}

/// An owner of locks, which are gone when it is dropped.
#[derive(Debug)]
pub(crate) struct LockOwner {
    locks: Arc<RowLocks>,
    id: u64,
    /// The connection that it belongs to.
    pid: i32,
}

impl RowLocks {
    fn owners(&self) -> MutexGuard<'_, Owners> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new owner, of nothing yet, of a connection.
    pub(crate) fn owner(self: &Arc<RowLocks>, pid: i32) -> LockOwner {
        let mut owners = self.owners();
        owners.next += 1;
        LockOwner { locks: self.clone(), id: owners.next, pid }
    }

    /// Who has locked something, or waits, in the order in which they began.
    pub(crate) fn list(&self) -> Vec<HeldLocks> {
        let owners = self.owners();
        let listed = owners.by_id.iter().map(|(id, owner)| {
            let tables = owner.tables.iter().map(|(table, locked)| HeldTable {
                table: *table,
                exclusive_rows: locked.exclusive.len(),
                shared_rows: locked.shared.len(),
                keys: locked.keys.len() as u64,
            });
            HeldLocks {
                owner: *id,
                pid: owner.pid,
                tables: tables.collect(),
                waits_for: owner.waits_for.clone(),
                waits_in: owner.waits_in,
            }
        });
        listed.collect()
    }
}

impl Owners {
    /// The other owners for which one has to wait to lock this, and the table that it is about.
    fn refusing(&self, id: u64, wanted: &[Wanted]) -> Option<(Vec<u64>, u64)> {
        wanted.iter().find_map(|wanted| {
            let others = self.by_id.iter().filter(|(other, owner)| {
                let locked = owner.tables.get(&wanted.table).filter(|_| **other != id);
                locked.is_some_and(|locked| wanted.is_refused_by(locked))
            });
            let others: Vec<u64> = others.map(|(other, _)| *other).collect();
            (!others.is_empty()).then_some((others, wanted.table))
        })
    }

    /// Whether an owner waits for another one, or for one that does.
    fn waits(&self, owner: u64, other: u64) -> bool {
        let (mut seen, mut open) = (HashSet::from([owner]), vec![owner]);
        while let Some(next) = open.pop() {
            let waits_for = self.by_id.get(&next).map(|owner| owner.waits_for.as_slice());
            for next in waits_for.unwrap_or_default() {
                if *next == other {
                    return true;
                }
                if seen.insert(*next) {
                    open.push(*next);
                }
            }
        }
        false
    }

    /// The entry of an owner.
    fn owner(&mut self, owner: &LockOwner) -> &mut Owner {
        let new = || Owner { pid: owner.pid, ..Owner::default() };
        self.by_id.entry(owner.id).or_insert_with(new)
    }

    fn add(&mut self, owner: &LockOwner, wanted: &[Wanted]) {
        let owner = self.owner(owner);
        for Wanted { table, mode, rows, keys } in wanted {
            let locked = owner.tables.entry(*table).or_default();
            let room = KEYS_MAX.saturating_sub(locked.keys.len());
            locked.keys.extend(keys.iter().take(room));
            let there = locked.rows(*mode);
            match there.len() {
                0 => *there = rows.clone(),
                _ => rows.iter().for_each(|row| _ = there.insert(row)),
            }
        }
    }
}

impl LockOwner {
    /// Locks rows and keys of tables, all at once, when no other owner has one of them. Any executor may wait for it;
    /// dropped before, it has locked nothing. Returns whether it had to wait.
    ///
    /// # Errors
    /// [`StoreError::Deadlock`] if an owner that it would wait for waits for this one.
    pub(crate) async fn lock(&self, wanted: &[Wanted]) -> Result<bool> {
        let mut has_waited = false;
        loop {
            let ended = {
                let mut owners = self.locks.owners();
                let Some((others, table)) = owners.refusing(self.id, wanted) else {
                    owners.add(self, wanted);
                    return Ok(has_waited);
                };
                if others.iter().any(|other| owners.waits(*other, self.id)) {
                    return Err(StoreError::Deadlock);
                }
                let (sender, ended) = oneshot::channel();
                owners.by_id.get_mut(&others[0]).expect("it has rows").waiting.push(sender);
                let owner = owners.owner(self);
                (owner.waits_for, owner.waits_in) = (others, Some(table));
                ended
            };
            has_waited = true;
            let _waits = Waits(self);
            // The other one has ended as well if it is gone without a word.
            ended.await.ok();
        }
    }

    /// Whether it has a row of a table for itself.
    pub(crate) fn has_exclusive(&self, table: u64, row: u64) -> bool {
        let owners = self.locks.owners();
        let locked = owners.by_id.get(&self.id).and_then(|owner| owner.tables.get(&table));
        locked.is_some_and(|locked| locked.exclusive.contains(row))
    }

    /// Whether another owner has rows of a table for itself.
    pub(crate) fn others_have_rows(&self, table: u64) -> bool {
        let owners = self.locks.owners();
        owners.by_id.iter().any(|(id, owner)| {
            let locked = owner.tables.get(&table).filter(|_| *id != self.id);
            locked.is_some_and(|locked| !locked.exclusive.is_empty())
        })
    }

    /// Unlocks everything.
    pub(crate) fn release(&self) {
        let gone = self.locks.owners().by_id.remove(&self.id);
        for waiting in gone.into_iter().flat_map(|owner| owner.waiting) {
            // A statement that was cancelled waits no more.
            waiting.send(()).ok();
        }
    }
}

impl Drop for LockOwner {
    fn drop(&mut self) {
        self.release();
    }
}

/// A wait for other owners, which ends when this is dropped.
struct Waits<'a>(&'a LockOwner);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut owners = self.0.locks.owners();
        if let Some(owner) = owners.by_id.get_mut(&self.0.id) {
            (owner.waits_for, owner.waits_in) = (Vec::new(), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn of_table(table: u64, ids: &[u64], mode: LockMode, keys: &[u64]) -> Vec<Wanted> {
        let mut rows = RowSet::default();
        ids.iter().for_each(|id| assert!(rows.insert(*id)));
        vec![Wanted { table, mode, rows, keys: keys.to_vec() }]
    }

    fn rows(ids: &[u64]) -> Vec<Wanted> {
        of_table(7, ids, LockMode::Exclusive, &[])
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_row_is_waited_for_until_its_owner_ends() {
        let locks = Arc::new(RowLocks::default());
        let (first, second, third) = (locks.owner(1), locks.owner(1), locks.owner(1));
        let (wanted, other) = (rows(&[1, 2]), rows(&[3]));
        assert!(poll(pin!(first.lock(&wanted))).is_ready());
        assert!(poll(pin!(first.lock(&rows(&[2, 9])))).is_ready(), "its own");
        assert!(poll(pin!(second.lock(&other))).is_ready());
        let same_rows_of_another_table = of_table(8, &[1], LockMode::Exclusive, &[]);
        assert!(poll(pin!(second.lock(&same_rows_of_another_table))).is_ready());
        let wanted = rows(&[2, 4]);
        let mut waits = pin!(second.lock(&wanted));
        assert!(poll(waits.as_mut()).is_pending());
        assert!(poll(pin!(third.lock(&rows(&[4])))).is_ready(), "who waits has not locked");
        first.release();
        assert!(poll(waits.as_mut()).is_pending(), "the third one has one of them");
        drop(third);
        assert!(matches!(poll(waits.as_mut()), Poll::Ready(Ok(true))));
    }

    #[test]
    fn a_circle_is_found_by_the_one_that_closes_it() {
        let locks = Arc::new(RowLocks::default());
        let owners: Vec<LockOwner> = (0..3).map(|_| locks.owner(1)).collect();
        let wanted: Vec<_> = (0..3).map(|row| rows(&[row])).collect();
        for (owner, wanted) in owners.iter().zip(&wanted) {
            assert!(poll(pin!(owner.lock(wanted))).is_ready());
        }
        let mut first = pin!(owners[0].lock(&wanted[1]));
        let mut second = pin!(owners[1].lock(&wanted[2]));
        assert!(poll(first.as_mut()).is_pending());
        assert!(poll(second.as_mut()).is_pending());
        let closed = poll(pin!(owners[2].lock(&wanted[0])));
        assert!(matches!(closed, Poll::Ready(Err(StoreError::Deadlock))));
        owners[2].release();
        assert!(matches!(poll(second.as_mut()), Poll::Ready(Ok(true))));
        owners[1].release();
        assert!(matches!(poll(first.as_mut()), Poll::Ready(Ok(true))));
    }

    #[test]
    fn a_wait_that_is_given_up_is_none() {
        let locks = Arc::new(RowLocks::default());
        let (first, second) = (locks.owner(1), locks.owner(1));
        let (one, two) = (rows(&[1]), rows(&[2]));
        assert!(poll(pin!(first.lock(&one))).is_ready());
        assert!(poll(pin!(second.lock(&two))).is_ready());
        {
            let mut waits = Box::pin(first.lock(&two));
            assert!(poll(waits.as_mut()).is_pending());
        }
        assert!(poll(pin!(second.lock(&one))).is_pending(), "no circle");
    }

    #[test]
    fn shared_rows_and_keys_are_waited_for_as_well() {
        let locks = Arc::new(RowLocks::default());
        let (first, second, third) = (locks.owner(1), locks.owner(2), locks.owner(3));
        let shared = of_table(7, &[1], LockMode::Shared, &[]);
        assert!(poll(pin!(first.lock(&shared))).is_ready());
        assert!(poll(pin!(second.lock(&shared))).is_ready(), "both read it");
        let exclusive = rows(&[1]);
        let mut waits = pin!(third.lock(&exclusive));
        assert!(poll(waits.as_mut()).is_pending());
        let listed = locks.list();
        assert_eq!(listed[2].waits_for, [listed[0].owner, listed[1].owner]);
        assert_eq!((listed[2].pid, listed[2].waits_in), (3, Some(7)));
        assert_eq!(listed[0].tables[0].shared_rows, 1);
        first.release();
        assert!(poll(waits.as_mut()).is_pending());
        second.release();
        assert!(matches!(poll(waits.as_mut()), Poll::Ready(Ok(true))));
        let key = of_table(7, &[], LockMode::Exclusive, &[5]);
        assert!(poll(pin!(first.lock(&key))).is_ready());
        let mut waits = pin!(second.lock(&key));
        assert!(poll(waits.as_mut()).is_pending());
        first.release();
        assert!(matches!(poll(waits.as_mut()), Poll::Ready(Ok(true))));
    }
}
