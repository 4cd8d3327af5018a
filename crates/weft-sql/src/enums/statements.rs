//! CREATE TYPE, ALTER TYPE and DROP TYPE. A type is kept among the definitions of the snapshot (`definitions.rs`); the columns of its
//! values have its labels as well, and are altered with it.

use std::collections::HashSet;

use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::physical_plan::collect;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{self, ObjectName};
use futures::FutureExt;
use weft_store::{Alteration, Change, Snapshot, Table, TableSchema};

use super::syntax::{AlterType, CreateType, Labels, Operation, Place};
use super::{EnumType, find, in_quotes};
use crate::catalog::{StatementCatalog, relation_name};
use crate::definitions::{self, Kind, stored_name};
use crate::error::{ErrorKind, Result, SqlError};
use crate::run::{Run, Started};
use crate::schemas::{check_place, parts};
use crate::spill_files::task_context;
use crate::suggest;
use crate::types::is_known_name;

/// Labels of a type, at most.
const LABELS_MAX: usize = 65_536;

impl Run {
    /// CREATE TYPE.
    pub(crate) async fn create_type(
        &self,
        catalog: &StatementCatalog,
        create: CreateType,
    ) -> Result<Started> {
        let CreateType { name: place, or_replace, if_not_exists, labels } = create;
        let tag = "CREATE TYPE";
        let name = type_name(catalog, &place)?;
        let snapshot = catalog.snapshot();
        check_place(snapshot, &place, &name)?;
        catalog.access().check_all("make types")?;
        let inner = parts(snapshot, &name).1;
        if is_known_name(inner) {
            let message = format!("there is a type {inner} already");
            return Err(SqlError::new(ErrorKind::AlreadyExists, message)
                .about(inner)
                .with_hint("give yours another name"));
        }
        if let Some(there) = find(snapshot, &name) {
            if if_not_exists {
                return Ok(self.change(tag, Vec::new()));
            }
            if !or_replace {
                let message = format!("type {there} exists already");
                return Err(SqlError::new(ErrorKind::AlreadyExists, message)
                    .with_hint("write CREATE OR REPLACE TYPE, or IF NOT EXISTS"));
            }
            check_unused(snapshot, &there)?;
        }
        let change = move |labels: Vec<String>| {
            if labels.len() > LABELS_MAX {
                let message = format!(
                    "{} labels are more than the {LABELS_MAX} that a type can have",
                    labels.len()
                );
                return Err(SqlError::new(ErrorKind::Semantic, message));
            }
            let words = EnumType::new(Some(name.clone()), labels)?.words().to_owned();
            let name = stored_name(Kind::Type, &name);
            Ok(Change::CreateView { name, sql: words, or_replace })
        };
        let query = match labels {
            Labels::Listed(labels) => return Ok(self.change(tag, vec![change(labels)?])),
            Labels::Of(query) => query,
        };
        let statement = DfStatement::Statement(Box::new(ast::Statement::Query(query)));
        let state = catalog.planning_state();
        let plan = catalog.plan(&state, statement).await?;
        let columns = plan.schema().fields().len();
        if columns != 1 {
            let message = format!("the labels of a type are one column, not {columns}");
            return Err(SqlError::new(ErrorKind::Semantic, message));
        }
        let physical = self.physical(&state, &plan).await?;
        let run = self.clone();
        let work = async move {
            let (mut labels, mut seen) = (Vec::new(), HashSet::new());
            for batch in collect(physical, task_context(&state)).await? {
                let texts = cast(batch.column(0), &DataType::Utf8View)?;
                let texts = texts.as_string_view().iter().flatten();
                labels.extend(
                    texts.filter(|text| seen.insert((*text).to_owned())).map(str::to_owned),
                );
            }
            run.commit(vec![change(labels)?]).await?;
            Ok(None)
        };
        Ok(Started::Command { tag, work: work.boxed() })
    }

    /// ALTER TYPE.
    pub(crate) fn alter_type(
        &self,
        catalog: &StatementCatalog,
        alter: &AlterType,
    ) -> Result<Started> {
        let tag = "ALTER TYPE";
        let name = type_name(catalog, &alter.name)?;
        let snapshot = catalog.snapshot();
        catalog.access().check_all("alter types")?;
        let old = find(snapshot, &name).ok_or_else(|| unknown(snapshot, &name))?;
        let mut labels = old.labels().to_vec();
        let place = |label: &String| {
            labels.iter().position(|known| known == label).ok_or_else(|| old.no_label(label))
        };
        match &alter.operation {
            Operation::Add { label, if_not_exists: true, .. } if old.has(label) => {
                return Ok(self.change(tag, Vec::new()));
            }
            Operation::Add { label, .. } | Operation::Rename { to: label, .. }
                if old.has(label) =>
            {
                let message = format!("type {old} has the label {} already", in_quotes(label));
                return Err(SqlError::new(ErrorKind::AlreadyExists, message));
            }
            Operation::Add { label, place: where_to, .. } => {
                let at = match where_to {
                    Place::Last => labels.len(),
                    Place::Before(other) => place(other)?,
                    Place::After(other) => place(other)? + 1,
                };
                labels.insert(at, label.clone());
            }
            Operation::Rename { from, to } => {
                let at = place(from)?;
                // Rows have labels.
                if let Err(error) = check_unused(snapshot, &old) {
                    let message = format!(
                        "a label of a type that columns are of cannot be renamed: {}",
                        error.message()
                    );
                    return Err(SqlError::new(ErrorKind::NotSupported, message)
                        .with_hint("add the new label with ADD VALUE, and UPDATE the rows"));
                }
                labels[at].clone_from(to);
            }
        }
        let new = EnumType::new(Some(name.clone()), labels)?;
        let stored = stored_name(Kind::Type, &name);
        let words = new.words().to_owned();
        let mut changes = vec![Change::CreateView { name: stored, sql: words, or_replace: true }];
        for table in tables(snapshot).filter(|table| column_of(table, &old).is_some()) {
            let mut columns = table.schema().clone();
            for column in &mut columns.columns {
                if column.kind.as_deref() == Some(old.words()) {
                    column.kind = Some(new.words().to_owned());
                }
            }
            let origins = (0..columns.columns.len()).map(Some).collect();
            changes.push(Change::AlterTable {
                table: columns.name.clone(),
                expected: Some(table.id()),
                alteration: Alteration { columns, origins, seen: None, rows: None },
            });
        }
        if changes.len() > 1 && self.transaction.is_some() {
            let message =
                "ALTER TYPE of a type that columns are of cannot run within a transaction";
            return Err(SqlError::new(ErrorKind::ActiveTransaction, message)
                .with_hint("COMMIT or ROLLBACK first"));
        }
        Ok(self.change(tag, changes))
    }

