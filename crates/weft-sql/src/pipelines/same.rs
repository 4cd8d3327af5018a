//! Whether the rows of one plan hold those of another: the same rows, of which the other may want fewer columns.
//!
//! Columns are told by what they are, not by their numbers: scans of the same table that read other columns, and joins
//! that pass on others, are the same as far as the columns go that both have. Whatever an expression looks at is
//! therefore put in terms of the one plan's columns before it is compared.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::physical_planning_context::SubqueryIndex;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::windows::BoundedWindowAggExec;

use super::expressions::Expr;
use super::join::{self, JoinColumn, Joining};
use super::translate::{column_of, passed};
use super::{window, window_function};
use crate::exclusions::exclusion;
use crate::grouping_sets::key_of;
use crate::parquet_scan::ParquetScanExec;
use crate::plan_node::Plan;
use crate::scan::ScanExec;

/// For each column of a plan, the column of another one that is the same, if that has it.
pub(super) type Columns = Vec<Option<usize>>;

/// Subqueries that stand for the same values as others: those of one node with the same plan, and meanwhile those of
/// two nodes that are being compared.
#[derive(Debug, Default)]
pub(super) struct Same {
    subqueries: Vec<(Expr, Expr)>,
}

/// The identity of a node for as long as the plan lives.
pub(super) fn address(plan: &Plan) -> usize {
    Arc::as_ptr(plan).cast::<()>() as usize
}

/// Numbers of nodes by their addresses: those of plans that hold each other's rows are equal.
pub(super) fn fingerprint(plan: &Plan, known: &mut HashMap<usize, u64>) -> u64 {
    let mut children: Vec<u64> =
        plan.children().into_iter().map(|child| fingerprint(child, known)).collect();
    let is_passed_by = plan.fetch().is_none() && (passed(plan).is_some() || picked(plan).is_some());
    let fingerprint = match children.pop() {
        Some(input) if is_passed_by => input,
        last => {
            let mut hasher = DefaultHasher::new();
            (plan.name(), plan.fetch(), &children, last).hash(&mut hasher);
            if let Some(scan) = plan.downcast_ref::<ScanExec>() {
                (Arc::as_ptr(scan.table()) as usize, scan.conditions().len()).hash(&mut hasher);
            }
            if let Some(scan) = plan.downcast_ref::<ParquetScanExec>() {
                scan.scan().files.iter().for_each(|file| file.place.path().hash(&mut hasher));
            }
            hasher.finish()
        }
    };
    known.insert(address(plan), fingerprint);
    fingerprint
}

/// The input of a projection of columns, and which they are.
fn picked(plan: &Plan) -> Option<(&Plan, Vec<usize>)> {
    let projection = plan.downcast_ref::<ProjectionExec>()?;
    let columns: Option<Vec<usize>> =
        projection.expr().iter().map(|expr| column_of(&expr.expr)).collect();
    Some((projection.input(), columns?))
}

/// True for a projection that computes nothing.
pub(super) fn picks_columns(plan: &Plan) -> bool {
    picked(plan).is_some()
}

/// A plan without the nodes that change nothing but which columns there are, and its columns.
fn bare(mut plan: &Plan) -> (&Plan, Vec<usize>) {
    let mut columns: Vec<usize> = (0..plan.schema().fields().len()).collect();
    while plan.fetch().is_none() {
        if let Some(input) = passed(plan) {
            plan = input;
        } else if let Some((input, picked)) = picked(plan) {
            columns.iter_mut().for_each(|column| *column = picked[*column]);
            plan = input;
        } else {
            break;
        }
    }
    (plan, columns)
}

/// The same columns as before, as if none were missing.
fn all(width: usize) -> Columns {
    (0..width).map(Some).collect()
}

impl Same {
    /// Finds the subqueries of a plan that stand for the same values.
    pub(super) fn of(plan: &Plan) -> Same {
        let mut same = Same::default();
        same.collect(plan);
        same
    }

    fn collect(&mut self, plan: &Plan) {
        plan.children().into_iter().for_each(|child| self.collect(child));
        let Some(node) = plan.downcast_ref::<ScalarSubqueryExec>() else { return };
        for (at, link) in node.subqueries().iter().enumerate() {
            let earlier = &node.subqueries()[..at];
            let first = earlier.iter().find(|first| self.holds(&first.plan, &link.plan).is_some());
            if let Some(first) = first {
                let value = |number| subquery(node, number);
                self.subqueries.push((value(link.index), value(first.index)));
            }
        }
    }

    /// The columns of `plan` that those of `other` are, if it has the same rows and all the columns.
    pub(super) fn holds(&mut self, plan: &Plan, other: &Plan) -> Option<Vec<usize>> {
        self.columns(plan, other)?.into_iter().collect()
    }

