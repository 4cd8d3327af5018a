//! A date and an interval with a time of day make a timestamp: DataFusion drops the time.
//!
//! A date minus a date is a difference of numbers: DataFusion takes it for a duration where it estimates how many rows a
//! condition leaves.
//!
//! A date plus whole days, months or years stays a date, as the conditions of queries on dates want it.

use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DfResult, ScalarValue};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, cast};
use datafusion::optimizer::AnalyzerRule;

use crate::plan_walk::rewrite_expressions;

/// Nanoseconds of a day.
const DAY_NS: i64 = 86_400_000_000_000;

/// Casts the dates. To be applied before types are coerced.
#[derive(Debug)]
pub(crate) struct DateTimes;

impl AnalyzerRule for DateTimes {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_expressions(plan, rewrite)
    }

    fn name(&self) -> &str {
        "date_times"
    }
}

fn rewrite(expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else {
        return Ok(Transformed::no(expr));
    };
    let is_date =
        |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Date32 | DataType::Date64));
    let timestamp =
        |date: Expr| Box::new(cast(date, DataType::Timestamp(TimeUnit::Microsecond, None)));
    let is_day = |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Date32));
    let days = |date: Expr| Box::new(cast(cast(date, DataType::Int32), DataType::Int64));
    let (left, right, changed) = match op {
        Operator::Minus if is_day(&left) && is_day(&right) => (days(*left), days(*right), true),
        Operator::Plus | Operator::Minus if is_date(&left) && has_time(&right, schema) => {
            (timestamp(*left), right, true)
        }
        Operator::Plus if is_date(&right) && has_time(&left, schema) => {
            (left, timestamp(*right), true)
        }
        _ => (left, right, false),
    };
    let expr = Expr::BinaryExpr(BinaryExpr { left, op, right });
    Ok(Transformed::new_transformed(expr, changed))
}

/// True of an interval that may not be whole days.
fn has_time(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(value)), _) => {
            value.nanoseconds % DAY_NS != 0
        }
        Expr::Literal(ScalarValue::IntervalDayTime(Some(value)), _) => {
            i64::from(value.milliseconds) % (DAY_NS / 1_000_000) != 0
        }
        Expr::Literal(..) => false,
        other => matches!(
            other.get_type(schema),
            Ok(DataType::Interval(IntervalUnit::MonthDayNano | IntervalUnit::DayTime))
        ),
    }
}
