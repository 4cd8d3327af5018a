//! LATERAL: subqueries in FROM that use columns of the tables before them.
//!
//! What only filters by them is left to DataFusion, which joins on the filters, unless the columns that it adds to the subquery's for
//! that share a name with one of them. All others are computed for the whole
//! domain at once (`unnest.rs`), so that a LIMIT counts the rows for each of its elements, and joined on it.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, JoinConstraint, JoinType, NullEquality, Result as DfResult};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder};

use super::Names;
use super::simple::{equal_sides, filtered};
use super::unnest::{Unnest, Unnested, outer_columns};
use crate::error::SqlError;

/// A join without correlation of its right side to its left side.
///
/// # Errors
/// [`ErrorKind::NotSupported`](crate::ErrorKind::NotSupported) if an operator in the right side cannot carry the domain,
/// and for joins that keep rows of the right side without one of the left.
pub(super) fn rewrite(join: Join, names: &Names) -> DfResult<Transformed<LogicalPlan>> {
    let outer = outer_columns(&join.right, join.left.schema())?;
    if outer.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    if !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
        let error = SqlError::not_supported("LATERAL on the right side of this join");
        return Err(error.with_hint("use JOIN LATERAL or LEFT JOIN LATERAL").into());
    }
    if is_simple(&join.right) && !has_namesakes(&join.right) {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    let unnest = Unnest { around: &join.left, outer: outer.clone(), names };
    let Unnested { plan: right, domain } = unnest.unnest(&join.right)?;
    let columns: Vec<Expr> = join.schema.columns().into_iter().map(Expr::Column).collect();
    let keys = join.on.into_iter().map(|(one, other)| one.eq(other));
    let filter = conjunction(keys.chain(join.filter));
    let column = |column| Expr::Column(column);
    let on = outer.into_iter().map(column).zip(domain.into_iter().map(column)).collect();
    let joined = Join::try_new(
        join.left,
        Arc::new(right),
        on,
        filter,
        join.join_type,
        JoinConstraint::On,
        NullEquality::NullEqualsNull,
        false,
    )?;
    let plan = LogicalPlanBuilder::from(LogicalPlan::Join(joined)).project(columns)?.build()?;
    Ok(Transformed::yes(plan))
}

/// True of what DataFusion joins: rows that are filtered, or aggregates of those with the same keys.
fn is_simple(plan: &LogicalPlan) -> bool {
    let is_plain = |exprs: &[Expr]| !exprs.iter().any(Expr::contains_outer);
    match plan {
        LogicalPlan::Subquery(subquery) => is_simple(&subquery.subquery),
        LogicalPlan::SubqueryAlias(alias) => is_simple(&alias.input),
        LogicalPlan::Projection(projection) => {
            is_plain(&projection.expr) && is_simple(&projection.input)
        }
        LogicalPlan::Aggregate(aggregate) => {
            let conditions = filtered(&aggregate.input).map(|(_, conditions)| conditions);
            is_plain(&aggregate.group_expr)
                && is_plain(&aggregate.aggr_expr)
                && conditions.is_some_and(|conditions| {
                    conditions
                        .iter()
                        .all(|expr| !expr.contains_outer() || equal_sides(expr).is_some())
                })
        }
        other => filtered(other).is_some(),
    }
}

/// True if a column of a filter that uses others from outside has the name of another that filters so, or of another in the
/// subquery's rows.
fn has_namesakes(mut plan: &LogicalPlan) -> bool {
    let mut projected: Vec<(&str, Option<&Column>)> = Vec::new();
    loop {
        plan = match plan {
            LogicalPlan::Subquery(subquery) => &subquery.subquery,
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            LogicalPlan::Projection(projection) => {
                let names = projection.schema.fields().iter().map(|field| field.name().as_str());
                projected.extend(names.zip(projection.expr.iter().map(Expr::try_as_col)));
                &projection.input
            }
            LogicalPlan::Aggregate(aggregate) => {
                let fields = aggregate.schema.fields().iter().skip(aggregate.group_expr.len());
                projected.extend(fields.map(|field| (field.name().as_str(), None)));
                &aggregate.input
            }
            _ => break,
        };
    }
    let conditions = filtered(plan).map(|(_, conditions)| conditions).unwrap_or_default();
    let correlated = conditions.into_iter().filter(|condition| condition.contains_outer());
    let added: HashSet<&Column> =
        correlated.flat_map(|condition| condition.column_refs()).collect();
    let names: HashSet<&str> = added.iter().map(|column| column.name.as_str()).collect();
    // A cast of a column has the name of the column, its table's included.
    let flat: HashSet<String> = added.iter().map(|column| column.flat_name()).collect();
    names.len() < added.len()
        || projected.into_iter().any(|(name, column)| {
            (names.contains(name) || flat.contains(name))
                && column.is_none_or(|column| !added.contains(column))
        })
}
