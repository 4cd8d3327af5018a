//! Join ordering: which relations are joined first, and which side of a join is built.
//!
//! DataFusion joins in the order of the text. A block of joins (`block.rs`) becomes a graph of relations and
//! conditions, those that others imply among them (`classes.rs`), with cardinalities (`estimate.rs`) from row counts, distinct counts and samples. The order is the
//! cheapest of all that join only what conditions connect, by dynamic programming (`dphyp.rs`); of a large graph it is
//! a good one (`greedy.rs`). Costs are tuples that go into hash tables, look there and come out (`graph.rs`).

mod block;
mod classes;
mod dphyp;
mod estimate;
mod graph;
mod greedy;
mod order;
mod set;

use datafusion::common::Result as DfResult;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Orders joins. To be applied after conditions have been pushed down.
#[derive(Debug)]
pub(crate) struct JoinOrder;

impl OptimizerRule for JoinOrder {
    fn name(&self) -> &str {
        "join_order"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> DfResult<Transformed<LogicalPlan>> {
        reorder(plan)
    }
}

/// Orders the joins of a plan, and of the subqueries in its expressions.
fn reorder(plan: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
    let plan = plan.map_subqueries(reorder)?;
    let joins = matches!(plan.data, LogicalPlan::Join(_));
    plan.transform_data(|plan| match joins {
        true => block::reorder(plan, &reorder),
        false => plan.map_children(reorder),
    })
}
