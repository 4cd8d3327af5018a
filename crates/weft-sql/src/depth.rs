//! How deep statements may be nested: planning walks them recursively, and a stack has an end.
//!
//! Chains of AND, of OR and of UNION ALL, which programs write with thousands of terms, become trees that are not deep. Long sums
//! and products become calls (`long_sums.rs`). What else has to be computed from left to right stays as it is, up to a limit.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, SetExpr, SetOperator, SetQuantifier, Value, Values,
};

use crate::error::{ErrorKind, SqlError};
use crate::long_sums;

/// Stack of a thread that runs statements, in bytes: enough for what is let through here.
pub(crate) const STACK_BYTES: usize = 128 << 20;
/// Operators and calls that may be nested in each other.
pub(crate) const EXPRESSIONS_MAX: usize = 4_000;
/// Queries that UNION, INTERSECT and EXCEPT may put in a row.
const QUERIES_MAX: usize = 4_000;
/// Terms of a chain that may stay one.
const CHAIN_MAX: usize = 16;

/// How many expressions are around the one that is visited.
#[derive(Default)]
pub(crate) struct Depth(usize);

impl Depth {
    /// Goes into an expression.
    ///
    /// # Errors
    /// [`ErrorKind::NotSupported`] if that is too deep.
    pub(crate) fn enter(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        balance(expr);
        self.0 += 1;
        // A chain becomes one call only if its operators, to which the call may have to be undone, are not too many.
        if self.0 + long_sums::operators_of(expr).saturating_sub(1) <= EXPRESSIONS_MAX {
            long_sums::rewrite(expr);
            return ControlFlow::Continue(());
        }
        let problem = format!("an expression has more than {EXPRESSIONS_MAX} operators in a row");
        ControlFlow::Break(too_deep(problem))
    }

    /// Comes out of it.
    pub(crate) fn leave(&mut self) {
        self.0 -= 1;
    }
}

/// Checks how many queries are put in a row, and makes trees of little depth of long chains of UNION ALL.
///
/// # Errors
/// [`ErrorKind::NotSupported`] if there are too many.
pub(crate) fn check_queries(body: &mut SetExpr) -> ControlFlow<SqlError> {
    let mut queries = 1;
    let mut rest = &*body;
    while let SetExpr::SetOperation { left, .. } = rest {
        queries += 1;
        rest = left;
    }
    if queries <= QUERIES_MAX {
        balance_unions(body);
        return ControlFlow::Continue(());
    }
    let problem = format!("{queries} queries are put together, which may be {QUERIES_MAX} at most");
    ControlFlow::Break(too_deep(problem))
}

/// Makes trees of the chains of UNION ALL on the left side, with the queries in their order.
fn balance_unions(mut body: &mut SetExpr) {
    loop {
        let mut queries = 1;
        let mut rest = &*body;
        while let Some(left) = left_of_union(rest) {
            queries += 1;
            rest = left;
        }
        if queries > CHAIN_MAX {
            let mut from_last = Vec::with_capacity(queries);
            let mut rest = std::mem::replace(body, no_query());
            for _ in 1..queries {
                let SetExpr::SetOperation { left, right, .. } = rest else { break };
                from_last.push(*right);
                rest = *left;
            }
            balance_unions(&mut rest);
            from_last.push(rest);
            from_last.reverse();
            *body = union_tree(from_last);
            return;
        }
        match body {
            SetExpr::SetOperation { left, .. } => body = left,
            _ => return,
        }
    }
}

/// The queries before the last one of UNION ALL.
fn left_of_union(body: &SetExpr) -> Option<&SetExpr> {
    match body {
        SetExpr::SetOperation {
            op: SetOperator::Union,
            set_quantifier: SetQuantifier::All,
            left,
            ..
        } => Some(left),
        _ => None,
    }
}

fn no_query() -> SetExpr {
    SetExpr::Values(Values { explicit_row: false, value_keyword: false, rows: Vec::new() })
}

