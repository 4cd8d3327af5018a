//! What the database holds: schemas, tables, columns and keys.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray, UInt8Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::sql::{
    CommandGetCatalogs, CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys,
    CommandGetImportedKeys, CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTableTypes,
    CommandGetTables, CommandGetXdbcTypeInfo, UpdateDeleteRules,
};
use tonic::Status;
use weft::{CATALOG, ConstraintEntry, ConstraintType};

use super::batches::sent_schema;
use super::error::OrStatus;
use super::info;
use super::session::FlightSession;

/// The types of relations, as `information_schema` has them.
const TABLE_TYPES: [&str; 2] = ["BASE TABLE", "VIEW"];

/// A command that asks for what the server knows: its columns, and its only batch.
#[tonic::async_trait]
pub(super) trait Described: Send + Sized {
    /// The columns.
    fn schema(&self) -> SchemaRef;

    /// The rows.
    async fn batch(self, session: &Arc<FlightSession>) -> Result<RecordBatch, Status>;
}

/// True if a command asks for the only catalog, or for any. An empty name asks for what is in none.
fn is_catalog(name: Option<&str>) -> bool {
    name.is_none_or(|name| name == CATALOG)
}

#[tonic::async_trait]
impl Described for CommandGetCatalogs {
    fn schema(&self) -> SchemaRef {
        self.into_builder().schema()
    }

    async fn batch(self, _: &Arc<FlightSession>) -> Result<RecordBatch, Status> {
        let mut found = self.into_builder();
        found.append(CATALOG);
        found.build().or_status()
    }
}

#[tonic::async_trait]
impl Described for CommandGetDbSchemas {
    fn schema(&self) -> SchemaRef {
        self.clone().into_builder().schema()
    }

    async fn batch(self, session: &Arc<FlightSession>) -> Result<RecordBatch, Status> {
        let inner = session.reader()?;
        let pattern = self.db_schema_filter_pattern.clone();
        let is_catalog = is_catalog(self.catalog.as_deref());
        let mut found = self.into_builder();
        if is_catalog {
            for schema in inner.schemas_like(pattern.as_deref()).await.or_status()? {
                found.append(CATALOG, schema);
            }
        }
        found.build().or_status()
    }
}

#[tonic::async_trait]
impl Described for CommandGetTables {
    fn schema(&self) -> SchemaRef {
        self.clone().into_builder().schema()
    }

    async fn batch(self, session: &Arc<FlightSession>) -> Result<RecordBatch, Status> {
        let inner = session.reader()?;
        let (schemas, tables) =
            (self.db_schema_filter_pattern.clone(), self.table_name_filter_pattern.clone());
        let (has_schema, is_catalog) = (self.include_schema, is_catalog(self.catalog.as_deref()));
        // Other databases call tables that hold rows TABLE.
        let mut query = self;
        if query.table_types.iter().any(|name| name == "TABLE") {
            query.table_types.push(TABLE_TYPES[0].to_owned());
        }
        let wanted = query.table_types.clone();
        let mut found = query.into_builder();
        if !is_catalog {
            return found.build().or_status();
        }
        let entries = inner.tables_like(schemas.as_deref(), tables.as_deref()).await.or_status()?;
        for entry in entries {
            if !wanted.is_empty() && !wanted.contains(&entry.table_type) {
                continue;
            }
            let columns = match has_schema {
                false => Arc::new(Schema::empty()),
                // A view may read what there is no more, or what the user may not.
                true => match inner.table_columns(Some(&entry.schema), &entry.name).await {
                    Ok(columns) => sent_schema(&columns),
                    Err(_) => Arc::new(Schema::empty()),
                },
            };
            let (schema, name) = (&entry.schema, &entry.name);
            found.append(CATALOG, schema, name, &entry.table_type, &columns).or_status()?;
        }
        found.build().or_status()
    }
}

#[tonic::async_trait]
impl Described for CommandGetTableTypes {
    fn schema(&self) -> SchemaRef {
        self.into_builder().schema()
    }

