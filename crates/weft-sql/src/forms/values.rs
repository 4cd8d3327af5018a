//! Values that a statement needs before it is planned, as they shape the plan: LIMIT and OFFSET of a subquery or a percentage, and
//! the values that PIVOT makes columns of (`pivots.rs`). The queries that have them run first, from the innermost on, within the same snapshot, and their values are put in their places.

use std::ops::ControlFlow;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::execution::SessionState;
use datafusion::physical_plan::collect;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, LimitClause, Query, SelectItem, SetExpr,
    Statement, TableFactor, Value, Visit, VisitMut, Visitor, VisitorMut, With,
};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::pivots;
use crate::catalog::{StatementCatalog, planned};
use crate::error::{ErrorKind, Result, SqlError};
use crate::optimize::optimized;
use crate::spill_files::task_context;
use crate::statement::{inner_statement, parse_query};
use crate::using_joins::query_of;

/// LIMIT of a percentage (`tokens/limits.rs`).
pub(super) const PERCENT: &str = "limit_percent";

/// True if a statement needs a value first.
pub(crate) fn are_needed(statement: &mut DfStatement) -> bool {
    inner_statement(statement).is_some_and(|inner| Visit::visit(&*inner, &mut Finder).is_break())
}

/// Finds queries that need a value.
struct Finder;

impl Visitor for Finder {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        match wanted(query).is_some() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<()> {
        match pivots::values_query(table).is_some() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Where a value is wanted in a query.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Limit,
    Offset,
}

fn wanted(query: &Query) -> Option<(Place, &Expr)> {
    let Some(LimitClause::LimitOffset { limit, offset, .. }) = &query.limit_clause else {
        return None;
    };
    let limit = limit.as_ref().filter(|limit| needs_value(limit));
    let offset = offset.as_ref().map(|offset| &offset.value).filter(|offset| needs_value(offset));
    match (limit, offset) {
        (Some(limit), _) => Some((Place::Limit, limit)),
        (None, Some(offset)) => Some((Place::Offset, offset)),
        (None, None) => None,
    }
}

fn needs_value(expr: &Expr) -> bool {
    Visit::visit(expr, &mut Queries).is_break() || percentage(expr).is_some()
}

/// Finds subqueries in an expression.
struct Queries;

impl Visitor for Queries {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}

/// The percentage of a LIMIT.
fn percentage(limit: &Expr) -> Option<&Expr> {
    let Expr::Function(function) = limit else { return None };
    let FunctionArguments::List(list) = &function.args else { return None };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(share))]
            if function.name.to_string() == PERCENT =>
        {
            Some(share)
        }
        _ => None,
    }
}

/// Runs the queries that have the values, and puts these in their places.
pub(crate) fn evaluate<'a>(
    catalog: &'a StatementCatalog,
    state: &'a SessionState,
    statement: &'a mut DfStatement,
) -> BoxFuture<'a, Result<()>> {
    async move {
        while let Some(job) = next_job(statement) {
            let job = job?;
            let batches = rows_of(catalog, state, job.query).await?;
            let Some(inner) = inner_statement(statement) else { return Ok(()) };
            let flow = match job.is_pivot {
                true => VisitMut::visit(inner, &mut PivotPutter { batches }),
                false => VisitMut::visit(inner, &mut Putter { value: limit_of(&batches)? }),
            };
            // It breaks once the value is in its place.
            if let ControlFlow::Break(result) = flow {
                result?;
            }
        }
        Ok(())
    }
    .boxed()
}

/// The value of a LIMIT.
fn limit_of(batches: &[RecordBatch]) -> Result<Option<i64>> {
    let value = match batches.iter().find(|batch| batch.num_rows() > 0) {
        Some(batch) => ScalarValue::try_from_array(batch.column(0), 0)?,
        None => ScalarValue::Null,
    };
    match value {
        value if value.is_null() => Ok(None),
        ScalarValue::Int64(Some(value)) if value >= 0 => Ok(Some(value)),
        other => {
            let message = format!("LIMIT and OFFSET cannot be {other}");
            Err(SqlError::new(ErrorKind::Semantic, message))
        }
    }
}

/// The rows of a query of the statement's own.
pub(super) fn rows_of<'a>(
    catalog: &'a StatementCatalog,
    state: &'a SessionState,
    query: Query,
) -> BoxFuture<'a, Result<Vec<RecordBatch>>> {
    async move {
        let statement = DfStatement::Statement(Box::new(Statement::Query(Box::new(query))));
        let plan = planned(catalog, state, statement).await?;
        // As for a statement of its own: each stage of planning needs other code.
        let trim = || catalog.trim_code();
        trim();
        let plan = optimized(state, plan, trim)?;
        trim();
        let physical = state.query_planner().create_physical_plan(&plan, state).await?;
        trim();
        let batches = collect(physical, task_context(state)).await?;
        trim();
        Ok(batches)
    }
    .boxed()
}

