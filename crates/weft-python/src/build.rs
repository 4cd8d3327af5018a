//! Values as arrays of Arrow.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array, Float64Array,
    Int64Array, IntervalMonthDayNanoArray, ListArray, NullArray, StringViewArray, StructArray,
    Time64MicrosecondArray, TimestampMicrosecondArray, UInt64Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{Field, IntervalMonthDayNano};
use weft::Value;

/// Most digits of a decimal.
const DIGITS_MAX: u8 = 38;

/// Integers up to which doubles have all.
const EXACT_MAX: u64 = 1 << 53;

/// What values have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Null,
    Boolean,
    Integer,
    Unsigned,
    Double,
    /// Digits before the point, at most, and behind it.
    Decimal(u8, i8),
    Text,
    Blob,
    Date,
    Time,
    Timestamp,
    TimestampUtc,
    Interval,
    List,
    Struct,
}

fn kind_of(value: &Value) -> Kind {
    match value {
        Value::Null => Kind::Null,
        Value::Boolean(_) => Kind::Boolean,
        Value::Integer(_) => Kind::Integer,
        Value::Unsigned(_) => Kind::Unsigned,
        Value::Double(_) => Kind::Double,
        Value::Decimal(_, precision, scale) => {
            Kind::Decimal(precision.saturating_sub(scale.unsigned_abs()), *scale)
        }
        Value::Text(_) => Kind::Text,
        Value::Blob(_) => Kind::Blob,
        Value::Date(_) => Kind::Date,
        Value::Time(_) => Kind::Time,
        Value::Timestamp(_) => Kind::Timestamp,
        Value::TimestampUtc(_) => Kind::TimestampUtc,
        Value::Interval(..) => Kind::Interval,
        Value::List(_) => Kind::List,
        Value::Struct(_) => Kind::Struct,
    }
}

/// The kind that has the values of both.
fn unified(left: Kind, right: Kind) -> Option<Kind> {
    use Kind::{Date, Decimal, Double, Integer, Null, Timestamp, Unsigned};
    Some(match (left, right) {
        (left, right) if left == right => left,
        (Null, other) | (other, Null) => other,
        (Integer, Unsigned) | (Unsigned, Integer) => Decimal(20, 0),
        (Integer | Unsigned, Double) | (Double, Integer | Unsigned) => Double,
        (Integer | Unsigned, Decimal(before, behind))
        | (Decimal(before, behind), Integer | Unsigned) => Decimal(before.max(20), behind),
        (Decimal(before, behind), Decimal(other_before, other_behind)) => {
            Decimal(before.max(other_before), behind.max(other_behind))
        }
        (Date, Timestamp) | (Timestamp, Date) => Timestamp,
        _ => return None,
    })
}

/// An array with these values; `None` if no type has them all.
pub(crate) fn array_of(values: &[Value]) -> Option<ArrayRef> {
    let mut kind = Kind::Null;
    for value in values {
        kind = unified(kind, kind_of(value))?;
    }
    macro_rules! array {
        ($array:ty, $($pattern:pat $(if $guard:expr)? => $value:expr),+) => {{
            let values: Option<Vec<Option<_>>> = values
                .iter()
                .map(|value| match value {
                    Value::Null => Some(None),
                    $($pattern $(if $guard)? => Some(Some($value)),)+
                    _ => None,
                })
                .collect();
            Arc::new(<$array>::from_iter(values?)) as ArrayRef
        }};
    }
    Some(match kind {
        Kind::Null => Arc::new(NullArray::new(values.len())),
        Kind::Boolean => array!(BooleanArray, Value::Boolean(value) => *value),
        Kind::Integer => array!(Int64Array, Value::Integer(value) => *value),
        Kind::Unsigned => array!(UInt64Array, Value::Unsigned(value) => *value),
        Kind::Double => array!(
            Float64Array,
            Value::Double(value) => *value,
            Value::Integer(value) if value.unsigned_abs() <= EXACT_MAX => *value as f64
        ),
        Kind::Decimal(before, behind) => decimals(values, before, behind)?,
        Kind::Text => array!(StringViewArray, Value::Text(value) => value.as_str()),
        Kind::Blob => array!(BinaryViewArray, Value::Blob(value) => value.as_slice()),
        Kind::Date => array!(Date32Array, Value::Date(value) => *value),
        Kind::Time => array!(Time64MicrosecondArray, Value::Time(value) => *value),
        Kind::Timestamp => array!(
            TimestampMicrosecondArray,
            Value::Timestamp(value) => *value,
            Value::Date(value) => i64::from(*value) * 86_400_000_000
        ),
        Kind::TimestampUtc => {
            let values: Vec<Option<i64>> = values
                .iter()
                .map(|value| match value {
                    Value::TimestampUtc(value) => Some(*value),
                    _ => None,
                })
                .collect();
            Arc::new(TimestampMicrosecondArray::from(values).with_timezone("UTC"))
        }
        Kind::Interval => array!(
            IntervalMonthDayNanoArray,
            Value::Interval(months, days, nanoseconds) =>
                IntervalMonthDayNano::new(*months, *days, *nanoseconds)
        ),
        Kind::List => lists(values)?,
        Kind::Struct => structs(values)?,
    })
}

