//! Comparisons that DataFusion's parser or planner takes for others, or does not know.
//!
//! - `a IS DISTINCT FROM b AND c` compares with `b`, not with `b AND c`.
//! - `IS UNKNOWN` is IS NULL.
//! - Rows are compared column by column, with SQL's rules for NULL.
//! - `x = ANY(list)` is NULL if no element is equal but one is NULL.
//! - Those with the rows of a query are `query_comparisons.rs`' business.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value};

use crate::error::{ErrorKind, SqlError};
use crate::query_comparisons;

/// Replaces a comparison by one that is understood.
///
/// # Errors
/// [`ErrorKind::Semantic`](crate::ErrorKind::Semantic) for rows of different lengths.
pub(crate) fn rewrite(expr: &mut Expr) -> ControlFlow<SqlError> {
    match expr {
        Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..) => bind_tightly(expr),
        Expr::IsUnknown(inner) => *expr = Expr::IsNull(inner.clone()),
        Expr::IsNotUnknown(inner) => *expr = Expr::IsNotNull(inner.clone()),
        Expr::BinaryOp { left, op, right } => {
            if let (Some(left), Some(right)) = (row(left), row(right)) {
                *expr = compare(left, op, right)?;
            } else {
                query_comparisons::rewrite(expr)?;
            }
        }
        Expr::InList { expr: value, list, negated } => {
            if let Some(columns) = row(value) {
                let mut found = literal(false);
                for item in list {
                    let Some(item) = row(item) else { return ControlFlow::Continue(()) };
                    let same = compare(columns, &BinaryOperator::Eq, item)?;
                    found = binary(found, BinaryOperator::Or, same);
                }
                let found = Expr::Nested(Box::new(found));
                *expr = if *negated { not(found) } else { found };
            }
        }
        Expr::AnyOp { right, .. } if !matches!(**right, Expr::Subquery(_)) => any_element(expr),
        Expr::AnyOp { .. } | Expr::AllOp { .. } | Expr::InSubquery { .. } => {
            query_comparisons::rewrite(expr)?;
        }
        _ => {}
    }
    ControlFlow::Continue(())
}

/// Puts a comparison with any element of a list as IN, or as the opposite with all of them: DataFusion knows what is unknown
/// of those alone.
fn any_element(expr: &mut Expr) {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    let Expr::AnyOp { left, compare_op, right, .. } = expr else { return };
    if let (Eq, Expr::Array(array)) = (&*compare_op, &**right)
        && !array.elem.is_empty()
    {
        let list = array.elem.clone();
        *expr = Expr::InList { expr: left.clone(), list, negated: false };
        return;
    }
    let compare_op = match compare_op {
        Eq => NotEq,
        NotEq => Eq,
        Lt => GtEq,
        LtEq => Gt,
        Gt => LtEq,
        GtEq => Lt,
        _ => return,
    };
    *expr = not(nested(Expr::AllOp { left: left.clone(), compare_op, right: right.clone() }));
}

/// The columns of a row.
pub(crate) fn row(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::Tuple(columns) => Some(columns),
        _ => None,
    }
}

/// Compares rows.
///
/// # Errors
/// [`ErrorKind::Semantic`] for rows of different lengths, [`ErrorKind::NotSupported`] for other operators.
pub(crate) fn compare(
    left: &[Expr],
    op: &BinaryOperator,
    right: &[Expr],
) -> ControlFlow<SqlError, Expr> {
    use BinaryOperator::{And, Eq, Gt, GtEq, Lt, LtEq, NotEq, Or};
    let ([first, rest @ ..], [other, others @ ..]) = (left, right) else {
        return refuse(left, right);
    };
    if rest.len() != others.len() {
        return refuse(left, right);
    }
    let compared = |op| nested(binary(nested(first.clone()), op, nested(other.clone())));
    if rest.is_empty() {
        return ControlFlow::Continue(compared(op.clone()));
    }
    let rest = compare(rest, op, others)?;
    ControlFlow::Continue(nested(match op {
        Eq => binary(compared(Eq), And, rest),
        NotEq => binary(compared(NotEq), Or, rest),
        Lt | LtEq => binary(compared(Lt), Or, nested(binary(compared(Eq), And, rest))),
        Gt | GtEq => binary(compared(Gt), Or, nested(binary(compared(Eq), And, rest))),
        other => {
            return ControlFlow::Break(SqlError::not_supported(format!("{other} of rows")));
        }
    }))
}

