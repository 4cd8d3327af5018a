//! Values to Arrow arrays of a given type.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayBuilder, ArrayRef, ArrowPrimitiveType, AsArray, BooleanBuilder, Float64Builder,
    Int64Builder, ListArray, NullArray, PrimitiveBuilder, StringViewArray, StringViewBuilder,
    StructArray, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{
    DataType, Date32Type, Field, FieldRef, Fields, TimeUnit, TimestampMicrosecondType,
};
use arrow::util::display::FormatOptions;

use crate::moments::{date, timestamp};
use crate::parts::compact;
use crate::print::write_quoted;
use crate::pull::{Peek, Pull};
use crate::shape::Shape;
use crate::{DEPTH_MAX, JsonError, Result, is_json};

/// Characters of a value that a message shows, at most.
const SHOWN_MAX: usize = 60;

/// Collects values of a field.
pub struct Decoder {
    field: FieldRef,
    column: Column,
    /// A value that does not fit is NULL rather than an error.
    is_lenient: bool,
    /// A key that the type has no field for is an error rather than left out.
    keys_known: bool,
}

enum Column {
    Null(usize),
    /// Values that a sample had none of but `null`: any other one does not fit.
    Unseen(usize),
    Boolean(BooleanBuilder),
    /// Whole numbers from the first to the second one.
    Integer(Int64Builder, i64, i64),
    Double(Float64Builder),
    Date(Parsed<Date32Type>),
    /// And whether their texts end with a zone, which is UTC.
    Timestamp(Parsed<TimestampMicrosecondType>, bool),
    /// Texts, or what is cast from texts at the end.
    Text(StringViewBuilder),
    /// The values' own texts.
    Json(StringViewBuilder),
    List {
        item: FieldRef,
        column: Box<Column>,
        offsets: Vec<i32>,
        valid: Vec<bool>,
    },
    Struct {
        fields: Fields,
        keys: Keys,
        columns: Vec<Column>,
        valid: Vec<bool>,
    },
}

/// The keys of a struct's values.
struct Keys {
    /// In the order in which they are expected.
    list: Vec<Key>,
    /// Their places in the list.
    numbers: HashMap<String, usize>,
}

struct Key {
    name: String,
    /// In quotes, as most texts write it.
    quoted: Vec<u8>,
    /// The column of its values, if they are wanted.
    column: Option<usize>,
}

impl Keys {
    /// The keys with these names, each with the number of its column, if it has one.
    fn new<'a>(keys: impl Iterator<Item = (&'a str, Option<usize>)>) -> Keys {
        let (mut list, mut numbers) = (Vec::new(), HashMap::new());
        for (name, column) in keys {
            numbers.insert(name.to_owned(), list.len());
            let mut quoted = String::new();
            write_quoted(name, &mut quoted);
            list.push(Key { name: name.to_owned(), quoted: quoted.into_bytes(), column });
        }
        Keys { list, numbers }
    }
}

/// Values that are parsed from texts, and the texts that Arrow's parser is left with.
struct Parsed<T: ArrowPrimitiveType> {
    values: PrimitiveBuilder<T>,
    /// Rows, which have NULL until the end, and their texts.
    others: Vec<(usize, String)>,
}

impl<T: ArrowPrimitiveType> Parsed<T> {
    fn new() -> Parsed<T> {
        Parsed { values: PrimitiveBuilder::new(), others: Vec::new() }
    }

    fn push(&mut self, value: Option<T::Native>, text: &str) {
        if value.is_none() {
            self.others.push((self.values.len(), text.to_owned()));
        }
        self.values.append_option(value);
    }

