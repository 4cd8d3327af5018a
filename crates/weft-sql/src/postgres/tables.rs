//! The rows of the tables of `pg_catalog`. A table that is not here has none: Weft has no such objects.

use std::sync::Arc;

use arrow::array::{Array, make_array, new_empty_array};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::datasource::MemTable;
use datafusion::sql::sqlparser::keywords::{ALL_KEYWORDS, RESERVED_FOR_IDENTIFIER};
use weft_store::{Column, Snapshot, Table};

use crate::access::acl::memberships;
use crate::access::roles::Role;
use crate::access::{Acl, Rights};
use crate::catalog::{CATALOG, StatementCatalog};
use crate::comments::comment;
use crate::definitions::Kind;
use crate::error::Result;
use crate::information_schema::view_columns;
use crate::postgres::defined::{Defined, defined};
use crate::postgres::keys::{
    Constraint, ConstraintKind, attribute as attribute_of, constraints,
    statement as index_statement,
};
use crate::postgres::numbers::{
    BTREE_OID, DATABASE_OID, HEAP_OID, Numbered, OWNER, OWNER_OID, PG_CATALOG_OID, RelationKind,
    catalog_oid, enums, is_superuser, relations, roles, schemas,
};
use crate::postgres::procedures::{ProcedureKind, procedures};
use crate::postgres::types::{
    PgType, TYPES, by_oid, enum_of_column, type_of_column, type_of_field,
};
use crate::schemas::parts;

/// The number of `pg_class` among the tables of the catalog.
const CLASS_OID: i64 = 1259;

/// The numbers of the languages of functions: those of Weft itself, and macros.
const INTERNAL_OID: i64 = 12;
const SQL_OID: i64 = 14;

/// The numbers of the types of any value, and of rows.
const ANY_OID: i64 = 2276;
const RECORD_OID: i64 = 2249;

/// The number of the tablespace of everything.
const TABLESPACE_OID: i64 = 1663;

/// The number of the only order of texts, that of their bytes.
const COLLATION_OID: i64 = 100;

/// What is added to the number of a type for that of the class of its order.
const CLASSES_FROM: i64 = 500_000;

/// PostgreSQL's number of UTF-8.
const UTF8: i32 = 6;

