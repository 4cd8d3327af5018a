//! Keys, conditions and indexes: what CREATE TABLE promises of rows, and CREATE INDEX, DROP INDEX and REINDEX.
//!
//! The store enforces keys and foreign keys when rows are committed, by indexes; conditions (`checks.rs`) are put to rows as these
//! are written.

mod check_tables;
mod checks;
mod declared;
mod included;
mod indexes;
mod words;

use std::collections::HashSet;

use weft_store::{Change, Check, ForeignKey, IndexColumn, IndexDefinition, Snapshot, TableSchema};

use crate::access::{Need, Rights};
use crate::catalog::StatementCatalog;
use crate::copy_from::index_of;
use crate::error::{ErrorKind, Result, SqlError};
use crate::schemas::parts;
pub(crate) use checks::Checks;
pub(crate) use declared::{Declared, take_constraints};
use declared::{Kind, Name};
pub(crate) use included::rewrite as rewrite_included;
use indexes::included_columns;
pub(crate) use words::{constraints_in_words, included_in_words, index_in_words};

/// What a table promises, with its columns' numbers.
#[derive(Debug, Default)]
pub(crate) struct Promised {
    indexes: Vec<IndexDefinition>,
    pub(crate) checks: Vec<Check>,
    /// With the name of the referenced table.
    references: Vec<(String, ForeignKey)>,
}

impl Promised {
    /// What makes a table of this name, which there is already, keep what is promised.
    pub(crate) fn changes(&self, table: &str) -> Vec<Change> {
        let indexes = self.indexes.iter().map(|definition| Change::CreateIndex {
            table: table.to_owned(),
            expected: None,
            definition: definition.clone(),
        });
        let checks = self
            .checks
            .iter()
            .map(|check| Change::AddCheck { table: table.to_owned(), check: check.clone() });
        let references = self.references.iter().map(|(parent, key)| Change::AddForeignKey {
            table: table.to_owned(),
            parent: parent.clone(),
            key: key.clone(),
        });
        indexes.chain(checks).chain(references).collect()
    }
}

/// An ascending column of a key.
pub(crate) fn ascending(column: usize) -> IndexColumn {
    IndexColumn { column, is_descending: false, nulls_first: false }
}

/// Finds the columns that constraints name, and gives names to those that have none. Columns of a primary key become NOT NULL.
///
/// # Errors
/// [`ErrorKind::Semantic`] for columns and tables that there are not, and for what does not fit together.
pub(crate) fn resolve(
    catalog: &StatementCatalog,
    schema: &mut TableSchema,
    declared: Vec<Declared>,
) -> Result<Promised> {
    resolve_more(catalog, schema, declared, (&[], HashSet::new()))
}