    /// The columns of `a` that those of `b` are, if they have the same rows.
    fn columns(&mut self, a: &Plan, b: &Plan) -> Option<Columns> {
        let ((a, of_a), (b, of_b)) = (bare(a), bare(b));
        let same = self.node(a, b)?;
        let column = |column: &usize| {
            let column = same[*column]?;
            of_a.iter().position(|known| *known == column)
        };
        Some(of_b.iter().map(column).collect())
    }

    /// As [`Same::columns`] for nodes that do something.
    fn node(&mut self, a: &Plan, b: &Plan) -> Option<Columns> {
        if a.name() != b.name() || a.fetch() != b.fetch() {
            return None;
        }
        if let (Some(a), Some(b)) = both::<ScanExec>(a, b) {
            let is_same = Arc::ptr_eq(a.table(), b.table())
                && a.conditions() == b.conditions()
                && !b.has_row_ids();
            let column = |column: &usize| a.projection().iter().position(|known| known == column);
            return is_same.then(|| b.projection().iter().map(column).collect());
        }
        if let (Some(a), Some(b)) = both::<ParquetScanExec>(a, b) {
            let (a, b) = (a.scan(), b.scan());
            let column = |column: &usize| a.projection.iter().position(|known| known == column);
            return a.has_same_rows(b).then(|| b.projection.iter().map(column).collect());
        }
        if a.is::<EmptyExec>() || a.is::<PlaceholderRowExec>() {
            return (a.schema() == b.schema()).then(|| all(width(a)));
        }
        if let (Some(a), Some(b)) = both::<ScalarSubqueryExec>(a, b) {
            return self.with_subqueries(a, b);
        }
        if let (Some(a), Some(b)) = (join::joining(a), join::joining(b)) {
            return self.join(&a, &b);
        }
        if a.is::<UnionExec>() || a.is::<InterleaveExec>() {
            return self.union(&a.children(), &b.children());
        }
        let ([input_a], [input_b]) = (&a.children()[..], &b.children()[..]) else { return None };
        let of_input = self.columns(input_a, input_b)?;
        if let (Some(a), Some(b)) = both::<FilterExec>(a, b) {
            self.is_same(a.predicate(), b.predicate(), &of_input).then_some(())?;
            return Some(projected(
                (a.projection().as_deref(), b.projection().as_deref()),
                &of_input,
            ));
        }
        if let (Some(a), Some(b)) = both::<ProjectionExec>(a, b) {
            let same = |b: &Expr| a.expr().iter().position(|a| self.is_same(&a.expr, b, &of_input));
            return Some(b.expr().iter().map(|b| same(&b.expr)).collect());
        }
        if let (Some(a), Some(b)) = both::<AggregateExec>(a, b) {
            return self.groups(a, b, &of_input);
        }
        if let (Some(a), Some(b)) = both::<SortExec>(a, b) {
            let is_same = a.preserve_partitioning() == b.preserve_partitioning();
            return (is_same && self.is_order_same(a.expr(), b.expr(), &of_input))
                .then_some(of_input);
        }
        if let (Some(a), Some(b)) = both::<SortPreservingMergeExec>(a, b) {
            return self.is_order_same(a.expr(), b.expr(), &of_input).then_some(of_input);
        }
        if let (Some(a), Some(b)) = both::<GlobalLimitExec>(a, b) {
            return (a.skip() == b.skip()).then_some(of_input);
        }
        if a.is::<LocalLimitExec>() {
            return Some(of_input);
        }
        windows(a, b, &of_input)
    }

    /// The rows of nodes whose subqueries have the same plans, whatever places their values have.
    fn with_subqueries(
        &mut self,
        a: &ScalarSubqueryExec,
        b: &ScalarSubqueryExec,
    ) -> Option<Columns> {
        let known = self.subqueries.len();
        for link in b.subqueries() {
            let links = a.subqueries().iter();
            let mut links = links.filter(|of_a| self.holds(&of_a.plan, &link.plan).is_some());
            if let Some(first) = links.next() {
                let pair = (subquery(b, link.index), subquery(a, first.index));
                drop(links);
                self.subqueries.push(pair);
            }
        }
        let columns = self.columns(a.input(), b.input());
        self.subqueries.truncate(known);
        columns
    }

