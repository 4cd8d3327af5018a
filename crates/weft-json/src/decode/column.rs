//! Values of a field as they are collected, and the array that they become.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    ArrayBuilder, ArrayRef, BooleanBuilder, Float64Builder, Int64Builder, ListArray, NullArray,
    StringViewBuilder, StructArray, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Field, FieldRef, Fields, TimeUnit, TimestampMicrosecondType,
};

use super::misfit;
use super::parsed::{Parsed, cast_texts, name_of};
use crate::print::write_quoted;
use crate::shape::Shape;
use crate::{Result, is_json};

/// The values of a field.
pub(super) enum Column {
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
pub(super) struct Keys {
    /// In the order in which they are expected.
    pub(super) list: Vec<Key>,
    /// Their places in the list.
    pub(super) numbers: HashMap<String, usize>,
}

/// A key.
pub(super) struct Key {
    pub(super) name: String,
    /// In quotes, as most texts write it.
    pub(super) quoted: Vec<u8>,
    /// The column of its values, if they are wanted.
    pub(super) column: Option<usize>,
}

impl Keys {
    /// The keys with these names, each with the number of its column, if it has one.
    pub(super) fn new<'a>(keys: impl Iterator<Item = (&'a str, Option<usize>)>) -> Keys {
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

impl Column {
    /// A column of this field's values, which had this shape in a sample.
    pub(super) fn new(field: &Field, sample: Option<&Shape>) -> Column {
        if sample == Some(&Shape::Nothing) {
            return Column::Unseen(0);
        }
        match field.data_type() {
            DataType::Null => Column::Null(0),
            DataType::Boolean => Column::Boolean(BooleanBuilder::new()),
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
            other if let Some((_, min, max)) = integers(other) => {
                Column::Integer(Int64Builder::new(), *min, *max)
            }
            _ if is_json(field) => Column::Json(StringViewBuilder::new()),
            _ => Column::Text(StringViewBuilder::new()),
        }
    }

    /// The number of values.
    pub(super) fn len(&self) -> usize {
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

    /// Adds NULL.
    pub(super) fn push_null(&mut self) {
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

    /// The array of all values.
    ///
    /// # Errors
    /// If one does not fit.
    pub(super) fn finish(
        self,
        name: &str,
        data_type: &DataType,
        is_lenient: bool,
    ) -> Result<ArrayRef> {
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

/// Types of whole numbers that are collected as 64 bits, with their bounds.
const INTEGERS: [(DataType, i64, i64); 7] = [
    (DataType::Int8, i8::MIN as i64, i8::MAX as i64),
    (DataType::Int16, i16::MIN as i64, i16::MAX as i64),
    (DataType::Int32, i32::MIN as i64, i32::MAX as i64),
    (DataType::Int64, i64::MIN, i64::MAX),
    (DataType::UInt8, 0, u8::MAX as i64),
    (DataType::UInt16, 0, u16::MAX as i64),
    (DataType::UInt32, 0, u32::MAX as i64),
];

fn integers(data_type: &DataType) -> Option<&'static (DataType, i64, i64)> {
    INTEGERS.iter().find(|(known, ..)| known == data_type)
}

/// The name in SQL of the type of whole numbers with these bounds.
pub(super) fn integer_name(min: i64, max: i64) -> &'static str {
    let found = INTEGERS.iter().find(|(_, low, high)| (*low, *high) == (min, max));
    found.and_then(|(data_type, ..)| name_of(data_type)).unwrap_or("BIGINT")
}

/// True for the zones in which a moment is the number that its text has: none and UTC.
fn is_utc(zone: Option<&str>) -> bool {
    zone.is_none_or(|zone| zone == "UTC")
}
