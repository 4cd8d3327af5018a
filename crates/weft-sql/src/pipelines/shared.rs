//! Aggregations that occur more than once in a plan, as those of a common table expression do: they run once, and their
//! groups are stored for all who read them.

use std::sync::{Arc, OnceLock};

use datafusion::common::Result as DfResult;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::UnionExec;
use weft_exec::Lane;
use weft_exec::program::Step;
use weft_exec::sink::Store;
use weft_exec::source::StoredTuples;
use weft_exec::tuple::{Layout, Materialized};

use super::expressions::Expr;
use super::open::Open;
use super::stored::{Stored, StoredTerm};
use super::translate::{Translator, passed};
use crate::plan_node::Plan;
use crate::scan::ScanExec;

/// Most aggregations of a plan that are compared with each other.
const COMPARED_MAX: usize = 256;

/// What occurs more than once in a plan.
#[derive(Debug, Default)]
pub(super) struct SharedPlans {
    plans: Vec<SharedPlan>,
}

#[derive(Debug)]
struct SharedPlan {
    plan: Plan,
    uses: usize,
    rows: Option<SharedRows>,
}

/// The rows of a plan, once it was translated.
#[derive(Clone, Debug)]
struct SharedRows {
    stored: Arc<OnceLock<Materialized>>,
    layout: Arc<Layout>,
    columns: Vec<StoredTerm>,
    /// The pipelines that store them.
    after: Vec<usize>,
}

impl SharedPlans {
    /// Those of a plan.
    pub(super) fn of(plan: &Plan) -> SharedPlans {
        let mut shared = SharedPlans::default();
        shared.collect(plan);
        shared.plans.retain(|plan| plan.uses > 1);
        shared
    }

    fn collect(&mut self, plan: &Plan) {
        if plan.is::<AggregateExec>() {
            if let Some(known) = self.plans.iter_mut().find(|known| is_same(&known.plan, plan)) {
                known.uses += 1;
                // What it consists of is translated with the first one.
                return;
            }
            if self.plans.len() < COMPARED_MAX {
                self.plans.push(SharedPlan { plan: plan.clone(), uses: 1, rows: None });
            }
        }
        plan.children().into_iter().for_each(|child| self.collect(child));
    }

    fn position(&self, plan: &Plan) -> Option<usize> {
        self.plans.iter().position(|shared| is_same(&shared.plan, plan))
    }
}

/// The rows of an aggregation that occurs more than once, which `translate` translates; `None` if it does not.
///
/// # Errors
/// Those of `translate`.
pub(super) fn shared(
    translator: &mut Translator,
    plan: &Plan,
    translate: impl FnOnce(&mut Translator) -> DfResult<Open>,
) -> Option<DfResult<Open>> {
    let position = translator.shared.position(plan)?;
    let rows = match translator.shared.plans[position].rows.clone() {
        Some(rows) => rows,
        None => match translate(translator).and_then(|open| store(translator, open)) {
            Ok(rows) => translator.shared.plans[position].rows.insert(rows).clone(),
            Err(error) => return Some(Err(error)),
        },
    };
    Some(Ok(read(&rows)))
}

/// Stores the rows of a pipeline.
fn store(translator: &mut Translator, open: Open) -> DfResult<SharedRows> {
    let mut open = translator.unwindowed(open)?;
    open.begin_sink();
    let mut stored = Stored::default();
    let columns = open.columns.iter().map(|term| stored.add(term)).collect();
    let (layout, fields) = stored.finish();
    let hash = open.program.register(Lane::U64);
    open.program.steps.push(Step::Fill { value: None, out: hash });
    let sink = Store::new(layout.clone(), fields, hash);
    let stored = sink.stored();
    let after = open.close(Box::new(sink), "shared rows", &mut translator.closed);
    Ok(SharedRows { stored, layout, columns, after })
}

/// Reads them.
fn read(rows: &SharedRows) -> Open {
    let source = Box::new(StoredTuples::new(rows.stored.clone()));
    let mut tuples = None;
    let mut open = Open::new(source, "shared rows", &[Lane::U64], |registers| {
        tuples = registers.first().copied();
        Vec::new()
    });
    if let Some(tuples) = tuples {
        let load = |term: &StoredTerm| term.load(&mut open.program, tuples, &rows.layout);
        open.columns = rows.columns.iter().map(load).collect();
    }
    open.after(&rows.after)
}

/// True if two plans give the same rows. False for all nodes but those that common table expressions usually have, and
/// for what gives other rows each time.
fn is_same(a: &Plan, b: &Plan) -> bool {
    let (a, b) = (bare(a), bare(b));
    if a.name() != b.name() || a.fetch() != b.fetch() || !is_node_same(a, b) {
        return false;
    }
    let (of_a, of_b) = (a.children(), b.children());
    of_a.len() == of_b.len() && of_a.into_iter().zip(of_b).all(|(a, b)| is_same(a, b))
}

