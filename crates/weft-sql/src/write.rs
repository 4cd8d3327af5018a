//! Rows on their way into a table: the plan's partitions feed the writer's, in parallel.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::StreamExt;
use tokio::task::JoinSet;
use weft_store::{PartitionWriter, Store, TableSchema, WriterOptions, WrittenGroups};

use crate::control::Control;
use crate::error::{ErrorKind, Result, SqlError, internal};

/// Runs a plan and writes its rows for a table with this schema; the rows keep their order.
///
/// # Errors
/// What goes wrong in the plan; [`ErrorKind::Data`] for NULL where none may be.
pub(crate) async fn write_rows(
    store: &Store,
    control: &Control,
    schema: &TableSchema,
    plan: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
) -> Result<WrittenGroups> {
    let options = WriterOptions {
        cancel: control.token.clone(),
        progress: Arc::clone(&control.progress),
        ..WriterOptions::default()
    };
    let writer = store.writer(schema, options)?;
    let target = Arc::new(Target { schema: schema.clone(), arrow: schema.arrow_schema() });
    // Dropped with this future, and so aborted when the statement is cancelled.
    let mut tasks = JoinSet::new();
    for partition in 0..plan.output_partitioning().partition_count() {
        let stream = plan.execute(partition, Arc::clone(context))?;
        let part = writer.partition(partition);
        tasks.spawn(write_partition(Arc::clone(&target), stream, part));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| internal(&error.to_string()))??;
    }
    Ok(writer.finish().await?)
}

/// What the rows must become.
struct Target {
    schema: TableSchema,
    arrow: SchemaRef,
}

async fn write_partition(
    target: Arc<Target>,
    mut stream: SendableRecordBatchStream,
    mut part: PartitionWriter,
) -> Result<()> {
    while let Some(batch) = stream.next().await {
        part.append(target.convert(&batch?)?).await?;
    }
    Ok(part.finish().await?)
}

impl Target {
    /// The batch with the table's types, checked.
    fn convert(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(batch.num_columns());
        for (number, array) in batch.columns().iter().enumerate() {
            let field = self.arrow.field(number);
            let array = match array.data_type() == field.data_type() {
                true => Arc::clone(array),
                false => cast_with_options(array, field.data_type(), &options)?,
            };
            if !field.is_nullable() && array.logical_null_count() > 0 {
                return Err(not_null(&self.schema.name, field.name()));
            }
            columns.push(array);
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.arrow), columns)?)
    }
}

/// NULL for a column that must have a value.
pub(crate) fn not_null(table: &str, column: &str) -> SqlError {
    SqlError::new(
        ErrorKind::Data,
        format!("column {column} of table {table} is NOT NULL, but a row has NULL there"),
    )
}
