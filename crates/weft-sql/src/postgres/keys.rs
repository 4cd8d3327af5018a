//! Indexes and constraints: what they are in SQL, and the constraints with their numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_store::{ForeignKey, IndexColumn, IndexDefinition, Snapshot, Table, TableSchema};

use crate::definitions;
use crate::identifiers::quoted;
use crate::keys::included_in_words;
use crate::postgres::numbers::{Numbered, constraint_oids, relations, table_oid};
use crate::schemas::{parts, written};

/// A constraint of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Constraint {
    pub(crate) oid: i64,
    pub(crate) name: String,
    pub(crate) schema: String,
    /// The number of its table.
    pub(crate) table: i64,
    /// The numbers of its columns, from 1 on.
    pub(crate) columns: Vec<i16>,
    /// The number of the index that enforces a key, or that a foreign key looks into; 0 for a condition.
    pub(crate) index: i64,
    pub(crate) kind: ConstraintKind,
    /// What it is in SQL; the condition alone of a condition.
    sql: String,
}

/// What a constraint promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConstraintKind {
    /// No two rows have one key.
    Unique,
    /// The same, and no value of the key is NULL.
    Primary,
    /// No row makes a condition false.
    Check,
    /// The columns of these numbers, from 1 on, of the table of this number have the key of each row.
    Foreign(i64, Vec<i16>),
}

impl Constraint {
    /// The letter of its kind.
    pub(crate) fn letter(&self) -> &'static str {
        match self.kind {
            ConstraintKind::Unique => "u",
            ConstraintKind::Primary => "p",
            ConstraintKind::Check => "c",
            ConstraintKind::Foreign(..) => "f",
        }
    }

    /// The condition that no row makes false.
    pub(crate) fn condition(&self) -> Option<&str> {
        (self.kind == ConstraintKind::Check).then_some(self.sql.as_str())
    }

    /// Its definition in SQL, with fewer parentheses if it is to be pretty.
    pub(crate) fn sql(&self, is_pretty: bool) -> String {
        match (self.condition(), is_pretty) {
            (None, _) => self.sql.clone(),
            (Some(condition), true) => format!("CHECK ({condition})"),
            (Some(condition), false) => format!("CHECK (({condition}))"),
        }
    }
}

/// The constraints of all tables, but for columns that are NOT NULL.
pub(crate) fn constraints(snapshot: &Snapshot) -> Vec<Constraint> {
    let indexes: Vec<Numbered> =
        relations(snapshot).into_iter().filter(|found| found.index().is_some()).collect();
    // Names of constraints are unique within their table.
    let mut found = BTreeMap::new();
    for table in definitions::lasting_tables(snapshot).filter_map(|name| snapshot.table(name)) {
        for constraint in of_table(snapshot, &indexes, &table) {
            found.insert(format!("{}\0{}", table.schema().name, constraint.name), constraint);
        }
    }
    let oids = constraint_oids(found.keys().map(String::as_str));
    let numbered = |(constraint, oid)| Constraint { oid, ..constraint };
    found.into_values().zip(oids).map(numbered).collect()
}

/// The constraints of a table, without their numbers.
fn of_table(snapshot: &Snapshot, indexes: &[Numbered], table: &Table) -> Vec<Constraint> {
    let schema = table.schema();
    let plain = |name: &str, kind, sql| Constraint {
        oid: 0,
        name: name.to_owned(),
        schema: parts(snapshot, &schema.name).0.to_owned(),
        table: table_oid(table.number()),
        columns: Vec::new(),
        index: 0,
        kind,
        sql,
    };
    let mut found = Vec::new();
    for index in table.indexes().filter(|index| index.is_constraint) {
        let numbers = index.columns.iter().map(|of| of.column);
        let (kind, word) = match index.is_primary {
            true => (ConstraintKind::Primary, "PRIMARY KEY"),
            false => (ConstraintKind::Unique, "UNIQUE"),
        };
        let included = included_in_words(schema, index);
        let sql = format!("{word} ({}){included}", names(schema, numbers.clone()));
        let is_it = |known: &&Numbered| known.index().is_some_and(|(_, of)| of.name == index.name);
        found.push(Constraint {
            columns: numbers.map(attribute).collect(),
            index: indexes.iter().find(is_it).map_or(0, |index| index.oid),
            ..plain(&index.name, kind, sql)
        });
    }
    for check in &table.constraints().checks {
        found.push(plain(&check.name, ConstraintKind::Check, check.sql.clone()));
    }
    for key in &table.constraints().foreign_keys {
        let parent = table_oid(key.parent);
        let parent_columns = key.parent_columns.iter().copied().map(attribute).collect();
        let is_it = |known: &&Numbered| {
            known.index().is_some_and(|(of, index)| of == parent && enforces(index, key))
        };
        found.push(Constraint {
            columns: key.columns.iter().copied().map(attribute).collect(),
            index: indexes.iter().find(is_it).map_or(0, |index| index.oid),
            ..plain(
                &key.name,
                ConstraintKind::Foreign(parent, parent_columns),
                foreign_sql(snapshot, schema, key),
            )
        });
    }
    found
}

