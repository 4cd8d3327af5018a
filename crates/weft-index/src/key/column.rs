//! The forms of a key's columns.
//!
//! | values | bytes |
//! | --- | --- |
//! | integers, decimals, dates, times, timestamps, durations | big-endian, of signed ones the top bit turned |
//! | floats | bits, big-endian: of negative ones all turned, of others the top bit; one NaN, above all, one zero |
//! | booleans | one byte, 0 or 1 |
//! | intervals | their length: months if they have nothing else, milliseconds, or nanoseconds; 30 days a month |
//! | text, binary | the bytes, each 0 as 0 255; then 0 0 |
//! | binary of fixed size | the bytes |
//!
//! A descending column has all these bytes turned. A column that may hold NULLs has a byte before: 1, of
//! a NULL, which has nothing else, 0 or 2.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type,
    Decimal256Type, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType,
    DurationSecondType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    IntervalDayTimeType, IntervalMonthDayNanoType, IntervalYearMonthType, Time32MillisecondType,
    Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, FixedSizeBinaryArray,
    LargeBinaryArray, LargeStringArray, PrimitiveArray, StringArray, StringViewArray,
};
use arrow_buffer::{IntervalDayTime, IntervalMonthDayNano, NullBuffer, i256};
use arrow_schema::{DataType, IntervalUnit, TimeUnit};

use super::KeyColumn;
use crate::error::IndexError;

/// The byte before a value that might have been a NULL.
pub(super) const VALUE: u8 = 1;
const NULL_FIRST: u8 = 0;
const NULL_LAST: u8 = 2;

const MILLISECONDS_PER_DAY: i64 = 86_400_000;
const NANOSECONDS_PER_DAY: i128 = 86_400_000_000_000;
const DAYS_PER_MONTH: i128 = 30;

/// The values of one column, ready to be appended row by row.
pub(super) struct ColumnValues<'a> {
    values: Values<'a>,
    nulls: Option<NullBuffer>,
    column: &'a KeyColumn,
}

/// Appends the bytes of the value of a row.
type Append<'a> = Box<dyn Fn(usize, &mut Vec<u8>) + 'a>;

enum Values<'a> {
    Int32(&'a [i32]),
    Int64(&'a [i64]),
    Other(Append<'a>),
}

/// A native value as bytes of fixed length that sort as the values do.
trait Ordered: Copy {
    fn append(self, bytes: &mut Vec<u8>);
}

macro_rules! ordered_integers {
    ($($signed:ty, $unsigned:ty);*) => {$(
        impl Ordered for $signed {
            #[inline]
            fn append(self, bytes: &mut Vec<u8>) {
                let turned = self as $unsigned ^ (1 << (<$unsigned>::BITS - 1));
                bytes.extend_from_slice(&turned.to_be_bytes());
            }
        }
        impl Ordered for $unsigned {
            #[inline]
            fn append(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_be_bytes());
            }
        }
    )*};
}

ordered_integers!(i8, u8; i16, u16; i32, u32; i64, u64; i128, u128);

impl Ordered for i256 {
    fn append(self, bytes: &mut Vec<u8>) {
        let mut turned = self.to_be_bytes();
        turned[0] ^= 0x80;
        bytes.extend_from_slice(&turned);
    }
}

macro_rules! ordered_floats {
    ($($float:ty, $bits:ty);*) => {$(
        impl Ordered for $float {
            fn append(self, bytes: &mut Vec<u8>) {
                let one_of_its_kind = if self.is_nan() {
                    <$float>::NAN.abs()
                } else if self == 0.0 {
                    0.0
                } else {
                    self
                };
                let bits = one_of_its_kind.to_bits();
                let top = 1 << (<$bits>::BITS - 1);
                let turned = if bits & top == 0 { bits ^ top } else { !bits };
                bytes.extend_from_slice(&turned.to_be_bytes());
            }
        }
    )*};
}

ordered_floats!(f32, u32; f64, u64);

impl Ordered for IntervalDayTime {
    fn append(self, bytes: &mut Vec<u8>) {
        let days = i64::from(self.days) * MILLISECONDS_PER_DAY;
        (days + i64::from(self.milliseconds)).append(bytes);
    }
}

impl Ordered for IntervalMonthDayNano {
    fn append(self, bytes: &mut Vec<u8>) {
        let days = i128::from(self.months) * DAYS_PER_MONTH + i128::from(self.days);
        (days * NANOSECONDS_PER_DAY + i128::from(self.nanoseconds)).append(bytes);
    }
}

/// As [`KeyColumn::is_comparable`].
pub(super) fn is_comparable(data_type: &DataType) -> bool {
    use DataType::{
        Binary, BinaryView, Boolean, Date32, Date64, Decimal32, Decimal64, Decimal128, Decimal256,
        Duration, FixedSizeBinary, Float32, Float64, Int8, Int16, Int32, Int64, Interval,
        LargeBinary, LargeUtf8, Time32, Time64, Timestamp, UInt8, UInt16, UInt32, UInt64, Utf8,
        Utf8View,
    };
    match data_type {
        Time32(unit) => matches!(unit, TimeUnit::Second | TimeUnit::Millisecond),
        Time64(unit) => matches!(unit, TimeUnit::Microsecond | TimeUnit::Nanosecond),
        Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 => true,
        Float32 | Float64 | Date32 | Date64 | Timestamp(..) | Duration(_) | Interval(_) => true,
        Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) => true,
        Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView => true,
        FixedSizeBinary(_) => true,
        _ => false,
    }
}

