//! Locks of keys: who inserts a row locks its keys in the unique indexes of the table, so that another one that inserts such a row waits.
//!
//! Keys are locked by their hashes: two keys of one hash are waited for without need. Only keys of few rows are locked, which are still in
//! memory when they are committed (`WrittenGroups::of_few`), and of a transaction only so many; of others the first one to commit wins.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use weft_index::Keys;

use super::{LockMode, LockOwner, Wanted};
use crate::change::Change;
use crate::core::Core;
use crate::error::{Result, StoreError};
use crate::point::ResidentRow;
use crate::row_set::RowSet;
use crate::snapshot::Snapshot;
use crate::table::{Table, TableVersion};

/// Keys that an owner locks of a table, at most.
pub(super) const KEYS_MAX: usize = 100_000;

/// Keys of rows that are to be inserted.
pub(crate) struct NewKeys {
    /// The name of the table, and its identity.
    name: String,
    table: u64,
    /// The name of the unique index.
    index: String,
    keys: Vec<Vec<u8>>,
}

impl NewKeys {
    /// Whether a snapshot has the table.
    pub(crate) fn is_of(&self, snapshot: &Snapshot) -> bool {
        version(snapshot, self).is_some()
    }

    /// What is to be locked.
    pub(crate) fn wanted(&self) -> Wanted {
        let hash = |key: &Vec<u8>| {
            let mut hasher = DefaultHasher::new();
            (&self.index, key).hash(&mut hasher);
            hasher.finish()
        };
        let (table, keys) = (self.table, self.keys.iter().map(hash).collect());
        Wanted { table, mode: LockMode::Exclusive, rows: RowSet::default(), keys }
    }
}

/// The keys of the rows that changes insert into tables of a snapshot, as far as the rows are in memory.
///
/// # Errors
/// [`StoreError::Index`] for values that no key can have.
pub(crate) fn keys_of(changes: &[Change], snapshot: &Snapshot) -> Result<Vec<NewKeys>> {
    let mut found = Vec::new();
    for change in changes {
        let Change::Append { table: name, groups, .. } = change else { continue };
        let Some(version) = snapshot.tables.get(name) else { continue };
        for index in version.indexes.iter().filter(|index| index.definition().is_unique) {
            let definition = index.definition();
            let encoder = definition.encoder(&version.schema)?;
            let mut keys = Vec::new();
            for columns in &groups.loose {
                let values: Option<Vec<ArrayRef>> =
                    definition.numbers().iter().map(|of| columns.get(*of).cloned()).collect();
                let Some(values) = values else { continue };
                let mut encoded = Keys::new();
                let done = encoder.encode(&values, &mut encoded);
                done.map_err(|source| definition.error(&version.schema, source))?;
                // A key with a NULL is like no other.
                let is_whole = |row: usize| values.iter().all(|array| array.is_valid(row));
                let whole = (0..encoded.len()).filter(|row| is_whole(*row));
                keys.extend(whole.map(|row| encoded.get(row).to_vec()));
            }
            if !keys.is_empty() {
                let (name, index) = (name.clone(), definition.name.clone());
                found.push(NewKeys { name, table: version.id, index, keys });
            }
        }
    }
    Ok(found)
}

fn version<'a>(snapshot: &'a Snapshot, keys: &NewKeys) -> Option<&'a Arc<TableVersion>> {
    snapshot.tables.get(&keys.name).filter(|version| version.id == keys.table)
}

/// Looks for rows with keys that an owner has just locked, and about which its snapshot `begin` may be wrong: they were committed
/// since, or others have deleted them and not committed. For the end of the latter it waits. On any executor.
///
/// # Errors
/// [`StoreError::Duplicate`] if such a row was committed; [`StoreError::Conflict`] if one was waited for, and a statement that is run
/// again sees what has become of it; [`StoreError::Deadlock`]; those of reading.
pub(crate) async fn check_keys(
    (core, owner): (&Arc<Core>, &LockOwner),
    begin: &Snapshot,
    keys: &[NewKeys],
) -> Result<()> {
    for of_index in keys {
        let newest = core.snapshot();
        let (Some(before), Some(now)) = (version(begin, of_index), version(&newest, of_index))
        else {
            continue;
        };
        let is_unchanged = Arc::ptr_eq(before, now);
        if is_unchanged && !owner.others_have_rows(of_index.table) {
            continue;
        }
        let Some(table) = newest.table(&of_index.name) else { continue };
        for key in &of_index.keys {
            let Some(row) = row_of(core, &table, &of_index.index, key).await? else { continue };
            if owner.has_exclusive(of_index.table, row) {
                continue;
            }
            if row >= before.next_row_id {
                return Err(duplicate(&table, &of_index.index, row).await?);
            }
            let mut rows = RowSet::default();
            rows.insert(row);
            let wanted = Wanted { mode: LockMode::Shared, ..Wanted::changed(of_index.table, rows) };
            if owner.lock(&[wanted]).await? {
                let table = of_index.name.clone();
                return Err(StoreError::Conflict { table, change: "changed" });
            }
        }
    }
    Ok(())
}

/// The row with a key of a unique index.
async fn row_of(core: &Core, table: &Arc<Table>, index: &str, key: &[u8]) -> Result<Option<u64>> {
    match table.resident_row(index, key, &[]) {
        Ok(ResidentRow::Row(row)) => return Ok(Some(row.id)),
        Ok(ResidentRow::NoRow) => return Ok(None),
        Ok(ResidentRow::Unknown) => {}
        // It was dropped since.
        Err(StoreError::NoSuchIndex { .. }) => return Ok(None),
        Err(error) => return Err(error),
    }
    let (table, index, key) = (table.clone(), index.to_owned(), key.to_vec());
    let find = move || async move { table.row_by_key(&index, &key, &[]).await };
    let found = core.access.runtime.spawn(find).await?;
    Ok(found?.map(|row| row.id))
}

/// The error of a key that a row of the table has.
async fn duplicate(table: &Table, index: &str, row: u64) -> Result<StoreError> {
    let definition = table.index(index)?.definition();
    let (schema, numbers) = (table.schema(), definition.numbers());
    let values = table.get(row, &numbers).await?.unwrap_or_default();
    let names = numbers.iter().map(|number| schema.columns[*number].name.clone());
    Ok(StoreError::Duplicate {
        table: schema.name.clone(),
        constraint: definition.name.clone(),
        is_primary: definition.is_primary,
        key: names.zip(values).collect(),
        types: numbers.iter().map(|number| schema.columns[*number].data_type.clone()).collect(),
    })
}
