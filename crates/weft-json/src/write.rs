//! Arrow arrays to JSON.

use arrow::array::cast::AsArray;
use arrow::array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, Float64Array, Int64Array, StringViewArray,
    UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type, Int64Type, UInt64Type};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::print::write_quoted;
use crate::{compact, is_json};

/// The format of timestamps, which SQL reads.
const TIMESTAMP: &str = "%Y-%m-%d %H:%M:%S%.f";

/// The format of timestamps with a time zone.
const ZONED: &str = "%Y-%m-%d %H:%M:%S%.f%:z";

/// Writes the values of an array as JSON.
pub struct Encoder {
    nulls: Option<NullBuffer>,
    values: Values,
}

enum Values {
    Null,
    Boolean(BooleanArray),
    Integer(Int64Array),
    Unsigned(UInt64Array),
    Double(Float64Array),
    /// Numbers with a value of their own text, and texts of dates and the like.
    Shown {
        texts: Vec<String>,
        is_quoted: bool,
    },
    Text(StringViewArray),
    Json(StringViewArray),
    Binary(BinaryViewArray),
    List {
        offsets: Vec<(usize, usize)>,
        items: Box<Encoder>,
    },
    Object(Vec<(String, Encoder)>),
    Map {
        offsets: Vec<(usize, usize)>,
        keys: Box<Encoder>,
        values: Box<Encoder>,
    },
}

impl Encoder {
    /// An encoder of the values of this array, which has this field's type.
    ///
    /// # Errors
    /// For types that have no JSON.
    pub fn new(array: &ArrayRef, field: &Field) -> Result<Encoder, ArrowError> {
        let to = |data_type: DataType| cast(array, &data_type);
        let values = match array.data_type() {
            DataType::Null => Values::Null,
            DataType::Boolean => Values::Boolean(array.as_boolean().clone()),
            DataType::UInt64 => Values::Unsigned(array.as_primitive::<UInt64Type>().clone()),
            integer if integer.is_integer() => {
                Values::Integer(to(DataType::Int64)?.as_primitive::<Int64Type>().clone())
            }
            DataType::Float32 => {
                let numbers = array.as_primitive::<Float32Type>();
                let text = |number: f32| match number.is_finite() {
                    true => format!("{number:?}"),
                    false => non_finite(f64::from(number)).to_owned(),
                };
                let texts = numbers.iter().map(|number| number.map_or_else(String::new, text));
                Values::Shown { texts: texts.collect(), is_quoted: false }
            }
            DataType::Float64 | DataType::Float16 => {
                Values::Double(to(DataType::Float64)?.as_primitive::<Float64Type>().clone())
            }
            text if text.is_string() => {
                let texts = to(DataType::Utf8View)?.as_string_view().clone();
                if is_json(field) { Values::Json(texts) } else { Values::Text(texts) }
            }
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => {
                Values::Binary(to(DataType::BinaryView)?.as_binary_view().clone())
            }
            DataType::Dictionary(_, values) => {
                return Encoder::new(&to((**values).clone())?, field);
            }
            DataType::RunEndEncoded(_, values) => {
                return Encoder::new(&to(values.data_type().clone())?, values);
            }
            DataType::List(item) => {
                let list = array.as_list::<i32>();
                let offsets = list.value_offsets().windows(2);
                let place = |offset: i32| usize::try_from(offset).unwrap_or_default();
                Values::List {
                    offsets: offsets.map(|pair| (place(pair[0]), place(pair[1]))).collect(),
                    items: Box::new(Encoder::new(list.values(), item)?),
                }
            }
            DataType::FixedSizeList(item, _)
            | DataType::LargeList(item)
            | DataType::ListView(item)
            | DataType::LargeListView(item) => {
                return Encoder::new(&to(DataType::List(item.clone()))?, field);
            }
            DataType::Struct(fields) => {
                let columns = fields.iter().zip(array.as_struct().columns());
                let members = columns.map(|(field, column)| {
                    Ok((field.name().clone(), Encoder::new(column, field)?))
                });
                Values::Object(members.collect::<Result<_, ArrowError>>()?)
            }
            DataType::Map(..) => {
                let map = array.as_map();
                let offsets = map.value_offsets().windows(2);
                let place = |offset: i32| usize::try_from(offset).unwrap_or_default();
                let (keys, values) = (map.keys(), map.values());
                let of = |column: &ArrayRef| {
                    let field = Field::new("item", column.data_type().clone(), true);
                    Ok::<_, ArrowError>(Box::new(Encoder::new(column, &field)?))
                };
                Values::Map {
                    offsets: offsets.map(|pair| (place(pair[0]), place(pair[1]))).collect(),
                    keys: of(keys)?,
                    values: of(values)?,
                }
            }
            other => {
                let options = FormatOptions::new()
                    .with_timestamp_format(Some(TIMESTAMP))
                    .with_timestamp_tz_format(Some(ZONED));
                let formatter = ArrayFormatter::try_new(array, &options)?;
                let text = |row| match array.is_null(row) {
                    true => Ok(String::new()),
                    false => formatter.value(row).try_to_string(),
                };
                let texts = (0..array.len()).map(text).collect::<Result<_, ArrowError>>()?;
                Values::Shown { texts, is_quoted: !other.is_decimal() }
            }
        };
        Ok(Encoder { nulls: array.logical_nulls(), values })
    }

