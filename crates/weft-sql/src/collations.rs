//! COLLATE NOCASE and NOACCENT: what is compared, or ordered, is a text without the case of its letters, or without accents.
//!
//! `x COLLATE NOCASE = y` compares `lower(x)` and `lower(y)`, `ORDER BY x COLLATE NOCASE` orders by `lower(x)`. An item of the select
//! list is what it is without. The order of bytes (`C`) is that of all texts anyway (`postgres/syntax.rs`).

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArgumentClause, FunctionArguments, GroupByExpr, ObjectName, OrderBy,
    OrderByExpr, OrderByKind, Query, Select, SelectItem, WindowType,
};

use crate::error::SqlError;
use crate::functions::call;

/// What an order of texts does not look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Collation {
    ignores_case: bool,
    ignores_accents: bool,
}

impl Collation {
    /// The collation of a name such as `NOCASE.NOACCENT`.
    fn of(name: &ObjectName) -> Result<Collation, SqlError> {
        let mut found = Collation::default();
        for part in name.0.iter().filter_map(|part| part.as_ident()) {
            match part.value.to_ascii_lowercase().as_str() {
                "nocase" => found.ignores_case = true,
                "noaccent" => found.ignores_accents = true,
                "binary" | "c" | "posix" => {}
                other => {
                    return Err(SqlError::not_supported(format!("the collation {other}"))
                        .with_hint("collations are NOCASE, NOACCENT, NOCASE.NOACCENT and C"));
                }
            }
        }
        Ok(found)
    }

    fn and(self, other: Collation) -> Collation {
        Collation {
            ignores_case: self.ignores_case || other.ignores_case,
            ignores_accents: self.ignores_accents || other.ignores_accents,
        }
    }

    /// What stands for a text in comparisons.
    fn key(self, text: Expr) -> Expr {
        let text = match self.ignores_accents {
            true => call("strip_accents", [text]),
            false => text,
        };
        match self.ignores_case {
            true => call("lower", [text]),
            false => text,
        }
    }
}

/// Takes COLLATE from an operand.
fn take(expr: &mut Expr) -> Result<Option<Collation>, SqlError> {
    let Expr::Collate { expr: inner, collation } = expr else { return Ok(None) };
    let found = Collation::of(collation)?;
    let mut inner = (**inner).clone();
    let within = take(&mut inner)?.unwrap_or_default();
    *expr = inner;
    Ok(Some(found.and(within)))
}

fn broken<T>(result: Result<T, SqlError>) -> ControlFlow<SqlError, T> {
    match result {
        Ok(value) => ControlFlow::Continue(value),
        Err(error) => ControlFlow::Break(error),
    }
}

/// Has the operands of a comparison compared by the collation that one of them has, and orders of a function's rows follow theirs.
pub(crate) fn rewrite(expr: &mut Expr) -> ControlFlow<SqlError> {
    let operands: Vec<&mut Expr> = match expr {
        Expr::BinaryOp { left, op, right } if is_comparison(op) => vec![left, right],
        Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => {
            vec![left, right]
        }
        Expr::Between { expr, low, high, .. } => vec![expr, low, high],
        Expr::InList { expr, list, .. } => {
            let mut operands = vec![expr.as_mut()];
            operands.extend(list);
            operands
        }
        Expr::Like { any: false, expr, pattern, .. }
        | Expr::ILike { any: false, expr, pattern, .. } => {
            vec![expr, pattern]
        }
        Expr::Function(function) => return orders_of(function),
        _ => return ControlFlow::Continue(()),
    };
    broken(compare(operands))
}

fn is_comparison(op: &datafusion::sql::sqlparser::ast::BinaryOperator) -> bool {
    use datafusion::sql::sqlparser::ast::BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

fn compare(mut operands: Vec<&mut Expr>) -> Result<(), SqlError> {
    let mut found: Option<Collation> = None;
    for operand in &mut operands {
        if let Some(collation) = take(operand)? {
            found = Some(found.unwrap_or_default().and(collation));
        }
    }
    if let Some(collation) = found {
        for operand in operands {
            let text = std::mem::replace(
                operand,
                Expr::value(datafusion::sql::sqlparser::ast::Value::Null),
            );
            *operand = collation.key(text);
        }
    }
    Ok(())
}

fn order(exprs: &mut [OrderByExpr]) -> Result<(), SqlError> {
    for by in exprs {
        if let Some(collation) = take(&mut by.expr)? {
            by.expr = collation.key(by.expr.clone());
        }
    }
    Ok(())
}

/// The orders of the rows of an aggregate and of a window.
fn orders_of(function: &mut Function) -> ControlFlow<SqlError> {
    if let FunctionArguments::List(list) = &mut function.args {
        for clause in &mut list.clauses {
            if let FunctionArgumentClause::OrderBy(exprs) = clause {
                broken(order(exprs))?;
            }
        }
    }
    broken(order(&mut function.within_group))?;
    match &mut function.over {
        Some(WindowType::WindowSpec(window)) => broken(order(&mut window.order_by)),
        _ => ControlFlow::Continue(()),
    }
}

/// Orders the rows of a query by collations.
pub(crate) fn order_query(query: &mut Query) -> ControlFlow<SqlError> {
    match &mut query.order_by {
        Some(OrderBy { kind: OrderByKind::Expressions(exprs), .. }) => broken(order(exprs)),
        _ => ControlFlow::Continue(()),
    }
}

/// Takes COLLATE from items of the select list, which it does not change, but where rows are made distinct by them.
pub(crate) fn show(select: &mut Select) -> ControlFlow<SqlError> {
    let is_distinct = select.distinct.is_some();
    for item in &mut select.projection {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
            continue;
        };
        if !is_distinct {
            broken(take(expr))?;
        }
    }
    if let GroupByExpr::Expressions(exprs, _) = &select.group_by
        && let Some(expr) = exprs.iter().find(|expr| matches!(expr, Expr::Collate { .. }))
    {
        return left_over(expr);
    }
    ControlFlow::Continue(())
}

/// Refuses COLLATE where it is not looked at.
pub(crate) fn left_over(expr: &Expr) -> ControlFlow<SqlError> {
    let Expr::Collate { expr: text, collation } = expr else { return ControlFlow::Continue(()) };
    let written = match Collation::of(collation) {
        Ok(collation) => collation.key((**text).clone()),
        Err(error) => return ControlFlow::Break(error),
    };
    ControlFlow::Break(
        SqlError::not_supported("COLLATE beside comparisons and ORDER BY")
            .with_hint(format!("write {written}")),
    )
}
