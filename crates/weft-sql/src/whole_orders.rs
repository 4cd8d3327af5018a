//! The first rows of an order, from several partitions: DataFusion sorts each partition without the keys that are the same all over it,
//! but has all partitions drop rows that come after the first ones of any. Keys that differ between partitions, such as the
//! constants of a UNION, have to count there. And with no more than a projection between a merge and such sorts the merge goes below
//! it: who sees both at once keeps the first rows of all partitions, not of each.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;

use crate::physical_rule::PhysicalRule;
use crate::plan_node::Plan;

/// Has sorts that keep the first rows of each partition sort by all keys of the merge above them.
pub(crate) const WHOLE_ORDERS: PhysicalRule = PhysicalRule {
    name: "whole_orders",
    rewrite: |plan| {
        let rewritten = plan.transform_up(|node| {
            Ok(match whole(&node).or_else(|| below_projection(&node)) {
                Some(whole) => Transformed::yes(whole),
                None => Transformed::no(node),
            })
        })?;
        Ok(rewritten.data)
    },
};

fn whole(node: &Plan) -> Option<Plan> {
    let merge = node.downcast_ref::<SortPreservingMergeExec>()?;
    let sort = merge.input().downcast_ref::<SortExec>()?;
    if sort.fetch().is_none() || sort.expr() == merge.expr() {
        return None;
    }
    let sort = SortExec::new(merge.expr().clone(), Arc::clone(sort.input()))
        .with_preserve_partitioning(sort.preserve_partitioning())
        .with_fetch(sort.fetch());
    let whole = SortPreservingMergeExec::new(merge.expr().clone(), Arc::new(sort));
    Some(Arc::new(whole.with_fetch(merge.fetch())))
}

/// A merge of projected first rows, by the very keys of the sorts below the projection.
fn below_projection(node: &Plan) -> Option<Plan> {
    let merge = node.downcast_ref::<SortPreservingMergeExec>()?;
    let projection = merge.input().downcast_ref::<ProjectionExec>()?;
    let sort = projection.input().downcast_ref::<SortExec>()?;
    let mut keys = merge.expr().iter().zip(sort.expr());
    let is_same = merge.expr().len() == sort.expr().len()
        && keys.all(|(key, below)| {
            let column = key.expr.downcast_ref::<Column>();
            let projected = column.and_then(|column| projection.expr().get(column.index()));
            key.options == below.options
                && projected.is_some_and(|projected| projected.expr.eq(&below.expr))
        });
    if sort.fetch().is_none() || !is_same {
        return None;
    }
    let first = SortPreservingMergeExec::new(sort.expr().clone(), Arc::clone(projection.input()))
        .with_fetch(merge.fetch());
    let projected = ProjectionExec::try_new(projection.expr().to_vec(), Arc::new(first));
    Some(Arc::new(projected.ok()?))
}
