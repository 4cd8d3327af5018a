//! What the database holds and what the server is, as clients ask for it.

use arrow::array::AsArray;
use arrow::ipc::convert::try_schema_from_ipc_buffer;
use arrow_flight::sql::{
    CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys,
    CommandGetPrimaryKeys, CommandGetTables, CommandGetXdbcTypeInfo, SqlInfo,
};

use super::*;

async fn client_with_tables(server: &Server) -> Client {
    let mut client = connect(server).await;
    for sql in [
        "CREATE TABLE parent (a BIGINT, b VARCHAR, PRIMARY KEY (a, b))",
        "CREATE TABLE child (id BIGINT PRIMARY KEY, x BIGINT, y VARCHAR NOT NULL, \
         CONSTRAINT of_parent FOREIGN KEY (x, y) REFERENCES parent (a, b))",
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.item (id BIGINT PRIMARY KEY, owner BIGINT REFERENCES child (id))",
        "CREATE VIEW v AS SELECT id FROM child",
    ] {
        update(&mut client, sql).await;
    }
    client
}

/// The rows of an info, whose batches have the columns that were told.
async fn found(client: &mut Client, info: Result<FlightInfo, FlightError>) -> Vec<RecordBatch> {
    let info = info.expect("it is described");
    let batches = get(client, &info).await.expect("it is found");
    let schema = told(&info);
    assert!(batches.iter().all(|batch| *batch.schema() == schema), "{schema}");
    batches
}

#[test]
fn schemas_tables_and_their_columns_are_told() {
    let (_database, server) = server_with(10);
    block_on(async {
        let mut client = client_with_tables(&server).await;
        let info = client.get_catalogs().await;
        assert_eq!(texts(&found(&mut client, info).await), [["weft"]]);
        let schemas =
            CommandGetDbSchemas { catalog: None, db_schema_filter_pattern: Some("sh%".to_owned()) };
        let info = client.get_db_schemas(schemas).await;
        assert_eq!(texts(&found(&mut client, info).await), [["weft", "shop"]]);
        let info = client.get_table_types().await;
        assert_eq!(texts(&found(&mut client, info).await), [["BASE TABLE"], ["VIEW"]]);
        let mut tables = CommandGetTables {
            catalog: Some("weft".to_owned()),
            db_schema_filter_pattern: Some("main".to_owned()),
            table_name_filter_pattern: None,
            table_types: vec!["TABLE".to_owned()],
            include_schema: true,
        };
        let info = client.get_tables(tables.clone()).await;
        let batches = found(&mut client, info).await;
        let names: Vec<String> = texts(&batches).into_iter().map(|row| row[2].clone()).collect();
        assert_eq!(names, ["child", "parent"]);
        let column = batches[0].column_by_name("table_schema").expect("it was asked for");
        let schema = try_schema_from_ipc_buffer(column.as_binary::<i32>().value(0));
        let fields: Vec<String> = schema
            .expect("a schema")
            .fields()
            .iter()
            .map(|field| format!("{} {} {}", field.name(), field.data_type(), field.is_nullable()))
            .collect();
        assert_eq!(fields, ["id Int64 false", "x Int64 true", "y Utf8 false"]);
        tables.table_types = vec!["VIEW".to_owned()];
        tables.include_schema = false;
        let info = client.get_tables(tables.clone()).await;
        assert_eq!(texts(&found(&mut client, info).await), [["weft", "main", "v", "VIEW"]]);
        tables.catalog = Some("other".to_owned());
        let info = client.get_tables(tables).await;
        assert!(texts(&found(&mut client, info).await).is_empty());
    });
}

