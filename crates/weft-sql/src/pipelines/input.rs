//! A place in a plan that is translated where rows come from a node that DataFusion executes.

use std::fmt;
use std::sync::Arc;

use datafusion::common::{Result as DfResult, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

use crate::plan_node::{Plan, plan_node};

/// Stands for an input of the pipelines, by its number.
#[derive(Debug)]
pub(super) struct InputExec {
    number: usize,
    /// The name of the node that it stands for.
    of: String,
    properties: Arc<PlanProperties>,
}

impl InputExec {
    /// Stands for `plan`, the input with this number.
    pub(super) fn new(number: usize, plan: &Plan) -> InputExec {
        InputExec { number, of: plan.name().to_owned(), properties: Arc::clone(plan.properties()) }
    }

    /// The number of the input.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// The name of the node that it stands for.
    pub(super) fn of(&self) -> &str {
        &self.of
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
