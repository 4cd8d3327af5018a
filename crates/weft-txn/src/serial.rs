//! The serial safety net: serializable transactions on top of snapshots.
//!
//! (Wang, Johnson, Fekete, Pandis, "Efficiently making (almost) any concurrency control mechanism serializable", VLDB
//! Journal 2017.) Of each transaction T two watermarks are known when it commits: η(T), the latest commit of one that
//! comes before T in any serial order (it made or read what T has read or replaced), and π(T), the earliest commit
//! that T, or one that follows from T by replacing what it has read, has to come before. If π(T) ≤ η(T), T may close
//! a circle, and is rolled back.
//!
//! The paper has a bit for each reader in each version. Here readers are sets of their transactions: one that
//! has drawn its timestamp *publishes* it to all that it has read, and one that replaces something waits, once it has
//! drawn its own, until all with earlier timestamps have published. A transaction waits only for those with earlier
//! timestamps. What has no version is read, too: frozen rows, keys without a row and ranges of keys have stamps of
//! their own (`table.rs`), and at the end a transaction looks again at the keys and ranges that it has read, so there
//! are no phantoms.

use std::sync::Arc;

use weft_index::{Direction, Mode};
use weft_rt::yield_now;

use crate::chain::{self, Head};
use crate::context::ReadSet;
use crate::error::{Result, TxnError};
use crate::slots::{Status, TransactionId};
use crate::table::{KeyRange, Table};
use crate::transaction::{Found, Phase, Transaction};
use crate::version::Shared;

/// Who has replaced what a transaction has read.
enum Successor {
    /// Nobody before this transaction commits.
    None,
    /// This transaction itself.
    Own,
    /// One that has committed, at a timestamp, with a low watermark.
    Committed(u64, u64),
    /// One that is about to, at a timestamp once that is known.
    Deciding(Option<u64>),
}

