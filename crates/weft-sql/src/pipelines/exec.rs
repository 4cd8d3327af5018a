//! A part of a plan that Weft's workers execute, as one node of DataFusion's.
//!
//! It keeps the part of the plan that it stands for, and translates it anew for each execution: a query of the engine
//! runs once. Its inputs are executed by DataFusion and feed the pipelines (`feed`).

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{Result as DfResult, internal_err};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties, ReplaceChildrenOptions,
};
use futures::{Stream, StreamExt};
use tokio::runtime::Handle;
use weft_exec::compile::Compiler;
use weft_exec::pipeline::Pipeline;
use weft_exec::profile::Profile;
use weft_exec::sink::ResultStream;
use weft_exec::spill::Spilling;
use weft_rt::Runtime;
use weft_rt::memory::{Ledger, Tally};

use super::description::Description;
use super::feed::Feed;
use super::scalar;
use super::translate::{Translated, translate};
use crate::error::SqlError;
use crate::plan_node::{Plan, plan_node};
use crate::table::ScanContext;

/// What pipelines of a statement run with.
#[derive(Clone)]
pub(super) struct Machine {
    pub(super) runtime: Arc<Runtime>,
    pub(super) ledger: Ledger,
    /// What they reserve together, if they are measured.
    pub(super) memory: Option<Arc<Tally>>,
    pub(super) spilling: Arc<Spilling>,
    pub(super) context: ScanContext,
    /// Rows of a vector.
    pub(super) vector_rows: usize,
}

impl Machine {
    /// Workers that execute pipelines.
    fn workers(&self) -> usize {
        self.context.threads.min(self.runtime.workers())
    }

    fn context(&self) -> weft_exec::query::Context {
        let (runtime, ledger) = (Arc::clone(&self.runtime), self.ledger.clone());
        let mut context = weft_exec::query::Context::new(runtime, ledger);
        let control = &self.context.control;
        context.workers = self.workers();
        context.share = control.share;
        context.cancel = control.token.clone();
        context.progress = Arc::clone(&control.progress);
        context.io_depth = self.context.io_depth;
        context.vector_rows = self.vector_rows;
        context.partition = self.spilling.options().partition;
        context.spilling = Some(Arc::clone(&self.spilling));
        context.turn = Arc::clone(&self.context.turn);
        context.compiling = self.context.compiling.clone();
        context
    }
}

/// Executes a part of a plan by pipelines.
pub(crate) struct PipelinesExec {
    /// What it stands for, whose leaves may be inputs.
    part: Plan,
    inputs: Vec<Plan>,
    machine: Machine,
    properties: Arc<PlanProperties>,
    /// The pipelines in words, once they are known.
    descriptions: Mutex<Option<Vec<Description>>>,
    /// What the pipelines of each execution have done, if they are measured.
    executions: Mutex<Vec<Arc<[Arc<Profile>]>>>,
    metrics: ExecutionPlanMetricsSet,
}

impl PipelinesExec {
    /// Executes `part`, whose n-th [`InputExec`](super::input::InputExec) stands for the n-th of `inputs`.
    ///
    /// # Errors
    /// If the part has no pipelines.
    pub(super) fn new(part: Plan, inputs: Vec<Plan>, machine: Machine) -> DfResult<PipelinesExec> {
        let descriptions = translate(&part, inputs.iter().map(|_| Vec::new()).collect())?;
        let exec = PipelinesExec::of(part, inputs, machine);
        *exec.described() = Some(descriptions.descriptions);
        Ok(exec)
    }

