//! Joins give way: a join that makes very many rows out of few would keep its thread, and could not be
//! cancelled, until it asks its input for more. DataFusion makes inputs give way, but not these.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PiecewiseMergeJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::unnest::UnnestExec;

use crate::physical_rule::PhysicalRule;

/// Puts a node that gives way after some batches above each one that multiplies rows.
pub(crate) const YIELDING_JOINS: PhysicalRule = PhysicalRule {
    name: "yielding_joins",
    rewrite: |plan| {
        let rewritten = plan.transform_up(|node| {
            Ok(match multiplies_rows(node.as_ref()) {
                true => Transformed::yes(Arc::new(CooperativeExec::new(node))),
                false => Transformed::no(node),
            })
        })?;
        Ok(rewritten.data)
    },
};

fn multiplies_rows(node: &dyn ExecutionPlan) -> bool {
    node.is::<NestedLoopJoinExec>()
        || node.is::<CrossJoinExec>()
        || node.is::<HashJoinExec>()
        || node.is::<SortMergeJoinExec>()
        || node.is::<PiecewiseMergeJoinExec>()
        || node.is::<UnnestExec>()
}
