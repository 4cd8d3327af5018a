//! Prepared statements of a client, and the rows that it binds to them.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use tonic::{Code, Status};

use super::error::with_sqlstate;

/// Prepared statements of a client, at most.
const PREPARED_MAX: usize = 1000;

/// Bytes of the texts of a client's prepared statements, at most.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// Bytes of the rows that are bound to a client's prepared statements, at most.
pub(super) const BOUND_BYTES_MAX: usize = 64 << 20;

/// A statement as a client wants it to be executed.
#[derive(Clone)]
pub(super) struct Statement {
    pub(super) sql: Arc<str>,
    /// The handle of the transaction that it is to run in.
    pub(super) transaction: Option<Bytes>,
    /// Rows of parameters: it is executed once for each.
    pub(super) bound: Option<Arc<[RecordBatch]>>,
}

impl Statement {
    /// The bytes of its text and of the rows bound to it.
    pub(super) fn bytes(&self) -> usize {
        self.sql.len() + bound_bytes(self.bound.as_deref().unwrap_or_default())
    }
}

fn bound_bytes(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::get_array_memory_size).sum()
}

/// A prepared statement.
#[derive(Clone)]
pub(super) struct Prepared {
    pub(super) statement: Statement,
    /// The columns of its rows, as they are sent; `None` for a statement without rows.
    pub(super) columns: Option<SchemaRef>,
}

/// The prepared statements of one session, by the numbers of their handles.
#[derive(Default)]
pub(super) struct PreparedStatements {
    by_number: HashMap<u64, Prepared>,
}

impl PreparedStatements {
    /// Adds a statement.
    ///
    /// # Errors
    /// `ResourceExhausted` if there are too many, or their texts are too long.
    pub(super) fn add(&mut self, number: u64, prepared: Prepared) -> Result<(), Status> {
        let texts: usize = self.by_number.values().map(|one| one.statement.sql.len()).sum();
        if texts + prepared.statement.sql.len() > TEXT_BYTES_MAX {
            let message = format!(
                "the texts of the client's prepared statements take more than {TEXT_BYTES_MAX} bytes"
            );
            return Err(with_sqlstate(Code::ResourceExhausted, "53400", &message));
        }
        if self.by_number.len() >= PREPARED_MAX {
            let message =
                format!("the client has {PREPARED_MAX} prepared statements: close some first");
            return Err(with_sqlstate(Code::ResourceExhausted, "53400", &message));
        }
        self.by_number.insert(number, prepared);
        Ok(())
    }

    pub(super) fn get(&self, number: u64) -> Option<&Prepared> {
        self.by_number.get(&number)
    }

    /// Binds rows to a statement, with which its rows have these columns. Returns false if there is no such statement.
    ///
    /// # Errors
    /// `ResourceExhausted` if the rows bound to all statements take too many bytes.
    pub(super) fn bind(
        &mut self,
        number: u64,
        batches: Vec<RecordBatch>,
        columns: Option<SchemaRef>,
    ) -> Result<bool, Status> {
        let others = self.by_number.iter().filter(|(other, _)| **other != number);
        let others: usize =
            others.filter_map(|(_, one)| one.statement.bound.as_deref()).map(bound_bytes).sum();
        if others.saturating_add(bound_bytes(&batches)) > BOUND_BYTES_MAX {
            let message = format!(
                "rows bound to prepared statements take more than {BOUND_BYTES_MAX} bytes: bind fewer at a time"
            );
            return Err(with_sqlstate(Code::ResourceExhausted, "53400", &message));
        }
        let Some(found) = self.by_number.get_mut(&number) else { return Ok(false) };
        found.statement.bound = Some(batches.into());
        found.columns = columns;
        Ok(true)
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.by_number.remove(&number);
    }

    pub(super) fn clear(&mut self) {
        self.by_number.clear();
    }
}
