//! Changes of few rows that a transaction does not apply before something reads their table.
//!
//! What a transaction has changed is kept as changes on top of the snapshot that it began with, as long as that is few rows of tables
//! that were there before. Changes that cannot fail wait: they are applied for the transaction alone when a statement reads their table,
//! and otherwise not before the commit, which needs only the changes. A read committed transaction that sees newer commits goes on
//! from the newest snapshot with all its changes waiting again.

use std::sync::Arc;

use arrow_array::ArrayRef;

use crate::change::Change;
use crate::combine::combined;
use crate::error::Result;
use crate::point::{KeyedRow, ResidentRow};
use crate::row_set::RowSet;
use crate::snapshot::Snapshot;
use crate::table::{Table, TableVersion};
use crate::transaction::OwnChanges;
use crate::writer::{LOOSE_BYTES_MAX, LOOSE_ROWS_MAX, WrittenGroups};

/// Changes that are kept, at most: each statement adds one or two, and copies the list.
const CHANGES_MAX: usize = 64;

/// All that a transaction has changed since the snapshot that it began with, as changes of few rows of its tables. What the
/// transaction sees has the first ones of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct FewChanges {
    changes: Vec<Arc<Change>>,
    /// Changes that what the transaction sees has.
    applied: usize,
    rows: u64,
    bytes: u64,
}