    fn finish(mut self, name: &str, data_type: &DataType, is_lenient: bool) -> Result<ArrayRef> {
        let values = self.values.finish().with_data_type(data_type.clone());
        if self.others.is_empty() {
            return Ok(Arc::new(values));
        }
        let texts = self.others.iter().map(|(_, text)| Some(text.as_str()));
        let others = cast_texts(&texts.collect(), name, data_type, is_lenient)?;
        let mut builder = PrimitiveBuilder::<T>::with_capacity(values.len());
        let mut left = self.others.iter().map(|(row, _)| *row).zip(others.as_primitive::<T>());
        let mut next = left.next();
        for (row, value) in values.iter().enumerate() {
            match next {
                Some((other, parsed)) if other == row => {
                    builder.append_option(parsed);
                    next = left.next();
                }
                _ => builder.append_option(value),
            }
        }
        Ok(Arc::new(builder.finish().with_data_type(data_type.clone())))
    }
}

impl Decoder {
    /// True if values of this field are read as such from JSON, in all rows alike. Others are cast from texts.
    pub fn is_native(field: &Field) -> bool {
        match field.data_type() {
            DataType::List(item) => Decoder::is_native(item),
            DataType::Struct(fields) => fields.iter().all(|field| Decoder::is_native(field)),
            DataType::Timestamp(_, zone) => zone.is_none(),
            DataType::Boolean | DataType::Null | DataType::Utf8View => true,
            DataType::Date32 | DataType::Time64(_) => true,
            other => other.is_numeric(),
        }
    }

    /// A decoder of values of this field. With `is_lenient`, what does not fit its type is NULL, with `keys_known` a key
    /// that the type lacks is an error.
    pub fn new(field: FieldRef, is_lenient: bool, keys_known: bool) -> Decoder {
        Decoder { column: Column::new(&field, None), field, is_lenient, keys_known }
    }

    /// A decoder of rows: objects with these keys, in this order mostly, of which those with a field in `field` are wanted, or any
    /// values. With a shape, which a sample had, what it had not is an error: other keys, and values other than `null` where it
    /// had none.
    pub fn of_rows<'a>(
        field: FieldRef,
        keys: Option<impl Iterator<Item = &'a str>>,
        sample: Option<&Shape>,
        is_lenient: bool,
    ) -> Decoder {
        let mut column = Column::new(&field, sample);
        if let (Column::Struct { fields, keys: known, .. }, Some(keys)) = (&mut column, keys) {
            let numbers: HashMap<&str, usize> = fields
                .iter()
                .enumerate()
                .map(|(number, field)| (field.name().as_str(), number))
                .collect();
            *known = Keys::new(keys.map(|key| (key, numbers.get(key).copied())));
        }
        Decoder { column, field, is_lenient, keys_known: sample.is_some() }
    }

    /// Adds NULL.
    pub fn push_null(&mut self) {
        self.column.push_null();
    }

    /// Adds the value that `text` is.
    ///
    /// # Errors
    /// If the text is no JSON, or the value does not fit.
    pub fn push_text(&mut self, text: &str) -> Result<()> {
        let mut pull = Pull::new(text);
        let peek = pull.peek()?;
        let rules = Rules { text, is_lenient: self.is_lenient, keys_known: self.keys_known };
        rules.push(&mut self.column, &mut pull, peek, 0)?;
        pull.finish()
    }

    /// Adds the value that begins at byte `start` of the text, or after blanks. Returns the byte after the value; `None` if only
    /// blanks follow.
    ///
    /// # Errors
    /// If the text is no JSON, or the value does not fit.
    pub fn push_next(&mut self, text: &str, start: usize) -> Result<Option<usize>> {
        let rest = &text[start..];
        if rest.trim_ascii_start().is_empty() {
            return Ok(None);
        }
        let mut pull = Pull::new(rest);
        let rules = Rules { text: rest, is_lenient: self.is_lenient, keys_known: self.keys_known };
        let pushed = pull.peek();
        let pushed = pushed.and_then(|peek| rules.push(&mut self.column, &mut pull, peek, 0));
        pushed.map_err(|error| error.moved(start))?;
        Ok(Some(start + pull.current_index()))
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.column.len()
    }

    /// True if there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The array of all values.
    ///
    /// # Errors
    /// If one does not fit.
    pub fn finish(self) -> Result<ArrayRef> {
        self.column.finish(self.field.name(), self.field.data_type(), self.is_lenient)
    }
}

