//! Values of keys' columns from the bytes of keys, where these tell them exactly.
//!
//! Floats do not come back, as all NaNs are one key and both zeros are, and intervals do not, as those of one length are.

use std::sync::Arc;

use arrow_array::builder::{BinaryViewBuilder, StringViewBuilder};
use arrow_array::{Array, ArrayRef, BooleanArray, make_array, new_empty_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_schema::DataType;

use super::column::{VALUE, is_comparable};
use super::{KeyColumn, KeyEncoder};
use crate::error::IndexError;

impl KeyColumn {
    /// True if the values of the type can be told from keys.
    pub fn is_decodable(data_type: &DataType) -> bool {
        match data_type {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
                false
            }
            DataType::Float32 | DataType::Float64 | DataType::Interval(_) => false,
            other => is_comparable(other),
        }
    }
}

impl KeyEncoder {
    /// The values of columns, by their numbers in ascending order, of keys that this encoder has made; what follows the last column in a
    /// key does not count. One array for each of the columns, with a value for each key.
    ///
    /// # Errors
    /// [`IndexError::Damaged`] for bytes that are no key.
    ///
    /// # Panics
    /// If there is no such column, or its values [cannot be told](KeyColumn::is_decodable) from keys.
    pub fn decode<'a>(
        &self,
        columns: &[usize],
        keys: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Vec<ArrayRef>, IndexError> {
        debug_assert!(columns.is_sorted_by(|a, b| a < b));
        let of_column = |number: &usize| Decoded::new(&self.columns[*number].data_type);
        let mut decoded: Vec<Decoded> = columns.iter().map(of_column).collect();
        let Some(last) = columns.last() else { return Ok(Vec::new()) };
        let mut scratch = Vec::new();
        for key in keys {
            let mut rest = key;
            let mut next = columns.iter().zip(&mut decoded).peekable();
            for (number, column) in self.columns[..=*last].iter().enumerate() {
                let wanted = next.next_if(|(wanted, _)| **wanted == number);
                rest = column.take(rest, &mut scratch, wanted.map(|(_, decoded)| decoded))?;
            }
        }
        decoded.into_iter().map(Decoded::finish).collect()
    }
}

fn damaged(reason: &str) -> IndexError {
    let (low, high) = ("the first key".into(), "the last".into());
    IndexError::Damaged { low, high, reason: reason.into() }
}

impl KeyColumn {
    /// Takes the column's value from the beginning of `bytes`, and gives it to `decoded` if it is wanted; gives the bytes behind it.
    fn take<'a>(
        &self,
        bytes: &'a [u8],
        scratch: &mut Vec<u8>,
        decoded: Option<&mut Decoded>,
    ) -> Result<&'a [u8], IndexError> {
        let ends = || damaged("an entry ends within a column of its key");
        let bytes = match self.is_nullable {
            false => bytes,
            true => {
                let (first, rest) = bytes.split_first().ok_or_else(ends)?;
                if *first != VALUE {
                    if let Some(decoded) = decoded {
                        decoded.push_null();
                    }
                    return Ok(rest);
                }
                rest
            }
        };
        let turned = if self.is_descending { u8::MAX } else { 0 };
        scratch.clear();
        let rest = match fixed_bytes(&self.data_type) {
            Some(width) => {
                let (value, rest) = bytes.split_at_checked(width).ok_or_else(ends)?;
                scratch.extend(value.iter().map(|byte| byte ^ turned));
                rest
            }
            None => {
                let mut rest = bytes;
                loop {
                    let zero = rest.iter().position(|byte| *byte == turned).ok_or_else(ends)?;
                    scratch.extend(rest[..zero].iter().map(|byte| byte ^ turned));
                    let next = rest.get(zero + 1).ok_or_else(ends)?;
                    rest = &rest[zero + 2..];
                    match next ^ turned {
                        0 => break rest,
                        u8::MAX => scratch.push(0),
                        _ => return Err(damaged("a text in a key is no text")),
                    }
                }
            }
        };
        if let Some(decoded) = decoded {
            decoded.push(scratch)?;
        }
        Ok(rest)
    }
}

