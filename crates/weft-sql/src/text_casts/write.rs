//! Values as text.

use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{
    Array, ArrayRef, StringViewArray, StringViewBuilder, new_null_array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result as DfResult;
use weft_json::binary_text;

use super::{is_binary, is_nested};
use crate::timestamp_casts::timestamp_texts;

/// The texts of values, as `Utf8View`; NULL has none.
pub(super) fn texts(values: &ArrayRef) -> DfResult<ArrayRef> {
    let rows = values.len();
    Ok(match values.data_type() {
        DataType::Null => new_null_array(&DataType::Utf8View, rows),
        DataType::List(_) => {
            let lists = values.as_list::<i32>();
            let ends = |row: usize| {
                (place(lists.value_offsets()[row]), place(lists.value_offsets()[row + 1]))
            };
            lists_text(values, lists.values(), ends)?
        }
        DataType::LargeList(_) => {
            let lists = values.as_list::<i64>();
            let ends = |row: usize| {
                (place(lists.value_offsets()[row]), place(lists.value_offsets()[row + 1]))
            };
            lists_text(values, lists.values(), ends)?
        }
        DataType::FixedSizeList(_, len) => {
            let len = place(*len);
            lists_text(values, values.as_fixed_size_list().values(), |row| {
                (row * len, (row + 1) * len)
            })?
        }
        DataType::Struct(fields) => {
            let columns = values.as_struct().columns();
            let columns: Vec<Elements> =
                columns.iter().map(Elements::new).collect::<DfResult<_>>()?;
            written(values, |row, out| {
                out.push('{');
                for (at, (field, column)) in fields.iter().zip(&columns).enumerate() {
                    out.push_str(if at == 0 { "" } else { ", " });
                    write_quoted(field.name(), out);
                    out.push_str(": ");
                    column.write(row, out);
                }
                out.push('}');
            })
        }
        DataType::Map(..) => {
            let maps = values.as_map();
            let (keys, items) = (Elements::new(maps.keys())?, Elements::new(maps.values())?);
            let offsets = maps.value_offsets();
            written(values, |row, out| {
                out.push('{');
                for (at, entry) in (place(offsets[row])..place(offsets[row + 1])).enumerate() {
                    out.push_str(if at == 0 { "" } else { ", " });
                    keys.write(entry, out);
                    out.push('=');
                    items.write(entry, out);
                }
                out.push('}');
            })
        }
        DataType::Dictionary(_, of) if is_nested(of) || is_binary(of) => texts(&cast(values, of)?)?,
        binary if is_binary(binary) => {
            let blobs = cast(values, &DataType::BinaryView)?;
            let blobs = blobs.as_binary_view();
            Arc::new(blobs.iter().map(|blob| blob.map(binary_text)).collect::<StringViewArray>())
        }
        DataType::Timestamp(..) => timestamp_texts(values)?,
        _ => cast(values, &DataType::Utf8View)?,
    })
}

/// The texts of lists, whose elements lie where `ends` says for a row.
fn lists_text(
    lists: &ArrayRef,
    items: &ArrayRef,
    ends: impl Fn(usize) -> (usize, usize),
) -> DfResult<ArrayRef> {
    // The elements of rows before and behind a slice are not written.
    let first = if lists.is_empty() { 0 } else { ends(0).0 };
    let last = lists.len().checked_sub(1).map_or(first, |row| ends(row).1);
    let elements = Elements::new(&items.slice(first, last - first))?;
    Ok(written(lists, |row, out| {
        out.push('[');
        let (begin, end) = ends(row);
        for element in begin..end {
            out.push_str(if element == begin { "" } else { ", " });
            elements.write(element - first, out);
        }
        out.push(']');
    }))
}

fn place(offset: impl TryInto<usize>) -> usize {
    offset.try_into().unwrap_or_default()
}

/// The texts that `write` appends for the rows that are not NULL.
fn written(values: &ArrayRef, write: impl Fn(usize, &mut String)) -> ArrayRef {
    let mut texts = StringViewBuilder::with_capacity(values.len());
    let mut text = String::new();
    for row in 0..values.len() {
        if values.is_null(row) {
            texts.append_null();
            continue;
        }
        text.clear();
        write(row, &mut text);
        texts.append_value(&text);
    }
    Arc::new(texts.finish())
}

/// The texts of elements within brackets.
struct Elements {
    texts: StringViewArray,
    /// The elements are lists, structs or maps, whose brackets say where they end.
    are_nested: bool,
}

impl Elements {
    fn new(values: &ArrayRef) -> DfResult<Elements> {
        let texts = texts(values)?.as_string_view().clone();
        Ok(Elements { texts, are_nested: is_nested(values.data_type()) })
    }

    fn write(&self, at: usize, out: &mut String) {
        match self.texts.is_valid(at).then(|| self.texts.value(at)) {
            None => out.push_str("NULL"),
            Some(text) if !self.are_nested && needs_quotes(text) => write_quoted(text, out),
            Some(text) => out.push_str(text),
        }
    }
}

/// True of text that would be read as something else without quotes.
fn needs_quotes(text: &str) -> bool {
    text.is_empty()
        || text.trim().len() != text.len()
        || text.eq_ignore_ascii_case("null")
        || text.contains(['\'', '"', '\\', ',', ':', '=', '[', ']', '{', '}', '(', ')'])
}

fn write_quoted(text: &str, out: &mut String) {
    out.push('\'');
    for character in text.chars() {
        if matches!(character, '\'' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    out.push('\'');
}
