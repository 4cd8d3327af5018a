//! What the fuzz targets share: columns made of a fuzzer's bytes, and everything that can be asked of a
//! block.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BinaryViewArray, BooleanArray, Decimal128Array};
use arrow_array::{Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array};
use arrow_array::{ListArray, StringViewArray, StructArray, UInt16Array, UInt64Array};
use arrow_buffer::{BooleanBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field};
use weft_codec::{Block, Op, Predicate, RANGE_ROWS, Scalar};

/// Predicates on every type.
pub fn predicates() -> Vec<Predicate> {
    let values = [
        Scalar::Boolean(true),
        Scalar::Int(7),
        Scalar::UInt(u64::MAX),
        Scalar::Float32(-0.0),
        Scalar::Float64(f64::NAN),
        Scalar::Bytes(b"ab".to_vec()),
    ];
    let mut predicates =
        vec![Predicate::IsNull, Predicate::IsNotNull, Predicate::StartsWith(b"a".to_vec())];
    for value in &values {
        for op in [Op::Eq, Op::NotEq, Op::Lt, Op::LtEq, Op::Gt, Op::GtEq] {
            predicates.push(Predicate::Compare(op, value.clone()));
        }
        predicates.push(Predicate::In(vec![value.clone(), Scalar::Null]));
    }
    predicates
}

/// Asks everything of a block; what comes back must be sound.
pub fn exercise(block: &Block) {
    let rows = block.rows();
    for row in [0, rows / 2, rows.wrapping_sub(1), rows] {
        drop(block.value(row));
    }
    drop(block.describe());
    for predicate in predicates() {
        if let Ok(mask) = block.filter(&predicate) {
            assert_eq!(mask.len(), rows);
        }
    }
    if let Ok(array) = block.decode() {
        assert_eq!(array.len(), rows);
        array.to_data().validate_full().expect("a decoded array is sound");
    }
    let Ok(data_type) = block.data_type() else { return };
    drop(block.is_divisible());
    for start in [0, rows / 2 / RANGE_ROWS * RANGE_ROWS] {
        if let Ok(array) = block.decode_range(start..rows, &data_type) {
            assert_eq!(array.len(), rows - start);
            array.to_data().validate_full().expect("a range is sound");
        }
    }
    let mask = BooleanBuffer::collect_bool(rows, |row| row % 11 == 3);
    if let Ok(array) = block.decode_selected(&mask, &data_type) {
        assert_eq!(array.len(), mask.count_set_bits());
        array.to_data().validate_full().expect("a selection is sound");
    }
}

/// A column of the values in `bytes`, after two bytes that say of which type and how often it is null.
pub fn column(bytes: &[u8]) -> Option<ArrayRef> {
    nested(bytes, 0)
}

/// Lists in structs, each of which counts twice, within each other at most: deeper ones are refused.
const DEPTH_MAX: usize = 4;

/// A column within `depth` lists.
fn nested(bytes: &[u8], depth: usize) -> Option<ArrayRef> {
    let (&[kind, nulls], bytes) = bytes.split_first_chunk()?;
    let valid = |row: usize| nulls == 0 || !row.is_multiple_of(usize::from(nulls));
    macro_rules! numbers {
        ($array:ident, $native:ty) => {{
            let values = bytes.as_chunks::<{ size_of::<$native>() }>().0.iter().enumerate();
            Arc::new($array::from_iter(
                values.map(|(row, &value)| valid(row).then(|| <$native>::from_le_bytes(value))),
            ))
        }};
    }
    let pieces = || bytes.split(|&byte| byte == b'\n').enumerate();
    let kinds = if depth < DEPTH_MAX { 13 } else { 12 };
    Some(match kind % kinds {
        0 => numbers!(Int8Array, i8),
        1 => numbers!(Int16Array, i16),
        2 => numbers!(Int32Array, i32),
        3 => numbers!(Int64Array, i64),
        4 => numbers!(UInt16Array, u16),
        5 => numbers!(UInt64Array, u64),
        6 => numbers!(Decimal128Array, i128),
        7 => numbers!(Float32Array, f32),
        8 => numbers!(Float64Array, f64),
        9 => {
            let bits = bytes.iter().enumerate();
            Arc::new(BooleanArray::from_iter(
                bits.map(|(row, &byte)| valid(row).then_some(byte & 1 == 1)),
            ))
        }
        10 => Arc::new(BinaryViewArray::from_iter(
            pieces().map(|(row, piece)| valid(row).then_some(piece)),
        )),
        11 => Arc::new(StringViewArray::from_iter(
            pieces().map(|(row, piece)| valid(row).then(|| String::from_utf8_lossy(piece))),
        )),
        _ => {
            let items = nested(bytes, depth + 1)?;
            let lengths = (0..items.len() / 3).map(|_| 3).chain([items.len() % 3]);
            let item = Arc::new(Field::new_list_field(items.data_type().clone(), true));
            let list = ListArray::new(item, OffsetBuffer::from_lengths(lengths), items, None);
            let field = Field::new("list", DataType::clone(list.data_type()), true);
            Arc::new(StructArray::from(vec![(Arc::new(field), Arc::new(list) as ArrayRef)]))
        }
    })
}
