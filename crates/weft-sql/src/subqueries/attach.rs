//! Joins subqueries to the rows that they are evaluated for, and gives the expressions that stand for
//! them there.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, JoinType, Result as DfResult, ScalarValue, Spans, plan_err};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::{
    BinaryExpr, Case, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, Subquery,
    binary_expr, lit, not, when,
};

use super::simple::{Matching, value_by_key};
use super::single_value::single_value;
use super::unnest::{Unnest, Unnested, has_outer, join_domains, outer_columns};
use super::{Names, holds_subquery};

/// Rows with what was joined to them.
pub(super) struct Attach<'a> {
    pub(super) plan: LogicalPlan,
    names: &'a Names,
}

/// The column that a join that marks rows adds.
const MARK: &str = "mark";

impl<'a> Attach<'a> {
    pub(super) fn new(plan: LogicalPlan, names: &'a Names) -> Attach<'a> {
        Attach { plan, names }
    }

    /// A condition that rows have to meet: what remains to be tested after a join has picked them.
    pub(super) fn conjunct(&mut self, condition: Expr) -> DfResult<Option<Expr>> {
        let (condition, negated) = match condition {
            Expr::Not(inner) => match *inner {
                inner @ (Expr::Exists(_) | Expr::InSubquery(_)) => (inner, true),
                other => (not(other), false),
            },
            other => (other, false),
        };
        match condition {
            Expr::Exists(Exists { subquery, negated: inner }) => {
                let kind = if negated != inner { JoinType::LeftAnti } else { JoinType::LeftSemi };
                self.exists(&subquery, kind)?;
                Ok(None)
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated: inner }) => {
                let negated = negated != inner;
                if !negated && !holds_subquery(&expr) {
                    self.among(&expr, &subquery, JoinType::LeftSemi)?;
                    return Ok(None);
                }
                let is_simple = expr.any_column_refs() && !holds_subquery(&expr);
                if negated && is_simple && !has_outer(&subquery.subquery) {
                    // DataFusion's join for it knows of NULL, but has to have a column on either side.
                    let within = InSubquery { expr, subquery, negated };
                    return Ok(Some(Expr::InSubquery(within)));
                }
                let expr = self.expression(*expr)?.data;
                Ok(Some(self.is_among(expr, &subquery, negated)?))
            }
            Expr::Not(inner) => match self::among(&inner) {
                Some(Among { found, unknown }) => {
                    for subquery in std::iter::once(found).chain(unknown) {
                        self.exists(subquery, JoinType::LeftAnti)?;
                    }
                    Ok(None)
                }
                None => Ok(Some(self.condition(Expr::Not(inner))?)),
            },
            other => match self::among(&other) {
                Some(Among { found, .. }) => {
                    self.exists(found, JoinType::LeftSemi)?;
                    Ok(None)
                }
                None => Ok(Some(self.condition(other)?)),
            },
        }
    }

