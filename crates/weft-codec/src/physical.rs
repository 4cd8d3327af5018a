//! Physical types, and which of Arrow's types are stored as which.

use std::fmt;

use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit};

use crate::error::{Error, Result, damaged};
use crate::nested::MAX_NESTING;

/// What the values of a block are; dates, times, timestamps and decimals are integers, and the largest
/// decimals, unions and dictionaries are nothing that a block holds.
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
    /// Months, days and nanoseconds.
    Interval = 14,
    /// Lists of values of one type.
    List = 15,
    /// Fields of several types.
    Struct = 16,
    /// Nothing but nulls.
    Null = 17,
}

const ALL: [Physical; 18] = [
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
    Physical::Interval,
    Physical::List,
    Physical::Struct,
    Physical::Null,
];

impl Physical {
    pub(crate) fn from_tag(tag: u8) -> Result<Self> {
        let physical = ALL.get(usize::from(tag)).copied();
        physical.ok_or_else(|| damaged("header", format!("unknown physical type {tag}")))
    }

    /// How values of an Arrow type are stored.
    ///
    /// # Errors
    /// [`Error::UnsupportedType`] for whatever has no physical type, has such a thing within it, or is
    /// nested more than eight deep.
    pub fn of(data_type: &DataType) -> Result<Self> {
        Self::within(data_type, 0)
    }

    fn within(data_type: &DataType, nesting: u8) -> Result<Self> {
        if nesting > MAX_NESTING {
            return Err(Error::UnsupportedType(data_type.clone()));
        }
        let within = |item: &Field| Self::within(item.data_type(), nesting + 1);
        Ok(match data_type {
            DataType::Boolean => Self::Boolean,
            DataType::Int8 => Self::Int8,
            DataType::Int16 => Self::Int16,
            DataType::Int32
            | DataType::Date32
            | DataType::Time32(_)
            | DataType::Interval(IntervalUnit::YearMonth)
            | DataType::Decimal32(..) => Self::Int32,
            DataType::Int64
            | DataType::Date64
            | DataType::Time64(TimeUnit::Microsecond | TimeUnit::Nanosecond)
            | DataType::Timestamp(..)
            | DataType::Duration(_)
            | DataType::Decimal64(..) => Self::Int64,
            DataType::UInt8 => Self::UInt8,
            DataType::UInt16 => Self::UInt16,
            DataType::UInt32 => Self::UInt32,
            DataType::UInt64 => Self::UInt64,
            DataType::Decimal128(..) => Self::Int128,
            DataType::Float32 => Self::Float32,
            DataType::Float64 => Self::Float64,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Utf8,
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(1..) => Self::Binary,
            DataType::Interval(_) => Self::Interval,
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::FixedSizeList(item, _)
            | DataType::Map(item, _) => {
                within(item)?;
                Self::List
            }
            DataType::Struct(fields) => {
                for field in fields {
                    within(field)?;
                }
                Self::Struct
            }
            DataType::Null => Self::Null,
            other => return Err(Error::UnsupportedType(other.clone())),
        })
    }
}

impl fmt::Display for Physical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
