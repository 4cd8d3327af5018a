//! What a database holds, for programs that ask for it by patterns: schemas, tables and constraints.
//!
//! It is read by statements of the session, so that it is what they see.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use futures::TryStreamExt;
use weft_sql::{ErrorKind, Result, SqlError, Value, quoted};

use crate::session::Session;

/// The name of the only catalog.
pub const CATALOG: &str = "weft";

/// The schema of tables without a name of a schema.
pub const DEFAULT_SCHEMA: &str = "main";

/// A table or view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// `BASE TABLE` or `VIEW`.
    pub table_type: String,
}

/// What a constraint demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConstraintType {
    /// PRIMARY KEY.
    PrimaryKey,
    /// UNIQUE.
    Unique,
    /// FOREIGN KEY.
    ForeignKey,
    /// CHECK.
    Check,
}

impl ConstraintType {
    /// The words of SQL for it.
    pub fn name(self) -> &'static str {
        match self {
            ConstraintType::PrimaryKey => "PRIMARY KEY",
            ConstraintType::Unique => "UNIQUE",
            ConstraintType::ForeignKey => "FOREIGN KEY",
            ConstraintType::Check => "CHECK",
        }
    }
}

/// What a foreign key refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferencedKey {
    /// The schema of the table.
    pub schema: String,
    /// The table.
    pub table: String,
    /// The name of the key's constraint, if it has one.
    pub constraint: Option<String>,
    /// Its columns, in the order of those that refer to them.
    pub columns: Vec<String>,
}

/// A constraint of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConstraintEntry {
    /// The schema of the table.
    pub schema: String,
    /// The table.
    pub table: String,
    /// The name of the constraint.
    pub name: String,
    /// What it demands.
    pub constraint_type: ConstraintType,
    /// Its columns; none of a CHECK.
    pub columns: Vec<String>,
    /// What a foreign key refers to.
    pub referenced: Option<ReferencedKey>,
}

impl Session {
    /// The schemas whose names are `LIKE` a pattern, in order; all without one.
    ///
    /// # Errors
    /// If the session's transaction has failed, and those of reading.
    pub async fn schemas_like(&self, pattern: Option<&str>) -> Result<Vec<String>> {
        let sql = "SELECT schema_name FROM information_schema.schemata \
                   WHERE schema_name LIKE $1 ORDER BY 1";
        let batches = self.listed(sql, &[pattern]).await?;
        Ok(batches.iter().flat_map(|batch| texts(batch, 0)).collect())
    }

    /// The tables and views whose schemas and names are `LIKE` patterns, in order; all without patterns. Temporary tables are not among
    /// them.
    ///
    /// # Errors
    /// As for [`Session::schemas_like`].
    pub async fn tables_like(
        &self,
        schema: Option<&str>,
        table: Option<&str>,
    ) -> Result<Vec<TableEntry>> {
        let sql = "SELECT table_schema, table_name, table_type FROM information_schema.tables \
                   WHERE table_schema LIKE $1 AND table_name LIKE $2 ORDER BY 1, 2";
        let batches = self.listed(sql, &[schema, table]).await?;
        let mut found = Vec::new();
        for batch in &batches {
            let rows = texts(batch, 0).into_iter().zip(texts(batch, 1)).zip(texts(batch, 2));
            found.extend(rows.map(|((schema, name), table_type)| TableEntry {
                schema,
                name,
                table_type,
            }));
        }
        Ok(found)
    }

    /// The columns of a table or view.
    ///
    /// # Errors
    /// [`ErrorKind::Semantic`] if there is none.
    pub async fn table_columns(&self, schema: Option<&str>, table: &str) -> Result<SchemaRef> {
        let name = match schema {
            Some(schema) => format!("{}.{}", quoted(schema), quoted(table)),
            None => quoted(table),
        };
        let found = self.signature(&format!("SELECT * FROM {name}"), Vec::new()).await?;
        found.columns.ok_or_else(|| {
            SqlError::new(ErrorKind::Internal, format!("the table {name} has no columns"))
        })
    }

