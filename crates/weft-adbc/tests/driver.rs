//! The driver as a program in Rust uses it, by the traits of `adbc_core`.

use std::sync::Arc;

use adbc_core::error::Status;
use adbc_core::options::{
    ObjectDepth, OptionConnection, OptionDatabase, OptionStatement, OptionValue,
};
use adbc_core::{Connection, Database, Driver, Optionable, Statement};
use adbc_driver_weft::{WeftConnection, WeftDatabase, WeftDriver};
use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;

fn database() -> WeftDatabase {
    let options = [("memory_limit", "256MB"), ("threads", "2")];
    let options =
        options.map(|(name, value)| (OptionDatabase::from(name), OptionValue::from(value)));
    WeftDriver::default().new_database_with_opts(options).expect("a database opens")
}

fn update(connection: &mut WeftConnection, sql: &str) -> Option<i64> {
    let mut statement = connection.new_statement().expect("a statement");
    statement.set_sql_query(sql).expect("a text");
    statement.execute_update().expect(sql)
}

fn number(connection: &mut WeftConnection, sql: &str) -> i64 {
    let mut statement = connection.new_statement().expect("a statement");
    statement.set_sql_query(sql).expect("a text");
    let mut rows = statement.execute().expect(sql);
    let batch = rows.next().expect("a batch").expect("rows");
    batch.column(0).as_primitive::<Int64Type>().value(0)
}

fn numbers(values: &[i64]) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
    RecordBatch::try_from_iter([("n", numbers)]).expect("a batch")
}

#[test]
fn statements_have_parameters_and_tables_take_rows() {
    let mut connection = database().new_connection().expect("a connection");
    update(&mut connection, "CREATE TABLE t (n BIGINT PRIMARY KEY)");
    let mut insert = connection.new_statement().expect("a statement");
    insert.set_sql_query("INSERT INTO t VALUES (?)").expect("a text");
    insert.prepare().expect("it is planned");
    assert_eq!(insert.get_parameter_schema().expect("parameters").fields().len(), 1);
    insert.bind(numbers(&[1, 2, 3])).expect("rows");
    assert_eq!(insert.execute_update().expect("it runs"), Some(3));
    let mut select = connection.new_statement().expect("a statement");
    select.set_sql_query("SELECT n * 10 AS tens FROM t WHERE n = $1").expect("a text");
    select.bind(numbers(&[3, 1, 9])).expect("rows");
    let found: Vec<i64> = select
        .execute()
        .expect("it runs")
        .flat_map(|batch| {
            batch.expect("rows").column(0).as_primitive::<Int64Type>().values().to_vec()
        })
        .collect();
    assert_eq!(found, [30, 10]);
    let mut ingest = connection.new_statement().expect("a statement");
    ingest.set_option(OptionStatement::TargetTable, "t".into()).expect("an option");
    ingest.bind(numbers(&[4])).expect("rows");
    let error = ingest.execute_update().expect_err("the table is there");
    assert_eq!(error.status, Status::AlreadyExists);
    ingest
        .set_option(OptionStatement::IngestMode, "adbc.ingest.mode.append".into())
        .expect("a mode");
    ingest.bind(numbers(&[4, 5])).expect("rows");
    assert_eq!(ingest.execute_update().expect("it runs"), Some(2));
    assert_eq!(number(&mut connection, "SELECT sum(n)::BIGINT FROM t"), 15);
}

#[test]
fn transactions_begin_with_a_statement() {
    let database = database();
    let mut connection = database.new_connection().expect("a connection");
    update(&mut connection, "CREATE TABLE t (i INTEGER)");
    let off = || OptionValue::from("false");
    connection.set_option(OptionConnection::AutoCommit, off()).expect("an option");
    update(&mut connection, "INSERT INTO t VALUES (1)");
    let mut other = database.new_connection().expect("a connection");
    assert_eq!(number(&mut other, "SELECT count(*) FROM t"), 0);
    connection.commit().expect("it commits");
    assert_eq!(number(&mut other, "SELECT count(*) FROM t"), 1);
    update(&mut connection, "DELETE FROM t");
    connection.rollback().expect("it is rolled back");
    assert_eq!(number(&mut connection, "SELECT count(*) FROM t"), 1);
    assert_eq!(other.commit().expect_err("statements commit").status, Status::InvalidState);
}

#[test]
fn a_result_is_cancelled_by_a_handle_from_another_thread() {
    let mut connection = database().new_connection().expect("a connection");
    let mut statement = connection.new_statement().expect("a statement");
    let handle = statement.get_cancel_handle();
    statement
        .set_sql_query("SELECT value FROM generate_series(1, 100000000000) AS g(value)")
        .expect("a text");
    let mut rows = statement.execute().expect("it begins");
    rows.next().expect("a batch").expect("rows");
    let canceller = std::thread::spawn(move || handle.try_cancel().expect("it is cancelled"));
    let error = rows.find_map(Result::err).expect("it ends by an error");
    assert!(error.to_string().contains("cancel"), "{error}");
    canceller.join().expect("the thread ends");
}

#[test]
fn what_there_is_is_a_tree() {
    let mut connection = database().new_connection().expect("a connection");
    update(&mut connection, "CREATE TABLE parent (id INTEGER PRIMARY KEY)");
    update(&mut connection, "CREATE TABLE child (up INTEGER REFERENCES parent)");
    let tree = connection.get_objects(ObjectDepth::All, None, Some("main"), None, None, None);
    let batches: Vec<RecordBatch> = tree.expect("a tree").collect::<Result<_, _>>().expect("rows");
    let text = format!("{:?}", batches[0]);
    assert!(text.contains("child") && text.contains("FOREIGN KEY"), "{text}");
    let schema = connection.get_table_schema(None, None, "parent").expect("a schema");
    assert_eq!(schema.field(0).name(), "id");
    let missing = connection.get_table_schema(None, None, "nothing").expect_err("none");
    assert_eq!(missing.status, Status::NotFound);
}
