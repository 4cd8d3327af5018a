//! Pieces of JSON files, and their rows.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{FieldRef, SchemaRef};
use weft_json::{Decoder, JsonError, Shape};

use super::cut::{Cut, Cutter};
use super::{JsonFile, JsonOptions, Layout, in_file, is_broken};
use crate::error::{FilesError, Result};
use crate::input::Input;
use crate::source::{Piece, Pieces};

/// How values become rows.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    /// The columns.
    pub(super) schema: SchemaRef,
    /// The field of a value, which has the columns if values have keys.
    pub(super) field: FieldRef,
    /// The fields of all keys of values, of which some are columns, if values have keys.
    pub(super) known: Option<SchemaRef>,
    /// The shape of the values of a sample, from which the columns come.
    pub(super) sample: Option<Arc<Shape>>,
    pub(super) is_lenient: bool,
    pub(super) batch_rows: usize,
}

/// The pieces of several files, one file after the other.
pub(super) struct JsonPieces {
    files: Arc<[JsonFile]>,
    options: JsonOptions,
    rows: Arc<Rows>,
    piece_bytes: usize,
    /// The file that is read, and the number of the next one.
    current: Option<Cutter>,
    next: usize,
}

impl JsonPieces {
    pub(super) fn new(
        files: Arc<[JsonFile]>,
        options: &JsonOptions,
        rows: Rows,
        piece_bytes: usize,
    ) -> JsonPieces {
        let (options, rows) = (options.clone(), Arc::new(rows));
        JsonPieces { files, options, rows, piece_bytes, current: None, next: 0 }
    }
}

impl Pieces for JsonPieces {
    fn next_piece(&mut self) -> Result<Option<Box<dyn Piece>>> {
        loop {
            let cutter = match &mut self.current {
                Some(cutter) => cutter,
                None => {
                    let Some(file) = self.files.get(self.next) else { return Ok(None) };
                    self.next += 1;
                    self.current.insert(Cutter::open(&file.input, file.layout, &self.options)?)
                }
            };
            if let Some(cut) = cutter.next_cut(self.piece_bytes)? {
                let input = self.files[self.next - 1].input.clone();
                return Ok(Some(Box::new(JsonPiece { input, cut, rows: Arc::clone(&self.rows) })));
            }
            self.current = None;
        }
    }
}

struct JsonPiece {
    input: Input,
    cut: Cut,
    rows: Arc<Rows>,
}

impl JsonPiece {
    fn decoder(&self) -> Decoder {
        let Rows { field, known, sample, is_lenient, .. } = self.rows.as_ref();
        let (field, sample) = (Arc::clone(field), sample.as_deref());
        let keys = known.as_ref().map(|known| known.fields().iter().map(|key| key.name().as_str()));
        Decoder::of_rows(field, keys, sample, *is_lenient)
    }

    fn batch(&self, decoder: Decoder) -> Result<RecordBatch> {
        let count = decoder.len();
        let array = decoder.finish().map_err(|error| self.located(error))?;
        let columns = match (self.rows.known.is_some(), self.rows.schema.fields().is_empty()) {
            (true, _) => array.as_struct().columns().to_vec(),
            (false, true) => Vec::new(),
            (false, false) => vec![array],
        };
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let schema = Arc::clone(&self.rows.schema);
        RecordBatch::try_new_with_options(schema, columns, &options).map_err(|error| {
            FilesError::data(self.input.path(), Some(self.cut.line), error.to_string())
        })
    }

    /// The error of a value among many, where its place is: of the first value that fails alone.
    fn located(&self, error: JsonError) -> FilesError {
        let mut found = error;
        let alone = self.cut.each_value(|text, at| {
            let mut decoder = self.decoder();
            let end = decoder.push_next(text, at)?;
            decoder.finish().map_err(|error| {
                let blanks = text[at..].len() - text[at..].trim_ascii_start().len();
                JsonError { offset: at + blanks, ..error }
            })?;
            Ok(end)
        });
        if let Err(first) = alone {
            found = first;
        }
        self.failed(found)
    }

    /// The error of a value. If the types come from a sample, types of all values may do.
    fn failed(&self, error: JsonError) -> FilesError {
        match in_file(&self.input, &self.cut, error) {
            FilesError::Data { path, line: Some(line), column, problem, .. }
                if self.rows.sample.is_some() =>
            {
                FilesError::Misfit { path, line, column, problem }
            }
            error => error,
        }
    }

    /// Adds the next value.
    fn push(
        &self,
        decoder: &mut Decoder,
        text: &str,
        at: usize,
    ) -> weft_json::Result<Option<usize>> {
        if self.rows.is_lenient && self.cut.layout == Layout::Lines && is_broken(&text[at..]) {
            decoder.push_null();
            return Ok(None);
        }
        decoder.push_next(text, at)
    }
}

impl Piece for JsonPiece {
    fn bytes(&self) -> usize {
        self.cut.text.len()
    }

    fn decode(self: Box<Self>) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        let mut current = self.decoder();
        let mut failed = None;
        let decoded = self.cut.each_value(|text, at| {
            if failed.is_none() && current.len() >= self.rows.batch_rows {
                let full = std::mem::replace(&mut current, self.decoder());
                match self.batch(full) {
                    Ok(batch) => batches.push(batch),
                    Err(error) => failed = Some(error),
                }
            }
            match failed.is_some() {
                true => Ok(None),
                false => self.push(&mut current, text, at),
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        decoded.map_err(|error| self.failed(error))?;
        if !current.is_empty() {
            batches.push(self.batch(current)?);
        }
        Ok(batches)
    }
}
