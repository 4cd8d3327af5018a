//! Functions that have steps: those that Weft puts in place of operators, parts of dates, pieces of texts.

use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, TimeUnit};
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::physical_expr::ScalarFunctionExpr;
use weft_exec::Lane;
use weft_exec::kernels::like::Pattern;
use weft_exec::program::{Arithmetic, DatePart, DateUnit, LengthUnit, Overflow, Step};

use super::arithmetic::{in_turn, numbers, rescale};
use super::bounds::Bounds;
use super::compare::{have_one_order, matches, text};
use super::expressions::{Expr, Expressions, literal};
use super::term::{Place, Term};
use crate::decimal_digits::IN_38_DIGITS;
use crate::long_sums::IN_TURN;
use crate::narrowing_casts::AS_CAST;

/// A call of a function; `None` if it has no steps.
///
/// # Errors
/// Those of [`Expressions::term`].
pub(super) fn function(
    code: &mut Expressions<'_>,
    function: &ScalarFunctionExpr,
) -> DfResult<Option<Term>> {
    let to = function.return_type();
    match (function.fun().name(), function.args()) {
        ("+", [a, b]) => numbers(code, Arithmetic::Add, a, b, to, Overflow::Error),
        ("-", [a, b]) => numbers(code, Arithmetic::Subtract, a, b, to, Overflow::Error),
        ("*", [a, b]) => numbers(code, Arithmetic::Multiply, a, b, to, Overflow::Error),
        (IN_TURN, [operators, operands @ ..]) => {
            let operators = literal(operators).and_then(text).unwrap_or_default();
            let steps = operators.chars().map(|operator| match operator {
                '-' => Arithmetic::Subtract,
                '*' => Arithmetic::Multiply,
                _ => Arithmetic::Add,
            });
            in_turn(code, &steps.collect::<Vec<_>>(), operands, to)
        }
        (AS_CAST, [arg]) => code.term(arg).map(Some),
        (IN_38_DIGITS, [arg]) => in_38_digits(code, arg),
        ("canonical", [arg]) => canonical(code, arg),
        ("whole", [arg]) => whole(code, arg, to),
        ("date_part", [part, arg]) => date_part(code, part, arg, to),
        ("substr", [arg, start]) => substring(code, arg, start, None, to),
        ("substr", [arg, start, length]) => substring(code, arg, start, Some(length), to),
        ("character_length", [arg]) => length(code, arg, LengthUnit::Characters, to),
        ("octet_length", [arg]) => length(code, arg, LengthUnit::Bytes, to),
        ("starts_with", [arg, prefix]) => match literal(prefix).and_then(text) {
            Some(prefix) => matches(code, arg, Pattern::new(&as_prefix(prefix), Some('\\')), false),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

/// A decimal that has no more digits, which its bounds may tell.
fn in_38_digits(code: &mut Expressions<'_>, arg: &Expr) -> DfResult<Option<Term>> {
    let term = code.term(arg)?;
    let end = 10i128.pow(DECIMAL128_MAX_PRECISION.into());
    let limits = Bounds { low: 1 - end, high: end - 1 };
    if term.bounds.is_some_and(|bounds| bounds.meet(limits) == bounds) || term.place == Place::Null
    {
        return Ok(Some(term));
    }
    let a = code.in_register(&term);
    code.push(Step::Digits { a, digits: DECIMAL128_MAX_PRECISION });
    Ok(Some(term.moved(a)))
}

/// A floating point number with one zero and one NaN.
fn canonical(code: &mut Expressions<'_>, arg: &Expr) -> DfResult<Option<Term>> {
    let term = code.term(arg)?;
    let (Lane::F32 | Lane::F64, Place::Register(a)) = (term.lane, &term.place) else {
        return Ok(None);
    };
    let out = code.register(term.lane);
    code.push(Step::Canonical { a: *a, out });
    Ok(Some(term.moved(out)))
}

/// A decimal rounded to a whole number.
fn whole(code: &mut Expressions<'_>, arg: &Expr, to: &DataType) -> DfResult<Option<Term>> {
    let DataType::Decimal128(_, scale @ 1..) = arg.data_type(code.schema)? else { return Ok(None) };
    if !matches!(to, DataType::Decimal128(_, 0)) {
        return Ok(None);
    }
    let term = code.term(arg)?;
    Ok(Some(Term { data_type: to.clone(), ..rescale(code, term, -scale) }))
}

fn date_part(
    code: &mut Expressions<'_>,
    part: &Expr,
    arg: &Expr,
    to: &DataType,
) -> DfResult<Option<Term>> {
    let data_type = arg.data_type(code.schema)?;
    let part = literal(part).and_then(text).map(str::to_lowercase);
    let (Some(part), Some(unit)) = (part.as_deref().and_then(part_of), unit_of(&data_type)) else {
        return Ok(None);
    };
    let is_time = matches!(part, DatePart::Hour | DatePart::Minute | DatePart::Second);
    if *to != DataType::Int32 || unit == DateUnit::Days && is_time {
        return Ok(None);
    }
    let term = code.term(arg)?;
    let Place::Register(a) = term.place else { return Ok(None) };
    let out = code.register(Lane::I32);
    code.push(Step::Extract { a, unit, part, out });
    Ok(Some(Term::new(out, Lane::I32, to, term.is_nullable)))
}

fn part_of(name: &str) -> Option<DatePart> {
    Some(match name {
        "year" => DatePart::Year,
        "quarter" => DatePart::Quarter,
        "month" => DatePart::Month,
        "week" => DatePart::Week,
        "day" => DatePart::Day,
        "doy" => DatePart::DayOfYear,
        "dow" => DatePart::DayOfWeek,
        "hour" => DatePart::Hour,
        "minute" => DatePart::Minute,
        "second" => DatePart::Second,
        _ => return None,
    })
}

fn unit_of(data_type: &DataType) -> Option<DateUnit> {
    Some(match data_type {
        DataType::Date32 => DateUnit::Days,
        DataType::Timestamp(unit, None) => match unit {
            TimeUnit::Second => DateUnit::Seconds,
            TimeUnit::Millisecond => DateUnit::Milliseconds,
            TimeUnit::Microsecond => DateUnit::Microseconds,
            TimeUnit::Nanosecond => DateUnit::Nanoseconds,
        },
        _ => return None,
    })
}

fn substring(
    code: &mut Expressions<'_>,
    arg: &Expr,
    start: &Expr,
    length: Option<&Expr>,
    to: &DataType,
) -> DfResult<Option<Term>> {
    let number = |expr: &Expr| match literal(expr) {
        Some(ScalarValue::Int64(Some(number))) => Some(*number),
        _ => None,
    };
    let length = match length {
        None => None,
        Some(length) => match number(length).and_then(|length| u64::try_from(length).ok()) {
            Some(length) => Some(length),
            None => return Ok(None),
        },
    };
    let is_text = have_one_order(&arg.data_type(code.schema)?, &DataType::Utf8);
    let Some(start) = number(start).filter(|_| is_text) else { return Ok(None) };
    let term = code.term(arg)?;
    let Place::Register(a) = term.place else { return Ok(None) };
    let out = code.register(Lane::Str);
    code.push(Step::Substring { a, start, length, out });
    Ok(Some(Term::new(out, Lane::Str, to, term.is_nullable)))
}

fn length(
    code: &mut Expressions<'_>,
    arg: &Expr,
    unit: LengthUnit,
    to: &DataType,
) -> DfResult<Option<Term>> {
    let is_text = have_one_order(&arg.data_type(code.schema)?, &DataType::Utf8);
    let lane = match (unit, to) {
        (LengthUnit::Characters, DataType::Int32) => Lane::I32,
        (LengthUnit::Bytes, DataType::Int64) => Lane::I64,
        _ => return Ok(None),
    };
    if !is_text {
        return Ok(None);
    }
    let term = code.term(arg)?;
    let Place::Register(a) = term.place else { return Ok(None) };
    let out = code.register(lane);
    code.push(Step::Length { a, unit, out });
    Ok(Some(Term::new(out, lane, to, term.is_nullable)))
}

/// The pattern of texts that begin so.
fn as_prefix(prefix: &str) -> String {
    let mut pattern = String::new();
    for character in prefix.chars() {
        if matches!(character, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern.push('%');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_taken_literally() {
        for (prefix, text, expected) in [
            ("ab", "abc", true),
            ("a%", "abc", false),
            ("a%", "a%c", true),
            ("_", "x", false),
            ("\\", "\\x", true),
            ("", "", true),
        ] {
            let pattern = Pattern::new(&as_prefix(prefix), Some('\\'));
            assert_eq!(pattern.matches(text.as_bytes()), expected, "{text} from {prefix}");
        }
    }
}
