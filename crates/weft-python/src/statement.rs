//! Statements that were started, and their results.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList, PyTuple};
use weft::{KeptResult, ResultKind};

use crate::error::OrRaise;
use crate::process::OfProcess;
use crate::read::append_rows;
use crate::stream::{batch_capsules, schema_capsule, stream_capsule};
use crate::wait::wait;
use crate::wakeups::Wakeups;

/// A started statement and its result. Its rows are computed once, and read as often as one likes.
#[pyclass(frozen, module = "weft._weft", weakref)]
pub(crate) struct Statement {
    result: OfProcess<KeptResult>,
    next: Mutex<NextRow>,
}

/// The row that is fetched next.
#[derive(Default)]
struct NextRow {
    batch: usize,
    row: usize,
    /// The batch, once it is there.
    current: Option<RecordBatch>,
}

impl NextRow {
    /// Notes the batch with this number, if its rows are the next ones.
    fn offer(&mut self, number: usize, batch: RecordBatch) {
        if self.batch == number {
            self.current = Some(batch);
        }
    }

    /// Takes up to `count` rows of the batch that is there.
    fn take(&mut self, count: usize) -> Option<(RecordBatch, Range<usize>)> {
        let batch = self.current.clone()?;
        let end = batch.num_rows().min(self.row.saturating_add(count));
        let rows = self.row..end;
        match end == batch.num_rows() {
            true => *self = NextRow { batch: self.batch + 1, ..NextRow::default() },
            false => self.row = end,
        }
        Some((batch, rows))
    }
}

impl Statement {
    pub(crate) fn new(result: KeptResult) -> Statement {
        Statement { result: OfProcess::new(result), next: Mutex::default() }
    }

    fn next(&self) -> MutexGuard<'_, NextRow> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends up to `count` rows of those that are there, and returns how many.
    fn append_ready(
        &self,
        py: Python<'_>,
        count: usize,
        rows: &Bound<'_, PyList>,
    ) -> PyResult<usize> {
        let taken = self.next().take(count);
        let Some((batch, range)) = taken else { return Ok(0) };
        let taken_rows = range.len();
        append_rows(py, &batch, range, rows)?;
        Ok(taken_rows)
    }

    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        progress: Option<&Bound<'_, PyAny>>,
        poll: impl Fn(&KeptResult, &mut Context<'_>) -> Poll<weft::Result<T>> + Sync,
    ) -> PyResult<T> {
        let result = self.result.get()?;
        let meanwhile = |_: Python<'_>| match progress {
            Some(progress) => {
                let told = result.progress();
                progress.call1((told.units_done, told.units_total, told.rows)).map(drop)
            }
            None => Ok(()),
        };
        let polled = |context: &mut Context<'_>| poll(result, context);
        wait(py, polled, || result.cancel(), meanwhile)?.or_raise()
    }

    fn batch(
        &self,
        py: Python<'_>,
        number: usize,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<RecordBatch>> {
        self.wait(py, progress, |result, context| result.poll_batch(number, context))
    }
}

/// A column for `description`: name, type, precision, scale, whether there may be NULLs.
type Column = (String, String, Option<u8>, Option<i8>, bool);

/// What SQL calls a type, for `description`.
fn type_code(data_type: &DataType) -> String {
    match data_type {
        DataType::Dictionary(_, values) => type_code(values),
        other => weft::type_name(other),
    }
}

#[pymethods]
impl Statement {
    /// Waits until the statement is planned.
    #[pyo3(signature = (progress=None))]
    fn wait_planned(&self, py: Python<'_>, progress: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.wait(py, progress, KeptResult::poll_ready)
    }

    /// Waits for the end of the statement.
    #[pyo3(signature = (progress=None))]
    fn wait_end(&self, py: Python<'_>, progress: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.wait(py, progress, KeptResult::poll_end)
    }

    /// Waits for the batch with this number; `None` behind the last one.
    #[pyo3(signature = (number, progress=None))]
    fn wait_batch(
        &self,
        py: Python<'_>,
        number: usize,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Batch>> {
        Ok(self.batch(py, number, progress)?.map(|batch| Batch { batch }))
    }

    /// Fetches up to `count` rows that were not fetched before, as tuples; all of them without a number.
    #[pyo3(signature = (count=None, progress=None))]
    fn fetch<'py>(
        &self,
        py: Python<'py>,
        count: Option<usize>,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let rows = PyList::empty(py);
        let mut left = count.unwrap_or(usize::MAX);
        while left > 0 {
            let number = self.next().batch;
            if self.next().current.is_none() {
                // Another thread may have fetched meanwhile.
                match self.batch(py, number, progress) {
                    Ok(Some(batch)) => self.next().offer(number, batch),
                    Ok(None) if self.next().batch == number => break,
                    Err(error) if self.next().batch == number => match self.next().current {
                        Some(_) => {}
                        None => return Err(error),
                    },
                    Ok(None) | Err(_) => {}
                }
            }
            left -= self.append_ready(py, left, &rows)?;
        }
        Ok(rows)
    }

