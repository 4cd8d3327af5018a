//! Arithmetic. Decimals lie in 64 bits as long as bounds say that they fit, and are only checked where they may not.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result as DfResult;
use datafusion::logical_expr::Operator;
use weft_exec::Lane;
use weft_exec::program::{Arithmetic, Constant, Overflow, Step};

use super::bounds::Bounds;
use super::expressions::{Expr, Expressions};
use super::term::{Place, Term, in_lane};

/// The step that an operator is.
fn step(op: Operator) -> Option<Arithmetic> {
    Some(match op {
        Operator::Plus => Arithmetic::Add,
        Operator::Minus => Arithmetic::Subtract,
        Operator::Multiply => Arithmetic::Multiply,
        Operator::Divide => Arithmetic::Divide,
        Operator::Modulo => Arithmetic::Remainder,
        Operator::BitwiseAnd => Arithmetic::BitAnd,
        Operator::BitwiseOr => Arithmetic::BitOr,
        Operator::BitwiseXor => Arithmetic::BitXor,
        _ => return None,
    })
}

/// An operator of DataFusion's, whose integers wrap; `None` if no step computes with values of these types.
///
/// # Errors
/// Those of [`Expressions::term`].
pub(super) fn arithmetic(
    code: &mut Expressions<'_>,
    op: Operator,
    left: &Expr,
    right: &Expr,
    data_type: &DataType,
) -> DfResult<Option<Term>> {
    let Some(op) = step(op) else { return Ok(None) };
    let types = [left.data_type(code.schema)?, right.data_type(code.schema)?];
    match (&types, data_type) {
        ([DataType::Decimal128(..), DataType::Decimal128(..)], DataType::Decimal128(..)) => {
            decimals(code, op, left, right, data_type)
        }
        ([a, b], out) if a == out && b == out => {
            let is_float = matches!(out, DataType::Float32 | DataType::Float64);
            let is_bitwise =
                matches!(op, Arithmetic::BitAnd | Arithmetic::BitOr | Arithmetic::BitXor);
            if !(out.is_integer() || is_float && !is_bitwise) {
                return Ok(None);
            }
            numbers(code, op, left, right, data_type, Overflow::Impossible)
        }
        _ => Ok(None),
    }
}

/// Numbers of one type, no decimals; `None` for those of less than 32 bits.
///
/// # Errors
/// Those of [`Expressions::term`].
pub(super) fn numbers(
    code: &mut Expressions<'_>,
    op: Arithmetic,
    left: &Expr,
    right: &Expr,
    data_type: &DataType,
    overflow: Overflow,
) -> DfResult<Option<Term>> {
    if Lane::of(data_type).width() < size_of::<i32>() {
        return Ok(None);
    }
    let (left, right) = (code.term(left)?, code.term(right)?);
    Ok(Some(number(code, op, (&left, &right), data_type, overflow)))
}

/// Numbers of one type, no decimals, of 32 bits at least, computed from left to right; `None` for others.
///
/// # Errors
/// Those of [`Expressions::term`].
pub(super) fn in_turn(
    code: &mut Expressions<'_>,
    operators: &[Arithmetic],
    operands: &[Expr],
    data_type: &DataType,
) -> DfResult<Option<Term>> {
    let Some((first, rest)) = operands.split_first() else { return Ok(None) };
    if Lane::of(data_type).width() < size_of::<i32>() {
        return Ok(None);
    }
    let overflow = if data_type.is_integer() { Overflow::Error } else { Overflow::Impossible };
    let mut computed = code.term(first)?;
    for (op, operand) in operators.iter().zip(rest) {
        let operand = code.term(operand)?;
        computed = number(code, *op, (&computed, &operand), data_type, overflow);
    }
    Ok(Some(computed))
}

fn number(
    code: &mut Expressions<'_>,
    op: Arithmetic,
    (left, right): (&Term, &Term),
    data_type: &DataType,
    overflow: Overflow,
) -> Term {
    let lane = Lane::of(data_type);
    if left.place == Place::Null || right.place == Place::Null {
        return Term::null(data_type);
    }
    let computed = bounds(op, left, right).filter(|bounds| bounds.fit(lane));
    // Only a division by -1 overflows, which bounds know nothing of.
    let is_division = matches!(op, Arithmetic::Divide | Arithmetic::Remainder);
    let overflow = match (is_division, computed) {
        (true, _) => Overflow::Error,
        (false, Some(_)) => Overflow::Impossible,
        (false, None) => overflow,
    };
    let (a, b) = (code.operand(left), code.operand(right));
    let out = code.register(lane);
    code.push(Step::Arithmetic { op, a, b, out, overflow });
    let term = Term::new(out, lane, data_type, left.is_nullable || right.is_nullable);
    Term { bounds: computed.or(term.bounds), ..term }
}