    /// Writes the value of this row, which is `null` for NULL.
    pub fn write(&self, row: usize, out: &mut String) {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            out.push_str("null");
            return;
        }
        match &self.values {
            Values::Null => out.push_str("null"),
            Values::Boolean(values) => {
                out.push_str(if values.value(row) { "true" } else { "false" })
            }
            Values::Integer(values) => out.push_str(&values.value(row).to_string()),
            Values::Unsigned(values) => out.push_str(&values.value(row).to_string()),
            Values::Double(values) => match values.value(row) {
                number if number.is_finite() => out.push_str(&format!("{number:?}")),
                other => out.push_str(non_finite(other)),
            },
            Values::Shown { texts, is_quoted: true } => write_quoted(&texts[row], out),
            Values::Shown { texts, .. } => out.push_str(&texts[row]),
            Values::Text(values) => write_quoted(values.value(row), out),
            Values::Json(values) => out.push_str(&compact(values.value(row))),
            Values::Binary(values) => write_quoted(&binary_text(values.value(row)), out),
            Values::List { offsets, items } => {
                out.push('[');
                for item in offsets[row].0..offsets[row].1 {
                    if item > offsets[row].0 {
                        out.push(',');
                    }
                    items.write(item, out);
                }
                out.push(']');
            }
            Values::Object(members) => {
                out.push('{');
                for (number, (key, values)) in members.iter().enumerate() {
                    if number > 0 {
                        out.push(',');
                    }
                    write_quoted(key, out);
                    out.push(':');
                    values.write(row, out);
                }
                out.push('}');
            }
            Values::Map { offsets, keys, values } => {
                out.push('{');
                for item in offsets[row].0..offsets[row].1 {
                    if item > offsets[row].0 {
                        out.push(',');
                    }
                    let mut key = String::new();
                    keys.write(item, &mut key);
                    match key.starts_with('"') {
                        true => out.push_str(&key),
                        false => write_quoted(&key, out),
                    }
                    out.push(':');
                    values.write(item, out);
                }
                out.push('}');
            }
        }
    }
}

/// JSON has no numbers that are not finite: they are texts.
fn non_finite(number: f64) -> &'static str {
    match number {
        f64::INFINITY => "\"Infinity\"",
        f64::NEG_INFINITY => "\"-Infinity\"",
        _ => "\"NaN\"",
    }
}

/// Bytes as a text of SQL: printable ASCII as it is, others as `\xAB`.
pub fn binary_text(bytes: &[u8]) -> String {
    let escaped = |byte: &u8| !matches!(byte, 0x20..0x7f) || b"\\\"'".contains(byte);
    // Hexadecimal digits behind the first byte would make it PostgreSQL's form, which has one prefix for all bytes.
    let is_ambiguous = matches!(bytes, [first, rest @ ..] if escaped(first)
        && !rest.is_empty() && rest.iter().all(u8::is_ascii_hexdigit));
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match is_ambiguous || escaped(byte) {
            true => text.push_str(&format!("\\x{byte:02X}")),
            false => text.push(char::from(*byte)),
        }
    }
    text
}
