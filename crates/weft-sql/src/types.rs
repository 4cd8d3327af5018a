//! Types: what a name in SQL stands for, and what a type is called.
//!
//! DataFusion's planner knows fewer names than people use, drops the time zone of a TIMESTAMP WITH
//! TIME ZONE where none is set, and has timestamps in nanoseconds, which end in the year 2262. Here
//! timestamps are in microseconds unless a precision asks for more.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};
use datafusion::common::{DataFusionError, Result as DfResult};
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, DataType as SqlType, EnumMember, ExactNumberInfo, TimezoneInfo,
};

use weft_store::Column;

use crate::catalog::relation_name;
use crate::constraints::ADD_SEQUENCE;
use crate::enums::{EnumType, Enums};
use crate::error::SqlError;
use crate::grammar::{expect_eof, parser, syntax};
use crate::identifiers::quoted;
use crate::statement::fold;
use crate::struct_types;
use crate::text::tokenize;
use crate::text_kinds::TextKind;
use crate::uuids::shown;

/// Digits of a decimal number, at most.
const DECIMAL_DIGITS_MAX: u64 = 38;

/// The zone of timestamps with time zone.
pub(crate) const ZONE: &str = "UTC";

/// Plans the names that DataFusion does not know, or knows otherwise.
#[derive(Debug, Default)]
pub(crate) struct WeftTypes {
    /// The types that were made.
    enums: Enums,
}

impl WeftTypes {
    /// The same with types that were made.
    pub(crate) fn with(enums: Enums) -> WeftTypes {
        WeftTypes { enums }
    }
}

impl TypePlanner for WeftTypes {
    fn plan_type_field(&self, sql_type: &SqlType) -> DfResult<Option<FieldRef>> {
        if let Some(kind) = TextKind::named(sql_type) {
            return Ok(Some(Arc::new(kind.field("item"))));
        }
        if let SqlType::Custom(name, _) = sql_type
            && let Ok(name) = relation_name(name)
            && let Some(ty) = self.enums.get(&name)
        {
            return Ok(Some(Arc::new(ty.field("item"))));
        }
        if let SqlType::Enum(members, _) = sql_type {
            return Ok(Some(Arc::new(declared_enum(members)?.field("item"))));
        }
        let Some(data_type) = plan(sql_type).map_err(DataFusionError::from)? else {
            return Ok(None);
        };
        Ok(Some(Arc::new(Field::new("item", data_type, true))))
    }
}

/// The type of labels that are declared with a column.
fn declared_enum(members: &[EnumMember]) -> Result<EnumType, SqlError> {
    let label = |member: &EnumMember| match member {
        EnumMember::Name(label) => Ok(label.clone()),
        EnumMember::NamedValue(label, _) => {
            Err(SqlError::not_supported(format!("a number of the label '{label}' of an ENUM")))
        }
    };
    EnumType::new(None, members.iter().map(label).collect::<Result<_, _>>()?)
}

/// True of the name of a type that was made.
pub(crate) fn is_made_name(sql_type: &SqlType) -> bool {
    matches!(sql_type, SqlType::Custom(name, _) if !is_known_name(&name.to_string()))
}

/// True if a name is that of a type in all databases, or may not be that of another one.
pub(crate) fn is_known_name(name: &str) -> bool {
    let parsed = tokenize(name).map(|tokens| parser(tokens).parse_data_type());
    match parsed {
        Ok(Ok(parsed)) => match &parsed {
            SqlType::Custom(name, _) => {
                custom(&name.to_string()).is_some() || instead_of(&parsed).is_some()
            }
            _ => true,
        },
        _ => false,
    }
}

