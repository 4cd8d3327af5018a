//! The header of a block, one of its values, and its encodings as text.

use std::borrow::Cow;

use arrow_schema::{DataType, IntervalUnit};

use crate::error::{Error, Result, damaged};
use crate::nested::{self, Budget, List, MAX_NESTING};
use crate::physical::Physical;
use crate::reader::Reader;
use crate::scalar::Scalar;
use crate::{bools, compression, floats, intervals, ints, strings, tree, wide};

/// The first byte of every block.
pub(crate) const VERSION: u8 = 1;
/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 16;

/// A block whose header is checked and whose compression, if any, is undone.
#[derive(Debug)]
pub struct Block<'a> {
    physical: Physical,
    rows: usize,
    compression: u8,
    validity_bytes: usize,
    stored_bytes: usize,
    nesting: u8,
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
        let nesting = 0;
        Ok(Self { physical, rows, compression, validity_bytes, stored_bytes, nesting, body })
    }

    /// Opens a block that lies within `nesting` others. It is not compressed: else a few bytes could ask
    /// for the product of all ratios.
    pub(crate) fn open_nested(bytes: &'a [u8], nesting: u8) -> Result<Self> {
        if nesting > MAX_NESTING {
            return Err(damaged("nested", "blocks within blocks too deep"));
        }
        if bytes.get(2).is_some_and(|&compression| compression != 0) {
            return Err(damaged("nested", "a compressed block within a block"));
        }
        Ok(Self { nesting, ..Self::open(bytes)? })
    }

    /// In how many blocks this one lies.
    pub(crate) fn nesting(&self) -> u8 {
        self.nesting
    }

    /// The Arrow type that [`Block::decode`] gives: strings as views, 128-bit integers as
    /// `Decimal128(38, 0)`, all lists as `List`, fields named by their numbers.
    ///
    /// # Errors
    /// [`Error::Truncated`] or [`Error::Damaged`] if the bytes are not what an encoder wrote.
    pub fn data_type(&self) -> Result<DataType> {
        Ok(match self.physical {
            Physical::Boolean => DataType::Boolean,
            Physical::Int8 => DataType::Int8,
            Physical::Int16 => DataType::Int16,
            Physical::Int32 => DataType::Int32,
            Physical::Int64 => DataType::Int64,
            Physical::UInt8 => DataType::UInt8,
            Physical::UInt16 => DataType::UInt16,
            Physical::UInt32 => DataType::UInt32,
            Physical::UInt64 => DataType::UInt64,
            Physical::Int128 => DataType::Decimal128(38, 0),
            Physical::Float32 => DataType::Float32,
            Physical::Float64 => DataType::Float64,
            Physical::Utf8 => DataType::Utf8View,
            Physical::Binary => DataType::BinaryView,
            Physical::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Physical::List => nested::list_type(self)?,
            Physical::Struct => nested::struct_type(self)?,
            Physical::Null => DataType::Null,
        })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// What the values are.
    pub fn physical(&self) -> Physical {
        self.physical
    }

    /// Whether the body had to be decompressed.
    pub fn is_compressed(&self) -> bool {
        self.compression != 0
    }

    /// Bytes of the body, as they are without compression.
    pub fn body_bytes(&self) -> usize {
        self.body.len()
    }

    /// The block with a body of its own, which it has already if it was compressed.
    pub fn into_owned(self) -> Block<'static> {
        let Block { physical, rows, compression, validity_bytes, stored_bytes, nesting, body } =
            self;
        let body = Cow::Owned(body.into_owned());
        Block { physical, rows, compression, validity_bytes, stored_bytes, nesting, body }
    }

    pub(crate) fn node(&self) -> &[u8] {
        &self.body[self.validity_bytes..]
    }

    pub(crate) fn validity(&self) -> Option<&[u8]> {
        (self.validity_bytes > 0).then(|| &self.body[..self.validity_bytes])
    }

    /// Decodes one row without decoding the block: a packed integer by itself, a delta with the rest of
    /// its 1,024 values, runs with the ends of all runs, a string alone. (Compression, which covers the whole
    /// block, was undone by [`Block::open`].)
    ///
    /// # Errors
    /// [`Error::NoSuchRow`] beyond the end; [`Error::Truncated`] or [`Error::Damaged`] if the bytes are
    /// not what an encoder wrote.
    pub fn value(&self, row: usize) -> Result<Scalar> {
        self.value_of(row, &mut Budget::new())
    }

    pub(crate) fn value_of(&self, row: usize, budget: &mut Budget) -> Result<Scalar> {
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
            Physical::Interval => intervals::value(node, row, rows)?,
            Physical::List => List::open(node, self.nesting)?.value(row, rows, budget)?,
            Physical::Struct => nested::struct_value(self, row, budget)?,
            Physical::Null => Scalar::Null,
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
        self.describe_nodes(1, &mut out)?;
        Ok(out)
    }

    /// Appends the lines of validity and values, indented.
    pub(crate) fn describe_nodes(&self, indent: usize, out: &mut String) -> Result<()> {
        if let Some(validity) = self.validity() {
            tree::describe(validity, "validity", Physical::Boolean, self.rows, (0, indent), out)?;
        }
        match self.physical {
            Physical::List | Physical::Struct => tree::describe_nested(self, indent, out),
            Physical::Null => Ok(()),
            _ => tree::describe(self.node(), "values", self.physical, self.rows, (0, indent), out),
        }
    }
}
