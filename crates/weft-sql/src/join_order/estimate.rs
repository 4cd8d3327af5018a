//! How many rows a plan gives, and how many different values a column has in them, about.
//!
//! Conditions on a table are tried on its sample; what no statistics tell is guessed. The zones of row groups bound both.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::default_table_source::{DefaultTableSource, source_as_provider};
use datafusion::common::{Column, DFSchema, ScalarValue, Statistics};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    BinaryExpr, Expr, FetchType, Filter, Join, JoinType, LogicalPlan, Operator, TableScan,
};
use datafusion::physical_expr::create_physical_expr;

use crate::pushdown;
use crate::table::StoredTable;

/// Rows of what is not known: a file, a function.
const UNKNOWN_ROWS: f64 = 1_000_000.0;
/// Rows of a sample that must satisfy a condition for the sample to be believed.
const SAMPLE_HITS_MIN: usize = 8;

/// Estimates for the plans of one block of joins, each made once: plans are known by their addresses, so it is dropped
/// before they are.
#[derive(Default)]
pub(super) struct Estimator {
    rows: RefCell<HashMap<*const LogicalPlan, f64>>,
    distinct: RefCell<HashMap<(*const LogicalPlan, Column), f64>>,
}

impl Estimator {
    /// The rows of a plan, at least 1.
    pub(super) fn rows(&self, plan: &LogicalPlan) -> f64 {
        let known = self.rows.borrow().get(&std::ptr::from_ref(plan)).copied();
        known.unwrap_or_else(|| {
            let rows = self.estimate_rows(plan);
            self.rows.borrow_mut().insert(plan, rows);
            rows
        })
    }

    fn estimate_rows(&self, plan: &LogicalPlan) -> f64 {
        let input = |number: usize| plan.inputs().get(number).map_or(1.0, |input| self.rows(input));
        let rows = match plan {
            LogicalPlan::TableScan(scan) => {
                let all = table_rows(scan);
                let some = all * selectivity(scan, &scan.filters.iter().collect::<Vec<_>>());
                scan.fetch.map_or(some, |fetch| some.min(fetch as f64))
            }
            LogicalPlan::Filter(filter) => self.filtered_rows(filter),
            LogicalPlan::Join(join) => self.joined_rows(join),
            LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => 1.0,
            LogicalPlan::Aggregate(aggregate) => {
                let groups = aggregate
                    .group_expr
                    .iter()
                    .map(|expr| self.expr_distinct(expr, &aggregate.input));
                groups.product::<f64>().min(input(0))
            }
            LogicalPlan::Limit(limit) => match limit.get_fetch_type() {
                Ok(FetchType::Literal(Some(fetch))) => input(0).min(fetch as f64),
                _ => input(0),
            },
            LogicalPlan::Union(union) => union.inputs.iter().map(|input| self.rows(input)).sum(),
            LogicalPlan::Values(values) => values.values.len() as f64,
            LogicalPlan::EmptyRelation(_) => 1.0,
            other if other.inputs().is_empty() => UNKNOWN_ROWS,
            _ => input(0),
        };
        rows.max(1.0)
    }

    /// The different values that a column of a plan has, at least 1.
    pub(super) fn distinct(&self, plan: &LogicalPlan, column: &Column) -> f64 {
        let key = (std::ptr::from_ref(plan), column.clone());
        let known = self.distinct.borrow().get(&key).copied();
        known.unwrap_or_else(|| {
            let distinct = self.estimate_distinct(plan, column);
            self.distinct.borrow_mut().insert(key, distinct);
            distinct
        })
    }

    fn estimate_distinct(&self, plan: &LogicalPlan, column: &Column) -> f64 {
        let rows = self.rows(plan);
        let Some((scan, number)) = trace(plan, column) else { return rows };
        let counted = known_distinct(scan, number);
        // Some of the values are gone with the rows that conditions exclude.
        counted.map_or(rows, |distinct| (distinct as f64).clamp(1.0, rows))
    }

