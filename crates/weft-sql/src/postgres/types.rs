//! PostgreSQL's types, by their numbers: which of them stands for a type of Weft, and what it is called.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use weft_json::is_json;
use weft_store::Column;

use crate::enums::EnumType;
use crate::text_kinds::{TextKind, declared_length};
use crate::types::stored_type;

/// The key of a field's metadata that names its type in PostgreSQL, where the Arrow type does not: `uuid`, and the
/// catalog's `oid`, `name` and `char`.
pub const POSTGRES_TYPE: &str = "weft.postgres_type";

/// A type of PostgreSQL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PgType {
    pub(crate) oid: i64,
    pub(crate) name: &'static str,
    /// What SQL calls it.
    pub(crate) sql_name: &'static str,
    /// Bytes of a value; -1 where they differ.
    pub(crate) length: i16,
    /// Boolean, Date, Numeric, String, Timespan, User-defined, Array, Pseudo, Z for internal ones.
    pub(crate) category: char,
    /// The number of the type of its arrays; 0 if there is none.
    pub(crate) array: i64,
}

macro_rules! types {
    ($($oid:literal $name:literal $sql_name:literal $length:literal $category:literal $array:literal;)*) => {
        /// The types that are no arrays.
        pub(crate) const TYPES: &[PgType] = &[
            $(PgType {
                oid: $oid, name: $name, sql_name: $sql_name, length: $length, category: $category, array: $array,
            },)*
        ];
    };
}

types! {
    16 "bool" "boolean" 1 'B' 1000;
    17 "bytea" "bytea" -1 'U' 1001;
    18 "char" "\"char\"" 1 'Z' 1002;
    19 "name" "name" 64 'S' 1003;
    20 "int8" "bigint" 8 'N' 1016;
    21 "int2" "smallint" 2 'N' 1005;
    22 "int2vector" "int2vector" -1 'A' 1006;
    23 "int4" "integer" 4 'N' 1007;
    24 "regproc" "regproc" 4 'N' 1008;
    25 "text" "text" -1 'S' 1009;
    26 "oid" "oid" 4 'N' 1028;
    28 "xid" "xid" 4 'U' 1011;
    30 "oidvector" "oidvector" -1 'A' 1013;
    114 "json" "json" -1 'U' 199;
    194 "pg_node_tree" "pg_node_tree" -1 'Z' 0;
    700 "float4" "real" 4 'N' 1021;
    701 "float8" "double precision" 8 'N' 1022;
    705 "unknown" "unknown" -2 'X' 0;
    1033 "aclitem" "aclitem" 12 'U' 1034;
    1042 "bpchar" "character" -1 'S' 1014;
    1043 "varchar" "character varying" -1 'S' 1015;
    1082 "date" "date" 4 'D' 1182;
    1083 "time" "time without time zone" 8 'D' 1183;
    1114 "timestamp" "timestamp without time zone" 8 'D' 1115;
    1184 "timestamptz" "timestamp with time zone" 8 'D' 1185;
    1186 "interval" "interval" 16 'T' 1187;
    1700 "numeric" "numeric" -1 'N' 1231;
    2205 "regclass" "regclass" 4 'N' 2210;
    2206 "regtype" "regtype" 4 'N' 2211;
    2249 "record" "record" -1 'P' 2287;
    2278 "void" "void" 4 'P' 0;
    2950 "uuid" "uuid" 16 'U' 2951;
    3802 "jsonb" "jsonb" -1 'U' 3807;
    4089 "regnamespace" "regnamespace" 4 'N' 4090;
    4096 "regrole" "regrole" 4 'N' 4097;
}

/// The type of this number, and whether it is that of its arrays.
pub(crate) fn by_oid(oid: i64) -> Option<(&'static PgType, bool)> {
    let of_array = |found: &&PgType| found.array == oid && oid != 0;
    let plain = TYPES.iter().find(|found| found.oid == oid).map(|found| (found, false));
    plain.or_else(|| TYPES.iter().find(of_array).map(|found| (found, true)))
}

/// The number of the type of this name, as SQL or the catalog has it.
pub(crate) fn oid_named(name: &str) -> Option<i64> {
    let name = name.trim().strip_prefix("pg_catalog.").unwrap_or(name.trim());
    let name = name.trim_matches('"').to_ascii_lowercase();
    let (base, is_array) = match name.strip_suffix("[]").or_else(|| name.strip_prefix('_')) {
        Some(base) => (base, true),
        None => (name.as_str(), false),
    };
    let base = match base {
        "int" => "int4",
        "decimal" => "numeric",
        "double" => "float8",
        "time" | "timestamp" | "char" => base,
        other => other,
    };
    let found = TYPES.iter().find(|found| found.name == base || found.sql_name == base)?;
    match is_array {
        true => (found.array != 0).then_some(found.array),
        false => Some(found.oid),
    }
}

