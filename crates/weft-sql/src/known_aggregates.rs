//! Aggregates that are known without reading anything, as `count(*)` of a whole table, become constants.
//!
//! DataFusion's own rule looks for the half of an aggregate that reads rows through any nodes below the half that ends
//! it, and so finds that of another query: `SELECT max(n) FILTER (WHERE n > 9) FROM (SELECT count(*) AS n FROM t)`
//! became the `count(*)`. Here one half has to be right below the other.

use std::sync::Arc;

use datafusion::common::Result as DfResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::expressions::lit;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::udaf::StatisticsArgs as AggregateStatisticsArgs;

/// What DataFusion calls its rule.
const REPLACED: &str = "aggregate_statistics";

type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// Rules with this one in place of DataFusion's.
pub(crate) fn replaced(mut rules: Vec<Rule>) -> Vec<Rule> {
    for rule in rules.iter_mut().filter(|rule| rule.name() == REPLACED) {
        *rule = Arc::new(KnownAggregates);
    }
    rules
}

/// Puts constants in place of what statistics tell. To be applied before anything comes between the halves of an
/// aggregate.
#[derive(Debug)]
struct KnownAggregates;

impl PhysicalOptimizerRule for KnownAggregates {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let known = |plan: Arc<dyn ExecutionPlan>| match constants(plan.as_ref())? {
            Some(constants) => Ok(Transformed::yes(constants)),
            None => Ok(Transformed::no(plan)),
        };
        plan.transform_down(known).data()
    }

    fn name(&self) -> &str {
        "known_aggregates"
    }

    /// Constants are never NULL, or always.
    fn schema_check(&self) -> bool {
        false
    }
}

/// The one row of an aggregate without groups, if statistics tell all of it.
fn constants(plan: &dyn ExecutionPlan) -> DfResult<Option<Arc<dyn ExecutionPlan>>> {
    let Some(aggregate) = plan.downcast_ref::<AggregateExec>() else { return Ok(None) };
    let reading = match aggregate.mode() {
        AggregateMode::Single | AggregateMode::SinglePartitioned => aggregate,
        AggregateMode::Final => match aggregate.input().downcast_ref::<AggregateExec>() {
            Some(half) if *half.mode() == AggregateMode::Partial => half,
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    let is_total = aggregate.group_expr().is_empty() && reading.group_expr().is_empty();
    if !is_total || reading.filter_expr().iter().any(Option::is_some) {
        return Ok(None);
    }
    let statistics =
        StatisticsContext::new().compute(reading.input().as_ref(), &StatisticsArgs::new())?;
    let mut constants = Vec::with_capacity(reading.aggr_expr().len());
    for call in reading.aggr_expr() {
        let exprs = call.expressions();
        let field = call.field();
        let known = call.fun().value_from_stats(&AggregateStatisticsArgs {
            statistics: &statistics,
            return_type: field.data_type(),
            is_distinct: call.is_distinct(),
            exprs: &exprs,
        });
        let Some(value) = known else { return Ok(None) };
        constants.push(ProjectionExpr { expr: lit(value), alias: call.name().to_owned() });
    }
    let row = Arc::new(PlaceholderRowExec::new(plan.schema()));
    Ok(Some(Arc::new(ProjectionExec::try_new(constants, row)?)))
}
