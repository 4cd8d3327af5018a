//! Samples in a plan.
//!
//! Each row gets a key, a random number between 0 and 1: BERNOULLI and SYSTEM keep the rows whose key is below the percentage, a number of
//! rows is those with the lowest keys, and so is the share of a reservoir. With a seed, the key follows from the row and from its number among
//! the rows that are equal to it, so that neither the order of rows nor the number of threads matters.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result as DfResult, ScalarValue};
use datafusion::functions::math::expr_fn::random;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, Filter, LogicalPlan, LogicalPlanBuilder, WindowFunctionDefinition, cast,
    lit,
};

use super::SAMPLE;
use super::key::sample_key;
use crate::error::{ErrorKind, SqlError};

/// The column of the keys.
const KEY: &str = "__sample_key";

/// How many rows a sample has.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Amount {
    /// Those whose key is below.
    Chance(f64),
    /// This share of all.
    Share(f64),
    Rows(usize),
}

/// A sample.
#[derive(Clone, Debug, PartialEq)]
struct Sample {
    amount: Amount,
    seed: Option<i64>,
}

/// Puts what chooses rows in place of the conditions that are samples.
///
/// # Errors
/// For amounts that no sample has.
pub(crate) fn planned(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    let planned = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Filter(filter) = node else { return Ok(Transformed::no(node)) };
        match filter.predicate.exists(|expr| Ok(is_sample(expr)))? {
            true => Ok(Transformed::yes(sampled(filter)?)),
            false => Ok(Transformed::no(LogicalPlan::Filter(filter))),
        }
    })?;
    Ok(planned.data)
}

fn is_sample(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(function) if function.func.name() == SAMPLE)
}

fn sampled(filter: Filter) -> DfResult<LogicalPlan> {
    let conditions = split_conjunction_owned(filter.predicate);
    let (samples, rest): (Vec<Expr>, Vec<Expr>) = conditions.into_iter().partition(is_sample);
    let mut plan = filter.input.as_ref().clone();
    for sample in samples {
        let Expr::ScalarFunction(call) = sample else { continue };
        plan = Sample::of(&call.args)?.of_rows(plan)?;
    }
    match conjunction(rest) {
        Some(rest) => LogicalPlanBuilder::from(plan).filter(rest)?.build(),
        None => Ok(plan),
    }
}

impl Sample {
    fn of(arguments: &[Expr]) -> DfResult<Sample> {
        let [method, amount, unit, seed] = arguments else { return Err(bad_amount("it").into()) };
        let method =
            literal(method).and_then(|value| value.try_as_str().flatten().map(str::to_owned));
        let unit = literal(unit).and_then(|value| value.try_as_str().flatten().map(str::to_owned));
        let number = number(amount).ok_or_else(|| bad_amount(&amount.to_string()))?;
        let is_percent = unit.as_deref() == Some("PERCENT");
        let amount = match (method.as_deref(), is_percent) {
            (_, true) if !(0.0..=100.0).contains(&number) => {
                return Err(SqlError::new(
                    ErrorKind::Semantic,
                    format!("a sample has between 0 and 100 percent, not {number}"),
                )
                .into());
            }
            (Some("ROW"), true) => Amount::Share(number / 100.0),
            (_, true) => Amount::Chance(number / 100.0),
            (Some("ROW"), false) if number >= 0.0 && number.fract() == 0.0 && number < 1e15 => {
                Amount::Rows(number as usize)
            }
            (Some("ROW"), false) => return Err(bad_amount(&number.to_string()).into()),
            (method, false) => {
                let method = method.unwrap_or_default().to_lowercase();
                let message =
                    format!("a sample by {method} has a percentage, not a number of rows");
                return Err(SqlError::new(ErrorKind::Semantic, message)
                    .with_hint("write reservoir(n ROWS), or n PERCENT")
                    .into());
            }
        };
        let seed = match literal(seed) {
            Some(value) if value.is_null() => None,
            _ => Some(self::number(seed).ok_or_else(|| bad_amount(&seed.to_string()))? as i64),
        };
        Ok(Sample { amount, seed })
    }

    /// A sample of a plan's rows.
    fn of_rows(&self, plan: LogicalPlan) -> DfResult<LogicalPlan> {
        let columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        let plan = self.with_keys(plan, &columns)?;
        let key = || Expr::Column(Column::from_name(KEY));
        let builder = LogicalPlanBuilder::from(plan);
        let builder = match self.amount {
            Amount::Chance(share) => builder.filter(key().lt(lit(share)))?,
            Amount::Rows(rows) => builder.sort([key().sort(true, false)])?.limit(0, Some(rows))?,
            Amount::Share(share) => {
                let place = row_number().order_by(vec![key().sort(true, false)]).build()?;
                let count = WindowFunctionDefinition::AggregateUDF(count_udaf());
                let count = Expr::from(WindowFunction::new(count, vec![lit(1_i64)]));
                let plan = builder.window([place])?.window([count])?.build()?;
                let mut added = plan.schema().columns().into_iter().map(Expr::Column).rev();
                let (Some(count), Some(place)) = (added.next(), added.next()) else {
                    return Err(bad_amount("it").into());
                };
                let wanted = cast(count, DataType::Float64) * lit(share);
                let kept = cast(place, DataType::Float64) - lit(0.5);
                LogicalPlanBuilder::from(plan).filter(kept.lt_eq(wanted))?
            }
        };
        builder.project(columns)?.build()
    }

    fn with_keys(&self, plan: LogicalPlan, columns: &[Expr]) -> DfResult<LogicalPlan> {
        let mut keyed = columns.to_vec();
        let Some(seed) = self.seed else {
            keyed.push(random().alias(KEY));
            return LogicalPlanBuilder::from(plan).project(keyed)?.build();
        };
        let number = row_number().partition_by(columns.to_vec()).build()?;
        let plan = LogicalPlanBuilder::from(plan).window([number])?.build()?;
        let number = plan.schema().columns().pop().map(Expr::Column);
        let arguments = [lit(seed)].into_iter().chain(number).chain(columns.iter().cloned());
        keyed.push(sample_key().call(arguments.collect()).alias(KEY));
        LogicalPlanBuilder::from(plan).project(keyed)?.build()
    }
}

fn literal(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value),
        Expr::Cast(cast) => literal(&cast.expr),
        _ => None,
    }
}

/// The number that an argument is.
fn number(expr: &Expr) -> Option<f64> {
    if let Expr::Negative(inner) = expr {
        return number(inner).map(|number| -number);
    }
    match literal(expr)?.cast_to(&DataType::Float64).ok()? {
        ScalarValue::Float64(number) => number,
        _ => None,
    }
}

fn bad_amount(what: &str) -> SqlError {
    SqlError::new(
        ErrorKind::Semantic,
        format!("a sample has a number of rows or a percentage, not {what}"),
    )
    .with_hint("USING SAMPLE 100 ROWS, or USING SAMPLE 10 PERCENT (bernoulli)")
}