    /// A condition where unknown is as good as false.
    fn condition(&mut self, expr: Expr) -> DfResult<Expr> {
        if let Some(Among { found, .. }) = self::among(&expr) {
            return self.does_exist(found);
        }
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if matches!(op, Operator::And | Operator::Or) =>
            {
                Ok(binary_expr(self.condition(*left)?, op, self.condition(*right)?))
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated: false }) => {
                let expr = self.expression(*expr)?.data;
                self.among(&expr, &subquery, JoinType::LeftMark)
            }
            other => Ok(self.expression(other)?.data),
        }
    }

    /// An expression without subqueries, but for those that are left to DataFusion.
    pub(super) fn expression(&mut self, expr: Expr) -> DfResult<Transformed<Expr>> {
        expr.transform_up(|expr| {
            Ok(Transformed::yes(match expr {
                Expr::Exists(Exists { subquery, negated }) => {
                    let found = self.does_exist(&subquery)?;
                    if negated { not(found) } else { found }
                }
                Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                    self.is_among(*expr, &subquery, negated)?
                }
                Expr::ScalarSubquery(subquery) if has_outer(&subquery.subquery) => {
                    self.value(&subquery)?
                }
                other => return Ok(Transformed::no(other)),
            }))
        })
    }

    /// Whether a query has rows: an expression.
    fn does_exist(&mut self, subquery: &Subquery) -> DfResult<Expr> {
        if has_outer(&subquery.subquery) {
            return self.exists(subquery, JoinType::LeftMark);
        }
        has_rows(&subquery.subquery)
    }

    /// Joins a query that exists or not; the mark, if the join makes one.
    fn exists(&mut self, subquery: &Subquery, kind: JoinType) -> DfResult<Expr> {
        let outer = outer_columns(&subquery.subquery, self.plan.schema())?;
        let alias = self.names.next("exists");
        if let Some(matching) = Matching::of_rows(&subquery.subquery, self.plan.schema(), &alias)? {
            return self.join(matching.plan, kind, matching.condition, &alias);
        }
        let Unnested { plan, domain } = self.unnest(outer.clone(), &subquery.subquery)?;
        let (right, domain) = aliased(plan, None, &domain, &alias)?;
        let plan = std::mem::take(&mut self.plan);
        self.plan = join_domains(plan, right, kind, &outer, &domain)?;
        Ok(mark(&alias))
    }

    /// Joins a query by a value that its first column may have; the mark, if the join makes one.
    fn among(&mut self, value: &Expr, subquery: &Subquery, kind: JoinType) -> DfResult<Expr> {
        let outer = outer_columns(&subquery.subquery, self.plan.schema())?;
        let alias = self.names.next("in");
        let around = self.plan.schema();
        if let Some(matching) = Matching::of_value(&subquery.subquery, around, value, &alias)? {
            return self.join(matching.plan, kind, matching.condition, &alias);
        }
        let first = first_column(&subquery.subquery)?;
        let Unnested { plan, domain } = self.unnest(outer.clone(), &subquery.subquery)?;
        let (right, columns) = aliased(plan, Some(first), &domain, &alias)?;
        let mut condition = value.clone().eq(Expr::Column(columns[0].clone()));
        for (one, other) in outer.iter().zip(&columns[1..]) {
            let (one, other) = (Expr::Column(one.clone()), Expr::Column(other.clone()));
            condition = condition.and(binary_expr(one, Operator::IsNotDistinctFrom, other));
        }
        self.join(right, kind, condition, &alias)
    }

    /// IN with its three values.
    fn is_among(&mut self, value: Expr, subquery: &Subquery, negated: bool) -> DfResult<Expr> {
        let first = first_column(&subquery.subquery)?;
        let nullable_first = subquery.subquery.schema().field(0).is_nullable();
        let nullable_value = value.nullable(self.plan.schema())?;
        let found = self.among(&value, subquery, JoinType::LeftMark)?;
        let mut unknown = Vec::new();
        if nullable_first {
            let nulls = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone())
                .filter(Expr::Column(first).is_null())?
                .build()?;
            unknown.push(
                self.does_exist(&Subquery { subquery: Arc::new(nulls), ..subquery.clone() })?,
            );
        }
        if nullable_value {
            unknown.push(value.is_null().and(self.does_exist(subquery)?));
        }
        let result = match unknown.into_iter().reduce(Expr::or) {
            None => found,
            Some(unknown) => when(found, lit(true))
                .when(unknown, lit(ScalarValue::Boolean(None)))
                .otherwise(lit(false))?,
        };
        Ok(if negated { not(result) } else { result })
    }

    /// The one value of a correlated query, or NULL.
    fn value(&mut self, subquery: &Subquery) -> DfResult<Expr> {
        let outer = outer_columns(&subquery.subquery, self.plan.schema())?;
        let alias = self.names.next("value");
        if let Some(by_key) = value_by_key(&subquery.subquery, self.plan.schema(), &alias)? {
            let plan = std::mem::take(&mut self.plan);
            self.plan = LogicalPlanBuilder::from(plan)
                .join_on(by_key.plan, JoinType::Left, [by_key.condition])?
                .build()?;
            return Ok(by_key.value);
        }
        let first = first_column(&subquery.subquery)?;
        let Unnested { plan, domain } = self.unnest(outer.clone(), &subquery.subquery)?;
        let is_single = subquery.subquery.max_rows().is_some_and(|rows| rows <= 1);
        let (plan, first) = match is_single {
            true => (plan, first),
            false => {
                let name = self.names.next("single");
                let single = single_value().call(vec![Expr::Column(first)]).alias(&name);
                let groups = domain.iter().cloned().map(Expr::Column);
                let plan = LogicalPlanBuilder::from(plan).aggregate(groups, [single])?.build()?;
                (plan, Column::new_unqualified(name))
            }
        };
        let (right, columns) = aliased(plan, Some(first), &domain, &alias)?;
        let plan = std::mem::take(&mut self.plan);
        self.plan = join_domains(plan, right, JoinType::Left, &outer, &columns[1..])?;
        Ok(Expr::Column(columns[0].clone()))
    }

    fn unnest(&self, outer: Vec<Column>, subquery: &LogicalPlan) -> DfResult<Unnested> {
        Unnest { around: &self.plan, outer, names: self.names }.unnest(subquery)
    }

    fn join(
        &mut self,
        right: LogicalPlan,
        kind: JoinType,
        condition: Expr,
        alias: &str,
    ) -> DfResult<Expr> {
        let plan = std::mem::take(&mut self.plan);
        self.plan = LogicalPlanBuilder::from(plan).join_on(right, kind, [condition])?.build()?;
        Ok(mark(alias))
    }
}

