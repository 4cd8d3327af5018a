//! From an Arrow array to the bytes of a block.

use arrow_array::{Array, ArrayRef, BinaryViewArray, BooleanArray, StringViewArray};
use arrow_array::{ArrowPrimitiveType, PrimitiveArray, types::*};
use arrow_array::{BinaryArray, LargeBinaryArray, LargeStringArray, StringArray, cast::AsArray};
use arrow_buffer::{ArrowNativeType, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;
use bytemuck::Pod;

use crate::block::HEADER_BYTES;
use crate::compression::{self, Compression};
use crate::error::{Error, Result};
use crate::fsst::Table;
use crate::lane::Lane;
use crate::nested::{self, Budget};
use crate::physical::Physical;
use crate::{bools, floats, intervals, ints, strings, wide};

/// How a block is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Levels of cascading encodings: 0 (none) to 3.
    pub cascade_depth: u8,
    /// What is tried on the encoded bytes; kept only where it saves a quarter or more.
    pub compression: Compression,
}

impl Default for Options {
    fn default() -> Self {
        Self { cascade_depth: 3, compression: Compression::Lz4 }
    }
}

/// Encodes all rows of `array` as one block.
///
/// # Errors
/// [`Error::TooManyRows`] beyond [`crate::MAX_ROWS`], [`Error::TooManyBytes`] if strings exceed
/// [`crate::MAX_BODY_BYTES`], [`Error::TooManyValues`] if lists and structs hold more than
/// [`crate::MAX_VALUES`], [`Error::UnsupportedType`] as [`Physical::of`].
pub fn encode(array: &dyn Array, options: &Options) -> Result<Vec<u8>> {
    Encoder::new(*options).encode(array)
}

/// Encodes the blocks of one column after each other, and keeps what it has learnt of its strings: the
/// symbols that one block was compressed with serve the next as long as they fit it.
pub struct Encoder {
    options: Options,
    table: Option<Table>,
}

impl Encoder {
    /// An encoder that knows nothing yet.
    pub fn new(options: Options) -> Self {
        let cascade_depth = options.cascade_depth.min(3);
        Self { options: Options { cascade_depth, ..options }, table: None }
    }

    /// Encodes all rows of `array` as one block, which can be decoded without the others.
    ///
    /// # Errors
    /// As [`encode`].
    pub fn encode(&mut self, array: &dyn Array) -> Result<Vec<u8>> {
        let mut state = State { budget: Budget::new(), table: &mut self.table };
        encode_within(array, &self.options, &mut state)
    }
}

/// What the blocks within a block share while they are encoded.
pub(crate) struct State<'t> {
    pub(crate) budget: Budget,
    table: &'t mut Option<Table>,
}

/// Encodes a block within a block.
pub(crate) fn encode_nested(
    array: &dyn Array,
    options: &Options,
    state: &mut State,
) -> Result<Vec<u8>> {
    encode_within(array, &Options { compression: Compression::None, ..*options }, state)
}

fn encode_within(array: &dyn Array, options: &Options, state: &mut State) -> Result<Vec<u8>> {
    let physical = Physical::of(array.data_type())?;
    if array.len() > crate::MAX_ROWS {
        return Err(Error::TooManyRows { rows: array.len() });
    }
    let mut out = vec![0; HEADER_BYTES];
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    if let Some(nulls) = nulls {
        bools::encode(nulls.inner(), options.cascade_depth, &mut out);
    }
    let validity_bytes = out.len() - HEADER_BYTES;
    match physical {
        Physical::List => nested::encode_list(array, nulls, options, state, &mut out)?,
        Physical::Struct => nested::encode_struct(array.as_struct(), options, state, &mut out)?,
        _ => values(array, physical, nulls, options.cascade_depth, state.table, &mut out)?,
    }
    let body_bytes = out.len() - HEADER_BYTES;
    if body_bytes > 2 * crate::MAX_BODY_BYTES {
        return Err(Error::TooManyBytes { bytes: body_bytes });
    }
    let (compression, stored) = compression::compress(&out[HEADER_BYTES..], options.compression);
    if let Some(stored) = stored {
        out.truncate(HEADER_BYTES);
        out.extend_from_slice(&stored);
    }
    out[..4].copy_from_slice(&[crate::block::VERSION, physical as u8, compression, 0]);
    for (slot, number) in [array.len(), validity_bytes, body_bytes].into_iter().enumerate() {
        out[4 + slot * 4..][..4].copy_from_slice(&(number as u32).to_le_bytes());
    }
    out.shrink_to_fit();
    Ok(out)
}

