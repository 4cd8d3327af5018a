//! Rows that are evaluated once, when somebody first reads them, and kept for all readers: in memory, or on disk as soon as they
//! are too many for what there is.

use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::common::{DataFusionError, Result as DfResult};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, SpillFile, TaskContext};
use datafusion::physical_plan::execute_stream;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::spill::SpillManager;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, StreamExt};

use crate::plan_node::Plan;

/// The consumer of rows that are kept for several readers.
const CONSUMER: &str = "OnceExec";

/// What all readers wait for.
type Evaluation = Shared<BoxFuture<'static, Result<Arc<Kept>, Arc<DataFusionError>>>>;

/// The rows of a plan.
#[derive(Debug)]
pub(super) struct OnceRows {
    plan: Plan,
    evaluation: Mutex<Option<Evaluation>>,
}

impl OnceRows {
    /// The rows of this plan.
    pub(super) fn new(plan: Plan) -> OnceRows {
        OnceRows { plan, evaluation: Mutex::default() }
    }

    /// What evaluates them.
    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The rows, when all of them are there.
    ///
    /// # Errors
    /// What went wrong with evaluating them, which all readers are told.
    pub(super) async fn read(
        &self,
        context: Arc<TaskContext>,
    ) -> DfResult<SendableRecordBatchStream> {
        let evaluation = {
            let mut evaluation = self.evaluation.lock().unwrap_or_else(PoisonError::into_inner);
            evaluation.get_or_insert_with(|| evaluate(Arc::clone(&self.plan), context)).clone()
        };
        evaluation.await.map_err(DataFusionError::Shared)?.stream()
    }
}

/// Evaluates a plan on a task of its own: readers may wait for each other.
fn evaluate(plan: Plan, context: Arc<TaskContext>) -> Evaluation {
    let task = SpawnedTask::spawn(keep(plan, context));
    let kept = async move {
        let kept =
            task.join().await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)));
        kept.flatten().map(Arc::new).map_err(Arc::new)
    };
    kept.boxed().shared()
}

/// Rows that were evaluated.
struct Kept {
    batches: Vec<RecordBatch>,
    file: Option<Arc<dyn SpillFile>>,
    /// Bytes of the largest batch in the file.
    batch_bytes_max: usize,
    spills: SpillManager,
    _memory: MemoryReservation,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("is_spilled", &self.file.is_some()).finish_non_exhaustive()
    }
}

/// Evaluates a plan.
async fn keep(plan: Plan, context: Arc<TaskContext>) -> DfResult<Kept> {
    let metrics = SpillMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
    let spills = SpillManager::new(context.runtime_env(), metrics, plan.schema());
    let memory = MemoryConsumer::new(CONSUMER).with_can_spill(true);
    let memory = memory.register(context.memory_pool());
    let mut rows = execute_stream(plan, context)?;
    let (mut batches, mut writing, mut batch_bytes_max) = (Vec::new(), None, 0);
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        let bytes = get_record_batch_memory_size(&batch);
        batch_bytes_max = bytes.max(batch_bytes_max);
        if writing.is_none() && memory.try_grow(bytes).is_ok() {
            batches.push(batch);
            continue;
        }
        let file = match &mut writing {
            Some(file) => file,
            none => {
                let file = none.insert(spills.create_in_progress_file("rows for several readers")?);
                for batch in batches.drain(..) {
                    file.append_batch(&batch)?;
                }
                memory.free();
                file
            }
        };
        file.append_batch(&batch)?;
    }
    let file = match writing {
        Some(mut file) => file.finish()?,
        None => None,
    };
    Ok(Kept { batches, file, batch_bytes_max, spills, _memory: memory })
}

impl Kept {
    /// The rows, for one reader.
    fn stream(self: Arc<Kept>) -> DfResult<SendableRecordBatchStream> {
        if let Some(file) = &self.file {
            let max = Some(self.batch_bytes_max);
            return self.spills.read_spill_as_stream_unbuffered(Arc::clone(file), max);
        }
        let schema = Arc::clone(self.spills.schema());
        let batches = (0..self.batches.len()).map(move |at| Ok(self.batches[at].clone()));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter(batches))))
    }
}
