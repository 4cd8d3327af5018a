//! Random types, nested in each other, and random arrays of them.

use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeBinaryArray, FixedSizeListArray, LargeListArray};
use arrow_array::{BinaryArray, cast::AsArray};
use arrow_array::{LargeStringArray, ListArray, MapArray, NullArray, StringArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, FieldRef, Fields};
use fastrand::Rng;
use weft_codec::Physical;

use crate::support::{SHAPES, TYPES, column};

/// A type that lies within `depth` others.
pub fn any_type(rng: &mut Rng, depth: usize) -> DataType {
    let nested = depth < 8 && rng.usize(..5) > depth / 2;
    if !nested {
        return match rng.usize(..9) {
            0 => DataType::Utf8,
            1 => DataType::LargeUtf8,
            2 => DataType::Binary,
            3 => DataType::FixedSizeBinary(rng.i32(1..9)),
            4 => DataType::Null,
            5 => DataType::Utf8View,
            6 => DataType::Int32,
            7 => DataType::Float64,
            _ => DataType::Boolean,
        };
    }
    match rng.usize(..5) {
        0 => DataType::List(any_field(rng, "item", depth)),
        1 => DataType::LargeList(any_field(rng, "item", depth)),
        2 => DataType::FixedSizeList(any_field(rng, "item", depth), rng.i32(0..4)),
        3 if depth < 7 => {
            let key = Arc::new(Field::new("keys", DataType::Utf8, false));
            let value = any_field(rng, "values", depth + 1);
            let entries = DataType::Struct(Fields::from(vec![key, value]));
            DataType::Map(Arc::new(Field::new("entries", entries, false)), rng.bool())
        }
        _ => {
            let field = |i: usize| any_field(rng, &format!("field {i}"), depth);
            DataType::Struct((0..3).take(depth % 4).map(field).collect())
        }
    }
}

fn any_field(rng: &mut Rng, name: &str, depth: usize) -> FieldRef {
    let data_type = any_type(rng, depth + 1);
    let nullable = data_type == DataType::Null || rng.bool();
    Arc::new(Field::new(name, data_type, nullable))
}

/// An array of `rows` rows, a share of them null; under null lists there are items, too.
pub fn any_array(rng: &mut Rng, data_type: &DataType, rows: usize, null_share: f64) -> ArrayRef {
    let nulls: Vec<bool> = (0..rows).map(|_| rng.f64() >= null_share).collect();
    let nulls = (null_share > 0.0).then(|| NullBuffer::from(nulls));
    let lengths: Vec<usize> = (0..rows).map(|_| rng.usize(..4)).collect();
    let total = lengths.iter().sum();
    let mut items = |field: &FieldRef, rows| {
        let null_share = if field.is_nullable() { 0.2 } else { 0.0 };
        any_array(rng, field.data_type(), rows, null_share)
    };
    match data_type {
        DataType::List(item) => {
            let offsets = OffsetBuffer::<i32>::from_lengths(lengths);
            Arc::new(ListArray::new(item.clone(), offsets, items(item, total), nulls))
        }
        DataType::LargeList(item) => {
            let offsets = OffsetBuffer::<i64>::from_lengths(lengths);
            Arc::new(LargeListArray::new(item.clone(), offsets, items(item, total), nulls))
        }
        DataType::FixedSizeList(item, len) => {
            let items = items(item, rows * *len as usize);
            let list =
                FixedSizeListArray::try_new_with_length(item.clone(), *len, items, nulls, rows);
            Arc::new(list.expect("a list"))
        }
        DataType::Map(item, sorted) => {
            let entries = items(item, total).as_struct().clone();
            let offsets = OffsetBuffer::<i32>::from_lengths(lengths);
            Arc::new(MapArray::new(item.clone(), offsets, entries, nulls, *sorted))
        }
        DataType::Struct(fields) => {
            let columns = fields.iter().map(|field| items(field, rows)).collect();
            let array = StructArray::try_new_with_length(fields.clone(), columns, nulls, rows);
            Arc::new(array.expect("a struct"))
        }
        DataType::Null => Arc::new(NullArray::new(rows)),
        leaf => any_leaf(rng, leaf, rows, null_share),
    }
}

fn any_leaf(rng: &mut Rng, data_type: &DataType, rows: usize, null_share: f64) -> ArrayRef {
    let shape = SHAPES[rng.usize(..SHAPES.len())];
    let physical = Physical::of(data_type).expect("a leaf");
    assert!(TYPES.contains(&physical), "{physical}");
    if let DataType::FixedSizeBinary(len) = data_type {
        let row = |_| (rng.f64() >= null_share).then(|| vec![rng.u8(..); *len as usize]);
        let rows: Vec<Option<Vec<u8>>> = (0..rows).map(row).collect();
        let array = FixedSizeBinaryArray::try_from_sparse_iter_with_size(rows.into_iter(), *len);
        return Arc::new(array.expect("values of one length"));
    }
    let array = column(rng, physical, shape, rows, null_share);
    match data_type {
        DataType::Utf8 => Arc::new(StringArray::from_iter(array.as_string_view().iter())),
        DataType::LargeUtf8 => Arc::new(LargeStringArray::from_iter(array.as_string_view().iter())),
        DataType::Binary => Arc::new(BinaryArray::from_iter(array.as_binary_view().iter())),
        _ => array,
    }
}