    /// The different values of an expression over a plan.
    pub(super) fn expr_distinct(&self, expr: &Expr, plan: &LogicalPlan) -> f64 {
        match expr {
            Expr::Column(column) => self.distinct(plan, column),
            Expr::Alias(alias) => self.expr_distinct(&alias.expr, plan),
            Expr::Cast(cast) => self.expr_distinct(&cast.expr, plan),
            Expr::Literal(..) => 1.0,
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Modulo, right }) => {
                let values = self.expr_distinct(left, plan);
                remainders(right).map_or(values, |remainders| values.min(remainders))
            }
            other => {
                let of = |column: &&Column| self.distinct(plan, column);
                other.column_refs().iter().map(of).product::<f64>().min(self.rows(plan))
            }
        }
    }

    /// The part of all pairs that equal each other on some keys: each key's values of the side that has fewer are among
    /// those of the other; several keys together have no more values than there are rows.
    pub(super) fn equal(
        &self,
        keys: &[(&Expr, &Expr)],
        (left, left_rows): (&LogicalPlan, f64),
        (right, right_rows): (&LogicalPlan, f64),
    ) -> f64 {
        let of = |distinct: f64, rows: f64| distinct.min(rows).max(1.0);
        let left = keys.iter().map(|(key, _)| self.expr_distinct(key, left)).product();
        let right = keys.iter().map(|(_, key)| self.expr_distinct(key, right)).product();
        1.0 / of(left, left_rows).max(of(right, right_rows))
    }

    fn filtered_rows(&self, filter: &Filter) -> f64 {
        let conditions = split_conjunction(&filter.predicate);
        if let LogicalPlan::TableScan(scan) = filter.input.as_ref()
            && scan.fetch.is_none()
        {
            let all: Vec<&Expr> = scan.filters.iter().chain(conditions).collect();
            return table_rows(scan) * selectivity(scan, &all);
        }
        let guessed = conditions.iter().map(|condition| guess(condition)).product::<f64>();
        self.rows(&filter.input) * guessed
    }

    fn joined_rows(&self, join: &Join) -> f64 {
        let (left, right) = (self.rows(&join.left), self.rows(&join.right));
        let keys: Vec<(&Expr, &Expr)> = join.on.iter().map(|(a, b)| (a, b)).collect();
        let selectivity = match keys.is_empty() {
            true => 1.0,
            false => self.equal(&keys, (&join.left, left), (&join.right, right)),
        } * join.filter.as_ref().map_or(1.0, guess);
        let inner = left * right * selectivity;
        let matched = self.attached_factor(join, right);
        match join.join_type {
            JoinType::Inner => inner,
            JoinType::Left => inner.max(left),
            JoinType::Right => inner.max(right),
            JoinType::Full => inner.max(left).max(right),
            JoinType::LeftSemi | JoinType::LeftAnti => left * matched,
            JoinType::RightSemi | JoinType::RightAnti => right * 0.5,
            JoinType::LeftMark => left,
            JoinType::RightMark => right,
        }
    }

    /// The part of the rows on the left that a semi or anti join lets through, if there are `right` rows on the right.
    pub(super) fn attached_factor(&self, join: &Join, right: f64) -> f64 {
        let matched = if join.on.is_empty() {
            0.5
        } else {
            let of = |side: fn(&(Expr, Expr)) -> &Expr, plan: &LogicalPlan| -> f64 {
                join.on.iter().map(|pair| self.expr_distinct(side(pair), plan)).product()
            };
            let there = of(|pair| &pair.1, &join.right).min(right);
            let here = of(|pair| &pair.0, &join.left).max(1.0);
            (there / here).min(1.0) * join.filter.as_ref().map_or(1.0, guess)
        };
        match join.join_type {
            // A subquery's keys often are of other rows than most: neither all nor nothing.
            JoinType::LeftAnti => (1.0 - matched).max(0.1),
            _ => matched,
        }
    }
}

/// The different remainders of numbers that are not negative, divided by a constant.
fn remainders(divisor: &Expr) -> Option<f64> {
    match divisor {
        Expr::Cast(cast) => remainders(&cast.expr),
        Expr::Literal(value, _) => match value.cast_to(&DataType::Float64) {
            Ok(ScalarValue::Float64(Some(divisor))) => Some(divisor.abs().max(1.0)),
            _ => None,
        },
        _ => None,
    }
}

/// What a condition that no statistics tell about lets through.
pub(super) fn guess(condition: &Expr) -> f64 {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            guess(left) * guess(right)
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            (guess(left) + guess(right)).min(1.0)
        }
        Expr::BinaryExpr(BinaryExpr { op: Operator::Eq, .. }) => 0.05,
        Expr::BinaryExpr(BinaryExpr { op: Operator::NotEq, .. }) => 0.9,
        Expr::Not(inner) => 1.0 - guess(inner),
        Expr::InList(list) if !list.negated => (0.05 * list.list.len() as f64).min(0.5),
        Expr::Like(like) if !like.negated => 0.1,
        Expr::Between(between) if !between.negated => 0.2,
        Expr::IsNull(_) => 0.05,
        Expr::IsNotNull(_) => 0.95,
        _ => 0.3,
    }
}

fn table_rows(scan: &TableScan) -> f64 {
    if let Some(table) = stored(scan) {
        return table.rows() as f64;
    }
    let statistics = provided(scan);
    let rows = statistics.and_then(|statistics| statistics.num_rows.get_value().copied());
    rows.map_or(UNKNOWN_ROWS, |rows| rows as f64)
}

/// The distinct values of a table's column, as far as they were counted.
fn known_distinct(scan: &TableScan, number: usize) -> Option<u64> {
    match stored(scan) {
        Some(table) => table.learned().and_then(|statistics| statistics.distinct(number)),
        None => {
            let statistics = provided(scan)?;
            let column = statistics.column_statistics.get(number)?;
            column.distinct_count.get_value().map(|distinct| *distinct as u64)
        }
    }
}

/// The statistics of what is no table of the store.
fn provided(scan: &TableScan) -> Option<Statistics> {
    source_as_provider(&scan.source).ok()?.statistics()
}