impl Column {
    /// A column of this field's values, which had this shape in a sample.
    fn new(field: &Field, sample: Option<&Shape>) -> Column {
        if sample == Some(&Shape::Nothing) {
            return Column::Unseen(0);
        }
        match field.data_type() {
            DataType::Null => Column::Null(0),
            DataType::Boolean => Column::Boolean(BooleanBuilder::new()),
            DataType::Int8 => whole_numbers(i8::MIN, i8::MAX),
            DataType::Int16 => whole_numbers(i16::MIN, i16::MAX),
            DataType::Int32 => whole_numbers(i32::MIN, i32::MAX),
            DataType::Int64 => whole_numbers(i64::MIN, i64::MAX),
            DataType::UInt8 => whole_numbers(u8::MIN, u8::MAX),
            DataType::UInt16 => whole_numbers(u16::MIN, u16::MAX),
            DataType::UInt32 => whole_numbers(u32::MIN, u32::MAX),
            DataType::Float64 => Column::Double(Float64Builder::new()),
            DataType::Date32 => Column::Date(Parsed::new()),
            DataType::Timestamp(TimeUnit::Microsecond, zone) if is_utc(zone.as_deref()) => {
                Column::Timestamp(Parsed::new(), zone.is_some())
            }
            DataType::List(item) => Column::List {
                item: Arc::clone(item),
                column: Box::new(Column::new(item, sample.and_then(Shape::element))),
                offsets: vec![0],
                valid: Vec::new(),
            },
            DataType::Struct(fields) => Column::Struct {
                fields: fields.clone(),
                keys: Keys::new(
                    fields.iter().enumerate().map(|(n, field)| (field.name().as_str(), Some(n))),
                ),
                columns: fields
                    .iter()
                    .map(|field| {
                        Column::new(field, sample.and_then(|shape| shape.member(field.name())))
                    })
                    .collect(),
                valid: Vec::new(),
            },
            _ if is_json(field) => Column::Json(StringViewBuilder::new()),
            _ => Column::Text(StringViewBuilder::new()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Column::Null(len) | Column::Unseen(len) => *len,
            Column::Boolean(builder) => builder.len(),
            Column::Integer(builder, ..) => builder.len(),
            Column::Double(builder) => builder.len(),
            Column::Date(parsed) => parsed.values.len(),
            Column::Timestamp(parsed, _) => parsed.values.len(),
            Column::Text(builder) | Column::Json(builder) => builder.len(),
            Column::List { valid, .. } | Column::Struct { valid, .. } => valid.len(),
        }
    }

    fn push_null(&mut self) {
        match self {
            Column::Null(len) | Column::Unseen(len) => *len += 1,
            Column::Boolean(builder) => builder.append_null(),
            Column::Integer(builder, ..) => builder.append_null(),
            Column::Double(builder) => builder.append_null(),
            Column::Date(parsed) => parsed.values.append_null(),
            Column::Timestamp(parsed, _) => parsed.values.append_null(),
            Column::Text(builder) | Column::Json(builder) => builder.append_null(),
            Column::List { offsets, valid, .. } => {
                offsets.push(offsets[offsets.len() - 1]);
                valid.push(false);
            }
            Column::Struct { columns, valid, .. } => {
                columns.iter_mut().for_each(Column::push_null);
                valid.push(false);
            }
        }
    }

    fn finish(self, name: &str, data_type: &DataType, is_lenient: bool) -> Result<ArrayRef> {
        let nulls = |valid: Vec<bool>| Some(NullBuffer::from(valid)).filter(|n| n.null_count() > 0);
        let fail = |error: arrow::error::ArrowError| misfit(name, 0, &error.to_string());
        Ok(match self {
            Column::Null(len) => Arc::new(NullArray::new(len)),
            Column::Unseen(len) => new_null_array(data_type, len),
            Column::Boolean(mut builder) => Arc::new(builder.finish()),
            Column::Integer(mut builder, ..) => {
                let numbers: ArrayRef = Arc::new(builder.finish());
                match *data_type == DataType::Int64 {
                    true => numbers,
                    false => cast(&numbers, data_type).map_err(fail)?,
                }
            }
            Column::Double(mut builder) => Arc::new(builder.finish()),
            Column::Date(parsed) => return parsed.finish(name, data_type, is_lenient),
            Column::Timestamp(parsed, _) => return parsed.finish(name, data_type, is_lenient),
            Column::Json(mut builder) => Arc::new(builder.finish()),
            Column::Text(mut builder) => {
                let texts = builder.finish();
                if *data_type == DataType::Utf8View {
                    return Ok(Arc::new(texts));
                }
                return cast_texts(&texts, name, data_type, is_lenient);
            }
            Column::List { item, column, offsets, valid } => {
                let values = column.finish(item.name(), item.data_type(), is_lenient)?;
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                let list = ListArray::try_new(item, offsets, values, nulls(valid));
                Arc::new(list.map_err(fail)?)
            }
            Column::Struct { fields, columns, valid, .. } => {
                let arrays = fields.iter().zip(columns);
                let arrays = arrays.map(|(field, column)| {
                    column.finish(field.name(), field.data_type(), is_lenient)
                });
                let (arrays, len) = (arrays.collect::<Result<Vec<_>>>()?, valid.len());
                let made = StructArray::try_new_with_length(fields, arrays, nulls(valid), len);
                Arc::new(made.map_err(fail)?)
            }
        })
    }
}

/// A column of whole numbers from `min` to `max`.
fn whole_numbers(min: impl Into<i64>, max: impl Into<i64>) -> Column {
    Column::Integer(Int64Builder::new(), min.into(), max.into())
}

/// The name in SQL of the type of whole numbers with these bounds.
fn integer_name(min: i64, max: i64) -> &'static str {
    match (min < 0, max) {
        (true, 0x7f) => "TINYINT",
        (true, 0x7fff) => "SMALLINT",
        (true, 0x7fff_ffff) => "INTEGER",
        (false, 0xff) => "UTINYINT",
        (false, 0xffff) => "USMALLINT",
        (false, 0xffff_ffff) => "UINTEGER",
        _ => "BIGINT",
    }
}

