//! The forms of correlated subqueries that most people write: a join on their own condition computes
//! them, and nothing of the query around is computed twice.

use std::collections::BTreeSet;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result as DfResult, ScalarValue};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Distinct, Expr, LogicalPlan, LogicalPlanBuilder, Operator, lit, when,
};

use super::is_subquery_in;
use super::unnest::has_outer;

/// The rows of a subquery to join with, and on what.
pub(super) struct Matching {
    pub(super) plan: LogicalPlan,
    pub(super) condition: Expr,
}

/// Values by keys to join with, on what, and what stands for the value of a row.
pub(super) struct ValueByKey {
    pub(super) plan: LogicalPlan,
    pub(super) condition: Expr,
    pub(super) value: Expr,
}

impl Matching {
    /// For EXISTS: nothing unless all correlation is in filters over the rest.
    pub(super) fn of_rows(
        query: &LogicalPlan,
        around: &DFSchema,
        alias: &str,
    ) -> DfResult<Option<Matching>> {
        let Some((rest, conditions)) = filtered(below_columns(query)) else { return Ok(None) };
        matching(rest, conditions, around, None, alias)
    }

    /// For IN: as [`of_rows`](Self::of_rows), where the value is compared with the first column.
    pub(super) fn of_value(
        query: &LogicalPlan,
        around: &DFSchema,
        value: &Expr,
        alias: &str,
    ) -> DfResult<Option<Matching>> {
        let query = below_order(query);
        let (input, first) = match query {
            LogicalPlan::Projection(projection) if has_outer(query) => {
                match projection.expr.as_slice() {
                    [first] if !first.contains_outer() && !is_subquery_in(first) => {
                        (projection.input.as_ref(), first.clone().unalias_nested().data)
                    }
                    _ => return Ok(None),
                }
            }
            _ => match query.schema().columns().into_iter().next() {
                Some(first) => (query, Expr::Column(first)),
                None => return Ok(None),
            },
        };
        let Some((rest, conditions)) = filtered(input) else { return Ok(None) };
        matching(rest, conditions, around, Some((value, first)), alias)
    }
}

/// Without what does not change which rows there are.
fn below_order(plan: &LogicalPlan) -> &LogicalPlan {
    match plan {
        LogicalPlan::Distinct(Distinct::All(input)) => below_order(input),
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => below_order(&sort.input),
        other => other,
    }
}

/// Without what does not change whether there are rows.
fn below_columns(plan: &LogicalPlan) -> &LogicalPlan {
    match below_order(plan) {
        LogicalPlan::Projection(projection)
            if !projection.expr.iter().any(|expr| expr.contains_outer()) =>
        {
            below_columns(&projection.input)
        }
        LogicalPlan::SubqueryAlias(alias) => below_columns(&alias.input),
        other => other,
    }
}

/// What is below filters, without correlation, and their conditions.
pub(super) fn filtered(mut plan: &LogicalPlan) -> Option<(&LogicalPlan, Vec<&Expr>)> {
    let mut conditions = Vec::new();
    while let LogicalPlan::Filter(filter) = plan {
        conditions.extend(split_conjunction(&filter.predicate));
        plan = &filter.input;
    }
    let plain = conditions
        .iter()
        .all(|condition| !condition.contains_outer() || !is_subquery_in(condition));
    (plain && !has_outer(plan)).then_some((plan, conditions))
}

/// Conditions of a query alone are tested in it, the others when it is joined.
fn matching(
    rest: &LogicalPlan,
    conditions: Vec<&Expr>,
    around: &DFSchema,
    value: Option<(&Expr, Expr)>,
    alias: &str,
) -> DfResult<Option<Matching>> {
    let (outer, own): (Vec<&Expr>, Vec<&Expr>) =
        conditions.into_iter().partition(|condition| condition.contains_outer());
    let mut columns = BTreeSet::new();
    for condition in &outer {
        columns.extend(condition.column_refs().into_iter().cloned());
    }
    let columns: Vec<Column> = columns.into_iter().collect();
    let mut builder = LogicalPlanBuilder::from(rest.clone());
    if let Some(own) = conjunction(own.into_iter().cloned()) {
        builder = builder.filter(own)?;
    }
    let name = |at: usize| format!("{alias}_{at}");
    let mut exprs: Vec<Expr> = columns
        .iter()
        .enumerate()
        .map(|(at, column)| Expr::Column(column.clone()).alias(name(at)))
        .collect();
    let mut on = Vec::with_capacity(outer.len() + 1);
    if let Some((value, first)) = value {
        on.push(value.clone().eq(Expr::Column(Column::new(Some(alias), name(columns.len())))));
        exprs.push(first.alias(name(columns.len())));
    }
    if exprs.is_empty() {
        exprs.push(lit(true).alias(name(0)));
    }
    for condition in outer {
        let renamed = condition.clone().transform_up(|expr| {
            let at = match &expr {
                Expr::Column(column) => columns.iter().position(|other| other == column),
                _ => None,
            };
            Ok(match at {
                Some(at) => Transformed::yes(Expr::Column(Column::new(Some(alias), name(at)))),
                None => Transformed::no(expr),
            })
        })?;
        on.push(inside(renamed.data, around)?);
    }
    let plan = builder.project(exprs)?.alias(alias)?.build()?;
    Ok(Some(Matching { plan, condition: conjunction(on).unwrap_or_else(|| lit(true)) }))
}

