//! JSON: texts and their parts, the types that values suggest, and values to Arrow arrays and back.
//!
//! A value is its text. Functions go through it once, by a pull parser (`pull.rs`), and return parts of it; no tree is made but where
//! one is needed (`merge.rs`). Numbers keep the digits that they are written with.
//!
//! **API boundary:** the crate knows Arrow and texts, and neither SQL nor files.

#![forbid(unsafe_code)]

mod decode;
mod merge;
mod moments;
mod number;
mod parts;
mod path;
mod print;
mod pull;
mod shape;
mod words;
mod write;

pub use decode::Decoder;
pub use merge::{contains, merge_patch};
pub use parts::{Kind, Members, check, compact, elements, kind, members, text_of, unescaped};
pub use path::{Path, Step};
pub use print::{pretty, quoted, structure, write_quoted};
pub use shape::{Members as ShapeMembers, Shape};
pub use write::{Encoder, binary_text};

use std::collections::HashMap;

use arrow::datatypes::{DataType, Field};

/// Values within values, at most: a text that is nested deeper is refused.
pub const DEPTH_MAX: usize = 200;

/// The key of a field's metadata that names its extension type.
const EXTENSION: &str = "ARROW:extension:name";

/// Arrow's name for texts that hold JSON.
const ARROW_JSON: &str = "arrow.json";

/// Result of this crate.
pub type Result<T, E = JsonError> = std::result::Result<T, E>;

/// Why a text is not the JSON that it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// Byte of the text.
    pub offset: usize,
    /// What is wrong there.
    pub problem: String,
    /// The path of keys to the value, where the JSON is valid and a value does not fit its type.
    pub column: Option<String>,
}

impl JsonError {
    pub(crate) fn at(offset: usize, problem: impl Into<String>) -> JsonError {
        JsonError { offset, problem: problem.into(), column: None }
    }

    /// The error of a part of a text, which begins at this byte, in the whole of it.
    pub(crate) fn moved(mut self, bytes: usize) -> JsonError {
        self.offset += bytes;
        self
    }

    /// The error of a value that does not fit, in the object that has it under this key.
    pub(crate) fn within(mut self, key: &str) -> JsonError {
        self.column = self.column.map(|column| match column.is_empty() {
            true => key.to_owned(),
            false => format!("{key}.{column}"),
        });
        self
    }

    pub(crate) fn too_deep(offset: usize) -> JsonError {
        JsonError::at(offset, format!("it is nested deeper than {DEPTH_MAX}"))
    }
}

impl std::fmt::Display for JsonError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.column {
            Some(column) => write!(f, "{column}: {}", self.problem),
            None => write!(f, "malformed JSON at byte {}: {}", self.offset, self.problem),
        }
    }
}

impl std::error::Error for JsonError {}

/// A field of JSON values: texts, marked.
pub fn json_field(name: &str, nullable: bool) -> Field {
    let metadata = HashMap::from([(EXTENSION.to_owned(), ARROW_JSON.to_owned())]);
    Field::new(name, DataType::Utf8View, nullable).with_metadata(metadata)
}

/// True if the field's texts are JSON.
pub fn is_json(field: &Field) -> bool {
    field.data_type().is_string()
        && field.metadata().get(EXTENSION).is_some_and(|name| name == ARROW_JSON)
}