/// The type that a name stands for, or nothing where DataFusion's rules apply.
fn plan(sql_type: &SqlType) -> Result<Option<DataType>, SqlError> {
    let data_type = match sql_type {
        SqlType::Nvarchar(_)
        | SqlType::Varchar(_)
        | SqlType::Char(_)
        | SqlType::Text
        | SqlType::String(_)
        | SqlType::Character(_)
        | SqlType::CharacterVarying(_)
        | SqlType::CharVarying(_)
        | SqlType::TinyText
        | SqlType::MediumText
        | SqlType::LongText => DataType::Utf8View,
        SqlType::Bytea
        | SqlType::Blob(_)
        | SqlType::Binary(_)
        | SqlType::Varbinary(_)
        | SqlType::Bytes(_)
        | SqlType::TinyBlob
        | SqlType::MediumBlob
        | SqlType::LongBlob => DataType::BinaryView,
        SqlType::UTinyInt | SqlType::UInt8 => DataType::UInt8,
        SqlType::USmallInt | SqlType::UInt16 => DataType::UInt16,
        SqlType::UInt32 => DataType::UInt32,
        SqlType::UBigInt | SqlType::UInt64 => DataType::UInt64,
        SqlType::Int16 => DataType::Int16,
        SqlType::Int32 | SqlType::MediumInt(_) | SqlType::Signed | SqlType::SignedInteger => {
            DataType::Int32
        }
        SqlType::Unsigned | SqlType::UnsignedInteger | SqlType::MediumIntUnsigned(_) => {
            DataType::UInt32
        }
        SqlType::Int64 => DataType::Int64,
        SqlType::HugeInt => DataType::Decimal128(38, 0),
        SqlType::Float32 => DataType::Float32,
        SqlType::Float64 | SqlType::Double(_) => DataType::Float64,
        SqlType::Float(ExactNumberInfo::Precision(bits)) if *bits > 24 => DataType::Float64,
        SqlType::Float(_) => DataType::Float32,
        SqlType::Numeric(info) | SqlType::Decimal(info) | SqlType::Dec(info) => decimal(info)?,
        SqlType::Timestamp(precision, zone) => timestamp(*precision, zone),
        SqlType::Datetime(precision) | SqlType::TimestampNtz(precision) => {
            timestamp(*precision, &TimezoneInfo::None)
        }
        SqlType::Time(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            DataType::Time64(TimeUnit::Microsecond)
        }
        SqlType::Map(key, value) => {
            let key = field_of("key", key)?.with_nullable(false);
            let entry = DataType::Struct([key, field_of("value", value)?].into_iter().collect());
            DataType::Map(Arc::new(Field::new("entries", entry, false)), false)
        }
        SqlType::Interval { .. } => DataType::Interval(IntervalUnit::MonthDayNano),
        SqlType::Custom(name, _) => match custom(&name.to_string()) {
            Some(data_type) => data_type,
            None => return Err(unknown_type(sql_type)),
        },
        other if instead_of(other).is_some() => return Err(unknown_type(other)),
        _ => return Ok(None),
    };
    Ok(Some(data_type))
}

/// A field of the type of this name.
///
/// # Errors
/// [`ErrorKind::Syntax`](crate::ErrorKind::Syntax) and `NotSupported` if there is none.
pub(crate) fn field_named(field: &str, type_name: &str) -> Result<Field, SqlError> {
    let mut tokens = tokenize(type_name)?;
    struct_types::rewrite(&mut tokens);
    let mut parser = parser(tokens);
    let parsed = parser.parse_data_type().map_err(syntax)?;
    expect_eof(&mut parser)?;
    field_of(field, &parsed)
}

fn field_of(name: &str, sql_type: &SqlType) -> Result<Field, SqlError> {
    match TextKind::named(sql_type) {
        Some(kind) => Ok(kind.field(name)),
        None => Ok(Field::new(name, type_of(sql_type)?, true)),
    }
}

fn type_of(sql_type: &SqlType) -> Result<DataType, SqlError> {
    if let Some(data_type) = plan(sql_type)? {
        return Ok(data_type);
    }
    Ok(match sql_type {
        SqlType::Boolean | SqlType::Bool => DataType::Boolean,
        SqlType::TinyInt(_) => DataType::Int8,
        SqlType::SmallInt(_) | SqlType::Int2(_) => DataType::Int16,
        SqlType::Int(_) | SqlType::Integer(_) | SqlType::Int4(_) => DataType::Int32,
        SqlType::BigInt(_) | SqlType::Int8(_) => DataType::Int64,
        SqlType::TinyIntUnsigned(_) => DataType::UInt8,
        SqlType::SmallIntUnsigned(_) => DataType::UInt16,
        SqlType::IntUnsigned(_) | SqlType::IntegerUnsigned(_) => DataType::UInt32,
        SqlType::BigIntUnsigned(_) => DataType::UInt64,
        SqlType::Real | SqlType::Float4 => DataType::Float32,
        SqlType::Float8 | SqlType::DoublePrecision => DataType::Float64,
        SqlType::Date => DataType::Date32,
        SqlType::Array(
            ArrayElemTypeDef::SquareBracket(inner, None) | ArrayElemTypeDef::AngleBracket(inner),
        ) => DataType::List(Arc::new(field_of(Field::LIST_FIELD_DEFAULT_NAME, inner)?)),
        SqlType::Struct(fields, _) => {
            let fields = fields.iter().map(|field| {
                let name = field.field_name.as_ref().ok_or_else(|| unknown_type(sql_type))?;
                field_of(&fold(name.value.clone(), name.quote_style), &field.field_type)
            });
            DataType::Struct(fields.collect::<Result<_, _>>()?)
        }
        other => return Err(unknown_type(other)),
    })
}