#[test]
fn a_transaction_sees_the_tables_that_it_has_made() {
    with_client(|mut client| async move {
        let transaction = client.begin_transaction().await.expect("it begins");
        let sql = "CREATE TABLE t (i BIGINT)".to_owned();
        client.execute_update(sql, Some(transaction.clone())).await.expect("it is made");
        let tables = CommandGetTables {
            catalog: None,
            db_schema_filter_pattern: None,
            table_name_filter_pattern: Some("t".to_owned()),
            table_types: Vec::new(),
            include_schema: false,
        };
        let info = client.get_tables(tables.clone()).await;
        assert_eq!(texts(&found(&mut client, info).await).len(), 1);
        let failing = client.execute_update("SELEC 1".to_owned(), Some(transaction)).await;
        failing.expect_err("it is no SQL");
        let info = client.get_tables(tables).await;
        assert_eq!(texts(&found(&mut client, info).await).len(), 0);
    });
}

#[test]
fn keys_are_told_from_both_ends() {
    let (_database, server) = server_with(10);
    block_on(async {
        let mut client = client_with_tables(&server).await;
        let named = |table: &str| (None, Some("main".to_owned()), table.to_owned());
        let (catalog, db_schema, table) = named("parent");
        let info = client.get_primary_keys(CommandGetPrimaryKeys { catalog, db_schema, table });
        let keys = info.await;
        let keys = texts(&found(&mut client, keys).await);
        let places: Vec<&[String]> = keys.iter().map(|row| &row[3..5]).collect();
        assert_eq!(places, [["a", "1"], ["b", "2"]]);
        let expected = |rows: &[Vec<String>]| {
            let parts = rows.iter().map(|row| [&row[2..4], &row[6..10]].concat());
            parts.collect::<Vec<_>>()
        };
        let of_child = [
            ["parent", "a", "child", "x", "1", "of_parent"],
            ["parent", "b", "child", "y", "2", "of_parent"],
        ];
        let (catalog, db_schema, table) = named("parent");
        let exported = CommandGetExportedKeys { catalog, db_schema, table };
        let info = client.get_exported_keys(exported).await;
        assert_eq!(expected(&texts(&found(&mut client, info).await)), of_child);
        let (catalog, db_schema, table) = named("child");
        let imported = CommandGetImportedKeys { catalog, db_schema, table };
        let info = client.get_imported_keys(imported).await;
        assert_eq!(expected(&texts(&found(&mut client, info).await)), of_child);
        let cross = |pk_table: &str, fk_table: &str| CommandGetCrossReference {
            pk_catalog: None,
            pk_db_schema: None,
            pk_table: pk_table.to_owned(),
            fk_catalog: None,
            fk_db_schema: None,
            fk_table: fk_table.to_owned(),
        };
        let info = client.get_cross_reference(cross("child", "item")).await;
        let rows = texts(&found(&mut client, info).await);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0][..8], ["weft", "main", "child", "id", "weft", "shop", "item", "owner"]);
        let info = client.get_cross_reference(cross("parent", "item")).await;
        assert!(texts(&found(&mut client, info).await).is_empty());
    });
}

#[test]
fn facts_and_types_are_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    for is_read_only in [false, true] {
        let options = DatabaseOptions { read_only: is_read_only, ..DatabaseOptions::default() };
        let database = Database::open(&path, &options).expect("it opens");
        let server = serve(&database, 10);
        block_on(async {
            let mut client = connect(&server).await;
            let wanted = vec![SqlInfo::FlightSqlServerName, SqlInfo::FlightSqlServerReadOnly];
            let info = client.get_sql_info(wanted).await;
            let facts = texts(&found(&mut client, info).await);
            assert_eq!(facts[0], ["0", "{string_value=Weft}"]);
            assert_eq!(facts[1], ["3".to_owned(), format!("{{bool_value={is_read_only}}}")]);
            let info = client.get_sql_info(Vec::new()).await;
            assert!(texts(&found(&mut client, info).await).len() > 10);
            let info = client.get_xdbc_type_info(CommandGetXdbcTypeInfo { data_type: Some(12) });
            let info = info.await;
            assert_eq!(texts(&found(&mut client, info).await)[0][0], "VARCHAR");
            let made = client.execute_update("CREATE TABLE t (i BIGINT)".to_owned(), None).await;
            assert_eq!(made.is_err(), is_read_only);
        });
    }
}
