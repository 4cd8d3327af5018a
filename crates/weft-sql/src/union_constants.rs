//! A UNION of constants: `SELECT 'a', n FROM t UNION ALL SELECT 'b', n FROM u`.
//!
//! DataFusion knows that its first column is the same all over each partition, and forgets that it is not the same in all: merged
//! by both columns, rows are taken for sorted by the second one alone, and a sort by that, first rows and all, is left out. So a
//! node above such a UNION promises no order, and only what is the same everywhere. Where both parts have a constant whose value is not known, it may be
//! two.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result as DfResult, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{AcrossPartitions, ConstExpr, EquivalenceProperties};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions, Statistics,
};

use crate::physical_rule::PhysicalRule;
use crate::plan_node::{Plan, inputs, plan_node};

/// Has nobody believe that what is the same in each part of a UNION is the same in all of it.
pub(crate) const UNION_CONSTANTS: PhysicalRule = PhysicalRule {
    name: "union_constants",
    rewrite: |plan| {
        let rewritten = plan.transform_up(|node| {
            let is_union = node.is::<UnionExec>() || node.is::<InterleaveExec>();
            let constants = node.equivalence_properties().constants();
            if !is_union || constants.iter().all(is_known) {
                return Ok(Transformed::no(node));
            }
            Ok(Transformed::yes(Arc::new(PartsExec::new(node)?) as Plan))
        })?;
        Ok(rewritten.data)
    },
};

/// True if a constant has the same value everywhere.
fn is_known(constant: &ConstExpr) -> bool {
    matches!(constant.across_partitions, AcrossPartitions::Uniform(Some(_)))
}

/// Rows of parts that differ in what is constant in each.
#[derive(Debug)]
struct PartsExec {
    input: Plan,
    properties: Arc<PlanProperties>,
}

impl PartsExec {
    fn new(input: Plan) -> DfResult<PartsExec> {
        let known = input.equivalence_properties().constants();
        let mut kept = EquivalenceProperties::new(input.schema());
        kept.add_constants(known.into_iter().filter(is_known))?;
        let properties = PlanProperties::clone(input.properties()).with_eq_properties(kept);
        Ok(PartsExec { input, properties: Arc::new(properties) })
    }
}

impl DisplayAs for PartsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PartsExec")
    }
}

impl ExecutionPlan for PartsExec {
    fn name(&self) -> &str {
        "PartsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        // Sorts would go below it, and lose keys there that are the same in each part.
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
        Ok(Arc::new(PartsExec::new(input)?))
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
