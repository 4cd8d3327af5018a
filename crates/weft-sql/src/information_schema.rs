//! `information_schema`: what a statement's snapshot holds, as tables.
//!
//! `tables`, `columns`, `views`, `schemata` and the constraints (`constraints.rs`) are made here, and tables of what Weft has none of, with the names of types that DESCRIBE prints;
//! DataFusion's own (`routines`, `parameters`, `df_settings`) come from it.

mod constraints;

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, StringViewArray};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::record_batch::RecordBatch;
use datafusion::catalog::information_schema::InformationSchemaProvider;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result as DfResult};
use datafusion::datasource::MemTable;
use futures::future::BoxFuture;
use weft_store::{Column, Snapshot};

use crate::access::acl::PUBLIC;
use crate::access::{Acl, Rights};
use crate::catalog::{CATALOG, SCHEMA, StatementCatalog};
use crate::definitions::{self, Kind};
use crate::error::Result;
use crate::postgres::{OWNER, PG_CATALOG, postgres_type_name};
use crate::result_types::result_schema;
use crate::schemas;
use crate::sequences::Sequence;
use crate::text_kinds::column_of;
use crate::types::column_type_name;

/// The name of the schema.
pub(crate) const INFORMATION_SCHEMA: &str = "information_schema";

/// What is made here.
const OWN: [&str; 11] = [
    "check_constraints",
    "columns",
    "key_column_usage",
    "referential_constraints",
    "role_table_grants",
    "schemata",
    "sequences",
    "table_constraints",
    "table_privileges",
    "tables",
    "views",
];

/// What has no rows, as Weft has no such objects: names of tables, and of their columns.
const EMPTY: [(&str, &str); 3] = [
    ("applicable_roles", "grantee role_name is_grantable"),
    ("domains", "domain_catalog domain_schema domain_name data_type"),
    (
        "triggers",
        "trigger_catalog trigger_schema trigger_name event_manipulation event_object_catalog event_object_schema \
         event_object_table action_order action_statement action_orientation action_timing",
    ),
];

/// What DataFusion makes.
const OTHERS: [&str; 3] = ["df_settings", "parameters", "routines"];

/// The schema during one statement.
#[derive(Debug)]
pub(crate) struct InformationSchema {
    catalog: StatementCatalog,
}

impl InformationSchema {
    pub(crate) fn new(catalog: StatementCatalog) -> InformationSchema {
        InformationSchema { catalog }
    }

    fn tables(&self) -> Result<MemTable> {
        let snapshot = self.catalog.snapshot();
        let tables = definitions::lasting_tables(snapshot).map(|name| (name, "BASE TABLE", "YES"));
        let views = definitions::lasting_views(snapshot).map(|(name, _)| (name, "VIEW", "NO"));
        let mut rows: Vec<_> = tables.chain(views).collect();
        rows.sort_unstable();
        let columns = placed(snapshot, rows.iter().map(|row| row.0)).into_iter().chain([
            text("table_type", rows.iter().map(|row| Some(row.1))),
            text("is_insertable_into", rows.iter().map(|row| Some(row.2))),
        ]);
        table(columns.collect())
    }

    fn views(&self) -> Result<MemTable> {
        let snapshot = self.catalog.snapshot();
        let mut rows: Vec<_> = definitions::lasting_views(snapshot).collect();
        rows.sort_unstable();
        let no = || rows.iter().map(|_| Some("NO"));
        let columns = placed(snapshot, rows.iter().map(|row| row.0)).into_iter().chain([
            text("view_definition", rows.iter().map(|row| Some(row.1))),
            text("check_option", rows.iter().map(|_| Some("NONE"))),
            text("is_updatable", no()),
            text("is_insertable_into", no()),
        ]);
        table(columns.collect())
    }

    fn schemata(&self) -> Result<MemTable> {
        let mut names = vec![INFORMATION_SCHEMA, SCHEMA, PG_CATALOG];
        names.extend(definitions::names(self.catalog.snapshot(), Kind::Schema));
        names.sort_unstable();
        table(vec![
            text("catalog_name", names.iter().map(|_| Some(CATALOG))),
            text("schema_name", names.iter().map(|name| Some(*name))),
            text("schema_owner", names.iter().map(|_| Some(OWNER))),
        ])
    }

