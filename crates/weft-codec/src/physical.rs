//! Physical types, and which of Arrow's types are stored as which.

use std::fmt;

use arrow_schema::{DataType, TimeUnit};

use crate::error::{Error, Result, damaged};

/// What the values of a block are; dates, times, timestamps and decimals are integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Physical {
    /// One bit.
    Boolean = 0,
    /// Signed, 8 bits.
    Int8 = 1,
    /// Signed, 16 bits.
    Int16 = 2,
    /// Signed, 32 bits.
    Int32 = 3,
    /// Signed, 64 bits.
    Int64 = 4,
    /// Unsigned, 8 bits.
    UInt8 = 5,
    /// Unsigned, 16 bits.
    UInt16 = 6,
    /// Unsigned, 32 bits.
    UInt32 = 7,
    /// Unsigned, 64 bits.
    UInt64 = 8,
    /// Signed, 128 bits.
    Int128 = 9,
    /// IEEE 754, 32 bits.
    Float32 = 10,
    /// IEEE 754, 64 bits.
    Float64 = 11,
    /// UTF-8.
    Utf8 = 12,
    /// Any bytes.
    Binary = 13,
}

const ALL: [Physical; 14] = [
    Physical::Boolean,
    Physical::Int8,
    Physical::Int16,
    Physical::Int32,
    Physical::Int64,
    Physical::UInt8,
    Physical::UInt16,
    Physical::UInt32,
    Physical::UInt64,
    Physical::Int128,
    Physical::Float32,
    Physical::Float64,
    Physical::Utf8,
    Physical::Binary,
];

impl Physical {
    pub(crate) fn from_tag(tag: u8) -> Result<Self> {
        let physical = ALL.get(usize::from(tag)).copied();
        physical.ok_or_else(|| damaged("header", format!("unknown physical type {tag}")))
    }

    /// How values of an Arrow type are stored.
    ///
    /// # Errors
    /// [`Error::UnsupportedType`] for intervals, lists, structs and whatever else has no physical type.
    pub fn of(data_type: &DataType) -> Result<Self> {
        Ok(match data_type {
            DataType::Boolean => Self::Boolean,
            DataType::Int8 => Self::Int8,
            DataType::Int16 => Self::Int16,
            DataType::Int32 | DataType::Date32 | DataType::Time32(_) => Self::Int32,
            DataType::Int64
            | DataType::Date64
            | DataType::Time64(TimeUnit::Microsecond | TimeUnit::Nanosecond)
            | DataType::Timestamp(..)
            | DataType::Duration(_) => Self::Int64,
            DataType::UInt8 => Self::UInt8,
            DataType::UInt16 => Self::UInt16,
            DataType::UInt32 => Self::UInt32,
            DataType::UInt64 => Self::UInt64,
            DataType::Decimal128(..) => Self::Int128,
            DataType::Float32 => Self::Float32,
            DataType::Float64 => Self::Float64,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Utf8,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Self::Binary,
            other => return Err(Error::UnsupportedType(other.clone())),
        })
    }

    /// The Arrow type that [`crate::Block::decode`] gives.
    pub fn data_type(self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Int8 => DataType::Int8,
            Self::Int16 => DataType::Int16,
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::UInt8 => DataType::UInt8,
            Self::UInt16 => DataType::UInt16,
            Self::UInt32 => DataType::UInt32,
            Self::UInt64 => DataType::UInt64,
            Self::Int128 => DataType::Decimal128(38, 0),
            Self::Float32 => DataType::Float32,
            Self::Float64 => DataType::Float64,
            Self::Utf8 => DataType::Utf8View,
            Self::Binary => DataType::BinaryView,
        }
    }
}

impl fmt::Display for Physical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