/// The number and the modifier of the type of a column.
pub(crate) fn type_of_column(column: &Column) -> (i64, i32) {
    let length = declared_length(column.max_length).and_then(|length| i32::try_from(length).ok());
    if let Some(kind) = TextKind::of_column(column) {
        return type_of_field(&kind.field(""));
    }
    match (type_of(&column.data_type), length) {
        ((25, _), Some(length)) => (1043, length.saturating_add(4)),
        (found, _) => found,
    }
}

/// The enumeration that a column has values of.
pub(crate) fn enum_of_column(column: &Column) -> Option<Arc<EnumType>> {
    match TextKind::of_column(column) {
        Some(TextKind::Enum(ty)) => Some(ty),
        _ => None,
    }
}

/// The name that the catalog has for the type of a column.
pub(crate) fn postgres_type_name(column: &Column) -> String {
    if let Some(ty) = enum_of_column(column)
        && let Some(name) = ty.name()
    {
        return name.rsplit('.').next().unwrap_or(name).to_owned();
    }
    match by_oid(type_of_column(column).0) {
        Some((found, true)) => format!("_{}", found.name),
        Some((found, false)) => found.name.to_owned(),
        None => "unknown".to_owned(),
    }
}

/// The number and the modifier of the type of a field.
pub(crate) fn type_of_field(field: &Field) -> (i64, i32) {
    if is_json(field) {
        return (114, -1);
    }
    // What is computed from a vector may keep its metadata without being a list.
    let is_list = matches!(field.data_type(), DataType::List(_));
    let named = field.metadata().get(POSTGRES_TYPE);
    match named.filter(|name| is_list || !name.ends_with("vector")).and_then(|name| oid_named(name))
    {
        Some(oid) => (oid, -1),
        None => type_of(field.data_type()),
    }
}

/// The number and the modifier of PostgreSQL's type for values of an Arrow type. Structs, maps and lists of lists are JSON.
fn type_of(data_type: &DataType) -> (i64, i32) {
    let oid = match stored_type(data_type) {
        DataType::Boolean => 16,
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => 21,
        DataType::UInt16 | DataType::Int32 => 23,
        DataType::UInt32 | DataType::Int64 => 20,
        DataType::UInt64 => 1700,
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            let modifier = ((i32::from(precision) << 16) | (i32::from(scale) & 0x7ff)) + 4;
            return (1700, modifier);
        }
        DataType::Float32 => 700,
        DataType::Float64 => 701,
        DataType::BinaryView | DataType::FixedSizeBinary(_) => 17,
        DataType::Date32 => 1082,
        DataType::Time64(_) => 1083,
        DataType::Timestamp(_, None) => 1114,
        DataType::Timestamp(_, Some(_)) => 1184,
        DataType::Interval(_) | DataType::Duration(_) => 1186,
        DataType::List(item) | DataType::FixedSizeList(item, _) => {
            match by_oid(type_of_field(&item).0) {
                Some((item, false)) if item.oid != 114 && item.array != 0 => item.array,
                _ => 114,
            }
        }
        DataType::Struct(_) | DataType::Map(..) | DataType::Union(..) => 114,
        _ => 25,
    };
    (oid, -1)
}

/// What SQL calls a type, as `format_type` has it.
pub(crate) fn format_type(oid: i64, modifier: Option<i64>) -> String {
    let Some((found, is_array)) = by_oid(oid) else {
        return if oid == 0 { "-".to_owned() } else { "???".to_owned() };
    };
    let suffix = if is_array { "[]" } else { "" };
    let parameters = match (found.oid, modifier.filter(|modifier| *modifier >= 4)) {
        (1042 | 1043, Some(modifier)) => format!("({})", modifier - 4),
        (1700, Some(modifier)) => {
            format!("({},{})", (modifier - 4) >> 16, (modifier - 4) & 0x7ff)
        }
        _ => String::new(),
    };
    // Of a type without modifier that has one otherwise, `character` means one character.
    let name = if found.oid == 1042 && parameters.is_empty() { "bpchar" } else { found.sql_name };
    format!("{name}{parameters}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_postgresqls_names() {
        // As PostgreSQL 14 answers.
        assert_eq!(format_type(23, Some(-1)), "integer");
        assert_eq!(format_type(1007, None), "integer[]");
        assert_eq!(format_type(1700, Some(655_366)), "numeric(10,2)");
        assert_eq!(format_type(1043, Some(24)), "character varying(20)");
        assert_eq!(format_type(0, None), "-");
        assert_eq!(format_type(999_999, None), "???");
    }

    #[test]
    fn types_are_found_by_both_names() {
        assert_eq!(oid_named("pg_catalog.int4"), Some(23));
        assert_eq!(oid_named("double precision"), Some(701));
        assert_eq!(oid_named("text[]"), Some(1009));
        assert_eq!(oid_named("_text"), Some(1009));
        assert_eq!(oid_named("nothing"), None);
    }
}
