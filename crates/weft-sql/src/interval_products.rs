//! Intervals times numbers, and divided by them, which DataFusion lacks.
//!
//! Months, days and the time are multiplied each, as in PostgreSQL: what is left of a month goes to the days, of which it
//! has 30, and what is left of a day to the time, of which it has 24 hours.

use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::types::IntervalMonthDayNano;
use datafusion::arrow::array::{ArrayRef, IntervalMonthDayNanoArray};
use datafusion::arrow::datatypes::{DataType, Float64Type, IntervalMonthDayNanoType, IntervalUnit};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DFSchema, Result as DfResult, ScalarValue, exec_err, internal_err};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

const MONTH_DAYS: f64 = 30.0;
const DAY_SECONDS: f64 = 86_400.0;
const SECOND_NS: f64 = 1e9;

/// Integers from here on may not be told from the next by a floating point number.
const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// Plans the operators as functions.
#[derive(Debug)]
pub(crate) struct IntervalProducts {
    times: Arc<ScalarUDF>,
    divided: Arc<ScalarUDF>,
}

impl IntervalProducts {
    pub(crate) fn new() -> IntervalProducts {
        let function = |divides| {
            let signature = Signature::any(2, Volatility::Immutable);
            Arc::new(ScalarUDF::from(Scaled { divides, signature }))
        };
        IntervalProducts { times: function(false), divided: function(true) }
    }
}

impl ExprPlanner for IntervalProducts {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> DfResult<PlannerResult<RawBinaryExpr>> {
        let (Ok(left), Ok(right)) = (expr.left.get_type(schema), expr.right.get_type(schema))
        else {
            return Ok(PlannerResult::Original(expr));
        };
        let is_interval = |data_type: &DataType| {
            matches!(data_type, DataType::Interval(_) | DataType::Duration(_))
        };
        let is_number = |data_type: &DataType| data_type.is_numeric() || data_type.is_null();
        let scaled = is_interval(&left) && is_number(&right);
        let (function, interval, number) = match expr.op {
            BinaryOperator::Multiply if scaled => (&self.times, expr.left, expr.right),
            BinaryOperator::Divide if scaled => (&self.divided, expr.left, expr.right),
            BinaryOperator::Multiply if is_number(&left) && is_interval(&right) => {
                (&self.times, expr.right, expr.left)
            }
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let interval = interval.cast_to(&INTERVAL, schema)?;
        let number = number.cast_to(&DataType::Float64, schema)?;
        let call: Expr = function.call(vec![interval, number]);
        Ok(PlannerResult::Planned(call))
    }
}

/// An interval times a floating point number, or divided by one.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Scaled {
    divides: bool,
    signature: Signature,
}

impl ScalarUDFImpl for Scaled {
    fn name(&self) -> &str {
        if self.divides { "interval_divided" } else { "interval_times" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(INTERVAL)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [intervals, numbers] = &arrays[..] else {
            return internal_err!("{} has two arguments", self.name());
        };
        let scaled = self.scale(intervals, numbers)?;
        let is_scalar = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&scaled, 0)?),
            false => ColumnarValue::Array(scaled),
        })
    }
}

impl Scaled {
    fn scale(&self, intervals: &ArrayRef, numbers: &ArrayRef) -> DfResult<ArrayRef> {
        let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
        let pairs = intervals.iter().zip(numbers.as_primitive::<Float64Type>());
        let scaled = pairs.map(|pair| {
            let (Some(interval), Some(number)) = pair else { return Ok(None) };
            if self.divides && number == 0.0 {
                return Err(ArrowError::DivideByZero.into());
            }
            let scaled = match self.divides {
                true => scale(interval, |part| part / number),
                false if number.fract() == 0.0 && number.abs() < INTEGER_MAX => {
                    times(interval, number as i64)
                }
                false => scale(interval, |part| part * number),
            };
            match scaled {
                Some(scaled) => Ok(Some(scaled)),
                None => exec_err!("an interval is out of range"),
            }
        });
        Ok(Arc::new(scaled.collect::<DfResult<IntervalMonthDayNanoArray>>()?))
    }
}

/// An interval times an integer; `None` if it is too long.
fn times(interval: IntervalMonthDayNano, factor: i64) -> Option<IntervalMonthDayNano> {
    let part = |part: i32| i32::try_from(i64::from(part).checked_mul(factor)?).ok();
    let nanoseconds = interval.nanoseconds.checked_mul(factor)?;
    Some(IntervalMonthDayNano::new(part(interval.months)?, part(interval.days)?, nanoseconds))
}

/// An interval whose parts are scaled; `None` if it is too long.
fn scale(
    interval: IntervalMonthDayNano,
    scale: impl Fn(f64) -> f64,
) -> Option<IntervalMonthDayNano> {
    let months = scale(f64::from(interval.months));
    let days = scale(f64::from(interval.days));
    let days_of_months = without_noise(months.fract() * MONTH_DAYS);
    let seconds = without_noise((days.fract() + days_of_months.fract()) * DAY_SECONDS);
    let days = days.trunc() + days_of_months.trunc() + (seconds / DAY_SECONDS).trunc();
    let seconds = seconds % DAY_SECONDS;
    let nanoseconds = (scale(interval.nanoseconds as f64) + seconds * SECOND_NS).round();
    let part = |part: f64| {
        (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&part).then_some(part as i32)
    };
    // The largest integer is no floating point number, the next one is.
    let fits = (i64::MIN as f64..i64::MAX as f64).contains(&nanoseconds);
    let nanoseconds = fits.then_some(nanoseconds as i64)?;
    Some(IntervalMonthDayNano::new(part(months.trunc())?, part(days)?, nanoseconds))
}

/// A number to six digits behind the point: 0.1 months are three days, not a little less.
fn without_noise(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NS: i64 = 3_600_000_000_000;

    #[test]
    fn what_is_left_of_a_part_goes_to_the_next() {
        let check = |(months, days, hours), factor: f64, expected: (i32, i32, i64)| {
            let interval = IntervalMonthDayNano::new(months, days, hours * HOUR_NS);
            let (months, days, hours) = expected;
            let expected = Some(IntervalMonthDayNano::new(months, days, hours * HOUR_NS));
            assert_eq!(scale(interval, |part| part * factor), expected, "{interval:?} * {factor}");
        };
        check((1, 0, 0), 1.5, (1, 15, 0));
        check((1, 0, 0), 0.1, (0, 3, 0));
        check((0, 1, 0), 2.5, (0, 2, 12));
        check((1, 1, 2), -0.5, (0, -15, -13));
    }

    #[test]
    fn what_is_too_long_is_nothing() {
        let interval = IntervalMonthDayNano::new(i32::MAX, 0, 0);
        assert_eq!(times(interval, 2), None);
        assert_eq!(scale(interval, |part| part * 1.5), None);
        assert_eq!(scale(interval, |part| part * f64::NAN), None);
    }
}