    /// The constraints of all tables, by schema, table and name.
    ///
    /// # Errors
    /// As for [`Session::schemas_like`].
    pub async fn constraints(&self) -> Result<Vec<ConstraintEntry>> {
        let tables = "SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_class AS c \
                      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
                      WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema')";
        let tables = Tables::of(&self.listed(tables, &[]).await?)?;
        let columns = "SELECT attrelid, attnum, attname FROM pg_catalog.pg_attribute";
        let columns = Columns::of(&self.listed(columns, &[]).await?)?;
        let sql = "SELECT conrelid, conname, contype, conkey, confrelid, confkey, conindid \
                   FROM pg_catalog.pg_constraint";
        let batches = self.listed(sql, &[]).await?;
        let mut keys = Vec::new();
        for batch in &batches {
            keys.extend(Keys::of(batch)?.rows());
        }
        let mut found = Vec::new();
        for key in &keys {
            let Some((schema, table)) = tables.find(key.table) else { continue };
            let constraint_type = match key.kind.as_str() {
                "p" => ConstraintType::PrimaryKey,
                "u" => ConstraintType::Unique,
                "f" => ConstraintType::ForeignKey,
                "c" => ConstraintType::Check,
                _ => continue,
            };
            let referenced = match (constraint_type, tables.find(key.referenced)) {
                (ConstraintType::ForeignKey, Some((schema, table))) => Some(ReferencedKey {
                    schema: schema.to_owned(),
                    table: table.to_owned(),
                    // The key that is referred to is the one of the same index.
                    constraint: keys
                        .iter()
                        .find(|other| other.index == key.index && "pu".contains(&other.kind))
                        .map(|other| other.name.clone()),
                    columns: columns.names(key.referenced, &key.referenced_columns),
                }),
                _ => None,
            };
            found.push(ConstraintEntry {
                schema: schema.to_owned(),
                table: table.to_owned(),
                name: key.name.clone(),
                constraint_type,
                columns: columns.names(key.table, &key.columns),
                referenced,
            });
        }
        let place = |entry: &ConstraintEntry| {
            (entry.schema.clone(), entry.table.clone(), entry.name.clone())
        };
        found.sort_by_key(place);
        Ok(found)
    }

    /// The rows of a query of the system, with a pattern for each parameter.
    async fn listed(&self, sql: &str, patterns: &[Option<&str>]) -> Result<Vec<RecordBatch>> {
        let values: Vec<Value> =
            patterns.iter().map(|pattern| Value::from(pattern.unwrap_or("%"))).collect();
        self.start(sql, &values).try_collect().await
    }
}

/// The values of a column of texts.
fn texts(batch: &RecordBatch, column: usize) -> Vec<String> {
    let Ok(column) = cast(batch.column(column), &DataType::LargeUtf8) else { return Vec::new() };
    let column = column.as_string::<i64>();
    column.iter().map(|value| value.unwrap_or_default().to_owned()).collect()
}

/// The values of a column of numbers; 0 for NULL.
fn numbers(column: &ArrayRef) -> Result<Vec<i64>> {
    let column = cast(column, &DataType::Int64)?;
    Ok(column.as_primitive::<Int64Type>().iter().map(Option::unwrap_or_default).collect())
}

/// Tables by their numbers.
struct Tables(Vec<(i64, String, String)>);

impl Tables {
    fn of(batches: &[RecordBatch]) -> Result<Tables> {
        let mut found = Vec::new();
        for batch in batches {
            let names = texts(batch, 1).into_iter().zip(texts(batch, 2));
            let rows = numbers(batch.column(0))?.into_iter().zip(names);
            found.extend(rows.map(|(oid, (schema, name))| (oid, schema, name)));
        }
        Ok(Tables(found))
    }

    fn find(&self, oid: i64) -> Option<(&str, &str)> {
        let found = self.0.iter().find(|(known, ..)| *known == oid)?;
        Some((&found.1, &found.2))
    }
}

/// Columns by the numbers of their tables and their own.
struct Columns(std::collections::HashMap<(i64, i64), String>);

impl Columns {
    fn of(batches: &[RecordBatch]) -> Result<Columns> {
        let mut found = std::collections::HashMap::new();
        for batch in batches {
            let places = numbers(batch.column(0))?.into_iter().zip(numbers(batch.column(1))?);
            found.extend(places.zip(texts(batch, 2)));
        }
        Ok(Columns(found))
    }

    fn names(&self, table: i64, columns: &[i64]) -> Vec<String> {
        columns.iter().filter_map(|column| self.0.get(&(table, *column)).cloned()).collect()
    }
}

