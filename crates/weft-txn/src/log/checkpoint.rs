//! Checkpoints: all rows that have versions, as a snapshot sees them, so that the log before can go.
//!
//! A checkpoint is written beside the transactions that run, under another name, and renamed when it is durable. Its last
//! block has no records: it says of which tables how many ids of rows were given out, and that nothing is missing.

use std::sync::Arc;

use weft_rt::yield_now;

use super::{block, files};
use crate::engine::Engine;
use crate::error::{Result, TxnError};
use crate::redo;
use crate::row_map::CHUNK_ROWS;
use crate::table::Table;
use crate::transaction::{Found, Transaction, TransactionOptions};
use crate::version::Kind;

/// Bytes of records from which on a block is written.
const BLOCK_BYTES: usize = 1 << 20;
/// Rows after which others may run.
const ROWS_PER_TURN: u64 = 256;
/// The number of the last block.
pub(crate) const LAST: u64 = u64::MAX;

/// A checkpoint that is being written.
struct Writer {
    file: weft_rt::io::File,
    end: u64,
    sequence: u64,
    at: u64,
}

impl Writer {
    async fn write(&mut self, sequence: u64, records: Vec<u8>) -> Result<()> {
        let head = block::Head { sequence, after: 0, at: self.at };
        let buffer = block::encode(head, &[(self.at, records)]);
        let len = buffer.len() as u64;
        self.file.write(buffer, self.end).await.0?;
        self.end += len;
        Ok(())
    }

    async fn write_table(
        &mut self,
        transaction: &Transaction<'_>,
        table: &Arc<Table>,
    ) -> Result<()> {
        let mut records = Vec::new();
        for chunk in 0..table.chunks() {
            let Some(chains) = table.rows.chunk(chunk) else { continue };
            for (row, chain) in (chunk * CHUNK_ROWS..).zip(chains) {
                if row % ROWS_PER_TURN == 0 {
                    yield_now().await;
                }
                let (kind, bytes) = match transaction.find(table, chain).await {
                    Found::Version(version) => (version.header().kind(), version.bytes()),
                    // A row that is gone for good, or one that the snapshot sees as it was frozen.
                    Found::Frozen | Found::Gone if !table.may_be_frozen(row) => continue,
                    Found::Gone => (Kind::Deleted, &[][..]),
                    Found::Frozen => continue,
                };
                if kind == Kind::Deleted && !table.may_be_frozen(row) {
                    continue;
                }
                redo::append(&mut records, table.id(), row, kind, bytes);
                if records.len() >= BLOCK_BYTES {
                    self.write(self.sequence, std::mem::take(&mut records)).await?;
                    self.sequence += 1;
                }
            }
        }
        if !records.is_empty() {
            self.write(self.sequence, records).await?;
            self.sequence += 1;
        }
        Ok(())
    }
}

impl Engine {
    /// Writes a checkpoint, and removes the files of the log that are not needed any more; gives the timestamp up to which
    /// the checkpoint has all commits. One at a time is the caller's to see to. To be called on a worker.
    ///
    /// # Errors
    /// Errors of files: the log and the checkpoint before stay as they are then.
    pub async fn checkpoint(&self) -> Result<u64> {
        let Some(log) = &self.core.log else {
            let reason = "the engine has none".into();
            return Err(TxnError::LogFailed { reason });
        };
        log.check()?;
        let mut context = self.context()?;
        let transaction = context.begin(TransactionOptions::default());
        let at = transaction.snapshot();
        // What the checkpoint has must not be ahead of the log.
        log.wait(&self.core, at).await?;
        let file = log.directory().create(files::PARTIAL).await?;
        let mut writer = Writer { file, end: 0, sequence: 0, at };
        let mut ends = Vec::new();
        for table in self.tables() {
            writer.write_table(&transaction, &table).await?;
            ends.extend_from_slice(&table.id().to_le_bytes());
            ends.extend_from_slice(&table.row_end().to_le_bytes());
        }
        writer.write(LAST, ends).await?;
        writer.file.sync().await?;
        transaction.rollback().await;
        let (_, older) = log.directory().list().await?;
        let number = older.last().map_or(1, |last| last + 1);
        log.directory().rename(files::PARTIAL, &files::checkpoint_name(number)).await?;
        log.directory().sync().await?;
        for older in older {
            log.directory().remove(&files::checkpoint_name(older)).await?;
        }
        log.remove_until(at).await?;
        log.directory().sync().await?;
        Ok(at)
    }
}
