//! Rows on their way into a table: the plan's partitions feed the writer's, in parallel.

use std::sync::Arc;

use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::StreamExt;
use tokio::task::JoinSet;
use weft_store::{PartitionWriter, Store, TableSchema, WriterOptions, WrittenGroups};

use crate::assign::Assignment;
use crate::control::Control;
use crate::error::{Result, internal};
use crate::returning::Kept;

/// Runs a plan and writes its rows, assigned to a table with this schema; the rows keep their order. Those that are
/// returned are kept as well.
///
/// # Errors
/// What goes wrong in the plan; [`ErrorKind::Data`](crate::ErrorKind::Data) for values that do not fit.
pub(crate) async fn write_rows(
    store: &Store,
    control: &Control,
    schema: &TableSchema,
    assignment: Assignment,
    (plan, context): (&Arc<dyn ExecutionPlan>, &Arc<TaskContext>),
    kept: &Arc<Kept>,
) -> Result<WrittenGroups> {
    let options = WriterOptions {
        workers: context.session_config().target_partitions(),
        share: Some(control.share),
        cancel: control.token.clone(),
        progress: Arc::clone(&control.progress),
        ..WriterOptions::default()
    };
    let writer = store.writer(schema, options)?;
    let assignment = Arc::new(assignment);
    // Dropped with this future, and so aborted when the statement is cancelled.
    let mut tasks = JoinSet::new();
    for partition in 0..plan.output_partitioning().partition_count() {
        let stream = plan.execute(partition, Arc::clone(context))?;
        let part = writer.partition(partition);
        let kept = (Arc::clone(kept), partition);
        tasks.spawn(write_partition(Arc::clone(&assignment), stream, part, kept));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| internal(&error.to_string()))??;
    }
    Ok(writer.finish().await?)
}

async fn write_partition(
    assignment: Arc<Assignment>,
    mut stream: SendableRecordBatchStream,
    mut part: PartitionWriter,
    (kept, partition): (Arc<Kept>, usize),
) -> Result<()> {
    while let Some(batch) = stream.next().await {
        let rows = assignment.convert(&batch?)?;
        if kept.is_wanted() {
            kept.keep(partition, rows.clone())?;
        }
        part.append(rows).await?;
    }
    Ok(part.finish().await?)
}
