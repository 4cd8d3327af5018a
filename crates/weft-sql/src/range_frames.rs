//! The distances of RANGE frames, checked against what rows are ordered by: DataFusion reads the number of a distance
//! from a date as months, and starts the frames of texts and booleans with the partition.
//!
//! Numbers have distances that are numbers, whole ones between integers (as no integer lies between, others are the same as one of their
//! neighbours), dates and timestamps have intervals, dates also whole numbers of days. Structs have none:
//! frames between their peers are those of GROUPS, as DataFusion looks for distances even so.

use datafusion::arrow::array::types::IntervalMonthDayNano;
use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DfResult, ScalarValue, plan_err};
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, WindowFrame, WindowFrameBound, WindowFrameUnits,
};
use datafusion::optimizer::AnalyzerRule;

use crate::intervals;
use crate::plan_walk::rewrite_expressions;
use crate::types::type_name;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// Checks distances, and gives dates intervals. To be applied before types are coerced, which makes distances of whatever
/// type rows are ordered by.
#[derive(Debug)]
pub(crate) struct RangeFrames;

impl AnalyzerRule for RangeFrames {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_expressions(plan, rewrite)
    }

    fn name(&self) -> &str {
        "range_frames"
    }
}

fn rewrite(expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    let Expr::WindowFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
    let params = &mut call.params;
    let frame = &mut params.window_frame;
    let ([key], WindowFrameUnits::Range) = (&params.order_by[..], frame.units) else {
        return Ok(Transformed::no(Expr::WindowFunction(call)));
    };
    let mut changed = false;
    for (bound, is_end) in [(&mut frame.start_bound, false), (&mut frame.end_bound, true)] {
        let is_following = matches!(bound, WindowFrameBound::Following(_));
        if let WindowFrameBound::Preceding(distance) | WindowFrameBound::Following(distance) = bound
            && let ScalarValue::Utf8(Some(text)) = distance
        {
            let key = key.expr.get_type(schema)?;
            if let Some(interval) = checked(text, &key)? {
                *distance = ScalarValue::IntervalMonthDayNano(Some(interval));
                changed = true;
            } else if key.is_integer()
                && let Some(whole) = between_integers(text, is_following != is_end)
            {
                *distance = ScalarValue::Utf8(Some(whole));
                changed = true;
            }
        }
    }
    if matches!(key.expr.get_type(schema)?, DataType::Struct(_))
        && let (Some(start), Some(end)) = (of_peers(&frame.start_bound), of_peers(&frame.end_bound))
    {
        *frame = WindowFrame::new_bounds(WindowFrameUnits::Groups, start, end);
        changed = true;
    }
    Ok(Transformed::new_transformed(Expr::WindowFunction(call), changed))
}

/// A bound of RANGE that goes by peers alone, as GROUPS has it.
fn of_peers(bound: &WindowFrameBound) -> Option<WindowFrameBound> {
    let unbounded = ScalarValue::UInt64(None);
    match bound {
        WindowFrameBound::CurrentRow => Some(WindowFrameBound::CurrentRow),
        WindowFrameBound::Preceding(none) if none.is_null() => {
            Some(WindowFrameBound::Preceding(unbounded))
        }
        WindowFrameBound::Following(none) if none.is_null() => {
            Some(WindowFrameBound::Following(unbounded))
        }
        _ => None,
    }
}

/// The whole distance that lets the same integers in, for one that is not written as a whole number; the next larger one for bounds that
/// leave rows near by out.
fn between_integers(text: &str, leaves_near_out: bool) -> Option<String> {
    let text = text.trim();
    let distance: f64 = text.parse().ok().filter(|_| text.contains('.'))?;
    let whole = if leaves_near_out { distance.ceil() } else { distance.floor() };
    // Larger ones are not exact.
    (0.0..f64::from(1 << 30)).contains(&whole).then(|| format!("{whole:.0}"))
}

/// The interval that a distance between dates or timestamps is; none between numbers.
fn checked(text: &str, key: &DataType) -> DfResult<Option<IntervalMonthDayNano>> {
    let is_number = text.trim().parse::<f64>().is_ok();
    let name = type_name(key);
    match key {
        DataType::Null => Ok(None),
        key if key.is_numeric() => match is_number {
            true => Ok(None),
            false => plan_err!(
                "RANGE with the distance '{text}' over {name}: the distance between numbers is a number"
            ),
        },
        DataType::Date32 | DataType::Date64 if is_number => match text.trim().parse() {
            Ok(days) => Ok(Some(IntervalMonthDayNano::new(0, days, 0))),
            Err(_) => plan_err!(
                "RANGE with the distance {text} over DATE: it is a whole number of days, at most \
                 {}, or an interval",
                i32::MAX
            ),
        },
        DataType::Timestamp(..) if is_number => plan_err!(
            "RANGE with the distance {text} over {name}: the distance between timestamps is an \
             interval, as in INTERVAL '1 day'"
        ),
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => {
            let interval = match ScalarValue::try_from_string(text.to_owned(), &INTERVAL) {
                Ok(ScalarValue::IntervalMonthDayNano(Some(interval))) => interval,
                _ => return plan_err!("RANGE with the distance '{text}': it is no interval"),
            };
            match intervals::length(interval) < 0 {
                true => plan_err!("RANGE with the distance '{text}': it cannot be negative"),
                false => Ok(Some(interval)),
            }
        }
        _ => plan_err!(
            "RANGE with a distance orders rows by a number, a date or a timestamp, not by {name}: \
             ROWS and GROUPS count rows and their peers"
        ),
    }
}
