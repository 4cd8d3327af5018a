//! A result that is computed once and can be read as often as its owner likes, by several readers.
//!
//! Batches are kept in memory up to a number of bytes, and those that follow in a temporary file without a name: the
//! result may be larger than memory. The reader who is furthest waits for the statement, all others read what is kept.

use std::fmt;
use std::fs::File;
use std::io::{Cursor, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

use arrow::array::{Array, AsArray, UInt64Array};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use futures::Stream;
use weft_rt::progress::ProgressSnapshot;
use weft_sql::{CancelHandle, ErrorKind, Result, ResultKind, SqlError};

use crate::result::QueryResult;

/// What is kept of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Everything: so many bytes in memory, and the rest in a temporary file.
    All {
        /// Bytes of batches in memory, at most.
        memory_bytes_max: u64,
    },
    /// Nothing but the last batch: rows are read once.
    Nothing,
}

/// The result of a statement, with what is kept of it. Clones are the same result.
///
/// The statement runs ahead of the reader who is furthest by a few batches only. Dropping the last clone cancels what
/// has not ended.
#[derive(Clone)]
pub struct KeptResult {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    waiting: Arc<Waiting>,
    cancel: CancelHandle,
    keep: Keep,
    /// Where the temporary file is made.
    directory: PathBuf,
}

struct State {
    result: QueryResult,
    kept: Vec<Place>,
    memory_bytes: u64,
    file: Option<File>,
    file_bytes: u64,
    rows: u64,
    /// How the statement has ended, if it has.
    end: Option<Result<()>>,
}

/// Where a batch is.
enum Place {
    Memory(RecordBatch),
    /// In the file: offset and length.
    File(u64, u64),
    /// Read and let go.
    Gone,
}

/// Everybody who waits for the statement.
#[derive(Default)]
struct Waiting(Mutex<Vec<Waker>>);

