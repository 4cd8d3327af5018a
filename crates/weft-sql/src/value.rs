//! Values of parameters.

use arrow::array::PrimitiveArray;
use arrow::array::types::{ArrowPrimitiveType, Decimal128Type, DecimalType};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::hex::hex_digits;

/// A value for a parameter of a prepared statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// NULL.
    Null,
    /// TRUE or FALSE.
    Boolean(bool),
    /// Any signed integer.
    Integer(i64),
    /// Any unsigned integer.
    Unsigned(u64),
    /// A floating-point number.
    Double(f64),
    /// A decimal number: digits without the point, precision (at most 38) and scale.
    Decimal(i128, u8, i8),
    /// Text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
    /// Days since 1970-01-01.
    Date(i32),
    /// Microseconds since midnight.
    Time(i64),
    /// Microseconds since 1970-01-01, without a time zone.
    Timestamp(i64),
    /// Microseconds since 1970-01-01 UTC.
    TimestampUtc(i64),
    /// Months, days and nanoseconds.
    Interval(i32, i32, i64),
    /// Values of one type.
    List(Vec<Value>),
    /// Values with names.
    Struct(Vec<(String, Value)>),
}

impl Value {
    /// The value as an expression of SQL that has its type.
    pub(crate) fn sql(&self) -> String {
        use arrow::array::types::{Date32Type, Time64MicrosecondType, TimestampMicrosecondType};
        match self {
            Value::Null => "NULL".to_owned(),
            Value::Boolean(value) => value.to_string().to_uppercase(),
            Value::Integer(value) => format!("CAST('{value}' AS BIGINT)"),
            Value::Unsigned(value) => format!("CAST('{value}' AS BIGINT UNSIGNED)"),
            Value::Double(value) => format!("CAST('{value}' AS DOUBLE)"),
            Value::Decimal(value, precision, scale) => {
                let text = Decimal128Type::format_decimal(*value, *precision, *scale);
                format!("CAST('{text}' AS DECIMAL({precision}, {scale}))")
            }
            Value::Text(value) => format!("CAST('{}' AS VARCHAR)", value.replace('\'', "''")),
            Value::Blob(value) => format!("CAST(X'{}' AS BLOB)", hex_digits(value)),
            Value::Date(value) => format!("CAST('{}' AS DATE)", text::<Date32Type>(*value)),
            Value::Time(value) => {
                format!("CAST('{}' AS TIME)", text::<Time64MicrosecondType>(*value))
            }
            Value::Timestamp(value) => {
                format!("CAST('{}' AS TIMESTAMP)", text::<TimestampMicrosecondType>(*value))
            }
            Value::TimestampUtc(value) => {
                let text = text::<TimestampMicrosecondType>(*value);
                format!("CAST('{text}Z' AS TIMESTAMP WITH TIME ZONE)")
            }
            Value::Interval(months, days, nanoseconds) => {
                format!("CAST('{months} months {days} days {nanoseconds} nanoseconds' AS INTERVAL)")
            }
            Value::List(values) => {
                let values: Vec<String> = values.iter().map(Value::sql).collect();
                format!("make_array({})", values.join(", "))
            }
            Value::Struct(fields) => {
                let field = |(name, value): &(String, Value)| {
                    format!("'{}', {}", name.replace('\'', "''"), value.sql())
                };
                let fields: Vec<String> = fields.iter().map(field).collect();
                format!("named_struct({})", fields.join(", "))
            }
        }
    }
}

/// A value of a date or time as people write it.
fn text<T: ArrowPrimitiveType>(value: T::Native) -> String {
    let array = PrimitiveArray::<T>::from_value(value, 1);
    let formatter = ArrayFormatter::try_new(&array, &FormatOptions::default());
    formatter.map(|formatter| formatter.value(0).to_string()).unwrap_or_default()
}

macro_rules! from {
    ($($type:ty => $variant:ident as $as:ty),* $(,)?) => {
        $(impl From<$type> for Value {
            fn from(value: $type) -> Value {
                Value::$variant(<$as>::from(value))
            }
        })*
    };
}

from! {
    bool => Boolean as bool,
    i8 => Integer as i64,
    i16 => Integer as i64,
    i32 => Integer as i64,
    i64 => Integer as i64,
    u8 => Unsigned as u64,
    u16 => Unsigned as u64,
    u32 => Unsigned as u64,
    u64 => Unsigned as u64,
    f32 => Double as f64,
    f64 => Double as f64,
    &str => Text as String,
    String => Text as String,
    Vec<u8> => Blob as Vec<u8>,
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}