/// True of an index whose keys are what a foreign key refers to.
fn enforces(index: &IndexDefinition, key: &ForeignKey) -> bool {
    index.is_unique
        && index.columns.len() == key.parent_columns.len()
        && index.columns.iter().all(|of| key.parent_columns.contains(&of.column))
}

fn foreign_sql(snapshot: &Snapshot, schema: &TableSchema, key: &ForeignKey) -> String {
    let columns = names(schema, key.columns.iter().copied());
    let parent = snapshot.table_name(key.parent).and_then(|name| snapshot.table(name));
    let referenced = parent.as_ref().map(|parent| {
        let columns = names(parent.schema(), key.parent_columns.iter().copied());
        format!("{}({columns})", written(snapshot, &parent.schema().name))
    });
    format!("FOREIGN KEY ({columns}) REFERENCES {}", referenced.unwrap_or_default())
}

/// The statement that makes the index of a number, or the column of its key of another number, from 1 on.
pub(crate) fn index_sql(snapshot: &Snapshot, oid: i64, column: Option<usize>) -> Option<String> {
    let index = relations(snapshot).into_iter().find(|found| found.oid == oid)?;
    let table = snapshot.table(&index.stored)?;
    let (_, definition) = index.index()?;
    let Some(column) = column else { return statement(snapshot, &index, &table) };
    let of_key = definition.columns.iter().map(|of| of.column);
    let number = of_key.chain(definition.included.iter().copied()).nth(column - 1)?;
    Some(quoted(&table.schema().columns.get(number)?.name))
}

/// The statement that makes an index; the table has its schema in front, as PostgreSQL has it.
pub(crate) fn statement(
    snapshot: &Snapshot,
    index: &Numbered,
    table: &Arc<Table>,
) -> Option<String> {
    let (_, definition) = index.index()?;
    let schema = table.schema();
    let columns: Vec<String> = definition.columns.iter().map(|of| key_column(schema, of)).collect();
    let unique = if definition.is_unique { "UNIQUE " } else { "" };
    let (of, name) = parts(snapshot, &schema.name);
    Some(format!(
        "CREATE {unique}INDEX {} ON {}.{} USING btree ({}){}",
        quoted(&index.name),
        quoted(of),
        quoted(name),
        columns.join(", "),
        included_in_words(schema, definition)
    ))
}

/// A column of a key with its order, where that is not the usual one.
fn key_column(schema: &TableSchema, of: &IndexColumn) -> String {
    let name =
        schema.columns.get(of.column).map_or_else(String::new, |column| quoted(&column.name));
    let order = match (of.is_descending, of.nulls_first) {
        (false, false) => "",
        (false, true) => " NULLS FIRST",
        (true, true) => " DESC",
        (true, false) => " DESC NULLS LAST",
    };
    format!("{name}{order}")
}

/// The names of columns of these numbers, as SQL writes a list of them.
fn names(schema: &TableSchema, numbers: impl Iterator<Item = usize>) -> String {
    let names: Vec<String> = numbers
        .filter_map(|number| schema.columns.get(number))
        .map(|column| quoted(&column.name))
        .collect();
    names.join(", ")
}

/// The number by which the catalog has a column.
pub(crate) fn attribute(column: usize) -> i16 {
    i16::try_from(column).map_or(i16::MAX, |column| column.saturating_add(1))
}