    fn of(part: Plan, inputs: Vec<Plan>, machine: Machine) -> PipelinesExec {
        let properties = PlanProperties::new(
            part.properties().equivalence_properties().clone(),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        PipelinesExec {
            part,
            inputs,
            machine,
            properties: Arc::new(properties),
            descriptions: Mutex::default(),
            executions: Mutex::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    fn described(&self) -> MutexGuard<'_, Option<Vec<Description>>> {
        self.descriptions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn executed(&self) -> MutexGuard<'_, Vec<Arc<[Arc<Profile>]>>> {
        self.executions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pipelines in words.
    pub(super) fn descriptions(&self) -> Vec<Description> {
        self.described().clone().unwrap_or_default()
    }

    /// What the pipelines of each execution have done.
    pub(super) fn executions(&self) -> Vec<Arc<[Arc<Profile>]>> {
        self.executed().clone()
    }

    /// Most bytes that the statement's pipelines have reserved at a time, if they are measured.
    pub(super) fn memory_peak(&self) -> u64 {
        self.machine.memory.as_ref().map_or(0, |memory| memory.peak())
    }

    /// The code of each of its pipelines, in lines of text.
    ///
    /// # Errors
    /// If the part has no pipelines.
    pub(super) fn code(&self, compiler: &dyn Compiler) -> DfResult<Vec<Vec<String>>> {
        let inputs = self.inputs.iter().map(|_| Vec::new()).collect();
        let Translated { query, .. } = translate(&self.part, inputs)?;
        let explain = |pipeline: &Pipeline| {
            let probe = pipeline.source.probe();
            let mut lines = probe.map_or(Vec::new(), |shape| compiler.explain_probe(&shape));
            lines.extend(compiler.explain(&pipeline.program, pipeline.sink.reads().as_deref()));
            lines
        };
        Ok(query.pipelines.iter().map(explain).collect())
    }

    /// Workers that execute it.
    pub(super) fn workers(&self) -> usize {
        self.machine.workers()
    }
}

impl fmt::Debug for PipelinesExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipelinesExec").field("part", &self.part).finish_non_exhaustive()
    }
}

impl DisplayAs for PipelinesExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let described = self.described();
        let pipelines = described.as_deref().unwrap_or_default();
        if !matches!(kind, DisplayFormatType::TreeRender) {
            write!(f, "PipelinesExec: ")?;
        }
        for (number, pipeline) in pipelines.iter().enumerate() {
            match kind {
                DisplayFormatType::TreeRender => writeln!(f, "{number}={pipeline}")?,
                DisplayFormatType::Default | DisplayFormatType::Verbose => {
                    let separator = if number == 0 { "" } else { "; " };
                    write!(f, "{separator}{number}: {pipeline}")?;
                }
            }
        }
        Ok(())
    }
}

impl ExecutionPlan for PipelinesExec {
    fn name(&self) -> &str {
        "PipelinesExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Plan> {
        self.inputs.iter().collect()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Plan>,
        _: ReplaceChildrenOptions,
    ) -> DfResult<Plan> {
        if children.len() != self.inputs.len() {
            return internal_err!("pipelines keep the number of their inputs");
        }
        let part = Arc::clone(&self.part);
        let fresh = PipelinesExec::of(part, children, self.machine.clone());
        fresh.described().clone_from(&self.described());
        Ok(Arc::new(fresh))
    }

    plan_node!();

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DfResult<SendableRecordBatchStream> {
        if partition > 0 {
            return internal_err!("pipelines give their rows in one partition");
        }
        let threads = Handle::current();
        let fed = |input: &Plan| {
            let partitions = 0..input.output_partitioning().partition_count();
            let of = |partition| Feed::new(input, partition, &context, &threads).boxed();
            partitions.map(of).collect()
        };
        let streams = self.inputs.iter().map(fed).collect();
        self.machine.context.control.note_pipelines();
        scalar::forget(&self.part);
        let Translated { query, results, descriptions } = translate(&self.part, streams)?;
        let mut machine = self.machine.context();
        if self.machine.memory.is_some() {
            let profile = |of: &Description| Arc::new(Profile::new(of.parts.clone()));
            machine.profiles = descriptions.iter().map(profile).collect();
            self.executed().push(Arc::clone(&machine.profiles));
        }
        *self.described() = Some(descriptions);
        Ok(Box::pin(PipelineRows {
            schema: self.schema(),
            rows: results.of(query, &machine),
            baseline: BaselineMetrics::new(&self.metrics, partition),
        }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// The rows of a query that runs. Dropped, it cancels the query.
struct PipelineRows {
    schema: SchemaRef,
    rows: ResultStream,
    baseline: BaselineMetrics,
}

impl Stream for PipelineRows {
    type Item = DfResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.rows.poll_next_unpin(context);
        let polled = polled
            .map(|batch| batch.map(|batch| batch.map_err(|error| SqlError::from(error).into())));
        self.baseline.record_poll(polled)
    }
}

impl RecordBatchStream for PipelineRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