/// A table of the catalog, with its rows.
///
/// # Errors
/// None that are known.
pub(crate) async fn table(catalog: &StatementCatalog, of: &Defined) -> Result<MemTable> {
    let mut rows = Rows::new(of.schema());
    match of.name {
        "pg_am" => {
            let methods = [
                (HEAP_OID, "heap", "heap_tableam_handler", "t"),
                (BTREE_OID, "btree", "bthandler", "i"),
            ];
            for (oid, name, handler, kind) in methods {
                rows.push([
                    ("oid", oid.into()),
                    ("amname", name.into()),
                    ("amhandler", handler.into()),
                    ("amtype", kind.into()),
                ])?;
            }
        }
        "pg_attrdef" => attrdef(catalog, &mut rows).await?,
        "pg_attribute" => attribute(catalog, &mut rows).await?,
        "pg_authid" | "pg_roles" | "pg_user" => role(catalog, &mut rows)?,
        "pg_auth_members" => members(catalog, &mut rows)?,
        "pg_class" => class(catalog, &mut rows).await?,
        "pg_collation" => rows.push([
            ("oid", COLLATION_OID.into()),
            ("collname", "default".into()),
            ("collnamespace", PG_CATALOG_OID.into()),
            ("collowner", OWNER_OID.into()),
            ("collprovider", "d".into()),
            ("collisdeterministic", true.into()),
            ("collencoding", (-1).into()),
            ("collcollate", "C".into()),
            ("collctype", "C".into()),
        ])?,
        "pg_constraint" => constraint(catalog, &mut rows)?,
        "pg_database" => rows.push([
            ("oid", DATABASE_OID.into()),
            ("datname", CATALOG.into()),
            ("datdba", OWNER_OID.into()),
            ("encoding", UTF8.into()),
            ("datcollate", "C".into()),
            ("datctype", "C".into()),
            ("datallowconn", true.into()),
            ("datconnlimit", (-1).into()),
            ("dattablespace", TABLESPACE_OID.into()),
        ])?,
        "pg_index" => index(catalog, &mut rows)?,
        "pg_indexes" => {
            let snapshot = catalog.snapshot();
            for relation in relations(snapshot) {
                let Some(table) = snapshot.table(&relation.stored) else { continue };
                let Some(sql) = index_statement(snapshot, &relation, &table) else { continue };
                rows.push([
                    ("schemaname", relation.schema.as_str().into()),
                    ("tablename", parts(snapshot, &relation.stored).1.into()),
                    ("indexname", relation.name.as_str().into()),
                    ("indexdef", sql.as_str().into()),
                ])?;
            }
        }
        "pg_opclass" => {
            for found in TYPES.iter().filter(|found| found.category != 'P') {
                rows.push([
                    ("oid", class_of(found).into()),
                    ("opcmethod", BTREE_OID.into()),
                    ("opcname", format!("{}_ops", found.name).as_str().into()),
                    ("opcnamespace", PG_CATALOG_OID.into()),
                    ("opcowner", OWNER_OID.into()),
                    ("opcintype", found.oid.into()),
                    ("opcdefault", true.into()),
                    ("tableoid", catalog_oid("pg_opclass").into()),
                ])?;
            }
        }
        "pg_description" => description(catalog, &mut rows).await?,
        "pg_get_keywords" => keywords(&mut rows)?,
        "pg_language" => {
            for (oid, name) in [(INTERNAL_OID, "internal"), (SQL_OID, "sql")] {
                rows.push([
                    ("oid", oid.into()),
                    ("lanname", name.into()),
                    ("lanowner", OWNER_OID.into()),
                    ("lanpltrusted", (oid == SQL_OID).into()),
                    ("tableoid", catalog_oid("pg_language").into()),
                ])?;
            }
        }
        "pg_locks" => locks(catalog, &mut rows)?,
        "pg_namespace" => {
            for (schema, oid) in schemas(catalog.snapshot()) {
                let name = ("nspname", schema.as_str().into());
                let acl = Acl::of(catalog.snapshot(), Kind::SchemaAccess, &schema);
                let items = texts(acl.items(Rights::OF_SCHEMA));
                let owner = ("nspowner", OWNER_OID.into());
                rows.push([("oid", oid.into()), name, owner, ("nspacl", items)])?;
            }
        }
        "pg_proc" => procedure(catalog, &mut rows)?,
        "pg_settings" => settings(catalog, &mut rows)?,
        "pg_stat_activity" => activity(catalog, &mut rows)?,
        "pg_stat_database" => {
            let count = i32::try_from(catalog.connected().get().backends().len());
            rows.push([
                ("datid", DATABASE_OID.into()),
                ("datname", CATALOG.into()),
                ("numbackends", count.unwrap_or(i32::MAX).into()),
            ])?;
        }
        "pg_stat_user_tables" => {
            for table in relations(catalog.snapshot()).iter().filter(|found| found.is_table()) {
                let Some(stored) = catalog.snapshot().table(&table.stored) else { continue };
                let rows_of = i64::try_from(stored.rows()).unwrap_or(i64::MAX);
                rows.push([
                    ("relid", table.oid.into()),
                    ("schemaname", table.schema.as_str().into()),
                    ("relname", table.name.as_str().into()),
                    ("n_live_tup", rows_of.into()),
                ])?;
            }
        }
        "pg_tables" => {
            let snapshot = catalog.snapshot();
            for table in relations(snapshot).iter().filter(|relation| relation.is_table()) {
                let stored = snapshot.table(&table.stored);
                let has_indexes = stored.is_some_and(|stored| stored.indexes().next().is_some());
                rows.push([
                    ("schemaname", table.schema.as_str().into()),
                    ("tablename", table.name.as_str().into()),
                    ("tableowner", owner(snapshot, &table.stored).as_str().into()),
                    ("hasindexes", has_indexes.into()),
                ])?;
            }
        }
        "pg_tablespace" => rows.push([
            ("oid", TABLESPACE_OID.into()),
            ("spcname", "pg_default".into()),
            ("spcowner", OWNER_OID.into()),
        ])?,
        "pg_type" => {
            for found in TYPES {
                plain_type(found, &mut rows)?;
                array_type(found, &mut rows)?;
            }
            enum_types(catalog.snapshot(), &mut rows)?;
        }
        "pg_enum" => enum_labels(catalog.snapshot(), &mut rows)?,
        "pg_views" => {
            for view in relations(catalog.snapshot()) {
                let Some(sql) = view.view() else { continue };
                rows.push([
                    ("schemaname", view.schema.as_str().into()),
                    ("viewname", view.name.as_str().into()),
                    ("viewowner", owner(catalog.snapshot(), &view.stored).as_str().into()),
                    ("definition", sql.into()),
                ])?;
            }
        }
        _ => {}
    }
    rows.finish()
}