/// A row of `pg_constraint`.
struct Key {
    table: i64,
    name: String,
    kind: String,
    columns: Vec<i64>,
    referenced: i64,
    referenced_columns: Vec<i64>,
    index: i64,
}

/// Rows of `pg_constraint`, column by column.
struct Keys {
    tables: Vec<i64>,
    names: Vec<String>,
    kinds: Vec<String>,
    columns: Vec<Vec<i64>>,
    referenced: Vec<i64>,
    referenced_columns: Vec<Vec<i64>>,
    indexes: Vec<i64>,
}

impl Keys {
    fn of(batch: &RecordBatch) -> Result<Keys> {
        let lists = |column: &ArrayRef| -> Result<Vec<Vec<i64>>> {
            let list = column.as_list::<i32>();
            let items = |row| match list.is_null(row) {
                true => Ok(Vec::new()),
                false => numbers(&list.value(row)),
            };
            (0..list.len()).map(items).collect()
        };
        Ok(Keys {
            tables: numbers(batch.column(0))?,
            names: texts(batch, 1),
            kinds: texts(batch, 2),
            columns: lists(batch.column(3))?,
            referenced: numbers(batch.column(4))?,
            referenced_columns: lists(batch.column(5))?,
            indexes: numbers(batch.column(6))?,
        })
    }

    fn rows(self) -> impl Iterator<Item = Key> {
        let ids = self.tables.into_iter().zip(self.referenced).zip(self.indexes);
        let words = self.names.into_iter().zip(self.kinds);
        let columns = self.columns.into_iter().zip(self.referenced_columns);
        let rows = ids.zip(words).zip(columns);
        rows.map(|((((table, referenced), index), (name, kind)), (columns, referenced_columns))| {
            Key { table, name, kind, columns, referenced, referenced_columns, index }
        })
    }
}

#[cfg(test)]
mod tests {
    use weft_rt::sync::block_on;

    use super::*;
    use crate::{Database, DatabaseOptions};

    #[test]
    fn tables_and_constraints_are_listed() -> Result<()> {
        let session = Database::in_memory(&DatabaseOptions::default())?.session()?;
        for sql in [
            "CREATE TABLE parent (a INTEGER, b INTEGER, CONSTRAINT pair PRIMARY KEY (a, b))",
            "CREATE SCHEMA shop",
            "CREATE TABLE shop.child (x INTEGER UNIQUE, y INTEGER CHECK (y > 0), \
             CONSTRAINT up FOREIGN KEY (y, x) REFERENCES parent (a, b))",
            "CREATE VIEW v AS SELECT a FROM parent",
        ] {
            session.execute(sql)?;
        }
        let tables = block_on(session.tables_like(None, None))?;
        let tables: Vec<_> = tables
            .iter()
            .map(|table| (table.schema.as_str(), table.name.as_str(), table.table_type.as_str()))
            .collect();
        let expected = [
            ("main", "parent", "BASE TABLE"),
            ("main", "v", "VIEW"),
            ("shop", "child", "BASE TABLE"),
        ];
        assert_eq!(tables, expected);
        assert_eq!(block_on(session.tables_like(Some("sh%"), Some("chi_d")))?.len(), 1);
        assert_eq!(block_on(session.schemas_like(Some("s%")))?, ["shop"]);
        let constraints = block_on(session.constraints())?;
        let up = constraints.iter().find(|found| found.name == "up").expect("the foreign key");
        assert_eq!(up.constraint_type, ConstraintType::ForeignKey);
        assert_eq!(up.columns, ["y", "x"]);
        let referenced = up.referenced.clone().expect("what it refers to");
        assert_eq!(referenced.constraint.as_deref(), Some("pair"));
        assert_eq!(
            (referenced.table.as_str(), referenced.columns),
            ("parent", vec!["a".into(), "b".into()])
        );
        assert_eq!(constraints.len(), 4);
        let columns = block_on(session.table_columns(Some("shop"), "child"))?;
        assert_eq!(columns.fields().len(), 2);
        let missing = block_on(session.table_columns(None, "nothing"));
        assert_eq!(missing.map_err(|error| error.kind()), Err(ErrorKind::Semantic));
        Ok(())
    }
}
