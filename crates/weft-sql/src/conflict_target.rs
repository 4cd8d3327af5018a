//! What an INSERT says of rows whose keys the table has: the action, and the keys that count.

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::{self, Ident, ObjectNamePart};
use weft_store::{IndexDefinition, Table};

use crate::copy_from::index_of;
use crate::error::{ErrorKind, Result, SqlError};
use crate::statement::fold;

/// What becomes of a row whose key the table has.
#[derive(Clone, Debug)]
pub(crate) enum Resolution {
    /// It is not inserted.
    Nothing(Option<ast::ConflictTarget>),
    /// It takes the place of the table's row.
    Replace,
    /// The table's row is updated.
    Update(Option<ast::ConflictTarget>, Vec<ast::Assignment>, Option<Box<ast::Expr>>),
}

impl Resolution {
    /// Takes what an INSERT says of conflicts out of it; nothing if they are errors.
    ///
    /// # Errors
    /// [`ErrorKind::NotSupported`] for what is not carried out.
    pub(crate) fn take(insert: &mut ast::Insert) -> Result<Option<Resolution>> {
        let ignore = std::mem::take(&mut insert.ignore);
        let replace = std::mem::take(&mut insert.replace_into);
        let or = match insert.or.take() {
            None | Some(ast::SqliteOnConflict::Abort | ast::SqliteOnConflict::Rollback) => None,
            Some(ast::SqliteOnConflict::Ignore) => Some(Resolution::Nothing(None)),
            Some(ast::SqliteOnConflict::Replace) => Some(Resolution::Replace),
            Some(ast::SqliteOnConflict::Fail) => {
                return Err(SqlError::not_supported("INSERT OR FAIL")
                    .with_hint("a statement inserts all of its rows or none"));
            }
        };
        let or = match (ignore, replace) {
            (true, _) => Some(Resolution::Nothing(None)),
            (false, true) => Some(Resolution::Replace),
            (false, false) => or,
        };
        let on = match insert.on.take() {
            None => return Ok(or),
            Some(ast::OnInsert::OnConflict(on)) => on,
            Some(_) => {
                return Err(SqlError::not_supported("ON DUPLICATE KEY UPDATE")
                    .with_hint("write ON CONFLICT (columns) DO UPDATE SET a = excluded.a"));
            }
        };
        if or.is_some() {
            let message = "INSERT OR IGNORE, or OR REPLACE, and ON CONFLICT exclude each other";
            return Err(SqlError::new(ErrorKind::Semantic, message));
        }
        let target = on.conflict_target;
        Ok(Some(match on.action {
            ast::OnConflictAction::DoNothing => Resolution::Nothing(target),
            ast::OnConflictAction::DoUpdate(update) => {
                Resolution::Update(target, update.assignments, update.selection.map(Box::new))
            }
        }))
    }

    /// The unique indexes in which keys are looked for.
    ///
    /// # Errors
    /// [`ErrorKind::Semantic`] if there is none, or are several where one is meant.
    pub(crate) fn arbiters<'a>(&self, table: &'a Table) -> Result<Vec<&'a IndexDefinition>> {
        let unique: Vec<&IndexDefinition> = table.indexes().filter(|of| of.is_unique).collect();
        let name = &table.schema().name;
        let (target, what) = match self {
            Resolution::Nothing(None) => return Ok(unique),
            Resolution::Nothing(target) => (target.as_ref(), "ON CONFLICT"),
            Resolution::Replace => (None, "OR REPLACE"),
            Resolution::Update(target, ..) => (target.as_ref(), "DO UPDATE"),
        };
        let found = match target {
            Some(ast::ConflictTarget::Columns(columns)) => {
                let columns = numbers(table, columns)?;
                let is_of = |of: &&&IndexDefinition| {
                    of.columns.len() == columns.len()
                        && of.columns.iter().all(|of| columns.contains(&of.column))
                };
                unique.iter().find(is_of).copied().ok_or_else(|| {
                    let message =
                        format!("table {name} has no unique key of the columns of ON CONFLICT");
                    SqlError::new(ErrorKind::Semantic, message).with_hint(
                        "name all columns of a primary key, of UNIQUE or of a unique index",
                    )
                })?
            }
            Some(ast::ConflictTarget::OnConstraint(constraint)) => {
                let Some(ident) = constraint.0.last().and_then(ObjectNamePart::as_ident) else {
                    let message = format!("{constraint} is no name of a constraint");
                    return Err(SqlError::new(ErrorKind::Semantic, message));
                };
                let constraint = fold(ident.value.clone(), ident.quote_style);
                let is_it = |of: &&&IndexDefinition| of.is_constraint && of.name == constraint;
                unique.iter().find(is_it).copied().ok_or_else(|| {
                    let message =
                        format!("table {name} has no primary or unique key named {constraint}");
                    SqlError::new(ErrorKind::Semantic, message).about(constraint)
                })?
            }
            None => match unique[..] {
                [only] => only,
                [] => {
                    let message = format!("{what} needs a unique key, and table {name} has none");
                    return Err(SqlError::new(ErrorKind::Semantic, message)
                        .with_hint(format!("CREATE UNIQUE INDEX ON {name} (…)")));
                }
                _ => {
                    let message = format!(
                        "{what} does not say which key is meant: table {name} has several unique keys"
                    );
                    return Err(SqlError::new(ErrorKind::Semantic, message)
                        .with_hint("write ON CONFLICT (columns) DO UPDATE SET …"));
                }
            },
        };
        Ok(vec![found])
    }
}

fn numbers(table: &Table, columns: &[Ident]) -> Result<HashSet<usize>> {
    let number = |column: &Ident| {
        let name = fold(column.value.clone(), column.quote_style);
        index_of(table.schema(), &name, column.quote_style.is_some()).ok_or_else(|| {
            let message = format!("table {} has no column {name}", table.schema().name);
            SqlError::new(ErrorKind::Semantic, message).about(name)
        })
    };
    columns.iter().map(number).collect()
}