/// Bytes of each value that is not NULL, if all have as many.
fn fixed_bytes(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Boolean => Some(1),
        DataType::FixedSizeBinary(bytes) => usize::try_from(*bytes).ok(),
        // Keys have lengths of intervals.
        DataType::Interval(arrow_schema::IntervalUnit::YearMonth) => Some(4),
        DataType::Interval(arrow_schema::IntervalUnit::DayTime) => Some(8),
        DataType::Interval(arrow_schema::IntervalUnit::MonthDayNano) => Some(16),
        other => other.primitive_width(),
    }
}

/// Values of a column that were decoded.
struct Decoded {
    data_type: DataType,
    values: Values,
    /// For each value whether it is there.
    validity: Vec<bool>,
}

enum Values {
    Booleans(Vec<bool>),
    /// Values of a number of bytes each, as Arrow has them; of integers, whether they have a sign.
    Fixed {
        bytes: Vec<u8>,
        width: usize,
        kind: FixedKind,
    },
    Texts(StringViewBuilder),
    Blobs(BinaryViewBuilder),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FixedKind {
    Signed,
    Unsigned,
    Bytes,
}

impl Decoded {
    fn new(data_type: &DataType) -> Decoded {
        assert!(KeyColumn::is_decodable(data_type), "{data_type} cannot be told from keys");
        let kind = match data_type {
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
                FixedKind::Unsigned
            }
            DataType::FixedSizeBinary(_) => FixedKind::Bytes,
            _ => FixedKind::Signed,
        };
        let values = match (data_type, fixed_bytes(data_type)) {
            (DataType::Boolean, _) => Values::Booleans(Vec::new()),
            (_, Some(width)) => Values::Fixed { bytes: Vec::new(), width, kind },
            (DataType::Utf8View, _) => Values::Texts(StringViewBuilder::new()),
            _ => Values::Blobs(BinaryViewBuilder::new()),
        };
        Decoded { data_type: data_type.clone(), values, validity: Vec::new() }
    }

    fn push_null(&mut self) {
        self.validity.push(false);
        match &mut self.values {
            Values::Booleans(values) => values.push(false),
            Values::Fixed { bytes, width, .. } => bytes.resize(bytes.len() + *width, 0),
            Values::Texts(builder) => builder.append_null(),
            Values::Blobs(builder) => builder.append_null(),
        }
    }

    /// Adds a value, as an ascending key has it.
    fn push(&mut self, value: &mut [u8]) -> Result<(), IndexError> {
        self.validity.push(true);
        match &mut self.values {
            Values::Booleans(values) => values.push(value != [0]),
            Values::Fixed { bytes, kind, .. } => {
                if let (FixedKind::Signed, Some(first)) = (*kind, value.first_mut()) {
                    *first ^= 0x80;
                }
                if *kind != FixedKind::Bytes && cfg!(target_endian = "little") {
                    value.reverse();
                }
                bytes.extend_from_slice(value);
            }
            Values::Texts(builder) => {
                let text = std::str::from_utf8(value);
                builder.append_value(text.map_err(|_| damaged("a text in a key is no UTF-8"))?);
            }
            Values::Blobs(builder) => builder.append_value(value),
        }
        Ok(())
    }

    fn finish(self) -> Result<ArrayRef, IndexError> {
        let Decoded { data_type, values, validity } = self;
        let has_nulls = validity.iter().any(|is_there| !is_there);
        let (rows, nulls) = (validity.len(), has_nulls.then(|| NullBuffer::from(validity)));
        Ok(match values {
            Values::Booleans(values) => {
                Arc::new(BooleanArray::new(BooleanBuffer::from(values), nulls))
            }
            Values::Fixed { bytes, .. } => {
                let data = new_empty_array(&data_type).to_data().into_builder().len(rows);
                let data = data.buffers(vec![Buffer::from_vec(bytes)]).nulls(nulls);
                let built = data.align_buffers(true).build();
                make_array(built.map_err(|error| damaged(&error.to_string()))?)
            }
            Values::Texts(mut builder) => Arc::new(builder.finish()),
            Values::Blobs(mut builder) => Arc::new(builder.finish()),
        })
    }
}
