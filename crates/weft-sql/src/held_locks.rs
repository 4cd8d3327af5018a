//! The relation `weft_locks`: which connection has locked rows and keys of which table, and who waits for whom.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int32Array, Int64Array, RecordBatch, StringViewArray};
use datafusion::catalog::{MemTable, TableProvider};
use weft_store::{HeldLocks, Snapshot};

use crate::error::Result;

/// The relation's name.
pub(crate) const RELATION: &str = "weft_locks";

/// The columns, as they are filled.
#[derive(Default)]
struct Columns {
    pid: Vec<i32>,
    transaction: Vec<i64>,
    table: Vec<Option<String>>,
    lock: Vec<&'static str>,
    count: Vec<Option<i64>>,
    granted: Vec<bool>,
    blocked_by: Vec<Option<i32>>,
}

impl Columns {
    fn push(
        &mut self,
        held: &HeldLocks,
        table: Option<String>,
        (lock, count): (&'static str, Option<u64>),
        blocked_by: Option<i32>,
    ) {
        self.pid.push(held.pid);
        self.transaction.push(number(held.owner));
        self.table.push(table);
        self.lock.push(lock);
        self.count.push(count.map(number));
        self.granted.push(count.is_some());
        self.blocked_by.push(blocked_by);
    }
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A row for what each owner of locks has of each table, and for each owner that one waits for.
///
/// # Errors
/// None that are known.
pub(crate) fn table(locks: &[HeldLocks], snapshot: &Snapshot) -> Result<Arc<dyn TableProvider>> {
    let name = |number: u64| snapshot.table_name(number).map(str::to_owned);
    let mut columns = Columns::default();
    for held in locks {
        for of in &held.tables {
            let kinds = [
                ("rows for update", of.exclusive_rows),
                ("rows for share", of.shared_rows),
                ("keys", of.keys),
            ];
            for (lock, count) in kinds.into_iter().filter(|(_, count)| *count > 0) {
                columns.push(held, name(of.table), (lock, Some(count)), None);
            }
        }
        for blocker in &held.waits_for {
            let blocker = locks.iter().find(|other| other.owner == *blocker);
            let table = held.waits_in.and_then(name);
            columns.push(held, table, ("waits", None), blocker.map(|blocker| blocker.pid));
        }
    }
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("pid", Arc::new(Int32Array::from(columns.pid)) as ArrayRef, true),
        ("transaction", Arc::new(Int64Array::from(columns.transaction)), true),
        ("table_name", Arc::new(StringViewArray::from(columns.table)), true),
        ("lock", Arc::new(StringViewArray::from_iter_values(columns.lock)), true),
        ("count", Arc::new(Int64Array::from(columns.count)), true),
        ("granted", Arc::new(BooleanArray::from(columns.granted)), true),
        ("blocked_by", Arc::new(Int32Array::from(columns.blocked_by)), true),
    ])?;
    Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
}

/// The connections for whose end one waits.
pub(crate) fn blocking(locks: &[HeldLocks], pid: i32) -> Vec<i32> {
    let waiting = locks.iter().filter(|held| held.pid == pid);
    let owners = waiting.flat_map(|held| &held.waits_for);
    let found = owners.filter_map(|owner| locks.iter().find(|other| other.owner == *owner));
    let mut pids: Vec<i32> = found.map(|blocker| blocker.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}
