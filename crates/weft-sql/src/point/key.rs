//! Values of parameters as values of keys, where a comparison with the column means just that.

use std::sync::Arc;

use arrow::array::types::{
    Date32Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow::array::{
    ArrayRef, ArrowPrimitiveType, BinaryViewArray, BooleanArray, PrimitiveArray, StringViewArray,
};
use arrow::datatypes::{DataType, Field, TimeUnit};
use weft_json::is_json;

use crate::enums::EnumType;
use crate::uuids::{canonical, is_uuid};
use crate::value::Value;

/// What a value is to a column of a key.
#[derive(Clone, Debug)]
pub(super) enum KeyPart {
    /// A value of the column's type, as an array of one.
    Value(ArrayRef),
    /// No value of the column is equal to it: NULL, or a number beyond the column's range.
    EqualToNone,
}

/// The value for a column; `None` where a comparison of the two needs a planner, as it casts one of them.
pub(super) fn key_part(value: &Value, field: &Field) -> Option<KeyPart> {
    if is_json(field) {
        return None;
    }
    let array: ArrayRef = match (value, field.data_type()) {
        (Value::Null, _) => return Some(KeyPart::EqualToNone),
        (Value::Integer(value), data_type) => return integer(i128::from(*value), data_type),
        (Value::Unsigned(value), data_type) => return integer(i128::from(*value), data_type),
        (Value::Boolean(value), DataType::Boolean) => Arc::new(BooleanArray::from(vec![*value])),
        // What is no UUID is an error, which the planner finds.
        (Value::Text(value), DataType::Utf8View) if is_uuid(field) => {
            Arc::new(StringViewArray::from_iter_values([canonical(value)?]))
        }
        // What is no label is an error, too.
        (Value::Text(value), DataType::Utf8View)
            if EnumType::of_field(field).is_some_and(|ty| !ty.has(value)) =>
        {
            return None;
        }
        (Value::Text(value), DataType::Utf8View) => {
            Arc::new(StringViewArray::from_iter_values([value]))
        }
        (Value::Blob(value), DataType::BinaryView) => {
            Arc::new(BinaryViewArray::from_iter_values([value]))
        }
        (Value::Date(days), DataType::Date32) => {
            Arc::new(PrimitiveArray::<Date32Type>::from_value(*days, 1))
        }
        (Value::Timestamp(micros), DataType::Timestamp(TimeUnit::Microsecond, None)) => {
            Arc::new(PrimitiveArray::<TimestampMicrosecondType>::from_value(*micros, 1))
        }
        _ => return None,
    };
    Some(KeyPart::Value(array))
}

fn integer(value: i128, data_type: &DataType) -> Option<KeyPart> {
    fn of<T: ArrowPrimitiveType>(value: i128) -> KeyPart
    where
        T::Native: TryFrom<i128>,
    {
        match T::Native::try_from(value) {
            Ok(value) => KeyPart::Value(Arc::new(PrimitiveArray::<T>::from_value(value, 1))),
            Err(_) => KeyPart::EqualToNone,
        }
    }
    Some(match data_type {
        DataType::Int8 => of::<Int8Type>(value),
        DataType::Int16 => of::<Int16Type>(value),
        DataType::Int32 => of::<Int32Type>(value),
        DataType::Int64 => of::<Int64Type>(value),
        DataType::UInt8 => of::<UInt8Type>(value),
        DataType::UInt16 => of::<UInt16Type>(value),
        DataType::UInt32 => of::<UInt32Type>(value),
        DataType::UInt64 => of::<UInt64Type>(value),
        _ => return None,
    })
}

/// Whether a value is of the type of this name already, or NULL: a cast to it changes nothing that a comparison sees.
pub(super) fn is_of(value: &Value, type_name: &str) -> bool {
    let fits = |least: i64, most: i64| matches!(value, Value::Integer(value) if (least..=most).contains(value));
    match type_name {
        _ if *value == Value::Null => true,
        "SMALLINT" => fits(i16::MIN.into(), i16::MAX.into()),
        "INTEGER" => fits(i32::MIN.into(), i32::MAX.into()),
        "BIGINT" => fits(i64::MIN, i64::MAX),
        "DOUBLE" => matches!(value, Value::Double(_)),
        "UUID" => matches!(value, Value::Text(text) if canonical(text).is_some()),
        "VARCHAR" => matches!(value, Value::Text(_)),
        "BOOLEAN" => matches!(value, Value::Boolean(_)),
        "BLOB" => matches!(value, Value::Blob(_)),
        "DATE" => matches!(value, Value::Date(_)),
        "TIMESTAMP" => matches!(value, Value::Timestamp(_)),
        _ => false,
    }
}
