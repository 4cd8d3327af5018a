//! Subqueries wherever an expression may stand: EXISTS and IN become joins that mark or pick rows,
//! those that stand for a value outer joins. DataFusion does so for some forms and places only.
//!
//! IN is true, false or unknown as SQL has it: unknown if it is not true and the value or one of the
//! query's is NULL. What DataFusion does well is left to it: values without correlation, and NOT IN
//! (query) as a condition of its own.

mod attach;
mod lateral;
mod no_value;
mod outer_aggregates;
mod simple;
mod single_value;
mod unnest;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result as DfResult};
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Expr, Filter, Join, LogicalPlan, LogicalPlanBuilder, Projection, Sort,
};
use datafusion::optimizer::AnalyzerRule;

use self::attach::Attach;
pub(crate) use self::no_value::NoValue;
pub(crate) use self::outer_aggregates::OuterAggregates;
use self::unnest::{has_outer, outer_columns};
use crate::error::SqlError;

/// Puts joins in place of subqueries. To be applied after types were coerced.
#[derive(Debug, Default)]
pub(crate) struct Subqueries {
    names: Names,
}

/// Names that no table, column or other name is like.
#[derive(Debug, Default)]
struct Names(AtomicU64);

impl Names {
    fn next(&self, what: &str) -> String {
        format!("__{what}_{}", self.0.fetch_add(1, Ordering::Relaxed))
    }
}

impl AnalyzerRule for Subqueries {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_nodes(plan, |plan| self.rewrite(plan))
    }

    fn name(&self) -> &str {
        "subqueries"
    }
}

/// A plan with its nodes, and those of its subqueries, changed from the leaves up.
fn rewrite_nodes(
    plan: LogicalPlan,
    rewrite: impl FnMut(LogicalPlan) -> DfResult<Transformed<LogicalPlan>>,
) -> DfResult<LogicalPlan> {
    let rewritten = plan.transform_up_with_subqueries(rewrite)?;
    match rewritten.transformed {
        true => rewritten.data.recompute_schema(),
        false => Ok(rewritten.data),
    }
}

impl Subqueries {
    fn rewrite(&self, plan: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Filter(filter) => self.rewrite_filter(filter),
            LogicalPlan::Join(join) => self.rewrite_join(join),
            LogicalPlan::Projection(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Sort(_) => self.rewrite_expressions(plan),
            other => Ok(Transformed::no(other)),
        }
    }

    fn rewrite_filter(&self, filter: Filter) -> DfResult<Transformed<LogicalPlan>> {
        if !holds_subquery(&filter.predicate) {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        }
        let columns: Vec<Expr> =
            filter.input.schema().columns().into_iter().map(Expr::Column).collect();
        let mut attach = Attach::new(Arc::unwrap_or_clone(filter.input), &self.names);
        let mut conditions = Vec::new();
        for condition in split_conjunction_owned(filter.predicate) {
            conditions.extend(attach.conjunct(condition)?);
        }
        let builder = LogicalPlanBuilder::from(attach.plan);
        let builder = match conjunction(conditions) {
            Some(condition) => builder.filter(condition)?,
            None => builder,
        };
        Ok(Transformed::yes(builder.project(columns)?.build()?))
    }

    /// Subqueries in the condition of an inner join are tested after it.
    fn rewrite_join(&self, join: Join) -> DfResult<Transformed<LogicalPlan>> {
        let mut join = match lateral::rewrite(join, &self.names)? {
            Transformed { data: LogicalPlan::Join(join), .. } => join,
            rewritten => return Ok(rewritten),
        };
        let Some(filter) = join.filter.take() else {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        };
        let (with, without): (Vec<Expr>, Vec<Expr>) =
            split_conjunction_owned(filter).into_iter().partition(holds_subquery);
        join.filter = conjunction(without);
        let Some(predicate) = conjunction(with) else {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        };
        if join.join_type != JoinType::Inner {
            let error = SqlError::not_supported("a subquery in the ON condition of this join");
            return Err(error.with_hint("put it into WHERE, or into a subquery in FROM").into());
        }
        let filter = Filter::try_new(predicate, Arc::new(LogicalPlan::Join(join)))?;
        Ok(Transformed::yes(self.rewrite_filter(filter)?.data))
    }

    fn rewrite_expressions(&self, plan: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
        let [input] = plan.inputs()[..] else { return Ok(Transformed::no(plan)) };
        if !plan.expressions().iter().any(holds_subquery) {
            return Ok(Transformed::no(plan));
        }
        let keeps_input = matches!(plan, LogicalPlan::Window(_) | LogicalPlan::Sort(_));
        let columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        let input = match &plan {
            LogicalPlan::Sort(sort) => with_sorted_columns(sort)?,
            _ => input.clone(),
        };
        let mut attach = Attach::new(input, &self.names);
        let names = NamePreserver::new(&plan);
        let rewritten = plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let rewritten = attach.expression(expr)?;
            Ok(rewritten.update_data(|expr| name.restore(expr)))
        })?;
        let rewritten = with_input(rewritten.data, attach.plan)?;
        let rewritten = match keeps_input {
            true => LogicalPlanBuilder::from(rewritten).project(columns)?.build()?,
            false => rewritten,
        };
        Ok(Transformed::yes(rewritten))
    }
}

/// What is sorted, with the columns that only subqueries in ORDER BY use.
fn with_sorted_columns(sort: &Sort) -> DfResult<LogicalPlan> {
    let LogicalPlan::Projection(projection) = sort.input.as_ref() else {
        return Ok(sort.input.as_ref().clone());
    };
    let mut exprs = projection.expr.clone();
    for key in &sort.expr {
        key.expr.apply(|expr| {
            let (Expr::Exists(Exists { subquery, .. })
            | Expr::InSubquery(InSubquery { subquery, .. })
            | Expr::ScalarSubquery(subquery)) = expr
            else {
                return Ok(TreeNodeRecursion::Continue);
            };
            for column in outer_columns(&subquery.subquery, projection.input.schema())? {
                let column = Expr::Column(column);
                if !exprs.contains(&column) {
                    exprs.push(column);
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::clone(&projection.input))?))
}

/// A node over another input.
fn with_input(plan: LogicalPlan, input: LogicalPlan) -> DfResult<LogicalPlan> {
    let mut input = Some(input);
    let plan = plan.map_children(|old| Ok(Transformed::yes(input.take().unwrap_or(old))))?;
    plan.data.recompute_schema()
}

/// True of an expression with a subquery that is not left to DataFusion.
fn holds_subquery(expr: &Expr) -> bool {
    let found = expr.exists(|expr| {
        Ok(match expr {
            Expr::Exists(_) | Expr::InSubquery(_) => true,
            Expr::ScalarSubquery(subquery) => has_outer(&subquery.subquery),
            _ => false,
        })
    });
    found.unwrap_or(false)
}

/// True of an expression with a subquery of any kind.
fn is_subquery_in(expr: &Expr) -> bool {
    let found = expr.exists(|expr| {
        Ok(matches!(expr, Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_)))
    });
    found.unwrap_or(false)
}