/// A plan without the nodes that change nothing.
fn bare(mut plan: &Plan) -> &Plan {
    while let (None, Some(input)) = (plan.fetch(), passed(plan)) {
        plan = input;
    }
    plan
}

fn is_node_same(a: &Plan, b: &Plan) -> bool {
    if let (Some(a), Some(b)) = (a.downcast_ref::<ScanExec>(), b.downcast_ref::<ScanExec>()) {
        return Arc::ptr_eq(a.table(), b.table())
            && a.projection() == b.projection()
            && a.conditions() == b.conditions();
    }
    if let (Some(a), Some(b)) = (a.downcast_ref::<FilterExec>(), b.downcast_ref::<FilterExec>()) {
        return a.projection() == b.projection() && is_expr_same(a.predicate(), b.predicate());
    }
    if let (Some(a), Some(b)) =
        (a.downcast_ref::<ProjectionExec>(), b.downcast_ref::<ProjectionExec>())
    {
        let exprs = |node: &ProjectionExec| -> Vec<Expr> {
            node.expr().iter().map(|expr| expr.expr.clone()).collect()
        };
        return are_same(&exprs(a), &exprs(b));
    }
    if let (Some(a), Some(b)) =
        (a.downcast_ref::<AggregateExec>(), b.downcast_ref::<AggregateExec>())
    {
        return is_aggregate_same(a, b);
    }
    if let (Some(a), Some(b)) = (a.downcast_ref::<HashJoinExec>(), b.downcast_ref::<HashJoinExec>())
    {
        return is_join_same(a, b);
    }
    // Nothing but their inputs make them what they are.
    a.is::<CrossJoinExec>() || a.is::<UnionExec>()
}

fn is_aggregate_same(a: &AggregateExec, b: &AggregateExec) -> bool {
    let keys = |node: &AggregateExec| -> Vec<Expr> {
        let by = node.group_expr();
        by.expr().iter().chain(by.null_expr()).map(|(expr, _)| expr.clone()).collect()
    };
    let (by_a, by_b) = (a.group_expr(), b.group_expr());
    let functions = a.aggr_expr().iter().zip(b.aggr_expr());
    let filters = a.filter_expr().iter().zip(b.filter_expr());
    a.mode() == b.mode()
        && by_a.groups() == by_b.groups()
        && by_a.has_grouping_set() == by_b.has_grouping_set()
        && are_same(&keys(a), &keys(b))
        && a.aggr_expr().len() == b.aggr_expr().len()
        && functions.into_iter().all(|(a, b)| {
            let orders = a.order_bys().iter().zip(b.order_bys());
            a.fun() == b.fun()
                && are_same(&a.expressions(), &b.expressions())
                && (a.is_distinct(), a.ignore_nulls(), a.is_reversed())
                    == (b.is_distinct(), b.ignore_nulls(), b.is_reversed())
                && a.order_bys().len() == b.order_bys().len()
                && orders
                    .into_iter()
                    .all(|(a, b)| a.options == b.options && is_expr_same(&a.expr, &b.expr))
        })
        && filters.into_iter().all(|(a, b)| is_optional_same(a.as_ref(), b.as_ref()))
}

fn is_join_same(a: &HashJoinExec, b: &HashJoinExec) -> bool {
    let keys = |node: &HashJoinExec| -> Vec<Expr> {
        node.on().iter().flat_map(|(left, right)| [left.clone(), right.clone()]).collect()
    };
    let condition =
        |filter: &JoinFilter| (filter.column_indices().to_vec(), filter.schema().clone());
    let expression =
        |node: &'_ HashJoinExec| node.filter().map(|filter| filter.expression().clone());
    a.join_type() == b.join_type()
        && a.null_equality() == b.null_equality()
        && a.null_aware == b.null_aware
        && a.projection == b.projection
        && are_same(&keys(a), &keys(b))
        && a.filter().map(condition) == b.filter().map(condition)
        && is_optional_same(expression(a).as_ref(), expression(b).as_ref())
}

fn is_optional_same(a: Option<&Expr>, b: Option<&Expr>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => is_expr_same(a, b),
        (None, None) => true,
        _ => false,
    }
}

fn are_same(a: &[Expr], b: &[Expr]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_expr_same(a, b))
}

fn is_expr_same(a: &Expr, b: &Expr) -> bool {
    let (one, other): (&dyn PhysicalExpr, &dyn PhysicalExpr) = (a.as_ref(), b.as_ref());
    one == other && !is_volatile(a)
}
