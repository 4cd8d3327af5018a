//! Projections stay above merge joins that have a condition besides equalities: pushed into the join's inputs by DataFusion, they would leave the
//! condition with the numbers of the columns as they were, so that it looked at others, or at none. They stay above filters that pass on
//! some of their columns, too: DataFusion takes the columns that come out for those that go in.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result as DfResult;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::SortMergeJoinExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};

use crate::physical_rule::{Rule, put_around};
use crate::plan_node::{Plan, plan_node};

/// What DataFusion calls its rule.
const PUSHING: &str = "ProjectionPushdown";

/// Rules of which those that push projections down leave such nodes as they are.
pub(crate) fn kept_whole(mut rules: Vec<Rule>) -> Vec<Rule> {
    put_around(&mut rules, PUSHING, wrapped, unwrapped);
    rules
}

fn wrapped(plan: Plan) -> DfResult<Plan> {
    let wrapped = plan.transform_up(|node| {
        Ok(match mistakes_columns(&node) {
            true => Transformed::yes(Arc::new(Whole { node })),
            false => Transformed::no(node),
        })
    })?;
    Ok(wrapped.data)
}

fn unwrapped(plan: Plan) -> DfResult<Plan> {
    let unwrapped = plan.transform_up(|node| {
        Ok(match node.downcast_ref::<Whole>() {
            Some(whole) => Transformed::yes(Arc::clone(&whole.node)),
            None => Transformed::no(node),
        })
    })?;
    Ok(unwrapped.data)
}

/// True of a node that looks at other columns once a projection was pushed into it.
fn mistakes_columns(node: &Plan) -> bool {
    let join = node.downcast_ref::<SortMergeJoinExec>();
    let filter = node.downcast_ref::<FilterExec>();
    join.is_some_and(|join| join.filter().is_some())
        || filter.is_some_and(|filter| filter.projection().is_some())
}

/// Stands above a node for as long as a rule is applied, which finds no way into it.
#[derive(Debug)]
struct Whole {
    node: Plan,
}

impl Whole {
    fn with_input(&self, node: Plan) -> Whole {
        Whole { node }
    }
}

impl DisplayAs for Whole {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ExecutionPlan for Whole {
    fn name(&self) -> &'static str {
        "WholeNode"
    }

    plan_node!(wraps node);

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DfResult<SendableRecordBatchStream> {
        self.node.execute(partition, context)
    }
}
