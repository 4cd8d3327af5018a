//! Values of columns that are no part of a key, as the bytes that entries of a tree have beside it.
//!
//! They have the forms of ascending columns of a key, so that they come back as those do; values of which keys do not tell all are seen
//! as their bits: floats as integers, intervals as integers and bytes. The forms are part of the file format.

use arrow_array::{Array, ArrayRef, make_array};
use arrow_schema::{DataType, IntervalUnit};

use super::{KeyColumn, KeyEncoder, Keys};
use crate::error::IndexError;

/// Makes included bytes of rows' values, and values of these.
#[derive(Clone, Debug)]
pub struct IncludedEncoder {
    encoder: KeyEncoder,
    data_types: Vec<DataType>,
}

/// The type of values that have the same bits, and can be told from keys.
fn bits_of(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Float32 | DataType::Interval(IntervalUnit::YearMonth) => DataType::Int32,
        DataType::Float64 => DataType::Int64,
        DataType::Interval(IntervalUnit::DayTime) => DataType::FixedSizeBinary(8),
        DataType::Interval(IntervalUnit::MonthDayNano) => DataType::FixedSizeBinary(16),
        other => other.clone(),
    }
}

/// The same bits as values of another type.
fn seen_as(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, IndexError> {
    if array.data_type() == data_type {
        return Ok(array.clone());
    }
    let data = array.to_data().into_builder().data_type(data_type.clone());
    let data = data.align_buffers(true).build();
    let reason =
        |error: arrow_schema::ArrowError| IndexError::KeyColumns { reason: error.to_string() };
    Ok(make_array(data.map_err(reason)?))
}

impl IncludedEncoder {
    /// An encoder of columns of these types, each with whether it may hold NULLs.
    ///
    /// # Errors
    /// [`IndexError::KeyType`] if values of a column cannot be included.
    pub fn new(columns: Vec<(DataType, bool)>) -> Result<IncludedEncoder, IndexError> {
        let cannot_be = |(data_type, _): &&(DataType, bool)| !IncludedEncoder::takes(data_type);
        if let Some((data_type, _)) = columns.iter().find(cannot_be) {
            return Err(IndexError::KeyType { data_type: data_type.clone() });
        }
        let stored = |(data_type, is_nullable): &(DataType, bool)| {
            KeyColumn::new(bits_of(data_type), *is_nullable)
        };
        let encoder = KeyEncoder::new(columns.iter().map(stored).collect())?;
        let data_types = columns.into_iter().map(|(data_type, _)| data_type).collect();
        Ok(IncludedEncoder { encoder, data_types })
    }

    /// True if values of the type can be included.
    pub fn takes(data_type: &DataType) -> bool {
        KeyColumn::is_decodable(&bits_of(data_type))
    }

    /// Appends the bytes of each row to `bytes`.
    ///
    /// # Errors
    /// [`IndexError::KeyColumns`] if the arrays are not of the columns' types.
    pub fn encode(&self, arrays: &[ArrayRef], bytes: &mut Keys) -> Result<(), IndexError> {
        let arrays = arrays.iter().map(|array| seen_as(array, &bits_of(array.data_type())));
        self.encoder.encode(&arrays.collect::<Result<Vec<_>, _>>()?, bytes)
    }

    /// The values of columns, by their numbers in ascending order, of rows with these bytes.
    ///
    /// # Errors
    /// [`IndexError::Damaged`] for bytes that are none of a row.
    ///
    /// # Panics
    /// If there is no such column.
    pub fn decode<'a>(
        &self,
        columns: &[usize],
        rows: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Vec<ArrayRef>, IndexError> {
        let decoded = self.encoder.decode(columns, rows)?;
        let typed = columns.iter().zip(&decoded);
        typed.map(|(number, array)| seen_as(array, &self.data_types[*number])).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        BooleanArray, Float64Array, Int32Array, IntervalMonthDayNanoArray, StringViewArray,
    };
    use arrow_buffer::IntervalMonthDayNano;

    use super::*;

    #[test]
    fn included_values_come_back_bit_by_bit() {
        let floats = [Some(-0.0), None, Some(0.0), Some(f64::from_bits(0x7ff8_0000_0000_0001))];
        let month = IntervalMonthDayNano::new(1, -2, 3);
        let intervals = [Some(month), Some(IntervalMonthDayNano::new(0, 30, 0)), None, Some(month)];
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(Float64Array::from(floats.to_vec())),
            Arc::new(StringViewArray::from(vec![Some("a\0b"), Some(""), None, Some("\0\0")])),
            Arc::new(IntervalMonthDayNanoArray::from(intervals.to_vec())),
            Arc::new(BooleanArray::from(vec![Some(true), None, Some(false), Some(true)])),
            Arc::new(Int32Array::from(vec![i32::MIN, -1, 0, i32::MAX])),
        ];
        let nullable =
            |(number, array): (usize, &ArrayRef)| (array.data_type().clone(), number < 4);
        let encoder = IncludedEncoder::new(arrays.iter().enumerate().map(nullable).collect());
        let encoder = encoder.unwrap();
        let mut bytes = Keys::new();
        encoder.encode(&arrays, &mut bytes).unwrap();
        let all = encoder.decode(&[0, 1, 2, 3, 4], bytes.iter()).unwrap();
        let bits = |array: &ArrayRef| {
            let array = array.as_any().downcast_ref::<Float64Array>().unwrap();
            array.iter().map(|value| value.map(f64::to_bits)).collect::<Vec<_>>()
        };
        assert_eq!(bits(&all[0]), bits(&arrays[0]));
        assert_eq!(all[1..], arrays[1..]);
        assert_eq!(
            encoder.decode(&[1, 3], bytes.iter()).unwrap(),
            [all[1].clone(), all[3].clone()]
        );
        let cut = bytes.iter().map(|row| &row[..row.len() - 1]);
        assert!(matches!(encoder.decode(&[4], cut), Err(IndexError::Damaged { .. })));
    }
}