    fn sequences(&self) -> Result<MemTable> {
        let snapshot = self.catalog.snapshot();
        let mut rows: Vec<(&str, Sequence)> = Vec::new();
        for name in definitions::names(snapshot, Kind::Sequence) {
            rows.extend(Sequence::find(snapshot, name)?.map(|found| (name, found)));
        }
        let [catalog, schema, name] = placed(snapshot, rows.iter().map(|row| row.0));
        let numbers = |of: fn(&Sequence) -> i64| -> Vec<String> {
            rows.iter().map(|(_, sequence)| of(sequence).to_string()).collect()
        };
        let [starts, least, most, steps] = [
            numbers(|of| of.start),
            numbers(|of| of.min),
            numbers(|of| of.max),
            numbers(|of| of.increment),
        ];
        let texts = |name, values: &[String]| {
            let values: Vec<Option<&str>> = values.iter().map(|of| Some(of.as_str())).collect();
            text(name, values.into_iter())
        };
        let cycles = |sequence: &Sequence| if sequence.cycles { "YES" } else { "NO" };
        table(vec![
            ("sequence_catalog", catalog.1),
            ("sequence_schema", schema.1),
            ("sequence_name", name.1),
            text("data_type", rows.iter().map(|_| Some("bigint"))),
            texts("start_value", &starts),
            texts("minimum_value", &least),
            texts("maximum_value", &most),
            texts("increment", &steps),
            text("cycle_option", rows.iter().map(|(_, sequence)| Some(cycles(sequence)))),
        ])
    }

    /// Rights on tables and views that the session's role has or has given, those of PUBLIC among them if `has_public`.
    fn table_privileges(&self, has_public: bool) -> Result<MemTable> {
        let snapshot = self.catalog.snapshot();
        let access = self.catalog.access();
        let views = definitions::lasting_views(snapshot).map(|(name, _)| name);
        let mut names: Vec<_> = definitions::lasting_tables(snapshot).chain(views).collect();
        names.sort_unstable();
        let mut rows: Vec<(&str, String, String, &str)> = Vec::new();
        for name in names {
            let acl = Acl::of(snapshot, Kind::Access, name);
            let own = (acl.owner.clone(), Rights::OF_RELATION);
            let others = acl.granted.iter().filter(|(role, _)| **role != acl.owner);
            let others = others.map(|(role, rights)| (role.clone(), *rights));
            for (role, rights) in std::iter::once(own).chain(others) {
                let is_public = role == PUBLIC;
                let is_known = access.owns(&acl) || is_public || access.is_member(&role);
                if is_public && !has_public || !is_known {
                    continue;
                }
                let role = if is_public { "PUBLIC".to_owned() } else { role };
                let rows_of =
                    rights.words().map(|word| (name, acl.owner.clone(), role.clone(), word));
                rows.extend(rows_of);
            }
        }
        let [catalog, schema, table_name] = placed(snapshot, rows.iter().map(|row| row.0));
        table(vec![
            text("grantor", rows.iter().map(|row| Some(row.1.as_str()))),
            text("grantee", rows.iter().map(|row| Some(row.2.as_str()))),
            catalog,
            schema,
            table_name,
            text("privilege_type", rows.iter().map(|row| Some(row.3))),
            text(
                "is_grantable",
                rows.iter().map(|row| Some(if row.1 == row.2 { "YES" } else { "NO" })),
            ),
            text(
                "with_hierarchy",
                rows.iter().map(|row| Some(if row.3 == "SELECT" { "YES" } else { "NO" })),
            ),
        ])
    }

