//! A node that DataFusion executes, and why.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result as DfResult, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};

use super::translate::Plan;

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

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.plan]
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
            Ok([plan]) => Ok(Arc::new(FallbackExec::new(plan, self.reason.clone()))),
            Err(_) => internal_err!("a fallback has one input"),
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
        self.plan.execute(partition, context)
    }
}
