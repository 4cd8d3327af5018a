//! Exchanges between partitions that hold too much.
//!
//! An exchange that is refused memory writes to disk. If two of its inputs do so at a time, whoever reads may wait for a
//! file to which nobody writes any more, while all others wait for the reader (DataFusion's issue 24883). So only one input
//! ever does: a plan that is made to need little has exchanges of one input, and in others an exchange fails before it is
//! refused, so that the statement is planned again.

use std::sync::Arc;

use datafusion::common::Result as DfResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, ReplaceChildrenOptions,
};

use super::consumer::FEED;
use super::passing::{Kind, Step, put_below};
use crate::economy::is_frugal;
use crate::plan_node::Plan;

/// The rule that makes exchanges so.
#[derive(Debug)]
pub(crate) struct Exchanges;

impl PhysicalOptimizerRule for Exchanges {
    fn optimize(&self, plan: Plan, options: &ConfigOptions) -> DfResult<Plan> {
        if is_frugal(options) {
            return with_one_input(plan);
        }
        put_below(plan, Kind { name: "ExchangeFeedExec", step }, has_several_inputs)
    }

    fn name(&self) -> &str {
        "exchanges"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// True for exchanges whose inputs write to the same files.
fn has_several_inputs(node: &dyn ExecutionPlan) -> bool {
    node.downcast_ref::<RepartitionExec>().is_some_and(|exchange| {
        !exchange.preserve_order() && exchange.input().output_partitioning().partition_count() > 1
    })
}

fn with_one_input(plan: Plan) -> DfResult<Plan> {
    let rewritten = plan.transform_up(|node| {
        if !has_several_inputs(node.as_ref()) {
            return Ok(Transformed::no(node));
        }
        let one =
            |input: &Plan| -> Plan { Arc::new(CoalescePartitionsExec::new(Arc::clone(input))) };
        let inputs = node.children().into_iter().map(one).collect();
        let mode = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        Ok(Transformed::yes(node.replace_children(inputs, mode)?))
    })?;
    Ok(rewritten.data)
}

/// Fails when exchanges hold nearly as much as they may.
fn step(partition: usize, context: &TaskContext) -> Step {
    let memory = MemoryConsumer::new(format!("{FEED}[{partition}]"));
    let memory = memory.register(context.memory_pool());
    Box::new(move |batch| {
        memory.try_grow(0)?;
        Ok(batch)
    })
}
