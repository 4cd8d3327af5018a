//! What a table promises of its rows, and which orders of them it keeps.

use arrow_array::ArrayRef;
use weft_index::{EntryBytes, IncludedEncoder, IndexError, KeyColumn, KeyEncoder, Keys, TreeForm};

use crate::error::{Result, StoreError};
use crate::schema::{TableSchema, scan_type};
use crate::wire::{Reader, WireResult, Writer, wrong};

/// Flags of an index.
const UNIQUE: u8 = 1;
const PRIMARY: u8 = 2;
const CONSTRAINT: u8 = 4;
const INCLUDES: u8 = 8;

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
    /// Columns whose values its entries have beside the key, by number.
    pub included: Vec<usize>,
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
        TreeForm { has_included: !self.included.is_empty(), ..TreeForm::new(self.is_unique) }
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

    /// The columns of the table that its entries have values of, by number: first those of the key.
    pub(crate) fn all_numbers(&self) -> Vec<usize> {
        self.columns.iter().map(|column| column.column).chain(self.included.clone()).collect()
    }

    /// Makes its entries.
    pub(crate) fn entry_encoder(&self, schema: &TableSchema) -> Result<EntryEncoder> {
        // Whether a column may hold NULLs can change without its values.
        let included = self.included.iter().map(|number| &schema.columns[*number]);
        let included = included.map(|column| (scan_type(&column.data_type), true)).collect();
        let included = IncludedEncoder::new(included);
        Ok(EntryEncoder {
            key: self.encoder(schema)?,
            included: included.map_err(|source| self.error(schema, source))?,
            key_columns: self.columns.len(),
        })
    }

    /// How the values of columns, by number, are told from entries; `None` if entries do not have all of them.
    pub(crate) fn covering(
        &self,
        schema: &TableSchema,
        projection: &[usize],
    ) -> Option<Result<Covering>> {
        let place = |number: &usize| {
            let included = self.included.iter().position(|included| included == number);
            if let Some(at) = included {
                return Some(ValueOf::Included(at));
            }
            let at = self.columns.iter().position(|of| of.column == *number)?;
            let data_type = scan_type(&schema.columns[*number].data_type);
            KeyColumn::is_decodable(&data_type).then_some(ValueOf::Key(at))
        };
        let places: Vec<ValueOf> = projection.iter().map(place).collect::<Option<_>>()?;
        let encoder = self.entry_encoder(schema);
        Some(encoder.map(|encoder| Covering { encoder, places }))
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
        for (at, number) in self.included.iter().enumerate() {
            let index = &self.name;
            let Some(column) = schema.columns.get(*number) else {
                return Err(problem(format!("there is no column number {number}")));
            };
            let name = &column.name;
            if self.included[..at].contains(number) {
                return Err(problem(format!("index {index} includes column {name} twice")));
            }
            if self.columns.iter().any(|of| of.column == *number) {
                return Err(problem(format!("index {index} has column {name} in its key already")));
            }
            let data_type = scan_type(&column.data_type);
            if !IncludedEncoder::takes(&data_type) {
                let what = format!("of type {data_type}, which an index cannot include");
                return Err(problem(format!("column {name} is {what}")));
            }
        }
        self.encoder(schema).map(drop)
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.str(&self.name);
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        writer.u8(flag(self.is_unique, UNIQUE)
            | flag(self.is_primary, PRIMARY)
            | flag(self.is_constraint, CONSTRAINT)
            | flag(!self.included.is_empty(), INCLUDES));
        writer.len(self.columns.len());
        for column in &self.columns {
            writer.len(column.column);
            writer
                .u8(flag(column.is_descending, DESCENDING) | flag(column.nulls_first, NULLS_FIRST));
        }
        if !self.included.is_empty() {
            writer.len(self.included.len());
            self.included.iter().for_each(|column| writer.len(*column));
        }
    }

    /// Reads the definition of an index of a table with so many columns.
    pub(crate) fn read(reader: &mut Reader<'_>, columns: usize) -> WireResult<IndexDefinition> {
        let (name, flags) = (reader.str()?, reader.u8()?);
        if flags & !(UNIQUE | PRIMARY | CONSTRAINT | INCLUDES) != 0 {
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
        let mut included = Vec::new();
        if flags & INCLUDES != 0 {
            for _ in 0..reader.count(4)? {
                included.push(read_column(reader, columns)?);
            }
        }
        Ok(IndexDefinition {
            name,
            columns: read,
            included,
            is_unique: flags & UNIQUE != 0,
            is_primary: flags & PRIMARY != 0,
            is_constraint: flags & CONSTRAINT != 0,
        })
    }
}

/// Makes entries of rows' values: keys, and what entries include.
#[derive(Clone, Debug)]
pub(crate) struct EntryEncoder {
    key: KeyEncoder,
    included: IncludedEncoder,
    key_columns: usize,
}

impl EntryEncoder {
    /// The arrays of the key's columns, of those of all columns.
    pub(crate) fn key_arrays<'a>(&self, arrays: &'a [ArrayRef]) -> &'a [ArrayRef] {
        &arrays[..self.key_columns]
    }

    /// Appends the key of each row to `keys`, and what its entry includes to `included`.
    pub(crate) fn encode(
        &self,
        arrays: &[ArrayRef],
        keys: &mut Keys,
        included: &mut Keys,
    ) -> std::result::Result<(), IndexError> {
        let (of_key, beside) = arrays.split_at(self.key_columns);
        self.key.encode(of_key, keys)?;
        match beside.is_empty() {
            true => Ok(()),
            false => self.included.encode(beside, included),
        }
    }
}

/// Where an entry has a value.
#[derive(Clone, Copy, Debug)]
enum ValueOf {
    /// In the column of its key of this number.
    Key(usize),
    /// In the included column of this number.
    Included(usize),
}

/// Tells values of columns from entries of an index.
#[derive(Clone, Debug)]
pub(crate) struct Covering {
    encoder: EntryEncoder,
    /// Where the values of each column are.
    places: Vec<ValueOf>,
}

impl Covering {
    /// The values of the entries of these numbers: an array for each column.
    ///
    /// # Errors
    /// [`IndexError::Damaged`] for bytes that are no entries of the index.
    pub(crate) fn decode(
        &self,
        entries: &EntryBytes,
        order: &[usize],
    ) -> std::result::Result<Vec<ArrayRef>, IndexError> {
        let wanted = |of: fn(&ValueOf) -> Option<usize>| {
            let mut wanted: Vec<usize> = self.places.iter().filter_map(of).collect();
            wanted.sort_unstable();
            wanted.dedup();
            wanted
        };
        let of_key = wanted(|of| match of {
            ValueOf::Key(at) => Some(*at),
            ValueOf::Included(_) => None,
        });
        let beside = wanted(|of| match of {
            ValueOf::Included(at) => Some(*at),
            ValueOf::Key(_) => None,
        });
        let entries = || order.iter().map(|number| entries.get(*number));
        let keys = self.encoder.key.decode(&of_key, entries().map(|(key, _)| key))?;
        let included = entries().map(|(_, included)| included);
        let included = match beside.is_empty() {
            true => Vec::new(),
            false => self.encoder.included.decode(&beside, included)?,
        };
        let array = |of: &ValueOf| match of {
            ValueOf::Key(at) => keys[of_key.partition_point(|of| of < at)].clone(),
            ValueOf::Included(at) => included[beside.partition_point(|of| of < at)].clone(),
        };
        Ok(self.places.iter().map(array).collect())
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