    /// Fetches up to `count` rows of those that are there already.
    fn fetch_ready<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Bound<'py, PyList>> {
        let rows = PyList::empty(py);
        self.append_ready(py, count, &rows)?;
        Ok(rows)
    }

    /// Looks whether there are rows to be fetched, or all of them were fetched; if that is not known, the wait with this key is woken
    /// later.
    fn poll_fetch(&self, py: Python<'_>, wakeups: &Wakeups, key: u64) -> PyResult<bool> {
        if self.next().current.is_some() {
            return Ok(true);
        }
        let number = self.next().batch;
        let polled =
            self.polled(py, wakeups, key, |result, context| result.poll_batch(number, context))?;
        if let Some(Some(batch)) = &polled {
            self.next().offer(number, batch.clone());
        }
        Ok(polled.is_some())
    }

    /// Looks whether the statement is planned; if it is not, the wait with this key is woken later.
    fn poll_planned(&self, py: Python<'_>, wakeups: &Wakeups, key: u64) -> PyResult<bool> {
        self.polled(py, wakeups, key, KeptResult::poll_ready).map(|planned| planned.is_some())
    }

    /// Looks whether the statement has ended; if it has not, the wait with this key is woken later.
    fn poll_end(&self, py: Python<'_>, wakeups: &Wakeups, key: u64) -> PyResult<bool> {
        self.polled(py, wakeups, key, KeptResult::poll_end).map(|ended| ended.is_some())
    }

    /// Looks for the batch with this number: whether it is known, and the batch, which is `None` behind the last one. If it is not known,
    /// the wait with this key is woken later.
    fn poll_batch(
        &self,
        py: Python<'_>,
        number: usize,
        wakeups: &Wakeups,
        key: u64,
    ) -> PyResult<(bool, Option<Batch>)> {
        let polled =
            self.polled(py, wakeups, key, |result, context| result.poll_batch(number, context))?;
        Ok(match polled {
            Some(batch) => (true, batch.map(|batch| Batch { batch })),
            None => (false, None),
        })
    }

    /// Cancels the statement, if it still runs.
    fn cancel(&self) -> PyResult<()> {
        self.result.get()?.cancel();
        Ok(())
    }

    /// True if rows that were read are kept.
    fn is_kept(&self) -> PyResult<bool> {
        Ok(self.result.get()?.is_kept())
    }

    /// True once the statement has ended, well or not.
    fn has_ended(&self) -> PyResult<bool> {
        Ok(self.result.get()?.has_ended())
    }

    /// What the statement does, such as `INSERT`, and the rows that it has affected; `None` if it returns rows.
    fn command(&self) -> PyResult<Option<(&'static str, Option<u64>)>> {
        Ok(match self.result.get()?.kind() {
            ResultKind::Rows => None,
            ResultKind::Command { tag, rows_affected } => Some((tag, rows_affected)),
        })
    }

    /// The number of rows, once the statement has ended.
    fn row_count(&self) -> PyResult<Option<u64>> {
        Ok(self.result.get()?.rows())
    }

    /// The columns: name, type in SQL, precision, scale, whether there may be NULLs.
    fn columns(&self) -> PyResult<Vec<Column>> {
        let schema = self.result.get()?.schema();
        let column = |field: &std::sync::Arc<arrow::datatypes::Field>| {
            let (precision, scale) = match field.data_type() {
                DataType::Decimal128(precision, scale) => (Some(*precision), Some(*scale)),
                _ => (None, None),
            };
            (
                field.name().clone(),
                type_code(field.data_type()),
                precision,
                scale,
                field.is_nullable(),
            )
        };
        Ok(schema.fields().iter().map(column).collect())
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.result.get()?.schema())
    }

    /// All batches, which another library waits for. The statement is planned.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // Who asks for other types gets the result's, as the interface permits.
        drop(requested_schema);
        stream_capsule(py, self.result.get()?.clone())
    }
}

impl Statement {
    fn polled<T: Send>(
        &self,
        py: Python<'_>,
        wakeups: &Wakeups,
        key: u64,
        poll: impl Fn(&KeptResult, &mut Context<'_>) -> Poll<weft::Result<T>> + Sync,
    ) -> PyResult<Option<T>> {
        let result = self.result.get()?;
        let waker = wakeups.waker(key);
        match py.detach(|| poll(result, &mut Context::from_waker(&waker))) {
            Poll::Ready(answer) => answer.or_raise().map(Some),
            Poll::Pending => Ok(None),
        }
    }
}

/// A batch of a result.
#[pyclass(frozen, module = "weft._weft", name = "Batch")]
pub(crate) struct Batch {
    batch: RecordBatch,
}

#[pymethods]
impl Batch {
    /// The number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        let schema: SchemaRef = self.batch.schema();
        schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// The rows as tuples.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows = PyList::empty(py);
        append_rows(py, &self.batch, 0..self.batch.num_rows(), &rows)?;
        Ok(rows)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.batch.schema())
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        drop(requested_schema);
        batch_capsules(py, &self.batch)
    }
}