    fn join(&mut self, a: &Joining<'_>, b: &Joining<'_>) -> Option<Columns> {
        if a.join_type != b.join_type || a.nulls != b.nulls || a.keys.len() != b.keys.len() {
            return None;
        }
        let left = self.columns(a.left, b.left)?;
        let right = self.columns(a.right, b.right)?;
        let is_key_same = |(a, b): (&(Expr, Expr), &(Expr, Expr))| {
            self.is_same(&a.0, &b.0, &left) && self.is_same(&a.1, &b.1, &right)
        };
        if !a.keys.iter().zip(b.keys).all(is_key_same) {
            return None;
        }
        let among = |columns: Vec<JoinColumn>, column: JoinColumn| {
            let column = match column {
                JoinColumn::Left(column) => JoinColumn::Left(left[column]?),
                JoinColumn::Right(column) => JoinColumn::Right(right[column]?),
                JoinColumn::Mark => JoinColumn::Mark,
            };
            columns.iter().position(|known| *known == column)
        };
        match (a.filter, b.filter) {
            (None, None) => {}
            (Some(of_a), Some(of_b)) => {
                let (known, wanted) = (a.filter_columns().ok()?, b.filter_columns().ok()?);
                let columns: Columns =
                    wanted.into_iter().map(|column| among(known.clone(), column)).collect();
                self.is_same(of_a.expression(), of_b.expression(), &columns).then_some(())?;
            }
            _ => return None,
        }
        let known = a.columns();
        Some(b.columns().into_iter().map(|column| among(known.clone(), column)).collect())
    }

    /// Branches that all have the same columns.
    fn union(&mut self, a: &[&Plan], b: &[&Plan]) -> Option<Columns> {
        if a.len() != b.len() {
            return None;
        }
        let branches: Option<Vec<Columns>> =
            a.iter().zip(b).map(|(a, b)| self.columns(a, b)).collect();
        let branches = branches?;
        let (first, others) = branches.split_first()?;
        let is_same = |column: usize| others.iter().all(|other| other[column] == first[column]);
        Some((0..first.len()).map(|column| first[column].filter(|_| is_same(column))).collect())
    }

    /// The groups by the same keys; some functions may be missing.
    fn groups(&self, a: &AggregateExec, b: &AggregateExec, input: &Columns) -> Option<Columns> {
        let (by_a, by_b) = (a.group_expr(), b.group_expr());
        let has_sets = by_a.has_grouping_set();
        let of = |keys: &[(Expr, String)]| -> Vec<Expr> {
            keys.iter().map(|(key, _)| key.clone()).collect()
        };
        let (keys_a, keys_b) = (of(by_a.expr()), of(by_b.expr()));
        if a.mode() != b.mode()
            || has_sets != by_b.has_grouping_set()
            || by_a.groups() != by_b.groups()
            || keys_a.len() != keys_b.len()
        {
            return None;
        }
        let position = |key: &Expr| keys_a.iter().position(|known| self.is_same(known, key, input));
        let keys: Option<Vec<usize>> = keys_b.iter().map(position).collect();
        let mut keys = keys?;
        if has_sets {
            // What is null in which set goes by the numbers of keys.
            let in_order = keys.iter().enumerate().all(|(number, key)| number == *key);
            (in_order && of(by_a.null_expr()) == of(by_b.null_expr())).then_some(())?;
            keys.push(keys.len());
        } else if (0..keys.len()).any(|key| !keys.contains(&key)) {
            return None;
        }
        let width = keys.len();
        let of_a: Vec<_> = a.aggr_expr().iter().zip(a.filter_expr()).collect();
        let functions = b.aggr_expr().iter().zip(b.filter_expr()).map(|(function, filter)| {
            let place = of_a.iter().position(|(known, of_known)| {
                let is_filter_same = match (of_known, filter) {
                    (None, None) => true,
                    (Some(a), Some(b)) => self.is_same(a, b, input),
                    _ => false,
                };
                is_filter_same && self.is_function_same(known, function, input)
            });
            place.map(|place| width + place)
        });
        Some(keys.iter().copied().map(Some).chain(functions).collect())
    }

    fn is_function_same(
        &self,
        a: &AggregateFunctionExpr,
        b: &AggregateFunctionExpr,
        columns: &Columns,
    ) -> bool {
        let (args_a, args_b) = (a.expressions(), b.expressions());
        a.fun() == b.fun()
            && args_a.len() == args_b.len()
            && args_a.iter().zip(&args_b).all(|(a, b)| self.is_same(a, b, columns))
            && (a.is_distinct(), a.ignore_nulls(), a.is_reversed())
                == (b.is_distinct(), b.ignore_nulls(), b.is_reversed())
            && self.is_order_same(a.order_bys(), b.order_bys(), columns)
    }