/// For aggregates of the rows that have the same keys as the query around: they are grouped by them.
pub(super) fn value_by_key(
    query: &LogicalPlan,
    around: &DFSchema,
    alias: &str,
) -> DfResult<Option<ValueByKey>> {
    let LogicalPlan::Projection(projection) = query else { return Ok(None) };
    let LogicalPlan::Aggregate(aggregate) = projection.input.as_ref() else { return Ok(None) };
    let [value] = projection.expr.as_slice() else { return Ok(None) };
    let is_plain = |expr: &Expr| !expr.contains_outer() && !is_subquery_in(expr);
    if !aggregate.group_expr.is_empty()
        || !is_plain(value)
        || !aggregate.aggr_expr.iter().all(is_plain)
    {
        return Ok(None);
    }
    let Some((rest, conditions)) = filtered(&aggregate.input) else { return Ok(None) };
    let (outer, own): (Vec<&Expr>, Vec<&Expr>) =
        conditions.into_iter().partition(|condition| condition.contains_outer());
    let mut keys = Vec::with_capacity(outer.len());
    for condition in outer {
        match key_of(condition, around)? {
            Some(key) => keys.push(key),
            None => return Ok(None),
        }
    }
    let Some(empty) = value_of_nothing(value, aggregate)? else { return Ok(None) };
    let mut builder = LogicalPlanBuilder::from(rest.clone());
    if let Some(own) = conjunction(own.into_iter().cloned()) {
        builder = builder.filter(own)?;
    }
    let name = |at: usize| format!("{alias}_{at}");
    let column = |at: usize| Expr::Column(Column::new(Some(alias), name(at)));
    let groups = keys.iter().enumerate().map(|(at, (own, _))| own.clone().alias(name(at)));
    let groups: Vec<Expr> = groups.collect();
    let on = keys.iter().enumerate().map(|(at, (_, around))| around.clone().eq(column(at)));
    let condition = conjunction(on).unwrap_or_else(|| lit(true));
    let width = keys.len();
    let mut exprs: Vec<Expr> =
        (0..width).map(|at| Expr::Column(Column::new_unqualified(name(at)))).collect();
    exprs.push(value.clone().unalias_nested().data.alias(name(width)));
    exprs.push(lit(true).alias(name(width + 1)));
    let plan = builder
        .aggregate(groups, aggregate.aggr_expr.clone())?
        .project(exprs)?
        .alias(alias)?
        .build()?;
    let value = match empty {
        Expr::Literal(value, _) if value.is_null() => column(width),
        empty => when(column(width + 1).is_null(), empty).otherwise(column(width))?,
    };
    Ok(Some(ValueByKey { plan, condition, value }))
}

/// Of a condition that two things are equal, the one of the subquery and the one of the query around.
fn key_of(condition: &Expr, around: &DFSchema) -> DfResult<Option<(Expr, Expr)>> {
    match equal_sides(condition) {
        Some((own, outer)) => Ok(Some((own.clone(), inside(outer.clone(), around)?))),
        None => Ok(None),
    }
}

/// Of a condition that two things are equal, the one of the subquery and the one of queries around.
pub(super) fn equal_sides(condition: &Expr) -> Option<(&Expr, &Expr)> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else {
        return None;
    };
    let is_own = |expr: &Expr| !expr.contains_outer() && expr.any_column_refs();
    let is_outer = |expr: &Expr| expr.contains_outer() && !expr.any_column_refs();
    match (is_own(left), is_own(right)) {
        (true, false) if is_outer(right) => Some((left, right)),
        (false, true) if is_outer(left) => Some((right, left)),
        _ => None,
    }
}

/// A condition of a subquery where it is joined: the columns of `around` are not outside any more.
fn inside(expr: Expr, around: &DFSchema) -> DfResult<Expr> {
    let inside = expr.transform_up(|expr| {
        Ok(match expr {
            Expr::OuterReferenceColumn(_, column) if around.has_column(&column) => {
                Transformed::yes(Expr::Column(column))
            }
            other => Transformed::no(other),
        })
    })?;
    Ok(inside.data)
}

/// What an expression over aggregates is if there are no rows; nothing if it is not known.
fn value_of_nothing(value: &Expr, aggregate: &Aggregate) -> DfResult<Option<Expr>> {
    const NULL: [&str; 12] = [
        "sum",
        "min",
        "max",
        "avg",
        "median",
        "stddev",
        "stddev_pop",
        "var",
        "var_pop",
        "bool_and",
        "bool_or",
        "string_agg",
    ];
    let mut known = true;
    let value = value.clone().unalias_nested().data.transform_up(|expr| {
        let Expr::Column(column) = &expr else { return Ok(Transformed::no(expr)) };
        let at = aggregate.schema.index_of_column(column)?;
        let data_type = aggregate.schema.field(at).data_type();
        let mut function = &aggregate.aggr_expr[at];
        while let Expr::Alias(alias) = function {
            function = &alias.expr;
        }
        let literal = match function {
            Expr::AggregateFunction(call) if call.func.name() == "count" => {
                ScalarValue::new_zero(data_type)?
            }
            Expr::AggregateFunction(call) if NULL.contains(&call.func.name()) => {
                ScalarValue::try_new_null(data_type)?
            }
            _ => {
                known = false;
                return Ok(Transformed::no(expr));
            }
        };
        Ok(Transformed::yes(lit(literal)))
    })?;
    Ok(known.then_some(value.data))
}