/// Queries put together by UNION ALL in a tree of little depth.
///
/// # Panics
/// If there are none.
fn union_tree(mut queries: Vec<SetExpr>) -> SetExpr {
    if queries.len() == 1 {
        return queries.remove(0);
    }
    let right = queries.split_off(queries.len() / 2);
    SetExpr::SetOperation {
        op: SetOperator::Union,
        set_quantifier: SetQuantifier::All,
        left: Box::new(union_tree(queries)),
        right: Box::new(union_tree(right)),
    }
}

fn too_deep(problem: String) -> SqlError {
    SqlError::new(ErrorKind::NotSupported, problem)
        .with_hint("divide the statement, or put the values into a table")
}

/// Makes a chain of AND or OR a tree of little depth, with the terms in their order.
fn balance(expr: &mut Expr) {
    let Expr::BinaryOp { op: chain @ (BinaryOperator::And | BinaryOperator::Or), .. } = &*expr
    else {
        return;
    };
    let chain = chain.clone();
    let mut terms = 1;
    let mut rest = &*expr;
    while let Expr::BinaryOp { left, op, .. } = rest
        && *op == chain
    {
        terms += 1;
        rest = left;
    }
    if terms <= CHAIN_MAX {
        return;
    }
    let mut from_last = Vec::with_capacity(terms);
    let mut rest = std::mem::replace(expr, Expr::Value(Value::Null.into()));
    loop {
        match rest {
            Expr::BinaryOp { left, op, right } if op == chain => {
                from_last.push(*right);
                rest = *left;
            }
            first => {
                from_last.push(first);
                break;
            }
        }
    }
    from_last.reverse();
    *expr = tree(from_last, &chain);
}

/// Terms put together in a tree of little depth.
///
/// # Panics
/// If there are none.
pub(crate) fn tree(mut terms: Vec<Expr>, op: &BinaryOperator) -> Expr {
    if terms.len() == 1 {
        return terms.remove(0);
    }
    let right = terms.split_off(terms.len() / 2);
    Expr::BinaryOp {
        left: Box::new(tree(terms, op)),
        op: op.clone(),
        right: Box::new(tree(right, op)),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::DuckDbDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn parsed(text: &str) -> Expr {
        Parser::new(&DuckDbDialect {}).try_with_sql(text).unwrap().parse_expr().unwrap()
    }

    fn depth(expr: &Expr) -> usize {
        match expr {
            Expr::BinaryOp { left, right, .. } => 1 + depth(left).max(depth(right)),
            _ => 0,
        }
    }

    fn query_depth(body: &SetExpr) -> usize {
        match body {
            SetExpr::SetOperation { left, right, .. } => {
                1 + query_depth(left).max(query_depth(right))
            }
            _ => 0,
        }
    }

    #[test]
    fn chains_become_trees_with_their_terms_in_order() {
        let terms = |count: usize| (0..count).map(|term| format!("a = {term}")).collect::<Vec<_>>();
        for (operator, count, deepest) in [("OR", 1000, 11), ("AND", 17, 6), ("OR", 16, 16)] {
            let text = terms(count).join(&format!(" {operator} "));
            let mut expr = parsed(&text);
            balance(&mut expr);
            assert!(depth(&expr) <= deepest, "{}", depth(&expr));
            assert_eq!(expr.to_string(), text);
        }
        let unions = vec!["SELECT a"; 1000].join(" UNION ALL ");
        let text = format!("SELECT b UNION SELECT c UNION ALL {unions}");
        let mut query = Parser::new(&DuckDbDialect {}).try_with_sql(&text).unwrap();
        let mut query = query.parse_query().unwrap();
        assert!(check_queries(&mut query.body).is_continue());
        assert!(query_depth(&query.body) <= 12, "{}", query_depth(&query.body));
        assert_eq!(query.to_string(), text);
        let mut sum = parsed(&["a"; 100].join(" + "));
        balance(&mut sum);
        assert_eq!(depth(&sum), 99);
    }
}
