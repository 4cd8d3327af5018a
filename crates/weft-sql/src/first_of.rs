//! The first of several rows with one key, for INSERT … ON CONFLICT DO NOTHING into a table with several unique indexes: a row that is
//! not inserted, as an earlier one has one of its keys, does not keep later rows from being inserted that have others of its keys.
//!
//! Only rows that share a key with another row of the statement are looked at here; their keys take memory of the budget.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use weft_rt::memory::{Ledger, Reservation};
use weft_store::Table;

use crate::error::{ErrorKind, Result, SqlError};

/// About what a key takes beside its bytes.
const KEY_MEMORY_BYTES: u64 = 64;

/// The keys of the rows that are inserted.
pub(crate) struct FirstOf {
    table: Arc<Table>,
    /// Names of unique indexes.
    indexes: Vec<String>,
    seen: Mutex<Seen>,
    ledger: Ledger,
}

#[derive(Default)]
struct Seen {
    /// By the indexes' numbers.
    keys: HashMap<usize, HashSet<Vec<u8>>>,
    memory: Option<Reservation>,
}

impl FirstOf {
    pub(crate) fn new(table: Arc<Table>, indexes: Vec<String>, ledger: Ledger) -> FirstOf {
        FirstOf { table, indexes, seen: Mutex::default(), ledger }
    }

    /// Notes the keys of a row of the table, unless a row that was noted has one of them; returns whether they were noted.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`].
    pub(crate) fn note(&self, rows: &RecordBatch, row: usize) -> Result<bool> {
        let mut keys = Vec::with_capacity(self.indexes.len());
        for index in &self.indexes {
            let definition = self.table.indexes().find(|of| of.name == *index);
            let columns = definition.into_iter().flat_map(|of| &of.columns);
            let values: Vec<ArrayRef> =
                columns.map(|of| rows.column(of.column).slice(row, 1)).collect();
            // A NULL is equal to no other.
            keys.push(match values.iter().any(|value| value.logical_null_count() > 0) {
                true => None,
                false => Some(self.table.key_prefix(index, &values)?),
            });
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_taken = |(index, key): (usize, &Option<Vec<u8>>)| match (key, seen.keys.get(&index))
        {
            (Some(key), Some(taken)) => taken.contains(key),
            _ => false,
        };
        if keys.iter().enumerate().any(is_taken) {
            return Ok(false);
        }
        for (index, key) in keys.into_iter().enumerate() {
            let Some(key) = key else { continue };
            self.reserve(&mut seen, key.len() as u64 + KEY_MEMORY_BYTES)?;
            seen.keys.entry(index).or_default().insert(key);
        }
        Ok(true)
    }

    fn reserve(&self, seen: &mut Seen, bytes: u64) -> Result<()> {
        let has_grown = match &mut seen.memory {
            Some(memory) => memory.try_grow(bytes),
            none => {
                *none = self.ledger.try_reserve(bytes);
                none.is_some()
            }
        };
        match has_grown {
            true => Ok(()),
            false => {
                let message = "out of memory: the statement keeps the keys of rows that it inserts, for which memory is missing";
                Err(SqlError::new(ErrorKind::OutOfMemory, message).with_hint(
                    "raise the setting memory_limit, or name one key: ON CONFLICT (columns)",
                ))
            }
        }
    }
}