    async fn columns(&self) -> Result<MemTable> {
        let snapshot = self.catalog.snapshot();
        let mut relations: Vec<(String, Vec<Column>)> = definitions::lasting_tables(snapshot)
            .filter_map(|name| snapshot.table(name))
            .map(|table| (table.schema().name.clone(), table.schema().columns.clone()))
            .collect();
        for (name, sql) in definitions::lasting_views(snapshot) {
            // A view that does not work any more has no columns.
            if let Some(columns) = view_columns(&self.catalog, name, sql).await {
                relations.push((name.to_owned(), columns));
            }
        }
        relations.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        let rows: Vec<Row<'_>> = relations
            .iter()
            .flat_map(|(table, columns)| {
                let numbered = columns.iter().zip(1..);
                numbered.map(|(column, position)| Row { table, column, position })
            })
            .collect();
        let numbers = |name, of: fn(&Row<'_>) -> Option<i32>| integer(name, rows.iter().map(of));
        let nullable = |row: &Row<'_>| if row.column.nullable { "YES" } else { "NO" };
        let types: Vec<String> = rows.iter().map(|row| column_type_name(row.column)).collect();
        let udt_names: Vec<String> =
            rows.iter().map(|row| postgres_type_name(row.column)).collect();
        let columns = placed(snapshot, rows.iter().map(|row| row.table)).into_iter().chain([
            text("column_name", rows.iter().map(|row| Some(row.column.name.as_str()))),
            numbers("ordinal_position", |row| Some(row.position)),
            text("column_default", rows.iter().map(|row| row.column.default.as_deref())),
            text("is_nullable", rows.iter().map(|row| Some(nullable(row)))),
            text("data_type", types.iter().map(|name| Some(name.as_str()))),
            numbers("character_maximum_length", |row| row.characters()),
            numbers("numeric_precision", |row| Some(number_of(row)?.precision)),
            numbers("numeric_precision_radix", |row| Some(number_of(row)?.radix)),
            numbers("numeric_scale", |row| number_of(row)?.scale),
            numbers("datetime_precision", |row| time_digits(&row.column.data_type)),
            text("udt_catalog", rows.iter().map(|_| Some(CATALOG))),
            text("udt_schema", rows.iter().map(|_| Some(PG_CATALOG))),
            text("udt_name", udt_names.iter().map(|name| Some(name.as_str()))),
            text("collation_name", rows.iter().map(|_| None)),
            text("domain_name", rows.iter().map(|_| None)),
            text("is_identity", rows.iter().map(|_| Some("NO"))),
            text("identity_generation", rows.iter().map(|_| None)),
            text("is_generated", rows.iter().map(|_| Some("NEVER"))),
            text("generation_expression", rows.iter().map(|_| None)),
            text("is_updatable", rows.iter().map(|_| Some("NO"))),
        ]);
        table(columns.collect())
    }
}

/// The columns of a view; `None` if it does not work any more.
pub(crate) async fn view_columns(
    catalog: &StatementCatalog,
    name: &str,
    sql: &str,
) -> Option<Vec<Column>> {
    let view = catalog.view(name, sql).await.ok()?;
    let plan = view.get_logical_plan()?;
    let schema = result_schema(&catalog.planning_state(), &plan).ok()?;
    Some(schema.fields().iter().map(|field| column_of(field)).collect())
}

/// A column of a table or view.
struct Row<'a> {
    table: &'a str,
    column: &'a Column,
    /// From 1 on.
    position: i32,
}

impl Row<'_> {
    fn characters(&self) -> Option<i32> {
        let is_text = matches!(
            self.column.data_type,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
        );
        self.column.max_length.filter(|_| is_text).and_then(|length| i32::try_from(length).ok())
    }
}

/// How exact a number is: digits of which base, and those behind the point where they are fixed.
struct Number {
    precision: i32,
    radix: i32,
    scale: Option<i32>,
}

fn number_of(row: &Row<'_>) -> Option<Number> {
    let binary = |precision, scale| Some(Number { precision, radix: 2, scale });
    match row.column.data_type {
        DataType::Int8 | DataType::UInt8 => binary(8, Some(0)),
        DataType::Int16 | DataType::UInt16 => binary(16, Some(0)),
        DataType::Int32 | DataType::UInt32 => binary(32, Some(0)),
        DataType::Int64 | DataType::UInt64 => binary(64, Some(0)),
        DataType::Float16 => binary(11, None),
        DataType::Float32 => binary(24, None),
        DataType::Float64 => binary(53, None),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            Some(Number { precision: precision.into(), radix: 10, scale: Some(scale.into()) })
        }
        _ => None,
    }
}