fn refuse(left: &[Expr], right: &[Expr]) -> ControlFlow<SqlError, Expr> {
    let (left, right) = (left.len(), right.len());
    ControlFlow::Break(SqlError::new(
        ErrorKind::Semantic,
        format!("a row of {left} columns cannot be compared with one of {right}"),
    ))
}

/// Moves what a comparison has swallowed out of its right side.
fn bind_tightly(expr: &mut Expr) {
    let (Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right)) = &mut *expr else {
        return;
    };
    let meant = std::mem::replace(operand(right), literal(true));
    let swallowed = std::mem::replace(right.as_mut(), meant);
    if swallowed == literal(true) {
        return;
    }
    let comparison = std::mem::replace(expr, swallowed);
    *operand(expr) = comparison;
}

/// Down the left side of what binds more loosely, the operand that is meant.
fn operand(expr: &mut Expr) -> &mut Expr {
    match expr {
        Expr::BinaryOp { op, .. } if !is_loose(op) => expr,
        Expr::BinaryOp { left, .. } => operand(left),
        other => other,
    }
}

/// True of operators that bind more loosely than IS.
fn is_loose(op: &BinaryOperator) -> bool {
    use BinaryOperator::{And, Eq, Gt, GtEq, Lt, LtEq, NotEq, Or, Xor};
    matches!(op, And | Or | Xor | Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}

fn not(expr: Expr) -> Expr {
    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(expr) }
}

fn literal(value: bool) -> Expr {
    Expr::Value(Value::Boolean(value).into())
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;
    use crate::text::DIALECT;

    fn rewritten(sql: &str) -> String {
        let mut expr = Parser::new(&DIALECT).try_with_sql(sql).unwrap().parse_expr().unwrap();
        match rewrite(&mut expr) {
            ControlFlow::Continue(()) => expr.to_string(),
            ControlFlow::Break(error) => error.to_string(),
        }
    }

    /// The structure of a parsed expression, in parentheses.
    fn structure(expr: &Expr) -> String {
        match expr {
            Expr::BinaryOp { left, op, right } => {
                format!("({} {op} {})", structure(left), structure(right))
            }
            Expr::IsDistinctFrom(left, right) => {
                format!("({} distinct {})", structure(left), structure(right))
            }
            other => other.to_string(),
        }
    }

    #[test]
    fn distinct_binds_as_other_comparisons() {
        for (sql, expected) in [
            ("a IS DISTINCT FROM b AND c", "((a distinct b) AND c)"),
            ("a IS DISTINCT FROM b + 1 OR c AND d", "((a distinct (b + 1)) OR (c AND d))"),
            ("a IS DISTINCT FROM b", "(a distinct b)"),
            ("a IS DISTINCT FROM (b AND c)", "(a distinct (b AND c))"),
        ] {
            let mut expr = Parser::new(&DIALECT).try_with_sql(sql).unwrap().parse_expr().unwrap();
            assert!(rewrite(&mut expr).is_continue(), "{sql}");
            assert_eq!(structure(&expr), expected);
        }
    }

    #[test]
    fn rows_are_compared_column_by_column() {
        assert_eq!(rewritten("(a, b) = (1, 2)"), "(((a) = (1)) AND ((b) = (2)))");
        assert_eq!(rewritten("(a, b) < (1, 2)"), "(((a) < (1)) OR (((a) = (1)) AND ((b) < (2))))");
        assert!(rewritten("(a, b) = (1, 2, 3)").contains("cannot be compared"));
    }
}
