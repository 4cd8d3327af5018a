//! Keys: rows of columns as byte strings whose order is the order of the rows.
//!
//! A tree compares nothing but bytes. Each column of a key has one form, the first difference of two
//! rows is the first difference of their bytes, and no form of a column begins with another of the same
//! column, so the columns simply follow each other. The forms are part of the file format
//! (`docs/FILE_FORMAT.md`, Keys), which is why they are not those of `arrow-row`: its rows "may change
//! from release to release", keep NaNs and zeros of both signs apart, and spend 32 bytes on a short text.

mod column;
mod decode;
mod included;
#[cfg(test)]
mod tests;

use arrow_array::ArrayRef;
use arrow_schema::DataType;

use crate::error::IndexError;
use column::ColumnValues;
pub use included::IncludedEncoder;

/// One column of a key: its type, and where it sorts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyColumn {
    /// Type of the values.
    pub data_type: DataType,
    /// Whether there may be NULLs: a column without has a byte less.
    pub is_nullable: bool,
    /// Whether large values come first.
    pub is_descending: bool,
    /// Whether NULLs come before all values.
    pub nulls_first: bool,
}

impl KeyColumn {
    /// An ascending column with NULLs at the end.
    pub fn new(data_type: DataType, is_nullable: bool) -> KeyColumn {
        KeyColumn { data_type, is_nullable, is_descending: false, nulls_first: false }
    }

    /// True if values of the type have an order that keys can keep.
    pub fn is_comparable(data_type: &DataType) -> bool {
        column::is_comparable(data_type)
    }
}

/// Makes keys of rows.
#[derive(Clone, Debug)]
pub struct KeyEncoder {
    columns: Vec<KeyColumn>,
}

impl KeyEncoder {
    /// An encoder for keys of these columns, the first of which counts most.
    ///
    /// # Errors
    /// [`IndexError::KeyType`] if values of a column have no order.
    pub fn new(columns: Vec<KeyColumn>) -> Result<KeyEncoder, IndexError> {
        let lacks_order = |column: &&KeyColumn| !column::is_comparable(&column.data_type);
        match columns.iter().find(lacks_order) {
            Some(column) => Err(IndexError::KeyType { data_type: column.data_type.clone() }),
            None => Ok(KeyEncoder { columns }),
        }
    }

    /// The columns of its keys.
    pub fn columns(&self) -> &[KeyColumn] {
        &self.columns
    }

    /// Appends the key of each row to `keys`. With fewer arrays than the keys have columns it makes
    /// prefixes: those keys begin with one whose first columns have these values.
    ///
    /// # Errors
    /// [`IndexError::KeyColumns`] if there are more arrays than columns, or an array has another type or
    /// length, or NULLs where there may be none.
    pub fn encode(&self, arrays: &[ArrayRef], keys: &mut Keys) -> Result<(), IndexError> {
        let rows = arrays.first().map_or(0, |array| array.len());
        let mut values = Vec::with_capacity(arrays.len());
        if arrays.len() > self.columns.len() {
            let reason = format!("{} columns for a key of {}", arrays.len(), self.columns.len());
            return Err(IndexError::KeyColumns { reason });
        }
        for (array, column) in arrays.iter().zip(&self.columns) {
            let fits = array.data_type() == &column.data_type && array.len() == rows;
            if !fits || (!column.is_nullable && array.logical_null_count() > 0) {
                let (found, nulls) = (array.data_type(), array.logical_null_count());
                let reason = format!(
                    "{} rows of {found} with {nulls} NULLs where {rows} of {} belong",
                    array.len(),
                    column.data_type
                );
                return Err(IndexError::KeyColumns { reason });
            }
            values.push(ColumnValues::new(array, column)?);
        }
        for row in 0..rows {
            for column in &values {
                column.append(row, &mut keys.bytes);
            }
            keys.ends.push(keys.bytes.len());
        }
        Ok(())
    }
}

/// Keys one after the other.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    /// No keys.
    pub fn new() -> Keys {
        Keys::default()
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Key number `index`.
    ///
    /// # Panics
    /// If there is no such key.
    pub fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    /// All of them in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Forgets them, and keeps their memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// The least byte string that is greater than all that begin with `prefix`: where a range of them ends.
/// `None` if there is none, as the prefix is empty or all ones.
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}
