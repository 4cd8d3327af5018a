//! Functions that depend on their arguments alone.

use std::sync::Arc;

use arrow::array::{Array, Int32Array, ListArray, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::ScalarValue;

use crate::error::Result;
use crate::identifiers::quoted;
use crate::postgres::functions::names::split_name;
use crate::postgres::functions::{
    Arguments, Definition, Surroundings, define, number, number_type, text, text_type, texts_type,
};
use crate::postgres::types::{format_type, type_of_field};

pub(crate) fn functions() -> Vec<Definition> {
    vec![
        define("quote_ident", (1, 1), text_type, |_, arguments| {
            text(arguments.text(0).map(|name| quoted(&name)))
        }),
        define("quote_literal", (1, 1), text_type, |_, arguments| {
            text(arguments.text(0).map(|value| literal(&value)))
        }),
        define("quote_nullable", (1, 1), text_type, |_, arguments| {
            let value = arguments.text(0).map(|value| literal(&value));
            text(Some(value.unwrap_or_else(|| "NULL".to_owned())))
        }),
        define("pg_encoding_to_char", (1, 1), text_type, |_, arguments| {
            let name = |encoding| if encoding == 6 { "UTF8" } else { "" };
            text(arguments.number(0).map(name))
        }),
        define("pg_char_to_encoding", (1, 1), number_type, |_, arguments| {
            let number_of = |name: String| match name.to_ascii_lowercase().replace('-', "").as_str()
            {
                "utf8" | "unicode" => 6,
                _ => -1,
            };
            number(arguments.text(0).map(number_of))
        }),
        define("getdatabaseencoding", (0, 0), text_type, |_, _| text(Some("UTF8"))),
        define("pg_client_encoding", (0, 0), text_type, |_, _| text(Some("UTF8"))),
        define("pg_size_pretty", (1, 1), text_type, |_, arguments| {
            text(arguments.number(0).map(pretty))
        }),
        define("array_upper", (2, 2), number_type, |_, arguments| {
            bound(arguments, |length| length)
        }),
        define("array_lower", (2, 2), number_type, |_, arguments| bound(arguments, |_| 1)),
        define("pg_typeof", (1, 1), text_type, type_of),
        define("numbered_items", (1, 1), |_| numbered_type(), numbered_items),
        define("parse_ident", (1, 2), texts_type, |_, arguments| {
            let parts = arguments.text(0).map(|name| split_name(&name));
            let values = parts.map(|parts| {
                parts.into_iter().map(|part| ScalarValue::Utf8View(Some(part))).collect::<Vec<_>>()
            });
            Ok(match values {
                Some(values) => {
                    ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Utf8View))
                }
                None => ScalarValue::try_from(&texts_type(&[]))?,
            })
        }),
    ]
}

/// A text as a literal of SQL; with its backslashes doubled, as PostgreSQL does it.
fn literal(text: &str) -> String {
    let quotes = text.replace('\'', "''");
    match text.contains('\\') {
        true => format!("E'{}'", quotes.replace('\\', "\\\\")),
        false => format!("'{quotes}'"),
    }
}

/// Bytes in the unit that has at most five digits of them, as PostgreSQL writes them.
fn pretty(bytes: i64) -> String {
    let mut size = bytes;
    let limit = 10 * 1024;
    if size.unsigned_abs() < limit {
        return format!("{size} bytes");
    }
    // One bit more than whole units, which is for rounding.
    size >>= 9;
    for unit in ["kB", "MB", "GB", "TB"] {
        if size.unsigned_abs() < 2 * limit - 1 || unit == "TB" {
            let half = if size < 0 { size - 1 } else { size + 1 };
            return format!("{} {unit}", half / 2);
        }
        size >>= 10;
    }
    format!("{bytes} bytes")
}

/// The first or last number of the elements of a list, of which PostgreSQL counts from 1.
fn bound(arguments: &Arguments<'_>, of: fn(i64) -> i64) -> Result<ScalarValue> {
    let length = match arguments.value(0) {
        Some(ScalarValue::List(list)) if arguments.number(1) == Some(1) => {
            (!list.is_empty() && !list.is_null(0)).then(|| i64::from(list.value_length(0)))
        }
        _ => None,
    };
    number(length.filter(|length| *length > 0).map(of))
}

fn numbered_fields() -> Fields {
    let field = |name| Field::new(name, DataType::Int32, true);
    vec![field("x"), field("n")].into()
}

fn numbered_type() -> DataType {
    let item = Field::new_list_field(DataType::Struct(numbered_fields()), true);
    DataType::List(Arc::new(item))
}

/// The items of a list of numbers, each with its number, from 1 on.
fn numbered_items(_: &Surroundings, arguments: &Arguments<'_>) -> Result<ScalarValue> {
    let Some(ScalarValue::List(list)) = arguments.value(0) else {
        return Ok(ScalarValue::try_from(&numbered_type())?);
    };
    let items = cast(list.values(), &DataType::Int32)?;
    let numbers: Int32Array = (1..).take(items.len()).collect();
    let items = StructArray::new(numbered_fields(), vec![items, Arc::new(numbers)], None);
    let offsets = OffsetBuffer::from_lengths([items.len()]);
    let item = Field::new_list_field(DataType::Struct(numbered_fields()), true);
    let list = ListArray::new(Arc::new(item), offsets, Arc::new(items), list.nulls().cloned());
    Ok(ScalarValue::List(Arc::new(list)))
}

fn type_of(_: &Surroundings, arguments: &Arguments<'_>) -> Result<ScalarValue> {
    let data_type = arguments.value(0).map_or(DataType::Null, ScalarValue::data_type);
    let field = Field::new("value", data_type, true);
    text(Some(format_type(type_of_field(&field).0, None)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_postgresql_writes_them() {
        // As PostgreSQL 15 answers.
        assert_eq!(pretty(0), "0 bytes");
        assert_eq!(pretty(10_239), "10239 bytes");
        assert_eq!(pretty(10_240), "10 kB");
        assert_eq!(pretty(1_000_000), "977 kB");
        assert_eq!(pretty(123_456_789), "118 MB");
        assert_eq!(pretty(-20_480), "-20 kB");
        assert_eq!(pretty(1 << 50), "1024 TB");
    }

    #[test]
    fn literals_have_their_quotes_doubled() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\b"), "E'a\\\\b'");
    }
}