/// Whether rows exist that make a condition true, and such as make it unknown.
struct Among<'a> {
    found: &'a Subquery,
    unknown: Vec<&'a Subquery>,
}

/// The parts of what `query_comparisons.rs` makes of `(a, b) IN (query)`; nothing for any other expression.
fn among(expr: &Expr) -> Option<Among<'_>> {
    let Expr::Case(Case { expr: None, when_then_expr, else_expr: Some(otherwise) }) = expr else {
        return None;
    };
    let ((when, then), unknown) = when_then_expr.split_first()?;
    if truth(then) != Some(Some(true)) || truth(otherwise) != Some(Some(false)) {
        return None;
    }
    let unknown: Option<Vec<&Subquery>> = unknown
        .iter()
        .map(|(when, then)| existing(when).filter(|_| truth(then) == Some(None)))
        .collect();
    Some(Among { found: existing(when)?, unknown: unknown? })
}

/// The query of EXISTS.
fn existing(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::Exists(Exists { subquery, negated: false }) => Some(subquery),
        _ => None,
    }
}

/// The value of a constant that is true, false or unknown.
fn truth(expr: &Expr) -> Option<Option<bool>> {
    match expr {
        Expr::Literal(ScalarValue::Boolean(value), _) => Some(*value),
        Expr::Literal(ScalarValue::Null, _) => Some(None),
        Expr::Cast(cast) => truth(&cast.expr),
        _ => None,
    }
}

fn mark(alias: &str) -> Expr {
    Expr::Column(Column::new(Some(alias), MARK))
}

fn first_column(plan: &LogicalPlan) -> DfResult<Column> {
    match plan.schema().columns().into_iter().next() {
        Some(column) => Ok(column),
        None => plan_err!("a subquery returns no column"),
    }
}

/// A plan with these columns only, under an alias: its columns there.
fn aliased(
    plan: LogicalPlan,
    first: Option<Column>,
    domain: &[Column],
    alias: &str,
) -> DfResult<(LogicalPlan, Vec<Column>)> {
    let columns = first.iter().chain(domain).cloned().map(Expr::Column);
    let columns = columns.enumerate().map(|(at, column)| column.alias(format!("{alias}_{at}")));
    let mut columns: Vec<Expr> = columns.collect();
    if columns.is_empty() {
        columns.push(lit(true).alias(format!("{alias}_0")));
    }
    let plan = LogicalPlanBuilder::from(plan).project(columns)?.alias(alias)?.build()?;
    let columns = plan.schema().columns();
    Ok((plan, columns))
}

/// Whether a query without correlation has rows, as a value.
fn has_rows(query: &LogicalPlan) -> DfResult<Expr> {
    let count = count_udaf().call(vec![lit(1_i64)]).alias("rows");
    let plan = LogicalPlanBuilder::from(query.clone())
        .limit(0, Some(1))?
        .aggregate(Vec::<Expr>::new(), [count])?
        .project([Expr::Column(Column::new_unqualified("rows")).gt(lit(0_i64)).alias("any")])?
        .build()?;
    Ok(Expr::ScalarSubquery(Subquery {
        subquery: Arc::new(plan),
        outer_ref_columns: Vec::new(),
        spans: Spans::new(),
    }))
}
