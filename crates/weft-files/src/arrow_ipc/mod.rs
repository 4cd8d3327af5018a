//! Arrow IPC: streams, and files, which are streams between two magic words with a footer behind them.
//!
//! `frames.rs` cuts a stream into messages, each checked against the bytes that there are before anything is allocated for it;
//! `check.rs` looks at what a message says of its body. What passes is decoded by Arrow's own reader (`pieces.rs`), whose panics
//! over damaged bytes become errors.

mod check;
mod frames;
mod pieces;
mod types;

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::MetadataVersion;

use crate::error::{FilesError, Result};
use crate::input::Input;
use crate::names::distinct;
use crate::source::{FileReader, Pieces, ReadPlan, TypesFrom};

use frames::Frames;
use pieces::ArrowPieces;

/// An Arrow file or stream as a table.
#[derive(Clone, Debug)]
pub struct ArrowFile {
    input: Input,
    /// Bytes that a message may have when it is decompressed.
    body_bytes_max: u64,
    version: MetadataVersion,
    /// As the file says.
    stored: SchemaRef,
    /// As rows are returned.
    schema: SchemaRef,
}

impl ArrowFile {
    /// Opens a file and reads its schema. Messages with more than `body_bytes_max` bytes are errors when they are read.
    ///
    /// # Errors
    /// [`FilesError::Data`] for what is no Arrow file, or has types that are not supported.
    pub fn open(input: Input, body_bytes_max: u64) -> Result<ArrowFile> {
        let mut frames = Frames::open(&input, body_bytes_max)?;
        let (stored, version) = frames.schema()?;
        let given = stored.fields().iter().enumerate();
        let mut names: Vec<String> = given
            .map(|(number, field)| match field.name().as_str() {
                "" => format!("column{number}"),
                name => name.to_owned(),
            })
            .collect();
        distinct(&mut names);
        let fields = stored.fields().iter().zip(names).map(|(field, name)| {
            types::field_read(field).map(|field| field.with_name(name)).ok_or_else(|| {
                let problem = format!(
                    "column {} has the type {}, which is not supported",
                    field.name(),
                    field.data_type()
                );
                FilesError::data(input.path(), None, problem)
            })
        });
        let schema = Arc::new(Schema::new(fields.collect::<Result<Vec<_>>>()?));
        Ok(ArrowFile { input, body_bytes_max, version, stored: Arc::new(stored), schema })
    }
}

impl FileReader for ArrowFile {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn types_from(&self) -> TypesFrom {
        TypesFrom::Certain
    }

    fn bytes(&self) -> u64 {
        self.input.bytes()
    }

    fn open(&self, plan: &ReadPlan) -> Result<Box<dyn Pieces>> {
        Ok(Box::new(ArrowPieces::open(self, plan)?))
    }
}

#[cfg(test)]
mod tests;
