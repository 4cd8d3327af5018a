//! Functions in FROM: the names of their columns, and UNNEST of lists of the tables before it.
//!
//! A column of `range`, `generate_series` or `unnest` is called like the table, which is called like the function if it has no other name.
//! WITH ORDINALITY is one list more, of numbers. A list of a table before is unnested beside the columns of that table, without a join.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, JoinType, Result as DfResult};
use datafusion::logical_expr::{
    Expr as LogicalExpr, Filter, Join, LogicalPlan, LogicalPlanBuilder, Projection,
};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, FunctionArg, FunctionArgExpr, Ident, TableAlias,
    TableAliasColumnDef, TableFactor, Value,
};

use crate::functions::call;

/// Functions with one column.
const SERIES: [&str; 2] = ["generate_series", "range"];

/// Names the columns of functions in FROM.
pub(crate) fn rewrite(factor: &mut TableFactor) {
    if let Some(list) = series_of_times(factor) {
        *factor = list;
    }
    match factor {
        TableFactor::Table { name, alias, args: Some(_), with_ordinality: false, .. } => {
            let function = name.to_string().to_lowercase();
            if SERIES.contains(&function.as_str()) {
                name_columns(alias, &function, 1, false);
            }
        }
        TableFactor::UNNEST { alias, array_exprs, with_ordinality, .. } => {
            let lists = array_exprs.len();
            if *with_ordinality {
                *with_ordinality = false;
                array_exprs.push(numbers(array_exprs));
                name_columns(alias, "unnest", lists, true);
            } else {
                name_columns(alias, "unnest", lists, false);
            }
        }
        _ => {}
    }
}

/// `generate_series` and `range` in FROM with a step that is an interval, as the list of the function of that name, unnested: the
/// function that returns rows knows few types of times.
fn series_of_times(factor: &TableFactor) -> Option<TableFactor> {
    let TableFactor::Table { name, alias, args: Some(args), with_ordinality: false, .. } = factor
    else {
        return None;
    };
    let function = name.to_string().to_lowercase();
    let values: Option<Vec<Expr>> = args
        .args
        .iter()
        .map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
            _ => None,
        })
        .collect();
    let values = values.filter(|values| values.len() == 3 && is_interval(&values[2]))?;
    let mut alias = alias.clone();
    name_columns(&mut alias, SERIES.into_iter().find(|known| *known == function)?, 1, false);
    Some(TableFactor::UNNEST {
        alias,
        array_exprs: vec![call(&function, values)],
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: false,
    })
}

/// True of an expression that is written as an interval.
fn is_interval(expr: &Expr) -> bool {
    match expr {
        Expr::Interval(_) => true,
        Expr::Cast { data_type, .. } => matches!(data_type, DataType::Interval { .. }),
        Expr::TypedString(text) => matches!(text.data_type, DataType::Interval { .. }),
        Expr::Nested(expr) | Expr::UnaryOp { expr, .. } => is_interval(expr),
        _ => false,
    }
}

/// The numbers from 1 to the length of the longest list.
fn numbers(lists: &[Expr]) -> Expr {
    let number = |number: &str| Expr::Value(Value::Number(number.to_owned(), false).into());
    let as_integer = |expr: Expr| Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(expr),
        data_type: DataType::BigInt(None),
        array: false,
        format: None,
    };
    let length = |list: &Expr| {
        let length = as_integer(call("array_length", [list.clone()]));
        call("coalesce", [length, number("0")])
    };
    let longest = call("greatest", lists.iter().map(length));
    let end = Expr::BinaryOp {
        left: Box::new(longest),
        op: BinaryOperator::Plus,
        right: Box::new(number("1")),
    };
    call("range", [number("1"), end])
}

/// Gives names to the columns that have none.
fn name_columns(alias: &mut Option<TableAlias>, function: &str, columns: usize, ordinality: bool) {
    let named = alias.get_or_insert_with(|| TableAlias {
        explicit: true,
        name: Ident::with_quote('"', function),
        columns: Vec::new(),
        at: None,
    });
    let column = |name: Ident| TableAliasColumnDef { name, data_type: None };
    for place in named.columns.len()..columns {
        let name = match place {
            0 => named.name.clone(),
            place => Ident::with_quote('"', format!("{}_{place}", named.name.value)),
        };
        named.columns.push(column(name));
    }
    if ordinality && named.columns.len() == columns {
        named.columns.push(column(Ident::with_quote('"', "ordinality")));
    }
}

