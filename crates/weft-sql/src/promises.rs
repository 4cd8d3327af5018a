//! A node that passes on rows as they are, and of what its input promises about them only what can be believed.

use std::fmt;
use std::sync::Arc;

use datafusion::common::{Result as DfResult, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{AcrossPartitions, ConstExpr, EquivalenceProperties};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions, Statistics,
};

use crate::plan_node::{Plan, inputs, plan_node};

/// What is passed on of promises. An order never is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// None of them.
    Nothing,
    /// Which columns have a value that is the same everywhere.
    Known,
    /// Which columns are the same in a partition, and which are equal.
    Equalities,
}

/// Rows of which less is promised than their source does.
#[derive(Debug)]
pub(crate) struct PromisesExec {
    input: Plan,
    kept: Kept,
    properties: Arc<PlanProperties>,
}

impl PromisesExec {
    pub(crate) fn new(input: Plan, kept: Kept) -> DfResult<PromisesExec> {
        let promised = input.equivalence_properties();
        let mut believed = EquivalenceProperties::new(input.schema());
        match kept {
            Kept::Nothing => {}
            Kept::Known => {
                believed.add_constants(promised.constants().into_iter().filter(is_known))?;
            }
            Kept::Equalities => {
                believed = promised.clone();
                believed.clear_orderings();
            }
        }
        let properties = PlanProperties::clone(input.properties()).with_eq_properties(believed);
        Ok(PromisesExec { input, kept, properties: Arc::new(properties) })
    }

    pub(crate) fn input(&self) -> &Plan {
        &self.input
    }

    pub(crate) fn kept(&self) -> Kept {
        self.kept
    }
}

/// True if a constant has the same value everywhere.
pub(crate) fn is_known(constant: &ConstExpr) -> bool {
    matches!(constant.across_partitions, AcrossPartitions::Uniform(Some(_)))
}

impl DisplayAs for PromisesExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PromisesExec")
    }
}

impl ExecutionPlan for PromisesExec {
    fn name(&self) -> &str {
        "PromisesExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        // Sorts would go below it, and lose keys there that are not believed to be the same.
        vec![false]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }

    fn children(&self) -> Vec<&Plan> {
        vec![&self.input]
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Plan>,
        _: ReplaceChildrenOptions,
    ) -> DfResult<Plan> {
        let [input] = inputs(self.name(), children)?;
        Ok(Arc::new(PromisesExec::new(input, self.kept)?))
    }

    plan_node!();

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DfResult<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> DfResult<Arc<Statistics>> {
        let [input] = input_stats else { return internal_err!("{} has one input", self.name()) };
        Ok(Arc::clone(input))
    }
}
