//! Conditions that stay where they mean what was written: above the aggregates that have a row even if there
//! is nothing to aggregate, and beside the keys of joins for which NULL equals NULL.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{NullEquality, Result as DfResult};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Aggregate, Expr, Filter, GroupingSet, Join, JoinType, LogicalPlan, Operator, binary_expr,
};
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{Optimizer, OptimizerConfig, OptimizerRule};

use crate::known_lists;

/// DataFusion's rules for logical plans, of which four are applied with care.
pub(crate) fn optimizer_rules() -> Vec<Arc<Rule>> {
    let careful: [(Arc<Rule>, Rewrite); 4] = [
        (Arc::new(SimplifyExpressions::new()), simplify),
        (Arc::new(PushDownFilter::new()), push_down),
        (Arc::new(ExtractEquijoinPredicate::new()), extract_keys),
        (Arc::new(EliminateCrossJoin::new()), eliminate_cross_join),
    ];
    let mut rules = Optimizer::new().rules;
    for (inner, rewrite) in careful {
        for rule in rules.iter_mut().filter(|rule| rule.name() == inner.name()) {
            *rule = Arc::new(Careful { inner: Arc::clone(&inner), rewrite });
        }
    }
    rules
}

/// A rule of DataFusion's.
type Rule = dyn OptimizerRule + Send + Sync;

/// Applies a rule to a plan where it may be.
type Rewrite = fn(&Rule, LogicalPlan, &dyn OptimizerConfig) -> DfResult<Transformed<LogicalPlan>>;

/// A rule of DataFusion's, applied with care.
#[derive(Debug)]
struct Careful {
    inner: Arc<Rule>,
    rewrite: Rewrite,
}

impl OptimizerRule for Careful {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.inner.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> DfResult<Transformed<LogicalPlan>> {
        (self.rewrite)(self.inner.as_ref(), plan, config)
    }
}

/// Simplifies expressions as DataFusion does, with the lists of a value kept apart.
fn simplify(
    rule: &Rule,
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> DfResult<Transformed<LogicalPlan>> {
    let simplified = rule.rewrite(known_lists::kept_apart(plan)?, config)?;
    simplified.map_data(known_lists::put_together)
}

/// Pushes conditions down as DataFusion does, but those without columns not below an aggregate that has a row even if
/// there is nothing to aggregate: `HAVING false` leaves no row of `SELECT count(*) FROM t`, and `WHERE false` leaves
/// one.
fn push_down(
    rule: &Rule,
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> DfResult<Transformed<LogicalPlan>> {
    let Some((conditions, below)) = over_aggregate(&plan) else {
        return rule.rewrite(plan, config);
    };
    let (others, kept): (Vec<Expr>, Vec<Expr>) =
        conditions.into_iter().cloned().partition(Expr::any_column_refs);
    let Some(kept) = conjunction(kept) else { return rule.rewrite(plan, config) };
    let Some(others) = conjunction(others) else { return Ok(Transformed::no(plan)) };
    let filter = Filter::try_new(others, Arc::clone(below))?;
    let pushed = rule.rewrite(LogicalPlan::Filter(filter), config)?;
    pushed.map_data(|plan| Ok(LogicalPlan::Filter(Filter::try_new(kept, Arc::new(plan))?)))
}

/// The conditions over an aggregate that has a row even of nothing, and the aggregate.
fn over_aggregate(plan: &LogicalPlan) -> Option<(Vec<&Expr>, &Arc<LogicalPlan>)> {
    let LogicalPlan::Filter(filter) = plan else { return None };
    let (mut conditions, mut below) = (split_conjunction(&filter.predicate), &filter.input);
    while let LogicalPlan::Filter(filter) = below.as_ref() {
        conditions.extend(split_conjunction(&filter.predicate));
        below = &filter.input;
    }
    match below.as_ref() {
        LogicalPlan::Aggregate(aggregate) if has_row_of_nothing(aggregate) => {
            Some((conditions, below))
        }
        _ => None,
    }
}

fn has_row_of_nothing(aggregate: &Aggregate) -> bool {
    match aggregate.group_expr.as_slice() {
        [] => true,
        [Expr::GroupingSet(GroupingSet::GroupingSets(sets))] => sets.iter().any(Vec::is_empty),
        [Expr::GroupingSet(_)] => true,
        _ => false,
    }
}

/// Makes keys of the equalities among a join's conditions as DataFusion does, but not beside keys for which
/// NULL equals NULL: the two kinds of keys would be taken for one.
fn extract_keys(
    rule: &Rule,
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> DfResult<Transformed<LogicalPlan>> {
    match &plan {
        LogicalPlan::Join(join) if equals_nulls(join) => Ok(Transformed::no(plan)),
        _ => rule.rewrite(plan, config),
    }
}

/// Makes keys of the equalities above inner joins as DataFusion does, with the keys for which NULL equals NULL
/// as conditions meanwhile: it takes all keys of the joins that it merges for keys of one kind.
fn eliminate_cross_join(
    rule: &Rule,
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> DfResult<Transformed<LogicalPlan>> {
    let plan = plan.transform_down_with_subqueries(keys_to_conditions)?;
    let separated = plan.transformed;
    let plan = rule.rewrite(plan.data, config)?;
    if !separated {
        return Ok(plan);
    }
    let extract = ExtractEquijoinPredicate::new();
    let plan =
        plan.data.transform_up_with_subqueries(|plan| extract_keys(&extract, plan, config))?;
    Ok(Transformed::yes(plan.data))
}

/// An inner join on keys for which NULL equals NULL, with `IS NOT DISTINCT FROM` for them.
fn keys_to_conditions(plan: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Join(mut join) if join.join_type == JoinType::Inner && equals_nulls(&join) => {
            let keys = std::mem::take(&mut join.on).into_iter();
            let keys =
                keys.map(|(left, right)| binary_expr(left, Operator::IsNotDistinctFrom, right));
            join.filter = conjunction(keys.chain(join.filter.take()));
            join.null_equality = NullEquality::NullEqualsNothing;
            Ok(Transformed::yes(LogicalPlan::Join(join)))
        }
        _ => Ok(Transformed::no(plan)),
    }
}

fn equals_nulls(join: &Join) -> bool {
    join.null_equality == NullEquality::NullEqualsNull && !join.on.is_empty()
}
