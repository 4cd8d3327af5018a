//! The result of a query: record batches through a bounded channel, to whoever asks for them on any executor.
//!
//! A consumer that is slow makes the workers wait; one that goes away ends the pipeline. Each worker gathers tuples
//! until a batch is worth sending. Where one worker gets all tuples of an ordered source, they arrive in that order.

use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use futures::future::LocalBoxFuture;
use futures::{FutureExt, Stream};
use weft_rt::JoinHandle;
use weft_rt::memory::{Ledger, Reservation};
use weft_rt::sync::channel::{Receiver, Sender, bounded};

use crate::apart;
use crate::arrow::ColumnBuilder;
use crate::error::{ExecError, Result};
use crate::lane::Lane;
use crate::pace::Pace;
use crate::parallel::CancelRest;
use crate::pipeline::{Flow, LocalSink, Sink};
use crate::profile::{Wait, waiting};
use crate::program::Register;
use crate::query::{Context, Query};
use crate::registers::Registers;

/// Batches that wait for their consumer, at most.
const QUEUE_BATCHES: usize = 4;
/// A batch is sent when it has so many rows …
const BATCH_ROWS: usize = 8192;
/// … or takes so many bytes, or that part of the budget: those that wait for a slow consumer leave memory for who makes more.
const BATCH_BYTES: usize = 4 << 20;
const BATCH_PART: u64 = 64;

/// A batch, and its memory while it waits, if there was any to be had.
type Item = (RecordBatch, Option<Reservation>);

/// Sends tuples to [`Results`].
#[derive(Debug)]
pub struct Output {
    schema: SchemaRef,
    columns: Vec<(Register, Lane)>,
    sender: Sender<Item>,
}

/// Where the batches arrive.
#[derive(Debug)]
pub struct Results {
    schema: SchemaRef,
    receiver: Receiver<Item>,
}

impl Output {
    /// A sink for tuples whose columns lie in these registers, each of a lane.
    ///
    /// # Panics
    /// If there are not as many as the schema has fields.
    pub fn new(schema: SchemaRef, columns: Vec<(Register, Lane)>) -> (Output, Results) {
        assert_eq!(schema.fields().len(), columns.len(), "registers and fields");
        let (sender, receiver) = bounded(QUEUE_BATCHES);
        (Output { schema: schema.clone(), columns, sender }, Results { schema, receiver })
    }
}

impl Sink for Output {
    fn reads(&self) -> Option<Vec<Register>> {
        Some(self.columns.iter().map(|(register, _)| *register).collect())
    }

    fn local(&self, context: &Context, _: usize) -> Result<Box<dyn LocalSink>> {
        let mut local = LocalOutput {
            schema: self.schema.clone(),
            registers: self.columns.clone(),
            columns: Vec::new(),
            rows: 0,
            ledger: context.ledger.clone(),
            memory: context.ledger.empty(),
            sender: self.sender.clone(),
            pace: Pace::default(),
        };
        local.renew();
        Ok(Box::new(local))
    }
}

struct LocalOutput {
    schema: SchemaRef,
    registers: Vec<(Register, Lane)>,
    columns: Vec<ColumnBuilder>,
    rows: usize,
    ledger: Ledger,
    /// Of the batch that is being gathered, as far as there was any.
    memory: Reservation,
    sender: Sender<Item>,
    pace: Pace,
}

impl LocalOutput {
    /// Begins a batch; gives the columns of the one before.
    fn renew(&mut self) -> Vec<ColumnBuilder> {
        let fields = self.schema.fields().iter().zip(&self.registers);
        let columns =
            fields.map(|(field, (_, lane))| ColumnBuilder::new(field.data_type(), *lane)).collect();
        std::mem::replace(&mut self.columns, columns)
    }