/// The columns of a relation: number and modifier of the type, and the rest; those of the key of an index. A view that does not work
/// any more has none.
async fn columns(catalog: &StatementCatalog, of: &Numbered) -> Vec<(Column, (i64, i32))> {
    let columns = match (&of.kind, catalog.snapshot().table(&of.stored)) {
        (RelationKind::View(sql), _) => {
            view_columns(catalog, &of.stored, sql).await.unwrap_or_default()
        }
        (RelationKind::Table, Some(table)) => table.schema().columns.clone(),
        (RelationKind::Index(_, index), Some(table)) => {
            let numbers = index.columns.iter().map(|of| &of.column).chain(&index.included);
            let of = numbers.filter_map(|number| table.schema().columns.get(*number));
            // An index has no defaults, and its columns are not NOT NULL by themselves.
            of.map(|column| Column { default: None, nullable: true, ..column.clone() }).collect()
        }
        _ => {
            let Some(defined) = defined(&of.name) else { return Vec::new() };
            let fields = defined.schema();
            let typed = fields.fields().iter().map(|field| {
                let column = Column {
                    name: field.name().clone(),
                    data_type: field.data_type().clone(),
                    nullable: field.is_nullable(),
                    default: None,
                    max_length: None,
                    kind: None,
                };
                (column, type_of_field(field))
            });
            return typed.collect();
        }
    };
    let enums = enums(catalog.snapshot());
    let typed = columns.into_iter().map(|column| {
        let made = enum_of_column(&column).filter(|ty| ty.name().is_some());
        let made = made.and_then(|made| enums.iter().find(|(_, ty)| ty.name() == made.name()));
        let data_type = match made {
            Some((oid, _)) => (*oid, -1),
            None => type_of_column(&column),
        };
        (column, data_type)
    });
    typed.collect()
}

async fn class(catalog: &StatementCatalog, rows: &mut Rows) -> Result<()> {
    let schemas = schemas(catalog.snapshot());
    let constraints = constraints(catalog.snapshot());
    let roles = roles(catalog.snapshot());
    for relation in relations(catalog.snapshot()) {
        let acl = Acl::of(catalog.snapshot(), Kind::Access, &relation.stored);
        let owner = roles.iter().find(|(_, name)| *name == acl.owner);
        let items = acl.items(Rights::OF_RELATION).filter(|_| relation.index().is_none());
        let (is_view, is_index) = (relation.view().is_some(), relation.index().is_some());
        let schema = schemas.iter().find(|(name, _)| *name == relation.schema);
        let schema_oid = schema.map(|(_, oid)| *oid);
        let stored = catalog.snapshot().table(&relation.stored);
        let count = columns(catalog, &relation).await.len();
        let has_indexes = |table: &Arc<Table>| !is_index && table.indexes().next().is_some();
        let has_index = stored.as_ref().is_some_and(has_indexes);
        let checks = constraints
            .iter()
            .filter(|one| one.table == relation.oid && one.kind == ConstraintKind::Check)
            .count();
        let (tuples, bytes) = stored.map_or((0, 0), |table| {
            let of_index = |name: &str| table.index_bytes_on_disk(name).unwrap_or(0);
            let bytes = match relation.index() {
                Some((_, index)) => of_index(&index.name),
                None => {
                    let indexes: u64 = table.indexes().map(|index| of_index(&index.name)).sum();
                    table.bytes_on_disk() - indexes
                }
            };
            (table.rows(), bytes)
        });
        let (method, kind, identity) = match (is_view, is_index) {
            (true, _) => (0, "v", "n"),
            (_, true) => (BTREE_OID, "i", "n"),
            _ => (HEAP_OID, "r", "d"),
        };
        let pages = i32::try_from(bytes.div_ceil(8192)).unwrap_or(i32::MAX);
        rows.push([
            ("oid", relation.oid.into()),
            ("relname", relation.name.as_str().into()),
            ("relnamespace", schema_oid.into()),
            ("relowner", owner.map_or(OWNER_OID, |(oid, _)| *oid).into()),
            ("relacl", texts(items)),
            ("relam", method.into()),
            ("relfilenode", if is_view { 0 } else { relation.oid }.into()),
            ("relpages", pages.into()),
            ("reltuples", (tuples as f32).into()),
            ("relhasindex", has_index.into()),
            ("relpersistence", "p".into()),
            ("relkind", kind.into()),
            ("relnatts", i16::try_from(count).unwrap_or(i16::MAX).into()),
            ("relchecks", i16::try_from(checks).unwrap_or(i16::MAX).into()),
            ("relhasrules", is_view.into()),
            // PostgreSQL sees to foreign keys by triggers, and clients look for the keys where there are such.
            ("relhastriggers", constraints.iter().any(|one| is_foreign(one, relation.oid)).into()),
            ("relispopulated", true.into()),
            ("relreplident", identity.into()),
        ])?;
    }
    Ok(())
}

