//! From the bytes of a block to an Arrow array, or to one of its values.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::{ArrayRef, ArrowPrimitiveType, BinaryViewArray, BooleanArray, PrimitiveArray};
use arrow_array::{StringViewArray, types::*};
use arrow_buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;

use crate::encode::reinterpret;
use crate::error::{Error, Result, damaged};
use crate::lane::Lane;
use crate::physical::Physical;
use crate::reader::Reader;
use crate::strings::Views;
use crate::{bools, compression, floats, ints, strings, tree, wide};

/// The first byte of every block.
pub(crate) const VERSION: u8 = 1;
/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 16;

/// One value of a block.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    /// No value.
    Null,
    /// A boolean.
    Boolean(bool),
    /// A signed integer of up to 64 bits.
    Int(i64),
    /// An unsigned integer of up to 64 bits.
    UInt(u64),
    /// A 128-bit integer (a decimal without its scale).
    Int128(i128),
    /// A 32-bit float.
    Float32(f32),
    /// A 64-bit float.
    Float64(f64),
    /// The bytes of a string or binary; UTF-8 is not checked.
    Bytes(Vec<u8>),
}

/// A block whose header is checked and whose compression, if any, is undone.
#[derive(Debug)]
pub struct Block<'a> {
    physical: Physical,
    rows: usize,
    compression: u8,
    validity_bytes: usize,
    stored_bytes: usize,
    body: Cow<'a, [u8]>,
}

impl<'a> Block<'a> {
    /// Reads the header of `bytes`, which are exactly one block.
    ///
    /// # Errors
    /// [`Error::Truncated`] or [`Error::Damaged`] if these are not the bytes of a block.
    pub fn open(bytes: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "header");
        let [version, physical, compression, zero] = reader.value::<[u8; 4]>()?;
        if version != VERSION || zero != 0 {
            return Err(damaged("header", format!("format version {version}.{zero}")));
        }
        let physical = Physical::from_tag(physical)?;
        let rows = reader.length()?;
        if rows > crate::MAX_ROWS {
            return Err(damaged("header", format!("{rows} rows")));
        }
        let validity_bytes = reader.length()?;
        let body_bytes = reader.length()?;
        if validity_bytes > body_bytes {
            return Err(damaged("header", format!("{validity_bytes} bytes of validity")));
        }
        let body = compression::decompress(compression, reader.rest(), body_bytes)?;
        let stored_bytes = bytes.len();
        Ok(Self { physical, rows, compression, validity_bytes, stored_bytes, body })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// What the values are.
    pub fn physical(&self) -> Physical {
        self.physical
    }

    fn node(&self) -> &[u8] {
        &self.body[self.validity_bytes..]
    }

    fn validity(&self) -> Option<&[u8]> {
        (self.validity_bytes > 0).then(|| &self.body[..self.validity_bytes])
    }

    /// Decodes all rows, as the physical type's own Arrow type (strings as views, 128-bit integers as
    /// `Decimal128(38, 0)`).
    ///
    /// # Errors
    /// [`Error::Truncated`] or [`Error::Damaged`] if the bytes are not what an encoder wrote.
    pub fn decode(&self) -> Result<ArrayRef> {
        self.decode_as(&self.physical.data_type())
    }

    /// Decodes all rows as `data_type`: a date, timestamp, decimal, or the physical type itself.
    ///
    /// # Errors
    /// [`Error::WrongType`] if the block holds something else or `data_type` is a string type other
    /// than a view; [`Error::Truncated`] or [`Error::Damaged`] if the bytes are not what an encoder wrote.
    pub fn decode_as(&self, data_type: &DataType) -> Result<ArrayRef> {
        let views = matches!(self.physical, Physical::Utf8 | Physical::Binary);
        if Physical::of(data_type)? != self.physical
            || views && *data_type != self.physical.data_type()
        {
            let requested = data_type.clone();
            return Err(Error::WrongType { physical: self.physical, requested });
        }
        let (node, rows) = (self.node(), self.rows);
        let nulls = match self.validity() {
            Some(node) => Some(NullBuffer::new(bools::decode(node, rows)?)),
            None => None,
        };
        Ok(match self.physical {
            Physical::Boolean => Arc::new(BooleanArray::new(bools::decode(node, rows)?, nulls)),
            Physical::Int8 => self.integers::<Int8Type, u8>(nulls, data_type)?,
            Physical::Int16 => self.integers::<Int16Type, u16>(nulls, data_type)?,
            Physical::Int32 => self.integers::<Int32Type, u32>(nulls, data_type)?,
            Physical::Int64 => self.integers::<Int64Type, u64>(nulls, data_type)?,
            Physical::UInt8 => self.integers::<UInt8Type, u8>(nulls, data_type)?,
            Physical::UInt16 => self.integers::<UInt16Type, u16>(nulls, data_type)?,
            Physical::UInt32 => self.integers::<UInt32Type, u32>(nulls, data_type)?,
            Physical::UInt64 => self.integers::<UInt64Type, u64>(nulls, data_type)?,
            Physical::Int128 => primitive::<Decimal128Type>(
                Buffer::from(wide::decode(node, rows)?),
                nulls,
                data_type,
            ),
            Physical::Float32 => primitive::<Float32Type>(
                Buffer::from(floats::decode::<f32>(node, rows)?),
                nulls,
                data_type,
            ),
            Physical::Float64 => primitive::<Float64Type>(
                Buffer::from(floats::decode::<f64>(node, rows)?),
                nulls,
                data_type,
            ),
            Physical::Utf8 => string_view(strings::decode(node, rows, true, 0)?, nulls),
            Physical::Binary => binary_view(strings::decode(node, rows, false, 0)?, nulls),
        })
    }

