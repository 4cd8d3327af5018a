//! Gathers vectors into an Arrow array.

use std::sync::Arc;

use arrow_array::types::{
    Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BinaryViewArray, BooleanArray,
    FixedSizeBinaryArray, LargeBinaryArray, LargeStringArray, PrimitiveArray, StringArray,
    StringViewArray, make_array,
};
use arrow_buffer::{
    BooleanBuffer, Buffer, MutableBuffer, NullBuffer, NullBufferBuilder, ScalarBuffer,
};
use arrow_row::{RowConverter, SortField};
use arrow_schema::{ArrowError, DataType};

use super::{dictionary, is_encoded};
use crate::apart::LONG_BYTES;
use crate::error::{Result, check_length};
use crate::for_lane;
use crate::lane::{Lane, Value};
use crate::pace::Pace;
use crate::selection::Selected;
use crate::text::Str;
use crate::vector::Vector;

/// Bytes of a block of long strings.
const BLOCK_BYTES: usize = 64 << 10;
/// Bytes of a long string that are copied at once.
const COPIED_AT_ONCE: usize = 128 << 10;

/// An array that grows by the selected rows of one vector after the other.
#[derive(Debug)]
pub struct ColumnBuilder {
    data_type: DataType,
    lane: Lane,
    /// Values as they lie in vectors, strings as Arrow's views.
    values: MutableBuffer,
    nulls: NullBufferBuilder,
    /// The bytes of long strings; the last block is being filled.
    blocks: Vec<Vec<u8>>,
    block_bytes: usize,
}

impl ColumnBuilder {
    /// An empty array of `data_type`, to be filled from registers of `lane`.
    pub fn new(data_type: &DataType, lane: Lane) -> ColumnBuilder {
        ColumnBuilder {
            data_type: data_type.clone(),
            lane,
            values: MutableBuffer::new(0),
            nulls: NullBufferBuilder::new(0),
            blocks: Vec::new(),
            block_bytes: 0,
        }
    }

    /// Bytes that it takes, about.
    pub fn bytes(&self) -> usize {
        self.values.len() + self.block_bytes
    }

    /// Adds the `rows` of a vector.
    ///
    /// # Panics
    /// If it is of another lane.
    pub fn append(&mut self, vector: &Vector, rows: Selected<'_>) {
        if self.lane == Lane::Str {
            self.append_strings(vector, rows);
        } else {
            for_lane!(self.lane, T => self.append_values(vector.values::<T>(), rows));
        }
        if vector.validity.has_nulls() {
            rows.for_each(|row| self.nulls.append(vector.validity.is_valid(row)));
        } else {
            self.nulls.append_n_non_nulls(rows.count());
        }
    }

    fn append_values<T: Value>(&mut self, values: &[T], rows: Selected<'_>) {
        match rows {
            Selected::All(rows) => {
                self.values.extend_from_slice(bytemuck::cast_slice::<T, u8>(&values[..rows]));
            }
            Selected::Some(rows) => {
                let picked: Vec<T> = rows.iter().map(|row| values[usize::from(*row)]).collect();
                self.values.extend_from_slice(bytemuck::cast_slice::<T, u8>(&picked));
            }
        }
    }

    fn append_strings(&mut self, vector: &Vector, rows: Selected<'_>) {
        let strings = vector.values::<Str>();
        rows.for_each(|row| {
            let string = if vector.validity.is_valid(row) { strings[row] } else { Str::EMPTY };
            let view = if string.is_inline() {
                string.bits()
            } else {
                // SAFETY: what strings of a register refer to is alive as long as the register is read.
                self.add_long(string.head(), unsafe { string.bytes() })
            };
            self.values.extend_from_slice(&view.to_le_bytes());
        });
    }

