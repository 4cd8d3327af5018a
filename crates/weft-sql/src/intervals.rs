//! Intervals are compared by their lengths: a day has 24 hours, a month 30 days, as in PostgreSQL and DuckDB.
//! DataFusion compares months first, then days, so that 25 hours are less than a day.
//!
//! What compares or sorts intervals has their [`Length`]s instead. Grouping keys stay as they are: a day and 24 hours
//! are two of them.

use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::types::IntervalMonthDayNano;
use datafusion::arrow::array::{ArrayRef, Decimal128Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::arity::unary;
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, IntervalMonthDayNanoType, IntervalUnit, i256,
};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DfResult};
use datafusion::logical_expr::expr::Sort as SortKey;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use crate::one_argument::compute_one;
use crate::plan_walk::rewrite_expressions;

const HOURS_NS: i128 = 3_600_000_000_000;
const DAY_NS: i128 = 24 * HOURS_NS;
const MONTH_NS: i128 = 30 * DAY_NS;

/// Nanoseconds of an interval.
const LENGTH: DataType = DataType::Decimal128(38, 0);

/// The length of an interval and the interval itself, ordered by length.
pub(crate) const EXACT_LENGTH: DataType = DataType::Decimal256(76, 0);

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// Puts lengths in place of intervals. To be applied after types were coerced.
#[derive(Debug)]
pub(crate) struct Intervals {
    length: Arc<ScalarUDF>,
}

impl Intervals {
    pub(crate) fn new() -> Intervals {
        let signature = Signature::any(1, Volatility::Immutable);
        Intervals { length: Arc::new(ScalarUDF::from(Length { signature })) }
    }

    fn length(&self, expr: Expr) -> Expr {
        self.length.call(vec![expr])
    }

    fn lengths<'a>(&self, exprs: impl IntoIterator<Item = &'a mut Expr>) {
        for expr in exprs {
            *expr = self.length(std::mem::take(expr));
        }
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
        Ok(match expr {
            Expr::BinaryExpr(mut binary)
                if compares(binary.op)
                    && is_interval(&binary.left, schema)
                    && is_interval(&binary.right, schema) =>
            {
                self.lengths([&mut *binary.left, &mut *binary.right]);
                Transformed::yes(Expr::BinaryExpr(binary))
            }
            Expr::Between(mut between) if is_interval(&between.expr, schema) => {
                self.lengths([&mut *between.expr, &mut *between.low, &mut *between.high]);
                Transformed::yes(Expr::Between(between))
            }
            Expr::InList(mut list) if is_interval(&list.expr, schema) => {
                self.lengths(std::iter::once(&mut *list.expr).chain(&mut list.list));
                Transformed::yes(Expr::InList(list))
            }
            Expr::Case(mut case) => {
                let tested = case.expr.as_deref_mut();
                let of_intervals = tested.as_ref().is_some_and(|expr| is_interval(expr, schema));
                if of_intervals {
                    let whens = case.when_then_expr.iter_mut().map(|(when, _)| &mut **when);
                    self.lengths(tested.into_iter().chain(whens));
                }
                Transformed::new_transformed(Expr::Case(case), of_intervals)
            }
            Expr::AggregateFunction(mut call) => {
                let changed = self.sort_by_lengths(&mut call.params.order_by, schema);
                Transformed::new_transformed(Expr::AggregateFunction(call), changed)
            }
            other => Transformed::no(other),
        })
    }

    fn rewrite_keys(&self, plan: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
        let schema = merge_schema(&plan.inputs());
        Ok(match plan {
            LogicalPlan::Sort(mut sort) => {
                let changed = self.sort_by_lengths(&mut sort.expr, &schema);
                Transformed::new_transformed(LogicalPlan::Sort(sort), changed)
            }
            LogicalPlan::Join(mut join) => {
                let mut changed = false;
                for (left, right) in &mut join.on {
                    if is_interval(left, &schema) && is_interval(right, &schema) {
                        changed |= self.compare_length(left, &schema);
                        changed |= self.compare_length(right, &schema);
                    }
                }
                Transformed::new_transformed(LogicalPlan::Join(join), changed)
            }
            other => Transformed::no(other),
        })
    }

    fn sort_by_lengths(&self, keys: &mut [SortKey], schema: &DFSchema) -> bool {
        keys.iter_mut()
            .fold(false, |changed, key| self.compare_length(&mut key.expr, schema) | changed)
    }

    /// Puts its length in place of an interval; false if it is none.
    fn compare_length(&self, expr: &mut Expr, schema: &DFSchema) -> bool {
        let found = is_interval(expr, schema);
        if found {
            *expr = self.length(std::mem::take(expr));
        }
        found
    }
}

