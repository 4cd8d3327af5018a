//! Lanes: the few kinds of values that steps compute with.
//!
//! SQL's types are many, what a processor does to them is not: a date is an `i32`, a timestamp an `i64`, a decimal an
//! integer whose scale whoever makes the program keeps in mind. A decimal lies in 64 bits where its digits or known
//! bounds permit, else in 128. Lists, structs and whatever else has no lane travels as text: the bytes that Arrow's row
//! format gives a value, which compare and hash as the value does.

use std::fmt;

use arrow_schema::{DataType, IntervalUnit};

use crate::text::Str;

/// What the values of a register are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// A byte that is 0 or 1.
    Bool,
    /// Signed, 8 bits. As the other lanes of less than 32 bits it is only copied, compared, hashed and cast.
    I8,
    /// Signed, 16 bits.
    I16,
    /// Signed, 32 bits: integers, dates, times in seconds or milliseconds.
    I32,
    /// Signed, 64 bits: integers, timestamps, times, durations, decimals of up to 18 digits.
    I64,
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits: integers, hashes, addresses of tuples.
    U64,
    /// Signed, 128 bits: decimals; intervals as the bits that Arrow gives them, which are not ordered.
    I128,
    /// IEEE 754, 32 bits.
    F32,
    /// IEEE 754, 64 bits.
    F64,
    /// Bytes: text, binary, and values without a lane of their own.
    Str,
}

impl Lane {
    /// All lanes.
    pub const ALL: [Lane; 13] = [
        Lane::Bool,
        Lane::I8,
        Lane::I16,
        Lane::I32,
        Lane::I64,
        Lane::U8,
        Lane::U16,
        Lane::U32,
        Lane::U64,
        Lane::I128,
        Lane::F32,
        Lane::F64,
        Lane::Str,
    ];

    /// True if all of its values are values of another, wider lane of integers, which has their signs.
    pub const fn widens_to(self, wide: Lane) -> bool {
        use Lane::{I8, I16, I32, I64, U8, U16, U32, U64};
        let is_signed = matches!((self, wide), (I8 | I16 | I32, I16 | I32 | I64));
        let is_unsigned = matches!((self, wide), (U8 | U16 | U32, U16 | U32 | U64));
        (is_signed || is_unsigned) && self.width() < wide.width()
    }

    /// Bytes of a value: in a vector, and in a tuple.
    pub const fn width(self) -> usize {
        match self {
            Lane::Bool | Lane::I8 | Lane::U8 => 1,
            Lane::I16 | Lane::U16 => 2,
            Lane::I32 | Lane::U32 | Lane::F32 => 4,
            Lane::I64 | Lane::U64 | Lane::F64 => 8,
            Lane::I128 | Lane::Str => 16,
        }
    }

    /// The lane that values of an Arrow type have, decimals in the one that holds all of their digits. A dictionary has
    /// that of its values.
    pub fn of(data_type: &DataType) -> Lane {
        match data_type {
            DataType::Boolean => Lane::Bool,
            DataType::Int8 => Lane::I8,
            DataType::Int16 => Lane::I16,
            DataType::Int32
            | DataType::Date32
            | DataType::Time32(_)
            | DataType::Decimal32(..)
            | DataType::Interval(IntervalUnit::YearMonth) => Lane::I32,
            DataType::Int64
            | DataType::Date64
            | DataType::Time64(_)
            | DataType::Timestamp(..)
            | DataType::Duration(_)
            | DataType::Decimal64(..)
            | DataType::Interval(IntervalUnit::DayTime) => Lane::I64,
            DataType::UInt8 => Lane::U8,
            DataType::UInt16 => Lane::U16,
            DataType::UInt32 => Lane::U32,
            DataType::UInt64 => Lane::U64,
            DataType::Decimal128(precision, _) if *precision <= DECIMAL_DIGITS_I64 => Lane::I64,
            DataType::Decimal128(..) | DataType::Interval(IntervalUnit::MonthDayNano) => Lane::I128,
            DataType::Float32 => Lane::F32,
            DataType::Float64 => Lane::F64,
            DataType::Dictionary(_, values) => Lane::of(values),
            _ => Lane::Str,
        }
    }

    /// True if values of the type lie in [`Lane::Str`] as Arrow's row format has them, and not as their own bytes.
    pub fn is_row_encoded(data_type: &DataType) -> bool {
        if let DataType::Dictionary(_, values) = data_type {
            return Lane::is_row_encoded(values);
        }
        Lane::of(data_type) == Lane::Str
            && !matches!(
                data_type,
                DataType::Utf8
                    | DataType::LargeUtf8
                    | DataType::Utf8View
                    | DataType::Binary
                    | DataType::LargeBinary
                    | DataType::BinaryView
                    | DataType::FixedSizeBinary(_)
            )
    }
}

/// Most decimal digits that always fit into 64 bits.
pub const DECIMAL_DIGITS_I64: u8 = 18;

