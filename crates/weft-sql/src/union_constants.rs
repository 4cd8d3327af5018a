//! A UNION of constants: `SELECT 'a', n FROM t UNION ALL SELECT 'b', n FROM u`.
//!
//! DataFusion knows that its first column is the same all over each partition, and forgets that it is not the same in all: merged
//! by both columns, rows are taken for sorted by the second one alone, and a sort by that, first rows and all, is left out. So a
//! node above such a UNION promises no order, and only what is the same everywhere. Where both parts have a constant whose value is not known, it may be
//! two.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_plan::ExecutionPlanProperties;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};

use crate::physical_rule::PhysicalRule;
use crate::plan_node::Plan;
use crate::promises::{Kept, PromisesExec, is_known};

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
            Ok(Transformed::yes(Arc::new(PromisesExec::new(node, Kept::Known)?) as Plan))
        })?;
        Ok(rewritten.data)
    },
};
