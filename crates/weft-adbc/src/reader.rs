//! Results as readers of batches: computed as they are read, by a few batches ahead.

use std::sync::{Arc, Mutex, PoisonError};

use adbc_core::error::Result;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatchReader;
use weft::{QueryResult, ResultKind, Session};

use crate::bound::Bound;
use crate::connection::{Shared, in_arrow};
use crate::error::{OrAdbc, of_status};

/// The statement that runs, to be cancelled from any thread.
#[derive(Clone, Default)]
pub(crate) struct Current(Arc<Mutex<Running>>);

#[derive(Default)]
struct Running {
    handle: Option<weft::CancelHandle>,
    /// What has been started by one execution is cancelled as a whole.
    is_cancelled: bool,
}

impl Current {
    /// Notes that an execution begins.
    pub(crate) fn begin(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Running::default();
    }

    /// Notes a statement of the execution.
    pub(crate) fn set(&self, result: &QueryResult) {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = result.cancel_handle();
        if running.is_cancelled {
            handle.cancel();
        }
        running.handle = Some(handle);
    }

    /// Fails if the execution was cancelled.
    pub(crate) fn check(&self) -> Result<()> {
        let is_cancelled = self.0.lock().unwrap_or_else(PoisonError::into_inner).is_cancelled;
        match is_cancelled {
            false => Ok(()),
            true => Err(of_status(
                adbc_core::error::Status::Cancelled,
                "57014",
                "the statement was cancelled",
            )),
        }
    }

    /// Cancels the execution.
    pub(crate) fn cancel(&self) {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.is_cancelled = true;
        if let Some(handle) = &running.handle {
            handle.cancel();
        }
    }
}

/// The batches of a statement's result, or of one result for each row of its parameters. Dropping it cancels what has not ended.
pub struct WeftReader {
    schema: SchemaRef,
    current: Option<QueryResult>,
    /// Parameters of executions to come.
    next: Option<(Arc<str>, Bound)>,
    running: Current,
    shared: Arc<Shared>,
}

impl WeftReader {
    /// The result of a statement that is planned and returns rows, and of those of further parameters.
    pub(crate) fn new(
        result: QueryResult,
        next: Option<(Arc<str>, Bound)>,
        running: Current,
        shared: Arc<Shared>,
    ) -> WeftReader {
        WeftReader { schema: result.schema(), current: Some(result), next, running, shared }
    }

    /// No rows.
    pub(crate) fn empty(schema: SchemaRef, running: Current, shared: Arc<Shared>) -> WeftReader {
        WeftReader { schema, current: None, next: None, running, shared }
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(result) = &mut self.current {
                if let Some(batch) = result.next_batch().or_adbc()? {
                    // Results of further parameters may have columns of other types by themselves.
                    return Ok(Some(batch.with_schema(Arc::clone(&self.schema))?));
                }
                self.current = None;
            }
            let Some((sql, bound)) = &mut self.next else { return Ok(None) };
            self.running.check()?;
            let sql = Arc::clone(sql);
            match start_next(self.shared.session(), &sql, bound, &self.running)? {
                Some(result) => self.current = Some(result),
                None => self.next = None,
            }
        }
    }
}

/// Starts the statement with the next row of parameters, and waits until it is planned; `None` behind the last row.
pub(crate) fn start_next(
    session: &Session,
    sql: &str,
    bound: &mut Bound,
    running: &Current,
) -> Result<Option<QueryResult>> {
    let Some((values, types)) = bound.next_row()? else { return Ok(None) };
    let mut result = session.start_cast(sql, &values, &types);
    running.set(&result);
    result.wait_planned().or_adbc()?;
    Ok(Some(result))
}

/// Runs a command to its end and returns the rows that it has affected, if it knows; rows that it returns are counted.
pub(crate) fn finish(mut result: QueryResult) -> Result<Option<u64>> {
    let mut returned = 0;
    while let Some(batch) = result.next_batch().or_adbc()? {
        returned += batch.num_rows() as u64;
    }
    Ok(match result.kind() {
        ResultKind::Command { rows_affected, .. } => rows_affected,
        ResultKind::Rows => Some(returned),
    })
}

impl Iterator for WeftReader {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.next_batch();
        if batch.is_err() {
            (self.current, self.next) = (None, None);
        }
        batch.map_err(in_arrow).transpose()
    }
}

impl RecordBatchReader for WeftReader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
