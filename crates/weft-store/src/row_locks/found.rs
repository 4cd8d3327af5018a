//! Locks of rows that a query has found: all of them, or as many as it wants of those that nobody else has.
//!
//! A row that others have changed since the query's snapshot is another row by now. A query that passes over locked rows passes over
//! such a row, too, if it finds as many as it wants without it; else the statement is to run again, and sees what has become of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{Array, UInt64Array};

use super::{LockMode, LockOwner, Wanted};
use crate::core::Core;
use crate::error::{Result, StoreError};
use crate::fetch::retain_live;
use crate::row_set::RowSet;
use crate::snapshot::Snapshot;
use crate::table::TableVersion;

/// Rows of which one thread looks one after the other whether they are there, at most.
const ROWS_AT_ONCE_MAX: u64 = 16;

/// What becomes of a row that another owner has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenLocked {
    /// It is waited for.
    Wait,
    /// It is an error.
    Fail,
    /// It is left out.
    Skip,
}

/// Rows of tables that a query has found, in the order in which it wants them.
#[derive(Clone, Debug)]
pub struct FoundRows {
    /// The numbers of the tables, and how strongly their rows are to be locked.
    pub tables: Vec<(u64, LockMode)>,
    /// The ids of each table's rows; NULL where the query has none of the table.
    pub ids: Vec<UInt64Array>,
}

impl FoundRows {
    fn rows(&self) -> usize {
        self.ids.first().map_or(0, UInt64Array::len)
    }

    /// The ids that a row consists of, with the numbers of their tables.
    fn of_row(&self, row: usize) -> impl Iterator<Item = (u64, LockMode, u64)> {
        let tables = self.tables.iter().zip(&self.ids);
        tables
            .filter(move |(_, ids)| ids.is_valid(row))
            .map(move |((table, mode), ids)| (*table, *mode, ids.value(row)))
    }

    /// What is to be locked of the first rows.
    fn wanted(&self, rows: usize) -> Vec<Wanted> {
        let mut wanted = BTreeMap::<(u64, LockMode), RowSet>::new();
        for (table, mode, id) in (0..rows).flat_map(|row| self.of_row(row)) {
            wanted.entry((table, mode)).or_default().insert(id);
        }
        let wanted = wanted.into_iter();
        wanted.map(|((table, mode), rows)| Wanted { table, mode, rows, keys: Vec::new() }).collect()
    }

    /// Has those rows out that a transaction has made itself: nobody else sees them.
    fn leave_out_own(&mut self, begin: &Snapshot) {
        for ((table, _), ids) in self.tables.iter().zip(&mut self.ids) {
            let first_own_row = version(begin, *table).map_or(0, |base| base.next_row_id);
            if ids.iter().flatten().any(|id| id >= first_own_row) {
                *ids = ids.iter().map(|id| id.filter(|id| *id < first_own_row)).collect();
            }
        }
    }
}

fn version(snapshot: &Snapshot, table: u64) -> Option<&Arc<TableVersion>> {
    snapshot.tables.values().find(|version| version.id == table)
}

/// Those of some rows of a table of `begin` which the newest generation has no more. On any executor.
///
/// # Errors
/// Those of reading the table's directory.
pub(crate) async fn dead_rows(
    core: &Arc<Core>,
    begin: &Snapshot,
    table: u64,
    rows: &RowSet,
) -> Result<Vec<u64>> {
    let newest = core.snapshot();
    let (Some(before), Some(now)) = (version(begin, table), version(&newest, table)) else {
        return Ok(Vec::new());
    };
    if Arc::ptr_eq(before, now) || rows.is_empty() {
        return Ok(Vec::new());
    }
    let all: Vec<u64> = rows.iter().collect();
    let in_memory = newest.table(&now.schema.name).filter(|_| rows.len() <= ROWS_AT_ONCE_MAX);
    let is_live = |row: &u64| in_memory.as_ref().and_then(|table| table.is_live(*row));
    if let Some(live) = all.iter().map(is_live).collect::<Option<Vec<bool>>>() {
        return Ok(all
            .into_iter()
            .zip(live)
            .filter(|(_, live)| !live)
            .map(|(row, _)| row)
            .collect());
    }
    let (access, now) = (core.access.clone(), now.clone());
    let mut live = all.clone();
    let find = move || async move {
        retain_live(&now, &access, &mut live).await?;
        Ok(live)
    };
    let live: Result<Vec<u64>> = core.access.runtime.spawn(find).await?;
    let mut live = live?.into_iter().peekable();
    Ok(all.into_iter().filter(|row| live.next_if_eq(row).is_none()).collect())
}

