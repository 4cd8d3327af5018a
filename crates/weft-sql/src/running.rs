//! A statement that was started: what its caller holds.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use futures::{FutureExt, Stream};
use tokio::sync::{mpsc, oneshot};
use weft_rt::progress::ProgressSnapshot;

use crate::control::{CancelHandle, Control};
use crate::engine::Executor;
use crate::error::{Result, SqlError, internal};

/// Batches that wait for their reader at most.
pub(crate) const MESSAGES_MAX: usize = 2;

/// What kind of statement it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultKind {
    /// It returns rows.
    Rows,
    /// It does something.
    Command {
        /// What, such as `INSERT` or `CREATE TABLE`.
        tag: &'static str,
        /// Rows that were inserted or written; `None` until the command has ended, and for commands
        /// that have no rows.
        rows_affected: Option<u64>,
    },
}

/// What is known of the result before its first row.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) schema: SchemaRef,
    pub(crate) kind: ResultKind,
}

/// What the statement's task says to the one who waits for its result.
#[derive(Debug)]
pub(crate) enum Message {
    Batch(RecordBatch),
    Finished { rows_affected: Option<u64> },
    Failed(SqlError),
}

/// A started statement. It goes on by itself until a few batches wait for their reader; dropping it
/// cancels it.
#[derive(Debug)]
#[must_use = "dropping it cancels the statement"]
pub struct Running {
    control: Arc<Control>,
    header: Option<Header>,
    origin: Origin,
    ended: bool,
}

/// Where the result of a statement comes from.
#[derive(Debug)]
enum Origin {
    Task(Box<Task>),
    /// The statement ran when it was started: its rows, unless they were taken, and the number of rows that it affected.
    Ended(Option<RecordBatch>, Option<u64>),
}

/// A task that runs a statement.
#[derive(Debug)]
struct Task {
    header: Option<oneshot::Receiver<Result<Header>>>,
    messages: mpsc::Receiver<Message>,
    cancelled: CancelWait,
    /// The threads that it runs on live as long as it.
    _executor: Arc<Executor>,
}

/// Waits for the token of a statement to be cancelled.
struct CancelWait(Pin<Box<dyn Future<Output = ()> + Send + Sync>>);

impl std::fmt::Debug for CancelWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CancelWait")
    }
}

impl Running {
    pub(crate) fn new(
        control: Arc<Control>,
        header: oneshot::Receiver<Result<Header>>,
        messages: mpsc::Receiver<Message>,
        executor: Arc<Executor>,
    ) -> Running {
        let token = control.token.clone();
        let cancelled = CancelWait(Box::pin(async move { token.cancelled().await }));
        let task = Task { header: Some(header), messages, cancelled, _executor: executor };
        Running { control, header: None, origin: Origin::Task(Box::new(task)), ended: false }
    }

    /// A query that has ended, with its only batch, if it has rows.
    pub(crate) fn ended(
        control: Arc<Control>,
        header: Header,
        batch: Option<RecordBatch>,
    ) -> Running {
        Running { control, header: Some(header), origin: Origin::Ended(batch, None), ended: false }
    }

    /// A command that has ended, and the rows that it has affected.
    pub(crate) fn ended_command(control: Arc<Control>, header: Header, affected: u64) -> Running {
        let origin = Origin::Ended(None, Some(affected));
        Running { control, header: Some(header), origin, ended: false }
    }

    /// Waits until the statement is planned.
    ///
    /// # Errors
    /// What is wrong with the statement.
    pub async fn ready(&mut self) -> Result<()> {
        std::future::poll_fn(|context| self.poll_ready(context)).await
    }

    /// Looks whether the statement is planned.
    ///
    /// # Errors
    /// What is wrong with the statement.
    pub fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Origin::Task(task) = &mut self.origin else { return Poll::Ready(Ok(())) };
        let Some(receiver) = &mut task.header else { return Poll::Ready(Ok(())) };
        let answer = match receiver.poll_unpin(context) {
            Poll::Ready(Ok(answer)) => answer,
            Poll::Ready(Err(_)) => Err(lost(&self.control)),
            Poll::Pending => {
                ready!(task.cancelled.0.as_mut().poll(context));
                Err(SqlError::cancelled())
            }
        };
        task.header = None;
        match answer {
            Ok(header) => {
                self.header = Some(header);
                Poll::Ready(Ok(()))
            }
            Err(error) => {
                self.ended = true;
                Poll::Ready(Err(error))
            }
        }
    }

    /// The columns of the result; none before the statement is planned.
    pub fn schema(&self) -> SchemaRef {
        match &self.header {
            Some(header) => Arc::clone(&header.schema),
            None => Arc::new(Schema::empty()),
        }
    }

    /// What kind of statement it is.
    pub fn kind(&self) -> ResultKind {
        self.header.as_ref().map_or(ResultKind::Rows, |header| header.kind.clone())
    }

    /// A handle that cancels it.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.control.handle()
    }

    /// How far it is.
    pub fn progress(&self) -> ProgressSnapshot {
        self.control.snapshot()
    }

    /// The next batch; nothing after the last one, or when the command has ended.
    ///
    /// # Errors
    /// What went wrong meanwhile; nothing comes after an error.
    pub async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        std::future::poll_fn(|context| self.poll_batch(context)).await
    }

    fn poll_batch(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<RecordBatch>>> {
        if self.ended {
            return Poll::Ready(Ok(None));
        }
        ready!(self.poll_ready(context))?;
        let message = match &mut self.origin {
            Origin::Ended(batch, rows_affected) => match batch.take() {
                Some(batch) => Message::Batch(batch),
                None => Message::Finished { rows_affected: *rows_affected },
            },
            Origin::Task(task) => match task.messages.poll_recv(context) {
                Poll::Ready(Some(message)) => message,
                Poll::Ready(None) => Message::Failed(lost(&self.control)),
                Poll::Pending => {
                    ready!(task.cancelled.0.as_mut().poll(context));
                    Message::Failed(SqlError::cancelled())
                }
            },
        };
        match message {
            Message::Batch(batch) => return Poll::Ready(Ok(Some(batch))),
            Message::Finished { rows_affected: rows } => {
                if let Some(Header { kind: ResultKind::Command { rows_affected, .. }, .. }) =
                    &mut self.header
                {
                    *rows_affected = rows;
                }
            }
            Message::Failed(error) => {
                self.ended = true;
                return Poll::Ready(Err(error));
            }
        }
        self.ended = true;
        Poll::Ready(Ok(None))
    }
}

/// Why a statement's task has ended without a word.
fn lost(control: &Control) -> SqlError {
    match control.token.is_cancelled() {
        true => SqlError::cancelled(),
        false => internal("the statement's task has ended"),
    }
}

impl Stream for Running {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_batch(context).map(Result::transpose)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.control.abandon();
        }
    }
}