/// Comments: those on columns have the columns' numbers.
async fn description(catalog: &StatementCatalog, rows: &mut Rows) -> Result<()> {
    let snapshot = catalog.snapshot();
    for relation in relations(snapshot).iter().filter(|found| found.index().is_none()) {
        let named = columns(catalog, relation).await;
        let own = std::iter::once((0, None));
        let of_columns = (1_i32..).zip(&named).map(|(number, (column, _))| (number, Some(column)));
        for (number, column) in own.chain(of_columns) {
            let name = column.map(|column| column.name.as_str());
            let Some(text) = comment(snapshot, &relation.stored, name) else { continue };
            rows.push([
                ("objoid", relation.oid.into()),
                ("classoid", CLASS_OID.into()),
                ("objsubid", number.into()),
                ("description", text.into()),
            ])?;
        }
    }
    Ok(())
}

async fn attribute(catalog: &StatementCatalog, rows: &mut Rows) -> Result<()> {
    for relation in relations(catalog.snapshot()) {
        let found = columns(catalog, &relation).await;
        for (number, (column, (data_type, modifier))) in (1_i16..).zip(&found) {
            let length = by_oid(*data_type).map_or(-1, |(found, is_array)| match is_array {
                true => -1,
                false => found.length,
            });
            let collation = by_oid(*data_type).map_or(0, |(found, _)| collation_of(found));
            rows.push([
                ("attrelid", relation.oid.into()),
                ("attname", column.name.as_str().into()),
                ("atttypid", (*data_type).into()),
                ("attstattarget", (-1).into()),
                ("attlen", length.into()),
                ("attnum", number.into()),
                ("attndims", i32::from(matches!(column.data_type, DataType::List(_))).into()),
                ("attcacheoff", (-1).into()),
                ("atttypmod", (*modifier).into()),
                ("attbyval", (length > 0 && length <= 8).into()),
                ("attalign", "i".into()),
                ("attstorage", if length < 0 { "x" } else { "p" }.into()),
                ("attcompression", "".into()),
                ("attnotnull", (!column.nullable).into()),
                ("atthasdef", column.default.is_some().into()),
                ("attidentity", "".into()),
                ("attgenerated", "".into()),
                ("attislocal", true.into()),
                ("attcollation", collation.into()),
            ])?;
        }
    }
    Ok(())
}

/// True of a foreign key of a table, or to it.
fn is_foreign(constraint: &Constraint, table: i64) -> bool {
    match &constraint.kind {
        ConstraintKind::Foreign(parent, _) => *parent == table || constraint.table == table,
        _ => false,
    }
}

fn index(catalog: &StatementCatalog, rows: &mut Rows) -> Result<()> {
    for relation in relations(catalog.snapshot()) {
        let Some((table_oid, index)) = relation.index() else { continue };
        let Some(table) = catalog.snapshot().table(&relation.stored) else { continue };
        let columns = &table.schema().columns;
        let types = index.columns.iter().map(|of| {
            let number = columns.get(of.column).map_or(0, |column| type_of_column(column).0);
            by_oid(number).map(|(found, _)| found)
        });
        let types: Vec<Option<&PgType>> = types.collect();
        let count = |columns: usize| i16::try_from(columns).unwrap_or(i16::MAX);
        let keys = index.columns.iter().map(|of| of.column);
        let all = keys.chain(index.included.iter().copied()).map(attribute_of);
        let options = index
            .columns
            .iter()
            .map(|of| i16::from(of.is_descending) | i16::from(of.nulls_first) << 1);
        let collations = types.iter().map(|found| found.map_or(0, collation_of));
        let classes = types.iter().map(|found| found.map_or(0, class_of));
        rows.push([
            ("indexrelid", relation.oid.into()),
            ("indrelid", table_oid.into()),
            ("indnatts", count(index.columns.len() + index.included.len()).into()),
            ("indnkeyatts", count(index.columns.len()).into()),
            ("indisunique", index.is_unique.into()),
            ("indisprimary", index.is_primary.into()),
            ("indimmediate", true.into()),
            ("indisvalid", true.into()),
            ("indisready", true.into()),
            ("indislive", true.into()),
            ("indkey", list(all.map(ScalarValue::from), &DataType::Int16)),
            ("indcollation", list(collations.map(ScalarValue::from), &DataType::Int64)),
            ("indclass", list(classes.map(ScalarValue::from), &DataType::Int64)),
            ("indoption", list(options.map(ScalarValue::from), &DataType::Int16)),
        ])?;
    }
    Ok(())
}

