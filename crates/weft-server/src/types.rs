//! Which type of PostgreSQL stands for a type of Weft, and the other way round.

use arrow::datatypes::{DataType, Field};
use pgwire::api::Type;
use weft::POSTGRES_TYPE;
use weft_json::is_json;

/// PostgreSQL's type for the values of a column: JSON, UUID and the catalog's own types are told by its field.
pub(crate) fn wire_type_of(field: &Field) -> Type {
    if is_json(field) {
        return Type::JSON;
    }
    // What is computed from a vector may keep its metadata without being a list.
    let is_list = matches!(field.data_type(), DataType::List(_));
    match field.metadata().get(POSTGRES_TYPE).map(String::as_str) {
        Some("int2vector") if is_list => Type::INT2_VECTOR,
        Some("oidvector") if is_list => Type::OID_VECTOR,
        Some("uuid") if field.data_type().is_string() => Type::UUID,
        Some("oid") => Type::OID,
        Some("name") => Type::NAME,
        Some("char") => Type::CHAR,
        _ => wire_type(field.data_type()),
    }
}

/// PostgreSQL's type for values of an Arrow type. Structs, maps and lists of lists go as JSON, which clients decode.
pub(crate) fn wire_type(data_type: &DataType) -> Type {
    match data_type {
        DataType::Boolean => Type::BOOL,
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => Type::INT2,
        DataType::UInt16 | DataType::Int32 => Type::INT4,
        DataType::UInt32 | DataType::Int64 => Type::INT8,
        DataType::UInt64
        | DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => Type::NUMERIC,
        DataType::Float16 | DataType::Float32 => Type::FLOAT4,
        DataType::Float64 => Type::FLOAT8,
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => Type::BYTEA,
        DataType::Date32 | DataType::Date64 => Type::DATE,
        DataType::Time32(_) | DataType::Time64(_) => Type::TIME,
        DataType::Timestamp(_, None) => Type::TIMESTAMP,
        DataType::Timestamp(_, Some(_)) => Type::TIMESTAMPTZ,
        DataType::Interval(_) | DataType::Duration(_) => Type::INTERVAL,
        DataType::Dictionary(_, values) => wire_type(values),
        DataType::RunEndEncoded(_, values) => wire_type(values.data_type()),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => list_type(&wire_type_of(item)),
        DataType::Struct(_) | DataType::Map(..) | DataType::Union(..) => Type::JSON,
        DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Type::TEXT,
    }
}

fn list_type(item: &Type) -> Type {
    match *item {
        Type::BOOL => Type::BOOL_ARRAY,
        Type::INT2 => Type::INT2_ARRAY,
        Type::INT4 => Type::INT4_ARRAY,
        Type::INT8 => Type::INT8_ARRAY,
        Type::NUMERIC => Type::NUMERIC_ARRAY,
        Type::FLOAT4 => Type::FLOAT4_ARRAY,
        Type::FLOAT8 => Type::FLOAT8_ARRAY,
        Type::BYTEA => Type::BYTEA_ARRAY,
        Type::DATE => Type::DATE_ARRAY,
        Type::TIME => Type::TIME_ARRAY,
        Type::TIMESTAMP => Type::TIMESTAMP_ARRAY,
        Type::TIMESTAMPTZ => Type::TIMESTAMPTZ_ARRAY,
        Type::INTERVAL => Type::INTERVAL_ARRAY,
        Type::OID => Type::OID_ARRAY,
        Type::NAME => Type::NAME_ARRAY,
        Type::CHAR => Type::CHAR_ARRAY,
        Type::TEXT => Type::TEXT_ARRAY,
        Type::UUID => Type::UUID_ARRAY,
        _ => Type::JSON,
    }
}

/// The bytes of a value of a type whose values all have as many; -1 for the others.
pub(crate) fn width_bytes(wire: &Type) -> i16 {
    match *wire {
        Type::BOOL | Type::CHAR => 1,
        Type::INT2 => 2,
        Type::INT4 | Type::OID | Type::FLOAT4 | Type::DATE => 4,
        Type::INT8 | Type::FLOAT8 | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ => 8,
        Type::INTERVAL | Type::UUID => 16,
        Type::NAME => 64,
        _ => -1,
    }
}

/// The modifier of a type: precision and scale of a decimal, -1 where there is none.
pub(crate) fn modifier(data_type: &DataType) -> i32 {
    match data_type {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            ((i32::from(*precision) << 16) | (i32::from(*scale) & 0x7ff)) + 4
        }
        _ => -1,
    }
}

/// What SQL calls a type that a client gave for a parameter; `None` where the statement decides.
pub(crate) fn sql_name(wire: &Type) -> Option<String> {
    let name = match *wire {
        Type::BOOL => "BOOLEAN",
        Type::INT2 => "SMALLINT",
        Type::INT4 => "INTEGER",
        Type::INT8 | Type::OID => "BIGINT",
        Type::FLOAT4 => "REAL",
        Type::FLOAT8 => "DOUBLE",
        Type::NUMERIC => "DECIMAL(38, 10)",
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::CHAR => "VARCHAR",
        Type::UUID => "UUID",
        Type::JSON | Type::JSONB => "VARCHAR",
        Type::BYTEA => "BLOB",
        Type::DATE => "DATE",
        Type::TIME => "TIME",
        Type::TIMESTAMP => "TIMESTAMP",
        Type::TIMESTAMPTZ => "TIMESTAMP WITH TIME ZONE",
        Type::INTERVAL => "INTERVAL",
        _ => return item_type(wire).and_then(|item| Some(format!("{}[]", sql_name(&item)?))),
    };
    Some(name.to_owned())
}

/// What SQL calls the type that a parameter's value is cast to; `None` for decimals, which have digits of their own.
pub(crate) fn cast_name(wire: &Type) -> Option<String> {
    sql_name(wire).filter(|name| !name.starts_with("DECIMAL"))
}

/// The type of the items of an array.
pub(crate) fn item_type(wire: &Type) -> Option<Type> {
    let items = [
        Type::BOOL,
        Type::INT2,
        Type::INT4,
        Type::INT8,
        Type::NUMERIC,
        Type::FLOAT4,
        Type::FLOAT8,
        Type::BYTEA,
        Type::DATE,
        Type::TIME,
        Type::TIMESTAMP,
        Type::TIMESTAMPTZ,
        Type::INTERVAL,
        Type::OID,
        Type::NAME,
        Type::CHAR,
        Type::TEXT,
        Type::UUID,
    ];
    match *wire {
        Type::VARCHAR_ARRAY | Type::BPCHAR_ARRAY => Some(Type::TEXT),
        Type::INT2_VECTOR => Some(Type::INT2),
        Type::OID_VECTOR => Some(Type::OID),
        Type::JSON => None,
        _ => items.into_iter().find(|item| list_type(item) == *wire),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::Field;
    use std::sync::Arc;

    #[test]
    fn lists_of_lists_and_structs_are_json() {
        let item = |data_type| Arc::new(Field::new("item", data_type, true));
        let list = DataType::List(item(DataType::Int32));
        assert_eq!(wire_type(&list), Type::INT4_ARRAY);
        assert_eq!(wire_type(&DataType::List(item(list))), Type::JSON);
        let fields = DataType::Struct(vec![Field::new("a", DataType::Utf8, true)].into());
        assert_eq!(wire_type(&fields), Type::JSON);
    }

    #[test]
    fn decimals_tell_precision_and_scale() {
        // As PostgreSQL has numeric(10, 2) in pg_attribute.
        assert_eq!(modifier(&DataType::Decimal128(10, 2)), 655_366);
    }
}