/// True for the zones in which a moment is the number that its text has: none and UTC.
fn is_utc(zone: Option<&str>) -> bool {
    zone.is_none_or(|zone| zone == "UTC")
}

/// Texts as values of another type; NULL, or an error, where they are none.
fn cast_texts(
    texts: &StringViewArray,
    name: &str,
    data_type: &DataType,
    is_lenient: bool,
) -> Result<ArrayRef> {
    let options = CastOptions { safe: true, format_options: FormatOptions::default() };
    let cast = cast_with_options(texts, data_type, &options);
    let cast = cast.map_err(|error| misfit(name, 0, &error.to_string()))?;
    let mut rows = texts.iter().enumerate();
    let lost = rows.find_map(|(row, text)| text.filter(|_| cast.is_null(row)));
    match lost {
        Some(text) if !is_lenient => {
            let problem = format!("'{}' is no {}", shown(text), named(data_type));
            Err(misfit(name, 0, &problem))
        }
        _ => Ok(cast),
    }
}

fn misfit(column: &str, offset: usize, problem: &str) -> JsonError {
    JsonError { offset, problem: problem.to_owned(), column: Some(column.to_owned()) }
}

/// A value as a message shows it.
fn shown(value: &str) -> String {
    match value.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    }
}

/// The name of a type in SQL.
fn named(data_type: &DataType) -> String {
    let name = match data_type {
        DataType::Int8 => "TINYINT",
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => "INTEGER",
        DataType::Int64 => "BIGINT",
        DataType::UInt8 => "UTINYINT",
        DataType::UInt16 => "USMALLINT",
        DataType::UInt32 => "UINTEGER",
        DataType::UInt64 => "UBIGINT",
        DataType::Float32 => "REAL",
        DataType::Float64 => "DOUBLE",
        DataType::Date32 => "DATE",
        DataType::Time64(_) => "TIME",
        DataType::Timestamp(_, None) => "TIMESTAMP",
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP WITH TIME ZONE",
        DataType::Decimal128(digits, scale) => return format!("DECIMAL({digits}, {scale})"),
        other => return other.to_string(),
    };
    name.to_owned()
}

