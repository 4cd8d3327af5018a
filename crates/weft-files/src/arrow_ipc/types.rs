//! The types in which columns of Arrow files are returned.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};
use weft_json::{is_json, json_field};

/// Digits of a decimal of 128 bits, and of its fraction.
const DECIMAL_128_DIGITS: u8 = 38;
const DECIMAL_128_SCALE_MAX: i8 = 38;

/// The field as which a column is returned: dictionaries and runs as their values. `None` if its type is not supported.
pub(super) fn field_read(field: &Field) -> Option<Field> {
    if is_json(field) {
        return Some(json_field(field.name(), true));
    }
    Some(Field::new(field.name(), type_read(field.data_type())?, true))
}

fn type_read(stored: &DataType) -> Option<DataType> {
    let within = |field: &Field| -> Option<Arc<Field>> {
        let read = type_read(field.data_type())?;
        Some(Arc::new(Field::new(field.name(), read, field.is_nullable())))
    };
    Some(match stored {
        DataType::Dictionary(_, values) => type_read(values)?,
        DataType::RunEndEncoded(_, values) => type_read(values.data_type())?,
        // A column without values may be of texts.
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Null => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
            DataType::BinaryView
        }
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Date32,
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Decimal32(digits, scale) | DataType::Decimal64(digits, scale) => {
            DataType::Decimal128(*digits, *scale)
        }
        // What has more digits than that is an error.
        DataType::Decimal256(_, scale) if *scale <= DECIMAL_128_SCALE_MAX => {
            DataType::Decimal128(DECIMAL_128_DIGITS, *scale)
        }
        DataType::Decimal256(..) => DataType::Float64,
        DataType::List(item) | DataType::LargeList(item) | DataType::ListView(item) => {
            DataType::List(within(item)?)
        }
        DataType::LargeListView(item) | DataType::FixedSizeList(item, _) => {
            DataType::List(within(item)?)
        }
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| within(field));
            DataType::Struct(fields.collect::<Option<_>>()?)
        }
        DataType::Union(..) => return None,
        other => other.clone(),
    })
}