    /// DROP TYPE.
    pub(crate) fn drop_types(
        &self,
        catalog: &StatementCatalog,
        names: &[ObjectName],
        if_exists: bool,
    ) -> Result<Started> {
        catalog.access().check_all("drop types")?;
        let snapshot = catalog.snapshot();
        let mut changes = Vec::new();
        for name in names {
            let name = type_name(catalog, name)?;
            match find(snapshot, &name) {
                Some(found) => {
                    check_unused(snapshot, &found)?;
                    changes.push(Change::DropView { name: stored_name(Kind::Type, &name) });
                }
                None if if_exists => {}
                None => return Err(unknown(snapshot, &name)),
            }
        }
        Ok(self.change("DROP TYPE", changes))
    }
}

/// The name of a type in a statement, as the catalog has it.
fn type_name(catalog: &StatementCatalog, name: &ObjectName) -> Result<String> {
    let name = relation_name(name)?;
    catalog.check_own(&name)?;
    Ok(name)
}

fn tables(snapshot: &Snapshot) -> impl Iterator<Item = std::sync::Arc<Table>> {
    snapshot.tables().filter_map(|name| snapshot.table(name))
}

/// A column of a table whose values are of a type, by its name.
fn column_of<'a>(table: &'a Table, ty: &EnumType) -> Option<&'a str> {
    let is_of = |kind: &String| EnumType::read(kind).is_some_and(|of| of.name() == ty.name());
    let columns = &table.schema().columns;
    columns
        .iter()
        .find(|column| column.kind.as_ref().is_some_and(is_of))
        .map(|column| column.name.as_str())
}

/// Checks that no column is of a type.
///
/// # Errors
/// [`ErrorKind::Semantic`] that names one.
fn check_unused(snapshot: &Snapshot, ty: &EnumType) -> Result<()> {
    for table in tables(snapshot) {
        if let Some(column) = column_of(&table, ty) {
            let table = &table.schema().name;
            let message = format!("type {ty} is needed by the column {column} of table {table}");
            return Err(SqlError::new(ErrorKind::Semantic, message).with_hint(format!(
                "drop the column, or give it another type: ALTER TABLE {table} ALTER {column} TYPE VARCHAR"
            )));
        }
    }
    Ok(())
}

/// No type has this name; perhaps one has a similar one.
fn unknown(snapshot: &Snapshot, name: &str) -> SqlError {
    let error =
        SqlError::new(ErrorKind::Semantic, format!("type {name} does not exist")).about(name);
    let known: Vec<&str> = definitions::names(snapshot, Kind::Type).collect();
    match suggest::hint("type", name, &known) {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// The names of the types in a schema that was made.
///
/// # Errors
/// [`ErrorKind::Semantic`] if a column is of one of them that is not in the schema itself.
pub(crate) fn enums_within(snapshot: &Snapshot, schema: &str) -> Result<Vec<String>> {
    let start = format!("{schema}.");
    let names = definitions::names(snapshot, Kind::Type).filter(|name| name.starts_with(&start));
    let names: Vec<String> = names.map(str::to_owned).collect();
    for ty in names.iter().filter_map(|name| find(snapshot, name)) {
        let outside = tables(snapshot).filter(|table| !table.schema().name.starts_with(&start));
        for table in outside {
            if let Some(column) = column_of(&table, &ty) {
                let table = &table.schema().name;
                let message =
                    format!("type {ty} is needed by the column {column} of table {table}");
                return Err(SqlError::new(ErrorKind::Semantic, message));
            }
        }
    }
    Ok(names)
}

/// Has columns whose types the database does not have, as they come from another one, keep the labels without the name.
pub(crate) fn adopt_kinds(snapshot: &Snapshot, schema: &mut TableSchema) -> Result<()> {
    for column in &mut schema.columns {
        let Some(ty) = column.kind.as_deref().and_then(EnumType::read) else { continue };
        let is_known = |name: &str| find(snapshot, name).is_some_and(|known| known == ty);
        if ty.name().is_some_and(|name| !is_known(name)) {
            column.kind = Some(EnumType::new(None, ty.labels().to_vec())?.words().to_owned());
        }
    }
    Ok(())
}

/// The statements that make the types which the columns of a table are of.
pub(crate) fn type_statements(table: &Table) -> Vec<String> {
    let kinds = table.schema().columns.iter().filter_map(|column| column.kind.as_deref());
    let mut statements = Vec::new();
    for ty in kinds.filter_map(EnumType::read).filter(|ty| ty.name().is_some()) {
        let statement = format!("CREATE TYPE IF NOT EXISTS {ty} AS {}", ty.listed());
        if !statements.contains(&statement) {
            statements.push(statement);
        }
    }
    statements
}