    fn integers<T: ArrowPrimitiveType, L: Lane>(
        &self,
        nulls: Option<NullBuffer>,
        data_type: &DataType,
    ) -> Result<ArrayRef>
    where
        Buffer: From<Vec<L>>,
    {
        let values = ints::decode::<L>(self.node(), self.rows, 0)?;
        Ok(primitive::<T>(Buffer::from(values), nulls, data_type))
    }

    /// Decodes one row without decoding the block: a packed integer by itself, a delta with the rest of
    /// its 1,024 values, runs with the ends of all runs, a string alone. (Compression, which covers the whole
    /// block, was undone by [`Block::open`].)
    ///
    /// # Errors
    /// [`Error::NoSuchRow`] beyond the end; [`Error::Truncated`] or [`Error::Damaged`] if the bytes are
    /// not what an encoder wrote.
    pub fn value(&self, row: usize) -> Result<Scalar> {
        let (node, rows) = (self.node(), self.rows);
        if row >= rows {
            return Err(Error::NoSuchRow { row, rows });
        }
        if let Some(validity) = self.validity()
            && !bools::value(validity, row, rows)?
        {
            return Ok(Scalar::Null);
        }
        Ok(match self.physical {
            Physical::Boolean => Scalar::Boolean(bools::value(node, row, rows)?),
            Physical::Int8 => Scalar::Int((ints::value::<u8>(node, row, rows, 0)? as i8).into()),
            Physical::Int16 => Scalar::Int((ints::value::<u16>(node, row, rows, 0)? as i16).into()),
            Physical::Int32 => Scalar::Int((ints::value::<u32>(node, row, rows, 0)? as i32).into()),
            Physical::Int64 => Scalar::Int(ints::value::<u64>(node, row, rows, 0)? as i64),
            Physical::UInt8 => Scalar::UInt(ints::value::<u8>(node, row, rows, 0)?.into()),
            Physical::UInt16 => Scalar::UInt(ints::value::<u16>(node, row, rows, 0)?.into()),
            Physical::UInt32 => Scalar::UInt(ints::value::<u32>(node, row, rows, 0)?.into()),
            Physical::UInt64 => Scalar::UInt(ints::value::<u64>(node, row, rows, 0)?),
            Physical::Int128 => Scalar::Int128(wide::value(node, row, rows)?),
            Physical::Float32 => Scalar::Float32(floats::value(node, row, rows)?),
            Physical::Float64 => Scalar::Float64(floats::value(node, row, rows)?),
            Physical::Utf8 | Physical::Binary => {
                Scalar::Bytes(strings::value(node, row, rows, 0)?.into_owned())
            }
        })
    }

    /// The encodings as text, a node per line with its bytes, children indented.
    ///
    /// # Errors
    /// [`Error::Truncated`] or [`Error::Damaged`] if the bytes are not what an encoder wrote.
    pub fn describe(&self) -> Result<String> {
        let compression = compression::name(self.compression);
        let mut out = format!(
            "{}: {} rows, {} bytes, compression {compression}\n",
            self.physical, self.rows, self.stored_bytes
        );
        if let Some(validity) = self.validity() {
            tree::describe(validity, "validity", Physical::Boolean, self.rows, 1, &mut out)?;
        }
        tree::describe(self.node(), "values", self.physical, self.rows, 1, &mut out)?;
        Ok(out)
    }
}

fn primitive<T: ArrowPrimitiveType>(
    values: Buffer,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> ArrayRef {
    let array = PrimitiveArray::<T>::new(ScalarBuffer::from(values), nulls);
    if *data_type == T::DATA_TYPE { Arc::new(array) } else { reinterpret(&array, data_type) }
}

fn string_view(strings: Views, nulls: Option<NullBuffer>) -> ArrayRef {
    let buffers = [Buffer::from(strings.bytes)];
    // SAFETY: `strings::views` made every view from a range of the one buffer, on boundaries of
    // characters of its valid UTF-8; there is a view and a validity bit per row.
    Arc::new(unsafe { StringViewArray::new_unchecked(strings.views.into(), buffers, nulls) })
}

fn binary_view(strings: Views, nulls: Option<NullBuffer>) -> ArrayRef {
    let buffers = [Buffer::from(strings.bytes)];
    // SAFETY: `strings::views` made every view from a range of the one buffer; there is a view and a
    // validity bit per row.
    Arc::new(unsafe { BinaryViewArray::new_unchecked(strings.views.into(), buffers, nulls) })
}
