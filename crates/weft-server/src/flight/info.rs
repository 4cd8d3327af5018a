//! Facts of the server, and the types that it has.

use std::sync::LazyLock;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::error::FlightError;
use arrow_flight::sql::metadata::{
    SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder,
};
use arrow_flight::sql::{
    CommandGetSqlInfo, CommandGetXdbcTypeInfo, Nullable, Searchable, SqlInfo,
    SqlSupportedTransaction, XdbcDataType,
};
use tonic::Status;

use super::error::OrStatus;

/// The version of Arrow that the server uses.
const ARROW_VERSION: &str = "59.3";

fn facts(is_read_only: bool) -> Result<SqlInfoData, Status> {
    let mut facts = SqlInfoDataBuilder::new();
    facts.append(SqlInfo::FlightSqlServerName, "Weft");
    facts.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    facts.append(SqlInfo::FlightSqlServerArrowVersion, ARROW_VERSION);
    facts.append(SqlInfo::FlightSqlServerReadOnly, is_read_only);
    facts.append(SqlInfo::FlightSqlServerSql, true);
    facts.append(SqlInfo::FlightSqlServerSubstrait, false);
    facts.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::Savepoint as i32);
    facts.append(SqlInfo::FlightSqlServerCancel, true);
    facts.append(SqlInfo::FlightSqlServerBulkIngestion, true);
    facts.append(SqlInfo::FlightSqlServerIngestTransactionsSupported, true);
    facts.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    facts.append(SqlInfo::SqlDdlCatalog, false);
    facts.append(SqlInfo::SqlDdlSchema, true);
    facts.append(SqlInfo::SqlDdlTable, true);
    facts.append(SqlInfo::SqlTransactionsSupported, true);
    facts.build().or_status()
}

/// The facts of the server that a client asks for.
pub(super) fn sql_info(
    query: CommandGetSqlInfo,
    is_read_only: bool,
) -> Result<RecordBatch, Status> {
    query.into_builder(&facts(is_read_only)?).build().or_status()
}

/// The columns of the facts.
pub(super) fn sql_info_schema() -> SchemaRef {
    SqlInfoDataBuilder::schema().clone().into()
}

/// The types of SQL: their names, what XDBC calls them, and the digits or characters that a value has at most.
const TYPES: [(&str, XdbcDataType, Option<i32>); 13] = [
    ("BOOLEAN", XdbcDataType::XdbcBit, Some(1)),
    ("TINYINT", XdbcDataType::XdbcTinyint, Some(3)),
    ("SMALLINT", XdbcDataType::XdbcSmallint, Some(5)),
    ("INTEGER", XdbcDataType::XdbcInteger, Some(10)),
    ("BIGINT", XdbcDataType::XdbcBigint, Some(19)),
    ("REAL", XdbcDataType::XdbcReal, Some(7)),
    ("DOUBLE", XdbcDataType::XdbcDouble, Some(15)),
    ("DECIMAL", XdbcDataType::XdbcDecimal, Some(38)),
    ("VARCHAR", XdbcDataType::XdbcVarchar, None),
    ("BLOB", XdbcDataType::XdbcVarbinary, None),
    ("DATE", XdbcDataType::XdbcDate, Some(10)),
    ("TIME", XdbcDataType::XdbcTime, Some(15)),
    ("TIMESTAMP", XdbcDataType::XdbcTimestamp, Some(26)),
];

static TYPE_INFO: LazyLock<Result<XdbcTypeInfoData, FlightError>> = LazyLock::new(|| {
    let mut types = XdbcTypeInfoDataBuilder::new();
    for (name, data_type, column_size) in TYPES {
        let is_number = matches!(
            data_type,
            XdbcDataType::XdbcTinyint
                | XdbcDataType::XdbcSmallint
                | XdbcDataType::XdbcInteger
                | XdbcDataType::XdbcBigint
                | XdbcDataType::XdbcReal
                | XdbcDataType::XdbcDouble
                | XdbcDataType::XdbcDecimal
        );
        let quote = (!is_number && name != "BOOLEAN").then(|| "'".to_owned());
        types.append(XdbcTypeInfo {
            type_name: name.to_owned(),
            data_type,
            column_size,
            literal_prefix: quote.clone(),
            literal_suffix: quote,
            create_params: (name == "DECIMAL")
                .then(|| vec!["precision".to_owned(), "scale".to_owned()]),
            nullable: Nullable::NullabilityNullable,
            case_sensitive: name == "VARCHAR",
            searchable: Searchable::Full,
            unsigned_attribute: is_number.then_some(false),
            fixed_prec_scale: false,
            auto_increment: Some(false),
            local_type_name: Some(name.to_owned()),
            minimum_scale: (name == "DECIMAL").then_some(0),
            maximum_scale: (name == "DECIMAL").then_some(38),
            sql_data_type: data_type,
            datetime_subcode: None,
            num_prec_radix: is_number.then_some(10),
            interval_precision: None,
        });
    }
    types.build()
});

fn type_data() -> Result<&'static XdbcTypeInfoData, Status> {
    TYPE_INFO.as_ref().map_err(|error| Status::internal(error.to_string()))
}

/// The types that a client asks for.
pub(super) fn type_info(query: CommandGetXdbcTypeInfo) -> Result<RecordBatch, Status> {
    query.into_builder(type_data()?).build().or_status()
}

/// The columns of the types.
pub(super) fn type_info_schema() -> SchemaRef {
    type_data().map_or_else(|_| arrow::datatypes::Schema::empty().into(), |data| data.schema())
}