    async fn batch(self, _: &Arc<FlightSession>) -> Result<RecordBatch, Status> {
        let mut found = self.into_builder();
        for name in TABLE_TYPES {
            found.append(name);
        }
        found.build().or_status()
    }
}

#[tonic::async_trait]
impl Described for CommandGetSqlInfo {
    fn schema(&self) -> SchemaRef {
        info::sql_info_schema()
    }

    async fn batch(self, session: &Arc<FlightSession>) -> Result<RecordBatch, Status> {
        info::sql_info(self, session.main().database().is_read_only())
    }
}

#[tonic::async_trait]
impl Described for CommandGetXdbcTypeInfo {
    fn schema(&self) -> SchemaRef {
        info::type_info_schema()
    }

    async fn batch(self, _: &Arc<FlightSession>) -> Result<RecordBatch, Status> {
        info::type_info(self)
    }
}

/// A column of an answer.
fn field(name: &str, data_type: DataType, is_nullable: bool) -> Field {
    Field::new(name, data_type, is_nullable)
}

#[tonic::async_trait]
impl Described for CommandGetPrimaryKeys {
    fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(vec![
            field("catalog_name", DataType::Utf8, true),
            field("db_schema_name", DataType::Utf8, true),
            field("table_name", DataType::Utf8, false),
            field("column_name", DataType::Utf8, false),
            field("key_sequence", DataType::Int32, false),
            field("key_name", DataType::Utf8, true),
        ]))
    }

    async fn batch(self, session: &Arc<FlightSession>) -> Result<RecordBatch, Status> {
        let inner = session.reader()?;
        let named = Named::new(self.catalog.as_deref(), self.db_schema.as_deref(), &self.table);
        let mut rows = Vec::new();
        for key in inner.constraints().await.or_status()? {
            let is_primary = key.constraint_type == ConstraintType::PrimaryKey;
            if is_primary && named.is(&key.schema, &key.table) {
                let columns = key.columns.iter().zip(1..);
                rows.extend(columns.map(|(column, place)| (key.clone(), column.clone(), place)));
            }
        }
        let columns: Vec<ArrayRef> = vec![
            texts(rows.iter().map(|_| Some(CATALOG))),
            texts(rows.iter().map(|(key, ..)| Some(key.schema.as_str()))),
            texts(rows.iter().map(|(key, ..)| Some(key.table.as_str()))),
            texts(rows.iter().map(|(_, column, _)| Some(column.as_str()))),
            Arc::new(Int32Array::from_iter_values(rows.iter().map(|(.., place)| *place))),
            texts(rows.iter().map(|(key, ..)| Some(key.name.as_str()))),
        ];
        RecordBatch::try_new(self.schema(), columns).or_status()
    }
}

/// The table that a command names.
struct Named<'a> {
    is_catalog: bool,
    schema: Option<&'a str>,
    table: &'a str,
}

impl<'a> Named<'a> {
    fn new(catalog: Option<&str>, schema: Option<&'a str>, table: &'a str) -> Named<'a> {
        Named { is_catalog: is_catalog(catalog), schema, table }
    }

    fn is(&self, schema: &str, table: &str) -> bool {
        let is_schema = self.schema.is_none_or(|wanted| wanted == schema);
        self.is_catalog && is_schema && self.table == table
    }
}

fn texts<'a>(values: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(values.collect::<StringArray>())
}

/// The columns of an answer about foreign keys.
fn foreign_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        field("pk_catalog_name", DataType::Utf8, true),
        field("pk_db_schema_name", DataType::Utf8, true),
        field("pk_table_name", DataType::Utf8, false),
        field("pk_column_name", DataType::Utf8, false),
        field("fk_catalog_name", DataType::Utf8, true),
        field("fk_db_schema_name", DataType::Utf8, true),
        field("fk_table_name", DataType::Utf8, false),
        field("fk_column_name", DataType::Utf8, false),
        field("key_sequence", DataType::Int32, false),
        field("fk_key_name", DataType::Utf8, true),
        field("pk_key_name", DataType::Utf8, true),
        field("update_rule", DataType::UInt8, false),
        field("delete_rule", DataType::UInt8, false),
    ]))
}

