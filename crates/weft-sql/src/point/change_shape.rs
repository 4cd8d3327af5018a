//! What the text of a change of rows by key says: an UPDATE or DELETE whose condition has columns equal to values, or an INSERT of a
//! list of rows.
//!
//! Parameters become columns of the relation that the values are computed of, and so may stand where a column means what a constant
//! does: in arithmetic, comparisons, casts and some functions.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    self, Expr, Ident, SelectItem, SetExpr, Statement, TableFactor, VisitMut, Visitor, VisitorMut,
};

use super::shape::{Leaves, Operand, add_equalities, folded, is_simple, is_simple_item, operand};
use crate::change_statement::ChangeStatement;
use crate::error::Result;
use crate::statement::{self, Parsed};
use crate::text::count_parameters;

/// Rows of an INSERT whose plan is kept, at most.
const ROWS_MAX: usize = 64;

/// What names of columns of parameters begin with.
const PARAMETER: &str = "parameter\n";

/// A change of rows whose plan may be kept.
#[derive(Debug)]
pub(crate) struct ChangeShape {
    /// How many parameters the statement has.
    pub(super) parameters: usize,
    pub(super) kind: ChangeKind,
}

/// What a statement does.
#[derive(Debug)]
pub(super) enum ChangeKind {
    /// UPDATE or DELETE: the statement without its condition, and the columns of the condition with what they are equal to.
    Keyed { change: Box<ChangeStatement>, conditions: Vec<(String, Operand)> },
    /// INSERT … VALUES
    Insert(Box<ast::Insert>),
}

