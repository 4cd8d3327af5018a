//! The first rows of an order, from several partitions: DataFusion sorts each partition without the keys that are the same all over it,
//! but has all partitions drop rows that come after the first ones of any. Keys that differ between partitions, such as the
//! constants of a UNION, have to count there.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;

use crate::physical_rule::PhysicalRule;
use crate::plan_node::Plan;

/// Has sorts that keep the first rows of each partition sort by all keys of the merge above them.
pub(crate) const WHOLE_ORDERS: PhysicalRule = PhysicalRule {
    name: "whole_orders",
    rewrite: |plan| {
        let rewritten = plan.transform_up(|node| {
            Ok(match whole(&node) {
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
