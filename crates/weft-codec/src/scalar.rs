//! One value of a column by itself: what point reads give, zones keep, and predicates compare with.

use std::cmp::Ordering;

use crate::error::{Result, damaged};
use crate::nested::MAX_NESTING;
use crate::reader::{Reader, put};

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
    /// An interval; shorter kinds of Arrow's are the same with zeros.
    Interval {
        /// Months.
        months: i32,
        /// Days.
        days: i32,
        /// Nanoseconds.
        nanoseconds: i64,
    },
    /// The items of a list.
    List(Vec<Scalar>),
    /// The fields of a struct, in order.
    Struct(Vec<Scalar>),
}

/// 0.0 for both zeros.
pub(crate) fn one_zero32(value: f32) -> f32 {
    if value == 0.0 { 0.0 } else { value }
}

/// 0.0 for both zeros.
pub(crate) fn one_zero64(value: f64) -> f64 {
    if value == 0.0 { 0.0 } else { value }
}

/// What errors call the bytes of a scalar or a zone. are not those of a scalar or a zone.
pub(crate) const WHERE: &str = "scalar";

impl Scalar {
    /// The order of two values of one type: booleans with false first, integers of any width and sign
    /// as numbers, bytes as bytes, floats in the total order of IEEE 754 (as Arrow's kernels have it: NaN
    /// is the greatest, or with its sign bit set the least) except that -0.0 equals 0.0 (as DataFusion
    /// has it). Nothing for nulls, for values of different types, and for
    /// intervals, lists and structs.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        Some(match (self, other) {
            (Self::Boolean(a), Self::Boolean(b)) => a.cmp(b),
            (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
            (Self::Float32(a), Self::Float32(b)) => one_zero32(*a).total_cmp(&one_zero32(*b)),
            (Self::Float64(a), Self::Float64(b)) => one_zero64(*a).total_cmp(&one_zero64(*b)),
            _ => self.integer()?.cmp(&other.integer()?),
        })
    }

    /// The value as a number, if it is an integer.
    pub(crate) fn integer(&self) -> Option<i128> {
        match *self {
            Self::Int(value) => Some(value.into()),
            Self::UInt(value) => Some(value.into()),
            Self::Int128(value) => Some(value),
            _ => None,
        }
    }

    /// Appends the value as bytes that [`Scalar::read`] understands.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.push(0),
            Self::Boolean(value) => out.extend_from_slice(&[1, u8::from(*value)]),
            Self::Int(value) => tagged(2, *value, out),
            Self::UInt(value) => tagged(3, *value, out),
            Self::Int128(value) => tagged(4, *value, out),
            Self::Float32(value) => tagged(5, *value, out),
            Self::Float64(value) => tagged(6, *value, out),
            Self::Bytes(value) => {
                tagged(7, u64::try_from(value.len()).expect("lengths have 64 bits"), out);
                out.extend_from_slice(value);
            }
            Self::Interval { months, days, nanoseconds } => {
                tagged(8, *months, out);
                put(out, *days);
                put(out, *nanoseconds);
            }
            Self::List(values) => many(9, values, out),
            Self::Struct(values) => many(10, values, out),
        }
    }

    /// Reads one value from the front of `bytes`, and leaves what follows.
    ///
    /// # Errors
    /// [`crate::Error::Truncated`] or [`crate::Error::Damaged`] if no [`Scalar::write`] wrote these bytes.
    pub fn read(bytes: &mut &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, WHERE);
        let value = Self::read_from(&mut reader, 0)?;
        *bytes = reader.rest();
        Ok(value)
    }

    /// Reads one value that lies within `nesting` others.
    pub(crate) fn read_from(reader: &mut Reader, nesting: u8) -> Result<Self> {
        Ok(match reader.value::<u8>()? {
            0 => Self::Null,
            1 => match reader.value::<u8>()? {
                byte @ (0 | 1) => Self::Boolean(byte == 1),
                byte => return Err(damaged(WHERE, format!("boolean {byte}"))),
            },
            2 => Self::Int(reader.value()?),
            3 => Self::UInt(reader.value()?),
            4 => Self::Int128(reader.value()?),
            5 => Self::Float32(reader.value()?),
            6 => Self::Float64(reader.value()?),
            7 => {
                let len = usize::try_from(reader.value::<u64>()?).unwrap_or(usize::MAX);
                Self::Bytes(reader.take(len)?.to_vec())
            }
            8 => Self::Interval {
                months: reader.value()?,
                days: reader.value()?,
                nanoseconds: reader.value()?,
            },
            tag @ (9 | 10) => {
                if nesting >= MAX_NESTING {
                    return Err(damaged(WHERE, "nested too deep"));
                }
                let mut values = Vec::new();
                for _ in 0..reader.length()? {
                    values.push(Self::read_from(reader, nesting + 1)?);
                }
                if tag == 9 { Self::List(values) } else { Self::Struct(values) }
            }
            tag => return Err(damaged(WHERE, format!("unknown kind {tag}"))),
        })
    }
}

fn tagged<T: bytemuck::NoUninit>(tag: u8, value: T, out: &mut Vec<u8>) {
    out.push(tag);
    put(out, value);
}

fn many(tag: u8, values: &[Scalar], out: &mut Vec<u8>) {
    tagged(tag, u32::try_from(values.len()).expect("blocks hold fewer values"), out);
    values.iter().for_each(|value| value.write(out));
}
