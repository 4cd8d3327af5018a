//! Projections stay above merge joins that have a condition besides equalities: pushed into the join's inputs by DataFusion, they would leave the
//! condition with the numbers of the columns as they were, so that it looked at others, or at none.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result as DfResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::joins::SortMergeJoinExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};

use crate::plan_node::{Plan, plan_node};

/// What DataFusion calls its rule.
const PUSHING: &str = "ProjectionPushdown";

type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// Rules of which those that push projections down leave merge joins with conditions as they are.
pub(crate) fn kept_whole(mut rules: Vec<Rule>) -> Vec<Rule> {
    for rule in rules.iter_mut().filter(|rule| rule.name() == PUSHING) {
        *rule = Arc::new(AroundMergeJoins { inner: Arc::clone(rule) });
    }
    rules
}

#[derive(Debug)]
struct AroundMergeJoins {
    inner: Rule,
}

impl PhysicalOptimizerRule for AroundMergeJoins {
    fn optimize(&self, plan: Plan, options: &ConfigOptions) -> DfResult<Plan> {
        let wrapped = plan.transform_up(|node| {
            let join = node.downcast_ref::<SortMergeJoinExec>();
            Ok(match join.is_some_and(|join| join.filter().is_some()) {
                true => Transformed::yes(Arc::new(Whole { join: node })),
                false => Transformed::no(node),
            })
        })?;
        let optimized = self.inner.optimize(wrapped.data, options)?;
        let unwrapped = optimized.transform_up(|node| {
            Ok(match node.downcast_ref::<Whole>() {
                Some(whole) => Transformed::yes(Arc::clone(&whole.join)),
                None => Transformed::no(node),
            })
        })?;
        Ok(unwrapped.data)
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn schema_check(&self) -> bool {
        self.inner.schema_check()
    }
}

/// Stands above a join for as long as a rule is applied, which finds no way into it.
#[derive(Debug)]
struct Whole {
    join: Plan,
}

impl Whole {
    fn with_input(&self, join: Plan) -> Whole {
        Whole { join }
    }
}

impl DisplayAs for Whole {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ExecutionPlan for Whole {
    fn name(&self) -> &'static str {
        "WholeMergeJoin"
    }

    plan_node!(wraps join);

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DfResult<SendableRecordBatchStream> {
        self.join.execute(partition, context)
    }
}
