//! Views over a table that is altered: those that would not work any more, or have other columns.

use std::sync::Arc;

use arrow::datatypes::DataType;
use weft_store::{Change, Snapshot, Table, TableSchema};

use crate::access::acl;
use crate::assign::marked_schema;
use crate::catalog::StatementCatalog;
use crate::comments;
use crate::definitions::Kind;
use crate::dependents::dependents;
use crate::error::{ErrorKind, Result, SqlError};
use crate::relation::{Relation, RelationTable};

/// The views that need a table to have the columns that it has, in order of their names.
///
/// # Errors
/// Those of the catalog; not those of views.
pub(super) async fn needing(
    catalog: &StatementCatalog,
    table: &Table,
    schema: &TableSchema,
) -> Result<Vec<String>> {
    let snapshot = catalog.snapshot();
    let mut needing = Vec::new();
    for view in dependents(snapshot, &schema.name) {
        let before = columns(catalog, table.schema(), &view).await;
        // A view that does not work now needs nothing.
        let Ok(before) = before else { continue };
        let after = columns(catalog, schema, &view).await;
        if after.ok().as_ref() != Some(&before) {
            needing.push(view);
        }
    }
    Ok(needing)
}

/// What becomes of them: they go, if the statement cascades.
///
/// # Errors
/// [`ErrorKind::Semantic`] if there are some otherwise.
pub(super) fn changes(
    snapshot: &Snapshot,
    (table, views): (&str, Vec<String>),
    is_cascading: bool,
) -> Result<Vec<Change>> {
    if !is_cascading && !views.is_empty() {
        let message =
            format!("what changes of table {table} is needed by these views: {}", views.join(", "));
        return Err(SqlError::new(ErrorKind::Semantic, message)
            .with_hint("drop them first; DROP COLUMN drops them with CASCADE"));
    }
    let dropped = |name: String| {
        let mut changes = comments::dropped(snapshot, &name);
        changes.extend(acl::dropped(snapshot, Kind::Access, &name));
        changes.push(Change::DropView { name });
        changes
    };
    Ok(views.into_iter().flat_map(dropped).collect())
}

/// Names and types of the columns of a view over a table with these columns.
async fn columns(
    catalog: &StatementCatalog,
    schema: &TableSchema,
    view: &str,
) -> Result<Vec<(String, DataType)>> {
    let catalog = catalog.unbound();
    let relation = Relation::of_rows(marked_schema(schema), Vec::new())?;
    let relation = RelationTable::new(&schema.name, relation);
    catalog.bind_rows(&schema.name, Arc::new(relation));
    let sql = catalog.snapshot().view(view).unwrap_or_default().to_owned();
    let view = catalog.view(view, &sql).await?;
    let schema = view.schema();
    let columns = schema.fields().iter();
    Ok(columns.map(|field| (field.name().clone(), field.data_type().clone())).collect())
}