fn constraint(catalog: &StatementCatalog, rows: &mut Rows) -> Result<()> {
    let schemas = schemas(catalog.snapshot());
    for found in constraints(catalog.snapshot()) {
        let schema = schemas.iter().find(|(name, _)| *name == found.schema).map(|(_, oid)| *oid);
        let numbers = |of: &[i16]| list(of.iter().map(|number| (*number).into()), &DataType::Int16);
        let mut row = vec![
            ("oid", found.oid.into()),
            ("conname", found.name.as_str().into()),
            ("connamespace", schema.into()),
            ("contype", found.letter().into()),
            ("convalidated", true.into()),
            ("conrelid", found.table.into()),
            ("conindid", found.index.into()),
            ("confupdtype", " ".into()),
            ("confdeltype", " ".into()),
            ("confmatchtype", " ".into()),
            ("conislocal", true.into()),
            ("connoinherit", (found.kind != ConstraintKind::Check).into()),
            ("tableoid", catalog_oid("pg_constraint").into()),
        ];
        if !found.columns.is_empty() {
            row.push(("conkey", numbers(&found.columns)));
        }
        if let Some(condition) = found.condition() {
            row.extend([("conbin", condition.into()), ("consrc", condition.into())]);
        }
        if let ConstraintKind::Foreign(parent, columns) = &found.kind {
            // A row cannot be changed or deleted while another refers to it.
            let actions = ["confupdtype", "confdeltype"].map(|name| (name, "a".into()));
            row.retain(|(name, _)| !["confupdtype", "confdeltype", "confmatchtype"].contains(name));
            row.extend(actions);
            row.push(("confmatchtype", "s".into()));
            row.extend([("confrelid", (*parent).into()), ("confkey", numbers(columns))]);
        }
        rows.push(row)?;
    }
    Ok(())
}

/// A list of values of one type.
fn list(values: impl Iterator<Item = ScalarValue>, data_type: &DataType) -> ScalarValue {
    let values: Vec<ScalarValue> = values.collect();
    ScalarValue::List(ScalarValue::new_list_nullable(&values, data_type))
}

/// The number of the operator class by which a type is ordered in indexes.
fn class_of(found: &PgType) -> i64 {
    CLASSES_FROM + found.oid
}

fn collation_of(found: &PgType) -> i64 {
    if found.category == 'S' { COLLATION_OID } else { 0 }
}

async fn attrdef(catalog: &StatementCatalog, rows: &mut Rows) -> Result<()> {
    let mut oid = 1;
    for relation in relations(catalog.snapshot()) {
        let found = columns(catalog, &relation).await;
        for (number, (column, _)) in (1_i16..).zip(&found) {
            let Some(default) = column.default.as_deref() else { continue };
            rows.push([
                ("oid", oid.into()),
                ("adrelid", relation.oid.into()),
                ("adnum", number.into()),
                ("adbin", default.into()),
                ("adsrc", default.into()),
            ])?;
            oid += 1_i64;
        }
    }
    Ok(())
}

/// Functions, whose parameters and results may be of any types.
fn procedure(catalog: &StatementCatalog, rows: &mut Rows) -> Result<()> {
    let schemas = schemas(catalog.snapshot());
    for found in procedures(catalog) {
        let schema = schemas.iter().find(|(name, _)| *name == found.schema);
        let is_macro = found.text.is_some();
        let returns_rows = found.kind == ProcedureKind::Table;
        let defaults = found.parameters.iter().filter(|(_, default)| default.is_some()).count();
        let small = |count: usize| i16::try_from(count).unwrap_or(i16::MAX);
        rows.push([
            ("oid", found.oid.into()),
            ("proname", found.name.as_str().into()),
            ("pronamespace", schema.map(|(_, oid)| *oid).into()),
            ("proowner", OWNER_OID.into()),
            ("prolang", if is_macro { SQL_OID } else { INTERNAL_OID }.into()),
            ("procost", 1.0_f32.into()),
            ("prorows", if returns_rows { 1000.0_f32 } else { 0.0 }.into()),
            ("provariadic", if is_macro { 0 } else { ANY_OID }.into()),
            ("prokind", found.kind.letter().into()),
            ("proretset", returns_rows.into()),
            ("provolatile", "v".into()),
            ("proparallel", "s".into()),
            ("pronargs", small(found.parameters.len()).into()),
            ("pronargdefaults", small(defaults).into()),
            ("prorettype", if returns_rows { RECORD_OID } else { ANY_OID }.into()),
            ("prosrc", found.text.as_deref().unwrap_or(&found.name).into()),
        ])?;
    }
    Ok(())
}

/// The owner of a table or view.
fn owner(snapshot: &Snapshot, stored: &str) -> String {
    Acl::of(snapshot, Kind::Access, stored).owner
}

/// A list of texts.
fn texts(items: Option<Vec<String>>) -> ScalarValue {
    let item = |text: &String| ScalarValue::Utf8View(Some(text.clone()));
    match items {
        Some(items) => {
            let items: Vec<ScalarValue> = items.iter().map(item).collect();
            ScalarValue::List(ScalarValue::new_list_nullable(&items, &DataType::Utf8View))
        }
        None => ScalarValue::new_null_list(DataType::Utf8View, true, 1),
    }
}