/// The foreign keys to and from the tables that a command names.
async fn foreign_keys(
    session: &Arc<FlightSession>,
    referenced: Option<Named<'_>>,
    referring: Option<Named<'_>>,
) -> Result<RecordBatch, Status> {
    let mut rows: Vec<(ConstraintEntry, usize)> = Vec::new();
    for key in session.reader()?.constraints().await.or_status()? {
        let Some(target) = &key.referenced else { continue };
        let to = referenced.as_ref().is_none_or(|named| named.is(&target.schema, &target.table));
        let from = referring.as_ref().is_none_or(|named| named.is(&key.schema, &key.table));
        if to && from {
            rows.extend((0..key.columns.len()).map(|place| (key.clone(), place)));
        }
    }
    let of = |get: fn(&ConstraintEntry, usize) -> Option<&str>| {
        texts(rows.iter().map(|(key, place)| get(key, *place)))
    };
    let rule = || -> ArrayRef {
        let rules = rows.iter().map(|_| UpdateDeleteRules::NoAction as u8);
        Arc::new(UInt8Array::from_iter_values(rules))
    };
    let places = rows.iter().map(|(_, place)| i32::try_from(place + 1).unwrap_or(i32::MAX));
    let columns: Vec<ArrayRef> = vec![
        of(|_, _| Some(CATALOG)),
        of(|key, _| Some(key.referenced.as_ref()?.schema.as_str())),
        of(|key, _| Some(key.referenced.as_ref()?.table.as_str())),
        of(|key, place| {
            Some(key.referenced.as_ref()?.columns.get(place).map_or("", String::as_str))
        }),
        of(|_, _| Some(CATALOG)),
        of(|key, _| Some(&key.schema)),
        of(|key, _| Some(&key.table)),
        of(|key, place| key.columns.get(place).map(String::as_str)),
        Arc::new(Int32Array::from_iter_values(places)),
        of(|key, _| Some(&key.name)),
        of(|key, _| key.referenced.as_ref()?.constraint.as_deref()),
        rule(),
        rule(),
    ];
    RecordBatch::try_new(foreign_schema(), columns).or_status()
}

#[tonic::async_trait]
impl Described for CommandGetExportedKeys {
    fn schema(&self) -> SchemaRef {
        foreign_schema()
    }

    async fn batch(self, session: &Arc<FlightSession>) -> Result<RecordBatch, Status> {
        let named = Named::new(self.catalog.as_deref(), self.db_schema.as_deref(), &self.table);
        foreign_keys(session, Some(named), None).await
    }
}

#[tonic::async_trait]
impl Described for CommandGetImportedKeys {
    fn schema(&self) -> SchemaRef {
        foreign_schema()
    }

    async fn batch(self, session: &Arc<FlightSession>) -> Result<RecordBatch, Status> {
        let named = Named::new(self.catalog.as_deref(), self.db_schema.as_deref(), &self.table);
        foreign_keys(session, None, Some(named)).await
    }
}

#[tonic::async_trait]
impl Described for CommandGetCrossReference {
    fn schema(&self) -> SchemaRef {
        foreign_schema()
    }

    async fn batch(self, session: &Arc<FlightSession>) -> Result<RecordBatch, Status> {
        let (catalog, schema) = (self.pk_catalog.as_deref(), self.pk_db_schema.as_deref());
        let referenced = Named::new(catalog, schema, &self.pk_table);
        let (catalog, schema) = (self.fk_catalog.as_deref(), self.fk_db_schema.as_deref());
        let referring = Named::new(catalog, schema, &self.fk_table);
        foreign_keys(session, Some(referenced), Some(referring)).await
    }
}
