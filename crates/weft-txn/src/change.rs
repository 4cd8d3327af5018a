//! Changes: a new version in front of a row's chain, and the entries of indexes that its keys need.
//!
//! The first transaction that changes a row has it until it ends: others that want to change it fail at once, or
//! wait if they are read committed (first updater wins). A transaction changes a row only if it sees
//! the newest version; a read committed one takes a newer snapshot instead.

use std::sync::Arc;

use weft_index::{Direction, Mode, Prefetching, after_prefix};
use weft_rt::{prefetch_line, yield_now};

use crate::chain::{Chain, Head, HeadMark};
use crate::collect::remove_primary;
use crate::context::{EntryWrite, RowWrite, place_in};
use crate::error::{Result, TxnError};
use crate::redo;
use crate::slots::{Status, TransactionId};
use crate::table::{Index, Table};
use crate::transaction::Transaction;
use crate::version::{Kind, OwnedVersion, memory_bytes};

/// Most bytes of a row.
pub(crate) const ROW_BYTES_MAX: usize = 1 << 30;

/// A state of a transaction that it can go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    rows: usize,
    entries: usize,
    redo: usize,
}

/// What a transaction that may change a row finds.
enum Claim<'e> {
    /// The row is gone for good.
    Gone,
    At {
        head: Head<'e>,
        current: Current<'e>,
        /// The newest version is the transaction's own.
        is_own: bool,
    },
}

/// A row as it is before it is changed.
enum Current<'e> {
    Row(&'e [u8]),
    Frozen(Box<[u8]>),
    Absent,
}

impl Current<'_> {
    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Current::Row(bytes) => Some(bytes),
            Current::Frozen(bytes) => Some(bytes),
            Current::Absent => None,
        }
    }
}

/// What became of a row that was to be put in the place of a deleted one.
enum Revived {
    Done,
    /// The row's id is in no use any more.
    Gone,
    /// There is such a row.
    Exists,
}

