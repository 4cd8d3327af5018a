//! Casts between numbers, and those that change nothing but the type.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result as DfResult;
use weft_exec::Lane;
use weft_exec::program::{Arithmetic, CastFailure, Constant, Operand, Overflow, Step};

use super::arithmetic::rescale;
use super::bounds::Bounds;
use super::compare::{have_one_order, plain};
use super::expressions::{Expr, Expressions};
use super::term::{Place, Term, in_lane};

/// Digits behind the point up to which powers of ten are exact as floating point numbers.
const EXACT_DIGITS: i8 = 22;

/// CAST, or TRY_CAST if it `is_try`; `None` if it has no steps.
///
/// # Errors
/// Those of [`Expressions::term`].
pub(super) fn cast(
    code: &mut Expressions<'_>,
    expr: &Expr,
    to: &DataType,
    is_try: bool,
) -> DfResult<Option<Term>> {
    let from = expr.data_type(code.schema)?;
    let (from, into) = (plain(&from), plain(to));
    let keeps_bytes = have_one_order(&DataType::Utf8, from)
        && have_one_order(&DataType::Utf8, into)
        || have_one_order(&DataType::Binary, from) && have_one_order(&DataType::Binary, into);
    if from == into || keeps_bytes {
        return Ok(Some(Term { data_type: to.clone(), ..code.term(expr)? }));
    }
    if to != into {
        return Ok(None);
    }
    let failure = if is_try { CastFailure::Null } else { CastFailure::Error };
    match (from, to) {
        (from, to) if is_plain_number(from) && is_plain_number(to) => {
            number(code, expr, to, failure).map(Some)
        }
        (from, DataType::Decimal128(_, scale @ 0..)) if from.is_integer() => {
            decimal(code, expr, *scale, to, is_try)
        }
        (DataType::Decimal128(_, from), DataType::Decimal128(_, scale)) => {
            decimal(code, expr, scale - from, to, is_try)
        }
        (
            DataType::Decimal128(_, scale @ 0..=EXACT_DIGITS),
            DataType::Float64 | DataType::Float32,
        ) => float(code, expr, *scale, to).map(Some),
        (DataType::Decimal128(_, 0), to) if to.is_integer() => {
            number(code, expr, to, failure).map(Some)
        }
        _ => Ok(None),
    }
}

fn is_plain_number(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(data_type, DataType::Boolean | DataType::Float32 | DataType::Float64)
}

/// A number as one of another lane.
fn number(
    code: &mut Expressions<'_>,
    expr: &Expr,
    to: &DataType,
    failure: CastFailure,
) -> DfResult<Term> {
    let term = code.term(expr)?;
    if term.place == Place::Null {
        return Ok(Term::null(to));
    }
    let lane = Lane::of(to);
    let bounds = term.bounds.filter(|bounds| bounds.fit(lane));
    if lane == term.lane {
        return Ok(Term { data_type: to.clone(), ..term });
    }
    let a = code.in_register(&term);
    let out = code.register(lane);
    code.push(Step::Cast { a, out, failure });
    let is_integer = |data_type: &DataType| Bounds::of_type(data_type).is_some();
    let cannot_fail = bounds.is_some() || !is_integer(to);
    let is_nullable = term.is_nullable || failure == CastFailure::Null && !cannot_fail;
    let cast = Term::new(out, lane, to, is_nullable);
    Ok(Term { bounds: bounds.or(cast.bounds), ..cast })
}

/// An integer or a decimal as a decimal with so many more digits behind the point; `None` if it is to be null where it
/// does not fit, and may not.
fn decimal(
    code: &mut Expressions<'_>,
    expr: &Expr,
    digits: i8,
    to: &DataType,
    is_try: bool,
) -> DfResult<Option<Term>> {
    let DataType::Decimal128(precision, _) = to else { return Ok(None) };
    let (precision, limits) = (*precision, Bounds::of_type(to));
    let fits = |term: &Term| {
        let bounds = term.bounds.and_then(|bounds| bounds.rescale(digits));
        bounds.zip(limits).is_some_and(|(bounds, limits)| bounds.meet(limits) == bounds)
    };
    if is_try && !fits(&code.outlook(expr)?) {
        return Ok(None);
    }
    let term = code.term(expr)?;
    if term.place == Place::Null {
        return Ok(Some(Term::null(to)));
    }
    let is_safe = fits(&term);
    // Decimals have 64 or 128 bits.
    let lane = match term.bounds {
        Some(bounds) if bounds.fit(Lane::I64) => Lane::I64,
        _ => Lane::I128,
    };
    let term = in_lane(code.program, term, lane);
    let term = rescale(code, term, digits);
    let term = Term { data_type: to.clone(), ..term };
    if is_safe {
        return Ok(Some(term));
    }
    let a = code.in_register(&term);
    code.push(Step::Digits { a, digits: precision });
    let bounds = match (term.bounds, limits) {
        (Some(bounds), Some(limits)) => Some(bounds.meet(limits)),
        (bounds, limits) => bounds.or(limits),
    };
    Ok(Some(Term { bounds: bounds.filter(|bounds| bounds.fit(term.lane)), ..term.moved(a) }))
}

/// A decimal with so many digits behind the point as a floating point number.
fn float(code: &mut Expressions<'_>, expr: &Expr, scale: i8, to: &DataType) -> DfResult<Term> {
    let term = code.term(expr)?;
    if term.place == Place::Null {
        return Ok(Term::null(to));
    }
    let a = code.in_register(&term);
    let mut float = code.register(Lane::F64);
    code.push(Step::Cast { a, out: float, failure: CastFailure::Error });
    if scale > 0 {
        let quotient = code.register(Lane::F64);
        code.push(Step::Arithmetic {
            op: Arithmetic::Divide,
            a: Operand::Register(float),
            b: Operand::Constant(Constant::F64(10f64.powi(scale.into()))),
            out: quotient,
            overflow: Overflow::Impossible,
        });
        float = quotient;
    }
    if *to == DataType::Float32 {
        let narrow = code.register(Lane::F32);
        code.push(Step::Cast { a: float, out: narrow, failure: CastFailure::Error });
        float = narrow;
    }
    Ok(Term::new(float, Lane::of(to), to, term.is_nullable))
}
