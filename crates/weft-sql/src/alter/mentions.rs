//! Columns in the texts of conditions: whether one mentions a column, and the same with another name of it.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Ident, SelectItem, SetExpr, VisitMut, VisitorMut};

use crate::error::{Result, internal};
use crate::statement::{fold, parse_query};

/// True if a condition on rows of a table mentions a column.
///
/// # Errors
/// [`crate::ErrorKind::Internal`] if the text does not parse.
pub(super) fn mentions(sql: &str, table: &str, column: &str) -> Result<bool> {
    let mut finder = Finder { table, column, to: None, is_found: false };
    visited(sql, &mut finder)?;
    Ok(finder.is_found)
}

/// The text of a condition in which a column has another name.
///
/// # Errors
/// As [`mentions`].
pub(super) fn with_name(sql: &str, table: &str, column: &str, to: &str) -> Result<String> {
    let mut finder = Finder { table, column, to: Some(to), is_found: false };
    visited(sql, &mut finder).map(|expr| expr.to_string())
}

fn visited(sql: &str, finder: &mut Finder<'_>) -> Result<Expr> {
    let query = parse_query(&format!("SELECT {sql}"))?;
    let SetExpr::Select(mut select) = *query.body else {
        return Err(internal("a condition is a query"));
    };
    let mut expr = match select.projection.pop() {
        Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => expr,
        _ => return Err(internal("a condition is no expression")),
    };
    // The visitor never breaks.
    let _ = expr.visit(finder);
    Ok(expr)
}

struct Finder<'a> {
    table: &'a str,
    column: &'a str,
    to: Option<&'a str>,
    is_found: bool,
}

impl Finder<'_> {
    fn look_at(&mut self, ident: &mut Ident) {
        let name = fold(ident.value.clone(), ident.quote_style);
        let is_it = match ident.quote_style {
            Some(_) => name == self.column,
            None => name.to_lowercase() == self.column.to_lowercase(),
        };
        if is_it {
            self.is_found = true;
            if let Some(to) = self.to {
                *ident = Ident::with_quote('"', to);
            }
        }
    }
}

impl VisitorMut for Finder<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(ident) => self.look_at(ident),
            Expr::CompoundIdentifier(parts) => {
                let first = parts.first().map(|first| fold(first.value.clone(), first.quote_style));
                let own = self.table.rsplit('.').next().unwrap_or(self.table);
                let at = usize::from(first.is_some_and(|first| first == own));
                if let Some(ident) = parts.get_mut(at) {
                    self.look_at(ident);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
