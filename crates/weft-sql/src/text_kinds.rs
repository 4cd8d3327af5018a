//! Types whose values are texts of a form of their own: JSON and UUID. The field's metadata names the type, and a table's column
//! keeps it as a greatest length that no text has.

use arrow::datatypes::Field;
use datafusion::sql::sqlparser::ast::DataType as SqlType;
use weft_json::{is_json, json_field};

use crate::uuids::{is_uuid, uuid_field};

/// The least length that stands for a type. No declared one is as great.
const LENGTH_MIN: u32 = u32::MAX - 1;

/// A type whose values are texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextKind {
    Json,
    Uuid,
}

impl TextKind {
    /// The type of a field's texts; `None` for plain texts and other values.
    pub(crate) fn of_field(field: &Field) -> Option<TextKind> {
        match field {
            field if is_json(field) => Some(TextKind::Json),
            field if is_uuid(field) => Some(TextKind::Uuid),
            _ => None,
        }
    }

    /// The type of the texts of a column with this greatest length.
    pub(crate) fn of_length(max_length: Option<u32>) -> Option<TextKind> {
        [TextKind::Json, TextKind::Uuid].into_iter().find(|kind| max_length == Some(kind.length()))
    }

    /// The type of this name.
    pub(crate) fn named(sql_type: &SqlType) -> Option<TextKind> {
        match sql_type {
            SqlType::JSON | SqlType::JSONB => Some(TextKind::Json),
            SqlType::Uuid => Some(TextKind::Uuid),
            _ => None,
        }
    }

    /// The greatest length of a column's texts that stands for the type.
    pub(crate) fn length(self) -> u32 {
        match self {
            TextKind::Json => u32::MAX,
            TextKind::Uuid => u32::MAX - 1,
        }
    }

    /// A field of values of the type.
    pub(crate) fn field(self, name: &str) -> Field {
        match self {
            TextKind::Json => json_field(name, true),
            TextKind::Uuid => uuid_field(name),
        }
    }

    /// What SQL calls the type.
    pub(crate) fn name(self) -> &'static str {
        match self {
            TextKind::Json => "JSON",
            TextKind::Uuid => "UUID",
        }
    }
}

/// The field of a column with this greatest length of its texts, marked with the type that it stands for.
pub(crate) fn marked(field: Field, max_length: Option<u32>) -> Field {
    match TextKind::of_length(max_length) {
        Some(kind) => field.with_metadata(kind.field("").metadata().clone()),
        None => field,
    }
}

/// The greatest length that a column was declared with.
pub(crate) fn declared_length(max_length: Option<u32>) -> Option<u32> {
    max_length.filter(|length| *length < LENGTH_MIN)
}
