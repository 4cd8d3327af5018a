//! Rows that are about to be changed: who wants one that a transaction has changed waits for the transaction's end.
//!
//! A transaction locks the rows of before that it deletes, updated ones among them, and keeps them locked until it has ended; a commit of a
//! statement outside of transactions has its rows locked while it lasts. Locks are of rows as they are: an update gives a row another id, so
//! a statement that has waited looks for its rows once more. A circle of transactions that wait for each other is found by the one that
//! would close it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_rt::sync::oneshot;

use crate::error::{Result, StoreError};
use crate::row_set::RowSet;

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
    /// By the tables' identities.
    rows: BTreeMap<u64, RowSet>,
    /// The owner whose end it waits for.
    waits_for: Option<u64>,
    /// Told when it has ended.
    waiting: Vec<oneshot::Sender<()>>,
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owner").field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// An owner of locks, which are gone when it is dropped.
#[derive(Debug)]
pub(crate) struct LockOwner {
    locks: Arc<RowLocks>,
    id: u64,
}

impl RowLocks {
    fn owners(&self) -> MutexGuard<'_, Owners> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new owner, of nothing yet.
    pub(crate) fn owner(self: &Arc<RowLocks>) -> LockOwner {
        let mut owners = self.owners();
        owners.next += 1;
        LockOwner { locks: self.clone(), id: owners.next }
    }
}

impl Owners {
    /// Another owner that has one of these rows of a table.
    fn other_with(&self, id: u64, table: u64, rows: &RowSet) -> Option<u64> {
        let others = self.by_id.iter().filter(|(other, _)| **other != id);
        let has_one = |owner: &Owner| {
            let Some(locked) = owner.rows.get(&table) else { return false };
            match locked.len() < rows.len() {
                true => locked.iter().any(|row| rows.contains(row)),
                false => rows.iter().any(|row| locked.contains(row)),
            }
        };
        others.filter(|(_, owner)| has_one(owner)).map(|(other, _)| *other).next()
    }

    /// Whether an owner waits for another one, or for one that does.
    fn waits(&self, mut owner: u64, other: u64) -> bool {
        while let Some(next) = self.by_id.get(&owner).and_then(|owner| owner.waits_for) {
            if next == other {
                return true;
            }
            owner = next;
        }
        false
    }
}

impl LockOwner {
    /// Locks rows of tables, by the tables' identities: all at once, when no other owner has one of them. Any executor may wait for it;
    /// dropped before, it has locked nothing.
    ///
    /// # Errors
    /// [`StoreError::Deadlock`] if an owner that it would wait for waits for this one.
    pub(crate) async fn lock(&self, wanted: &[(u64, RowSet)]) -> Result<()> {
        loop {
            let ended = {
                let mut owners = self.locks.owners();
                let other = wanted
                    .iter()
                    .find_map(|(table, rows)| owners.other_with(self.id, *table, rows));
                let Some(other) = other else {
                    let locked = owners.by_id.entry(self.id).or_default();
                    for (table, rows) in wanted {
                        let there = locked.rows.entry(*table).or_default();
                        match there.len() {
                            0 => *there = rows.clone(),
                            _ => rows.iter().for_each(|row| _ = there.insert(row)),
                        }
                    }
                    return Ok(());
                };
                if owners.waits(other, self.id) {
                    return Err(StoreError::Deadlock);
                }
                let (sender, ended) = oneshot::channel();
                owners.by_id.get_mut(&other).expect("it has rows").waiting.push(sender);
                owners.by_id.entry(self.id).or_default().waits_for = Some(other);
                ended
            };
            let _waits = Waits(self);
            // The other one has ended as well if it is gone without a word.
            ended.await.ok();
        }
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

/// A wait for another owner, which ends when this is dropped.
struct Waits<'a>(&'a LockOwner);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut owners = self.0.locks.owners();
        if let Some(owner) = owners.by_id.get_mut(&self.0.id) {
            owner.waits_for = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn rows(ids: &[u64]) -> Vec<(u64, RowSet)> {
        let mut rows = RowSet::default();
        ids.iter().for_each(|id| assert!(rows.insert(*id)));
        vec![(7, rows)]
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_row_is_waited_for_until_its_owner_ends() {
        let locks = Arc::new(RowLocks::default());
        let (first, second, third) = (locks.owner(), locks.owner(), locks.owner());
        let (wanted, other) = (rows(&[1, 2]), rows(&[3]));
        assert!(poll(pin!(first.lock(&wanted))).is_ready());
        assert!(poll(pin!(first.lock(&rows(&[2, 9])))).is_ready(), "its own");
        assert!(poll(pin!(second.lock(&other))).is_ready());
        let same_rows_of_another_table = vec![(8, rows(&[1]).remove(0).1)];
        assert!(poll(pin!(second.lock(&same_rows_of_another_table))).is_ready());
        let wanted = rows(&[2, 4]);
        let mut waits = pin!(second.lock(&wanted));
        assert!(poll(waits.as_mut()).is_pending());
        assert!(poll(pin!(third.lock(&rows(&[4])))).is_ready(), "who waits has not locked");
        first.release();
        assert!(poll(waits.as_mut()).is_pending(), "the third one has one of them");
        drop(third);
        assert!(matches!(poll(waits.as_mut()), Poll::Ready(Ok(()))));
    }

    #[test]
    fn a_circle_is_found_by_the_one_that_closes_it() {
        let locks = Arc::new(RowLocks::default());
        let owners: Vec<LockOwner> = (0..3).map(|_| locks.owner()).collect();
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
        assert!(matches!(poll(second.as_mut()), Poll::Ready(Ok(()))));
        owners[1].release();
        assert!(matches!(poll(first.as_mut()), Poll::Ready(Ok(()))));
    }

    #[test]
    fn a_wait_that_is_given_up_is_none() {
        let locks = Arc::new(RowLocks::default());
        let (first, second) = (locks.owner(), locks.owner());
        let (one, two) = (rows(&[1]), rows(&[2]));
        assert!(poll(pin!(first.lock(&one))).is_ready());
        assert!(poll(pin!(second.lock(&two))).is_ready());
        {
            let mut waits = Box::pin(first.lock(&two));
            assert!(poll(waits.as_mut()).is_pending());
        }
        assert!(poll(pin!(second.lock(&one))).is_pending(), "no circle");
    }
}