impl<'a> ColumnValues<'a> {
    /// The values of `array`, which is of the column's type.
    pub(super) fn new(
        array: &'a ArrayRef,
        column: &'a KeyColumn,
    ) -> Result<ColumnValues<'a>, IndexError> {
        let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        Ok(ColumnValues { values: Values::new(array)?, nulls, column })
    }

    /// Appends the form of a row's value.
    #[inline]
    pub(super) fn append(&self, row: usize, bytes: &mut Vec<u8>) {
        if self.column.is_nullable {
            if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                bytes.push(if self.column.nulls_first { NULL_FIRST } else { NULL_LAST });
                return;
            }
            bytes.push(VALUE);
        }
        let start = bytes.len();
        match &self.values {
            Values::Int32(values) => values[row].append(bytes),
            Values::Int64(values) => values[row].append(bytes),
            Values::Other(append) => append(row, bytes),
        }
        if self.column.is_descending {
            bytes[start..].iter_mut().for_each(|byte| *byte = !*byte);
        }
    }
}

impl<'a> Values<'a> {
    fn new(array: &'a ArrayRef) -> Result<Values<'a>, IndexError> {
        use DataType as T;
        let other = match array.data_type() {
            T::Int32 => return Ok(Values::Int32(array.as_primitive::<Int32Type>().values())),
            T::Date32 => return Ok(Values::Int32(array.as_primitive::<Date32Type>().values())),
            T::Int64 => return Ok(Values::Int64(array.as_primitive::<Int64Type>().values())),
            T::Boolean => booleans(array.as_boolean()),
            T::Int8 => natives(array.as_primitive::<Int8Type>()),
            T::Int16 => natives(array.as_primitive::<Int16Type>()),
            T::UInt8 => natives(array.as_primitive::<UInt8Type>()),
            T::UInt16 => natives(array.as_primitive::<UInt16Type>()),
            T::UInt32 => natives(array.as_primitive::<UInt32Type>()),
            T::UInt64 => natives(array.as_primitive::<UInt64Type>()),
            T::Float32 => natives(array.as_primitive::<Float32Type>()),
            T::Float64 => natives(array.as_primitive::<Float64Type>()),
            T::Decimal32(..) => natives(array.as_primitive::<Decimal32Type>()),
            T::Decimal64(..) => natives(array.as_primitive::<Decimal64Type>()),
            T::Decimal128(..) => natives(array.as_primitive::<Decimal128Type>()),
            T::Decimal256(..) => natives(array.as_primitive::<Decimal256Type>()),
            T::Date64 => natives(array.as_primitive::<Date64Type>()),
            T::Interval(IntervalUnit::YearMonth) => {
                natives(array.as_primitive::<IntervalYearMonthType>())
            }
            T::Interval(IntervalUnit::DayTime) => {
                natives(array.as_primitive::<IntervalDayTimeType>())
            }
            T::Interval(IntervalUnit::MonthDayNano) => {
                natives(array.as_primitive::<IntervalMonthDayNanoType>())
            }
            T::Time32(_) | T::Time64(_) | T::Timestamp(..) | T::Duration(_) => times(array)?,
            _ => bytes_of(array)?,
        };
        Ok(Values::Other(other))
    }
}

fn natives<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>) -> Append<'_>
where
    T::Native: Ordered,
{
    let values = array.values();
    Box::new(move |row, bytes| values[row].append(bytes))
}

