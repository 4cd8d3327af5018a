//! `a IS DISTINCT FROM b OR c`: the parser takes all that follows for the right operand, which ends where AND or OR begins.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value};

/// What is between AND and OR.
enum Part {
    Operand(Box<Expr>),
    Operator(BinaryOperator),
    Not,
}

/// Puts operands right within an expression that is no operand of AND, OR or NOT itself.
pub(crate) fn rewrite(expr: &mut Expr) {
    if takes_too_much(expr) {
        let mut parts = Vec::new();
        take_apart(take(expr), &mut parts);
        let mut parts = parts.into_iter().peekable();
        *expr = put_together(&mut parts, Binding::Or);
    }
}

fn takes_too_much(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryOp { left, op, right } if binding(op).is_some() => {
            takes_too_much(left) || takes_too_much(right)
        }
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => takes_too_much(expr),
        Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right) => {
            matches!(&**right, Expr::BinaryOp { op, .. } if binding(op).is_some())
                || takes_too_much(right)
        }
        _ => false,
    }
}

/// How operators bind, the loosest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Or,
    And,
    Not,
}

fn binding(op: &BinaryOperator) -> Option<Binding> {
    match op {
        BinaryOperator::Or => Some(Binding::Or),
        BinaryOperator::And => Some(Binding::And),
        _ => None,
    }
}

/// Adds the parts of an expression in the order in which they were written. What is in parentheses is an operand.
fn take_apart(expr: Expr, parts: &mut Vec<Part>) {
    match expr {
        Expr::BinaryOp { left, op, right } if binding(&op).is_some() => {
            take_apart(*left, parts);
            parts.push(Part::Operator(op));
            take_apart(*right, parts);
        }
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => {
            parts.push(Part::Not);
            take_apart(*expr, parts);
        }
        Expr::IsDistinctFrom(left, right) => {
            take_operand(*right, parts, |right| Expr::IsDistinctFrom(left, right));
        }
        Expr::IsNotDistinctFrom(left, right) => {
            take_operand(*right, parts, |right| Expr::IsNotDistinctFrom(left, right));
        }
        operand => parts.push(Part::Operand(Box::new(operand))),
    }
}

/// Adds what `compared` makes of the first operand of `right`, and the parts that follow.
fn take_operand(right: Expr, parts: &mut Vec<Part>, compared: impl FnOnce(Box<Expr>) -> Expr) {
    let at = parts.len();
    take_apart(right, parts);
    // NOT binds more loosely than the comparison does: it was written to be compared with as a whole.
    let negations = parts[at..].iter().take_while(|part| matches!(part, Part::Not)).count();
    parts.drain(at..at + negations);
    let Part::Operand(operand) = &mut parts[at] else { unreachable!("operators follow operands") };
    let not = |expr| Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(expr) };
    let right = (0..negations).fold(take(operand), |expr, _| not(expr));
    **operand = compared(Box::new(right));
}

type Parts = std::iter::Peekable<std::vec::IntoIter<Part>>;

/// The expression that begins here, of operators that bind as closely as this or more so.
fn put_together(parts: &mut Parts, closest: Binding) -> Expr {
    let mut left = match parts.next() {
        Some(Part::Operand(operand)) => *operand,
        Some(Part::Not) => {
            let expr = Box::new(put_together(parts, Binding::Not));
            Expr::UnaryOp { op: UnaryOperator::Not, expr }
        }
        Some(Part::Operator(_)) | None => unreachable!("operands are around operators"),
    };
    while let Some(op) = parts.next_if(|part| match part {
        Part::Operator(op) => binding(op).is_some_and(|binding| binding >= closest),
        Part::Operand(_) | Part::Not => false,
    }) {
        let Part::Operator(op) = op else { unreachable!("an operator was seen") };
        // Those that bind alike are put together from the left.
        let closer = if op == BinaryOperator::Or { Binding::And } else { Binding::Not };
        let right = Box::new(put_together(parts, closer));
        left = Expr::BinaryOp { left: Box::new(left), op, right };
    }
    left
}

fn take(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::Value(Value::Null.into()))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;
    use crate::text::DIALECT;

    /// The expression with all operands in parentheses.
    fn nested(expr: &Expr) -> String {
        match expr {
            Expr::BinaryOp { left, op, right } => {
                format!("({} {op} {})", nested(left), nested(right))
            }
            Expr::UnaryOp { op, expr } => format!("({op} {})", nested(expr)),
            Expr::IsDistinctFrom(left, right) => format!("({} <> {})", nested(left), nested(right)),
            Expr::IsNotDistinctFrom(left, right) => {
                format!("({} == {})", nested(left), nested(right))
            }
            Expr::Nested(inner) => format!("[{}]", nested(inner)),
            other => other.to_string(),
        }
    }

    #[test]
    fn operands_end_where_and_and_or_begin() {
        for (sql, expected) in [
            ("a IS DISTINCT FROM b", "(a <> b)"),
            ("a IS DISTINCT FROM b OR c", "((a <> b) OR c)"),
            ("x AND a IS NOT DISTINCT FROM b OR c", "((x AND (a == b)) OR c)"),
            ("x OR a IS NOT DISTINCT FROM b AND c", "(x OR ((a == b) AND c))"),
            ("NOT a IS DISTINCT FROM b AND c", "((NOT (a <> b)) AND c)"),
            (
                "NOT NOT a IS DISTINCT FROM b + 1 = 2 OR c",
                "((NOT (NOT (a <> ((b + 1) = 2)))) OR c)",
            ),
            (
                "a IS DISTINCT FROM b AND c IS NOT DISTINCT FROM d OR e AND f",
                "(((a <> b) AND (c == d)) OR (e AND f))",
            ),
            ("a IS DISTINCT FROM (b OR c)", "(a <> [(b OR c)])"),
            ("a IS DISTINCT FROM (b OR c) AND d", "((a <> [(b OR c)]) AND d)"),
            ("a IS DISTINCT FROM NOT b AND c", "((a <> (NOT b)) AND c)"),
            ("a = 1 AND b IS DISTINCT FROM c AND d OR e", "((((a = 1) AND (b <> c)) AND d) OR e)"),
        ] {
            let mut parser = Parser::new(&DIALECT).try_with_sql(sql).unwrap();
            let mut expr = parser.parse_expr().unwrap();
            rewrite(&mut expr);
            assert_eq!(nested(&expr), expected, "{sql}");
        }
    }
}
