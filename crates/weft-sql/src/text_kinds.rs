//! Types whose values are texts of a form of their own: JSON, UUID and enumerations. The field's metadata names the type, and a
//! table's column keeps it as a greatest length that no text has, or as its kind.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::sql::sqlparser::ast::DataType as SqlType;
use weft_json::{is_json, json_field};
use weft_store::Column;

use crate::enums::EnumType;
use crate::uuids::{is_uuid, uuid_field};

/// The least length that stands for a type. No declared one is as great.
const LENGTH_MIN: u32 = u32::MAX - 1;

/// A type whose values are texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TextKind {
    Json,
    Uuid,
    Enum(Arc<EnumType>),
}

impl TextKind {
    /// The type of a field's texts; `None` for plain texts and other values.
    pub(crate) fn of_field(field: &Field) -> Option<TextKind> {
        match field {
            field if is_json(field) => Some(TextKind::Json),
            field if is_uuid(field) => Some(TextKind::Uuid),
            field => EnumType::of_field(field).map(TextKind::Enum),
        }
    }

    /// The type of the texts of a column.
    pub(crate) fn of_column(column: &Column) -> Option<TextKind> {
        match (&column.kind, column.max_length) {
            (Some(kind), _) => EnumType::read(kind).map(TextKind::Enum),
            (None, Some(u32::MAX)) => Some(TextKind::Json),
            (None, Some(LENGTH_MIN)) => Some(TextKind::Uuid),
            (None, _) => None,
        }
    }

    /// The type of this name, if it is the same in all databases.
    pub(crate) fn named(sql_type: &SqlType) -> Option<TextKind> {
        match sql_type {
            SqlType::JSON | SqlType::JSONB => Some(TextKind::Json),
            SqlType::Uuid => Some(TextKind::Uuid),
            _ => None,
        }
    }

    /// The greatest length of a column's texts that stands for the type.
    pub(crate) fn length(&self) -> Option<u32> {
        match self {
            TextKind::Json => Some(u32::MAX),
            TextKind::Uuid => Some(LENGTH_MIN),
            TextKind::Enum(_) => None,
        }
    }

    /// The kind of a column that stands for the type.
    pub(crate) fn words(&self) -> Option<&str> {
        match self {
            TextKind::Json | TextKind::Uuid => None,
            TextKind::Enum(ty) => Some(ty.words()),
        }
    }

    /// A field of values of the type.
    pub(crate) fn field(&self, name: &str) -> Field {
        match self {
            TextKind::Json => json_field(name, true),
            TextKind::Uuid => uuid_field(name),
            TextKind::Enum(ty) => ty.field(name),
        }
    }

    /// What SQL calls the type.
    pub(crate) fn name(&self) -> Cow<'static, str> {
        match self {
            TextKind::Json => "JSON".into(),
            TextKind::Uuid => "UUID".into(),
            TextKind::Enum(ty) => ty.to_string().into(),
        }
    }
}

/// A column for the values of a field, with its type.
pub(crate) fn column_of(field: &Field) -> Column {
    let kind = TextKind::of_field(field);
    Column {
        name: field.name().clone(),
        data_type: field.data_type().clone(),
        nullable: field.is_nullable(),
        default: None,
        max_length: kind.as_ref().and_then(TextKind::length),
        kind: kind.as_ref().and_then(TextKind::words).map(str::to_owned),
    }
}

/// The field of a column, marked with the type of its texts.
pub(crate) fn marked(field: Field, column: &Column) -> Field {
    match TextKind::of_column(column) {
        Some(kind) => field.with_metadata(kind.field("").metadata().clone()),
        None => field,
    }
}

/// The greatest length that a column was declared with.
pub(crate) fn declared_length(max_length: Option<u32>) -> Option<u32> {
    max_length.filter(|length| *length < LENGTH_MIN)
}