impl Waiting {
    fn add(&self, waker: &Waker) {
        let mut wakers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let wakers = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl KeptResult {
    pub(crate) fn new(result: QueryResult, keep: Keep, directory: PathBuf) -> KeptResult {
        let cancel = result.cancel_handle();
        let state = State {
            result,
            kept: Vec::new(),
            memory_bytes: 0,
            file: None,
            file_bytes: 0,
            rows: 0,
            end: None,
        };
        let state = Mutex::new(state);
        KeptResult {
            shared: Arc::new(Shared { state, waiting: Arc::default(), cancel, keep, directory }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks whether the statement is planned: then its columns and its kind are known.
    ///
    /// # Errors
    /// What is wrong with the statement, each time.
    pub fn poll_ready(&self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let mut state = self.state();
        if let Some(Err(error)) = &state.end
            && state.kept.is_empty()
        {
            return Poll::Ready(Err(error.clone()));
        }
        self.shared.waiting.add(context.waker());
        let waker = Waker::from(Arc::clone(&self.shared.waiting));
        let planned = ready!(state.result.poll_planned(&mut Context::from_waker(&waker)));
        if let Err(error) = &planned {
            state.end = Some(Err(error.clone()));
        }
        Poll::Ready(planned)
    }

    /// Looks for the batch with this number, from 0 on; `None` behind the last one, when the statement has ended.
    ///
    /// # Errors
    /// What went wrong with the statement, when all batches before were read, each time;
    /// [`ErrorKind::Semantic`] for a batch that was read before and not kept; [`ErrorKind::Io`] if the temporary file
    /// cannot be written or read.
    pub fn poll_batch(
        &self,
        number: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<RecordBatch>>> {
        let mut state = self.state();
        loop {
            if number < state.kept.len() {
                return Poll::Ready(state.read(number).map(Some));
            }
            if let Some(end) = &state.end {
                return Poll::Ready(end.clone().map(|()| None));
            }
            let polled = ready!(self.poll_next(&mut state, context));
            match polled {
                Some(Ok(batch)) => {
                    if self.shared.keep == Keep::Nothing && number == state.kept.len() {
                        state.rows += batch.num_rows() as u64;
                        // The last one stays until the next one is read: threads may ask for it at once.
                        if let Some(last) = state.kept.last_mut() {
                            *last = Place::Gone;
                        }
                        state.kept.push(Place::Memory(batch.clone()));
                        return Poll::Ready(Ok(Some(batch)));
                    }
                    if let Err(error) = self.keep(&mut state, batch) {
                        self.shared.cancel.cancel();
                        state.end = Some(Err(error));
                    }
                }
                Some(Err(error)) => state.end = Some(Err(error)),
                None => state.end = Some(Ok(())),
            }
        }
    }

    fn poll_next(
        &self,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<RecordBatch>>> {
        self.shared.waiting.add(context.waker());
        let waker = Waker::from(Arc::clone(&self.shared.waiting));
        let mut context = Context::from_waker(&waker);
        std::pin::Pin::new(&mut state.result).poll_next(&mut context)
    }

    /// Looks whether the statement has ended, and keeps all batches that come before.
    ///
    /// # Errors
    /// As for [`KeptResult::poll_batch`].
    pub fn poll_end(&self, context: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            let number = self.state().kept.len();
            if ready!(self.poll_batch(number, context))?.is_none() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn keep(&self, state: &mut State, batch: RecordBatch) -> Result<()> {
        let limit = match self.shared.keep {
            Keep::All { memory_bytes_max } => memory_bytes_max,
            Keep::Nothing => u64::MAX,
        };
        state.rows += batch.num_rows() as u64;
        let bytes = bytes_of(&batch);
        if state.file.is_none() && state.memory_bytes + bytes <= limit {
            state.memory_bytes += bytes;
            state.kept.push(Place::Memory(batch));
            return Ok(());
        }
        let place = state.write(&batch, &self.shared.directory).map_err(|error| {
            let directory = self.shared.directory.display();
            SqlError::new(ErrorKind::Io, format!("cannot keep the result in {directory}: {error}"))
                .with_hint("make room there, or read the result without keeping it")
        })?;
        state.kept.push(place);
        Ok(())
    }

    /// True if rows that were read are kept.
    pub fn is_kept(&self) -> bool {
        self.shared.keep != Keep::Nothing
    }

    /// The columns; none for commands, and before the statement is planned.
    pub fn schema(&self) -> SchemaRef {
        self.state().result.schema()
    }

    /// Whether it has rows or is a command.
    pub fn kind(&self) -> ResultKind {
        self.state().result.kind()
    }

    /// The number of rows, once the statement has ended.
    pub fn rows(&self) -> Option<u64> {
        let state = self.state();
        matches!(state.end, Some(Ok(()))).then_some(state.rows)
    }

    /// True once the statement has ended, well or not.
    pub fn has_ended(&self) -> bool {
        self.state().end.is_some()
    }

    /// Cancels the statement, if it still runs.
    pub fn cancel(&self) {
        self.shared.cancel.cancel();
    }

    /// How far the statement is.
    pub fn progress(&self) -> ProgressSnapshot {
        self.state().result.progress()
    }
}

impl fmt::Debug for KeptResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptResult").field("keep", &self.shared.keep).finish_non_exhaustive()
    }
}

impl State {
    fn read(&self, number: usize) -> Result<RecordBatch> {
        match (&self.kept[number], &self.file) {
            (Place::Memory(batch), _) => Ok(batch.clone()),
            (Place::File(offset, bytes), Some(file)) => {
                let mut buffer = vec![0; usize::try_from(*bytes).unwrap_or(usize::MAX)];
                file.read_exact_at(&mut buffer, *offset).map_err(|error| unreadable(&error))?;
                let batch = StreamReader::try_new(Cursor::new(buffer), None)?.next();
                let batch = batch.ok_or_else(|| unreadable(&"it is shorter than it was"))??;
                Ok(with_types(&batch, &self.result.schema())?)
            }
            _ => Err(SqlError::new(ErrorKind::Semantic, "the rows of the result were read before")
                .with_hint("a result that is not kept can be read once")),
        }
    }

    fn write(&mut self, batch: &RecordBatch, directory: &PathBuf) -> std::io::Result<Place> {
        let mut written = Vec::new();
        let other = |error: ArrowError| std::io::Error::other(error);
        let batch = compact(batch).map_err(other)?;
        let mut writer = StreamWriter::try_new(&mut written, &batch.schema()).map_err(other)?;
        writer.write(&batch).map_err(other)?;
        writer.finish().map_err(other)?;
        drop(writer);
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile_in(directory)?),
        };
        file.seek(std::io::SeekFrom::Start(self.file_bytes))?;
        file.write_all(&written)?;
        let place = Place::File(self.file_bytes, written.len() as u64);
        self.file_bytes += written.len() as u64;
        Ok(place)
    }
}

/// Bytes of memory that the rows of a batch need. (The arrays may be pieces of larger ones.)
fn bytes_of(batch: &RecordBatch) -> u64 {
    let bytes = batch.columns().iter().map(|column| match column.data_type() {
        DataType::Utf8View => {
            let views = column.as_string_view();
            size_of_val(&views.views()[..]) + views.total_buffer_bytes_used()
        }
        DataType::BinaryView => {
            let views = column.as_binary_view();
            size_of_val(&views.views()[..]) + views.total_buffer_bytes_used()
        }
        _ => {
            let bytes = column.to_data().get_slice_memory_size();
            bytes.unwrap_or_else(|_| column.get_array_memory_size())
        }
    });
    bytes.sum::<usize>() as u64
}

/// The type in which values are written: without views, which would bring all of the buffers that they refer to.
fn written_type(data_type: &DataType) -> DataType {
    let item = |field: &FieldRef| {
        let field = field.as_ref().clone();
        let data_type = written_type(field.data_type());
        Arc::new(field.with_data_type(data_type))
    };
    match data_type {
        DataType::Utf8View => DataType::LargeUtf8,
        DataType::BinaryView => DataType::LargeBinary,
        DataType::List(field) => DataType::List(item(field)),
        DataType::LargeList(field) => DataType::LargeList(item(field)),
        DataType::FixedSizeList(field, length) => DataType::FixedSizeList(item(field), *length),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(item).collect()),
        other => other.clone(),
    }
}

/// The rows of a batch, with nothing beside them, in the types in which they are written.
fn compact(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = batch.schema();
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .map(|field| field.as_ref().clone().with_data_type(written_type(field.data_type())))
        .collect();
    let rows = UInt64Array::from_iter_values(0..batch.num_rows() as u64);
    let columns = batch.columns().iter().map(|column| match column.data_type().is_nested() {
        true => take(column, &rows, None),
        false => Ok(Arc::clone(column)),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
    with_types(&batch, &Arc::new(Schema::new(fields)))
}

/// The batch with the types of a schema.
fn with_types(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| match column.data_type() == field.data_type() {
        true => Ok(Arc::clone(column)),
        false => cast(column, field.data_type()),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

fn unreadable(why: &dyn fmt::Display) -> SqlError {
    SqlError::new(ErrorKind::Io, format!("cannot read what was kept of the result: {why}"))
}
