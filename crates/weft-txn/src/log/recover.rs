//! Recovery: rows as the last checkpoint and the log behind it have them, then the indexes made of the rows.

use std::sync::Arc;

use weft_rt::yield_now;

use super::{Tail, block, checkpoint, files};
use crate::chain::Head;
use crate::engine::Engine;
use crate::error::{Result, TxnError};
use crate::limbo::Limbo;
use crate::redo;
use crate::row_map::CHUNK_ROWS;
use crate::slots::{Entered, FIRST};
use crate::table::{Index, Table};
use crate::version::{Kind, OwnedVersion, memory_bytes};

/// What is being recovered.
struct Recovery<'e> {
    engine: &'e Engine,
    entered: Entered<'e>,
    tables: Vec<Arc<Table>>,
    limbo: Limbo,
    credit: u64,
    /// The timestamp of the last transaction.
    at: u64,
}

impl Engine {
    /// Brings the tables to what was durable when the log was last written: to be called once, on a worker, after all tables were
    /// added and before the first transaction. The rows of the tables must be those that were frozen, or none. Gives the
    /// timestamp of the last commit.
    ///
    /// # Errors
    /// [`TxnError::LogDamaged`] if something is missing between what is there, [`TxnError::Table`] if a table is missing, and
    /// errors of files, memory and indexes.
    pub async fn recover(&self) -> Result<u64> {
        let Some(log) = &self.core.log else {
            let reason = "the engine has none".into();
            return Err(TxnError::LogFailed { reason });
        };
        let slot = self.context()?;
        let entered = self.core.slots.enter(slot.slot());
        let mut recovery = Recovery {
            engine: self,
            entered,
            tables: self.tables(),
            limbo: Limbo::default(),
            credit: 0,
            at: FIRST,
        };
        let (segments, checkpoints) = log.directory().list().await?;
        if let Some(number) = checkpoints.last() {
            recovery.read_checkpoint(&files::checkpoint_name(*number)).await?;
        }
        let from = recovery.at;
        let (mut sequence, mut sealed) = (None, Vec::new());
        for number in &segments {
            let name = files::segment_name(*number);
            let last = recovery.read_segment(&name, from, &mut sequence).await?;
            sealed.push((*number, last));
        }
        recovery.make_indexes().await?;
        let Recovery { entered, mut limbo, mut credit, at, .. } = recovery;
        entered.leave();
        limbo.age(&self.core.slots);
        credit += limbo.free(self.core.slots.now());
        self.core.memory.settle(&mut credit, 0);
        self.core.slots.advance_to(at);
        let next = segments.last().map_or(1, |last| last + 1);
        log.begin(Tail::new(next, sequence.map_or(1, |last| last + 1), at), sealed);
        Ok(at)
    }
}

