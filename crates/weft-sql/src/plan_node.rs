//! What Weft's nodes of physical plans have in common: they show DataFusion no expressions, and have as many inputs as
//! they were made with.

use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result as DfResult, internal_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;

use crate::once::OnceExec;

/// A plan, or a part of one.
pub(crate) type Plan = Arc<dyn ExecutionPlan>;

/// An expression of a plan.
pub(crate) type Expr = Arc<dyn PhysicalExpr>;

/// What is done to each expression of a node.
pub(crate) type Visit<'a> = dyn FnMut(&Arc<dyn PhysicalExpr>) -> DfResult<TreeNodeRecursion> + 'a;

/// The part of `impl ExecutionPlan` that nodes share: all, those without inputs (`leaf`), or those that pass on the
/// rows of the input in a field (`wraps field`), which `fn with_input(&self, input: Plan) -> Self` exchanges.
macro_rules! plan_node {
    () => {
        fn apply_expressions(
            &self,
            _: &mut $crate::plan_node::Visit<'_>,
        ) -> datafusion::common::Result<datafusion::common::tree_node::TreeNodeRecursion> {
            Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
        }

        fn with_new_children(
            self: std::sync::Arc<Self>,
            children: Vec<$crate::plan_node::Plan>,
        ) -> datafusion::common::Result<$crate::plan_node::Plan> {
            let mode = datafusion::physical_plan::ChildrenPropertiesMode::Recompute;
            let options = datafusion::physical_plan::ReplaceChildrenOptions::new(mode);
            self.replace_children(children, options)
        }
    };
    (leaf) => {
        fn children(&self) -> Vec<&$crate::plan_node::Plan> {
            Vec::new()
        }

        fn replace_children(
            self: std::sync::Arc<Self>,
            children: Vec<$crate::plan_node::Plan>,
            _: datafusion::physical_plan::ReplaceChildrenOptions,
        ) -> datafusion::common::Result<$crate::plan_node::Plan> {
            let [] = $crate::plan_node::inputs(self.name(), children)?;
            Ok(self)
        }

        $crate::plan_node::plan_node!();
    };
    (wraps $input:ident) => {
        fn properties(&self) -> &std::sync::Arc<datafusion::physical_plan::PlanProperties> {
            self.$input.properties()
        }

        fn maintains_input_order(&self) -> Vec<bool> {
            vec![true]
        }

        fn children(&self) -> Vec<&$crate::plan_node::Plan> {
            vec![&self.$input]
        }

        fn replace_children(
            self: std::sync::Arc<Self>,
            children: Vec<$crate::plan_node::Plan>,
            _: datafusion::physical_plan::ReplaceChildrenOptions,
        ) -> datafusion::common::Result<$crate::plan_node::Plan> {
            let [input] = $crate::plan_node::inputs(self.name(), children)?;
            Ok(std::sync::Arc::new(self.with_input(input)))
        }

        $crate::plan_node::plan_node!();
    };
}

pub(crate) use plan_node;

/// What a plan's rows come from: its inputs, and what is planned apart.
pub(crate) fn sources(plan: &Plan) -> Vec<&Plan> {
    match plan.downcast_ref::<OnceExec>() {
        Some(once) => once.plan().into_iter().collect(),
        None => plan.children(),
    }
}

/// The new inputs of a node.
///
/// # Errors
/// If the node has not so many.
pub(crate) fn inputs<const N: usize>(name: &str, children: Vec<Plan>) -> DfResult<[Plan; N]> {
    match <[Plan; N]>::try_from(children) {
        Ok(inputs) => Ok(inputs),
        Err(children) => internal_err!("{name} has {N} inputs, not {}", children.len()),
    }
}
