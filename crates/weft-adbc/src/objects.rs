//! What the database holds, as a tree: the catalog, its schemas, their tables, and columns and constraints of these.

use std::sync::Arc;

use adbc_core::error::Result;
use adbc_core::options::ObjectDepth;
use adbc_core::schemas;
use arrow::array::{ArrayRef, AsArray, Int16Array, Int32Array, RecordBatch, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use arrow::record_batch::RecordBatchReader;
use weft::{CATALOG, ConstraintEntry, Session, TableEntry, Value, block_on};

use crate::error::OrAdbc;
use crate::nested::{lists, reader, structs, texts};

/// Which objects are wanted: names by patterns of `LIKE`.
pub(crate) struct ObjectFilter<'a> {
    pub(crate) catalog: Option<&'a str>,
    pub(crate) db_schema: Option<&'a str>,
    pub(crate) table_name: Option<&'a str>,
    pub(crate) table_type: Option<Vec<&'a str>>,
    pub(crate) column_name: Option<&'a str>,
}

/// The objects of a session's database, down to a depth.
pub(crate) fn objects(
    session: &Session,
    depth: ObjectDepth,
    filter: &ObjectFilter<'_>,
) -> Result<Box<dyn RecordBatchReader + Send + 'static>> {
    let catalogs: Vec<&str> =
        [CATALOG].into_iter().filter(|_| catalog_is_like(session, filter.catalog)).collect();
    let names = texts(catalogs.iter().map(|name| Some(*name)));
    let found = match (depth, catalogs.is_empty()) {
        (ObjectDepth::Catalogs, _) => None,
        (_, true) => Some(Vec::new()),
        _ => Some(schemas_of(session, depth, filter)?),
    };
    let per_catalog = vec![found.as_ref().map(Vec::len); catalogs.len()];
    let trees = lists(array_of_schemas(&found.unwrap_or_default())?, &per_catalog)?;
    reader(&schemas::GET_OBJECTS_SCHEMA, vec![names, trees])
}

/// Whether the name of the only catalog is like a pattern. An empty pattern asks for what is in none.
pub(crate) fn catalog_is_like(session: &Session, pattern: Option<&str>) -> bool {
    let Some(pattern) = pattern else { return true };
    let values = [Value::from(CATALOG), Value::from(pattern)];
    let matches = session.start("SELECT $1 LIKE $2", &values).collect();
    matches.is_ok_and(|batches| {
        batches.first().is_some_and(|batch| batch.column(0).as_boolean().value(0))
    })
}

struct SchemaNode {
    name: String,
    tables: Option<Vec<TableNode>>,
}

struct TableNode {
    entry: TableEntry,
    columns: Option<Vec<ColumnNode>>,
    constraints: Option<Vec<ConstraintEntry>>,
}

/// A column, as `information_schema.columns` has it.
struct ColumnNode {
    schema: String,
    table: String,
    name: String,
    type_name: String,
    default: Option<String>,
    is_nullable: bool,
    ordinal: Option<i64>,
    length: Option<i64>,
    precision: Option<i64>,
    radix: Option<i64>,
    scale: Option<i64>,
}

fn schemas_of(
    session: &Session,
    depth: ObjectDepth,
    filter: &ObjectFilter<'_>,
) -> Result<Vec<SchemaNode>> {
    let names = block_on(session.schemas_like(filter.db_schema)).or_adbc()?;
    if depth == ObjectDepth::Schemas {
        return Ok(names.into_iter().map(|name| SchemaNode { name, tables: None }).collect());
    }
    let found = block_on(session.tables_like(filter.db_schema, filter.table_name)).or_adbc()?;
    let has_columns = depth != ObjectDepth::Tables;
    let (mut columns, mut constraints) = (Vec::new(), Vec::new());
    if has_columns {
        columns = columns_of(session, filter)?;
        constraints = block_on(session.constraints()).or_adbc()?;
    }
    let is_wanted = |entry: &TableEntry| {
        let types = filter.table_type.as_ref();
        types.is_none_or(|types| types.contains(&entry.table_type.as_str()))
    };
    let table = |entry: TableEntry| {
        let mine = |schema: &str, table: &str| schema == entry.schema && table == entry.name;
        let columns = has_columns.then(|| {
            let found = columns.extract_if(.., |column| mine(&column.schema, &column.table));
            found.collect::<Vec<_>>()
        });
        let constraints = has_columns.then(|| {
            let found = constraints.extract_if(.., |found| mine(&found.schema, &found.table));
            found.collect::<Vec<_>>()
        });
        TableNode { columns, constraints, entry }
    };
    let mut tables: Vec<TableNode> = found.into_iter().filter(is_wanted).map(table).collect();
    let schema = |name: String| {
        let mine = tables.extract_if(.., |table| table.entry.schema == name).collect();
        SchemaNode { tables: Some(mine), name }
    };
    Ok(names.into_iter().map(schema).collect())
}

