//! Arrays as dictionaries, for results whose type says so.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::types::ArrowDictionaryKeyType;
use arrow_array::{
    Array, ArrayRef, DictionaryArray, PrimitiveArray, UInt32Array, downcast_integer,
};
use arrow_buffer::ArrowNativeType;
use arrow_row::{RowConverter, SortField};
use arrow_schema::{ArrowError, DataType};

use crate::error::Result;

/// The dictionary of `values`, in the order in which they come first, with keys of type `keys`.
///
/// # Errors
/// If there are more different values than keys.
pub(super) fn encode(values: &ArrayRef, keys: &DataType) -> Result<ArrayRef> {
    let converter = RowConverter::new(vec![SortField::new(values.data_type().clone())])?;
    let rows = converter.convert_columns(std::slice::from_ref(values))?;
    let nulls = values.logical_nulls();
    let (mut numbers, mut firsts) = (HashMap::new(), Vec::new());
    let number_of = |row: usize| {
        let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        (!is_null).then(|| {
            *numbers.entry(rows.row(row)).or_insert_with(|| {
                firsts.push(row as u32);
                firsts.len() - 1
            })
        })
    };
    let numbers: Vec<Option<usize>> = (0..values.len()).map(number_of).collect();
    let values = arrow_select::take::take(values, &UInt32Array::from(firsts), None)?;
    macro_rules! with_keys {
        ($key:ty) => {
            with_keys::<$key>(&numbers, values)
        };
    }
    downcast_integer! {
        keys => (with_keys),
        keys => Err(ArrowError::InvalidArgumentError(format!("keys of {keys}")).into()),
    }
}

fn with_keys<K: ArrowDictionaryKeyType>(
    numbers: &[Option<usize>],
    values: ArrayRef,
) -> Result<ArrayRef> {
    let key = |number: &Option<usize>| {
        let too_many = || ArrowError::DictionaryKeyOverflowError;
        number.map(|number| K::Native::from_usize(number).ok_or_else(too_many)).transpose()
    };
    let keys: PrimitiveArray<K> = numbers.iter().map(key).collect::<Result<_, ArrowError>>()?;
    Ok(Arc::new(DictionaryArray::<K>::try_new(keys, values)?))
}