impl ChangeShape {
    /// The shape of a statement; `None` if it is no such change.
    ///
    /// # Errors
    /// Those of parsing.
    pub(super) fn of(sql: &str) -> Result<Option<ChangeShape>> {
        let parameters = count_parameters(sql)?;
        let kind = match statement::parse(sql)? {
            Parsed::Change(change) => keyed(change),
            Parsed::Sql(statement) => match *statement {
                DfStatement::Statement(statement) => match *statement {
                    Statement::Insert(insert) => inserted(insert),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        };
        Ok(kind.map(|kind| ChangeShape { parameters, kind }))
    }
}

fn keyed(mut change: Box<ChangeStatement>) -> Option<ChangeKind> {
    if !matches!(change.tag, "UPDATE" | "DELETE") || change.query.with.is_some() {
        return None;
    }
    let alias = folded(&change.alias);
    let SetExpr::Select(select) = change.query.body.as_mut() else { return None };
    let [from] = select.from.as_slice() else { return None };
    if !from.joins.is_empty() || !matches!(from.relation, TableFactor::Table { .. }) {
        return None;
    }
    let is_kept = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => is_keepable(expr),
        SelectItem::QualifiedWildcard(..) => true,
        _ => false,
    };
    let condition = select.selection.take()?;
    let returns = change.returning.iter().flatten();
    if !select.projection.iter().all(is_kept) || !returns.into_iter().all(is_simple_item) {
        return None;
    }
    let mut conditions = Vec::new();
    let are_equalities = add_equalities(&condition, &alias, &mut conditions);
    are_equalities.then_some(ChangeKind::Keyed { change, conditions })
}

fn inserted(insert: ast::Insert) -> Option<ChangeKind> {
    let has_more = insert.or.is_some() || insert.ignore || insert.replace_into || insert.overwrite;
    let source = insert.source.as_deref()?;
    let is_plain = source.with.is_none()
        && source.order_by.is_none()
        && source.limit_clause.is_none()
        && source.fetch.is_none()
        && source.pipe_operators.is_empty();
    let SetExpr::Values(values) = source.body.as_ref() else { return None };
    let are_kept = values.rows.len() <= ROWS_MAX
        && values.rows.iter().flat_map(|row| &row.content).all(is_keepable)
        && insert.returning.iter().flatten().all(is_simple_item);
    let is_resolved = match &insert.on {
        None => true,
        Some(on) => values.rows.len() == 1 && is_kept_resolution(on),
    };
    (!has_more && is_plain && are_kept && is_resolved).then(|| ChangeKind::Insert(Box::new(insert)))
}

/// Whether what becomes of a row whose key the table has is told from that row and the new one.
fn is_kept_resolution(on: &ast::OnInsert) -> bool {
    let ast::OnInsert::OnConflict(on) = on else { return false };
    let ast::OnConflictAction::DoUpdate(update) = &on.action else { return true };
    let is_default = |expr: &Expr| {
        matches!(expr, Expr::Identifier(name)
        if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"))
    };
    let is_kept = |of: &ast::Assignment| {
        matches!(&of.target, ast::AssignmentTarget::ColumnName(name) if name.0.len() == 1)
            && !is_default(&of.value)
            && is_simple(&of.value, Leaves::ColumnsAndParameters)
    };
    let is_simple_condition = |of: &Expr| is_simple(of, Leaves::ColumnsAndParameters);
    update.assignments.iter().all(is_kept)
        && update.selection.as_ref().is_none_or(is_simple_condition)
}

/// Whether parameters stand only where columns may stand for them. What else an expression may be is seen when it is planned.
fn is_keepable(expr: &Expr) -> bool {
    !has_parameters(expr) || is_simple(expr, Leaves::ColumnsAndParameters)
}

fn has_parameters(expr: &Expr) -> bool {
    struct Placeholders;
    impl Visitor for Placeholders {
        type Break = ();

        fn pre_visit_value(&mut self, value: &ast::ValueWithSpan) -> ControlFlow<()> {
            match value.value {
                ast::Value::Placeholder(_) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    ast::Visit::visit(expr, &mut Placeholders).is_break()
}

/// Puts columns of the relation `alias` in place of parameters.
pub(super) fn bind_columns(of: &mut impl VisitMut, alias: &Ident) {
    struct Columns<'a>(&'a Ident);
    impl VisitorMut for Columns<'_> {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Some(Operand::Parameter(number)) = operand(expr) {
                let column = Ident::with_quote('"', parameter_column(number));
                *expr = Expr::CompoundIdentifier(vec![self.0.clone(), column]);
            }
            ControlFlow::Continue(())
        }
    }
    // The visitor never breaks.
    let _ = of.visit(&mut Columns(alias));
}

/// The name of the column of a parameter, which no column of a table can have, as it has a line break.
pub(super) fn parameter_column(number: usize) -> String {
    format!("{PARAMETER}{number}")
}

/// Whether a column is that of a parameter.
pub(super) fn is_parameter(column: &str) -> bool {
    column.starts_with(PARAMETER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(sql: &str) -> Option<Vec<(String, Operand)>> {
        match ChangeShape::of(sql).unwrap()?.kind {
            ChangeKind::Keyed { conditions, .. } => Some(conditions),
            ChangeKind::Insert(_) => Some(Vec::new()),
        }
    }

    #[test]
    fn changes_by_key_are_found() {
        let id = |number| Some(vec![("id".to_owned(), Operand::Parameter(number))]);
        assert_eq!(conditions("UPDATE t SET a = a + $1 WHERE id = $2"), id(1));
        assert_eq!(conditions("UPDATE t AS x SET a = ?, b = upper(?) WHERE x.id = ?;"), id(2));
        assert_eq!(conditions("DELETE FROM s.t WHERE $1 = id RETURNING a + 1, *"), id(0));
        assert_eq!(conditions("INSERT INTO t VALUES ($1, DEFAULT, now(), 'x')"), Some(Vec::new()));
        assert_eq!(conditions("INSERT INTO t (a) VALUES ($1 + 1), (-$2)"), Some(Vec::new()));
        let upsert = "INSERT INTO t VALUES ($1, $2) ON CONFLICT";
        assert_eq!(conditions(&format!("{upsert} DO NOTHING")), Some(Vec::new()));
        let update = "(a) DO UPDATE SET b = t.b + excluded.b WHERE t.b < $3";
        assert_eq!(conditions(&format!("{upsert} {update}")), Some(Vec::new()));
    }

    #[test]
    fn other_statements_have_no_shape() {
        for sql in [
            "UPDATE t SET a = $1",
            "UPDATE t SET a = $1 WHERE id > $2",
            "UPDATE t SET a = $1 WHERE id = $2 OR id = $3",
            "UPDATE t SET a = u.a FROM u WHERE t.id = $1",
            "UPDATE t SET a = (SELECT max(b) FROM u WHERE b < $2) WHERE id = $1",
            "UPDATE t SET a = round(b, $1) WHERE id = $2",
            "UPDATE t SET a = $1 WHERE id = $2 RETURNING $3",
            "WITH u AS (SELECT 1) UPDATE t SET a = $1 WHERE id = $2",
            "DELETE FROM t USING u WHERE t.id = $1",
            "DELETE FROM t WHERE id IN ($1)",
            "MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN DELETE",
            "INSERT INTO t SELECT $1",
            "INSERT OR REPLACE INTO t VALUES ($1)",
            "INSERT INTO t VALUES ($1), ($2) ON CONFLICT DO NOTHING",
            "INSERT INTO t VALUES ($1) ON CONFLICT (a) DO UPDATE SET b = DEFAULT",
            "INSERT INTO t VALUES ($1) ON CONFLICT (a) DO UPDATE SET b = (SELECT 1)",
            "SELECT a FROM t WHERE id = $1",
        ] {
            assert_eq!(conditions(sql), None, "{sql}");
        }
    }
}
