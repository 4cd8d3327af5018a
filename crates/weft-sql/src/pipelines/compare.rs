//! Comparisons, IN and LIKE.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{InListExpr, LikeExpr};
use weft_exec::Lane;
use weft_exec::kernels::in_set::Set;
use weft_exec::kernels::like::Pattern;
use weft_exec::program::{Comparison, Constant, Step};

use super::expressions::{Expr, Expressions, literal};
use super::term::{Place, Term, in_one_lane};

/// The comparison that an operator is.
pub(super) fn comparison(op: Operator) -> Option<Comparison> {
    Some(match op {
        Operator::Eq => Comparison::Equal,
        Operator::NotEq => Comparison::NotEqual,
        Operator::Lt => Comparison::Less,
        Operator::LtEq => Comparison::LessOrEqual,
        Operator::Gt => Comparison::Greater,
        Operator::GtEq => Comparison::GreaterOrEqual,
        Operator::IsDistinctFrom => Comparison::Distinct,
        Operator::IsNotDistinctFrom => Comparison::NotDistinct,
        _ => return None,
    })
}

/// The type of what a dictionary has.
pub(super) fn plain(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    }
}

/// True if values of the type compare as those of their lane do.
pub(super) fn is_ordered(data_type: &DataType) -> bool {
    let data_type = plain(data_type);
    !Lane::is_row_encoded(data_type) && !matches!(data_type, DataType::Interval(_))
}

/// True if values of the types compare with each other as those of their lanes do.
pub(super) fn have_one_order(left: &DataType, right: &DataType) -> bool {
    let (left, right) = (plain(left), plain(right));
    let is_text = |data_type: &DataType| {
        matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
    };
    let is_binary = |data_type: &DataType| {
        matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
    };
    match (left, right) {
        (DataType::Decimal128(_, left), DataType::Decimal128(_, right)) => left == right,
        _ if is_text(left) => is_text(right),
        _ if is_binary(left) => is_binary(right),
        _ => left == right && is_ordered(left),
    }
}

/// True if a step compares the expressions.
///
/// # Errors
/// If they are none over the schema.
pub(super) fn are_comparable(left: &Expr, right: &Expr, schema: &Schema) -> DfResult<bool> {
    Ok(have_one_order(&left.data_type(schema)?, &right.data_type(schema)?))
}

/// A comparison; `None` if no step compares values of these types.
///
/// # Errors
/// Those of [`Expressions::term`].
pub(super) fn compare(
    code: &mut Expressions<'_>,
    op: Comparison,
    left: &Expr,
    right: &Expr,
) -> DfResult<Option<Term>> {
    if !are_comparable(left, right, code.schema)? {
        return Ok(None);
    }
    let (left, right) = (code.term(left)?, code.term(right)?);
    let is_total = matches!(op, Comparison::Distinct | Comparison::NotDistinct);
    if !is_total && (left.place == Place::Null || right.place == Place::Null) {
        return Ok(Some(Term::null(&DataType::Boolean)));
    }
    let (left, right) = in_one_lane(code.program, left, right);
    let (a, b) = (code.operand(&left), code.operand(&right));
    let out = code.register(Lane::Bool);
    code.push(Step::Compare { op, a, b, out });
    let is_nullable = !is_total && (left.is_nullable || right.is_nullable);
    Ok(Some(Term::new(out, Lane::Bool, &DataType::Boolean, is_nullable)))
}

/// IN with a list of literals; `None` for other lists.
///
/// # Errors
/// Those of [`Expressions::term`].
pub(super) fn in_list(code: &mut Expressions<'_>, list: &InListExpr) -> DfResult<Option<Term>> {
    let data_type = list.expr().data_type(code.schema)?;
    let mut values = Vec::new();
    let mut has_null = false;
    for value in list.list() {
        let Some(value) = literal(value) else { return Ok(None) };
        if value.is_null() {
            has_null = true;
            continue;
        }
        if !have_one_order(&data_type, &value.data_type()) {
            return Ok(None);
        }
        match Term::literal(value).map(|term| term.place) {
            Some(Place::Constant(constant)) => values.push(constant),
            _ => return Ok(None),
        }
    }
    let term = code.term(list.expr())?;
    let Place::Register(a) = term.place else { return Ok(None) };
    // A decimal beyond the register's lane equals none in it.
    let values: Vec<Constant> =
        values.into_iter().filter_map(|value| in_lane_of(value, term.lane)).collect();
    let set = Arc::new(Set::new(term.lane, &values));
    let out = code.register(Lane::Bool);
    code.push(Step::In { a, values: set, has_null, negated: list.negated(), out });
    let is_nullable = term.is_nullable || has_null;
    Ok(Some(Term::new(out, Lane::Bool, &DataType::Boolean, is_nullable)))
}

fn in_lane_of(value: Constant, lane: Lane) -> Option<Constant> {
    match (value, lane) {
        (Constant::I64(value), Lane::I128) => Some(Constant::I128(value.into())),
        (Constant::I128(value), Lane::I64) => i64::try_from(value).ok().map(Constant::I64),
        (value, _) => Some(value),
    }
}

/// LIKE with a literal pattern; `None` for others, and for ILIKE.
///
/// # Errors
/// Those of [`Expressions::term`].
pub(super) fn like(code: &mut Expressions<'_>, like: &LikeExpr) -> DfResult<Option<Term>> {
    let pattern = literal(like.pattern()).and_then(text);
    let Some(pattern) = pattern.filter(|_| !like.case_insensitive()) else { return Ok(None) };
    let pattern = Pattern::new(pattern, Some('\\'));
    matches(code, like.expr(), pattern, like.negated())
}

/// Whether a text matches a pattern; `None` if it is no text.
///
/// # Errors
/// Those of [`Expressions::term`].
pub(super) fn matches(
    code: &mut Expressions<'_>,
    expr: &Expr,
    pattern: Pattern,
    negated: bool,
) -> DfResult<Option<Term>> {
    let data_type = expr.data_type(code.schema)?;
    if !have_one_order(&data_type, &DataType::Utf8) {
        return Ok(None);
    }
    let term = code.term(expr)?;
    let Place::Register(a) = term.place else { return Ok(None) };
    let out = code.register(Lane::Bool);
    code.push(Step::Like { a, pattern: Arc::new(pattern), negated, out });
    Ok(Some(Term::new(out, Lane::Bool, &DataType::Boolean, term.is_nullable)))
}

/// The text that a value is.
pub(super) fn text(value: &ScalarValue) -> Option<&str> {
    match value {
        ScalarValue::Utf8(Some(text))
        | ScalarValue::LargeUtf8(Some(text))
        | ScalarValue::Utf8View(Some(text)) => Some(text),
        _ => None,
    }
}
