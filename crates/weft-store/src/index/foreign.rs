//! Foreign keys: rows refer to rows that there are, and what they refer to stays.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray};
use arrow_buffer::BooleanBuffer;
use weft_index::Keys;

use crate::error::{Result, StoreError};
use crate::fetch::fetch;
use crate::index::definition::ForeignKey;
use crate::index::maintain::Maintenance;
use crate::index::new_rows::NewRows;
use crate::index::version::IndexVersion;
use crate::row_set::RowSet;
use crate::snapshot::{Access, Snapshot};
use crate::table::{TableVersion, get};

/// Keys that are looked up at a time.
const LOOKUP_KEYS: usize = 1_024;

/// Deleted rows whose keys are looked up, at most: of more, all that refers to their table is looked at.
const LOST_ROWS_MAX: u64 = 1_024;
/// Row groups that are read at a time.
const FETCH_DEPTH: usize = 16;

type Tables = BTreeMap<String, Arc<TableVersion>>;

fn parent_of<'a>(key: &ForeignKey, tables: &'a Tables) -> Option<&'a Arc<TableVersion>> {
    tables.values().find(|version| version.id == key.parent)
}

/// Checks that what a foreign key refers to is there, and has its index; `base` has what was there before.
///
/// # Errors
/// [`StoreError::Referenced`].
pub(crate) fn check_parent(
    version: &TableVersion,
    key: &ForeignKey,
    base: &Snapshot,
    tables: &Tables,
) -> Result<()> {
    let referenced = |what: String| StoreError::Referenced {
        what,
        constraint: key.name.clone(),
        table: version.schema.name.clone(),
    };
    match parent_of(key, tables) {
        None => {
            let name = base.table_name(key.parent).unwrap_or("that was dropped");
            Err(referenced(format!("table {name}")))
        }
        Some(parent) if parent.unique_index(&key.parent_columns).is_none() => {
            Err(referenced(format!("the unique index of its key in table {}", parent.schema.name)))
        }
        Some(_) => Ok(()),
    }
}

/// Checks that the rows of a table from `first_row` on refer to rows that there are, on a worker.
///
/// # Errors
/// [`StoreError::Unreferenced`]; those of reading.
pub(crate) async fn check_rows(
    version: &TableVersion,
    first_row: u64,
    tables: &Tables,
    access: &Access,
) -> Result<()> {
    for key in &version.constraints.foreign_keys {
        if let Some(parent) = parent_of(key, tables)
            && let Some(index) = parent.unique_index(&key.parent_columns)
        {
            Reference { version, key, parent, index, access }.check(first_row).await?;
        }
    }
    Ok(())
}

/// Whether all keys that deleted rows of a table had, and that a child's foreign keys refer to, are there after all changes, as those of
/// rows that were updated are; on a worker. `false` where that is not asked: the rows are many, or the table was altered.
///
/// # Errors
/// Those of reading.
pub(crate) async fn are_keys_kept(
    (before, rows): (&TableVersion, &RowSet),
    child: &TableVersion,
    tables: &Tables,
    access: &Access,
) -> Result<bool> {
    if rows.len() > LOST_ROWS_MAX {
        return Ok(false);
    }
    let rows: Vec<u64> = rows.iter().collect();
    for key in child.constraints.foreign_keys.iter().filter(|key| key.parent == before.id) {
        let Some(parent) = parent_of(key, tables) else { return Ok(false) };
        let Some(index) = parent.unique_index(&key.parent_columns) else { return Ok(false) };
        if parent.identity() != before.identity() {
            return Ok(false);
        }
        let definition = index.definition();
        let failed = |source| definition.error(&parent.schema, source);
        let numbers = definition.numbers();
        let arrays = fetch(before, access, &rows, &numbers, FETCH_DEPTH).await?;
        let (arrays, _) = without_nulls(arrays);
        let mut keys = Keys::new();
        definition.encoder(&parent.schema)?.encode(&arrays, &mut keys).map_err(failed)?;
        let wanted: Vec<&[u8]> = (0..keys.len()).map(|number| keys.get(number)).collect();
        let found = index.find(&wanted, parent, access).await?;
        if found.iter().any(Option::is_none) {
            return Ok(false);
        }
    }
    Ok(true)
}

struct Reference<'a> {
    version: &'a TableVersion,
    key: &'a ForeignKey,
    parent: &'a TableVersion,
    index: &'a IndexVersion,
    access: &'a Access,
}

impl Reference<'_> {
    async fn check(&self, first_row: u64) -> Result<()> {
        let definition = self.index.definition();
        // In the order of the index's columns.
        let columns: Vec<usize> = definition
            .columns
            .iter()
            .filter_map(|of| {
                let at = self.key.parent_columns.iter().position(|parent| *parent == of.column)?;
                Some(self.key.columns[at])
            })
            .collect();
        let encoder = definition.encoder(&self.parent.schema)?;
        let failed = |source| definition.error(&self.parent.schema, source);
        let work = Maintenance { version: self.version, access: self.access };
        let mut rows = NewRows::new(&work, first_row);
        let mut keys = Keys::new();
        while let Some((ids, arrays)) = rows.next(&columns).await? {
            let (arrays, positions) = without_nulls(arrays);
            keys.clear();
            encoder.encode(&arrays, &mut keys).map_err(failed)?;
            for start in (0..keys.len()).step_by(LOOKUP_KEYS) {
                let end = keys.len().min(start + LOOKUP_KEYS);
                let wanted: Vec<&[u8]> = (start..end).map(|number| keys.get(number)).collect();
                let found = self.index.find(&wanted, self.parent, self.access).await?;
                if let Some(at) = found.iter().position(Option::is_none) {
                    let row = ids.at(positions[start + at]);
                    return Err(self.unreferenced(row).await);
                }
                weft_rt::yield_now().await;
            }
        }
        Ok(())
    }

    async fn unreferenced(&self, row: u64) -> StoreError {
        let schema = &self.version.schema;
        let values = match get(self.version, self.access, row, &self.key.columns).await {
            Ok(values) => values.unwrap_or_default(),
            Err(error) => return error,
        };
        let columns = || self.key.columns.iter().map(|number| &schema.columns[*number]);
        StoreError::Unreferenced {
            table: schema.name.clone(),
            constraint: self.key.name.clone(),
            parent: self.parent.schema.name.clone(),
            key: columns().map(|column| column.name.clone()).zip(values).collect(),
            types: columns().map(|column| column.data_type.clone()).collect(),
        }
    }
}

/// The rows that have all values, and their places.
fn without_nulls(arrays: Vec<ArrayRef>) -> (Vec<ArrayRef>, Vec<usize>) {
    let rows = arrays.first().map_or(0, |array| array.len());
    let nulls: Vec<_> = arrays.iter().filter_map(|array| array.logical_nulls()).collect();
    let has_all =
        BooleanBuffer::collect_bool(rows, |row| nulls.iter().all(|nulls| nulls.is_valid(row)));
    let positions: Vec<usize> = has_all.set_indices().collect();
    if positions.len() == rows {
        return (arrays, positions);
    }
    let mask = BooleanArray::new(has_all, None);
    let kept = arrays
        .iter()
        .map(|array| arrow_select::filter::filter(array, &mask).expect("a bit for each row"));
    (kept.collect(), positions)
}
