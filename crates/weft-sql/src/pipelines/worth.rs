//! Whether it is worth the while to keep the rows of a part of a plan that occurs twice. The unit is what it takes to
//! read a value of a row that is in memory; everything else is a rough multiple of that, by the rows that statistics let expect.

use datafusion::logical_expr::Operator;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::expressions::{BinaryExpr, NotExpr};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use super::expressions::Expr;
use super::join::{self, Joining};
use super::translate::{column_of, passed};
use super::window;
use crate::plan_node::Plan;
use crate::scan::ScanExec;

/// Rows of what nothing is known of.
const UNKNOWN_ROWS: f64 = 1_000.0;
/// The part of the rows that a condition keeps of which nothing is known.
const UNKNOWN_PART: f64 = 0.2;
/// What it takes to decode a value and to try a condition on it, for each row of a table.
const SCAN: f64 = 1.0;
const FILTER: f64 = 1.0;
const EXPRESSION: f64 = 2.0;
const GROUP: f64 = 6.0;
const BUILD: f64 = 8.0;
const PROBE: f64 = 4.0;
const SORT: f64 = 16.0;
const WINDOW: f64 = 20.0;
/// What it takes to store a row, and each of its values, and to have them again.
const STORE: f64 = 4.0;
const STORE_VALUE: f64 = 2.0;
const READ: f64 = 1.0;
const READ_VALUE: f64 = 1.0;

/// The part of the rows that a condition keeps, about.
fn kept(condition: &Expr) -> f64 {
    if let Some(not) = condition.downcast_ref::<NotExpr>() {
        return 1.0 - kept(not.arg());
    }
    let Some(binary) = condition.downcast_ref::<BinaryExpr>() else { return UNKNOWN_PART };
    match binary.op() {
        Operator::And => kept(binary.left()) * kept(binary.right()),
        Operator::Or => (kept(binary.left()) + kept(binary.right())).min(1.0),
        Operator::Eq => 0.05,
        Operator::NotEq => 0.9,
        _ => UNKNOWN_PART,
    }
}

/// What is expected of the nodes of a plan.
#[derive(Default)]
pub(super) struct Worth {
    statistics: StatisticsContext,
}

impl Worth {
    /// True if storing the rows of a plan and reading them twice takes less than computing them twice does. Groups are stored
    /// anyway.
    pub(super) fn is_worth(&self, plan: &Plan) -> bool {
        if plan.is::<AggregateExec>() {
            return true;
        }
        let values = plan.schema().fields().len() as f64;
        let (store, read) = (STORE + STORE_VALUE * values, READ + READ_VALUE * values);
        self.rows(plan) * (store + 2.0 * read) < self.cost(plan)
    }

    /// Rows to be expected.
    pub(super) fn rows(&self, plan: &Plan) -> f64 {
        let statistics = self.statistics.compute(plan.as_ref(), &StatisticsArgs::new());
        let rows = statistics.ok().and_then(|known| known.num_rows.get_value().copied());
        let rows = match rows {
            Some(rows) => rows as f64,
            // As many as the largest of its inputs has.
            None => {
                let inputs = plan.children().into_iter().map(|input| self.rows(input));
                inputs.reduce(f64::max).unwrap_or(UNKNOWN_ROWS)
            }
        };
        // DataFusion takes few rows for kept of what it knows nothing of.
        let rows = match plan.downcast_ref::<FilterExec>() {
            Some(filter) => rows.max(self.rows(filter.input()) * kept(filter.predicate())),
            None => rows,
        };
        plan.fetch().map_or(rows, |fetch| rows.min(fetch as f64))
    }

    /// What it takes to compute the rows once.
    fn cost(&self, plan: &Plan) -> f64 {
        let inputs: f64 = plan.children().into_iter().map(|input| self.cost(input)).sum();
        inputs + self.own_cost(plan)
    }

    /// The same for what a node does itself.
    fn own_cost(&self, plan: &Plan) -> f64 {
        let input = || plan.children().first().map_or(0.0, |input| self.rows(input));
        if let Some(scan) = plan.downcast_ref::<ScanExec>() {
            let conditions = scan.conditions().len() as f64 * scan.table().rows() as f64;
            return SCAN * (conditions + self.rows(plan) * scan.projection().len() as f64);
        }
        if passed(plan).is_some() {
            return 0.0;
        }
        if let Some(joining) = join::joining(plan) {
            return self.of_join(&joining, self.rows(plan));
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let computed = projection.expr().iter().filter(|expr| column_of(&expr.expr).is_none());
            return EXPRESSION * computed.count() as f64 * input();
        }
        if let Some(sort) = plan.downcast_ref::<SortExec>() {
            return if sort.fetch().is_some() { FILTER * input() } else { SORT * input() };
        }
        let each = match () {
            () if plan.is::<FilterExec>() => FILTER,
            () if plan.is::<AggregateExec>() => GROUP,
            () if window::calls(plan).is_some() => WINDOW,
            () if plan.is::<SortPreservingMergeExec>() => 1.0,
            () => 0.0,
        };
        each * input()
    }

    fn of_join(&self, joining: &Joining<'_>, rows: f64) -> f64 {
        let [build, probe] = [joining.left, joining.right].map(|input| self.rows(input));
        let pairs = if joining.keys.is_empty() { build * probe } else { rows };
        BUILD * build + PROBE * probe + FILTER * pairs
    }
}
