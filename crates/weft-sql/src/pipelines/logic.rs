//! NOT, AND, OR and CASE, and the conditions of filters.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result as DfResult;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CaseExpr};
use weft_exec::Lane;
use weft_exec::program::{Constant, Register, Step};

use super::bounds::Bounds;
use super::compare;
use super::expressions::{Expr, Expressions, is_costly};
use super::term::{Place, Term, common_lane, in_lane};

/// Keeps the tuples for which a condition is true. Of conditions that are joined by AND, the later ones are only
/// evaluated where the earlier ones are true.
///
/// # Errors
/// Those of [`Expressions::term`].
pub(super) fn filter(code: &mut Expressions<'_>, condition: &Expr) -> DfResult<()> {
    if let Some(binary) = condition.downcast_ref::<BinaryExpr>()
        && *binary.op() == Operator::And
    {
        filter(code, binary.left())?;
        return filter(code, binary.right());
    }
    let term = code.term(condition)?;
    if term.place == Place::Constant(Constant::Bool(true)) {
        return Ok(());
    }
    let condition = code.in_register(&term);
    code.push(Step::Filter { condition });
    Ok(())
}

/// NOT.
///
/// # Errors
/// Those of [`Expressions::term`].
pub(super) fn not(code: &mut Expressions<'_>, arg: &Expr) -> DfResult<Term> {
    let term = code.term(arg)?;
    Ok(match &term.place {
        Place::Null => term,
        Place::Constant(constant) => Term::truth(*constant == Constant::Bool(false)),
        Place::Register(a) => {
            let out = code.register(Lane::Bool);
            code.push(Step::Not { a: *a, out });
            term.moved(out)
        }
    })
}

/// AND.
///
/// # Errors
/// Those of [`Expressions::term`].
pub(super) fn and(code: &mut Expressions<'_>, left: &Expr, right: &Expr) -> DfResult<Term> {
    junction(code, left, right, false)
}

/// OR.
///
/// # Errors
/// Those of [`Expressions::term`].
pub(super) fn or(code: &mut Expressions<'_>, left: &Expr, right: &Expr) -> DfResult<Term> {
    junction(code, left, right, true)
}

/// AND or OR: the left side decides if it has the value `decisive`.
fn junction(
    code: &mut Expressions<'_>,
    left: &Expr,
    right: &Expr,
    decisive: bool,
) -> DfResult<Term> {
    let left = code.term(left)?;
    match &left.place {
        Place::Constant(value) if *value == Constant::Bool(decisive) => return Ok(left),
        Place::Constant(_) => return code.term(right),
        _ => {}
    }
    let a = code.in_register(&left);
    let joined = |code: &mut Expressions<'_>, right: &Term| {
        let (b, out) = (code.in_register(right), code.register(Lane::Bool));
        code.push(if decisive { Step::Or { a, b, out } } else { Step::And { a, b, out } });
        out
    };
    let is_nullable = |right: &Term| left.is_nullable || right.is_nullable;
    if !is_costly(right, code.schema) {
        let right = code.term(right)?;
        let out = joined(code, &right);
        return Ok(Term::new(out, Lane::Bool, &DataType::Boolean, is_nullable(&right)));
    }
    let result = code.register(Lane::Bool);
    code.push(Step::Fill { value: Some(Constant::Bool(decisive)), out: result });
    if decisive {
        // Where the left side is not true.
        code.begin(a, false);
    } else {
        let is_false = code.register(Lane::Bool);
        code.push(Step::Not { a, out: is_false });
        code.begin(is_false, false);
    }
    let right = code.term(right)?;
    let out = joined(code, &right);
    code.push(Step::Assign { a: weft_exec::program::Operand::Register(out), out: result });
    code.end();
    Ok(Term::new(result, Lane::Bool, &DataType::Boolean, is_nullable(&right)))
}

/// A branch of a CASE: its condition and its value.
type Branch = (Expr, Expr);

/// CASE; `None` if what it tests cannot be compared by a step.
///
/// # Errors
/// Those of [`Expressions::term`].
pub(super) fn case(
    code: &mut Expressions<'_>,
    case: &CaseExpr,
    data_type: &DataType,
) -> DfResult<Option<Term>> {
    let mut branches: Vec<Branch> = Vec::new();
    for (when, then) in case.when_then_expr() {
        let condition: Expr = match case.expr() {
            Some(tested) => {
                let equal = BinaryExpr::new(tested.clone(), Operator::Eq, when.clone());
                if !compare::are_comparable(tested, when, code.schema)? {
                    return Ok(None);
                }
                Arc::new(equal)
            }
            None => when.clone(),
        };
        branches.push((condition, then.clone()));
    }
    let (lane, bounds) = shape(code, &branches, case.else_expr(), data_type)?;
    let out = code.register(lane);
    let is_nullable = assign(code, &branches, case.else_expr(), data_type, out, lane)?;
    Ok(Some(Term { bounds, ..Term::new(out, lane, data_type, is_nullable) }))
}

/// The lane and bounds of a CASE: decimals may lie in fewer bits than their type asks for.
fn shape(
    code: &mut Expressions<'_>,
    branches: &[Branch],
    other: Option<&Expr>,
    data_type: &DataType,
) -> DfResult<(Lane, Option<Bounds>)> {
    if Bounds::of_type(data_type).is_none() && !matches!(data_type, DataType::Decimal128(..)) {
        return Ok((Lane::of(data_type), None));
    }
    let values = branches.iter().map(|(_, then)| then).chain(other);
    let terms = values.map(|value| code.outlook(value)).collect::<DfResult<Vec<Term>>>()?;
    let not_null = || terms.iter().filter(|term| term.place != Place::Null);
    let lane = common_lane(not_null().map(|term| term.lane)).unwrap_or(Lane::of(data_type));
    let bounds: Option<Vec<Bounds>> = not_null().map(|term| term.bounds).collect();
    Ok((lane, bounds.and_then(|bounds| bounds.into_iter().reduce(Bounds::join))))
}

/// Assigns the value of each tuple's branch to `out`; true if it may be null.
fn assign(
    code: &mut Expressions<'_>,
    branches: &[Branch],
    other: Option<&Expr>,
    data_type: &DataType,
    out: Register,
    lane: Lane,
) -> DfResult<bool> {
    let mut is_nullable = false;
    for (condition, then) in branches {
        let condition = code.term(condition)?;
        let condition = code.in_register(&condition);
        code.begin(condition, true);
        let then = code.term(then)?;
        is_nullable |= assign_term(code, then, out, lane);
        // The next branch lies within this one's second half.
        code.otherwise();
    }
    let other = match other {
        Some(other) => code.term(other)?,
        None => Term::null(data_type),
    };
    is_nullable |= assign_term(code, other, out, lane);
    for _ in branches {
        code.end();
    }
    Ok(is_nullable)
}

fn assign_term(code: &mut Expressions<'_>, term: Term, out: Register, lane: Lane) -> bool {
    let term = in_lane(code.program, term, lane);
    let a = code.operand(&term);
    code.push(Step::Assign { a, out });
    term.is_nullable
}
