//! The frames of window functions, as the engine has them.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::logical_expr::{Operator, WindowFrame, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::expressions::{BinaryExpr, lit};
use weft_exec::Lane;
use weft_exec::program::Constant;
use weft_exec::window::{Bound, Distance, Frame, RangeKey};

use super::expressions::Expr;
use super::term::{Place, Term};
use super::window::Call;
use super::window_function::Fields;
use crate::exclusions;

const SECOND_NS: i64 = 1_000_000_000;
const DAY_NS: i128 = 86_400 * SECOND_NS as i128;

/// The frames of a function; `None` if only DataFusion finds them.
///
/// # Errors
/// Those of the key.
pub(super) fn frame(call: &Call, fields: &mut Fields<'_, '_>) -> DfResult<Option<Frame>> {
    let exclusion = call.partition_by().iter().find_map(exclusions::exclusion);
    let frame = whole(call, fields)?;
    Ok(match exclusion {
        Some(exclusion) => frame.map(|frame| Frame::Excluding(exclusion, Box::new(frame))),
        None => frame,
    })
}

fn whole(call: &Call, fields: &mut Fields<'_, '_>) -> DfResult<Option<Frame>> {
    let WindowFrame { units, start_bound, end_bound, .. } = call.get_window_frame().as_ref();
    let is_away = is_away(start_bound) || is_away(end_bound);
    Ok(match units {
        WindowFrameUnits::Rows => {
            counted(start_bound, true).zip(counted(end_bound, false)).map(rows)
        }
        WindowFrameUnits::Range if is_away => range(call, start_bound, end_bound, fields)?,
        WindowFrameUnits::Range | WindowFrameUnits::Groups => {
            counted(start_bound, true).zip(counted(end_bound, false)).map(groups)
        }
    })
}

fn rows((start, end): (Bound<u64>, Bound<u64>)) -> Frame {
    Frame::Rows(start, end)
}

fn groups((start, end): (Bound<u64>, Bound<u64>)) -> Frame {
    Frame::Groups(start, end)
}

/// True if the bound is so far from the row.
fn is_away(bound: &WindowFrameBound) -> bool {
    match bound {
        WindowFrameBound::CurrentRow => false,
        WindowFrameBound::Preceding(distance) | WindowFrameBound::Following(distance) => {
            !distance.is_null()
        }
    }
}

/// A bound so many rows or groups away.
fn counted(bound: &WindowFrameBound, is_start: bool) -> Option<Bound<u64>> {
    let count = |distance: &ScalarValue| match distance {
        ScalarValue::UInt64(Some(count)) => Ok(Some(*count)),
        _ => Ok(None),
    };
    // Counting does not fail.
    with_distance(bound, is_start, count).ok().flatten()
}

/// A bound with a distance that `known` knows.
fn with_distance<T>(
    bound: &WindowFrameBound,
    is_start: bool,
    mut known: impl FnMut(&ScalarValue) -> DfResult<Option<T>>,
) -> DfResult<Option<Bound<T>>> {
    Ok(match bound {
        WindowFrameBound::CurrentRow => Some(Bound::CurrentRow),
        WindowFrameBound::Preceding(distance) if distance.is_null() && is_start => {
            Some(Bound::Unbounded)
        }
        WindowFrameBound::Following(distance) if distance.is_null() && !is_start => {
            Some(Bound::Unbounded)
        }
        WindowFrameBound::Preceding(distance) => known(distance)?.map(Bound::Preceding),
        WindowFrameBound::Following(distance) => known(distance)?.map(Bound::Following),
    })
}

/// A frame by the distance of keys.
fn range(
    call: &Call,
    start: &WindowFrameBound,
    end: &WindowFrameBound,
    fields: &mut Fields<'_, '_>,
) -> DfResult<Option<Frame>> {
    let [key] = call.order_by() else { return Ok(None) };
    let term = fields.term(&key.expr)?;
    let mut bound = |bound: &WindowFrameBound, is_start| {
        let is_before = matches!(bound, WindowFrameBound::Preceding(_));
        with_distance(bound, is_start, |value| match distance(value, &term) {
            Some(constant) => Ok(Some(Distance::Constant(constant))),
            // The larger keys are behind, or before.
            None => limit(&key.expr, &term, value, is_before == key.options.descending, fields),
        })
    };
    let (start, end) = (bound(start, true)?, bound(end, false)?);
    let Some((start, end)) = start.zip(end) else { return Ok(None) };
    let (descending, nulls_first) = (key.options.descending, key.options.nulls_first);
    let key = RangeKey { field: fields.field(&term), descending, nulls_first };
    Ok(Some(Frame::Range { key, start, end }))
}

/// The key that is so far from a row's, where that depends on the key: months have other lengths.
fn limit(
    key: &Expr,
    term: &Term,
    distance: &ScalarValue,
    is_larger: bool,
    fields: &mut Fields<'_, '_>,
) -> DfResult<Option<Distance>> {
    let ScalarValue::IntervalMonthDayNano(Some(interval)) = distance else { return Ok(None) };
    let is_negative = interval.months < 0 || interval.days < 0 || interval.nanoseconds < 0;
    if is_negative || unit_ns(&term.data_type).is_none() {
        return Ok(None);
    }
    let op = if is_larger { Operator::Plus } else { Operator::Minus };
    let limit: Expr = Arc::new(BinaryExpr::new(key.clone(), op, lit(distance.clone())));
    let limit = fields.term(&limit)?;
    if limit.data_type != term.data_type || limit.lane != term.lane {
        return Ok(None);
    }
    Ok(Some(Distance::Field(fields.field(&limit))))
}

/// A distance of a key's values, in its lane, if it is one that is added and taken away as a number.
fn distance(value: &ScalarValue, key: &Term) -> Option<Constant> {
    let constant = match value {
        ScalarValue::IntervalMonthDayNano(Some(interval)) if interval.months == 0 => {
            let length = i128::from(interval.days) * DAY_NS + i128::from(interval.nanoseconds);
            let unit = unit_ns(&key.data_type)?;
            if length % unit != 0 {
                return None;
            }
            Constant::of_integer(length / unit, key.lane)?
        }
        value if value.data_type() == key.data_type => match Term::literal(value)?.place {
            Place::Constant(constant) if constant.lane() == key.lane => constant,
            Place::Constant(constant) => Constant::of_integer(constant.integer()?, key.lane)?,
            _ => return None,
        },
        _ => return None,
    };
    let is_number = !matches!(constant.lane(), Lane::Bool | Lane::Str);
    (is_number && !is_negative(&constant)).then_some(constant)
}

fn is_negative(constant: &Constant) -> bool {
    match constant {
        Constant::F32(value) => value.is_nan() || *value < 0.0,
        Constant::F64(value) => value.is_nan() || *value < 0.0,
        constant => constant.integer().is_none_or(|integer| integer < 0),
    }
}

/// Nanoseconds that 1 is, of a type of days or times.
fn unit_ns(data_type: &DataType) -> Option<i128> {
    match data_type {
        DataType::Date32 => Some(DAY_NS),
        DataType::Timestamp(unit, None) => Some(match unit {
            TimeUnit::Second => SECOND_NS.into(),
            TimeUnit::Millisecond => 1_000_000,
            TimeUnit::Microsecond => 1_000,
            TimeUnit::Nanosecond => 1,
        }),
        _ => None,
    }
}