fn bounds(op: Arithmetic, left: &Term, right: &Term) -> Option<Bounds> {
    let (left, right) = (left.bounds?, right.bounds?);
    match op {
        Arithmetic::Add => left.add(right),
        Arithmetic::Subtract => left.subtract(right),
        Arithmetic::Multiply => left.multiply(right),
        _ => None,
    }
}

/// Decimals; `None` for operators that have no step.
fn decimals(
    code: &mut Expressions<'_>,
    op: Arithmetic,
    left: &Expr,
    right: &Expr,
    data_type: &DataType,
) -> DfResult<Option<Term>> {
    let scale = |data_type: &DataType| match data_type {
        DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    };
    let (left, right) = (code.term(left)?, code.term(right)?);
    if left.place == Place::Null || right.place == Place::Null {
        return Ok(Some(Term::null(data_type)));
    }
    let (left, right) = match op {
        Arithmetic::Multiply
            if scale(data_type) == scale(&left.data_type) + scale(&right.data_type) =>
        {
            (left, right)
        }
        Arithmetic::Add | Arithmetic::Subtract | Arithmetic::Remainder => {
            let digits = |term: &Term| scale(data_type).checked_sub(scale(&term.data_type));
            match (digits(&left), digits(&right)) {
                (Some(a @ 0..), Some(b @ 0..)) => (rescale(code, left, a), rescale(code, right, b)),
                _ => return Ok(None),
            }
        }
        _ => return Ok(None),
    };
    let computed = match op {
        Arithmetic::Remainder => left.bounds.map(|bounds| bounds.join(Bounds::of(0))),
        _ => bounds(op, &left, &right),
    };
    let both = [Some(&left), Some(&right)].map(|term| term.and_then(|term| term.bounds));
    let is_narrow = both
        .iter()
        .chain([&computed])
        .all(|bounds| bounds.is_some_and(|bounds| bounds.fit(Lane::I64)));
    let lane = if is_narrow { Lane::I64 } else { Lane::I128 };
    let overflow = if computed.is_some() { Overflow::Impossible } else { Overflow::Error };
    let left = in_lane(code.program, left, lane);
    let right = in_lane(code.program, right, lane);
    let (a, b) = (code.operand(&left), code.operand(&right));
    let out = code.register(lane);
    code.push(Step::Arithmetic { op, a, b, out, overflow });
    let term = Term::new(out, lane, data_type, left.is_nullable || right.is_nullable);
    Ok(Some(Term { bounds: computed, ..term }))
}

/// A whole number with so many digits more behind the point, or so many taken away, rounded half away from zero. It
/// keeps its type.
pub(super) fn rescale(code: &mut Expressions<'_>, term: Term, digits: i8) -> Term {
    if digits == 0 || term.place == Place::Null {
        return term;
    }
    let bounds = term.bounds.and_then(|bounds| bounds.rescale(digits));
    let is_narrow = |bounds: Option<Bounds>| bounds.is_some_and(|bounds| bounds.fit(Lane::I64));
    let lane = if is_narrow(bounds) && is_narrow(term.bounds) { Lane::I64 } else { Lane::I128 };
    if digits > 0
        && let (Place::Constant(_), Some(bounds)) = (&term.place, bounds)
    {
        let constant = match lane {
            Lane::I64 => Constant::I64(bounds.low as i64),
            _ => Constant::I128(bounds.low),
        };
        return Term { place: Place::Constant(constant), lane, bounds: Some(bounds), ..term };
    }
    let overflow = if bounds.is_some() { Overflow::Impossible } else { Overflow::Error };
    let term = in_lane(code.program, term, lane);
    let a = code.in_register(&term);
    let out = code.register(lane);
    code.push(Step::Rescale { a, digits, out, overflow });
    Term { bounds, ..term.moved(out) }
}
