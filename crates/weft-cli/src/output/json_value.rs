//! Single values as JSON. Numbers are exact, whatever their size: readers that keep 64-bit floats
//! only have to be told. NaN and the infinities, which JSON does not have, become null; dates and
//! times are strings in ISO 8601, binary ones in hexadecimal.

use arrow::array::cast::AsArray;
use arrow::array::types::{Float16Type, Float32Type, Float64Type};
use arrow::array::{
    Array, ArrowPrimitiveType, MapArray, OffsetSizeTrait, PrimitiveArray, StructArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};

const OPTIONS: FormatOptions<'static> = FormatOptions::new().with_display_error(false);

/// A column, or what is nested in one, whose values become JSON.
pub struct Encoder<'a> {
    nulls: Option<NullBuffer>,
    values: Values<'a>,
}

/// How the values of one array are written.
enum Values<'a> {
    /// Numbers and booleans, whose text is their JSON.
    Plain(ArrayFormatter<'a>),
    /// Everything else that has a text.
    Quoted(ArrayFormatter<'a>),
    /// Floating-point numbers of any width.
    Floats(Box<dyn Fn(usize) -> f64 + 'a>, ArrayFormatter<'a>),
    /// Arrays of what the encoder writes.
    List(Box<dyn Fn(usize) -> std::ops::Range<usize> + 'a>, Box<Encoder<'a>>),
    /// Objects.
    Struct(Vec<(String, Encoder<'a>)>),
    /// Objects with keys from the data.
    Map(&'a MapArray, ArrayFormatter<'a>, Box<Encoder<'a>>),
    /// Values by their place in a dictionary.
    Dictionary(Vec<usize>, Box<Encoder<'a>>),
}

impl<'a> Encoder<'a> {
    /// For the values of `array`.
    ///
    /// # Errors
    /// If its type has no text.
    pub fn new(array: &'a dyn Array) -> Result<Encoder<'a>, ArrowError> {
        let text = || ArrayFormatter::try_new(array, &OPTIONS);
        let values = match array.data_type() {
            DataType::Float16 => Values::Floats(
                floats(array.as_primitive::<Float16Type>(), |value| value.to_f64()),
                text()?,
            ),
            DataType::Float32 => {
                Values::Floats(floats(array.as_primitive::<Float32Type>(), f64::from), text()?)
            }
            DataType::Float64 => {
                Values::Floats(floats(array.as_primitive::<Float64Type>(), |value| value), text()?)
            }
            DataType::Boolean => Values::Plain(text()?),
            other if other.is_numeric() => Values::Plain(text()?),
            DataType::List(_) => list::<i32>(array)?,
            DataType::LargeList(_) => list::<i64>(array)?,
            DataType::ListView(_) => list_view::<i32>(array)?,
            DataType::LargeListView(_) => list_view::<i64>(array)?,
            DataType::FixedSizeList(_, _) => {
                let list = array.as_fixed_size_list();
                let length = list.value_length() as usize;
                let range = move |row| row * length..(row + 1) * length;
                Values::List(Box::new(range), Box::new(Encoder::new(list.values())?))
            }
            DataType::Struct(_) => Values::Struct(members(array.as_struct())?),
            DataType::Map(_, _) => {
                let map = array.as_map();
                let keys = ArrayFormatter::try_new(map.keys().as_ref(), &OPTIONS)?;
                Values::Map(map, keys, Box::new(Encoder::new(map.values())?))
            }
            DataType::Dictionary(_, _) => {
                let dictionary = array.as_any_dictionary();
                let values = Encoder::new(dictionary.values().as_ref())?;
                Values::Dictionary(dictionary.normalized_keys(), Box::new(values))
            }
            _ => Values::Quoted(text()?),
        };
        Ok(Encoder { nulls: array.logical_nulls(), values })
    }

    /// Appends the value in `row` to `into`.
    ///
    /// # Errors
    /// If it has no text, such as a date beyond the calendar.
    pub fn append(&self, row: usize, into: &mut String) -> Result<(), ArrowError> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            into.push_str("null");
            return Ok(());
        }
        match &self.values {
            Values::Plain(text) => text.value(row).write(into)?,
            Values::Floats(value, _) if !value(row).is_finite() => into.push_str("null"),
            Values::Floats(_, text) => text.value(row).write(into)?,
            Values::Quoted(text) => append_string(&text.value(row).try_to_string()?, into),
            Values::Dictionary(keys, values) => values.append(keys[row], into)?,
            Values::List(range, values) => {
                into.push('[');
                for (index, item) in range(row).enumerate() {
                    into.push_str(if index == 0 { "" } else { "," });
                    values.append(item, into)?;
                }
                into.push(']');
            }
            Values::Struct(members) => {
                into.push('{');
                for (index, (key, member)) in members.iter().enumerate() {
                    into.push_str(if index == 0 { "" } else { "," });
                    into.push_str(key);
                    member.append(row, into)?;
                }
                into.push('}');
            }
            Values::Map(map, keys, values) => {
                into.push('{');
                let offsets = map.value_offsets();
                let range = offsets[row] as usize..offsets[row + 1] as usize;
                for (index, entry) in range.enumerate() {
                    into.push_str(if index == 0 { "" } else { "," });
                    append_string(&keys.value(entry).try_to_string()?, into);
                    into.push(':');
                    values.append(entry, into)?;
                }
                into.push('}');
            }
        }
        Ok(())
    }
}

fn floats<'a, T: ArrowPrimitiveType>(
    array: &'a PrimitiveArray<T>,
    widen: impl Fn(T::Native) -> f64 + 'a,
) -> Box<dyn Fn(usize) -> f64 + 'a> {
    Box::new(move |row| widen(array.value(row)))
}

fn list<O: OffsetSizeTrait>(array: &dyn Array) -> Result<Values<'_>, ArrowError> {
    let list = array.as_list::<O>();
    let offsets = list.value_offsets();
    let range = |row: usize| offsets[row].as_usize()..offsets[row + 1].as_usize();
    Ok(Values::List(Box::new(range), Box::new(Encoder::new(list.values())?)))
}

fn list_view<O: OffsetSizeTrait>(array: &dyn Array) -> Result<Values<'_>, ArrowError> {
    let list = array.as_list_view::<O>();
    let range = |row: usize| {
        let start = list.value_offset(row).as_usize();
        start..start + list.value_size(row).as_usize()
    };
    Ok(Values::List(Box::new(range), Box::new(Encoder::new(list.values())?)))
}

fn members(array: &StructArray) -> Result<Vec<(String, Encoder<'_>)>, ArrowError> {
    array
        .column_names()
        .into_iter()
        .zip(array.columns())
        .map(|(name, column)| {
            let mut key = String::new();
            append_string(name, &mut key);
            key.push(':');
            Ok((key, Encoder::new(column)?))
        })
        .collect()
}

/// Appends `text` as a JSON string.
pub fn append_string(text: &str, into: &mut String) {
    into.push('"');
    for c in text.chars() {
        match c {
            '"' => into.push_str("\\\""),
            '\\' => into.push_str("\\\\"),
            '\n' => into.push_str("\\n"),
            '\r' => into.push_str("\\r"),
            '\t' => into.push_str("\\t"),
            c if u32::from(c) < 0x20 => into.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => into.push(c),
        }
    }
    into.push('"');
}