fn members(catalog: &StatementCatalog, rows: &mut Rows) -> Result<()> {
    let snapshot = catalog.snapshot();
    let roles = roles(snapshot);
    for (member, name) in &roles {
        let groups = memberships(snapshot, name);
        let groups = groups.iter().filter_map(|group| roles.iter().find(|(_, of)| of == group));
        for (group, _) in groups {
            rows.push([
                ("roleid", (*group).into()),
                ("member", (*member).into()),
                ("grantor", OWNER_OID.into()),
                ("admin_option", false.into()),
            ])?;
        }
    }
    Ok(())
}

fn role(catalog: &StatementCatalog, rows: &mut Rows) -> Result<()> {
    for (oid, name) in roles(catalog.snapshot()) {
        let may_all = is_superuser(catalog.snapshot(), &name);
        let is_user = rows.has("usename");
        let has_password = Role::find(catalog.snapshot(), &name);
        let has_password = has_password.is_some_and(|role| role.verifier.is_some());
        let can_log_in = has_password || name == OWNER;
        if is_user && !can_log_in {
            continue;
        }
        let password = ScalarValue::Utf8View(Some("********".to_owned()));
        let row: Vec<(&str, ScalarValue)> = match is_user {
            true => vec![
                ("usename", name.as_str().into()),
                ("usesysid", oid.into()),
                ("usecreatedb", may_all.into()),
                ("usesuper", may_all.into()),
                ("passwd", password),
            ],
            false => vec![
                ("oid", oid.into()),
                ("rolname", name.as_str().into()),
                ("rolsuper", may_all.into()),
                ("rolinherit", true.into()),
                ("rolcreaterole", may_all.into()),
                ("rolcreatedb", may_all.into()),
                ("rolcanlogin", can_log_in.into()),
                ("rolconnlimit", (-1).into()),
                ("rolpassword", password),
            ],
        };
        rows.push(row)?;
    }
    Ok(())
}

fn settings(catalog: &StatementCatalog, rows: &mut Rows) -> Result<()> {
    for setting in catalog.connected().get().settings() {
        let is_default = setting.value == setting.default;
        rows.push([
            ("name", setting.name.as_str().into()),
            ("setting", setting.value.as_str().into()),
            ("category", "Client Connection Defaults".into()),
            ("context", "user".into()),
            ("vartype", "string".into()),
            ("source", if is_default { "default" } else { "session" }.into()),
            ("boot_val", setting.default.as_str().into()),
            ("reset_val", setting.default.as_str().into()),
        ])?;
    }
    Ok(())
}

fn activity(catalog: &StatementCatalog, rows: &mut Rows) -> Result<()> {
    let numbers = roles(catalog.snapshot());
    let time =
        |us: Option<i64>| ScalarValue::TimestampMicrosecond(us, Some(crate::types::ZONE.into()));
    let locks = catalog.context().control.held_locks();
    for backend in catalog.connected().get().backends() {
        let waits = locks.iter().any(|of| of.pid == backend.pid && !of.waits_for.is_empty());
        let waits_for = |what: &str| ScalarValue::Utf8View(waits.then(|| what.to_owned()));
        // What others do is not for all roles.
        let is_shown =
            catalog.access().is_unrestricted() || catalog.access().is_member(&backend.user);
        let query = if is_shown { backend.query.as_str() } else { "<insufficient privilege>" };
        let user = numbers.iter().find(|(_, name)| *name == backend.user).map(|(oid, _)| *oid);
        let (address, port) = match &backend.client {
            Some((address, port)) => (Some(address.as_str()), Some(i32::from(*port))),
            None => (None, None),
        };
        rows.push([
            ("datid", DATABASE_OID.into()),
            ("datname", CATALOG.into()),
            ("pid", backend.pid.into()),
            ("leader_pid", ScalarValue::Int32(None)),
            ("usesysid", user.into()),
            ("usename", backend.user.as_str().into()),
            ("application_name", backend.application_name.as_str().into()),
            ("client_addr", ScalarValue::Utf8View(address.map(str::to_owned))),
            ("client_port", port.into()),
            ("backend_start", time(Some(backend.started_us))),
            ("query_start", time(backend.statement_started_us)),
            ("state_change", time(Some(backend.changed_us))),
            ("wait_event_type", waits_for("Lock")),
            ("wait_event", waits_for("transactionid")),
            ("state", backend.state.into()),
            ("backend_xid", ScalarValue::Int64(None)),
            ("backend_xmin", ScalarValue::Int64(None)),
            ("query_id", ScalarValue::Int64(None)),
            ("query", query.into()),
            ("backend_type", "client backend".into()),
        ])?;
    }
    Ok(())
}

