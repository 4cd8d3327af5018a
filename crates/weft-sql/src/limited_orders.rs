//! Sorts stay above LIMIT and OFFSET.
//!
//! DataFusion has a sort above a limit go below it, where it sees other rows, all of them, and gives as many as the
//! limit passes on: with rows to skip, too few; of an endless recursion, none. While it places sorts, limits are nodes
//! that it finds no way through. They hide the order of their rows as well, as the number of rows wanted above would be
//! handed down through them with that order; a sort that turns out to be there already is left out afterwards.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result as DfResult;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::OrderingRequirements;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties, ReplaceChildrenOptions,
};

use crate::join_promises::SORTING;
use crate::physical_rule::{Rule, put_around};
use crate::plan_node::{Plan, plan_node};

/// Rules of which the one that places sorts leaves limits where they are.
pub(crate) fn kept_below_sorts(mut rules: Vec<Rule>) -> Vec<Rule> {
    put_around(&mut rules, SORTING, hidden, shown);
    rules
}

/// Limits as nodes that sorts stay above.
fn hidden(plan: Plan) -> DfResult<Plan> {
    let hidden = plan.transform_up(|node| {
        if !(node.is::<GlobalLimitExec>() || node.is::<LocalLimitExec>()) {
            return Ok(Transformed::no(node));
        }
        let order = node.children().first().and_then(|input| input.output_ordering().cloned());
        let order = order.map(OrderingRequirements::from);
        Ok(Transformed::yes(Arc::new(HiddenLimit::new(node, order)) as Plan))
    })?;
    Ok(hidden.data)
}

/// The limits themselves, without sorts above them that find their rows in order.
fn shown(plan: Plan) -> DfResult<Plan> {
    let shown = plan.transform_up(|node| {
        if let Some(hidden) = node.downcast_ref::<HiddenLimit>() {
            return Ok(Transformed::yes(Arc::clone(&hidden.limit)));
        }
        Ok(match without_need(&node)? {
            Some(sorted) => Transformed::yes(sorted),
            None => Transformed::no(node),
        })
    })?;
    Ok(shown.data)
}

/// The input of a sort that has its order already, cut to the rows that the sort gives.
fn without_need(node: &Plan) -> DfResult<Option<Plan>> {
    let Some(sort) = node.downcast_ref::<SortExec>() else { return Ok(None) };
    let input = sort.input();
    let is_whole =
        sort.preserve_partitioning() || input.output_partitioning().partition_count() == 1;
    let properties = input.equivalence_properties();
    if !is_whole || !properties.ordering_satisfy(sort.expr().clone())? {
        return Ok(None);
    }
    Ok(Some(match (sort.fetch(), input.output_partitioning().partition_count()) {
        (None, _) => Arc::clone(input),
        (Some(fetch), 1) => Arc::new(GlobalLimitExec::new(Arc::clone(input), 0, Some(fetch))),
        (Some(fetch), _) => Arc::new(LocalLimitExec::new(Arc::clone(input), fetch)),
    }))
}

/// A limit, of which the rule that places sorts knows no more than its input and how many partitions that may have.
#[derive(Debug)]
struct HiddenLimit {
    limit: Plan,
    /// The order that decides which rows are passed on, if there is one.
    order: Option<OrderingRequirements>,
    properties: Arc<PlanProperties>,
}

impl HiddenLimit {
    fn new(limit: Plan, order: Option<OrderingRequirements>) -> HiddenLimit {
        let mut unordered = limit.equivalence_properties().clone();
        unordered.clear_orderings();
        let properties = PlanProperties::clone(limit.properties()).with_eq_properties(unordered);
        HiddenLimit { limit, order, properties: Arc::new(properties) }
    }
}

impl DisplayAs for HiddenLimit {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ExecutionPlan for HiddenLimit {
    fn name(&self) -> &'static str {
        "HiddenLimit"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.limit.input_distribution_requirements()
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![self.order.clone()]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        // Sorts would go below it.
        vec![false]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.limit.benefits_from_input_partitioning()
    }

    fn children(&self) -> Vec<&Plan> {
        self.limit.children()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Plan>,
        options: ReplaceChildrenOptions,
    ) -> DfResult<Plan> {
        let limit = Arc::clone(&self.limit).replace_children(children, options)?;
        Ok(Arc::new(HiddenLimit::new(limit, self.order.clone())))
    }

    plan_node!();

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DfResult<SendableRecordBatchStream> {
        self.limit.execute(partition, context)
    }
}