impl<M: Mode> Transaction<'_, M> {
    /// Commits, or is rolled back.
    pub(crate) async fn commit_serializable(&mut self) -> Result<u64> {
        let at = self.entered().draw();
        self.phase = Phase::Deciding;
        // Nothing is awaited until it has published: no coroutine of this thread finds it before.
        let reads = self.reads.take();
        self.publish_reads(&reads, at);
        self.entered().publish(at);
        let certified = M::call(self.certify(&reads, at)).await;
        *self.reads.borrow_mut() = reads;
        let failed = match certified {
            Ok(Some(sstamp)) => {
                self.decide(at, sstamp);
                return Ok(at);
            }
            Ok(None) => TxnError::NotSerializable,
            Err(error) => error,
        };
        self.undo_all();
        Err(failed)
    }

    /// Gives the low watermark, or `None` if the transaction may close a circle.
    async fn certify(&self, reads: &ReadSet, at: u64) -> Result<Option<u64>> {
        while !self.core.slots.have_published(at) {
            yield_now().await;
        }
        let pstamp = self.latest_predecessor(reads, at);
        let mut sstamp = at;
        for read in &reads.rows {
            // SAFETY: the transaction has come to it since it began.
            let version =
                read.version.map(|address| unsafe { Shared::at(address, self.entered()) });
            let table = &reads.tables[read.table];
            sstamp = sstamp.min(self.successor_stamp(table, read.row, version, at).await);
        }
        for (table, key) in &reads.absent {
            if let Some(row) = M::call(table.index(0)?.tree.get_in(self.mode, key)).await? {
                sstamp = sstamp.min(self.row_successor_stamp(table, row, at).await);
            }
        }
        for (table, index, range) in &reads.ranges {
            sstamp = sstamp.min(self.range_successor_stamp(table, *index, range, at).await?);
        }
        Ok((sstamp > pstamp).then_some(sstamp))
    }

    /// Notes in all that was read that a transaction with this timestamp has.
    fn publish_reads(&self, reads: &ReadSet, at: u64) {
        for read in &reads.rows {
            // SAFETY: the transaction has come to it since it began.
            let version =
                read.version.map(|address| unsafe { Shared::at(address, self.entered()) });
            let table = &reads.tables[read.table];
            match self.successor(table, read.row, version) {
                // It does not come after those that it comes before; and it knows itself.
                Successor::Own => continue,
                Successor::Committed(other, _) if other < at => continue,
                _ => {}
            }
            match version {
                Some(version) => version.header().note_read(at),
                None => table.frozen_reads.note_row(read.row, at),
            }
        }
        for (table, key) in &reads.absent {
            if let Some(primary) = &table.primary {
                primary.absent_reads.note_key(key, at);
            }
        }
        for (table, index, range) in &reads.ranges {
            if let Ok(index) = table.index(*index) {
                index.range_reads.note(range, at);
            }
        }
    }

    /// The latest commit of those that come before this transaction.
    fn latest_predecessor(&self, reads: &ReadSet, at: u64) -> u64 {
        let mut latest = 0;
        for read in &reads.rows {
            if let Some(address) = read.version {
                // SAFETY: the transaction has come to it since it began.
                let version = unsafe { Shared::at(address, self.entered()) };
                latest = latest.max(self.committed_at(version));
            }
        }
        for write in self.writes.rows.iter().filter(|write| !write.covers_own) {
            // SAFETY: the transaction has made it, and has not left.
            let version = unsafe { Shared::at(write.version, self.entered()) };
            latest = latest.max(match chain::older(version, self.entered()) {
                Some(base) => self.committed_at(base).max(base.header().pstamp()),
                None => self.writes.tables[write.table].frozen_reads.row(write.row, at),
            });
        }
        // Of a key that has lost its row it may not be known by now when that was.
        let absent = reads.absent.iter().map(|(table, _)| table);
        for table in absent.chain(reads.ranges.iter().map(|(table, ..)| table)) {
            latest = latest.max(table.last_forgotten());
        }
        for entry in &self.writes.entries {
            let table = &self.writes.tables[entry.table];
            latest = latest.max(table.last_forgotten());
            let Ok(index) = table.index(entry.index) else { continue };
            latest = latest.max(index.range_reads.latest(&entry.key, at));
            if entry.index == 0 {
                latest = latest.max(index.absent_reads.key(&entry.key, at));
            }
        }
        latest
    }

    /// When a version was committed that this transaction has read, replaced or seen; 0 if it is its own.
    pub(crate) fn committed_at(&self, version: Shared<'_>) -> u64 {
        loop {
            let stamp = version.header().stamp();
            let Some(id) = TransactionId::of_stamp(stamp) else { return stamp };
            if id == self.entered().id() {
                return 0;
            }
            match self.core.slots.status(id) {
                Some(Status::Committed(at)) => return at,
                // It has ended: the version has its timestamp by now.
                None => {}
                Some(status) => unreachable!("a version that counts is of one that is {status:?}"),
            }
        }
    }

    /// Who has replaced a version of a row; or the frozen row, or none.
    fn successor(&self, table: &Table, row: u64, version: Option<Shared<'_>>) -> Successor {
        let Some(chain) = table.rows.chain(row) else { return Successor::None };
        let Head::Version(mut newer) = chain.head(self.entered()) else { return Successor::None };
        if version == Some(newer) {
            return Successor::None;
        }
        while let Some(older) = chain::older(newer, self.entered()) {
            if version == Some(older) {
                break;
            }
            newer = older;
        }
        loop {
            let stamp = newer.header().stamp();
            let Some(id) = TransactionId::of_stamp(stamp) else {
                return Successor::Committed(stamp, newer.header().sstamp());
            };
            if id == self.entered().id() {
                return Successor::Own;
            }
            return match self.core.slots.look(id) {
                Some((Status::Committed(at), sstamp)) => Successor::Committed(at, sstamp),
                Some((Status::Deciding(at), _)) => Successor::Deciding(at),
                // If it commits, it will be later.
                Some((Status::Active | Status::Aborted, _)) => Successor::None,
                None if newer.header().stamp() == stamp => Successor::None,
                None => continue,
            };
        }
    }

    /// The low watermark that replacing a version brings this transaction.
    async fn successor_stamp(
        &self,
        table: &Table,
        row: u64,
        version: Option<Shared<'_>>,
        at: u64,
    ) -> u64 {
        loop {
            match self.successor(table, row, version) {
                Successor::Committed(other, sstamp) if other < at => return sstamp,
                Successor::Deciding(None) => yield_now().await,
                Successor::Deciding(Some(other)) if other < at => yield_now().await,
                _ => return u64::MAX,
            }
        }
    }

    /// The same for the row as the snapshot sees it.
    async fn row_successor_stamp(&self, table: &Table, row: u64, at: u64) -> u64 {
        let Some(chain) = table.rows.chain(row) else { return u64::MAX };
        let version = match self.find(table, chain).await {
            Found::Version(version) => Some(version),
            Found::Frozen => None,
            Found::Gone => return u64::MAX,
        };
        self.successor_stamp(table, row, version, at).await
    }

    /// The same for all rows that have, or have come to have, a key in a range.
    async fn range_successor_stamp(
        &self,
        table: &Arc<Table>,
        index: usize,
        range: &KeyRange,
        at: u64,
    ) -> Result<u64> {
        let tree = &table.index(index)?.tree;
        let mut stamp = u64::MAX;
        let (low, high) = (range.low.as_deref(), range.high.as_deref());
        let mut entries = tree.range_rows(self.mode, low, high, Direction::Forwards);
        while entries.next().await? {
            for &row in entries.rows() {
                stamp = stamp.min(self.row_successor_stamp(table, row, at).await);
            }
        }
        Ok(stamp)
    }
}
