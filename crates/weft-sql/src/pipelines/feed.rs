//! Rows that DataFusion gives to pipelines: a task on the statement's threads executes a partition, and feeds a worker through a channel.
//!
//! A task begins when a worker first asks for its rows: what a pipeline reads that runs later takes no memory before, and conditions
//! of scans find the values that earlier pipelines give.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result as DfResult;
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::TaskContext;
use futures::{Stream, StreamExt};
use tokio::runtime::Handle;
use weft_exec::ExecError;
use weft_exec::source::stream::{BatchSender, channel};

use super::source;
use crate::plan_node::Plan;

/// Batches that wait for the workers, at most.
const BATCHES: usize = 2;

/// A partition of an input.
pub(super) struct Feed {
    input: Plan,
    partition: usize,
    context: Arc<TaskContext>,
    threads: Handle,
    /// What comes from the task, which ends with it.
    begun: Option<(source::Stream, SpawnedTask<()>)>,
}

impl Feed {
    /// The rows of a partition of `input`, which these threads will execute.
    pub(super) fn new(
        input: &Plan,
        partition: usize,
        context: &Arc<TaskContext>,
        threads: &Handle,
    ) -> Feed {
        let (input, context) = (Arc::clone(input), Arc::clone(context));
        Feed { input, partition, context, threads: threads.clone(), begun: None }
    }

    fn begin(&self) -> (source::Stream, SpawnedTask<()>) {
        let (sender, stream) = channel(BATCHES);
        let (input, context) = (Arc::clone(&self.input), Arc::clone(&self.context));
        let partition = self.partition;
        // The worker that asks is none of these threads.
        let _within = self.threads.enter();
        (stream, SpawnedTask::spawn(feed(input, partition, context, sender)))
    }
}

impl Stream for Feed {
    type Item = weft_exec::Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut begun = self.begun.take().unwrap_or_else(|| self.begin());
        let polled = begun.0.poll_next_unpin(context);
        self.begun = Some(begun);
        polled
    }
}

async fn feed(input: Plan, partition: usize, context: Arc<TaskContext>, sender: BatchSender) {
    match send_all(&input, partition, context, &sender).await {
        Ok(true) => sender.close().await,
        // Nobody wants more.
        Ok(false) => {}
        Err(error) => {
            sender.send(Err(ExecError::Function(Box::new(error)))).await;
        }
    }
}

/// Sends all rows; false if nobody wants more.
async fn send_all(
    input: &Plan,
    partition: usize,
    context: Arc<TaskContext>,
    sender: &BatchSender,
) -> DfResult<bool> {
    let mut rows = input.execute(partition, context)?;
    while let Some(batch) = rows.next().await {
        if !sender.send(Ok(batch?)).await {
            return Ok(false);
        }
    }
    Ok(true)
}
