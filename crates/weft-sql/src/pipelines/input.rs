//! A place in a plan that is translated where rows come from a node that DataFusion executes.

use std::fmt;
use std::sync::Arc;

use datafusion::common::{Result as DfResult, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

use super::leaf;
use crate::plan_node::{Plan, plan_node};

/// Stands for an input of the pipelines, by its number.
#[derive(Debug)]
pub(super) struct InputExec {
    number: usize,
    /// What it stands for, in words.
    of: String,
    /// Its rows come as one stream.
    is_one: bool,
    properties: Arc<PlanProperties>,
}

impl InputExec {
    /// Stands for `plan`, the input with this number, which is executed as `executed`. (Nodes above it go by the partitions that
    /// it was planned with.)
    pub(super) fn new(number: usize, plan: &Plan, executed: &Plan) -> InputExec {
        let partitions = executed.properties().output_partitioning().partition_count();
        let (of, is_one) = (leaf::in_words(plan), partitions == 1);
        InputExec { number, of, is_one, properties: Arc::clone(plan.properties()) }
    }

    /// The number of the input.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// What it stands for, in words.
    pub(super) fn of(&self) -> &str {
        &self.of
    }

    /// True if its rows come as one stream, in the order that it promises, if it does.
    pub(super) fn is_one(&self) -> bool {
        self.is_one
    }
}

impl DisplayAs for InputExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InputExec: {}", self.of)
    }
}

impl ExecutionPlan for InputExec {
    fn name(&self) -> &str {
        "InputExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    plan_node!(leaf);

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        internal_err!("an input of pipelines is not executed itself")
    }
}