/// Locks as PostgreSQL has them: who has rows of a table locks the table and its own transaction, for whose end others wait.
fn locks(catalog: &StatementCatalog, rows: &mut Rows) -> Result<()> {
    let snapshot = catalog.snapshot();
    let numbered = relations(snapshot);
    let locks = catalog.context().control.held_locks();
    let transaction = |owner: u64| ScalarValue::from(i64::try_from(owner).unwrap_or(i64::MAX));
    for held in &locks {
        let virtual_id = format!("{}/{}", held.pid, held.owner);
        let common = |locktype: &str, mode: &str, granted: bool| {
            [
                ("locktype", locktype.into()),
                ("virtualtransaction", virtual_id.as_str().into()),
                ("pid", held.pid.into()),
                ("mode", mode.into()),
                ("granted", granted.into()),
                ("fastpath", false.into()),
            ]
        };
        for of in &held.tables {
            let stored = snapshot.table_name(of.table);
            let relation = numbered
                .iter()
                .find(|found| found.is_table() && Some(found.stored.as_str()) == stored);
            let mode = match of.exclusive_rows + of.keys {
                0 => "RowShareLock",
                _ => "RowExclusiveLock",
            };
            let oid = relation.map(|relation| relation.oid);
            let on = [("database", DATABASE_OID.into()), ("relation", oid.into())];
            rows.push(common("relation", mode, true).into_iter().chain(on))?;
        }
        let own = [("transactionid", transaction(held.owner))];
        rows.push(common("transactionid", "ExclusiveLock", true).into_iter().chain(own))?;
        for blocker in &held.waits_for {
            let on = [("transactionid", transaction(*blocker))];
            rows.push(common("transactionid", "ShareLock", false).into_iter().chain(on))?;
        }
    }
    Ok(())
}

fn keywords(rows: &mut Rows) -> Result<()> {
    for word in ALL_KEYWORDS {
        let is_reserved =
            RESERVED_FOR_IDENTIFIER.iter().any(|reserved| format!("{reserved:?}") == *word);
        rows.push([
            ("word", word.to_ascii_lowercase().as_str().into()),
            ("catcode", if is_reserved { "R" } else { "U" }.into()),
            ("barelabel", (!is_reserved).into()),
            ("catdesc", if is_reserved { "reserved" } else { "unreserved" }.into()),
        ])?;
    }
    Ok(())
}

fn plain_type(found: &PgType, rows: &mut Rows) -> Result<()> {
    let kind = if found.category == 'P' || found.category == 'X' { "p" } else { "b" };
    // The two vectors of the catalog are arrays themselves.
    let (element, input) = match found.name {
        "int2vector" => (21, "int2vectorin".to_owned()),
        "oidvector" => (26, "oidvectorin".to_owned()),
        name => (0, function_of(name, "in")),
    };
    rows.push([
        ("oid", found.oid.into()),
        ("typname", found.name.into()),
        ("typnamespace", PG_CATALOG_OID.into()),
        ("typowner", OWNER_OID.into()),
        ("typlen", found.length.into()),
        ("typbyval", (found.length > 0 && found.length <= 8).into()),
        ("typtype", kind.into()),
        ("typcategory", found.category.to_string().as_str().into()),
        ("typispreferred", matches!(found.oid, 16 | 25 | 701 | 1184).into()),
        ("typisdefined", true.into()),
        ("typdelim", ",".into()),
        ("typsubscript", "-".into()),
        ("typelem", i64::from(element).into()),
        ("typarray", found.array.into()),
        ("typinput", input.as_str().into()),
        ("typoutput", function_of(found.name, "out").as_str().into()),
        ("typreceive", function_of(found.name, "recv").as_str().into()),
        ("typsend", function_of(found.name, "send").as_str().into()),
        ("typmodin", "-".into()),
        ("typmodout", "-".into()),
        ("typanalyze", "-".into()),
        ("typalign", "i".into()),
        ("typstorage", if found.length < 0 { "x" } else { "p" }.into()),
        ("typtypmod", (-1).into()),
        ("typcollation", collation_of(found).into()),
    ])
}

fn array_type(found: &PgType, rows: &mut Rows) -> Result<()> {
    if found.array == 0 {
        return Ok(());
    }
    rows.push([
        ("oid", found.array.into()),
        ("typname", format!("_{}", found.name).as_str().into()),
        ("typnamespace", PG_CATALOG_OID.into()),
        ("typowner", OWNER_OID.into()),
        ("typlen", (-1_i16).into()),
        ("typtype", if found.oid == 2249 { "p" } else { "b" }.into()),
        ("typcategory", "A".into()),
        ("typisdefined", true.into()),
        ("typdelim", ",".into()),
        ("typsubscript", "array_subscript_handler".into()),
        ("typelem", found.oid.into()),
        ("typinput", "array_in".into()),
        ("typoutput", "array_out".into()),
        ("typreceive", "array_recv".into()),
        ("typsend", "array_send".into()),
        ("typmodin", "-".into()),
        ("typmodout", "-".into()),
        ("typanalyze", "array_typanalyze".into()),
        ("typalign", "i".into()),
        ("typstorage", "x".into()),
        ("typtypmod", (-1).into()),
        ("typcollation", collation_of(found).into()),
    ])
}

