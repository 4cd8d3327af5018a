//! A table as the operations of one ALTER TABLE leave it.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{AlterTableOperation, Expr, Ident};
use weft_store::{Change, Check, IndexColumn, IndexDefinition, Table, TableSchema};

use crate::catalog::StatementCatalog;
use crate::copy_from::index_of;
use crate::error::{ErrorKind, Result, SqlError};
use crate::keys::Declared;
use crate::statement::fold;
use crate::suggest;

/// A column as it will be.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) column: weft_store::Column,
    /// The number of the column that it was.
    pub(super) origin: Option<usize>,
    pub(super) value: Value,
}

/// Where the values of a column come from.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// They stay.
    Kept,
    /// The default of a new column.
    Default,
    /// The old ones, with another type.
    Cast,
    /// An expression over the old columns.
    Using(Box<Expr>),
}

/// A table on its way.
pub(super) struct Target<'a> {
    pub(super) catalog: &'a StatementCatalog,
    pub(super) table: &'a Arc<Table>,
    pub(super) columns: Vec<Column>,
    /// The conditions that stay, as they are written then.
    pub(super) checks: Vec<Check>,
    /// Indexes that stay, with the old columns' numbers.
    pub(super) indexes: Vec<IndexDefinition>,
    /// Foreign keys that stay.
    pub(super) foreign_keys: Vec<String>,
    /// Constraints that are new.
    pub(super) declared: Vec<Declared>,
    /// Changes before and behind that of the columns.
    pub(super) before: Vec<Change>,
    pub(super) after: Vec<Change>,
    /// The table's new name.
    pub(super) renamed: Option<String>,
    /// Views may need what changes.
    pub(super) is_losing: bool,
    /// What needs what goes goes as well.
    pub(super) is_cascading: bool,
}

impl<'a> Target<'a> {
    pub(super) fn new(catalog: &'a StatementCatalog, table: &'a Arc<Table>) -> Target<'a> {
        let columns = table.schema().columns.iter().enumerate();
        let columns = columns.map(|(number, column)| Column {
            column: column.clone(),
            origin: Some(number),
            value: Value::Kept,
        });
        let keys = table.constraints().foreign_keys.iter();
        Target {
            catalog,
            table,
            columns: columns.collect(),
            checks: table.constraints().checks.clone(),
            indexes: table.indexes().cloned().collect(),
            foreign_keys: keys.map(|key| key.name.clone()).collect(),
            declared: Vec::new(),
            before: Vec::new(),
            after: Vec::new(),
            renamed: None,
            is_losing: false,
            is_cascading: false,
        }
    }

    /// The table's name as it is.
    pub(super) fn name(&self) -> &'a str {
        &self.table.schema().name
    }

    /// The columns as they are by now.
    pub(super) fn schema(&self) -> TableSchema {
        let columns = self.columns.iter().map(|column| column.column.clone()).collect();
        TableSchema { name: self.name().to_owned(), columns }
    }

    /// The place of a column among the columns that the table has by now.
    pub(super) fn find(&self, name: &Ident) -> Option<usize> {
        let text = fold(name.value.clone(), name.quote_style);
        index_of(&self.schema(), &text, name.quote_style.is_some())
    }

    /// As [`Target::find`].
    ///
    /// # Errors
    /// [`ErrorKind::Semantic`] if there is none.
    pub(super) fn place(&self, name: &Ident) -> Result<usize> {
        self.find(name).ok_or_else(|| {
            let text = fold(name.value.clone(), name.quote_style);
            let message = format!("table {} has no column {text}", self.name());
            let known: Vec<&str> =
                self.columns.iter().map(|column| column.column.name.as_str()).collect();
            let error = SqlError::new(ErrorKind::Semantic, message).about(&text);
            match suggest::hint("column", &text, &known) {
                Some(hint) => error.with_hint(hint),
                None => error,
            }
        })
    }

    /// The indexes that stay, with the numbers of the columns by now.
    pub(super) fn kept_indexes(&self) -> Vec<IndexDefinition> {
        let renumbered = |index: &IndexDefinition| {
            let column = |of: &IndexColumn| {
                let origin = Some(of.column);
                let column = self.columns.iter().position(|column| column.origin == origin)?;
                Some(IndexColumn { column, ..*of })
            };
            let columns = index.columns.iter().map(column).collect::<Option<_>>()?;
            let included = index.included.iter().map(|number| {
                self.columns.iter().position(|column| column.origin == Some(*number))
            });
            let included = included.collect::<Option<_>>()?;
            Some(IndexDefinition { columns, included, ..index.clone() })
        };
        self.indexes.iter().filter_map(renumbered).collect()
    }

    /// The names that new constraints of the table cannot have.
    pub(super) fn taken_names(&self) -> HashSet<String> {
        let indexes = self.indexes.iter().map(|index| index.name.clone());
        let checks = self.checks.iter().map(|check| check.name.clone());
        indexes.chain(checks).chain(self.foreign_keys.iter().cloned()).collect()
    }

    /// Applies an operation to what those before it left.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) async fn apply(&mut self, operation: AlterTableOperation) -> Result<()> {
        match operation {
            AlterTableOperation::AddColumn {
                if_not_exists,
                column_def,
                column_position: None,
                ..
            } => self.add_column(column_def, if_not_exists).await,
            AlterTableOperation::DropColumn { column_names, if_exists, drop_behavior, .. } => {
                let is_cascading = self.cascade(drop_behavior.as_ref());
                column_names.iter().try_for_each(|name| match self.find(name) {
                    None if if_exists => Ok(()),
                    _ => self.drop_column(name, is_cascading),
                })
            }
            AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
                self.rename_column(&old_column_name, &new_column_name)
            }
            AlterTableOperation::RenameTable { table_name } => self.rename_table(&table_name),
            AlterTableOperation::AlterColumn { column_name, op } => {
                self.alter_column(&column_name, op).await
            }
            AlterTableOperation::AddConstraint { constraint, not_valid: false } => {
                self.declared.push(Declared::of_table(&constraint)?);
                Ok(())
            }
            AlterTableOperation::DropConstraint { if_exists, name, drop_behavior } => {
                let is_cascading = self.cascade(drop_behavior.as_ref());
                let name = fold(name.value, name.quote_style);
                self.drop_constraint(&name, if_exists, is_cascading)
            }
            AlterTableOperation::DropPrimaryKey { drop_behavior } => {
                let is_cascading = self.cascade(drop_behavior.as_ref());
                let primary = self.indexes.iter().find(|index| index.is_primary);
                let Some(name) = primary.map(|index| index.name.clone()) else {
                    let message = format!("table {} has no primary key", self.name());
                    return Err(SqlError::new(ErrorKind::Semantic, message));
                };
                self.drop_constraint(&name, false, is_cascading)
            }
            AlterTableOperation::RenameConstraint { old_name, new_name } => {
                let from = fold(old_name.value, old_name.quote_style);
                self.rename_constraint(from, fold(new_name.value, new_name.quote_style))
            }
            other => Err(SqlError::not_supported(format!("ALTER TABLE … {other}"))),
        }
    }
}