fn decimals(values: &[Value], before: u8, behind: i8) -> Option<ArrayRef> {
    let precision = before.checked_add(u8::try_from(behind).ok()?)?;
    if precision > DIGITS_MAX && before > 20 || behind.unsigned_abs() > DIGITS_MAX {
        return None;
    }
    let scaled = |value: i128, scale: i8| {
        let factor = 10i128.checked_pow(u32::try_from(behind - scale).ok()?)?;
        value
            .checked_mul(factor)
            .filter(|value| value.unsigned_abs() < 10u128.pow(DIGITS_MAX.into()))
    };
    let values: Option<Vec<Option<i128>>> = values
        .iter()
        .map(|value| match value {
            Value::Null => Some(None),
            Value::Integer(value) => scaled(i128::from(*value), 0).map(Some),
            Value::Unsigned(value) => scaled(i128::from(*value), 0).map(Some),
            Value::Decimal(value, _, scale) => scaled(*value, *scale).map(Some),
            _ => None,
        })
        .collect();
    let precision = precision.clamp(1, DIGITS_MAX);
    let array = Decimal128Array::from(values?).with_precision_and_scale(precision, behind).ok()?;
    Some(Arc::new(array))
}

fn lists(values: &[Value]) -> Option<ArrayRef> {
    let mut items = Vec::new();
    let mut lengths = Vec::with_capacity(values.len());
    let mut valid = Vec::with_capacity(values.len());
    for value in values {
        let list: &[Value] = match value {
            Value::List(list) => list,
            _ => &[],
        };
        valid.push(matches!(value, Value::List(_)));
        lengths.push(list.len());
        items.extend_from_slice(list);
    }
    let items = array_of(&items)?;
    let field = Arc::new(Field::new("item", items.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths(lengths);
    let lists = ListArray::try_new(field, offsets, items, Some(NullBuffer::from(valid))).ok()?;
    Some(Arc::new(lists))
}

fn structs(values: &[Value]) -> Option<ArrayRef> {
    let mut names: Vec<&str> = Vec::new();
    for value in values {
        let Value::Struct(fields) = value else { continue };
        for (name, _) in fields {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    let valid: Vec<bool> = values.iter().map(|value| matches!(value, Value::Struct(_))).collect();
    let mut fields = Vec::with_capacity(names.len());
    let mut arrays = Vec::with_capacity(names.len());
    for name in names {
        let column: Vec<Value> = values
            .iter()
            .map(|value| match value {
                Value::Struct(fields) => {
                    let found = fields.iter().find(|(known, _)| known == name);
                    found.map_or(Value::Null, |(_, value)| value.clone())
                }
                _ => Value::Null,
            })
            .collect();
        let array = array_of(&column)?;
        fields.push(Field::new(name, array.data_type().clone(), true));
        arrays.push(array);
    }
    let nulls = Some(NullBuffer::from(valid));
    let array =
        StructArray::try_new_with_length(fields.into(), arrays, nulls, values.len()).ok()?;
    Some(Arc::new(array))
}
