//! What a table's columns are, and in which of Arrow's types they leave.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use weft_codec::Physical;

use crate::data_type::{read_type, write_type};
use crate::error::{Result, StoreError};
use crate::wire::{Reader, WireResult, Writer, wrong};

/// Columns of a table, at most.
pub const COLUMNS_MAX: usize = 65_535;

/// Flag of a column that may hold NULL.
const NULLABLE: u8 = 1;

/// Flag of a column whose values have a greatest length.
const LIMITED: u8 = 2;

/// Flag of a column whose values are of a kind.
const OF_KIND: u8 = 4;

/// A table's name and columns.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSchema {
    /// Name, case-sensitive.
    pub name: String,
    /// Columns in order.
    pub columns: Vec<Column>,
}

/// One column.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Name, case-sensitive.
    pub name: String,
    /// Type as it was declared; values leave in [`scan_type`] of it.
    pub data_type: DataType,
    /// Whether it may hold NULL.
    pub nullable: bool,
    /// The expression that gives the value where none is given, as SQL text.
    pub default: Option<String>,
    /// Characters of a text, or bytes of a binary value, at most. The store keeps it; who writes rows
    /// sees to it.
    pub max_length: Option<u32>,
    /// What the values are beside their type, such as one of some labels, in words of who writes rows and sees to it. The store keeps it.
    pub kind: Option<String>,
}

/// The type in which values of a column leave: strings and binary as views, else the column's own.
pub fn scan_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        other => other.clone(),
    }
}

impl TableSchema {
    /// The schema of scans over all columns.
    pub fn arrow_schema(&self) -> SchemaRef {
        let field = |column: &Column| {
            Field::new(&column.name, scan_type(&column.data_type), column.nullable)
        };
        Arc::new(Schema::new(self.columns.iter().map(field).collect::<Vec<_>>()))
    }

    /// The number of the column with this name.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Checks that a table can have these columns.
    pub(crate) fn check(&self) -> Result<()> {
        let problem = |problem: String| StoreError::Schema { table: self.name.clone(), problem };
        if self.columns.is_empty() {
            return Err(problem("a table needs at least one column".into()));
        }
        if self.columns.len() > COLUMNS_MAX {
            return Err(problem(format!(
                "{} columns are more than the {COLUMNS_MAX} that a table can have",
                self.columns.len()
            )));
        }
        let mut names = HashSet::new();
        for column in &self.columns {
            if !names.insert(&column.name) {
                return Err(problem(format!("two columns are named {}", column.name)));
            }
            let storable = Physical::of(&scan_type(&column.data_type)).is_ok();
            if !storable || !write_type(&mut Writer::default(), &column.data_type) {
                return Err(StoreError::UnsupportedType {
                    column: column.name.clone(),
                    data_type: column.data_type.clone(),
                });
            }
        }
        Ok(())
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.str(&self.name);
        writer.len(self.columns.len());
        for column in &self.columns {
            writer.str(&column.name);
            let known = write_type(writer, &column.data_type);
            assert!(known, "schemas are checked when their tables are made");
            let limited = if column.max_length.is_some() { LIMITED } else { 0 };
            let of_kind = if column.kind.is_some() { OF_KIND } else { 0 };
            writer.u8(if column.nullable { NULLABLE } else { 0 } | limited | of_kind);
            writer.option_str(column.default.as_deref());
            if let Some(max_length) = column.max_length {
                writer.u32(max_length);
            }
            if let Some(kind) = &column.kind {
                writer.str(kind);
            }
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> WireResult<TableSchema> {
        let name = reader.str()?;
        let count = reader.count(7)?;
        let mut columns = Vec::with_capacity(count);
        for _ in 0..count {
            let name = reader.str()?;
            let data_type = read_type(reader)?;
            let flags = reader.u8()?;
            if flags & !(NULLABLE | LIMITED | OF_KIND) != 0 {
                return wrong(format!("unknown flags {flags} of column {name}"));
            }
            columns.push(Column {
                name,
                data_type,
                nullable: flags & NULLABLE != 0,
                default: reader.option_str()?,
                max_length: (flags & LIMITED != 0).then(|| reader.u32()).transpose()?,
                kind: (flags & OF_KIND != 0).then(|| reader.str()).transpose()?,
            });
        }
        Ok(TableSchema { name, columns })
    }
}