fn booleans(array: &BooleanArray) -> Append<'_> {
    Box::new(move |row, bytes| bytes.push(u8::from(array.value(row))))
}

fn times(array: &ArrayRef) -> Result<Append<'_>, IndexError> {
    use DataType::{Duration, Time32, Time64, Timestamp};
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    Ok(match array.data_type() {
        Time32(Second) => natives(array.as_primitive::<Time32SecondType>()),
        Time32(Millisecond) => natives(array.as_primitive::<Time32MillisecondType>()),
        Time64(Microsecond) => natives(array.as_primitive::<Time64MicrosecondType>()),
        Time64(Nanosecond) => natives(array.as_primitive::<Time64NanosecondType>()),
        Timestamp(Second, _) => natives(array.as_primitive::<TimestampSecondType>()),
        Timestamp(Millisecond, _) => natives(array.as_primitive::<TimestampMillisecondType>()),
        Timestamp(Microsecond, _) => natives(array.as_primitive::<TimestampMicrosecondType>()),
        Timestamp(Nanosecond, _) => natives(array.as_primitive::<TimestampNanosecondType>()),
        Duration(Second) => natives(array.as_primitive::<DurationSecondType>()),
        Duration(Millisecond) => natives(array.as_primitive::<DurationMillisecondType>()),
        Duration(Microsecond) => natives(array.as_primitive::<DurationMicrosecondType>()),
        Duration(Nanosecond) => natives(array.as_primitive::<DurationNanosecondType>()),
        other => return Err(IndexError::KeyType { data_type: other.clone() }),
    })
}

fn bytes_of(array: &ArrayRef) -> Result<Append<'_>, IndexError> {
    let array: &dyn Array = array;
    Ok(match array.data_type() {
        DataType::Utf8 => {
            let array: &StringArray = array.as_string();
            Box::new(move |row, bytes| append_escaped(array.value(row).as_bytes(), bytes))
        }
        DataType::LargeUtf8 => {
            let array: &LargeStringArray = array.as_string();
            Box::new(move |row, bytes| append_escaped(array.value(row).as_bytes(), bytes))
        }
        DataType::Utf8View => {
            let array: &StringViewArray = array.as_string_view();
            Box::new(move |row, bytes| append_escaped(array.value(row).as_bytes(), bytes))
        }
        DataType::Binary => {
            let array: &BinaryArray = array.as_binary();
            Box::new(move |row, bytes| append_escaped(array.value(row), bytes))
        }
        DataType::LargeBinary => {
            let array: &LargeBinaryArray = array.as_binary();
            Box::new(move |row, bytes| append_escaped(array.value(row), bytes))
        }
        DataType::BinaryView => {
            let array: &BinaryViewArray = array.as_binary_view();
            Box::new(move |row, bytes| append_escaped(array.value(row), bytes))
        }
        DataType::FixedSizeBinary(_) => {
            let array: &FixedSizeBinaryArray = array.as_fixed_size_binary();
            Box::new(move |row, bytes| bytes.extend_from_slice(array.value(row)))
        }
        other => return Err(IndexError::KeyType { data_type: other.clone() }),
    })
}

/// Appends a text so that one that begins with another comes after it, whatever follows the two.
fn append_escaped(value: &[u8], bytes: &mut Vec<u8>) {
    for (index, piece) in value.split(|&byte| byte == 0).enumerate() {
        if index > 0 {
            bytes.extend_from_slice(&[0, u8::MAX]);
        }
        bytes.extend_from_slice(piece);
    }
    bytes.extend_from_slice(&[0, 0]);
}
