//! Garbage: versions that no snapshot sees, rows that are gone, entries of indexes that no version needs.
//!
//! Whoever makes garbage looks after it, a few dozen transactions later, as long as its context is in use; there
//! is no thread for it. All of it happens within a transaction, which keeps what it looks at from being freed.

use std::sync::Arc;

use weft_index::Mode;
use weft_rt::{prefetch_line, yield_now};

use crate::chain::{self, Chain, Head};
use crate::context::StaleEntry;
use crate::error::Result;
use crate::memory::VersionMemory;
use crate::slots::{Status, TransactionId};
use crate::table::{Index, Table};
use crate::transaction::Transaction;
use crate::version::{Kind, Shared};

/// Transactions between two looks at the horizon.
const ENDS_PER_LOOK: u32 = 32;
/// Rows after which others may run.
const ROWS_PER_TURN: usize = 64;
/// Rows that are asked for ahead.
const ROWS_AHEAD: usize = 8;

impl<M: Mode> Transaction<'_, M> {
    /// Counts the end of a transaction; true if it is time to look after the garbage.
    pub(crate) fn is_tidying_due(&mut self) -> bool {
        self.garbage.ends += 1;
        if self.garbage.ends < ENDS_PER_LOOK {
            return false;
        }
        self.garbage.ends = 0;
        let garbage = &self.garbage;
        !(garbage.superseded.is_empty() && garbage.stale.is_empty() && garbage.limbo.is_empty())
    }

    /// Unlinks what no snapshot sees, and frees what no transaction looks at.
    pub(crate) async fn tidy(&mut self) -> Result<()> {
        let horizon = self.core.slots.horizon();
        let mut rows = 0;
        while let Some((_, table, row)) =
            self.garbage.superseded.pop_front_if(|(at, ..)| *at <= horizon)
        {
            if let Some((_, table, row)) = self.garbage.superseded.get(ROWS_AHEAD)
                && let Some(chain) = table.rows.chain(*row)
            {
                prefetch_line(chain.place());
            }
            if let Some((_, table, row)) = self.garbage.superseded.get(ROWS_AHEAD / 2)
                && let Some(chain) = table.rows.chain(*row)
            {
                prefetch_line(chain.head_place());
            }
            self.prune(&table, row, horizon);
            rows += 1;
            if rows % ROWS_PER_TURN == 0 {
                yield_now().await;
            }
        }
        self.garbage.limbo.age(&self.core.slots);
        self.free(horizon);
        while let Some(entry) = self.garbage.stale.pop() {
            self.remove_stale(&entry, horizon).await?;
        }
        Ok(())
    }

    fn free(&mut self, horizon: u64) {
        let bytes = self.garbage.limbo.free(horizon);
        self.garbage.credit += bytes;
        let count = &self.core.counts.freed_versions_bytes;
        count.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        self.core.memory.settle(&mut self.garbage.credit, VersionMemory::KEEP_BYTES);
    }

    /// As [`Transaction::tidy`], of all that there is, and gives all memory back.
    pub(crate) async fn collect_all(&mut self) -> Result<()> {
        self.tidy().await?;
        self.core.memory.settle(&mut self.garbage.credit, 0);
        Ok(())
    }

    /// Unlinks the versions of a row that no snapshot sees from the horizon on.
    fn prune(&mut self, table: &Arc<Table>, row: u64, horizon: u64) {
        let Some(chain) = table.rows.chain(row) else { return };
        let entered = self.entered.as_ref().expect("it has not left");
        let Head::Version(head) = chain.head(entered) else { return };
        let mut version = head;
        while !self.core.slots.is_committed_by(version.header().stamp(), horizon) {
            match chain::older(version, entered) {
                Some(older) => version = older,
                None => return,
            }
        }
        let mut unlinked = Vec::new();
        let at = self.committed_at(version);
        let stale = &mut self.garbage.stale;
        if version == head && version.header().kind() == Kind::Deleted {
            table.forget_until(at);
            self.core.note_burial(table, version);
            let keys = table.keys_of(&version);
            if chain.bury(version, &mut unlinked) {
                let entry = |(index, key)| StaleEntry { table: table.clone(), index, key, row };
                stale.extend(keys.into_iter().map(entry));
            }
        } else {
            chain::cut_behind(version, &mut unlinked);
        }
        if !table.secondary.is_empty() {
            table.forget_until(at);
            let is_row = version.header().kind() == Kind::Row;
            let kept = if is_row { Vec::new() } else { table.keys_of(&version) };
            for old in unlinked.iter().filter(|old| old.header().kind() == Kind::Row) {
                let indexes = table.secondary.iter().map(|index| index.number);
                for index in indexes {
                    if is_row && table.has_same_key(index, version.bytes(), old.bytes()) {
                        continue;
                    }
                    let key = (index, table.key(index, old.bytes()));
                    if !kept.contains(&key) {
                        let (table, key) = (table.clone(), key.1);
                        stale.push(StaleEntry { table, index, key, row });
                    }
                }
            }
        }
        self.garbage.limbo.fresh().append(&mut unlinked);
    }

    /// Takes an entry of an index away if no version needs it.
    async fn remove_stale(&self, entry: &StaleEntry, horizon: u64) -> Result<()> {
        let StaleEntry { table, index, key, row } = entry;
        let index = table.index(*index)?;
        let Some(chain) = table.rows.chain(*row) else { return Ok(()) };
        if index.number == 0 {
            // A row that is gone stays gone, and nobody else has its id.
            return match chain.head(self.entered()) {
                Head::Dead => remove_primary(index, key, *row).await,
                Head::Empty | Head::Version(_) => Ok(()),
            };
        }
        let _upkeep = index.upkeep.exclusive().await;
        if self.is_needed(table, index, chain, key, *row, horizon).await? {
            return Ok(());
        }
        index.tree.remove_in(self.mode, key, *row).await?;
        Ok(())
    }

    /// True if somebody may look for a row by a key of a secondary index.
    async fn is_needed(
        &self,
        table: &Table,
        index: &Index,
        chain: &Chain,
        key: &[u8],
        row: u64,
        horizon: u64,
    ) -> Result<bool> {
        let mut next = match chain.head(self.entered()) {
            Head::Dead => return Ok(false),
            Head::Empty => None,
            Head::Version(version) => Some(version),
        };
        while let Some(version) = next {
            let has_key = |version: Shared<'_>| table.has_key(index.number, version.bytes(), key);
            if version.header().kind() == Kind::Row && has_key(version) {
                return Ok(true);
            }
            if self.core.slots.is_committed_by(version.header().stamp(), horizon) {
                return Ok(false);
            }
            next = chain::older(version, self.entered());
        }
        let frozen = table.frozen_row(row).await?;
        Ok(frozen.is_some_and(|bytes| table.key(index.number, &bytes) == key))
    }
}

impl crate::slots::Slots {
    /// True if this is the stamp of a version that was committed at or before a timestamp.
    fn is_committed_by(&self, stamp: u64, at: u64) -> bool {
        match TransactionId::of_stamp(stamp) {
            None => stamp <= at,
            // If it has ended meanwhile, the next look will see its timestamp.
            Some(id) => matches!(self.status(id), Some(Status::Committed(other)) if other <= at),
        }
    }
}

/// Takes the entry of a row away that is gone for good.
pub(crate) async fn remove_primary(index: &Index, key: &[u8], row: u64) -> Result<()> {
    index.tree.remove(key, row).await?;
    Ok(())
}