/// No type has this name here.
fn unknown_type(sql_type: &SqlType) -> SqlError {
    let error = SqlError::not_supported(format!("the type {sql_type}"));
    match instead_of(sql_type) {
        Some("SERIAL") => error.with_hint(format!("it is known in CREATE TABLE; else {ADD_SEQUENCE}")),
        Some(other) => error.with_hint(format!("write {other}")),
        None => error.with_hint(
            "types are BOOLEAN, TINYINT to BIGINT and UNSIGNED, HUGEINT, DECIMAL(p, s), REAL, DOUBLE, \
             VARCHAR, UUID, JSON, ENUM('a', 'b'), BLOB, DATE, TIME, TIMESTAMP, INTERVAL, STRUCT(name type), MAP(type, type) and type[]",
        ),
    }
}

/// What stands for a type that there is not.
fn instead_of(sql_type: &SqlType) -> Option<&'static str> {
    Some(match sql_type {
        SqlType::Bit(_) | SqlType::BitVarying(_) => "VARCHAR or BLOB",
        SqlType::Int128 | SqlType::Int256 | SqlType::UInt128 | SqlType::UInt256 => "HUGEINT",
        SqlType::UHugeInt => "HUGEINT",
        SqlType::Union(_) => "a STRUCT with a field for each",
        SqlType::Custom(name, _) => match name.to_string().to_ascii_lowercase().as_str() {
            "serial" | "bigserial" | "smallserial" => "SERIAL",
            "money" => "DECIMAL(19, 4)",
            "xml" | "citext" | "name" | "inet" => "VARCHAR",
            _ => return None,
        },
        _ => return None,
    })
}

fn custom(name: &str) -> Option<DataType> {
    Some(match name.to_ascii_lowercase().as_str() {
        "uinteger" => DataType::UInt32,
        "int1" => DataType::Int8,
        "uint" => DataType::UInt32,
        "hugeint" => DataType::Decimal128(38, 0),
        "timestamp_s" => DataType::Timestamp(TimeUnit::Second, None),
        "timestamp_ms" => DataType::Timestamp(TimeUnit::Millisecond, None),
        "timestamp_us" => DataType::Timestamp(TimeUnit::Microsecond, None),
        "timestamp_ns" => DataType::Timestamp(TimeUnit::Nanosecond, None),
        _ => return None,
    })
}

fn decimal(info: &ExactNumberInfo) -> Result<DataType, SqlError> {
    let (precision, scale) = match *info {
        ExactNumberInfo::None => (18, 3),
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    let fits = (1..=DECIMAL_DIGITS_MAX).contains(&precision)
        && (0..=precision).contains(&u64::try_from(scale).unwrap_or(u64::MAX));
    match (fits, u8::try_from(precision), i8::try_from(scale)) {
        (true, Ok(precision), Ok(scale)) => Ok(DataType::Decimal128(precision, scale)),
        _ => Err(SqlError::new(
            crate::error::ErrorKind::Semantic,
            format!(
                "DECIMAL({precision}, {scale}) is impossible: the precision is from 1 to \
                 {DECIMAL_DIGITS_MAX} digits, the scale from 0 to the precision"
            ),
        )),
    }
}

fn timestamp(precision: Option<u64>, zone: &TimezoneInfo) -> DataType {
    let unit = match precision {
        Some(0) => TimeUnit::Second,
        Some(1..=3) => TimeUnit::Millisecond,
        None | Some(4..=6) => TimeUnit::Microsecond,
        Some(_) => TimeUnit::Nanosecond,
    };
    let zone = match zone {
        TimezoneInfo::Tz | TimezoneInfo::WithTimeZone => Some(ZONE.into()),
        TimezoneInfo::None | TimezoneInfo::WithoutTimeZone => None,
    };
    DataType::Timestamp(unit, zone)
}

/// The type in which a column of a new table is stored: strings and binary as views, whatever a query
/// made of them, also inside lists and structs; what a dictionary or run-ends hold without them.
pub(crate) fn stored_type(data_type: &DataType) -> DataType {
    let item = |field: &FieldRef| {
        Arc::new(Field::new(field.name(), nested_type(field.data_type()), field.is_nullable()))
    };
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Date32,
        DataType::Time32(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Dictionary(_, values) => stored_type(values),
        DataType::RunEndEncoded(_, values) => stored_type(values.data_type()),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field) => DataType::List(item(field)),
        DataType::FixedSizeList(field, len) => DataType::FixedSizeList(item(field), *len),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(item).collect()),
        DataType::Map(entries, is_sorted) => DataType::Map(item(entries), *is_sorted),
        other => other.clone(),
    }
}