fn columns_of(session: &Session, filter: &ObjectFilter<'_>) -> Result<Vec<ColumnNode>> {
    let sql = "SELECT table_schema, table_name, column_name, data_type, column_default, is_nullable, ordinal_position, \
               character_maximum_length, numeric_precision, numeric_precision_radix, numeric_scale \
               FROM information_schema.columns \
               WHERE table_schema LIKE $1 AND table_name LIKE $2 AND column_name LIKE $3 \
               ORDER BY table_schema, table_name, ordinal_position";
    let patterns = [filter.db_schema, filter.table_name, filter.column_name];
    let patterns = patterns.map(|pattern| Value::from(pattern.unwrap_or("%")));
    let batches = session.start(sql, &patterns).collect().or_adbc()?;
    let mut found = Vec::new();
    for batch in &batches {
        let [schemas, tables, names, types, defaults, nullable] =
            [0, 1, 2, 3, 4, 5].map(|column| words_of(batch, column));
        let [ordinals, lengths, precisions, radixes, scales] =
            [6, 7, 8, 9, 10].map(|column| numbers_of(batch, column));
        for row in 0..batch.num_rows() {
            let word = |column: &[Option<String>]| column[row].clone().unwrap_or_default();
            found.push(ColumnNode {
                schema: word(&schemas),
                table: word(&tables),
                name: word(&names),
                type_name: word(&types),
                default: defaults[row].clone(),
                is_nullable: word(&nullable) == "YES",
                ordinal: ordinals[row],
                length: lengths[row],
                precision: precisions[row],
                radix: radixes[row],
                scale: scales[row],
            });
        }
    }
    Ok(found)
}

/// The values of a column of texts.
fn words_of(batch: &RecordBatch, column: usize) -> Vec<Option<String>> {
    match cast(batch.column(column), &DataType::LargeUtf8) {
        Ok(column) => {
            column.as_string::<i64>().iter().map(|value| value.map(str::to_owned)).collect()
        }
        Err(_) => vec![None; batch.num_rows()],
    }
}

/// The values of a column of numbers.
fn numbers_of(batch: &RecordBatch, column: usize) -> Vec<Option<i64>> {
    match cast(batch.column(column), &DataType::Int64) {
        Ok(column) => column.as_primitive::<Int64Type>().iter().collect(),
        Err(_) => vec![None; batch.num_rows()],
    }
}

fn array_of_schemas(nodes: &[SchemaNode]) -> Result<ArrayRef> {
    let names = texts(nodes.iter().map(|node| Some(node.name.as_str())));
    let lengths: Vec<_> = nodes.iter().map(|node| node.tables.as_ref().map(Vec::len)).collect();
    let tables: Vec<&TableNode> =
        nodes.iter().filter_map(|node| node.tables.as_ref()).flatten().collect();
    let tables = lists(array_of_tables(&tables)?, &lengths)?;
    structs(&schemas::OBJECTS_DB_SCHEMA_SCHEMA, vec![names, tables])
}

