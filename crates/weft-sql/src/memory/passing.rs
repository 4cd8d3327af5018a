//! A node of a plan that passes batches on, one by one, and does something to each.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result as DfResult, internal_err};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::{Stream, StreamExt};

/// What is done to each batch of a partition. It is dropped with the partition's stream.
pub(super) type Step = Box<dyn FnMut(RecordBatch) -> DfResult<RecordBatch> + Send>;

/// What a node does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    /// Its name in EXPLAIN.
    pub(super) name: &'static str,
    /// Makes the step of a partition.
    pub(super) step: fn(partition: usize, context: &TaskContext) -> Step,
}

/// Puts a node of this kind below all those that are `chosen`.
pub(super) fn put_below(
    plan: Arc<dyn ExecutionPlan>,
    kind: Kind,
    chosen: impl Fn(&dyn ExecutionPlan) -> bool,
) -> DfResult<Arc<dyn ExecutionPlan>> {
    let rewritten = plan.transform_up(|node| {
        if !chosen(node.as_ref()) {
            return Ok(Transformed::no(node));
        }
        let passing = |input: &Arc<dyn ExecutionPlan>| -> Arc<dyn ExecutionPlan> {
            Arc::new(PassingExec { kind, input: Arc::clone(input) })
        };
        let inputs = node.children().into_iter().map(passing).collect();
        let mode = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        Ok(Transformed::yes(node.replace_children(inputs, mode)?))
    })?;
    Ok(rewritten.data)
}

#[derive(Debug)]
struct PassingExec {
    kind: Kind,
    input: Arc<dyn ExecutionPlan>,
}

impl DisplayAs for PassingExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name)
    }
}

impl ExecutionPlan for PassingExec {
    fn name(&self) -> &str {
        self.kind.name
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DfResult<TreeNodeRecursion>,
    ) -> DfResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(PassingExec { kind: self.kind, input })),
            Err(_) => internal_err!("{} passes on the batches of one input", self.kind.name),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let mode = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, mode)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DfResult<SendableRecordBatchStream> {
        let step = (self.kind.step)(partition, &context);
        Ok(Box::pin(PassingStream { step, input: self.input.execute(partition, context)? }))
    }
}

struct PassingStream {
    step: Step,
    input: SendableRecordBatchStream,
}

impl Stream for PassingStream {
    type Item = DfResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = ready!(self.input.poll_next_unpin(context));
        Poll::Ready(polled.map(|batch| (self.step)(batch?)))
    }
}

impl RecordBatchStream for PassingStream {
    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }
}