/// As [`stored_type`], for what lies inside lists and structs.
fn nested_type(data_type: &DataType) -> DataType {
    stored_type(data_type)
}

/// What people call the type of a column, with its greatest length.
pub(crate) fn column_type_name(column: &Column) -> String {
    let name = type_name(&column.data_type);
    match (TextKind::of_column(column), column.max_length) {
        (Some(kind), _) => kind.name().into_owned(),
        (None, Some(length)) => format!("{name}({length})"),
        (None, None) => name,
    }
}

/// What people call the type of a field.
pub(crate) fn field_type_name(field: &Field) -> String {
    match TextKind::of_field(field) {
        Some(kind) => kind.name().into_owned(),
        None => type_name(shown(field).data_type()),
    }
}

/// What people call a type.
pub fn type_name(data_type: &DataType) -> String {
    let simple = match data_type {
        DataType::Null => "NULL",
        DataType::Boolean => "BOOLEAN",
        DataType::Int8 => "TINYINT",
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => "INTEGER",
        DataType::Int64 => "BIGINT",
        DataType::UInt8 => "TINYINT UNSIGNED",
        DataType::UInt16 => "SMALLINT UNSIGNED",
        DataType::UInt32 => "INTEGER UNSIGNED",
        DataType::UInt64 => "BIGINT UNSIGNED",
        DataType::Float16 => "HALF",
        DataType::Float32 => "REAL",
        DataType::Float64 => "DOUBLE",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "VARCHAR",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "BLOB",
        DataType::Date32 | DataType::Date64 => "DATE",
        DataType::Time32(_) | DataType::Time64(_) => "TIME",
        DataType::Timestamp(unit, zone) => {
            let zone = if zone.is_some() { " WITH TIME ZONE" } else { "" };
            return match unit {
                TimeUnit::Second => format!("TIMESTAMP(0){zone}"),
                TimeUnit::Millisecond => format!("TIMESTAMP(3){zone}"),
                TimeUnit::Microsecond => format!("TIMESTAMP{zone}"),
                TimeUnit::Nanosecond => format!("TIMESTAMP(9){zone}"),
            };
        }
        DataType::Interval(_) | DataType::Duration(_) => "INTERVAL",
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            return format!("DECIMAL({precision}, {scale})");
        }
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => return format!("{}[]", field_type_name(item)),
        DataType::FixedSizeList(item, len) => {
            return format!("{}[{len}]", type_name(item.data_type()));
        }
        DataType::Struct(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|field| format!("{} {}", quoted(field.name()), field_type_name(field)))
                .collect();
            return format!("STRUCT({})", fields.join(", "));
        }
        DataType::Map(entries, _) => {
            let DataType::Struct(fields) = entries.data_type() else { return "MAP".to_owned() };
            let types: Vec<String> = fields.iter().map(|field| field_type_name(field)).collect();
            return format!("MAP({})", types.join(", "));
        }
        DataType::Dictionary(_, values) => return type_name(values),
        DataType::RunEndEncoded(_, values) => return type_name(values.data_type()),
        other => return other.to_string().to_uppercase(),
    };
    simple.to_owned()
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;
    use crate::text::DIALECT;

    fn planned(name: &str) -> Option<DataType> {
        let mut parser = Parser::new(&DIALECT).try_with_sql(name).unwrap();
        plan(&parser.parse_data_type().unwrap()).unwrap()
    }

    #[test]
    fn knows_the_names_that_people_use() {
        assert_eq!(planned("BLOB"), Some(DataType::BinaryView));
        assert_eq!(planned("CHARACTER VARYING(10)"), Some(DataType::Utf8View));
        assert_eq!(planned("DECIMAL(38, 10)"), Some(DataType::Decimal128(38, 10)));
        assert_eq!(planned("FLOAT"), Some(DataType::Float32));
        assert_eq!(planned("TIMESTAMP"), Some(DataType::Timestamp(TimeUnit::Microsecond, None)));
        let zoned = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        assert_eq!(planned("TIMESTAMPTZ"), Some(zoned.clone()));
        assert_eq!(planned("TIMESTAMP WITH TIME ZONE"), Some(zoned));
        assert_eq!(planned("UINTEGER"), Some(DataType::UInt32));
    }

    #[test]
    fn names_come_back() {
        for name in ["BIGINT UNSIGNED", "DECIMAL(12, 2)", "DOUBLE", "TIMESTAMP(9) WITH TIME ZONE"] {
            if let Some(data_type) = planned(name) {
                assert_eq!(type_name(&data_type), name);
            }
        }
    }
}