/// What conditions on a table let through together: as much as the zones of its row groups permit.
fn selectivity(scan: &TableScan, conditions: &[&Expr]) -> f64 {
    if conditions.is_empty() {
        return 1.0;
    }
    let (least, most) = zoned(scan, conditions).unwrap_or((0.0, 1.0));
    expected(scan, conditions).clamp(least, most)
}

/// The least and the greatest part of a table's rows that satisfy the conditions, as zones tell.
fn zoned(scan: &TableScan, conditions: &[&Expr]) -> Option<(f64, f64)> {
    let table = stored(scan)?;
    let schema = scan.source.schema();
    let known: Vec<_> =
        conditions.iter().map(|condition| pushdown::translate(condition, &schema)).collect();
    let is_complete = known.iter().all(Option::is_some);
    let (least, most) =
        table.rows_within(&known.into_iter().flatten().flatten().collect::<Vec<_>>());
    let part = |rows: u64| rows as f64 / table.rows().max(1) as f64;
    Some((if is_complete { part(least) } else { 0.0 }, part(most)))
}

/// The same as far as the sample tells, or a guess.
fn expected(scan: &TableScan, conditions: &[&Expr]) -> f64 {
    let guessed: f64 = conditions.iter().map(|condition| informed(scan, condition)).product();
    let Some((hits, tried)) = try_sample(scan, conditions) else { return guessed };
    let part = hits as f64 / tried as f64;
    if hits >= SAMPLE_HITS_MIN {
        return part;
    }
    // So few say only that it is not much more.
    guessed.clamp(part / 2.0, (hits + 2) as f64 / tried as f64)
}

/// As [`guess`], knowing how many values a column has.
fn informed(scan: &TableScan, condition: &Expr) -> f64 {
    if let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition
        && let (Expr::Column(column), Expr::Literal(..)) | (Expr::Literal(..), Expr::Column(column)) =
            (left.as_ref(), right.as_ref())
        && let Some(number) = column_number(scan, column)
        && let Some(distinct) = known_distinct(scan, number)
    {
        return 1.0 / distinct.max(1) as f64;
    }
    guess(condition)
}

/// How many rows of the table's sample satisfy the conditions, and how many there are.
fn try_sample(scan: &TableScan, conditions: &[&Expr]) -> Option<(usize, usize)> {
    let statistics = stored(scan)?.learned()?;
    let schema = scan.source.schema();
    let qualified = DFSchema::try_from_qualified_schema(scan.table_name.clone(), &schema).ok()?;
    let rows = statistics.sample_rows();
    let sample = RecordBatch::try_new(relaxed(&schema), statistics.sample().to_vec()).ok()?;
    let mut selected: Option<BooleanBuffer> = None;
    for condition in conditions {
        let (properties, context) = (ExecutionProps::new(), PhysicalPlanningContext::default());
        let condition = create_physical_expr(condition, &qualified, &properties, &context).ok()?;
        let values = condition.evaluate(&sample).ok()?.into_array(rows).ok()?;
        let values = values.as_boolean_opt()?;
        let satisfied = match values.nulls() {
            Some(nulls) => values.values() & nulls.inner(),
            None => values.values().clone(),
        };
        selected = Some(match selected {
            Some(selected) => &selected & &satisfied,
            None => satisfied,
        });
    }
    let hits = selected.map_or(rows, |selected| selected.count_set_bits());
    (rows > 0).then_some((hits, rows))
}

/// The columns of a sample, which may be null where those of the table may not.
fn relaxed(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn column_number(scan: &TableScan, column: &Column) -> Option<usize> {
    scan.source.schema().index_of(&column.name).ok()
}

/// The table's column that a column of a plan is, if it is one.
fn trace<'a>(plan: &'a LogicalPlan, column: &Column) -> Option<(&'a TableScan, usize)> {
    let position = plan.schema().maybe_index_of_column(column)?;
    match plan {
        LogicalPlan::TableScan(scan) => Some((scan, column_number(scan, column)?)),
        LogicalPlan::SubqueryAlias(alias) => {
            let inner = alias.input.schema().columns().into_iter().nth(position)?;
            trace(&alias.input, &inner)
        }
        LogicalPlan::Projection(projection) => {
            let mut expr = projection.expr.get(position)?;
            while let Expr::Alias(alias) = expr {
                expr = &alias.expr;
            }
            let Expr::Column(inner) = expr else { return None };
            trace(&projection.input, inner)
        }
        LogicalPlan::Aggregate(aggregate) => {
            let Expr::Column(inner) = aggregate.group_expr.get(position)? else { return None };
            trace(&aggregate.input, inner)
        }
        LogicalPlan::Join(join) => [&join.left, &join.right]
            .into_iter()
            .find(|side| side.schema().has_column(column))
            .and_then(|side| trace(side, column)),
        LogicalPlan::Filter(_) | LogicalPlan::Sort(_) | LogicalPlan::Limit(_) => {
            trace(plan.inputs().first()?, column)
        }
        _ => None,
    }
}

fn stored(scan: &TableScan) -> Option<&StoredTable> {
    let source = scan.source.downcast_ref::<DefaultTableSource>()?;
    source.table_provider.downcast_ref::<StoredTable>()
}