/// The types that were made.
fn enum_types(snapshot: &Snapshot, rows: &mut Rows) -> Result<()> {
    let schemas = schemas(snapshot);
    for (oid, ty) in enums(snapshot) {
        let (schema, name) = parts(snapshot, ty.name().unwrap_or_default());
        let schema = schemas.iter().find(|(known, _)| known == schema);
        rows.push([
            ("oid", oid.into()),
            ("typname", name.into()),
            ("typnamespace", schema.map_or(0, |(_, oid)| *oid).into()),
            ("typowner", OWNER_OID.into()),
            ("typlen", (-1_i16).into()),
            ("typbyval", false.into()),
            ("typtype", "e".into()),
            ("typcategory", "E".into()),
            ("typispreferred", false.into()),
            ("typisdefined", true.into()),
            ("typdelim", ",".into()),
            ("typsubscript", "-".into()),
            ("typelem", 0_i64.into()),
            ("typarray", 0_i64.into()),
            ("typinput", "enum_in".into()),
            ("typoutput", "enum_out".into()),
            ("typreceive", "enum_recv".into()),
            ("typsend", "enum_send".into()),
            ("typmodin", "-".into()),
            ("typmodout", "-".into()),
            ("typanalyze", "-".into()),
            ("typalign", "i".into()),
            ("typstorage", "x".into()),
            ("typtypmod", (-1).into()),
            ("typcollation", 0_i64.into()),
        ])?;
    }
    Ok(())
}

/// The labels of the types that were made, with numbers of their own.
fn enum_labels(snapshot: &Snapshot, rows: &mut Rows) -> Result<()> {
    let mut oid = 0;
    for (of, ty) in enums(snapshot) {
        for (place, label) in (1_u16..).zip(ty.labels()) {
            oid += 1;
            rows.push([
                ("oid", i64::from(oid).into()),
                ("enumtypid", of.into()),
                ("enumsortorder", f32::from(place).into()),
                ("enumlabel", label.as_str().into()),
            ])?;
        }
    }
    Ok(())
}

/// The name of a type's function, which older types have without an underscore.
fn function_of(name: &str, what: &str) -> String {
    match name {
        "date" | "time" | "timestamp" | "timestamptz" | "interval" | "numeric" | "json"
        | "jsonb" | "uuid" | "record" | "void" | "pg_node_tree" => format!("{name}_{what}"),
        _ => format!("{name}{what}"),
    }
}

/// Rows that are collected, a value for each column.
struct Rows {
    schema: SchemaRef,
    columns: Vec<Vec<ScalarValue>>,
}

impl Rows {
    fn new(schema: SchemaRef) -> Rows {
        let columns = vec![Vec::new(); schema.fields().len()];
        Rows { schema, columns }
    }

    fn has(&self, column: &str) -> bool {
        self.schema.index_of(column).is_ok()
    }

    /// Adds a row. Columns that are not named are 0 or false, and NULL if they are neither numbers nor truth values.
    fn push<'a>(&mut self, values: impl IntoIterator<Item = (&'a str, ScalarValue)>) -> Result<()> {
        let count = self.columns.first().map_or(0, Vec::len);
        for (name, value) in values {
            let number = self.schema.index_of(name)?;
            self.columns[number].push(value.cast_to(self.schema.field(number).data_type())?);
        }
        for (field, column) in self.schema.fields().iter().zip(&mut self.columns) {
            if column.len() == count {
                column.push(unnamed(field.data_type())?);
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<MemTable> {
        let arrays = self.schema.fields().iter().zip(self.columns).map(|(field, column)| {
            match column.is_empty() {
                true => Ok(new_empty_array(field.data_type())),
                // Elements of lists have the names of their types with them in the schema alone.
                false => {
                    let values = ScalarValue::iter_to_array(column)?.to_data().into_builder();
                    Ok(make_array(values.data_type(field.data_type().clone()).build()?))
                }
            }
        });
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays)?;
        Ok(MemTable::try_new(self.schema, vec![vec![batch]])?)
    }
}

fn unnamed(data_type: &DataType) -> Result<ScalarValue> {
    Ok(match data_type {
        DataType::Boolean => ScalarValue::Boolean(Some(false)),
        number if number.is_numeric() => ScalarValue::new_zero(number)?,
        other => ScalarValue::try_from(other)?,
    })
}
