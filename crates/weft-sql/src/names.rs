//! The names of a query's columns.
//!
//! DataFusion names a column without a name after its planned expression (`sum(t.a)`, `Int64(1)`), and
//! refuses two of one name. Here it is called as it was written, and the second one `name_1`.

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderBy, OrderByKind, Query, SelectItem, SetExpr, Statement,
};

use crate::exclusions::as_written;
use crate::forms;
use crate::same_names::free_name;

/// Names the columns of what a statement returns or makes.
pub(crate) fn name_columns_of(statement: &mut Statement) {
    match statement {
        Statement::Query(query) => name_columns(query),
        Statement::CreateTable(create) => {
            if let Some(query) = &mut create.query {
                name_columns(query);
            }
        }
        Statement::CreateView(create) => name_columns(&mut create.query),
        _ => {}
    }
}

/// Names the columns of a query that have no names.
pub(crate) fn name_columns(query: &mut Query) {
    let mut body = query.body.as_mut();
    loop {
        match body {
            SetExpr::Select(select) => {
                name_items(&mut select.projection);
                if let (Some(_), Some(order)) = (&select.distinct, &mut query.order_by) {
                    order_by_names(order, &select.projection);
                }
                return;
            }
            // The first query of a union names its columns.
            SetExpr::SetOperation { left, .. } => body = left.as_mut(),
            SetExpr::Query(inner) => body = inner.body.as_mut(),
            _ => return,
        }
    }
}

fn name_items(items: &mut [SelectItem]) {
    let mut taken = HashSet::new();
    for item in items {
        let name = match item {
            SelectItem::UnnamedExpr(expr) => match name_of(expr) {
                Some(name) => name,
                None => continue,
            },
            SelectItem::ExprWithAlias { alias, .. } => {
                let name = fold(alias);
                if !taken.insert(name.clone()) {
                    *alias = Ident::with_quote('"', free_name(&name, &mut taken));
                }
                continue;
            }
            _ => continue,
        };
        let is_column = matches!(
            item,
            SelectItem::UnnamedExpr(Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        );
        let is_free = taken.insert(name.clone());
        if is_column && is_free {
            continue;
        }
        let unique = if is_free { name } else { free_name(&name, &mut taken) };
        if let SelectItem::UnnamedExpr(expr) = item {
            let alias = Ident::with_quote('"', unique);
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
}

/// Sorts by the names of items instead of their expressions: after DISTINCT there is nothing else.
fn order_by_names(order: &mut OrderBy, items: &[SelectItem]) {
    let OrderByKind::Expressions(sorted) = &mut order.kind else { return };
    for sorted in sorted {
        let name = items.iter().find_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } if *expr == sorted.expr => Some(alias),
            _ => None,
        });
        if let Some(name) = name {
            sorted.expr = Expr::Identifier(name.clone());
        }
    }
}

/// What an expression is called; nothing for those that may become several columns.
fn name_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(ident) => Some(fold(ident)),
        Expr::CompoundIdentifier(parts) => parts.last().map(fold),
        Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("unnest") => {
            None
        }
        // One for each column, under its name.
        other if forms::has_columns(other) => None,
        other => Some(as_written(other.to_string())),
    }
}

fn fold(ident: &Ident) -> String {
    crate::statement::fold(ident.value.clone(), ident.quote_style)
}
