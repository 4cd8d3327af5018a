//! The result of a statement.

use std::pin::Pin;
use std::task::{Context, Poll};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use futures::Stream;
use weft_rt::progress::ProgressSnapshot;
use weft_rt::sync::block_on;
use weft_sql::{CancelHandle, Result, ResultKind, Running};

/// The result of a started statement: batches as they come, each once. It is also a [`Stream`] of
/// them, for asynchronous code.
///
/// The statement runs ahead of its reader by a few batches only. Dropping the result cancels what
/// has not ended: a command whose end nobody waits for leaves nothing behind.
#[derive(Debug)]
#[must_use = "dropping the result cancels the statement; wait for a command with finish()"]
pub struct QueryResult {
    running: Running,
}

impl QueryResult {
    pub(crate) fn new(running: Running) -> QueryResult {
        QueryResult { running }
    }

    /// The columns; none for commands.
    pub fn schema(&self) -> SchemaRef {
        self.running.schema()
    }

    /// Whether it has rows or is a command; a command knows the rows that it affected once it has
    /// ended.
    pub fn kind(&self) -> ResultKind {
        self.running.kind()
    }

    /// Looks whether the statement is planned: then its columns and its kind are known.
    ///
    /// # Errors
    /// What is wrong with the statement.
    pub fn poll_planned(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.running.poll_ready(context)
    }

    /// Waits until the statement is planned: its columns and kind are known then. For asynchronous code.
    ///
    /// # Errors
    /// What is wrong with the statement.
    pub async fn ready(&mut self) -> Result<()> {
        self.running.ready().await
    }

    /// Waits until the statement is planned, as [`QueryResult::ready`]. To be called from a plain thread.
    ///
    /// # Errors
    /// What is wrong with the statement.
    pub fn wait_planned(&mut self) -> Result<()> {
        block_on(self.running.ready())
    }

    /// Waits for the next batch, which has at least one row. Nothing comes after the last one; for a
    /// command that means that it has run, and is durable.
    ///
    /// To be called from a plain thread; asynchronous code polls the stream.
    ///
    /// # Errors
    /// What went wrong; nothing comes after an error.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        block_on(self.running.next_batch())
    }

    /// Waits for all batches.
    ///
    /// # Errors
    /// What went wrong.
    pub fn collect(mut self) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next_batch()? {
            batches.push(batch);
        }
        Ok(batches)
    }

    /// Waits for the end and returns the rows affected; what rows are left are thrown away.
    ///
    /// # Errors
    /// What went wrong.
    pub fn finish(&mut self) -> Result<u64> {
        while self.next_batch()?.is_some() {}
        match self.kind() {
            ResultKind::Command { rows_affected: Some(rows), .. } => Ok(rows),
            ResultKind::Command { rows_affected: None, .. } | ResultKind::Rows => Ok(0),
        }
    }

    /// A handle that cancels the statement from any thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.running.cancel_handle()
    }

    /// How far the statement is.
    pub fn progress(&self) -> ProgressSnapshot {
        self.running.progress()
    }
}

impl Stream for QueryResult {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.get_mut().running).poll_next(context)
    }
}
