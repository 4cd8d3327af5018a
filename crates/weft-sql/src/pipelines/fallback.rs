//! A node that DataFusion executes, and why.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result as DfResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};

use crate::plan_node::{Plan, plan_node};

/// Passes on what the node below it gives; EXPLAIN shows the reason.
#[derive(Debug)]
pub(super) struct FallbackExec {
    plan: Plan,
    reason: String,
}

impl FallbackExec {
    /// For a node that has no pipelines for this reason.
    pub(super) fn new(plan: Plan, reason: String) -> FallbackExec {
        FallbackExec { plan, reason }
    }

    fn with_input(&self, plan: Plan) -> FallbackExec {
        FallbackExec::new(plan, self.reason.clone())
    }
}

impl DisplayAs for FallbackExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match kind {
            DisplayFormatType::TreeRender => writeln!(f, "reason={}", self.reason),
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "FallbackExec: {}", self.reason)
            }
        }
    }
}

impl ExecutionPlan for FallbackExec {
    fn name(&self) -> &str {
        "FallbackExec"
    }

    plan_node!(wraps plan);

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DfResult<SendableRecordBatchStream> {
        self.plan.execute(partition, context)
    }
}