fn array_of_tables(nodes: &[&TableNode]) -> Result<ArrayRef> {
    let names = texts(nodes.iter().map(|node| Some(node.entry.name.as_str())));
    let types = texts(nodes.iter().map(|node| Some(node.entry.table_type.as_str())));
    let lengths: Vec<_> = nodes.iter().map(|node| node.columns.as_ref().map(Vec::len)).collect();
    let columns: Vec<&ColumnNode> =
        nodes.iter().filter_map(|node| node.columns.as_ref()).flatten().collect();
    let columns = lists(array_of_columns(&columns)?, &lengths)?;
    let lengths: Vec<_> =
        nodes.iter().map(|node| node.constraints.as_ref().map(Vec::len)).collect();
    let constraints: Vec<&ConstraintEntry> =
        nodes.iter().filter_map(|node| node.constraints.as_ref()).flatten().collect();
    let constraints = lists(array_of_constraints(&constraints)?, &lengths)?;
    structs(&schemas::TABLE_SCHEMA, vec![names, types, columns, constraints])
}

fn array_of_columns(nodes: &[&ColumnNode]) -> Result<ArrayRef> {
    let word = |of: fn(&ColumnNode) -> Option<&str>| texts(nodes.iter().map(|node| of(node)));
    let wide = |of: fn(&ColumnNode) -> Option<i64>| -> ArrayRef {
        let value = |node: &&ColumnNode| of(node).and_then(|value| i32::try_from(value).ok());
        Arc::new(nodes.iter().map(value).collect::<Int32Array>())
    };
    let narrow = |of: fn(&ColumnNode) -> Option<i64>| -> ArrayRef {
        let value = |node: &&ColumnNode| of(node).and_then(|value| i16::try_from(value).ok());
        Arc::new(nodes.iter().map(value).collect::<Int16Array>())
    };
    let nothing = |data_type| new_null_array(data_type, nodes.len());
    let columns = vec![
        word(|node| Some(&node.name)),
        wide(|node| node.ordinal),
        nothing(&DataType::Utf8),
        nothing(&DataType::Int16),
        word(|node| Some(&node.type_name)),
        wide(|node| node.length.or(node.precision)),
        narrow(|node| node.scale),
        narrow(|node| node.radix),
        narrow(|node| Some(i64::from(node.is_nullable))),
        word(|node| node.default.as_deref()),
        nothing(&DataType::Int16),
        nothing(&DataType::Int16),
        wide(|node| node.length),
        word(|node| Some(if node.is_nullable { "YES" } else { "NO" })),
        nothing(&DataType::Utf8),
        nothing(&DataType::Utf8),
        nothing(&DataType::Utf8),
        nothing(&DataType::Boolean),
        nothing(&DataType::Boolean),
    ];
    structs(&schemas::COLUMN_SCHEMA, columns)
}

fn array_of_constraints(nodes: &[&ConstraintEntry]) -> Result<ArrayRef> {
    let names = texts(nodes.iter().map(|node| Some(node.name.as_str())));
    let types = texts(nodes.iter().map(|node| Some(node.constraint_type.name())));
    let lengths: Vec<_> = nodes.iter().map(|node| Some(node.columns.len())).collect();
    let columns =
        texts(nodes.iter().flat_map(|node| &node.columns).map(|name| Some(name.as_str())));
    let columns = lists(columns, &lengths)?;
    let lengths: Vec<_> = nodes
        .iter()
        .map(|node| node.referenced.as_ref().map(|referenced| referenced.columns.len()))
        .collect();
    let used: Vec<[&str; 3]> = nodes
        .iter()
        .filter_map(|node| node.referenced.as_ref())
        .flat_map(|key| {
            key.columns
                .iter()
                .map(|column| [key.schema.as_str(), key.table.as_str(), column.as_str()])
        })
        .collect();
    let part = |number: usize| texts(used.iter().map(|one| Some(one[number])));
    let catalogs = texts(used.iter().map(|_| Some(CATALOG)));
    let used = structs(&schemas::USAGE_SCHEMA, vec![catalogs, part(0), part(1), part(2)])?;
    let usage = lists(used, &lengths)?;
    structs(&schemas::CONSTRAINT_SCHEMA, vec![names, types, columns, usage])
}