/// The rows of a change of few rows.
enum FewRows<'a> {
    Deleted(&'a RowSet),
    Added(&'a WrittenGroups),
}

/// The table's name, its identity, and the rows of a change that only deletes rows, or adds rows that are not written.
fn few_rows(change: &Change) -> Option<(&str, u64, FewRows<'_>)> {
    match change {
        Change::Delete { table, expected: Some(id), rows } => {
            Some((table, *id, FewRows::Deleted(rows)))
        }
        Change::Append { table, expected: Some(id), groups } => {
            let is_loose = groups.groups.is_empty() && groups.statistics.is_none();
            is_loose.then_some((table, *id, FewRows::Added(groups)))
        }
        _ => None,
    }
}

impl FewChanges {
    /// Bytes that the changes take in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// True if what the transaction sees has all changes.
    pub(crate) fn are_applied(&self) -> bool {
        self.applied == self.changes.len()
    }

    /// True if a table of this name has changes that wait.
    pub(crate) fn wait_for(&self, table: &str) -> bool {
        let waiting = self.changes[self.applied..].iter();
        waiting.filter_map(|change| few_rows(change)).any(|(of, ..)| of == table)
    }

    /// Copies of all changes, with one deletion and one addition for each table.
    pub(crate) fn all(&self) -> Vec<Change> {
        combined(self.changes.iter().map(|change| &**change))
    }

    /// Copies of the changes that wait, as [`FewChanges::all`].
    pub(crate) fn waiting(&self) -> Vec<Change> {
        combined(self.changes[self.applied..].iter().map(|change| &**change))
    }

    /// The same changes when what the transaction sees has all of them.
    pub(crate) fn applied(self) -> FewChanges {
        FewChanges { applied: self.changes.len(), ..self }
    }

    /// The same changes on top of another snapshot, all waiting; `None` if one of their tables is not in it as it was.
    pub(crate) fn on(&self, snapshot: &Snapshot) -> Option<FewChanges> {
        let is_there = |change: &Arc<Change>| {
            few_rows(change).is_some_and(|(table, id, _)| {
                snapshot.tables.get(table).is_some_and(|version| version.identity() == id)
            })
        };
        let are_there = self.changes.iter().all(is_there);
        are_there.then(|| FewChanges { applied: 0, ..self.clone() })
    }

    /// These changes and those of another statement, which wait; `None` if the whole is not few rows of tables of `begin`.
    pub(crate) fn followed_by(&self, changes: &[Change], begin: &Snapshot) -> Option<FewChanges> {
        let mut all = self.clone();
        for change in changes {
            let (table, id, rows) = few_rows(change)?;
            let version = begin.tables.get(table).filter(|version| version.identity() == id)?;
            all.rows += match rows {
                FewRows::Deleted(rows) => {
                    // The transaction's own rows have other ids once it is committed.
                    let are_of_begin = rows.last().is_none_or(|row| row < version.next_row_id);
                    are_of_begin.then_some(())?;
                    all.bytes += rows.bytes();
                    rows.len()
                }
                FewRows::Added(groups) => {
                    all.bytes += groups.bytes();
                    groups.rows()
                }
            };
        }
        if all.rows > LOOSE_ROWS_MAX as u64
            || all.bytes > LOOSE_BYTES_MAX
            || all.changes.len() + changes.len() > CHANGES_MAX
        {
            return None;
        }
        all.changes.extend(combined(changes.iter()).into_iter().map(Arc::new));
        Some(all)
    }

    /// The row of a table of what the transaction sees with a key of a unique index, as [`Table::resident_row`], but with the changes
    /// that wait.
    ///
    /// # Errors
    /// Those of [`Table::resident_row`].
    pub(crate) fn resident_row(
        &self,
        table: &Table,
        (index, key): (&str, &[u8]),
        projection: &[usize],
    ) -> Result<ResidentRow> {
        let columns = table.index(index)?.definition().numbers();
        let waiting = self.changes[self.applied..].iter().filter_map(|change| few_rows(change));
        let mut deleted = Vec::new();
        for (_, _, rows) in waiting.filter(|(of, ..)| *of == table.schema().name) {
            match rows {
                FewRows::Deleted(rows) => deleted.push(rows),
                FewRows::Added(groups) => {
                    for row in &groups.loose {
                        if row[0].len() != 1 {
                            return Ok(ResidentRow::Unknown);
                        }
                        let values: Vec<ArrayRef> =
                            columns.iter().map(|at| row[*at].clone()).collect();
                        if table.key_prefix(index, &values)? == key {
                            let values = projection.iter().map(|at| row[*at].clone()).collect();
                            let id = table.version.next_row_id;
                            return Ok(ResidentRow::Row(KeyedRow { id, values }));
                        }
                    }
                }
            }
        }
        Ok(match table.resident_row(index, key, projection)? {
            ResidentRow::Row(row) if deleted.iter().any(|rows| rows.contains(row.id)) => {
                ResidentRow::NoRow
            }
            found => found,
        })
    }

    /// Whether changes of a statement may wait: applied on top of what the transaction sees, `view`, they cannot fail.
    ///
    /// # Errors
    /// Those of reading.
    pub(crate) fn may_wait(
        &self,
        changes: &[Change],
        view: &Snapshot,
        own: &OwnChanges,
    ) -> Result<bool> {
        for change in changes {
            let Some((table, _, rows)) = few_rows(change) else { return Ok(false) };
            let Some(version) = view.tables.get(table) else { return Ok(false) };
            let refers = !version.constraints.foreign_keys.is_empty()
                || view.tables.values().any(|child| {
                    child.constraints.foreign_keys.iter().any(|key| key.parent == version.id)
                });
            let has_keys = version.indexes.iter().any(|index| index.definition().is_unique);
            let is_other = own.begin.tables.get(table).map(|of| of.id) != Some(version.id);
            if refers || is_other {
                return Ok(false);
            }
            let FewRows::Added(groups) = rows else {
                // Rows that wait are not to be deleted twice.
                if self.wait_for(table) {
                    return Ok(false);
                }
                continue;
            };
            if has_keys && (self.wait_for(table) || !are_keys_free(groups, changes, version, view)?)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether an added row has keys that no row has but those that are deleted with it; false if that is not known without waiting.
///
/// # Errors
/// Those of reading.
fn are_keys_free(
    groups: &WrittenGroups,
    changes: &[Change],
    version: &TableVersion,
    view: &Snapshot,
) -> Result<bool> {
    let ([row], Some(table)) = (&groups.loose[..], view.table(&version.schema.name)) else {
        return Ok(false);
    };
    let additions = changes.iter().filter(|change| {
        matches!(few_rows(change), Some((of, _, FewRows::Added(_))) if of == version.schema.name)
    });
    if groups.rows() != 1 || additions.count() != 1 {
        return Ok(false);
    }
    let is_deleted = |id: u64| {
        changes.iter().filter_map(few_rows).any(|(of, _, rows)| match rows {
            FewRows::Deleted(rows) => of == version.schema.name && rows.contains(id),
            FewRows::Added(_) => false,
        })
    };
    for index in version.indexes.iter().filter(|index| index.definition().is_unique) {
        let definition = index.definition();
        let values: Vec<_> = definition.numbers().iter().map(|at| row[*at].clone()).collect();
        if values.iter().any(|value| value.null_count() > 0) {
            continue;
        }
        let key = table.key_prefix(&definition.name, &values)?;
        match table.resident_row(&definition.name, &key, &[])? {
            ResidentRow::Row(found) if !is_deleted(found.id) => return Ok(false),
            ResidentRow::Unknown => return Ok(false),
            ResidentRow::Row(_) | ResidentRow::NoRow => {}
        }
    }
    Ok(true)
}
