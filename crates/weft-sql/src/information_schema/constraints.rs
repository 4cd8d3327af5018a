//! The constraints of tables: `table_constraints`, `key_column_usage`, `check_constraints`, `referential_constraints`.

use std::sync::Arc;

use datafusion::datasource::MemTable;
use weft_store::Table;

use super::{InformationSchema, integer, table, text};
use crate::catalog::CATALOG;
use crate::definitions;
use crate::error::Result;
use crate::schemas;

/// A constraint of a table.
struct Constraint {
    table: String,
    name: String,
    kind: &'static str,
    /// The columns of a key.
    columns: Vec<String>,
    /// The text of a condition.
    check: Option<String>,
    /// The unique constraint that a foreign key refers to.
    referenced: Option<String>,
    /// For each column of a foreign key, its place in what it refers to, from 1 on.
    places: Vec<i32>,
}

impl InformationSchema {
    fn schema_of<'a>(&self, constraint: &'a Constraint) -> &'a str {
        schemas::parts(self.catalog.snapshot(), &constraint.table).0
    }

    fn name_of<'a>(&self, constraint: &'a Constraint) -> &'a str {
        schemas::parts(self.catalog.snapshot(), &constraint.table).1
    }

    fn constraints(&self) -> Vec<Constraint> {
        let snapshot = self.catalog.snapshot();
        let tables = definitions::lasting_tables(snapshot).filter_map(|name| snapshot.table(name));
        let mut found: Vec<Constraint> =
            tables.flat_map(|table| self.constraints_of(&table)).collect();
        found.sort_by(|a, b| (&a.table, &a.name).cmp(&(&b.table, &b.name)));
        found
    }

    fn constraints_of(&self, table: &Arc<Table>) -> Vec<Constraint> {
        let (schema, snapshot) = (table.schema(), self.catalog.snapshot());
        let plain = |name: &str, kind| Constraint {
            table: schema.name.clone(),
            name: name.to_owned(),
            kind,
            columns: Vec::new(),
            check: None,
            referenced: None,
            places: Vec::new(),
        };
        let mut found = Vec::new();
        for index in table.indexes().filter(|index| index.is_constraint) {
            let kind = if index.is_primary { "PRIMARY KEY" } else { "UNIQUE" };
            let columns = index.columns.iter().map(|of| schema.columns[of.column].name.clone());
            found.push(Constraint { columns: columns.collect(), ..plain(&index.name, kind) });
        }
        for check in &table.constraints().checks {
            let text = Some(check.sql.clone());
            found.push(Constraint { check: text, ..plain(&check.name, "CHECK") });
        }
        for key in &table.constraints().foreign_keys {
            let parent = snapshot.table_name(key.parent).and_then(|name| snapshot.table(name));
            let index = parent
                .iter()
                .flat_map(|parent| parent.indexes().cloned().collect::<Vec<_>>())
                .find(|index| {
                    index.is_unique
                        && index.columns.len() == key.parent_columns.len()
                        && index.columns.iter().all(|of| key.parent_columns.contains(&of.column))
                });
            let place = |column: &usize| {
                let columns = index.iter().flat_map(|index| &index.columns);
                columns.zip(1..).find(|(of, _)| of.column == *column).map_or(0, |(_, at)| at)
            };
            let columns = key.columns.iter().map(|column| schema.columns[*column].name.clone());
            found.push(Constraint {
                columns: columns.collect(),
                places: key.parent_columns.iter().map(place).collect(),
                referenced: index.as_ref().map(|index| index.name.clone()),
                ..plain(&key.name, "FOREIGN KEY")
            });
        }
        found
    }

    pub(super) fn table_constraints(&self) -> Result<MemTable> {
        let rows = self.constraints();
        let all = |name, value: &'static str| text(name, rows.iter().map(move |_| Some(value)));
        table(vec![
            all("constraint_catalog", CATALOG),
            text("constraint_schema", rows.iter().map(|row| Some(self.schema_of(row)))),
            text("constraint_name", rows.iter().map(|row| Some(row.name.as_str()))),
            all("table_catalog", CATALOG),
            text("table_schema", rows.iter().map(|row| Some(self.schema_of(row)))),
            text("table_name", rows.iter().map(|row| Some(self.name_of(row)))),
            text("constraint_type", rows.iter().map(|row| Some(row.kind))),
            all("is_deferrable", "NO"),
            all("initially_deferred", "NO"),
            all("enforced", "YES"),
        ])
    }

    pub(super) fn key_column_usage(&self) -> Result<MemTable> {
        let constraints = self.constraints();
        let rows: Vec<(&Constraint, &str, i32, Option<i32>)> = constraints
            .iter()
            .flat_map(|row| {
                row.columns.iter().zip(1..).map(move |(column, at)| {
                    let place = row.places.get(at as usize - 1).copied();
                    (row, column.as_str(), at, place)
                })
            })
            .collect();
        let all = |name, value: &'static str| text(name, rows.iter().map(move |_| Some(value)));
        table(vec![
            all("constraint_catalog", CATALOG),
            text("constraint_schema", rows.iter().map(|row| Some(self.schema_of(row.0)))),
            text("constraint_name", rows.iter().map(|row| Some(row.0.name.as_str()))),
            all("table_catalog", CATALOG),
            text("table_schema", rows.iter().map(|row| Some(self.schema_of(row.0)))),
            text("table_name", rows.iter().map(|row| Some(self.name_of(row.0)))),
            text("column_name", rows.iter().map(|row| Some(row.1))),
            integer("ordinal_position", rows.iter().map(|row| Some(row.2))),
            integer("position_in_unique_constraint", rows.iter().map(|row| row.3)),
        ])
    }

    pub(super) fn check_constraints(&self) -> Result<MemTable> {
        let mut rows = self.constraints();
        rows.retain(|row| row.check.is_some());
        let all = |name, value: &'static str| text(name, rows.iter().map(move |_| Some(value)));
        table(vec![
            all("constraint_catalog", CATALOG),
            text("constraint_schema", rows.iter().map(|row| Some(self.schema_of(row)))),
            text("constraint_name", rows.iter().map(|row| Some(row.name.as_str()))),
            text("check_clause", rows.iter().map(|row| row.check.as_deref())),
        ])
    }

    pub(super) fn referential_constraints(&self) -> Result<MemTable> {
        let mut rows = self.constraints();
        rows.retain(|row| row.kind == "FOREIGN KEY");
        let all = |name, value: &'static str| text(name, rows.iter().map(move |_| Some(value)));
        table(vec![
            all("constraint_catalog", CATALOG),
            text("constraint_schema", rows.iter().map(|row| Some(self.schema_of(row)))),
            text("constraint_name", rows.iter().map(|row| Some(row.name.as_str()))),
            all("unique_constraint_catalog", CATALOG),
            text("unique_constraint_schema", rows.iter().map(|row| Some(self.schema_of(row)))),
            text("unique_constraint_name", rows.iter().map(|row| row.referenced.as_deref())),
            all("match_option", "NONE"),
            all("update_rule", "NO ACTION"),
            all("delete_rule", "NO ACTION"),
        ])
    }
}
