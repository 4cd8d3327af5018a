//! The operations of a transaction, written once for all variants.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use weft_index::{Direction, Mode};
use weft_rt::{Batch, Boundary};
use weft_txn::{RowBytes, Transaction};

use crate::database::{Database, Form, KEY_BYTES_MAX};
use crate::error::{Result, YcsbError};
use crate::random::inserted_key;
use crate::variant::{Lookups, Workload};

/// Operations of a transaction, at most.
pub const OPERATIONS_MAX: usize = 64;

/// A key.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    number: u64,
    bytes: [u8; KEY_BYTES_MAX],
    length: usize,
}

impl Key {
    /// The key with a number.
    pub(crate) fn new(form: Form, number: u64) -> Key {
        let mut key = Key { number, bytes: [b'k'; KEY_BYTES_MAX], length: form.key_bytes };
        key.bytes[..8].copy_from_slice(&number.to_be_bytes());
        key
    }

    /// Looks at a row as one that reads it does.
    pub(crate) fn see(&self, row: Option<&[u8]>) -> Result<()> {
        match row {
            Some(row) if row.starts_with(self.as_ref()) => {
                black_box(row[row.len() - 1]);
                Ok(())
            }
            _ => Err(YcsbError::Missing(self.number)),
        }
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// True of operations that follow each other, each by one key: `run.rs` has them.
pub(crate) fn is_by_key(workload: Workload, lookups: Lookups) -> bool {
    lookups == Lookups::OneByOne && !matches!(workload, Workload::Scan | Workload::Insert)
}

/// Carries out the operations of a transaction on rows with these keys, of which insertions take only how many there are, where they do not
/// follow each other by one key.
///
/// # Errors
/// Those of the engine, and [`YcsbError::Missing`].
pub(crate) async fn operate<M: Mode>(
    transaction: &mut Transaction<'_, M>,
    database: &Database,
    keys: &[Key],
    (workload, lookups): (Workload, Lookups),
) -> Result<()> {
    let Database { table, form, .. } = database;
    match workload {
        Workload::Scan => return scan(transaction, database, keys).await,
        Workload::Insert => {
            let mut row = Vec::with_capacity(form.row_bytes());
            for _ in keys {
                let number = database.inserted.fetch_add(1, Ordering::Relaxed);
                form.fill_row(inserted_key(number), &mut row);
                transaction.insert(table, &row).await?;
            }
            return Ok(());
        }
        Workload::Read | Workload::Update | Workload::Rmw | Workload::Mixed => {}
    }
    let updates = workload.updates(keys.len());
    let change = |row: &[u8], changed: &mut Vec<u8>| {
        form.increment(row, changed);
        true
    };
    if lookups == Lookups::ByStateMachine {
        if workload != Workload::Update {
            let rows = transaction.multi_get(table, keys, keys.len()).await?;
            keys.iter().zip(&rows).try_for_each(|(key, row)| key.see(row.as_deref()))?;
        }
        if updates > 0 {
            let rows = transaction.multi_find(table, &keys[..updates], updates).await?;
            for (key, row) in keys.iter().zip(rows) {
                let row = row.ok_or(YcsbError::Missing(key.number))?;
                if !transaction.update_row(table, row, change).await? {
                    return Err(YcsbError::Missing(key.number));
                }
            }
        }
        return Ok(());
    }
    read_together(transaction, database, keys).await?;
    for key in &keys[..updates] {
        if !transaction.update_with(table, key.as_ref(), change).await? {
            return Err(YcsbError::Missing(key.number));
        }
    }
    Ok(())
}

/// Reads the rows of all keys, each by a coroutine of its own.
async fn read_together<M: Mode>(
    transaction: &Transaction<'_, M>,
    database: &Database,
    keys: &[Key],
) -> Result<()> {
    let mut left = keys.iter();
    let next = || {
        let key = left.next()?;
        Some(async move {
            let row: Option<RowBytes<'_>> = transaction.get(&database.table, key.as_ref()).await?;
            key.see(row.as_deref())
        })
    };
    Batch::new(keys.len(), Boundary::Weak, next).await
}

/// Reads as many rows as there are keys, from the first key on.
async fn scan<M: Mode>(
    transaction: &Transaction<'_, M>,
    database: &Database,
    keys: &[Key],
) -> Result<()> {
    let Some(first) = keys.first() else { return Ok(()) };
    let mut left = keys.len();
    let visit = |_, row: &[u8]| {
        black_box(row[row.len() - 1]);
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let low = Some(first.as_ref());
    transaction.scan(&database.table, 0, low, None, Direction::Forwards, visit).await?;
    Ok(())
}