/// A query that runs before the statement.
struct Job {
    query: Query,
    /// Its rows are the values of a column of PIVOT.
    is_pivot: bool,
}

/// The query for the value that is needed first.
fn next_job(statement: &mut DfStatement) -> Option<Result<Job>> {
    let inner = inner_statement(statement)?;
    let mut jobs = Jobs { withs: Vec::new() };
    match Visit::visit(&*inner, &mut jobs) {
        ControlFlow::Break(job) => Some(job),
        ControlFlow::Continue(()) => None,
    }
}

/// Finds the first query that needs a value when none within it does.
struct Jobs {
    withs: Vec<Option<With>>,
}

impl Visitor for Jobs {
    type Break = Result<Job>;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        self.withs.push(query.with.clone());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        if let Some((_, expr)) = wanted(query) {
            let query = self.limit_query(query, expr);
            return ControlFlow::Break(query.map(|query| self.job(query, false)));
        }
        self.withs.pop();
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<Self::Break> {
        match pivots::values_query(table) {
            Some(query) => ControlFlow::Break(query.map(|query| self.job(query, true))),
            None => ControlFlow::Continue(()),
        }
    }
}

impl Jobs {
    fn limit_query(&self, query: &Query, expr: &Expr) -> Result<Query> {
        let mut job = match percentage(expr) {
            None => parse_query("SELECT CAST(NULL AS BIGINT)")?,
            Some(share) => {
                let sql = format!(
                    "SELECT CAST(floor(count(*) * CAST({share} AS DOUBLE) / 100) AS BIGINT) FROM (SELECT 1) AS t"
                );
                let mut job = parse_query(&sql)?;
                let limited =
                    Query { with: None, order_by: None, limit_clause: None, ..query.clone() };
                if let SetExpr::Select(select) = job.body.as_mut()
                    && let Some(table) = select.from.first_mut()
                    && let TableFactor::Derived { subquery, .. } = &mut table.relation
                {
                    **subquery = limited;
                }
                job
            }
        };
        if percentage(expr).is_none()
            && let SetExpr::Select(select) = job.body.as_mut()
            && let Some(
                SelectItem::ExprWithAlias { expr: item, .. } | SelectItem::UnnamedExpr(item),
            ) = select.projection.first_mut()
            && let Expr::Cast { expr: inner, .. } = item
        {
            **inner = Expr::Nested(Box::new(expr.clone()));
        }
        Ok(job)
    }

    /// The query with the common table expressions around it.
    fn job(&self, mut query: Query, is_pivot: bool) -> Job {
        // What is not complete yet is not among what the query may read.
        for with in self.withs.iter().rev().flatten() {
            let mut with = with.clone();
            with.cte_tables.retain(|table| Visit::visit(&table.query, &mut Finder).is_continue());
            if !with.cte_tables.is_empty() {
                let mut outer = query_of(Vec::new());
                outer.with = Some(with);
                *outer.body = SetExpr::Query(Box::new(query));
                query = outer;
            }
        }
        Job { query, is_pivot }
    }
}

/// Puts a value where the first one is needed.
struct Putter {
    value: Option<i64>,
}

impl VisitorMut for Putter {
    type Break = Result<()>;

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Result<()>> {
        let Some((place, _)) = wanted(query) else { return ControlFlow::Continue(()) };
        let number = |value: i64| Expr::Value(Value::Number(value.to_string(), false).into());
        if let Some(LimitClause::LimitOffset { limit, offset, .. }) = &mut query.limit_clause {
            match (place, offset.as_mut()) {
                (Place::Limit, _) => *limit = self.value.map(number),
                (Place::Offset, Some(offset)) => offset.value = number(self.value.unwrap_or(0)),
                (Place::Offset, None) => {}
            }
        }
        ControlFlow::Break(Ok(()))
    }
}

/// Puts the values of a column in the first PIVOT that needs some.
struct PivotPutter {
    batches: Vec<RecordBatch>,
}

impl VisitorMut for PivotPutter {
    type Break = Result<()>;

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Result<()>> {
        match pivots::values_query(table).is_some() {
            true => ControlFlow::Break(pivots::put_values(table, &self.batches)),
            false => ControlFlow::Continue(()),
        }
    }
}
