//! Statistics of tables: how many rows each has.

use std::sync::Arc;

use adbc_core::error::Result;
use adbc_core::{constants, schemas};
use arrow::array::{
    ArrayRef, AsArray, BinaryArray, BooleanArray, Float64Array, Int16Array, Int64Array,
    UInt64Array, UnionArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use arrow::record_batch::RecordBatchReader;
use weft::{CATALOG, Session, Value, block_on, quoted};

use crate::error::{OrAdbc, not_implemented};
use crate::nested::{lists, reader, structs, texts};
use crate::objects::catalog_is_like;

type Reader = Box<dyn RecordBatchReader + Send + 'static>;

/// The names of statistics that ADBC does not know by itself: none.
pub(crate) fn names() -> Result<Reader> {
    let keys = Arc::new(Int16Array::from(Vec::<i16>::new()));
    reader(&schemas::GET_STATISTIC_NAMES_SCHEMA, vec![texts(std::iter::empty()), keys])
}

/// The numbers of rows of tables, by schema: the numbers that the last statement to commit has left, or numbers counted anew.
pub(crate) fn statistics(
    session: &Session,
    catalog: Option<&str>,
    db_schema: Option<&str>,
    table_name: Option<&str>,
    is_approximate: bool,
) -> Result<Reader> {
    let tables = match catalog_is_like(session, catalog) {
        true => block_on(session.tables_like(db_schema, table_name)).or_adbc()?,
        false => Vec::new(),
    };
    let (mut schemas_found, mut lengths, mut table_names) = (Vec::new(), Vec::new(), Vec::new());
    let mut counts = Vec::new();
    for table in tables.iter().filter(|table| table.table_type == "BASE TABLE") {
        counts.push(match is_approximate {
            true => kept_count(session, &table.schema, &table.name)?,
            false => count(session, &table.schema, &table.name)?,
        });
        table_names.push(table.name.as_str());
        match lengths.last_mut() {
            Some(length) if schemas_found.last() == Some(&table.schema.as_str()) => *length += 1,
            _ => {
                schemas_found.push(table.schema.as_str());
                lengths.push(1);
            }
        }
    }
    let lengths: Vec<Option<usize>> = lengths.into_iter().map(Some).collect();
    let values = values(&counts, is_approximate)?;
    let rows = counts.len();
    let columns = vec![
        texts(table_names.into_iter().map(Some)),
        texts(std::iter::repeat_n(None, rows)),
        Arc::new(Int16Array::from(vec![constants::ADBC_STATISTIC_ROW_COUNT_KEY; rows])),
        values,
        Arc::new(BooleanArray::from(vec![is_approximate; rows])),
    ];
    let found = structs(&schemas::STATISTICS_SCHEMA, columns)?;
    let per_schema = lists(found, &lengths)?;
    let names = texts(schemas_found.iter().map(|name| Some(*name)));
    let found = structs(&schemas::STATISTICS_DB_SCHEMA_SCHEMA, vec![names, per_schema])?;
    let per_catalog: Vec<_> =
        (!schemas_found.is_empty()).then_some(Some(schemas_found.len())).into_iter().collect();
    let catalogs = texts(per_catalog.iter().map(|_| Some(CATALOG)));
    reader(&schemas::GET_STATISTICS_SCHEMA, vec![catalogs, lists(found, &per_catalog)?])
}

fn values(counts: &[i64], is_approximate: bool) -> Result<ArrayRef> {
    let DataType::Union(fields, _) = &*schemas::STATISTIC_VALUE_SCHEMA else {
        return not_implemented("a statistic that is no union");
    };
    let (exact, rough): (&[i64], &[i64]) =
        if is_approximate { (&[], counts) } else { (counts, &[]) };
    let kind = if is_approximate { 2 } else { 0 };
    let places: Vec<i32> = (0..).take(counts.len()).collect();
    let children: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(exact.to_vec())),
        Arc::new(UInt64Array::from(Vec::<u64>::new())),
        Arc::new(Float64Array::from_iter_values(rough.iter().map(|count| *count as f64))),
        Arc::new(BinaryArray::from(Vec::<&[u8]>::new())),
    ];
    let kinds = vec![kind; counts.len()];
    let values = UnionArray::try_new(fields.clone(), kinds.into(), Some(places.into()), children)?;
    Ok(Arc::new(values))
}

fn kept_count(session: &Session, schema: &str, table: &str) -> Result<i64> {
    let sql = "SELECT n_live_tup FROM pg_catalog.pg_stat_user_tables WHERE schemaname = $1 AND relname = $2";
    first_number(session, sql, &[Value::from(schema), Value::from(table)])
}

fn count(session: &Session, schema: &str, table: &str) -> Result<i64> {
    let sql = format!("SELECT count(*) FROM {}.{}", quoted(schema), quoted(table));
    first_number(session, &sql, &[])
}

fn first_number(session: &Session, sql: &str, values: &[Value]) -> Result<i64> {
    let batches = session.start(sql, values).collect().or_adbc()?;
    let Some(batch) = batches.first() else { return Ok(0) };
    let column = cast(batch.column(0), &DataType::Int64)?;
    Ok(column.as_primitive::<Int64Type>().value(0))
}
