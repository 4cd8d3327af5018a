//! What a table promises of its rows, and which orders of them it keeps.

use weft_index::{IndexError, KeyColumn, KeyEncoder, TreeForm};

use crate::error::{Result, StoreError};
use crate::schema::{TableSchema, scan_type};
use crate::wire::{Reader, WireResult, Writer, wrong};

/// Flags of an index.
const UNIQUE: u8 = 1;
const PRIMARY: u8 = 2;
const CONSTRAINT: u8 = 4;

/// Flags of a column of an index.
const DESCENDING: u8 = 1;
const NULLS_FIRST: u8 = 2;

/// An index: its name, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDefinition {
    /// Name, case-sensitive; no other index of the database has it. That of the constraint, if it enforces one.
    pub name: String,
    /// The columns of the key, the first of which counts most.
    pub columns: Vec<IndexColumn>,
    /// Whether no two rows have one key. Rows with a NULL in it have no key in this sense.
    pub is_unique: bool,
    /// Whether it enforces the table's primary key.
    pub is_primary: bool,
    /// Whether it enforces a constraint of the table's definition, and goes only with that.
    pub is_constraint: bool,
}

/// A column of an index's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexColumn {
    /// Its number in the table.
    pub column: usize,
    /// Whether large values come first.
    pub is_descending: bool,
    /// Whether NULLs come before all values.
    pub nulls_first: bool,
}

/// A condition that no row may make false.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Name of the constraint.
    pub name: String,
    /// The condition, as SQL text.
    pub sql: String,
}

/// Columns whose values, unless one is NULL, are those of a key of another table, or of the table itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignKey {
    /// Name of the constraint.
    pub name: String,
    /// The columns, by number.
    pub columns: Vec<usize>,
    /// Identity of the referenced table.
    pub parent: u64,
    /// The columns there, by number: those of a unique index, in whatever order.
    pub parent_columns: Vec<usize>,
}

/// What a table's rows have to be like, apart from its columns and unique indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Constraints {
    /// Conditions. Who writes rows puts the conditions to them.
    pub checks: Vec<Check>,
    /// Foreign keys. A commit sees to them.
    pub foreign_keys: Vec<ForeignKey>,
    /// How often the table's definition has changed since the database was opened. It is not stored.
    pub(crate) alterations: u16,
}

impl IndexDefinition {
    /// The form of its tree.
    pub(crate) fn form(&self) -> TreeForm {
        TreeForm::new(self.is_unique)
    }

    /// Makes its keys.
    pub(crate) fn encoder(&self, schema: &TableSchema) -> Result<KeyEncoder> {
        let column = |of: &IndexColumn| {
            let column = &schema.columns[of.column];
            KeyColumn {
                data_type: scan_type(&column.data_type),
                is_nullable: column.nullable,
                is_descending: of.is_descending,
                nulls_first: of.nulls_first,
            }
        };
        KeyEncoder::new(self.columns.iter().map(column).collect())
            .map_err(|source| self.error(schema, source))
    }

    /// The columns of the table that its key has, by number.
    pub(crate) fn numbers(&self) -> Vec<usize> {
        self.columns.iter().map(|column| column.column).collect()
    }

    /// An error of this index.
    pub(crate) fn error(&self, schema: &TableSchema, source: IndexError) -> StoreError {
        match source {
            IndexError::Memory(error) => error.into(),
            source => StoreError::Index {
                index: self.name.clone(),
                table: schema.name.clone(),
                source: Box::new(source),
            },
        }
    }

    /// Checks that a table can have this index.
    pub(crate) fn check(&self, schema: &TableSchema) -> Result<()> {
        let problem = |problem: String| StoreError::Schema { table: schema.name.clone(), problem };
        if self.columns.is_empty() {
            return Err(problem(format!("index {} has no columns", self.name)));
        }
        for (number, of) in self.columns.iter().enumerate() {
            let Some(column) = schema.columns.get(of.column) else {
                return Err(problem(format!("there is no column number {}", of.column)));
            };
            if self.columns[..number].iter().any(|before| before.column == of.column) {
                let (index, column) = (&self.name, &column.name);
                return Err(problem(format!("index {index} names column {column} twice")));
            }
        }
        self.encoder(schema).map(drop)
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.str(&self.name);
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        writer.u8(flag(self.is_unique, UNIQUE)
            | flag(self.is_primary, PRIMARY)
            | flag(self.is_constraint, CONSTRAINT));
        writer.len(self.columns.len());
        for column in &self.columns {
            writer.len(column.column);
            writer
                .u8(flag(column.is_descending, DESCENDING) | flag(column.nulls_first, NULLS_FIRST));
        }
    }

    /// Reads the definition of an index of a table with so many columns.
    pub(crate) fn read(reader: &mut Reader<'_>, columns: usize) -> WireResult<IndexDefinition> {
        let (name, flags) = (reader.str()?, reader.u8()?);
        if flags & !(UNIQUE | PRIMARY | CONSTRAINT) != 0 {
            return wrong(format!("unknown flags {flags} of index {name}"));
        }
        let mut read = Vec::new();
        for _ in 0..reader.count(5)? {
            let column = read_column(reader, columns)?;
            let flags = reader.u8()?;
            if flags & !(DESCENDING | NULLS_FIRST) != 0 {
                return wrong(format!("unknown flags {flags} of a column of index {name}"));
            }
            read.push(IndexColumn {
                column,
                is_descending: flags & DESCENDING != 0,
                nulls_first: flags & NULLS_FIRST != 0,
            });
        }
        Ok(IndexDefinition {
            name,
            columns: read,
            is_unique: flags & UNIQUE != 0,
            is_primary: flags & PRIMARY != 0,
            is_constraint: flags & CONSTRAINT != 0,
        })
    }
}

fn read_column(reader: &mut Reader<'_>, columns: usize) -> WireResult<usize> {
    let column = reader.u32()? as usize;
    if column >= columns {
        return wrong(format!("column {column} of {columns}"));
    }
    Ok(column)
}

impl Constraints {
    /// The same of a table whose definition has changed.
    pub(crate) fn altered(&self) -> Constraints {
        Constraints { alterations: self.alterations.wrapping_add(1), ..self.clone() }
    }

    /// Whether a constraint has this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.checks.iter().any(|check| check.name == name)
            || self.foreign_keys.iter().any(|key| key.name == name)
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.len(self.checks.len());
        for check in &self.checks {
            writer.str(&check.name);
            writer.str(&check.sql);
        }
        writer.len(self.foreign_keys.len());
        for key in &self.foreign_keys {
            writer.str(&key.name);
            writer.u64(key.parent);
            writer.len(key.columns.len());
            for (column, parent) in key.columns.iter().zip(&key.parent_columns) {
                writer.len(*column);
                writer.len(*parent);
            }
        }
    }

    /// Reads the constraints of a table with so many columns.
    pub(crate) fn read(reader: &mut Reader<'_>, columns: usize) -> WireResult<Constraints> {
        let mut constraints = Constraints::default();
        for _ in 0..reader.count(8)? {
            constraints.checks.push(Check { name: reader.str()?, sql: reader.str()? });
        }
        for _ in 0..reader.count(16)? {
            let (name, parent) = (reader.str()?, reader.u64()?);
            let mut key =
                ForeignKey { name, columns: Vec::new(), parent, parent_columns: Vec::new() };
            for _ in 0..reader.count(8)? {
                key.columns.push(read_column(reader, columns)?);
                key.parent_columns.push(reader.u32()? as usize);
            }
            constraints.foreign_keys.push(key);
        }
        Ok(constraints)
    }
}