    fn is_order_same(
        &self,
        a: &[PhysicalSortExpr],
        b: &[PhysicalSortExpr],
        columns: &Columns,
    ) -> bool {
        let is_key_same = |(a, b): (&PhysicalSortExpr, &PhysicalSortExpr)| {
            a.options == b.options && self.is_same(&a.expr, &b.expr, columns)
        };
        a.len() == b.len() && a.iter().zip(b).all(is_key_same)
    }

    /// True if two expressions have the same values, where `columns` are those that the columns of `b` are among those of
    /// `a`'s input.
    fn is_same(&self, a: &Expr, b: &Expr, columns: &Columns) -> bool {
        let own = |column: usize| Some(column);
        let other = |column: usize| columns[column];
        let (Some(one), Some(other)) = (self.nameless(a, own), self.nameless(b, other)) else {
            return false;
        };
        let is_volatile = is_volatile(&one);
        let (one, other): (&dyn PhysicalExpr, &dyn PhysicalExpr) = (one.as_ref(), other.as_ref());
        one == other && !is_volatile
    }

    /// An expression over other columns, whose names do not count, and over the first of the subqueries with the same
    /// values.
    fn nameless(&self, expr: &Expr, column: impl Fn(usize) -> Option<usize>) -> Option<Expr> {
        let mut is_complete = true;
        let renamed = expr.clone().transform(|expr| {
            if let Some(number) = column_of(&expr) {
                let Some(number) = column(number) else {
                    is_complete = false;
                    return Ok(Transformed::no(expr));
                };
                return Ok(Transformed::yes(Arc::new(Column::new("", number)) as Expr));
            }
            if let Some(key) = key_of(&expr) {
                return Ok(Transformed::yes(key.clone()));
            }
            if expr.is::<ScalarSubqueryExpr>() {
                let mut first = &expr;
                // Of two nodes first, then of one.
                for (later, earlier) in self.subqueries.iter().rev() {
                    if later == first {
                        first = earlier;
                    }
                }
                return Ok(Transformed::yes(first.clone()));
            }
            Ok(Transformed::no(expr))
        });
        renamed.ok().filter(|_| is_complete).map(|renamed| renamed.data)
    }
}

/// The value of a subquery.
fn subquery(node: &ScalarSubqueryExec, index: SubqueryIndex) -> Expr {
    let results = node.results().clone();
    // Its type does not count where it is compared.
    Arc::new(ScalarSubqueryExpr::new(DataType::Null, true, index, results))
}

/// Both plans as nodes of a kind.
fn both<'a, T: ExecutionPlan + 'static>(
    a: &'a Plan,
    b: &'a Plan,
) -> (Option<&'a T>, Option<&'a T>) {
    (a.downcast_ref::<T>(), b.downcast_ref::<T>())
}

fn width(plan: &Plan) -> usize {
    plan.schema().fields().len()
}

/// The columns of an input that are passed on, if not all are.
fn projected((of_a, of_b): (Option<&[usize]>, Option<&[usize]>), input: &Columns) -> Columns {
    let place = |column: usize| match of_a {
        Some(of_a) => of_a.iter().position(|known| *known == column),
        None => Some(column),
    };
    match of_b {
        Some(of_b) => of_b.iter().map(|column| input[*column].and_then(place)).collect(),
        None => input.iter().map(|column| column.and_then(place)).collect(),
    }
}

/// Nodes with window functions, which have everything they are in words. The words number the columns, so what the
/// functions look at must have the same numbers.
fn windows(a: &Plan, b: &Plan, input: &Columns) -> Option<Columns> {
    let (of_a, of_b) = (window::calls(a)?, window::calls(b)?);
    let mode = |plan: &Plan| {
        let node = plan.downcast_ref::<BoundedWindowAggExec>();
        node.map(|node| node.input_order_mode.clone())
    };
    let has_numbers = |call: &window::Call| {
        window_function::columns(call)
            .is_some_and(|columns| columns.into_iter().all(|at| input[at] == Some(at)))
    };
    let is_stable = |call: &window::Call| {
        let keys = call.order_by().iter().map(|key| &key.expr);
        let exprs = call.expressions();
        let partition = call.partition_by().iter().filter(|key| exclusion(key).is_none());
        !exprs.iter().chain(partition).chain(keys).any(is_volatile)
    };
    if mode(a) != mode(b) || !of_b.iter().all(|call| has_numbers(call) && is_stable(call)) {
        return None;
    }
    let words: Vec<String> = of_a.iter().map(|call| format!("{call:?}")).collect();
    let first = width(a) - words.len();
    let results = of_b.iter().map(|call| {
        let call = format!("{call:?}");
        Some(first + words.iter().position(|known| *known == call)?)
    });
    Some(input.iter().copied().chain(results).collect())
}
