//! A node of a plan that passes batches on, one by one, and does something to each.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result as DfResult;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ReplaceChildrenOptions,
};
use futures::{Stream, StreamExt};

use crate::plan_node::{Plan, plan_node};

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
    plan: Plan,
    kind: Kind,
    chosen: impl Fn(&dyn ExecutionPlan) -> bool,
) -> DfResult<Plan> {
    let rewritten = plan.transform_up(|node| {
        if !chosen(node.as_ref()) {
            return Ok(Transformed::no(node));
        }
        let passing =
            |input: &Plan| -> Plan { Arc::new(PassingExec { kind, input: Arc::clone(input) }) };
        let inputs = node.children().into_iter().map(passing).collect();
        let mode = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        Ok(Transformed::yes(node.replace_children(inputs, mode)?))
    })?;
    Ok(rewritten.data)
}

#[derive(Debug)]
struct PassingExec {
    kind: Kind,
    input: Plan,
}

impl PassingExec {
    fn with_input(&self, input: Plan) -> PassingExec {
        PassingExec { kind: self.kind, input }
    }
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

    plan_node!(wraps input);

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