/// Locks rows that a query of `begin` has found, the first `count` at most, and returns which of them are locked now. On any executor;
/// dropped before, it has locked nothing.
///
/// # Errors
/// [`StoreError::RowLocked`] where locked rows are errors; [`StoreError::Deadlock`]; [`StoreError::Conflict`] if rows are not there any
/// more: the statement is to run again; those of reading.
pub(crate) async fn lock_found(
    (core, owner): (&Arc<Core>, &LockOwner),
    begin: &Snapshot,
    mut found: FoundRows,
    (count, when_locked): (usize, WhenLocked),
) -> Result<Vec<usize>> {
    found.leave_out_own(begin);
    let name = |table: u64| {
        version(begin, table).map(|version| version.schema.name.clone()).unwrap_or_default()
    };
    let gone = |table: u64| StoreError::Conflict { table: name(table), change: "changed" };
    if when_locked == WhenLocked::Skip {
        return lock_free((core, owner), begin, &found, count, gone).await;
    }
    let rows = found.rows().min(count);
    let wanted = found.wanted(rows);
    if when_locked == WhenLocked::Wait {
        owner.lock(&wanted).await?;
    } else if let Some(table) = owner.try_lock(&wanted) {
        return Err(StoreError::RowLocked { table: name(table) });
    }
    for of_table in &wanted {
        if !dead_rows(core, begin, of_table.table, &of_table.rows).await?.is_empty() {
            return Err(gone(of_table.table));
        }
    }
    Ok((0..rows).collect())
}

/// Locks as many as are wanted of the rows that nobody else has.
async fn lock_free(
    (core, owner): (&Arc<Core>, &LockOwner),
    begin: &Snapshot,
    found: &FoundRows,
    count: usize,
    gone: impl Fn(u64) -> StoreError,
) -> Result<Vec<usize>> {
    let (mut taken, mut next, mut conflict) = (Vec::new(), 0, None);
    while taken.len() < count && next < found.rows() {
        let free = owner.lock_some(found, &mut next, count - taken.len());
        let mut dead = BTreeMap::new();
        let mut locked = BTreeMap::<u64, RowSet>::new();
        for (table, _, id) in free.iter().flat_map(|row| found.of_row(*row)) {
            locked.entry(table).or_default().insert(id);
        }
        for (table, rows) in locked {
            dead.insert(table, dead_rows(core, begin, table, &rows).await?);
        }
        for row in free {
            let is_dead = |(table, _, id): &(u64, LockMode, u64)| {
                dead.get(table).is_some_and(|dead| dead.binary_search(id).is_ok())
            };
            match found.of_row(row).find(is_dead) {
                // What is locked of it is a row that nobody finds any more, or one beside it, which stays locked.
                Some((table, ..)) => conflict = Some(table),
                None => taken.push(row),
            }
        }
    }
    match conflict {
        Some(table) if taken.len() < count => Err(gone(table)),
        _ => Ok(taken),
    }
}

impl LockOwner {
    /// Locks rows if no other owner has one of them; else returns the table of one that is locked.
    fn try_lock(&self, wanted: &[Wanted]) -> Option<u64> {
        let mut owners = self.locks.owners();
        match owners.refusing(self.id, wanted) {
            Some((_, table)) => Some(table),
            None => {
                owners.add(self, wanted);
                None
            }
        }
    }

    /// Locks rows from `next` on that no other owner has, `count` of them at most, and returns which. `next` is then the first row that was not
    /// looked at.
    fn lock_some(&self, found: &FoundRows, next: &mut usize, count: usize) -> Vec<usize> {
        let mut owners = self.locks.owners();
        let mut taken = Vec::new();
        while taken.len() < count && *next < found.rows() {
            let row = *next;
            *next += 1;
            let is_free = found.of_row(row).all(|(table, mode, id)| {
                let mut others = owners.by_id.iter().filter(|(other, _)| **other != self.id);
                !others.any(|(_, owner)| {
                    owner.tables.get(&table).is_some_and(|locked| locked.refuses(id, mode))
                })
            });
            if !is_free {
                continue;
            }
            let owner = owners.owner(self);
            for (table, mode, id) in found.of_row(row) {
                owner.tables.entry(table).or_default().rows(mode).insert(id);
            }
            taken.push(row);
        }
        taken
    }
}