    /// Adds the `rows` of a vector, in turns if their strings are very long.
    ///
    /// # Panics
    /// As [`ColumnBuilder::append`].
    pub(crate) async fn append_in_turns(
        &mut self,
        vector: &Vector,
        rows: Selected<'_>,
        pace: &mut Pace,
    ) {
        if self.lane != Lane::Str {
            return self.append(vector, rows);
        }
        let mut bytes = 0;
        let length = |row| vector.value::<Str>(row).map_or(0, |string| string.len());
        rows.for_each(|row| bytes += length(row));
        if bytes <= COPIED_AT_ONCE || pace.is_unbroken() {
            return self.append(vector, rows);
        }
        let mut numbers = Vec::with_capacity(rows.count());
        rows.for_each(|row| numbers.push(row as u16));
        for number in numbers {
            let row = usize::from(number);
            match vector.value::<Str>(row).filter(|string| string.len() > COPIED_AT_ONCE) {
                Some(string) => {
                    // SAFETY: what strings of a register refer to is alive as long as the register is read.
                    let bytes = unsafe { string.bytes() };
                    let view = self.begin_long(string.head(), bytes.len());
                    for some in bytes.chunks(COPIED_AT_ONCE) {
                        self.block().extend_from_slice(some);
                        pace.keep().await;
                    }
                    self.values.extend_from_slice(&view.to_le_bytes());
                    self.nulls.append_non_null();
                }
                None => {
                    self.append(vector, Selected::Some(&[number]));
                    pace.keep().await;
                }
            }
        }
    }

    fn add_long(&mut self, head: u64, bytes: &[u8]) -> u128 {
        let view = self.begin_long(head, bytes.len());
        self.block().extend_from_slice(bytes);
        view
    }

    /// The view of a string that is put into [`ColumnBuilder::block`] next.
    fn begin_long(&mut self, head: u64, bytes: usize) -> u128 {
        let has_room = |block: &Vec<u8>| block.capacity() - block.len() >= bytes;
        if !self.blocks.last().is_some_and(has_room) {
            self.blocks.push(Vec::with_capacity(BLOCK_BYTES.max(bytes)));
        }
        self.block_bytes += bytes;
        let number = self.blocks.len() - 1;
        let place = (self.blocks[number].len() as u64) << 32 | number as u64;
        u128::from(head) | u128::from(place) << 64
    }

    /// The block that is being filled.
    fn block(&mut self) -> &mut Vec<u8> {
        self.blocks.last_mut().expect("a string has begun")
    }

    /// True if [`ColumnBuilder::finish`] takes long, which had better be done [apart](crate::apart).
    pub(crate) fn takes_long(&self) -> bool {
        let is_dictionary = matches!(self.data_type, DataType::Dictionary(..));
        self.bytes() >= LONG_BYTES && (is_dictionary || is_encoded(&self.data_type))
    }

    /// The array.
    ///
    /// # Errors
    /// If values of the lane are none of the type.
    pub fn finish(mut self) -> Result<ArrayRef> {
        if let DataType::Dictionary(keys, values) = self.data_type {
            let values = ColumnBuilder { data_type: *values, ..self }.finish()?;
            return dictionary::encode(&values, &keys);
        }
        let nulls = self.nulls.finish().filter(|nulls| nulls.null_count() > 0);
        let values = Buffer::from(self.values);
        let data_type = &self.data_type;
        match self.lane {
            Lane::Bool if *data_type == DataType::Boolean => {
                let bits = BooleanBuffer::collect_bool(values.len(), |row| values[row] != 0);
                Ok(Arc::new(BooleanArray::new(bits, nulls)))
            }
            Lane::Str => {
                let blocks = self.blocks.into_iter().map(Buffer::from_vec).collect();
                strings(data_type, values.into(), blocks, nulls)
            }
            Lane::I32 | Lane::I64 if is_wider_decimal(data_type, self.lane) => {
                wider(data_type, self.lane, &values, nulls)
            }
            Lane::I8 => fixed::<Int8Type>(data_type, values, nulls),
            Lane::I16 => fixed::<Int16Type>(data_type, values, nulls),
            Lane::I32 => fixed::<Int32Type>(data_type, values, nulls),
            Lane::I64 => fixed::<Int64Type>(data_type, values, nulls),
            Lane::I128 => fixed::<Decimal128Type>(data_type, values, nulls),
            Lane::Bool | Lane::U8 => fixed::<UInt8Type>(data_type, values, nulls),
            Lane::U16 => fixed::<UInt16Type>(data_type, values, nulls),
            Lane::U32 => fixed::<UInt32Type>(data_type, values, nulls),
            Lane::U64 => fixed::<UInt64Type>(data_type, values, nulls),
            Lane::F32 => fixed::<Float32Type>(data_type, values, nulls),
            Lane::F64 => fixed::<Float64Type>(data_type, values, nulls),
        }
    }
}