impl fmt::Display for Lane {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Lane::Bool => "bool",
            Lane::I8 => "i8",
            Lane::I16 => "i16",
            Lane::I32 => "i32",
            Lane::I64 => "i64",
            Lane::U8 => "u8",
            Lane::U16 => "u16",
            Lane::U32 => "u32",
            Lane::U64 => "u64",
            Lane::I128 => "i128",
            Lane::F32 => "f32",
            Lane::F64 => "f64",
            Lane::Str => "str",
        })
    }
}

/// A truth value in a vector: 0 or 1.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, bytemuck::Zeroable, bytemuck::Pod,
)]
#[repr(transparent)]
pub struct Bool(pub u8);

impl From<bool> for Bool {
    fn from(value: bool) -> Bool {
        Bool(value.into())
    }
}

impl Bool {
    /// True or false.
    pub fn get(self) -> bool {
        self.0 != 0
    }
}

/// A Rust type whose values make up a lane.
pub trait Value:
    bytemuck::Pod + Default + PartialEq + std::fmt::Debug + Send + Sync + 'static
{
    /// Which lane.
    const LANE: Lane;
}

macro_rules! values {
    ($($value:ty => $lane:ident),*) => {
        $(impl Value for $value {
            const LANE: Lane = Lane::$lane;
        })*
    };
}

values!(Bool => Bool, i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32,
    u64 => U64, i128 => I128, f32 => F32, f64 => F64, Str => Str);

/// Evaluates an expression with a type name bound to the Rust type of a lane, which is one of those listed, or else
/// another expression.
#[doc(hidden)]
#[macro_export]
macro_rules! for_lanes {
    ($lane:expr, $value:ident => $body:expr, [$($name:ident: $type:ty),*] $(, else $other:expr)?) => {
        match $lane {
            $($crate::Lane::$name => {
                type $value = $type;
                $body
            })*
            $(_ => $other,)?
        }
    };
}

/// Evaluates an expression with a type name bound to the Rust type of a lane.
#[macro_export]
macro_rules! for_lane {
    ($lane:expr, $value:ident => $body:expr) => {
        $crate::for_lanes!($lane, $value => $body, [
            Bool: $crate::lane::Bool, I8: i8, I16: i16, I32: i32, I64: i64, U8: u8, U16: u16, U32: u32, U64: u64,
            I128: i128, F32: f32, F64: f64, Str: $crate::Str
        ])
    };
}

/// As [`for_lane`], for a lane of numbers.
///
/// # Panics
/// If it is another lane.
macro_rules! for_number {
    ($lane:expr, $value:ident => $body:expr) => {
        $crate::for_lanes!($lane, $value => $body, [
            I8: i8, I16: i16, I32: i32, I64: i64, U8: u8, U16: u16, U32: u32, U64: u64, I128: i128, F32: f32, F64: f64
        ], else panic!("{} is no lane of numbers", $lane))
    };
}

/// As [`for_lane`], for a lane whose values have bits.
///
/// # Panics
/// If it is another lane.
macro_rules! for_integer {
    ($lane:expr, $value:ident => $body:expr) => {
        $crate::for_lanes!($lane, $value => $body, [
            I8: i8, I16: i16, I32: i32, I64: i64, U8: u8, U16: u16, U32: u32, U64: u64, I128: i128
        ], else panic!("{} has no bits", $lane))
    };
}

/// As [`for_lane`], for a lane of integers of 64 bits at most, or else another expression.
macro_rules! for_short_integer {
    ($lane:expr, $value:ident => $body:expr, else $other:expr) => {
        $crate::for_lanes!($lane, $value => $body, [
            I8: i8, I16: i16, I32: i32, I64: i64, U8: u8, U16: u16, U32: u32, U64: u64
        ], else $other)
    };
}

/// Evaluates an expression with type names bound to the Rust types of a lane and of a narrower one that
/// [widens to it](Lane::widens_to).
///
/// # Panics
/// If it does not.
macro_rules! for_narrow {
    (@ $wide:expr, $narrow:expr, $value:ident, $stored:ident, $body:expr,
     [$($wide_name:ident: $wide_type:ty, $narrow_name:ident: $narrow_type:ty);*]) => {
        match ($wide, $narrow) {
            $(($crate::Lane::$wide_name, $crate::Lane::$narrow_name) => {
                type $value = $wide_type;
                type $stored = $narrow_type;
                $body
            })*
            (wide, narrow) => panic!("{narrow} does not widen to {wide}"),
        }
    };
    ($wide:expr, $narrow:expr, $value:ident, $stored:ident => $body:expr) => {
        $crate::lane::for_narrow!(@ $wide, $narrow, $value, $stored, $body, [
            I64: i64, I32: i32; I64: i64, I16: i16; I64: i64, I8: i8; I32: i32, I16: i16; I32: i32, I8: i8;
            I16: i16, I8: i8; U64: u64, U32: u32; U64: u64, U16: u16; U64: u64, U8: u8; U32: u32, U16: u16;
            U32: u32, U8: u8; U16: u16, U8: u8
        ])
    };
}

pub(crate) use {for_integer, for_narrow, for_number, for_short_integer};
