//! What DataFusion believes of the rows of a join, while it decides which sorts a plan needs.
//!
//! It takes what is the same in all rows of an input for the same in the join's. An outer join adds NULL: of
//! `u LEFT JOIN (SELECT k, 1 AS c FROM t) USING (k)` the column `c` is not 1 everywhere, and a sort or a window by it was left out. And it
//! takes rows for ordered by the order of the probe side and then that of the build side, which begins anew for each row of the probe side.
//! So nodes between the join and such inputs promise less. They stay where later rules would believe the same.
//!
//! On the other hand, the join forgets which columns of its right input are the same in all rows. A sort by them that was pushed below
//! is not needed there, but is missed above: where an order is missing in the end, it is made.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinType, Result as DfResult};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlanProperties, ReplaceChildrenOptions,
};

use crate::physical_rule::{PhysicalRule, Rule, put_around};
use crate::plan_node::Plan;
use crate::promises::{Kept, PromisesExec};

/// What DataFusion calls its rule that sorts and partitions as nodes need it.
pub(crate) const SORTING: &str = "EnsureRequirements";

/// What it calls the first of its rules that leave sorts as they are.
const SORTED: &str = "EnsureCooperative";

/// Rules of which the one that sorts believes no more of joins than is true, and after which no order is missing.
pub(crate) fn believed(mut rules: Vec<Rule>) -> Vec<Rule> {
    put_around(&mut rules, SORTING, doubted, needed);
    let end = rules.iter().position(|rule| rule.name() == SORTED).unwrap_or(rules.len());
    rules.insert(end, Arc::new(MISSING_ORDERS));
    rules
}

/// Joins with nodes between them and inputs that promise too much.
fn doubted(plan: Plan) -> DfResult<Plan> {
    let doubted = plan.transform_up(|node| {
        let Some(kept) = believable(&node) else { return Ok(Transformed::no(node)) };
        let children = node.children().into_iter().zip(kept).map(|(child, kept)| match kept {
            Some(kept) => Ok(Arc::new(PromisesExec::new(Arc::clone(child), kept)?) as Plan),
            None => Ok(Arc::clone(child)),
        });
        let children = children.collect::<DfResult<_>>()?;
        Ok(Transformed::yes(with_children(node, children)?))
    })?;
    Ok(doubted.data)
}

/// Those of the nodes that are still needed.
fn needed(plan: Plan) -> DfResult<Plan> {
    let needed = plan.transform_up(|node| {
        Ok(match node.downcast_ref::<PromisesExec>().filter(|node| is_harmless(node)) {
            Some(promises) => Transformed::yes(Arc::clone(promises.input())),
            None => Transformed::no(node),
        })
    })?;
    Ok(needed.data)
}

/// How much can be believed of each input of a join, if not everything can.
fn believable(node: &Plan) -> Option<[Option<Kept>; 2]> {
    let (join_type, is_hash_join) = if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        (*join.join_type(), true)
    } else if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        (*join.join_type(), false)
    } else {
        (node.downcast_ref::<SortMergeJoinExec>()?.join_type(), false)
    };
    let nulls_added = match join_type {
        JoinType::Left => [false, true],
        JoinType::Right => [true, false],
        JoinType::Full => [true, true],
        _ => [false, false],
    };
    let children = node.children();
    let mut kept = [0, 1].map(|side| {
        let is_doubtful =
            nulls_added[side] && says_more_than_nulls(children[side].equivalence_properties());
        is_doubtful.then_some(Kept::Nothing)
    });
    if is_hash_join && matches!(join_type, JoinType::Inner | JoinType::Right) {
        kept[0].get_or_insert(Kept::Equalities);
    }
    kept.iter().any(Option::is_some).then_some(kept)
}

/// True if something is known of rows that is not true of one of nothing but NULL.
fn says_more_than_nulls(properties: &EquivalenceProperties) -> bool {
    let mut classes = properties.eq_group().iter();
    classes.any(|class| {
        class.iter().any(|expr| {
            expr.downcast_ref::<Column>().is_none() || properties.is_expr_constant(expr).is_some()
        })
    })
}

/// True if a node hides nothing that would be believed wrongly.
fn is_harmless(node: &PromisesExec) -> bool {
    node.kept() == Kept::Equalities && node.input().output_ordering().is_none()
}

/// Sorts the inputs of nodes whose order is not known to be the one that the node needs.
const MISSING_ORDERS: PhysicalRule = PhysicalRule {
    name: "missing_orders",
    rewrite: |plan| {
        let rewritten = plan.transform_up(|node| {
            let needed = node.required_input_ordering();
            let (mut children, mut is_sorted) = (Vec::new(), true);
            for (child, needed) in node.children().into_iter().zip(needed) {
                let mut child = Arc::clone(child);
                if let Some(needed) = needed.map(|needed| needed.into_single()) {
                    let properties = child.equivalence_properties();
                    if !properties.ordering_satisfy_requirement(needed.clone())? {
                        let is_divided = child.output_partitioning().partition_count() > 1;
                        let sort = SortExec::new(LexOrdering::from(needed), child)
                            .with_preserve_partitioning(is_divided);
                        (child, is_sorted) = (Arc::new(sort), false);
                    }
                }
                children.push(child);
            }
            Ok(match is_sorted {
                true => Transformed::no(node),
                false => Transformed::yes(with_children(node, children)?),
            })
        })?;
        Ok(rewritten.data)
    },
};

fn with_children(node: Plan, children: Vec<Plan>) -> DfResult<Plan> {
    let mode = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    node.replace_children(children, mode)
}
