//! Record batches of an Arrow file, decoded with the dictionaries that come before them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::FileDecoder;
use arrow::util::display::FormatOptions;

use super::ArrowFile;
use super::frames::{Frame, Frames};
use crate::error::{FilesError, Result};
use crate::source::{Piece, Pieces, ReadPlan};

/// The pieces of a file: one record batch each.
pub(super) struct ArrowPieces {
    file: ArrowFile,
    frames: Frames,
    projection: Vec<usize>,
    rows: Arc<Rows>,
    decoder: Arc<FileDecoder>,
    /// The dictionaries so far: a delta stands behind the dictionary that it is added to.
    dictionaries: Vec<Arc<Frame>>,
    /// A dictionary came behind a record batch: batches are decoded when they are found.
    is_sequential: bool,
    has_begun: bool,
}

/// How rows are returned.
struct Rows {
    path: PathBuf,
    schema: SchemaRef,
    batch_rows: usize,
}

impl ArrowPieces {
    pub(super) fn open(file: &ArrowFile, plan: &ReadPlan) -> Result<ArrowPieces> {
        let mut frames = Frames::open(&file.input, file.body_bytes_max)?;
        let (stored, _) = frames.schema()?;
        if stored.fields() != file.stored.fields() {
            return Err(frames.broken("its columns have changed since the statement began"));
        }
        let schema = file.schema.project(&plan.projection).map_err(|error| {
            FilesError::option(format!("a column that the file does not have: {error}"))
        })?;
        let decoder = FileDecoder::new(Arc::clone(&file.stored), file.version)
            .with_projection(plan.projection.clone());
        let rows = Rows {
            path: file.input.path().to_owned(),
            schema: Arc::new(schema),
            batch_rows: plan.batch_rows.max(1),
        };
        Ok(ArrowPieces {
            file: file.clone(),
            frames,
            projection: plan.projection.clone(),
            rows: Arc::new(rows),
            decoder: Arc::new(decoder),
            dictionaries: Vec::new(),
            is_sequential: false,
            has_begun: false,
        })
    }

    /// Takes a dictionary in.
    fn add_dictionary(&mut self, frame: Frame) -> Result<()> {
        self.is_sequential |= self.has_begun;
        let frame = Arc::new(frame);
        if Arc::get_mut(&mut self.decoder).is_none() {
            // Pieces that are being decoded have the dictionaries as they were.
            self.decoder = Arc::new(self.decoder_with_dictionaries()?);
        }
        let path = self.rows.path.clone();
        let Some(decoder) = Arc::get_mut(&mut self.decoder) else {
            return Err(self.frames.broken("its dictionaries are read twice at once"));
        };
        guarded(&path, || decoder.read_dictionary(&frame.block, &frame.bytes))?;
        if !self.is_sequential {
            self.dictionaries.push(frame);
        }
        Ok(())
    }

    fn decoder_with_dictionaries(&self) -> Result<FileDecoder> {
        let mut decoder = FileDecoder::new(Arc::clone(&self.file.stored), self.file.version)
            .with_projection(self.projection.clone());
        for frame in &self.dictionaries {
            guarded(&self.rows.path, || decoder.read_dictionary(&frame.block, &frame.bytes))?;
        }
        Ok(decoder)
    }
}

impl Pieces for ArrowPieces {
    fn next_piece(&mut self) -> Result<Option<Box<dyn Piece>>> {
        loop {
            let Some(frame) = self.frames.next_frame()? else { return Ok(None) };
            if frame.is_dictionary {
                self.add_dictionary(frame)?;
                continue;
            }
            self.has_begun = true;
            let (bytes, rows) = (frame.bytes.len(), Arc::clone(&self.rows));
            let content = match self.is_sequential {
                true => Content::Decoded(rows.batch(&self.decoder, &frame)?),
                false => Content::Stored(Arc::clone(&self.decoder), frame),
            };
            return Ok(Some(Box::new(ArrowPiece { bytes, rows, content })));
        }
    }
}

struct ArrowPiece {
    bytes: usize,
    rows: Arc<Rows>,
    content: Content,
}

enum Content {
    Stored(Arc<FileDecoder>, Frame),
    Decoded(RecordBatch),
}

impl Piece for ArrowPiece {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn decode(self: Box<Self>) -> Result<Vec<RecordBatch>> {
        let batch = match self.content {
            Content::Decoded(batch) => batch,
            Content::Stored(decoder, frame) => self.rows.batch(&decoder, &frame)?,
        };
        let starts = (0..batch.num_rows()).step_by(self.rows.batch_rows);
        let slice = |start: usize| {
            let length = self.rows.batch_rows.min(batch.num_rows() - start);
            batch.slice(start, length)
        };
        Ok(starts.map(slice).collect())
    }
}

impl Rows {
    fn batch(&self, decoder: &FileDecoder, frame: &Frame) -> Result<RecordBatch> {
        guarded(&self.path, || {
            let stored = decoder.read_record_batch(&frame.block, &frame.bytes)?;
            let Some(stored) = stored else {
                return Err(ArrowError::IpcError("a message has no content".to_owned()));
            };
            let columns = stored.columns().iter().zip(self.schema.fields());
            let columns = columns.map(|(column, field)| as_read(column, field.data_type()));
            let options = RecordBatchOptions::new().with_row_count(Some(stored.num_rows()));
            let columns = columns.collect::<Result<_, _>>()?;
            RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
        })
    }
}

/// A column in the type in which it is returned.
fn as_read(column: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    if column.data_type() == to {
        return Ok(Arc::clone(column));
    }
    let options = CastOptions { safe: false, format_options: FormatOptions::default() };
    cast_with_options(column, to, &options)
}

/// The result of a call of Arrow's reader, which may panic over damaged bytes.
fn guarded<T>(path: &std::path::Path, call: impl FnOnce() -> Result<T, ArrowError>) -> Result<T> {
    let damaged = |why: &str| {
        let problem = format!("it is damaged, or has what is not supported: {why}");
        FilesError::data(path, None, problem)
    };
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| damaged(&error.to_string())),
        Err(panic) => Err(damaged(text_of(panic.as_ref()))),
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("its decoder failed")
}
