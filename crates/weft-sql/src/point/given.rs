//! Values of parameters as columns of one row.

use std::sync::Arc;

use arrow::array::types::{
    Date32Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, UInt64Type,
};
use arrow::array::{
    ArrayRef, BinaryViewArray, BooleanArray, Decimal128Array, Float64Array, NullArray,
    PrimitiveArray, StringViewArray, new_null_array,
};
use arrow::datatypes::{DataType, TimeUnit};

use super::key::is_of;
use crate::parameters::Bindings;
use crate::value::Value;

/// Values of parameters, each of the type that is named for it, if one is.
#[derive(Debug)]
pub(crate) struct Given {
    pub(super) values: Vec<Value>,
    pub(super) types: Vec<Option<String>>,
}

impl Given {
    pub(super) fn new(values: &[Value], types: &[Option<String>]) -> Given {
        Given { values: values.to_vec(), types: types.to_vec() }
    }

    fn type_name(&self, number: usize) -> Option<&str> {
        self.types.get(number).and_then(Option::as_deref)
    }

    /// The values as arrays of one; `None` if some of them need a planner.
    pub(super) fn arrays(&self) -> Option<Vec<ArrayRef>> {
        let values = self.values.iter().enumerate();
        values.map(|(number, value)| array_of(value, self.type_name(number))).collect()
    }

    /// The values as expressions of SQL.
    pub(super) fn bindings(&self) -> Bindings {
        let bound =
            self.values.iter().enumerate().map(|(number, value)| match self.type_name(number) {
                Some(kind) => format!("CAST({} AS {kind})", value.sql()),
                None => value.sql(),
            });
        Bindings::Positional(bound.collect())
    }
}

fn array_of(value: &Value, type_name: Option<&str>) -> Option<ArrayRef> {
    if let Some(name) = type_name {
        let data_type = type_of(name).filter(|_| is_of(value, name))?;
        return match (value, &data_type) {
            (Value::Null, _) => Some(new_null_array(&data_type, 1)),
            (Value::Integer(value), DataType::Int16) => Some(Arc::new(
                PrimitiveArray::<Int16Type>::from_value((*value).try_into().ok()?, 1),
            )),
            (Value::Integer(value), DataType::Int32) => Some(Arc::new(
                PrimitiveArray::<Int32Type>::from_value((*value).try_into().ok()?, 1),
            )),
            _ => array_of(value, None),
        };
    }
    Some(match value {
        Value::Null => Arc::new(NullArray::new(1)),
        Value::Boolean(value) => Arc::new(BooleanArray::from(vec![*value])),
        Value::Integer(value) => Arc::new(PrimitiveArray::<Int64Type>::from_value(*value, 1)),
        Value::Unsigned(value) => Arc::new(PrimitiveArray::<UInt64Type>::from_value(*value, 1)),
        // Other values have several forms.
        Value::Double(value) if value.is_normal() => Arc::new(Float64Array::from(vec![*value])),
        Value::Decimal(value, precision, scale) => {
            let array = Decimal128Array::from(vec![*value]);
            Arc::new(array.with_precision_and_scale(*precision, *scale).ok()?)
        }
        Value::Text(value) => Arc::new(StringViewArray::from_iter_values([value])),
        Value::Blob(value) => Arc::new(BinaryViewArray::from_iter_values([value])),
        Value::Date(days) => Arc::new(PrimitiveArray::<Date32Type>::from_value(*days, 1)),
        Value::Timestamp(micros) => {
            Arc::new(PrimitiveArray::<TimestampMicrosecondType>::from_value(*micros, 1))
        }
        _ => return None,
    })
}

/// The type of this name, of those that [`is_of`] knows.
fn type_of(name: &str) -> Option<DataType> {
    Some(match name {
        "SMALLINT" => DataType::Int16,
        "INTEGER" => DataType::Int32,
        "BIGINT" => DataType::Int64,
        "DOUBLE" => DataType::Float64,
        "VARCHAR" => DataType::Utf8View,
        "BOOLEAN" => DataType::Boolean,
        "BLOB" => DataType::BinaryView,
        "DATE" => DataType::Date32,
        "TIMESTAMP" => DataType::Timestamp(TimeUnit::Microsecond, None),
        _ => return None,
    })
}
