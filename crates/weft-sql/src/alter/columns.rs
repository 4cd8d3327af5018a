//! Columns that come, go, and change.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{self, AlterColumnOperation, ColumnDef, Expr, Ident};
use weft_store::{Change, Check, ForeignKey, Table};

use super::mentions::{mentions, with_name};
use super::target::{Column, Target, Value};
use crate::ddl::declared_columns;
use crate::error::{ErrorKind, Result, SqlError, internal};
use crate::statement::fold;
use crate::text_kinds::TextKind;

impl Target<'_> {
    /// ADD COLUMN.
    pub(super) async fn add_column(
        &mut self,
        column: ColumnDef,
        if_not_exists: bool,
    ) -> Result<()> {
        let name = fold(column.name.value.clone(), column.name.quote_style);
        if self.columns.iter().any(|other| other.column.name == name) {
            if if_not_exists {
                return Ok(());
            }
            return Err(exists(self.name(), &name));
        }
        let (column, declared) = self.declared(column).await?;
        self.declared.extend(declared);
        self.columns.push(Column { column, origin: None, value: Value::Default });
        Ok(())
    }

    /// A column as a definition says.
    async fn declared(
        &self,
        column: ColumnDef,
    ) -> Result<(weft_store::Column, Vec<crate::keys::Declared>)> {
        let (mut columns, declared) = declared_columns(self.catalog, vec![column]).await?;
        match columns.pop() {
            Some(column) => Ok((column, declared)),
            None => Err(internal("a definition of a column has none")),
        }
    }

    /// DROP COLUMN.
    pub(super) fn drop_column(&mut self, name: &Ident, is_cascading: bool) -> Result<()> {
        let place = self.place(name)?;
        let column = self.columns[place].column.name.clone();
        let (table, origin) = (self.name().to_owned(), self.columns[place].origin);
        let needed = |what: String| {
            let message = format!("column {column} of table {table} is needed by {what}");
            SqlError::new(ErrorKind::Semantic, message)
                .about(&column)
                .with_hint("drop that first, or write CASCADE")
        };
        if let Some(origin) = origin {
            for index in self.indexes.clone() {
                let is_in_key = index.columns.iter().any(|of| of.column == origin);
                if !is_in_key && !index.included.contains(&origin) {
                    continue;
                }
                if !is_cascading {
                    let what = if index.is_constraint { "the key" } else { "the index" };
                    return Err(needed(format!("{what} {}", index.name)));
                }
                self.drop_index(&index.name, is_cascading)?;
            }
            for key in &self.table.constraints().foreign_keys {
                let is_of = |key: &ForeignKey| key.columns.contains(&origin);
                if !is_of(key) || !self.foreign_keys.contains(&key.name) {
                    continue;
                }
                if !is_cascading {
                    return Err(needed(format!("the foreign key {}", key.name)));
                }
                self.drop_plain_constraint(&key.name);
            }
        }
        for check in self.checks.clone() {
            if !mentions(&check.sql, self.name(), &column)? {
                continue;
            }
            if !is_cascading {
                return Err(needed(format!("the condition {}, CHECK ({})", check.name, check.sql)));
            }
            self.drop_plain_constraint(&check.name);
        }
        self.columns.remove(place);
        self.is_losing = true;
        Ok(())
    }

    /// RENAME COLUMN.
    pub(super) fn rename_column(&mut self, from: &Ident, to: &Ident) -> Result<()> {
        let place = self.place(from)?;
        let to = fold(to.value.clone(), to.quote_style);
        let from = self.columns[place].column.name.clone();
        if from == to {
            return Ok(());
        }
        if to.is_empty() {
            let message = "the name of a column cannot be empty";
            return Err(SqlError::new(ErrorKind::Semantic, message));
        }
        if self.columns.iter().any(|other| other.column.name == to) {
            return Err(exists(self.name(), &to));
        }
        for number in 0..self.checks.len() {
            let Check { name, sql } = self.checks[number].clone();
            if !mentions(&sql, self.name(), &from)? {
                continue;
            }
            let sql = with_name(&sql, self.name(), &from, &to)?;
            let check = Check { name: name.clone(), sql };
            let table = self.name().to_owned();
            self.before.push(Change::DropConstraint { table: table.clone(), name });
            self.after.retain(|change| !matches!(change, Change::AddCheck { check: old, .. } if old.name == check.name));
            self.after.push(Change::AddCheck { table, check: check.clone() });
            self.checks[number] = check;
        }
        self.columns[place].column.name = to;
        self.is_losing = true;
        Ok(())
    }

    /// ALTER COLUMN.
    pub(super) async fn alter_column(
        &mut self,
        name: &Ident,
        operation: AlterColumnOperation,
    ) -> Result<()> {
        let place = self.place(name)?;
        match operation {
            AlterColumnOperation::SetDefault { value } => {
                self.columns[place].column.default = Some(value.to_string());
            }
            AlterColumnOperation::DropDefault => self.columns[place].column.default = None,
            AlterColumnOperation::SetNotNull => self.columns[place].column.nullable = false,
            AlterColumnOperation::DropNotNull => {
                let origin = self.columns[place].origin;
                let is_of = |index: &&weft_store::IndexDefinition| {
                    index.is_primary && index.columns.iter().any(|of| Some(of.column) == origin)
                };
                if let Some(index) = self.indexes.iter().find(is_of) {
                    let column = &self.columns[place].column.name;
                    let message = format!(
                        "column {column} of table {} is one of the primary key {}, and so NOT NULL",
                        self.name(),
                        index.name
                    );
                    return Err(SqlError::new(ErrorKind::Semantic, message).about(column));
                }
                self.columns[place].column.nullable = true;
            }
            AlterColumnOperation::SetDataType { data_type, using, .. } => {
                self.set_type(place, data_type, using).await?;
            }
            other => return Err(SqlError::not_supported(format!("ALTER COLUMN … {other}"))),
        }
        Ok(())
    }

    /// ALTER COLUMN … TYPE.
    async fn set_type(
        &mut self,
        place: usize,
        data_type: ast::DataType,
        using: Option<Expr>,
    ) -> Result<()> {
        let old = self.columns[place].column.clone();
        let column =
            ColumnDef { name: Ident::with_quote('"', &old.name), data_type, options: Vec::new() };
        let (new, _) = self.declared(column).await?;
        if let Some(key) = self.foreign_key_of(place) {
            let (column, table) = (&old.name, self.name());
            let message =
                format!("column {column} of table {table} is one of the foreign key {key}");
            return Err(SqlError::new(ErrorKind::Semantic, message).about(column).with_hint(
                format!("drop the foreign key first, and add it again: DROP CONSTRAINT {key}"),
            ));
        }
        let kinds = [&old, &new].map(TextKind::of_column);
        let is_kind_there = kinds.iter().any(Option::is_some);
        let is_other_kind = kinds[0] != kinds[1];
        let is_within = match (old.max_length, new.max_length) {
            (_, None) => true,
            (Some(old), Some(new)) => old <= new && !is_kind_there,
            (None, Some(_)) => false,
        };
        let is_kept = using.is_none()
            && old.data_type == new.data_type
            && (is_within || old.max_length == new.max_length)
            && !is_other_kind;
        if old.data_type != new.data_type || is_other_kind {
            self.is_losing = true;
        }
        let column = &mut self.columns[place];
        (column.column.data_type, column.column.max_length) = (new.data_type, new.max_length);
        column.column.kind = new.kind;
        column.value = match (is_kept, using, &column.value) {
            (_, Some(using), _) => Value::Using(Box::new(using)),
            (true, None, Value::Kept) => Value::Kept,
            (_, None, Value::Default) => Value::Default,
            (_, None, Value::Using(expr)) => Value::Using(expr.clone()),
            _ => Value::Cast,
        };
        Ok(())
    }

    /// A foreign key, of this table or to it, that has the column.
    fn foreign_key_of(&self, place: usize) -> Option<String> {
        let origin = self.columns[place].origin?;
        let own = self.table.constraints().foreign_keys.iter();
        let mut own = own.filter(|key| self.foreign_keys.contains(&key.name));
        if let Some(key) = own.find(|key| key.columns.contains(&origin)) {
            return Some(key.name.clone());
        }
        let number = self.table.number();
        let is_to =
            |key: &&ForeignKey| key.parent == number && key.parent_columns.contains(&origin);
        let snapshot = self.catalog.snapshot();
        snapshot.tables().filter_map(|name| snapshot.table(name)).find_map(|table: Arc<Table>| {
            table.constraints().foreign_keys.iter().find(is_to).map(|key| key.name.clone())
        })
    }
}

fn exists(table: &str, column: &str) -> SqlError {
    let message = format!("table {table} has a column {column} already");
    SqlError::new(ErrorKind::AlreadyExists, message).about(column)
}