impl Recovery<'_> {
    async fn read_checkpoint(&mut self, name: &str) -> Result<()> {
        let file =
            self.engine.core.log.as_ref().expect("there is one").directory().open(name).await?;
        let end = file.size()?;
        let (mut offset, mut sequence) = (0, 0);
        loop {
            let damaged = |reason: &str| TxnError::LogDamaged {
                file: name.into(),
                offset,
                reason: reason.into(),
            };
            let Some(block) = block::read(&file, offset, end).await? else {
                return Err(damaged("a block is damaged or missing"));
            };
            self.at = self.at.max(block.head.at);
            if block.head.sequence == checkpoint::LAST {
                for (_, mut ends) in block.parts() {
                    while let Some((head, rest)) = ends.split_first_chunk::<12>() {
                        let id = u32::from_le_bytes(head[..4].try_into().expect("4 bytes"));
                        let end = u64::from_le_bytes(head[4..].try_into().expect("8 bytes"));
                        self.engine.table(id)?.note_rows(end);
                        ends = rest;
                    }
                }
                return Ok(());
            }
            if block.head.sequence != sequence {
                return Err(damaged("a block is missing"));
            }
            for (_, records) in block.parts() {
                self.apply_all(records, name)?;
            }
            sequence += 1;
            offset += block.file_bytes();
            yield_now().await;
        }
    }

    /// Applies what is in a file of the log behind a timestamp; gives the timestamp of its last block.
    async fn read_segment(
        &mut self,
        name: &str,
        from: u64,
        sequence: &mut Option<u64>,
    ) -> Result<u64> {
        let file =
            self.engine.core.log.as_ref().expect("there is one").directory().open(name).await?;
        let end = file.size()?;
        let (mut offset, mut last) = (0, 0);
        while let Some(block) = block::read(&file, offset, end).await? {
            let head = block.head;
            if head.at > from {
                let follows = match *sequence {
                    Some(before) => head.sequence == before + 1 && head.after == self.at,
                    None => head.after <= from,
                };
                if !follows {
                    let reason = "blocks of the log before it are missing".into();
                    return Err(TxnError::LogDamaged { file: name.into(), offset, reason });
                }
                for (at, records) in block.parts().filter(|(at, _)| *at > from) {
                    debug_assert!(at <= head.at, "of a later block");
                    self.apply_all(records, name)?;
                }
                self.at = head.at;
                *sequence = Some(head.sequence);
            }
            last = head.at;
            offset += block.file_bytes();
            yield_now().await;
        }
        // What was read may be in the system's memory alone.
        file.sync().await?;
        Ok(last)
    }

    fn apply_all(&mut self, mut records: &[u8], name: &str) -> Result<()> {
        while let Some(record) = redo::next(&mut records, name)? {
            let found = self.tables.iter().position(|table| table.id() == record.table);
            let Some(place) = found else {
                let reason = "the log has rows of it, and it was not added".into();
                return Err(TxnError::Table { table: record.table, reason });
            };
            let table = self.tables[place].clone();
            table.note_rows(record.row + 1);
            let memory = &self.engine.core.memory;
            let chain = table.rows.chain_to_be(record.table, record.row, memory)?;
            let version = match record.bytes {
                Some(bytes) => Some((Kind::Row, bytes)),
                // Without a version it would be the frozen row.
                None if table.may_be_frozen(record.row) => Some((Kind::Deleted, &[][..])),
                None => None,
            };
            let version = match version {
                None => None,
                Some((kind, bytes)) => {
                    let needed = memory_bytes(bytes.len());
                    if self.credit < needed && !memory.lend(&mut self.credit, needed) {
                        return Err(TxnError::Memory { bytes: needed });
                    }
                    self.credit -= needed;
                    Some(OwnedVersion::new(kind, bytes, FIRST))
                }
            };
            chain.reset(version, &self.entered, self.limbo.fresh());
        }
        // No transaction runs but this one, which looks at none of them.
        self.credit += self.limbo.free_fresh();
        Ok(())
    }

    /// Adds entries for all rows that were recovered.
    async fn make_indexes(&mut self) -> Result<()> {
        for table in &self.tables {
            for chunk in 0..table.chunks() {
                let Some(chains) = table.rows.chunk(chunk) else { continue };
                for (row, chain) in (chunk * CHUNK_ROWS..).zip(chains) {
                    let Head::Version(version) = chain.head(&self.entered) else { continue };
                    if version.header().kind() != Kind::Row {
                        continue;
                    }
                    for (index, key) in table.keys_of(&version) {
                        match index {
                            0 => self.add_primary(table, table.index(0)?, &key, row).await?,
                            _ => _ = table.index(index)?.tree.insert(&key, row, &[]).await?,
                        }
                    }
                }
            }
        }
        Ok(())
    }

    async fn add_primary(&self, table: &Table, index: &Index, key: &[u8], row: u64) -> Result<()> {
        while let Some(other) = index.tree.insert(key, row, &[]).await? {
            if other == row {
                return Ok(());
            }
            // The entry of a row that was deleted since the tree was written.
            let is_live = match table.rows.chain(other).map(|chain| chain.head(&self.entered)) {
                Some(Head::Version(version)) => version.header().kind() == Kind::Row,
                _ => table.frozen_row(other).await?.is_some(),
            };
            if is_live {
                return Err(TxnError::DuplicateKey { table: table.id(), index: 0, row: other });
            }
            index.tree.remove(key, other).await?;
        }
        Ok(())
    }
}
