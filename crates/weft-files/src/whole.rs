//! Files as values: a row for each, with its name, content, size and time of its last change.

use std::io::Read;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use arrow::array::{
    ArrayRef, BinaryViewArray, Int64Array, RecordBatch, RecordBatchOptions, StringViewArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use weft_remote::Place;

use crate::error::{FilesError, Result};
use crate::input::Input;
use crate::source::{FileReader, Piece, Pieces, ReadPlan, TypesFrom};

/// Bytes of a value, at most.
const CONTENT_BYTES_MAX: u64 = 1 << 30;

/// What the content of files is read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Text, which must be UTF-8 when it is decoded.
    Text,
    /// Bytes.
    Bytes,
}

/// A row for each file: `filename`, `content`, `size`, `last_modified`.
#[derive(Clone, Debug)]
pub struct WholeFiles {
    /// The files, with the names that they are shown by.
    files: Arc<Vec<(String, Input)>>,
    content: Content,
    schema: SchemaRef,
}

impl WholeFiles {
    /// Rows for these files.
    pub fn new(files: Vec<(String, Input)>, content: Content) -> WholeFiles {
        let data_type = match content {
            Content::Text => DataType::Utf8View,
            Content::Bytes => DataType::BinaryView,
        };
        let schema = Schema::new(vec![
            Field::new("filename", DataType::Utf8View, true),
            Field::new("content", data_type, true),
            Field::new("size", DataType::Int64, true),
            Field::new("last_modified", DataType::Timestamp(TimeUnit::Microsecond, None), true),
        ]);
        WholeFiles { files: Arc::new(files), content, schema: Arc::new(schema) }
    }
}

impl FileReader for WholeFiles {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn types_from(&self) -> TypesFrom {
        TypesFrom::Certain
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, input)| input.bytes()).sum()
    }

    fn open(&self, plan: &ReadPlan) -> Result<Box<dyn Pieces>> {
        Ok(Box::new(WholePieces { files: self.clone(), plan: plan.clone(), next: 0 }))
    }
}

struct WholePieces {
    files: WholeFiles,
    plan: ReadPlan,
    next: usize,
}

impl Pieces for WholePieces {
    fn next_piece(&mut self) -> Result<Option<Box<dyn Piece>>> {
        let number = self.next;
        self.next += 1;
        if number >= self.files.files.len() {
            return Ok(None);
        }
        Ok(Some(Box::new(WholePiece {
            files: self.files.clone(),
            plan: self.plan.clone(),
            number,
        })))
    }
}

struct WholePiece {
    files: WholeFiles,
    plan: ReadPlan,
    number: usize,
}

impl WholePiece {
    fn content(&self, input: &Input) -> Result<ArrayRef> {
        let failed = |error| FilesError::read(input.path(), error);
        let mut source = match self.files.content {
            Content::Text => input.open_text()?,
            Content::Bytes => input.open()?,
        };
        let mut bytes = Vec::new();
        source.by_ref().take(CONTENT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > CONTENT_BYTES_MAX {
            let problem = format!(
                "it has more than {CONTENT_BYTES_MAX} bytes, which is too much for one value"
            );
            return Err(FilesError::data(input.path(), None, problem));
        }
        Ok(match self.files.content {
            Content::Bytes => Arc::new(BinaryViewArray::from(vec![Some(bytes.as_slice())])),
            Content::Text => {
                let text = std::str::from_utf8(&bytes).map_err(|_| {
                    FilesError::data(input.path(), None, "it is not UTF-8")
                        .with_hint("read its bytes: read_blob('file')")
                })?;
                Arc::new(StringViewArray::from(vec![Some(text)]))
            }
        })
    }

    fn column(&self, number: usize) -> Result<ArrayRef> {
        let (name, input) = &self.files.files[self.number];
        let failed = |error| FilesError::read(input.path(), error);
        Ok(match number {
            0 => Arc::new(StringViewArray::from(vec![Some(name.as_str())])),
            1 => self.content(input)?,
            2 => {
                let bytes = input.place.bytes().map_err(failed)?;
                Arc::new(Int64Array::from(vec![i64::try_from(bytes).ok()]))
            }
            _ => {
                let time = match &input.place {
                    // Not all servers tell.
                    Place::Remote(file) => file.modified(),
                    local => Some(local.modified().map_err(failed)?),
                };
                let micros = time
                    .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
                    .and_then(|since| i64::try_from(since.as_micros()).ok());
                Arc::new(TimestampMicrosecondArray::from(vec![micros]))
            }
        })
    }
}

impl Piece for WholePiece {
    fn bytes(&self) -> usize {
        usize::try_from(self.files.files[self.number].1.bytes()).unwrap_or(usize::MAX)
    }

    fn decode(self: Box<Self>) -> Result<Vec<RecordBatch>> {
        let columns = self.plan.projection.iter().map(|column| self.column(*column));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let failed = |error: arrow::error::ArrowError| FilesError::option(error.to_string());
        let schema = Arc::new(self.files.schema.project(&self.plan.projection).map_err(failed)?);
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        Ok(vec![RecordBatch::try_new_with_options(schema, columns, &options).map_err(failed)?])
    }
}