impl AnalyzerRule for Intervals {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        let plan = rewrite_expressions(plan, |expr, schema| self.rewrite(expr, schema))?;
        Ok(plan.transform_up_with_subqueries(|plan| self.rewrite_keys(plan))?.data)
    }

    fn name(&self) -> &str {
        "intervals"
    }
}

/// Puts lengths in place of the intervals that order the rows of windows. To be applied before types are coerced: then,
/// DataFusion refuses the frame that such a window has.
#[derive(Debug)]
pub(crate) struct IntervalWindows {
    intervals: Intervals,
}

impl IntervalWindows {
    pub(crate) fn new() -> IntervalWindows {
        IntervalWindows { intervals: Intervals::new() }
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
        let Expr::WindowFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
        let mut changed = self.intervals.sort_by_lengths(&mut call.params.order_by, schema);
        for key in &mut call.params.partition_by {
            changed |= self.intervals.compare_length(key, schema);
        }
        Ok(Transformed::new_transformed(Expr::WindowFunction(call), changed))
    }
}

impl AnalyzerRule for IntervalWindows {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_expressions(plan, |expr, schema| self.rewrite(expr, schema))
    }

    fn name(&self) -> &str {
        "interval_windows"
    }
}

fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Interval(_)))
}

/// The length of an interval in nanoseconds.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Length {
    signature: Signature,
}

impl ScalarUDFImpl for Length {
    fn name(&self) -> &str {
        "interval_length"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(LENGTH)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        compute_one(self.name(), &args.args, lengths)
    }
}

/// How long an interval is, in nanoseconds.
pub(crate) fn length(interval: IntervalMonthDayNano) -> i128 {
    i128::from(interval.months) * MONTH_NS
        + i128::from(interval.days) * DAY_NS
        + i128::from(interval.nanoseconds)
}

fn lengths(intervals: &ArrayRef) -> DfResult<ArrayRef> {
    let intervals = cast(intervals, &INTERVAL)?;
    let lengths: Decimal128Array =
        unary::<IntervalMonthDayNanoType, _, Decimal128Type>(intervals.as_primitive(), length);
    Ok(Arc::new(lengths.with_data_type(LENGTH)))
}

/// Intervals as numbers of the order of their lengths, each another one.
pub(crate) fn exact_lengths(intervals: &ArrayRef) -> DfResult<ArrayRef> {
    let exact = |interval: IntervalMonthDayNano| {
        let months = u128::from(interval.months.cast_unsigned()) << 96;
        let days = u128::from(interval.days.cast_unsigned()) << 64;
        let nanoseconds = u128::from(interval.nanoseconds.cast_unsigned());
        i256::from_parts(months | days | nanoseconds, length(interval))
    };
    let intervals = cast(intervals, &INTERVAL)?;
    let lengths =
        unary::<IntervalMonthDayNanoType, _, Decimal256Type>(intervals.as_primitive(), exact);
    Ok(Arc::new(lengths.with_data_type(EXACT_LENGTH)))
}

/// The intervals that [`exact_lengths`] made numbers of.
pub(crate) fn of_exact_lengths(lengths: &ArrayRef) -> ArrayRef {
    let interval = |exact: i256| {
        let (bits, length) = exact.to_parts();
        let months = ((bits >> 96) as u32).cast_signed();
        let days = ((bits >> 64) as u32).cast_signed();
        let rest = length - i128::from(months) * MONTH_NS - i128::from(days) * DAY_NS;
        IntervalMonthDayNano::new(months, days, rest as i64)
    };
    Arc::new(unary::<Decimal256Type, _, IntervalMonthDayNanoType>(lengths.as_primitive(), interval))
}