impl<M: Mode> Transaction<'_, M> {
    /// The state as it is now.
    pub fn savepoint(&mut self) -> Savepoint {
        self.undo_unfinished();
        let writes = &*self.writes;
        let (rows, entries) = (writes.rows.len(), writes.entries.len());
        Savepoint { rows, entries, redo: writes.redo.len() }
    }

    /// Takes back what was changed since. What was read stays read.
    ///
    /// # Panics
    /// If the transaction has gone back behind the savepoint since.
    pub fn rollback_to(&mut self, savepoint: Savepoint) {
        self.undo_unfinished();
        assert!(savepoint.rows <= self.writes.rows.len(), "{savepoint:?} is gone");
        self.go_back_to(savepoint);
    }

    fn go_back_to(&mut self, savepoint: Savepoint) {
        self.undo(savepoint.rows, savepoint.entries);
        self.writes.redo.truncate(savepoint.redo);
    }

    /// Adds a row; gives its id.
    ///
    /// # Errors
    /// [`TxnError::DuplicateKey`] if a unique index has its key; [`TxnError::Conflict`] if another transaction adds or has
    /// added it at once; errors of memory and of the indexes. The transaction is as it was before.
    pub async fn insert(&mut self, table: &Arc<Table>, row: &[u8]) -> Result<u64> {
        self.open_change(table)?;
        let done = M::call(self.insert_row(table, row)).await;
        self.close_change(done)
    }

    /// Gives the row with a primary key other bytes; false if there is none.
    ///
    /// # Errors
    /// [`TxnError::Conflict`] if another transaction changes or has changed it at once, [`TxnError::KeyChanged`] if the bytes
    /// have another primary key, and those of [`Transaction::insert`]. The transaction is as it was before.
    pub async fn update(&mut self, table: &Arc<Table>, key: &[u8], row: &[u8]) -> Result<bool> {
        self.update_with(table, key, |_, changed| {
            changed.extend_from_slice(row);
            true
        })
        .await
    }

    /// Has `change` make new bytes of those of the row with a primary key, unless it gives false; false if there is no such
    /// row, or it was not to be changed. `change` may be called again, if another transaction was faster.
    ///
    /// # Errors
    /// As [`Transaction::update`].
    pub async fn update_with(
        &mut self,
        table: &Arc<Table>,
        key: &[u8],
        change: impl FnMut(&[u8], &mut Vec<u8>) -> bool,
    ) -> Result<bool> {
        self.open_change(table)?;
        let found = match table.index(0) {
            Ok(index) => M::call(index.tree.get_in(self.mode, key)).await.map_err(TxnError::from),
            Err(error) => Err(error),
        };
        let done = match found {
            Ok(Some(row)) => M::call(self.change_row(table, row, change)).await,
            found => found.map(|_| false),
        };
        self.close_change_of(table, key, done)
    }

    /// As [`Transaction::update_with`], of the row with an id.
    ///
    /// # Errors
    /// As [`Transaction::update`].
    pub async fn update_row(
        &mut self,
        table: &Arc<Table>,
        row: u64,
        change: impl FnMut(&[u8], &mut Vec<u8>) -> bool,
    ) -> Result<bool> {
        self.open_change(table)?;
        let done = M::call(self.change_row(table, row, change)).await;
        self.close_change(done)
    }

    /// Takes away the row with a primary key; false if there is none.
    ///
    /// # Errors
    /// As [`Transaction::update`].
    pub async fn remove(&mut self, table: &Arc<Table>, key: &[u8]) -> Result<bool> {
        self.open_change(table)?;
        let done = match M::call(self.row_to_change(table, key)).await {
            Ok(Some(row)) => M::call(self.delete_row(table, row)).await,
            found => found.map(|_| false),
        };
        self.close_change_of(table, key, done)
    }

    /// Takes away the row with an id; false if there is none.
    ///
    /// # Errors
    /// As [`Transaction::update`].
    pub async fn remove_row(&mut self, table: &Arc<Table>, row: u64) -> Result<bool> {
        self.open_change(table)?;
        let done = M::call(self.delete_row(table, row)).await;
        self.close_change(done)
    }

    /// Begins an operation that changes rows: all of it happens, or none.
    fn open_change(&mut self, table: &Table) -> Result<()> {
        self.open_operation(table)?;
        self.undo_unfinished();
        self.unfinished = Some(self.savepoint());
        Ok(())
    }

    fn close_change<T>(&mut self, done: Result<T>) -> Result<T> {
        if done.is_err() {
            self.undo_unfinished();
        }
        self.unfinished = None;
        done
    }

    /// The same for the row of a key, which was looked for in vain if nothing was done.
    fn close_change_of(
        &mut self,
        table: &Arc<Table>,
        key: &[u8],
        done: Result<bool>,
    ) -> Result<bool> {
        if let Ok(false) = done {
            self.note_absent(table, key);
        }
        self.close_change(done)
    }

    /// Takes back what an operation has done that failed, or whose coroutine was dropped.
    pub(crate) fn undo_unfinished(&mut self) {
        if let Some(savepoint) = self.unfinished.take() {
            self.go_back_to(savepoint);
        }
    }

    async fn row_to_change(&self, table: &Arc<Table>, key: &[u8]) -> Result<Option<u64>> {
        Ok(M::call(table.index(0)?.tree.get_in(self.mode, key)).await?)
    }

    pub(crate) fn note_absent(&self, table: &Arc<Table>, key: &[u8]) {
        if self.is_serializable() {
            self.reads.borrow_mut().absent.push((table.clone(), key.to_vec()));
        }
    }

    async fn change_row(
        &mut self,
        table: &Arc<Table>,
        row: u64,
        mut change: impl FnMut(&[u8], &mut Vec<u8>) -> bool,
    ) -> Result<bool> {
        let mut changed = Vec::new();
        loop {
            let chain = table.rows.chain_to_be(table.id(), row, &self.core.memory)?;
            if M::IS_FLAT && table.is_waited_for() {
                // As `come_to`, without a call in between.
                prefetch_line(chain.place());
                self.mode.pause().await;
                let place = chain.head_place();
                prefetch_line(place);
                prefetch_line(place.wrapping_add(48));
                self.mode.pause().await;
            } else {
                M::call(self.come_to(table, chain)).await;
            }
            let (mark, is_own, keys) = {
                let claim = M::call(self.claim(table, chain, row)).await?;
                let Claim::At { head, current, is_own } = claim else { return Ok(false) };
                changed.clear();
                let before = current.bytes().filter(|before| change(before, &mut changed));
                let Some(before) = before else {
                    self.note_row_read(table, row, head);
                    return Ok(false);
                };
                if table.primary.is_some() && !table.has_same_key(0, before, &changed) {
                    return Err(TxnError::KeyChanged { table: table.id(), row });
                }
                (head.mark(), is_own, changed_keys(table, before, &changed))
            };
            // What is awaited from here on is memory at most: the exchange sees whether the row is still so.
            let version = self.version(Kind::Row, &changed).await?;
            if !self.put(table, chain, row, mark, version, is_own) {
                continue;
            }
            for (index, key) in keys {
                self.add_entry(table, index, key, row).await?;
            }
            return Ok(true);
        }
    }

    async fn delete_row(&mut self, table: &Arc<Table>, row: u64) -> Result<bool> {
        loop {
            let chain = self.chain_to_change(table, row).await?;
            let (mark, is_own, keys) = {
                let claim = self.claim(table, chain, row).await?;
                let Claim::At { head, current, is_own } = claim else { return Ok(false) };
                let Some(before) = current.bytes() else {
                    self.note_row_read(table, row, head);
                    return Ok(false);
                };
                (head.mark(), is_own, table.all_keys(before))
            };
            let version = self.version(Kind::Deleted, &keys).await?;
            if self.put(table, chain, row, mark, version, is_own) {
                return Ok(true);
            }
        }
    }

    async fn insert_row(&mut self, table: &Arc<Table>, bytes: &[u8]) -> Result<u64> {
        let Some(primary) = &table.primary else {
            let row = self.put_fresh(table, bytes).await?;
            self.add_entries(table, bytes, row).await?;
            return Ok(row);
        };
        let key = table.key(0, bytes);
        loop {
            if let Some(row) = M::call(primary.tree.get_in(self.mode, &key)).await? {
                match self.revive(table, row, bytes).await? {
                    Revived::Done => {
                        self.note_entry(table, 0, key, row, false);
                        self.add_entries(table, bytes, row).await?;
                        return Ok(row);
                    }
                    Revived::Gone => remove_primary(primary, &key, row).await?,
                    Revived::Exists => {
                        // What the caller learns, it has read.
                        self.read(table, row).await?;
                        return Err(TxnError::DuplicateKey { table: table.id(), index: 0, row });
                    }
                }
                continue;
            }
            let row = self.put_fresh(table, bytes).await?;
            self.note_entry(table, 0, key.clone(), row, true);
            // The way to the leaf is in the caches by now.
            let other = M::call(primary.tree.insert_in(Prefetching, &key, row, &[])).await?;
            if other.is_none() {
                self.add_entries(table, bytes, row).await?;
                return Ok(row);
            }
            // Another transaction was faster: the operation begins anew.
            let savepoint = self.unfinished.expect("it was opened");
            self.go_back_to(savepoint);
        }
    }

    /// Makes a row with a new id.
    async fn put_fresh(&mut self, table: &Arc<Table>, bytes: &[u8]) -> Result<u64> {
        let version = self.version(Kind::Row, bytes).await?;
        let row = table.take_row()?;
        let chain = table.rows.chain_to_be(table.id(), row, &self.core.memory)?;
        let version = chain.push(HeadMark::empty(), version, self.entered());
        let version = version.ok().expect("a new id is nobody else's").address();
        let (kind, covers_own, is_fresh) = (Kind::Row, false, true);
        self.note_redo(table, row, kind, bytes);
        self.note_write(table, RowWrite { table: 0, row, version, kind, covers_own, is_fresh });
        Ok(row)
    }

    /// Gives a deleted row bytes again.
    async fn revive(&mut self, table: &Arc<Table>, row: u64, bytes: &[u8]) -> Result<Revived> {
        loop {
            let chain = self.chain_to_change(table, row).await?;
            let (mark, is_own) = {
                let claim = self.claim(table, chain, row).await?;
                let Claim::At { head, current, is_own } = claim else { return Ok(Revived::Gone) };
                if current.bytes().is_some() {
                    return Ok(Revived::Exists);
                }
                (head.mark(), is_own)
            };
            let version = self.version(Kind::Row, bytes).await?;
            if self.put(table, chain, row, mark, version, is_own) {
                return Ok(Revived::Done);
            }
        }
    }

    /// The chain of a row, in the caches.
    async fn chain_to_change<'t>(&self, table: &'t Table, row: u64) -> Result<&'t Chain> {
        let chain = table.rows.chain_to_be(table.id(), row, &self.core.memory)?;
        M::call(self.come_to(table, chain)).await;
        Ok(chain)
    }

    /// Looks whether the transaction may change a row.
    async fn claim<'t>(&'t self, table: &Table, chain: &Chain, row: u64) -> Result<Claim<'t>> {
        let conflict = || TxnError::Conflict { table: table.id(), row };
        self.blocker.set(None);
        loop {
            let version = match chain.head(self.entered()) {
                Head::Dead => return Ok(Claim::Gone),
                Head::Empty => {
                    let frozen = match table.may_be_frozen(row) {
                        true => Box::pin(table.frozen_row(row)).await?,
                        false => None,
                    };
                    let current = frozen.map_or(Current::Absent, Current::Frozen);
                    return Ok(Claim::At { head: Head::Empty, current, is_own: false });
                }
                Head::Version(version) => version,
            };
            let stamp = version.header().stamp();
            let (at, is_own) = match TransactionId::of_stamp(stamp) {
                None => (stamp, false),
                Some(id) if id == self.entered().id() => (0, true),
                Some(id) => match self.core.slots.status(id) {
                    Some(Status::Committed(at)) => (at, false),
                    Some(Status::Active | Status::Deciding(_)) if !self.is_read_committed() => {
                        self.blocker.set(Some(id));
                        return Err(conflict());
                    }
                    Some(Status::Active | Status::Deciding(_)) => {
                        if !self.wait_for(id).await {
                            // Run again at once, it would take the rows back for which that one waits, and so on in turn.
                            self.blocker.set(Some(id));
                            return Err(TxnError::Deadlock { table: table.id(), row });
                        }
                        continue;
                    }
                    // It is about to be unlinked, or has its timestamp by now.
                    Some(Status::Aborted) | None => {
                        yield_now().await;
                        continue;
                    }
                },
            };
            if at > self.snapshot.get() {
                if !self.is_read_committed() {
                    return Err(conflict());
                }
                if !self.is_held() {
                    self.renew_snapshot();
                }
            }
            self.note_seen(at);
            let current = match version.header().kind() {
                Kind::Row => Current::Row(version.bytes()),
                Kind::Deleted => Current::Absent,
            };
            return Ok(Claim::At { head: Head::Version(version), current, is_own });
        }
    }

    /// A row that was to be changed, and was not, was read.
    fn note_row_read(&self, table: &Arc<Table>, row: u64, head: Head<'_>) {
        if !self.is_serializable() {
            return;
        }
        let version = match head {
            Head::Version(version) => version,
            Head::Empty | Head::Dead => return self.reads.borrow_mut().note(table, row, None),
        };
        if version.header().stamp() != self.entered().id().stamp() {
            self.reads.borrow_mut().note(table, row, Some(version.address()));
        }
    }

    /// A version with the transaction's id, of memory that is accounted for.
    async fn version(&mut self, kind: Kind, bytes: &[u8]) -> Result<OwnedVersion> {
        if bytes.len() > ROW_BYTES_MAX {
            let (bytes, bytes_max) = (bytes.len(), ROW_BYTES_MAX);
            return Err(TxnError::RowTooLong { bytes, bytes_max });
        }
        let needed = memory_bytes(bytes.len());
        if self.garbage.credit < needed {
            Box::pin(self.find_memory(needed)).await?;
        }
        self.garbage.credit -= needed;
        Ok(OwnedVersion::new(kind, bytes, self.entered().id().stamp()))
    }

    async fn find_memory(&mut self, bytes: u64) -> Result<()> {
        if self.core.memory.lend(&mut self.garbage.credit, bytes) {
            return Ok(());
        }
        // What no transaction needs goes first.
        self.collect_all().await?;
        if self.garbage.credit >= bytes || self.core.memory.lend(&mut self.garbage.credit, bytes) {
            return Ok(());
        }
        Err(TxnError::Memory { bytes })
    }

    /// Puts a version in front; false if the row was changed meanwhile.
    fn put(
        &mut self,
        table: &Arc<Table>,
        chain: &Chain,
        row: u64,
        mark: HeadMark,
        version: OwnedVersion,
        is_own: bool,
    ) -> bool {
        let (kind, memory_bytes) = (version.header().kind(), version.header().memory_bytes());
        let redo_len = self.writes.redo.len();
        self.note_redo(table, row, kind, version.bytes());
        match chain.push(mark, version, self.entered()).map(|version| version.address()) {
            Ok(version) => {
                let (covers_own, is_fresh) = (is_own, false);
                self.note_write(
                    table,
                    RowWrite { table: 0, row, version, kind, covers_own, is_fresh },
                );
                true
            }
            Err(version) => {
                drop(version);
                self.garbage.credit += memory_bytes;
                self.writes.redo.truncate(redo_len);
                false
            }
        }
    }

    fn note_write(&mut self, table: &Arc<Table>, write: RowWrite) {
        let place = place_in(&mut self.writes.tables, table);
        self.writes.rows.push(RowWrite { table: place, ..write });
    }

    fn note_redo(&mut self, table: &Table, row: u64, kind: Kind, bytes: &[u8]) {
        if self.core.is_logged() {
            redo::append(&mut self.writes.redo, table.id(), row, kind, bytes);
        }
    }

    pub(crate) fn note_entry(
        &mut self,
        table: &Arc<Table>,
        index: usize,
        key: Vec<u8>,
        row: u64,
        is_new: bool,
    ) {
        let table = place_in(&mut self.writes.tables, table);
        self.writes.entries.push(EntryWrite { table, index, key, row, is_new });
    }

    async fn add_entries(&mut self, table: &Arc<Table>, bytes: &[u8], row: u64) -> Result<()> {
        for index in &table.secondary {
            let key = table.key(index.number, bytes);
            self.add_entry(table, index.number, key, row).await?;
        }
        Ok(())
    }

    /// Adds an entry to a secondary index for a row that the transaction has given the key.
    async fn add_entry(
        &mut self,
        table: &Arc<Table>,
        number: usize,
        key: Vec<u8>,
        row: u64,
    ) -> Result<()> {
        let index = table.index(number)?;
        self.note_entry(table, number, key.clone(), row, true);
        {
            let _upkeep = index.upkeep.shared().await;
            M::call(index.tree.insert_in(self.mode, &key, row, &[])).await?;
        }
        // Two that add the same key both have their entries by now, or one sees the other's.
        if index.is_unique { self.check_unique(table, index, &key, row).await } else { Ok(()) }
    }

    /// Looks for another row with a key: one that is there, or may come to be.
    async fn check_unique(
        &self,
        table: &Arc<Table>,
        index: &Index,
        key: &[u8],
        row: u64,
    ) -> Result<()> {
        let high = after_prefix(key);
        let mut entries = index.tree.range(Some(key), high.as_deref(), Direction::Forwards);
        while let Some(entry) = entries.next().await? {
            if entry.key != key || entry.row == row {
                continue;
            }
            let other = entry.row;
            let duplicate =
                || TxnError::DuplicateKey { table: table.id(), index: index.number, row: other };
            let Some(chain) = table.rows.chain(other) else {
                let bytes = table.frozen_row(other).await?;
                if bytes.is_some_and(|bytes| table.key(index.number, &bytes) == key) {
                    self.read(table, other).await?;
                    return Err(duplicate());
                }
                continue;
            };
            // It fails, or waits, if another transaction has changed the row and not ended.
            let Claim::At { current, .. } = M::call(self.claim(table, chain, other)).await? else {
                continue;
            };
            if current.bytes().is_some_and(|bytes| table.key(index.number, bytes) == key) {
                self.read(table, other).await?;
                return Err(duplicate());
            }
        }
        Ok(())
    }
}

/// The secondary keys that a changed row has and did not have.
fn changed_keys(table: &Table, before: &[u8], after: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let keys = table.secondary.iter().filter_map(|index| {
        let is_new = !table.has_same_key(index.number, before, after);
        is_new.then(|| (index.number, table.key(index.number, after)))
    });
    keys.collect()
}
