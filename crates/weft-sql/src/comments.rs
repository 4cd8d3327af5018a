//! COMMENT ON TABLE, VIEW and COLUMN. A comment is kept among the definitions (`definitions.rs`) by the name of what it is about, which
//! it follows when that gets another name, and with which it goes. `pg_description` and PostgreSQL's functions show it.

use datafusion::sql::sqlparser::ast::{CommentObject, Ident, ObjectName};
use weft_store::{Change, Snapshot, TableSchema};

use crate::access::Need;
use crate::catalog::{StatementCatalog, relation_name};
use crate::copy_from::index_of;
use crate::definitions::{self, Kind, MARK, stored_name};
use crate::error::{ErrorKind, Result, SqlError};
use crate::information_schema::view_columns;
use crate::run::{Run, Started};
use crate::statement::fold;

/// The name of the comment on a table or view, or on a column of it.
fn key(relation: &str, column: Option<&str>) -> String {
    match column {
        Some(column) => format!("{relation}{MARK}{column}"),
        None => relation.to_owned(),
    }
}

/// The comment on a table or view, or on a column of it.
pub(crate) fn comment<'a>(
    snapshot: &'a Snapshot,
    relation: &str,
    column: Option<&str>,
) -> Option<&'a str> {
    definitions::text(snapshot, Kind::Comment, &key(relation, column))
}

/// The comments on a relation and its columns: the column's name and the text.
fn all<'a>(
    snapshot: &'a Snapshot,
    relation: &str,
) -> impl Iterator<Item = (Option<&'a str>, &'a str)> {
    let own = comment(snapshot, relation, None).map(|text| (None, text));
    let start = key(relation, Some(""));
    let of_columns = definitions::names(snapshot, Kind::Comment).filter_map(move |name| {
        let column = name.strip_prefix(&start)?;
        Some((Some(column), definitions::text(snapshot, Kind::Comment, name)?))
    });
    own.into_iter().chain(of_columns)
}

fn drop(relation: &str, column: Option<&str>) -> Change {
    Change::DropView { name: stored_name(Kind::Comment, &key(relation, column)) }
}

fn create(relation: &str, column: Option<&str>, text: &str) -> Change {
    let name = stored_name(Kind::Comment, &key(relation, column));
    Change::CreateView { name, sql: text.to_owned(), or_replace: true }
}

/// The changes that drop the comments on what is dropped or replaced.
pub(crate) fn dropped(snapshot: &Snapshot, relation: &str) -> Vec<Change> {
    all(snapshot, relation).map(|(column, _)| drop(relation, column)).collect()
}

/// The changes that have the comments follow a relation's new name.
pub(crate) fn renamed(snapshot: &Snapshot, from: &str, to: &str) -> Vec<Change> {
    all(snapshot, from)
        .flat_map(|(column, text)| [drop(from, column), create(to, column, text)])
        .collect()
}

/// The changes that have the comments follow the columns of an altered table, which may get another name as well.
pub(crate) fn altered(
    snapshot: &Snapshot,
    (before, after): (&TableSchema, &TableSchema),
    origins: &[Option<usize>],
    renamed: Option<&str>,
) -> Vec<Change> {
    let (mut gone, mut made) = (Vec::new(), Vec::new());
    let to = renamed.unwrap_or(&after.name);
    for (column, text) in all(snapshot, &before.name) {
        let now = column.map(|column| {
            let old = before.columns.iter().position(|of| of.name == column)?;
            let place = origins.iter().position(|origin| *origin == Some(old))?;
            Some(after.columns[place].name.as_str())
        });
        if now == column.map(Some) && to == before.name {
            continue;
        }
        gone.push(drop(&before.name, column));
        match now {
            None => made.push(create(to, None, text)),
            Some(Some(column)) => made.push(create(to, Some(column), text)),
            Some(None) => {}
        }
    }
    gone.extend(made);
    gone
}

impl Run {
    /// COMMENT ON.
    pub(crate) async fn comment(
        &self,
        catalog: &StatementCatalog,
        (object, name): (CommentObject, &ObjectName),
        text: Option<String>,
        if_exists: bool,
    ) -> Result<Started> {
        let snapshot = catalog.snapshot();
        let tag = "COMMENT";
        let (relation, column) = match object {
            CommentObject::Table | CommentObject::View => (relation_name(name)?, None),
            CommentObject::Column => {
                let mut name = name.clone();
                let column = name.0.pop().and_then(|part| part.as_ident().cloned());
                match column {
                    Some(column) if !name.0.is_empty() => (relation_name(&name)?, Some(column)),
                    _ => {
                        let message = format!("{name} is no column of a table");
                        return Err(SqlError::new(ErrorKind::Semantic, message)
                            .with_hint("write COMMENT ON COLUMN table.column IS '…'"));
                    }
                }
            }
            other => {
                return Err(SqlError::not_supported(format!("COMMENT ON {other}"))
                    .with_hint("comments are kept on TABLE, VIEW and COLUMN"));
            }
        };
        let names = match (snapshot.table(&relation), snapshot.view(&relation)) {
            (Some(_), _) if object == CommentObject::View => {
                let message = format!("{relation} is a table");
                return Err(SqlError::new(ErrorKind::Semantic, message)
                    .about(&relation)
                    .with_hint(format!("write COMMENT ON TABLE {relation}")));
            }
            (None, Some(_)) if object == CommentObject::Table => {
                let message = format!("{relation} is a view");
                return Err(SqlError::new(ErrorKind::Semantic, message)
                    .about(&relation)
                    .with_hint(format!("write COMMENT ON VIEW {relation}")));
            }
            (Some(table), _) => table.schema().clone(),
            (None, Some(sql)) => {
                let columns = view_columns(catalog, &relation, sql).await.unwrap_or_default();
                TableSchema { name: relation.clone(), columns }
            }
            (None, None) if if_exists => return Ok(self.change(tag, Vec::new())),
            (None, None) => return Err(catalog.unknown(&relation)),
        };
        catalog.access().check(snapshot, &relation, Need::Owner)?;
        let column = column.map(|column| found(&names, &column)).transpose()?;
        let column = column.as_deref();
        let has_one = comment(snapshot, &relation, column).is_some();
        let changes = match text {
            Some(text) => vec![create(&relation, column, &text)],
            None if has_one => vec![drop(&relation, column)],
            None => Vec::new(),
        };
        Ok(self.change(tag, changes))
    }
}

/// The name of a column as the relation has it.
fn found(schema: &TableSchema, column: &Ident) -> Result<String> {
    let name = fold(column.value.clone(), column.quote_style);
    match index_of(schema, &name, column.quote_style.is_some()) {
        Some(place) => Ok(schema.columns[place].name.clone()),
        None => {
            let message = format!("{} has no column {name}", schema.name);
            Err(SqlError::new(ErrorKind::Semantic, message).about(name))
        }
    }
}