/// As [`resolve`], of a table that has these indexes already; constraints of it have the names that are taken.
///
/// # Errors
/// As [`resolve`].
pub(crate) fn resolve_more(
    catalog: &StatementCatalog,
    schema: &mut TableSchema,
    declared: Vec<Declared>,
    (kept, taken): (&[IndexDefinition], HashSet<String>),
) -> Result<Promised> {
    let exists = |one: &&Declared| one.name.as_ref().is_some_and(|name| taken.contains(name));
    if let Some(name) = declared.iter().find(exists).and_then(|one| one.name.clone()) {
        let message = format!("constraint {name} exists already");
        return Err(SqlError::new(ErrorKind::AlreadyExists, message)
            .about(name)
            .with_hint("give the constraint another name"));
    }
    let mut names = Names::new(catalog.snapshot(), &schema.name, &declared);
    names.taken.extend(taken);
    let mut promised = Promised::default();
    // Foreign keys may refer to keys of the table itself.
    let (references, others): (Vec<_>, Vec<_>) =
        declared.into_iter().partition(|one| matches!(one.kind, Kind::Foreign { .. }));
    for Declared { name, kind } in others.into_iter().chain(references) {
        match kind {
            Kind::Key { columns, included, is_primary } => {
                let columns = numbers(schema, &columns)?;
                if is_primary {
                    let mut indexes = kept.iter().chain(&promised.indexes);
                    if indexes.any(|index| index.is_primary) {
                        let message = format!("table {} has two primary keys", schema.name);
                        return Err(SqlError::new(ErrorKind::Semantic, message));
                    }
                    columns.iter().for_each(|number| schema.columns[*number].nullable = false);
                }
                let suffix = if is_primary { "pkey" } else { "key" };
                let of = if is_primary { &[][..] } else { &columns[..] };
                let name = names.name(name, schema, of, suffix);
                let columns: Vec<IndexColumn> = columns.into_iter().map(ascending).collect();
                let included = included_columns(schema, &columns, &included)?;
                let (is_unique, is_constraint) = (true, true);
                promised.indexes.push(IndexDefinition {
                    name,
                    columns,
                    included,
                    is_unique,
                    is_primary,
                    is_constraint,
                });
            }
            Kind::Check { sql, column } => {
                let of: Vec<usize> = column.iter().filter_map(|name| name.find(schema)).collect();
                let name = names.name(name, schema, &of, "check");
                promised.checks.push(Check { name, sql });
            }
            Kind::Foreign { columns, parent, parent_columns } => {
                let columns = numbers(schema, &columns)?;
                let name = names.name(name, schema, &columns, "fkey");
                let parent_columns = referenced(
                    catalog,
                    (schema, &[kept, promised.indexes.as_slice()].concat()),
                    &columns,
                    &parent,
                    &parent_columns,
                )?;
                let key = ForeignKey { name, columns, parent: 0, parent_columns };
                promised.references.push((parent, key));
            }
        }
    }
    Ok(promised)
}

/// The columns of a table that a foreign key refers to.
fn referenced(
    catalog: &StatementCatalog,
    (own, own_indexes): (&TableSchema, &[IndexDefinition]),
    columns: &[usize],
    parent: &str,
    named: &[Name],
) -> Result<Vec<usize>> {
    let (schema, indexes): (TableSchema, Vec<IndexDefinition>) = match parent == own.name {
        true => (own.clone(), own_indexes.to_vec()),
        false => {
            let table = catalog.stored(parent, Need::Rights(Rights::REFERENCES))?;
            (table.schema().clone(), table.indexes().cloned().collect())
        }
    };
    let numbers = match named {
        [] => {
            let primary = indexes.iter().find(|index| index.is_primary);
            let Some(primary) = primary else {
                let message = format!("table {parent} has no primary key to refer to");
                return Err(SqlError::new(ErrorKind::Semantic, message)
                    .about(parent)
                    .with_hint("name the columns: REFERENCES table (a, b)"));
            };
            primary.columns.iter().map(|of| of.column).collect()
        }
        named => numbers(&schema, named)?,
    };
    if numbers.len() != columns.len() {
        let message = format!(
            "a foreign key of {} columns refers to {} of table {parent}",
            columns.len(),
            numbers.len()
        );
        return Err(SqlError::new(ErrorKind::Semantic, message));
    }
    let is_key = |index: &IndexDefinition| {
        index.is_unique
            && index.columns.len() == numbers.len()
            && index.columns.iter().all(|of| numbers.contains(&of.column))
    };
    if !indexes.iter().any(is_key) {
        let names: Vec<&str> =
            numbers.iter().map(|number| schema.columns[*number].name.as_str()).collect();
        let message = format!("({}) is no unique key of table {parent}", names.join(", "));
        return Err(SqlError::new(ErrorKind::Semantic, message)
            .with_hint("a foreign key refers to a primary key, UNIQUE columns or a unique index"));
    }
    for (column, number) in columns.iter().zip(&numbers) {
        let (from, to) = (&own.columns[*column], &schema.columns[*number]);
        if from.data_type != to.data_type {
            let message = format!(
                "column {} refers to column {} of table {parent}, which has another type",
                from.name, to.name
            );
            return Err(SqlError::new(ErrorKind::Semantic, message).about(&from.name));
        }
    }
    Ok(numbers)
}