/// Unnests lists of the tables before them beside the columns of those.
///
/// # Errors
/// What is wrong with the plan.
pub(crate) fn planned(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    let planned = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Join(join) = &node else { return Ok(Transformed::no(node)) };
        match unnested(join)? {
            Some(plan) => Ok(Transformed::yes(plan)),
            None => Ok(Transformed::no(node)),
        }
    })?;
    Ok(planned.data)
}

/// A join with UNNEST as a plan of its left side's rows.
fn unnested(join: &Join) -> DfResult<Option<LogicalPlan>> {
    if join.join_type != JoinType::Inner || !join.on.is_empty() || join.filter.is_some() {
        return Ok(None);
    }
    let mut outer = false;
    join.right.apply_with_subqueries(|node| {
        outer |= node.expressions().iter().any(LogicalExpr::contains_outer);
        Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
    })?;
    if !outer {
        return Ok(None);
    }
    let around = Around { left: &join.left };
    let Some(plan) = around.attach(&join.right)? else { return Ok(None) };
    let columns: Vec<LogicalExpr> =
        join.schema.columns().into_iter().map(LogicalExpr::Column).collect();
    Ok(Some(LogicalPlanBuilder::from(plan).project(columns)?.build()?))
}

/// The tables before UNNEST.
struct Around<'a> {
    left: &'a Arc<LogicalPlan>,
}

impl Around<'_> {
    /// What a plan over no table computes, for each row of the left side and beside its columns. Nothing for other plans.
    fn attach(&self, plan: &LogicalPlan) -> DfResult<Option<LogicalPlan>> {
        match plan {
            LogicalPlan::Subquery(subquery) => self.attach(&subquery.subquery),
            LogicalPlan::EmptyRelation(empty) if empty.produce_one_row => {
                Ok(Some(self.left.as_ref().clone()))
            }
            LogicalPlan::Projection(Projection { expr, input, .. }) => {
                let Some(input) = self.attach(input)? else { return Ok(None) };
                let mut columns = self.columns();
                for expr in expr {
                    let name = expr.schema_name().to_string();
                    let inner = self.inner(expr.clone())?;
                    // A name stays, though the expression is another one.
                    columns.push(match &inner {
                        LogicalExpr::Column(_) | LogicalExpr::Alias(_) => inner,
                        _ => inner.alias(name),
                    });
                }
                Ok(Some(LogicalPlanBuilder::from(input).project(columns)?.build()?))
            }
            LogicalPlan::Unnest(unnest) => {
                let Some(input) = self.attach(&unnest.input)? else { return Ok(None) };
                let builder = LogicalPlanBuilder::from(input);
                let columns = unnest.exec_columns.clone();
                let builder =
                    builder.unnest_columns_with_options(columns, unnest.options.clone())?;
                Ok(Some(builder.build()?))
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let Some(input) = self.attach(&alias.input)? else { return Ok(None) };
                let inner = alias.input.schema().columns().into_iter();
                let names = alias.schema.columns().into_iter();
                let named = inner.zip(names).map(|(inner, name)| {
                    LogicalExpr::Column(inner).alias_qualified(name.relation, name.name)
                });
                let columns: Vec<_> = self.columns().into_iter().chain(named).collect();
                Ok(Some(LogicalPlanBuilder::from(input).project(columns)?.build()?))
            }
            LogicalPlan::Filter(Filter { predicate, input, .. }) => {
                let Some(input) = self.attach(input)? else { return Ok(None) };
                let predicate = self.inner(predicate.clone())?;
                Ok(Some(LogicalPlanBuilder::from(input).filter(predicate)?.build()?))
            }
            _ => Ok(None),
        }
    }

    fn columns(&self) -> Vec<LogicalExpr> {
        self.left.schema().columns().into_iter().map(LogicalExpr::Column).collect()
    }

    /// An expression with columns in place of those of a query around.
    fn inner(&self, expr: LogicalExpr) -> DfResult<LogicalExpr> {
        let is_left = |column: &Column| self.left.schema().has_column(column);
        let inner = expr.transform(|expr| match expr {
            LogicalExpr::OuterReferenceColumn(_, column) if is_left(&column) => {
                Ok(Transformed::yes(LogicalExpr::Column(column)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(inner.data)
    }
}