/// How values are taken.
struct Rules<'a> {
    text: &'a str,
    is_lenient: bool,
    keys_known: bool,
}

impl Rules<'_> {
    fn push(
        &self,
        column: &mut Column,
        pull: &mut Pull<'_>,
        peek: Peek,
        depth: usize,
    ) -> Result<()> {
        let start = pull.current_index();
        if depth > DEPTH_MAX {
            return Err(JsonError::too_deep(start));
        }
        if peek == Peek::Null {
            pull.known_null()?;
            column.push_null();
            return Ok(());
        }
        match (column, peek) {
            (Column::Boolean(builder), Peek::True | Peek::False) => {
                builder.append_value(pull.known_bool(peek)?);
            }
            (Column::Integer(builder, min, max), Peek::Number) => {
                let number = pull.known_number()?.to_i64();
                match number.filter(|number| (*min..=*max).contains(number)) {
                    Some(number) => builder.append_value(number),
                    None if self.is_lenient => builder.append_null(),
                    None => return Err(self.no_fit(start, pull, integer_name(*min, *max))),
                }
            }
            (Column::Double(builder), Peek::Number) => {
                builder.append_option(pull.known_number()?.to_f64());
            }
            (Column::Date(parsed), Peek::Text) => {
                let text = pull.known_str()?;
                parsed.push(date(text), text);
            }
            (Column::Timestamp(parsed, is_zoned), Peek::Text) => {
                let text = pull.known_str()?;
                parsed.push(timestamp(text, *is_zoned), text);
            }
            (Column::Text(builder), Peek::Text) => builder.append_value(pull.known_str()?),
            (Column::Text(builder) | Column::Json(builder), peek) => {
                pull.known_skip(peek)?;
                builder.append_value(compact(&self.text[start..pull.current_index()]));
            }
            (Column::List { column, offsets, valid, .. }, Peek::Array) => {
                let mut next = pull.known_array()?;
                while let Some(peek) = next {
                    self.push(column, pull, peek, depth + 1)?;
                    next = pull.array_step()?;
                }
                let end = i32::try_from(column.len());
                offsets.push(end.map_err(|_| misfit("", start, "lists of over 2^31 elements"))?);
                valid.push(true);
            }
            (Column::Struct { keys, columns, valid, .. }, Peek::Object) => {
                self.push_members(keys, columns, pull, valid.len(), depth)?;
                valid.push(true);
            }
            (column, peek) => {
                pull.known_skip(peek)?;
                self.push_other(column, start, pull)?;
            }
        }
        Ok(())
    }

    fn push_members(
        &self,
        keys: &Keys,
        columns: &mut [Column],
        pull: &mut Pull<'_>,
        row: usize,
        depth: usize,
    ) -> Result<()> {
        let start = pull.current_index();
        let mut has_member = pull.opens_members();
        let (mut next, mut pushed) = (0, 0);
        while has_member {
            let expected = keys.list.get(next);
            let number = match expected {
                Some(key) if pull.takes_key(&key.quoted)? => Some(next),
                _ => {
                    let name = pull.key()?;
                    let number = keys.numbers.get(name).copied();
                    if number.is_none() && self.keys_known {
                        let name = name.to_owned();
                        return Err(misfit(&name, start, "this key was not known before"));
                    }
                    number
                }
            };
            let peek = pull.peek()?;
            let column = number.and_then(|number| keys.list[number].column);
            match column.map(|column| &mut columns[column]) {
                Some(column) if column.len() == row => {
                    let done = self.push(column, pull, peek, depth + 1);
                    if let (Err(error), Some(key)) = (done, number.map(|number| &keys.list[number]))
                    {
                        return Err(error.within(&key.name));
                    }
                    pushed += 1;
                }
                // Of a key that occurs twice, the first one counts.
                _ => pull.known_skip(peek)?,
            }
            next = number.map_or(next, |number| number + 1);
            has_member = pull.has_next_member()?;
        }
        if pushed < columns.len() {
            columns.iter_mut().filter(|column| column.len() == row).for_each(Column::push_null);
        }
        Ok(())
    }

    /// Adds a value of another kind: from a text, what it says; else NULL or an error.
    fn push_other(&self, column: &mut Column, start: usize, pull: &Pull<'_>) -> Result<()> {
        let value = &self.text[start..pull.current_index()];
        let said = crate::text_of(value)?.unwrap_or_default();
        let wanted = match column {
            Column::Boolean(builder) => match said.to_ascii_lowercase().parse() {
                Ok(value) => {
                    builder.append_value(value);
                    return Ok(());
                }
                Err(_) => "BOOLEAN",
            },
            Column::Integer(builder, min, max) => match said.trim().parse() {
                Ok(value) if (*min..=*max).contains(&value) => {
                    builder.append_value(value);
                    return Ok(());
                }
                _ => integer_name(*min, *max),
            },
            Column::Double(builder) => match said.trim().parse() {
                Ok(value) => {
                    builder.append_value(value);
                    return Ok(());
                }
                Err(_) => "DOUBLE",
            },
            Column::List { .. } => "list",
            Column::Struct { .. } => "STRUCT",
            Column::Date(_) => "DATE",
            Column::Timestamp(..) => "TIMESTAMP",
            Column::Unseen(_) => {
                return Err(misfit("", start, &format!("{} is other than null", shown(value))));
            }
            _ => "NULL",
        };
        match self.is_lenient {
            true => {
                column.push_null();
                Ok(())
            }
            false => Err(self.no_fit(start, pull, wanted)),
        }
    }

    fn no_fit(&self, start: usize, pull: &Pull<'_>, wanted: &str) -> JsonError {
        let value = &self.text[start..pull.current_index()];
        misfit("", start, &format!("{} is no {wanted}", shown(value)))
    }
}

