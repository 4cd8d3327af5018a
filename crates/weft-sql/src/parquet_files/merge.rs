//! One schema for several files: columns go by their names, in the order in which they first occur, and have a type that
//! holds the values of all files. Every column may be NULL, as a file may lack it.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Fields, Schema, TimeUnit};

use crate::types::type_name;

/// The schema of one file.
pub(super) struct Described {
    /// The file's name, for messages.
    pub(super) name: String,
    pub(super) schema: Schema,
}

/// The schema of all files.
///
/// # Errors
/// What two files disagree on, with their names.
pub(super) fn merged(files: &[Described]) -> Result<Schema, String> {
    let mut fields: Vec<(FieldRef, &str)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for file in files {
        for field in file.schema.fields() {
            let field = nullable(field);
            let Some(place) = places.get(field.name()).copied() else {
                places.insert(field.name().clone(), fields.len());
                fields.push((field, &file.name));
                continue;
            };
            let (known, first): &mut (FieldRef, &str) = &mut fields[place];
            *known = both(known, &field).ok_or_else(|| {
                format!(
                    "column {} is {} in '{first}' and {} in '{}': read the files apart and cast it",
                    field.name(),
                    type_name(known.data_type()),
                    type_name(field.data_type()),
                    file.name
                )
            })?;
        }
    }
    Ok(Schema::new(fields.into_iter().map(|(field, _)| field).collect::<Vec<_>>()))
}

/// The field, and those within it, as one that may be NULL, with dictionaries as what they hold.
fn nullable(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Dictionary(_, values) => (**values).clone(),
        DataType::RunEndEncoded(_, values) => values.data_type().clone(),
        DataType::List(item) => DataType::List(nullable(item)),
        DataType::LargeList(item) => DataType::LargeList(nullable(item)),
        DataType::FixedSizeList(item, len) => DataType::FixedSizeList(nullable(item), *len),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(nullable).collect()),
        other => other.clone(),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type).with_nullable(true))
}

/// A field that holds the values of both.
fn both(left: &FieldRef, right: &FieldRef) -> Option<FieldRef> {
    if left == right {
        return Some(Arc::clone(left));
    }
    let data_type = wider(left.data_type(), right.data_type())?;
    let field = left.as_ref().clone().with_data_type(data_type);
    Some(Arc::new(match left.metadata() == right.metadata() {
        true => field,
        false => field.with_metadata(Default::default()),
    }))
}

/// A type that holds the values of both.
fn wider(left: &DataType, right: &DataType) -> Option<DataType> {
    use DataType as T;
    if left == right {
        return Some(left.clone());
    }
    Some(match (left, right) {
        (T::Null, other) | (other, T::Null) => other.clone(),
        (T::List(a) | T::LargeList(a), T::List(b) | T::LargeList(b)) => T::List(both(a, b)?),
        (T::Struct(a), T::Struct(b)) => T::Struct(all_fields(a, b)?),
        (T::Timestamp(a, zone), T::Timestamp(b, other)) if zone.is_some() == other.is_some() => {
            T::Timestamp(finer(*a, *b), zone.clone())
        }
        (T::Time32(_) | T::Time64(_), T::Time32(_) | T::Time64(_)) => {
            T::Time64(TimeUnit::Nanosecond)
        }
        (T::Date32 | T::Date64, T::Date32 | T::Date64) => T::Date32,
        (T::Date32 | T::Date64, T::Timestamp(..)) => right.clone(),
        (T::Timestamp(..), T::Date32 | T::Date64) => left.clone(),
        (a, b) if is_text(a) && is_text(b) => T::Utf8View,
        (a, b) if is_binary(a) && is_binary(b) => T::BinaryView,
        (a, b) if a.is_integer() && b.is_integer() => wider_integer(a, b),
        (a, b) if (a.is_floating() || b.is_floating()) && a.is_numeric() && b.is_numeric() => {
            match a.is_floating() && b.is_floating() {
                true if *a != T::Float64 && *b != T::Float64 => T::Float32,
                _ => T::Float64,
            }
        }
        (a, b) => wider_decimal(digits(a)?, digits(b)?)?,
    })
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_binary(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_)
    )
}

fn finer(left: TimeUnit, right: TimeUnit) -> TimeUnit {
    let rank = |unit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    };
    if rank(left) >= rank(right) { left } else { right }
}

fn all_fields(left: &Fields, right: &Fields) -> Option<Fields> {
    let mut fields: Vec<FieldRef> = left.iter().cloned().collect();
    for field in right {
        match fields.iter_mut().find(|known| known.name() == field.name()) {
            Some(known) => *known = both(known, field)?,
            None => fields.push(Arc::clone(field)),
        }
    }
    Some(fields.into())
}

fn wider_integer(left: &DataType, right: &DataType) -> DataType {
    let width = |of: &DataType| of.primitive_width().unwrap_or(8);
    let is_signed = |of: &DataType| of.is_signed_integer();
    let bytes = match (is_signed(left), is_signed(right)) {
        (true, true) => width(left).max(width(right)),
        (false, false) => {
            return match width(left).max(width(right)) {
                1 => DataType::UInt8,
                2 => DataType::UInt16,
                4 => DataType::UInt32,
                _ => DataType::UInt64,
            };
        }
        (true, false) => width(left).max(2 * width(right)),
        (false, true) => (2 * width(left)).max(width(right)),
    };
    match bytes {
        1 => DataType::Int8,
        2 => DataType::Int16,
        4 => DataType::Int32,
        8 => DataType::Int64,
        _ => DataType::Decimal128(38, 0),
    }
}

/// Digits before and after the point.
fn digits(data_type: &DataType) -> Option<(i16, i16)> {
    Some(match data_type {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            (i16::from(*precision) - i16::from(*scale), i16::from(*scale))
        }
        DataType::Int8 | DataType::UInt8 => (3, 0),
        DataType::Int16 | DataType::UInt16 => (5, 0),
        DataType::Int32 | DataType::UInt32 => (10, 0),
        DataType::Int64 => (19, 0),
        DataType::UInt64 => (20, 0),
        _ => return None,
    })
}

fn wider_decimal(left: (i16, i16), right: (i16, i16)) -> Option<DataType> {
    let scale = left.1.max(right.1).max(0);
    let precision = (left.0.max(right.0) + scale).max(1);
    let (precision, scale) = (u8::try_from(precision).ok()?, i8::try_from(scale).ok()?);
    match precision {
        ..=38 => Some(DataType::Decimal128(precision, scale)),
        39..=76 => Some(DataType::Decimal256(precision, scale)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_holds_the_values_of_both() {
        use DataType as T;
        for (left, right, both) in [
            (T::Int32, T::Int64, T::Int64),
            (T::UInt32, T::Int32, T::Int64),
            (T::UInt64, T::Int64, T::Decimal128(38, 0)),
            (T::Int64, T::Float32, T::Float64),
            (T::Decimal128(5, 2), T::Decimal128(6, 4), T::Decimal128(7, 4)),
            (T::Decimal128(4, 1), T::Int32, T::Decimal128(11, 1)),
            (
                T::Timestamp(TimeUnit::Millisecond, None),
                T::Timestamp(TimeUnit::Microsecond, None),
                T::Timestamp(TimeUnit::Microsecond, None),
            ),
        ] {
            assert_eq!(wider(&left, &right), Some(both.clone()));
            assert_eq!(wider(&right, &left), Some(both));
        }
        assert_eq!(wider(&T::Utf8, &T::Int32), None);
    }
}