fn numbers(schema: &TableSchema, names: &[Name]) -> Result<Vec<usize>> {
    let mut numbers = Vec::with_capacity(names.len());
    for name in names {
        let Some(number) = name.find(schema) else {
            let message = format!("table {} has no column {}", schema.name, name.text);
            return Err(SqlError::new(ErrorKind::Semantic, message).about(&name.text));
        };
        if numbers.contains(&number) {
            let message = format!("column {} is named twice in one key", name.text);
            return Err(SqlError::new(ErrorKind::Semantic, message).about(&name.text));
        }
        numbers.push(number);
    }
    Ok(numbers)
}

impl Name {
    fn find(&self, schema: &TableSchema) -> Option<usize> {
        index_of(schema, &self.text, self.is_quoted)
    }
}

/// The names of indexes and constraints that there are.
struct Names {
    taken: HashSet<String>,
    /// The table's, within its schema.
    table: String,
}

impl Names {
    /// Those of a table that is replaced will be free.
    fn new(snapshot: &Snapshot, replaced: &str, declared: &[Declared]) -> Names {
        let others = snapshot.tables().filter(|name| *name != replaced);
        let tables = others.filter_map(|name| snapshot.table(name));
        let mut taken: HashSet<String> = tables
            .flat_map(|table| table.indexes().map(|index| index.name.clone()).collect::<Vec<_>>())
            .collect();
        taken.extend(declared.iter().filter_map(|one| one.name.clone()));
        let table = parts(snapshot, replaced).1.to_owned();
        Names { taken, table }
    }

    /// The name that was given, or one of table and columns that there is not.
    fn name(
        &mut self,
        given: Option<String>,
        schema: &TableSchema,
        columns: &[usize],
        suffix: &str,
    ) -> String {
        if let Some(name) = given {
            return name;
        }
        let columns = columns.iter().map(|number| schema.columns[*number].name.as_str());
        let parts: Vec<&str> =
            std::iter::once(self.table.as_str()).chain(columns).chain([suffix]).collect();
        let first = parts.join("_");
        let numbered = (1..).map(|number| format!("{first}{number}"));
        let name = std::iter::once(first.clone())
            .chain(numbered)
            .find(|name| !self.taken.contains(name))
            .unwrap_or(first.clone());
        self.taken.insert(name.clone());
        name
    }
}

/// What becomes of foreign keys that refer to tables which are dropped: they go with CASCADE.
///
/// # Errors
/// [`ErrorKind::ForeignKeyViolation`] if there are such, and no CASCADE.
pub(crate) fn drop_references(
    snapshot: &Snapshot,
    dropped: &[String],
    is_cascading: bool,
    changes: &mut Vec<Change>,
) -> Result<()> {
    let ids: Vec<u64> =
        dropped.iter().filter_map(|name| Some(snapshot.table(name)?.number())).collect();
    for name in snapshot.tables().filter(|name| !dropped.iter().any(|dropped| dropped == name)) {
        let Some(table) = snapshot.table(name) else { continue };
        for key in &table.constraints().foreign_keys {
            if !ids.contains(&key.parent) {
                continue;
            }
            if !is_cascading {
                let parent = snapshot.table_name(key.parent).unwrap_or_default();
                let message = format!(
                    "table {parent} is needed by the foreign key {} of table {name}",
                    key.name
                );
                return Err(SqlError::new(ErrorKind::ForeignKeyViolation, message)
                    .with_hint(format!("drop table {name} first, or write CASCADE")));
            }
            let (table, name) = (name.to_owned(), key.name.clone());
            changes.push(Change::DropConstraint { table, name });
        }
    }
    Ok(())
}