#[cfg(test)]
mod tests {
    use arrow::util::display::array_value_to_string;

    use super::*;

    fn round_trip(values: &[&str]) -> Vec<String> {
        let mut shape = Shape::Nothing;
        values.iter().for_each(|value| shape.see_text(value).unwrap());
        let mut decoder = Decoder::new(shape.field("x"), false, true);
        values.iter().for_each(|value| decoder.push_text(value).unwrap());
        let array = decoder.finish().unwrap();
        (0..array.len()).map(|row| array_value_to_string(&array, row).unwrap()).collect()
    }

    #[test]
    fn values_become_arrays() {
        assert_eq!(round_trip(&["1", "18446744073709551615"]), ["1", "18446744073709551615"]);
        assert_eq!(round_trip(&["-1", "18446744073709551615"]), ["-1", "18446744073709551615"]);
        assert_eq!(round_trip(&["1", "\"x\"", "[1, 2]"]), ["1", "\"x\"", "[1,2]"]);
        assert_eq!(round_trip(&["[[1],null]", "[]"]), ["[[1], ]", "[]"]);
        assert_eq!(
            round_trip(&["{\"a\":1}", "{\"b\":{\"c\":\"x\"},\"a\":2,\"a\":3}"]),
            ["{a: 1, b: }", "{a: 2, b: {c: x}}"]
        );
        assert_eq!(round_trip(&["\"2020-01-01T12:00:00+02:00\""]), ["2020-01-01T10:00:00Z"]);
        assert_eq!(round_trip(&["\"10:00:00.5\""]), ["10:00:00.500"]);
    }

    #[test]
    fn what_does_not_fit_is_an_error_or_null() {
        let field = Arc::new(Field::new("x", DataType::Int64, true));
        let mut strict = Decoder::new(Arc::clone(&field), false, false);
        assert!(strict.push_text("1.5").is_err());
        assert!(strict.push_text("\"x\"").is_err());
        let mut lenient = Decoder::new(field, true, false);
        for value in ["1.5", "\"x\"", "[1]", "\"7\""] {
            lenient.push_text(value).unwrap();
        }
        let array = lenient.finish().unwrap();
        assert_eq!((array.len(), array.null_count()), (4, 3));
    }
}