    async fn send(&mut self) -> Result<Flow> {
        let rows = std::mem::take(&mut self.rows);
        let columns = self.renew();
        let takes_long = columns.iter().any(ColumnBuilder::takes_long);
        let finish =
            move || columns.into_iter().map(ColumnBuilder::finish).collect::<Result<Vec<_>>>();
        let columns = if takes_long { apart::run(finish).await } else { finish() }?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        let memory = std::mem::replace(&mut self.memory, self.ledger.empty());
        let sent = waiting(Wait::Other, self.sender.send((batch, Some(memory)))).await;
        Ok(match sent {
            Ok(()) => Flow::More,
            Err(_) => Flow::Enough,
        })
    }
}

impl LocalSink for LocalOutput {
    fn push<'a>(&'a mut self, registers: &'a mut Registers) -> LocalBoxFuture<'a, Result<Flow>> {
        async {
            let selected = registers.selected();
            for ((register, _), column) in self.registers.iter().zip(&mut self.columns) {
                let vector = registers.vector(*register);
                column.append_in_turns(vector, selected, &mut self.pace).await;
            }
            self.rows += selected.count();
            let bytes = self.columns.iter().map(ColumnBuilder::bytes).sum::<usize>();
            // If there is no memory to be had the batch is not accounted for: it is small.
            self.memory.try_grow((bytes as u64).saturating_sub(self.memory.bytes()));
            let bytes_max = BATCH_BYTES.min((self.ledger.limit() / BATCH_PART) as usize);
            if self.rows < BATCH_ROWS && bytes < bytes_max {
                return Ok(if self.sender.is_closed() { Flow::Enough } else { Flow::More });
            }
            self.send().await
        }
        .boxed_local()
    }

    fn end(mut self: Box<Self>) -> LocalBoxFuture<'static, Result<()>> {
        async move {
            if self.rows > 0 {
                self.send().await?;
            }
            Ok(())
        }
        .boxed_local()
    }
}

impl Results {
    /// The schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// The next batch; `None` when the pipeline has ended, well or not: the query says which.
    pub fn poll_next(&mut self, context: &mut TaskContext<'_>) -> Poll<Option<RecordBatch>> {
        self.receiver.poll_recv(context).map(|item| item.map(|(batch, _)| batch))
    }

    /// Runs `query`, which sends its results here, while the stream that this gives is polled. If the stream is dropped
    /// the query is cancelled.
    pub fn of(self, query: Query, context: &Context) -> ResultStream {
        let context = Context { cancel: context.cancel.child(), ..context.clone() };
        let rest = CancelRest::new(&context.cancel);
        let (runtime, share) = (context.runtime.clone(), Some(context.share));
        let worker = runtime.next_of(context.workers);
        let task =
            runtime.spawn_in(share, worker, move || async move { query.run(&context).await });
        ResultStream { results: self, task: Some(task), has_failed: false, rest }
    }
}

/// A query that runs, and its results.
#[derive(Debug)]
pub struct ResultStream {
    results: Results,
    /// `None` once the query has ended.
    task: Option<JoinHandle<Result<()>>>,
    has_failed: bool,
    /// Cancels the query when this is dropped.
    rest: CancelRest,
}

impl ResultStream {
    /// The schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.results.schema()
    }

    /// Cancels the query. What is polled from now on is its end.
    pub fn cancel(&self) {
        self.rest.cancel();
    }
}

impl Stream for ResultStream {
    type Item = Result<RecordBatch>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<RecordBatch>>> {
        // An error comes at once, whatever results may still wait.
        if let Some(task) = &mut self.task
            && let Poll::Ready(ended) = task.poll_unpin(context)
        {
            self.task = None;
            if let Err(error) = ended.map_err(ExecError::Join).flatten() {
                self.has_failed = true;
                // Nobody takes what still waits, and its memory is not to wait for this to be dropped.
                while let Poll::Ready(Some(_)) = self.results.poll_next(context) {}
                return Poll::Ready(Some(Err(error)));
            }
        }
        if self.has_failed {
            return Poll::Ready(None);
        }
        match self.results.poll_next(context) {
            Poll::Ready(Some(batch)) => Poll::Ready(Some(Ok(batch))),
            // The other pipelines have not ended.
            Poll::Ready(None) if self.task.is_some() => Poll::Pending,
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}