/// Digits of the fractions of seconds.
fn time_digits(data_type: &DataType) -> Option<i32> {
    match data_type {
        DataType::Date32 | DataType::Date64 => Some(0),
        DataType::Time32(unit) | DataType::Time64(unit) | DataType::Timestamp(unit, _) => {
            Some(match unit {
                TimeUnit::Second => 0,
                TimeUnit::Millisecond => 3,
                TimeUnit::Microsecond => 6,
                TimeUnit::Nanosecond => 9,
            })
        }
        DataType::Interval(_) => Some(9),
        _ => None,
    }
}

type NamedArray = (&'static str, ArrayRef);

/// The catalog, the schemas and the names within them of tables, from the names by which the store has them.
fn placed<'a>(snapshot: &Snapshot, names: impl Iterator<Item = &'a str>) -> [NamedArray; 3] {
    let parts: Vec<(&str, &str)> = names.map(|name| schemas::parts(snapshot, name)).collect();
    [
        text("table_catalog", parts.iter().map(|_| Some(CATALOG))),
        text("table_schema", parts.iter().map(|(schema, _)| Some(*schema))),
        text("table_name", parts.iter().map(|(_, name)| Some(*name))),
    ]
}

fn text<'a>(name: &'static str, values: impl Iterator<Item = Option<&'a str>>) -> NamedArray {
    (name, Arc::new(values.collect::<StringViewArray>()))
}

fn integer(name: &'static str, values: impl Iterator<Item = Option<i32>>) -> NamedArray {
    (name, Arc::new(values.collect::<Int32Array>()))
}

fn table(columns: Vec<NamedArray>) -> Result<MemTable> {
    let field = |(name, array): &NamedArray| Field::new(*name, array.data_type().clone(), true);
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays)?;
    Ok(MemTable::try_new(schema, vec![vec![batch]])?)
}

impl SchemaProvider for InformationSchema {
    fn table_names(&self) -> Vec<String> {
        names().map(str::to_owned).collect()
    }

    // Written out as `async_trait` would, but for the future: see `found`.
    fn table<'a, 'b, 'f>(
        &'a self,
        name: &'b str,
    ) -> BoxFuture<'f, DfResult<Option<Arc<dyn TableProvider>>>>
    where
        'a: 'f,
        'b: 'f,
        Self: 'f,
    {
        found(self, name)
    }

    fn table_exist(&self, name: &str) -> bool {
        names().any(|known| known == name)
    }
}

/// The names of all tables.
fn names() -> impl Iterator<Item = &'static str> {
    OWN.into_iter().chain(EMPTY.map(|(name, _)| name)).chain(OTHERS)
}

/// The table of this name without rows.
fn empty(name: &str) -> Option<Result<MemTable>> {
    let (_, columns) = EMPTY.into_iter().find(|(known, _)| *known == name)?;
    Some(table(columns.split_whitespace().map(|column| text(column, std::iter::empty())).collect()))
}

/// The table of this name, as `catalog::found`.
fn found<'a>(
    schema: &'a InformationSchema,
    name: &'a str,
) -> BoxFuture<'a, DfResult<Option<Arc<dyn TableProvider>>>> {
    Box::pin(async move {
        let own = match name {
            "tables" => schema.tables(),
            "columns" => schema.columns().await,
            "views" => schema.views(),
            "table_constraints" => schema.table_constraints(),
            "key_column_usage" => schema.key_column_usage(),
            "check_constraints" => schema.check_constraints(),
            "referential_constraints" => schema.referential_constraints(),
            "role_table_grants" => schema.table_privileges(false),
            "schemata" => schema.schemata(),
            "table_privileges" => schema.table_privileges(true),
            "sequences" => schema.sequences(),
            other => match empty(other) {
                Some(empty) => empty,
                None => {
                    let provider = InformationSchemaProvider::new(Arc::new(schema.catalog.clone()))
                        .with_table_functions(schema.catalog.table_functions());
                    return provider.table(name).await;
                }
            },
        };
        Ok(Some(Arc::new(own.map_err(DataFusionError::from)?)))
    })
}