fn is_wider_decimal(data_type: &DataType, lane: Lane) -> bool {
    match data_type {
        DataType::Decimal128(..) => true,
        DataType::Decimal64(..) => lane == Lane::I32,
        _ => false,
    }
}

/// Decimals in more bits than they had in the register.
fn wider(
    data_type: &DataType,
    lane: Lane,
    values: &Buffer,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let values: Vec<i64> = match lane {
        Lane::I32 => values.typed_data::<i32>().iter().map(|value| (*value).into()).collect(),
        _ => values.typed_data::<i64>().to_vec(),
    };
    if let DataType::Decimal64(..) = data_type {
        return fixed::<Int64Type>(data_type, Buffer::from_vec(values), nulls);
    }
    let values: Vec<i128> = values.into_iter().map(i128::from).collect();
    fixed::<Decimal128Type>(data_type, Buffer::from_vec(values), nulls)
}

/// An array of values as wide as those of `T`.
fn fixed<T: ArrowPrimitiveType>(
    data_type: &DataType,
    values: Buffer,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let is_as_wide = data_type.primitive_width() == Some(size_of::<T::Native>());
    if !is_as_wide {
        let problem = format!("values of {} are to be {data_type}", T::DATA_TYPE);
        return Err(ArrowError::InvalidArgumentError(problem).into());
    }
    let array = PrimitiveArray::<T>::new(ScalarBuffer::from(values), nulls);
    let data = array.into_data().into_builder().data_type(data_type.clone());
    Ok(make_array(data.build()?))
}

fn strings(
    data_type: &DataType,
    views: ScalarBuffer<u128>,
    blocks: Vec<Buffer>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    if *data_type == DataType::Utf8View {
        // SAFETY: registers of a text hold UTF-8, and each view was made for the blocks.
        return Ok(Arc::new(unsafe { StringViewArray::new_unchecked(views, blocks, nulls) }));
    }
    // SAFETY: each view was made for the blocks.
    let array = unsafe { BinaryViewArray::new_unchecked(views, blocks, nulls) };
    if matches!(data_type, DataType::Binary | DataType::Utf8) {
        let bytes: usize = array.lengths().map(|bytes| bytes as usize).sum();
        check_length("an array of texts", bytes, i32::MAX as usize)?;
    }
    Ok(match data_type {
        DataType::BinaryView => Arc::new(array),
        DataType::Binary => Arc::new(BinaryArray::from_iter(array.iter())),
        DataType::LargeBinary => Arc::new(LargeBinaryArray::from_iter(array.iter())),
        DataType::Utf8 => {
            let (offsets, values, nulls) = BinaryArray::from_iter(array.iter()).into_parts();
            // SAFETY: registers of a text hold UTF-8, each of whose strings the offsets have.
            Arc::new(unsafe { StringArray::new_unchecked(offsets, values, nulls) })
        }
        DataType::LargeUtf8 => {
            let (offsets, values, nulls) = LargeBinaryArray::from_iter(array.iter()).into_parts();
            // SAFETY: as above.
            Arc::new(unsafe { LargeStringArray::new_unchecked(offsets, values, nulls) })
        }
        DataType::FixedSizeBinary(bytes) => {
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(array.iter(), *bytes)?)
        }
        row_encoded => {
            let converter = RowConverter::new(vec![SortField::new(row_encoded.clone())])?;
            // A null has a row of its own there.
            let parser = converter.parser();
            let null = null_row(&converter, row_encoded)?;
            let rows = array.iter().map(|row| parser.parse(row.unwrap_or(&null)));
            let columns = converter.convert_rows(rows)?;
            columns.into_iter().next().expect("one column")
        }
    })
}

fn null_row(converter: &RowConverter, data_type: &DataType) -> Result<Vec<u8>> {
    let null = arrow_array::new_null_array(data_type, 1);
    Ok(converter.convert_columns(&[null])?.row(0).data().to_vec())
}
