//! `a ^ b` is a power, as in PostgreSQL and DuckDB: DataFusion takes it for the exclusive or of bits, and the grammar lets it bind
//! more loosely than products and sums.
//!
//! What was not in parentheses is put together anew, with `^` before everything else, from left to right.

use std::collections::VecDeque;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, Value,
};

use crate::functions::call;

/// How tight `^` binds.
const TIGHTEST: u8 = 5;

/// Makes calls of `power` of a `^`, and of those that follow or precede it.
pub(crate) fn rewrite(expr: &mut Expr) {
    if !matches!(expr, Expr::BinaryOp { op: BinaryOperator::BitwiseXor, .. }) {
        return;
    }
    let whole = std::mem::replace(expr, Expr::Value(Value::Null.into()));
    let mut terms = VecDeque::new();
    let mut operators = VecDeque::new();
    take_apart(whole, &mut terms, &mut operators);
    if let Some(first) = terms.pop_front() {
        *expr = put_together(first, 0, &mut terms, &mut operators);
    }
}

/// How tight an operator binds that the grammar may put below a `^`; `None` for others.
fn tightness(op: &BinaryOperator) -> Option<u8> {
    use BinaryOperator::{
        BitwiseAnd, BitwiseXor, Divide, DuckIntegerDivide, Minus, Modulo, Multiply,
        PGBitwiseShiftLeft, PGBitwiseShiftRight, Plus, StringConcat,
    };
    match op {
        BitwiseXor => Some(TIGHTEST),
        Multiply | Divide | DuckIntegerDivide | Modulo | StringConcat => Some(4),
        Plus | Minus => Some(3),
        BitwiseAnd => Some(2),
        PGBitwiseShiftLeft | PGBitwiseShiftRight => Some(1),
        _ => None,
    }
}

/// The terms of an expression and the operators between them, in the order in which they were written.
fn take_apart(expr: Expr, terms: &mut VecDeque<Expr>, operators: &mut VecDeque<BinaryOperator>) {
    match expr {
        Expr::BinaryOp { left, op, right } if tightness(&op).is_some() => {
            take_apart(*left, terms, operators);
            operators.push_back(op);
            take_apart(*right, terms, operators);
        }
        term => terms.push_back(term),
    }
}

/// What begins with `left` and goes on with operators that bind at least so tight.
fn put_together(
    mut left: Expr,
    at_least: u8,
    terms: &mut VecDeque<Expr>,
    operators: &mut VecDeque<BinaryOperator>,
) -> Expr {
    while let Some(bound) = operators.front().and_then(tightness).filter(|b| *b >= at_least)
        && let (Some(op), Some(mut right)) = (operators.pop_front(), terms.pop_front())
    {
        if operators.front().and_then(tightness).is_some_and(|next| next > bound) {
            right = put_together(right, bound + 1, terms, operators);
        }
        left = match op {
            BinaryOperator::BitwiseXor => call("power", [double(left), double(right)]),
            op => Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) },
        };
    }
    left
}

fn double(expr: Expr) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(expr),
        data_type: DataType::Double(ExactNumberInfo::None),
        array: false,
        format: None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;
    use crate::text::DIALECT;

    fn rewritten(sql: &str) -> String {
        let mut expr = Parser::new(&DIALECT).try_with_sql(sql).unwrap().parse_expr().unwrap();
        rewrite(&mut expr);
        expr.to_string().replace("CAST(", "").replace(" AS DOUBLE)", "")
    }

    #[test]
    fn powers_bind_tighter_than_products() {
        assert_eq!(rewritten("a ^ b"), "power(a, b)");
        assert_eq!(rewritten("a ^ b ^ c"), "power(power(a, b), c)");
        assert_eq!(rewritten("a * b ^ c + d"), "a * power(b, c) + d");
        assert_eq!(rewritten("a + b ^ c * d ^ e"), "a + power(b, c) * power(d, e)");
        assert_eq!(rewritten("(a + b) ^ -c"), "power((a + b), -c)");
        assert_eq!(rewritten("a << b ^ c & d"), "a << power(b, c) & d");
    }
}
