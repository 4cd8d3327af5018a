//! Values that PostgreSQL has no type for (structs, maps, lists of lists) as JSON.

use std::fmt::Write;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;

use crate::text;

/// The items of a list, whatever kind of list it is; `None` of another type.
pub(crate) fn list_items(array: &dyn Array, row: usize) -> Option<ArrayRef> {
    Some(match array.data_type() {
        DataType::List(_) => array.as_list::<i32>().value(row),
        DataType::LargeList(_) => array.as_list::<i64>().value(row),
        DataType::ListView(_) => array.as_list_view::<i32>().value(row),
        DataType::LargeListView(_) => array.as_list_view::<i64>().value(row),
        DataType::FixedSizeList(..) => array.as_fixed_size_list().value(row),
        _ => return None,
    })
}

/// Writes the value of a row as JSON.
pub(crate) fn write_value(array: &dyn Array, row: usize, out: &mut String) {
    if array.is_null(row) {
        out.push_str("null");
        return;
    }
    if let Some(items) = list_items(array, row) {
        separated(out, '[', ']', items.len(), |item, out| write_value(items.as_ref(), item, out));
        return;
    }
    match array.data_type() {
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            separated(out, '{', '}', fields.len(), |number, out| {
                write_text(fields[number].name(), out);
                out.push(':');
                write_value(columns[number].as_ref(), row, out);
            });
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            let (keys, values) = (entries.column(0), entries.column(1));
            separated(out, '{', '}', entries.len(), |entry, out| {
                let mut key = String::new();
                text::write_value(keys.as_ref(), entry, &mut key);
                write_text(&key, out);
                out.push(':');
                write_value(values.as_ref(), entry, out);
            });
        }
        DataType::Union(..) => {
            let value = array.as_union().value(row);
            write_value(value.as_ref(), 0, out);
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            write_value(dictionary.values().as_ref(), dictionary.normalized_keys()[row], out);
        }
        DataType::Boolean => {
            out.push_str(if array.as_boolean().value(row) { "true" } else { "false" });
        }
        data_type => {
            let mut value = String::new();
            text::write_value(array, row, &mut value);
            // JSON has no word for NaN and the infinities.
            let is_number = data_type.is_numeric() && !value.ends_with(['N', 'y']);
            match is_number {
                true => out.push_str(&value),
                false => write_text(&value, out),
            }
        }
    }
}

fn separated(
    out: &mut String,
    open: char,
    close: char,
    count: usize,
    write: impl Fn(usize, &mut String),
) {
    out.push(open);
    for number in 0..count {
        if number > 0 {
            out.push(',');
        }
        write(number, out);
    }
    out.push(close);
}

fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // Writing to a string does not fail.
            char if char < ' ' => drop(write!(out, "\\u{:04x}", u32::from(char))),
            char => out.push(char),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int32Array, StringArray, StructArray};
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn structs_are_objects() {
        let columns: Vec<(Arc<Field>, ArrayRef)> = vec![
            (
                Arc::new(Field::new("a\"", DataType::Int32, true)),
                Arc::new(Int32Array::from(vec![Some(1), None])),
            ),
            (
                Arc::new(Field::new("b", DataType::Utf8, true)),
                Arc::new(StringArray::from(vec!["x\n\u{1}", ""])),
            ),
            (
                Arc::new(Field::new("c", DataType::Float64, true)),
                Arc::new(Float64Array::from(vec![1.5, f64::NAN])),
            ),
        ];
        let array = StructArray::from(columns);
        let shown = |row| {
            let mut out = String::new();
            write_value(&array, row, &mut out);
            out
        };
        assert_eq!(shown(0), r#"{"a\"":1,"b":"x\n\u0001","c":1.5}"#);
        assert_eq!(shown(1), r#"{"a\"":null,"b":"","c":"NaN"}"#);
    }
}
