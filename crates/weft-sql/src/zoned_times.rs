//! Points in time in the session's time zone: with `SET timezone`, the text, the date, the parts and the local time of a
//! TIMESTAMP WITH TIME ZONE are those that clocks show there, and text and local times are read as such.
//!
//! In plans and tables, points in time are of the zone UTC. Where the zone matters, a cast changes it.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result as DfResult};
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, TryCast, lit,
};
use datafusion::optimizer::AnalyzerRule;

use crate::at_time_zone::at_time_zone;
use crate::plan_walk::rewrite_expressions;
use crate::types::ZONE;

/// Functions that look at what clocks show.
const LOCAL: [&str; 4] = ["date_part", "date_trunc", "to_char", "date_bin"];

/// Puts casts to the session's time zone around what depends on it. To be applied after types were coerced.
#[derive(Debug)]
pub(crate) struct ZonedTimes;

impl AnalyzerRule for ZonedTimes {
    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> DfResult<LogicalPlan> {
        let Some(zone) = zone_of(options) else { return Ok(plan) };
        rewrite_expressions(plan, |expr, schema| rewrite(expr, schema, &zone))
    }

    fn name(&self) -> &str {
        "zoned_times"
    }
}

/// The rows of a plan, with points in time in the session's time zone.
///
/// # Errors
/// None that are known of.
pub(crate) fn shown(plan: LogicalPlan, options: &ConfigOptions) -> DfResult<LogicalPlan> {
    let Some(zone) = zone_of(options) else { return Ok(plan) };
    let is_zoned = |data_type: &DataType| of_zone(data_type).is_some();
    let is_query = !matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_));
    if !is_query || !plan.schema().fields().iter().any(|field| is_zoned(field.data_type())) {
        return Ok(plan);
    }
    let columns: Vec<Expr> = plan
        .schema()
        .iter()
        .map(|(table, field)| {
            let column = Expr::Column(Column::from((table, field)));
            match of_zone(field.data_type()) {
                Some(unit) => in_zone(column, unit, &zone).alias(field.name()),
                None => column,
            }
        })
        .collect();
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}

/// The session's time zone, if it is another one than points in time have.
fn zone_of(options: &ConfigOptions) -> Option<Arc<str>> {
    let zone = options.execution.time_zone.as_deref()?;
    (!matches!(zone, ZONE | "+00:00" | "Z")).then(|| zone.into())
}

/// The unit of a type of points in time.
fn of_zone(data_type: &DataType) -> Option<TimeUnit> {
    match data_type {
        DataType::Timestamp(unit, Some(zone)) if zone.as_ref() == ZONE => Some(*unit),
        _ => None,
    }
}

fn in_zone(expr: Expr, unit: TimeUnit, zone: &Arc<str>) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr), DataType::Timestamp(unit, Some(Arc::clone(zone)))))
}

fn rewrite(expr: Expr, schema: &DFSchema, zone: &Arc<str>) -> DfResult<Transformed<Expr>> {
    match expr {
        Expr::Cast(Cast { expr: inner, field }) => {
            let (inner, changed) = cast(*inner, field.data_type(), schema, zone, false);
            let cast = Expr::Cast(Cast { expr: Box::new(inner), field });
            Ok(if changed { Transformed::yes(cast) } else { Transformed::no(cast) })
        }
        Expr::TryCast(TryCast { expr: inner, field }) => {
            let (inner, changed) = cast(*inner, field.data_type(), schema, zone, true);
            let cast = Expr::TryCast(TryCast { expr: Box::new(inner), field });
            Ok(if changed { Transformed::yes(cast) } else { Transformed::no(cast) })
        }
        Expr::ScalarFunction(mut call) if LOCAL.contains(&call.func.name()) => {
            let mut unit = None;
            for arg in &mut call.args {
                if let Some(found) = arg.get_type(schema).ok().as_ref().and_then(of_zone) {
                    *arg = in_zone(arg.clone(), found, zone);
                    unit = Some(found);
                }
            }
            let is_time = matches!(call.func.name(), "date_trunc" | "date_bin");
            let call = Expr::ScalarFunction(call);
            Ok(match unit {
                Some(unit) if is_time => Transformed::yes(in_zone(call, unit, &ZONE.into())),
                Some(_) => Transformed::yes(call),
                None => Transformed::no(call),
            })
        }
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::Plus | Operator::Minus),
            right,
        }) => {
            let types = (left.get_type(schema), right.get_type(schema));
            let (Ok(time), Ok(DataType::Interval(_))) = types else {
                return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })));
            };
            let Some(unit) = of_zone(&time) else {
                return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })));
            };
            let left = Box::new(in_zone(*left, unit, zone));
            let moved = Expr::BinaryExpr(BinaryExpr { left, op, right });
            Ok(Transformed::yes(in_zone(moved, unit, &ZONE.into())))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// What is cast to a type, by way of the session's time zone where that makes a difference.
fn cast(
    inner: Expr,
    to: &DataType,
    schema: &DFSchema,
    zone: &Arc<str>,
    is_try: bool,
) -> (Expr, bool) {
    let Ok(from) = inner.get_type(schema) else { return (inner, false) };
    let is_local = |data_type: &DataType| {
        let is_date = matches!(data_type, DataType::Date32 | DataType::Date64);
        let is_time = matches!(data_type, DataType::Time32(_) | DataType::Time64(_));
        data_type.is_string()
            || is_date
            || is_time
            || matches!(data_type, DataType::Timestamp(_, None))
    };
    if of_zone(&from).is_some() && matches!(to, DataType::Timestamp(_, None)) {
        // Arrow's cast gives what clocks show in UTC.
        return (at_time_zone().call(vec![lit(zone.as_ref()), inner]), true);
    }
    if let Some(unit) = of_zone(&from).filter(|_| is_local(to)) {
        return (in_zone(inner, unit, zone), true);
    }
    if let Some(unit) = of_zone(to).filter(|_| is_local(&from)) {
        let to_zone = DataType::Timestamp(unit, Some(Arc::clone(zone)));
        let inner = match from {
            DataType::Date32 | DataType::Date64 => {
                Expr::Cast(Cast::new(Box::new(inner), DataType::Timestamp(unit, None)))
            }
            _ => inner,
        };
        let inner = Box::new(inner);
        let zoned = match is_try {
            true => Expr::TryCast(TryCast::new(inner, to_zone)),
            false => Expr::Cast(Cast::new(inner, to_zone)),
        };
        return (zoned, true);
    }
    (inner, false)
}