fn values(
    array: &dyn Array,
    physical: Physical,
    nulls: Option<&NullBuffer>,
    level: u8,
    table: &mut Option<Table>,
    out: &mut Vec<u8>,
) -> Result<()> {
    match physical {
        Physical::Boolean => {
            let array: &BooleanArray = array.as_boolean();
            // What lies under a null is nobody's: false compresses best.
            match nulls {
                Some(nulls) => bools::encode(&(array.values() & nulls.inner()), level, out),
                None => bools::encode(array.values(), level, out),
            }
        }
        Physical::Int8 => integers::<Int8Type, u8>(array, nulls, true, level, out),
        Physical::Int16 => integers::<Int16Type, u16>(array, nulls, true, level, out),
        Physical::Int32 => integers::<Int32Type, u32>(array, nulls, true, level, out),
        Physical::Int64 => integers::<Int64Type, u64>(array, nulls, true, level, out),
        Physical::UInt8 => integers::<UInt8Type, u8>(array, nulls, false, level, out),
        Physical::UInt16 => integers::<UInt16Type, u16>(array, nulls, false, level, out),
        Physical::UInt32 => integers::<UInt32Type, u32>(array, nulls, false, level, out),
        Physical::UInt64 => integers::<UInt64Type, u64>(array, nulls, false, level, out),
        Physical::Int128 => wide::encode(&filled::<Decimal128Type>(array, nulls), level, out),
        Physical::Float32 => floats::encode(&filled::<Float32Type>(array, nulls), level, out),
        Physical::Float64 => floats::encode(&filled::<Float64Type>(array, nulls), level, out),
        Physical::Utf8 | Physical::Binary => {
            strings::encode(&slices(array, nulls), level, table, out)?;
        }
        Physical::Interval => intervals::encode(array, nulls, level, out),
        Physical::List | Physical::Struct | Physical::Null => {}
    }
    Ok(())
}

fn integers<T: ArrowPrimitiveType, L: Lane + Pod>(
    array: &dyn Array,
    nulls: Option<&NullBuffer>,
    signed: bool,
    level: u8,
    out: &mut Vec<u8>,
) where
    T::Native: Pod,
{
    ints::encode::<L>(bytemuck::cast_slice(&filled::<T>(array, nulls)), signed, level, out);
}

/// The values, with nulls replaced by the valid value before them (the first one's, by the next).
pub(crate) fn filled<T: ArrowPrimitiveType>(
    array: &dyn Array,
    nulls: Option<&NullBuffer>,
) -> Vec<T::Native> {
    let values = native::<T>(array);
    let Some(nulls) = nulls else { return values.to_vec() };
    let first = nulls.valid_indices().next();
    let mut last = first.map_or(T::Native::usize_as(0), |row| values[row]);
    let fill = |(value, valid)| {
        last = if valid { value } else { last };
        last
    };
    values.iter().copied().zip(nulls.iter()).map(fill).collect()
}

/// The values of an array whose type has these native ones, whatever else it is; any under nulls.
pub(crate) fn native<T: ArrowPrimitiveType>(array: &dyn Array) -> ScalarBuffer<T::Native> {
    let data = array.to_data();
    ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len())
}

/// The bytes of every row; nulls are the only value if all valid ones are the same, else empty.
pub(crate) fn slices<'a>(array: &'a dyn Array, nulls: Option<&NullBuffer>) -> Vec<&'a [u8]> {
    let rows = 0..array.len();
    let any = array.as_any();
    let mut slices: Vec<&[u8]> = if let Some(array) = any.downcast_ref::<StringViewArray>() {
        rows.map(|row| array.value(row).as_bytes()).collect()
    } else if let Some(array) = any.downcast_ref::<BinaryViewArray>() {
        rows.map(|row| array.value(row)).collect()
    } else if let Some(array) = any.downcast_ref::<StringArray>() {
        rows.map(|row| array.value(row).as_bytes()).collect()
    } else if let Some(array) = any.downcast_ref::<LargeStringArray>() {
        rows.map(|row| array.value(row).as_bytes()).collect()
    } else if let Some(array) = any.downcast_ref::<BinaryArray>() {
        rows.map(|row| array.value(row)).collect()
    } else if let Some(array) = any.downcast_ref::<LargeBinaryArray>() {
        rows.map(|row| array.value(row)).collect()
    } else {
        let array = array.as_fixed_size_binary();
        rows.map(|row| array.value(row)).collect()
    };
    if let Some(nulls) = nulls {
        let first: &[u8] = nulls.valid_indices().next().map_or(&[], |row| slices[row]);
        let constant = nulls.valid_indices().all(|row| slices[row] == first);
        for (slice, valid) in slices.iter_mut().zip(nulls.iter()) {
            if !valid {
                *slice = if constant { first } else { &[] };
            }
        }
    }
    slices
}

/// An array of a primitive physical type as `data_type`, which has the same native values.
pub(crate) fn reinterpret<T: ArrowPrimitiveType>(
    array: &PrimitiveArray<T>,
    data_type: &DataType,
) -> ArrayRef {
    let data = array.to_data().into_builder().data_type(data_type.clone());
    arrow_array::make_array(data.build().expect("the same native type"))
}
