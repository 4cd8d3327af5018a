//! Point queries whose plans are kept: the same rows as in the usual way, whatever has changed since they were planned.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::support::{check, check_error, database, rows};
use arrow::record_batch::RecordBatch;
use futures::Stream;
use weft::{Database, DatabaseOptions, ErrorKind, Prepared, Session, Value};

/// Executions after which a plan is kept.
const EXECUTIONS: usize = 3;

fn run(session: &Session, statements: &[&str]) {
    for sql in statements {
        session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

fn texts(batches: &[RecordBatch]) -> Vec<String> {
    weft::to_text(batches).unwrap().into_iter().map(|row| row.join(" ")).collect()
}

/// The rows of a prepared query: several times, so that its plan is kept then.
fn found(prepared: &Prepared, values: &[Value]) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..EXECUTIONS {
        let result = prepared.query(values).and_then(weft::QueryResult::collect);
        let result = result.unwrap_or_else(|error| panic!("{}: {error}", prepared.sql()));
        all.push(texts(&result));
    }
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{}: {all:?}", prepared.sql());
    all.swap_remove(0)
}

#[track_caller]
fn check_found(prepared: &Prepared, values: &[Value], expected: &[&str]) {
    assert_eq!(found(prepared, values), expected, "{} {values:?}", prepared.sql());
}

fn with_table() -> (Database, Session) {
    let database = database();
    let session = database.session().unwrap();
    run(
        &session,
        &[
            "CREATE TABLE t (id INTEGER PRIMARY KEY, a BIGINT, s VARCHAR, d DECIMAL(10, 2), day DATE, l BIGINT[])",
            "INSERT INTO t SELECT value, value * 10, CASE WHEN value % 3 = 0 THEN NULL ELSE 'text ' || value END, value / 4.0, \
             DATE '2024-01-01' + CAST(value AS INTEGER), [value, value + 1] FROM generate_series(1, 5000) AS g(value)",
        ],
    );
    (database, session)
}

#[test]
fn rows_are_those_of_the_usual_way() {
    let (_database, session) = with_table();
    for items in [
        "*",
        "a",
        "a + 1 AS more, upper(s)",
        "s || '!', d * 2, day, id",
        "1",
        "l, s IS NULL",
        "CAST(a AS DOUBLE) / 4",
    ] {
        let prepared = session.prepare(&format!("SELECT {items} FROM t WHERE id = ?")).unwrap();
        for key in [1, 2, 3, 777, 4999, 5000, 0, 5001, -1] {
            let usual = rows(&session, &format!("SELECT {items} FROM t WHERE id = {key}"));
            assert_eq!(found(&prepared, &[Value::Integer(key)]), usual, "{items}, {key}");
        }
    }
}

#[test]
fn a_row_in_memory_is_there_when_the_query_was_started() {
    let (_database, session) = with_table();
    for items in ["*", "a + 1, upper(s)"] {
        let sql = format!("SELECT {items} FROM t WHERE id = $1");
        found(&session.prepare(&sql).unwrap(), &[Value::Integer(5)]);
        for key in 1..200 {
            let mut result = session.start(&sql, &[Value::Integer(key)]);
            let mut context = Context::from_waker(Waker::noop());
            assert!(matches!(result.poll_planned(&mut context), Poll::Ready(Ok(()))));
            let polled = Pin::new(&mut result).poll_next(&mut context);
            assert!(matches!(polled, Poll::Ready(Some(Ok(batch))) if batch.num_rows() == 1));
            assert!(matches!(Pin::new(&mut result).poll_next(&mut context), Poll::Ready(None)));
        }
    }
}

#[test]
fn columns_are_those_of_the_usual_way() {
    let (_database, session) = with_table();
    let sql = "SELECT id, a * 2, s AS text, d + 1, lower(s) FROM t AS x WHERE x.id = $1";
    let columns = |values: &[Value]| {
        let mut result = session.start(sql, values);
        let batch = result.next_batch().unwrap().unwrap();
        assert_eq!(batch.schema(), result.schema());
        let fields = batch.schema();
        let of =
            |field: &arrow::datatypes::FieldRef| (field.name().clone(), field.data_type().clone());
        fields.fields().iter().map(of).collect::<Vec<_>>()
    };
    let first = columns(&[Value::Integer(7)]);
    for _ in 0..EXECUTIONS {
        assert_eq!(columns(&[Value::Integer(8)]), first);
    }
}

#[test]
fn values_that_no_key_is_equal_to_find_nothing() {
    let (_database, session) = with_table();
    let prepared = session.prepare("SELECT a FROM t WHERE id = $1").unwrap();
    check_found(&prepared, &[Value::Integer(5)], &["50"]);
    check_found(&prepared, &[Value::Null], &[]);
    check_found(&prepared, &[Value::Integer(1 << 40)], &[]);
    check_found(&prepared, &[Value::Unsigned(u64::MAX)], &[]);
    check_found(&prepared, &[Value::Unsigned(6)], &["60"]);
}

#[test]
fn values_of_other_types_are_compared_in_the_usual_way() {
    let (_database, session) = with_table();
    let prepared = session.prepare("SELECT a FROM t WHERE id = $1").unwrap();
    check_found(&prepared, &[Value::Integer(5)], &["50"]);
    check_found(&prepared, &[Value::Double(5.0)], &["50"]);
    check_found(&prepared, &[Value::Double(5.5)], &[]);
    check_found(&prepared, &[Value::Decimal(500, 5, 2)], &["50"]);
    let error = prepared.query(&[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Semantic);
}

#[test]
fn keys_of_several_columns_and_types_are_found() {
    let database = database();
    let session = database.session().unwrap();
    run(
        &session,
        &[
            "CREATE TABLE k (s VARCHAR, n SMALLINT, day DATE, v BIGINT, b BOOLEAN, UNIQUE (day, s, n))",
            "INSERT INTO k SELECT 'x' || (value % 10), value % 7, DATE '2024-01-01' + CAST(value % 100 AS INTEGER), value, true FROM generate_series(1, 600) AS g(value)",
            "INSERT INTO k VALUES (NULL, 1, DATE '2024-01-01', -1, false), (NULL, 1, DATE '2024-01-01', -2, false)",
        ],
    );
    let prepared =
        session.prepare("SELECT v FROM k WHERE n = $3 AND ($1 = s) AND day = $2").unwrap();
    for value in [1_i32, 99, 100, 345, 600] {
        let values = [
            Value::Text(format!("x{}", value % 10)),
            Value::Date(19723 + value % 100),
            Value::Integer((value % 7).into()),
        ];
        check_found(&prepared, &values, &[&value.to_string()]);
    }
    check_found(&prepared, &[Value::Null, Value::Date(19723), Value::Integer(1)], &[]);
    let constant =
        session.prepare("SELECT v FROM k WHERE s = 'x1' AND n = 1 AND day = $1").unwrap();
    check_found(&constant, &[Value::Date(19724)], &["1"]);
}

#[test]
fn changes_of_the_table_are_seen() {
    let (_database, session) = with_table();
    let prepared = session.prepare("SELECT a FROM t WHERE id = $1").unwrap();
    check_found(&prepared, &[Value::Integer(5)], &["50"]);
    run(&session, &["UPDATE t SET a = 51 WHERE id = 5"]);
    check_found(&prepared, &[Value::Integer(5)], &["51"]);
    run(&session, &["DELETE FROM t WHERE id = 5"]);
    check_found(&prepared, &[Value::Integer(5)], &[]);
    run(&session, &["INSERT INTO t (id, a) VALUES (5, 52)"]);
    check_found(&prepared, &[Value::Integer(5)], &["52"]);
    run(&session, &["UPDATE t SET id = 9000 WHERE id = 5"]);
    check_found(&prepared, &[Value::Integer(5)], &[]);
    check_found(&prepared, &[Value::Integer(9000)], &["52"]);
    run(&session, &["TRUNCATE t"]);
    check_found(&prepared, &[Value::Integer(9000)], &[]);
}

#[test]
fn a_transaction_sees_its_snapshot_and_its_own_changes() {
    let (database, session) = with_table();
    let other = database.session().unwrap();
    let prepared = session.prepare("SELECT a FROM t WHERE id = $1").unwrap();
    check_found(&prepared, &[Value::Integer(5)], &["50"]);
    run(&session, &["BEGIN"]);
    check_found(&prepared, &[Value::Integer(5)], &["50"]);
    run(&other, &["UPDATE t SET a = 0 WHERE id = 5", "DELETE FROM t WHERE id = 6"]);
    check_found(&prepared, &[Value::Integer(5)], &["50"]);
    check_found(&prepared, &[Value::Integer(6)], &["60"]);
    run(&session, &["UPDATE t SET a = 71 WHERE id = 7", "INSERT INTO t (id, a) VALUES (6000, 1)"]);
    check_found(&prepared, &[Value::Integer(7)], &["71"]);
    check_found(&prepared, &[Value::Integer(6000)], &["1"]);
    run(&session, &["SAVEPOINT s", "DELETE FROM t WHERE id IN (7, 8)"]);
    check_found(&prepared, &[Value::Integer(7)], &[]);
    check_found(&prepared, &[Value::Integer(8)], &[]);
    run(&session, &["ROLLBACK TO s"]);
    check_found(&prepared, &[Value::Integer(7)], &["71"]);
    run(&session, &["DROP TABLE t"]);
    assert!(prepared.query(&[Value::Integer(7)]).is_err());
    let refused = prepared.query(&[Value::Integer(7)]).err().map(|error| error.kind());
    assert_eq!(refused, Some(ErrorKind::TransactionAborted));
    run(&session, &["ROLLBACK"]);
    check_found(&prepared, &[Value::Integer(5)], &["0"]);
    check_found(&prepared, &[Value::Integer(7)], &["70"]);
    check_found(&prepared, &[Value::Integer(6000)], &[]);
}

#[test]
fn a_serializable_transaction_that_reads_a_row_notes_it() {
    let (database, session) = with_table();
    let other = database.session().unwrap();
    let prepared = session.prepare("SELECT a FROM t WHERE id = $1").unwrap();
    check_found(&prepared, &[Value::Integer(5)], &["50"]);
    run(&session, &["CREATE TABLE u (n BIGINT)", "BEGIN ISOLATION LEVEL SERIALIZABLE"]);
    let row = prepared.query(&[Value::Integer(5)]).unwrap().collect().unwrap();
    assert_eq!(texts(&row), ["50"]);
    run(&session, &["INSERT INTO u VALUES (1)"]);
    run(&other, &["UPDATE t SET a = 1 WHERE id = 5"]);
    check_error(&session, "COMMIT", ErrorKind::Conflict);
    check(&session, "SELECT count(*) FROM u", &["0"]);
}

#[test]
fn plans_are_made_anew_when_definitions_change() {
    let (_database, session) = with_table();
    let one = [Value::Integer(12)];
    let prepared = session.prepare("SELECT * FROM t WHERE id = $1").unwrap();
    let abs = session.prepare("SELECT abs(a - 200) FROM t WHERE id = $1").unwrap();
    check_found(&prepared, &one, &["12 120 NULL 3.00 2024-01-13 [12, 13]"]);
    check_found(&abs, &one, &["80"]);
    run(&session, &["ALTER TABLE t DROP COLUMN l", "ALTER TABLE t ADD COLUMN z INTEGER DEFAULT 4"]);
    check_found(&prepared, &one, &["12 120 NULL 3.00 2024-01-13 4"]);
    run(&session, &["DROP TABLE t"]);
    assert!(prepared.query(&one).is_err());
    run(
        &session,
        &["CREATE TABLE t (id VARCHAR, v INTEGER)", "INSERT INTO t VALUES ('12', 1), ('12', 2)"],
    );
    check_found(&prepared, &[Value::from("12")], &["12 1", "12 2"]);
    run(&session, &["DELETE FROM t WHERE v = 1", "CREATE UNIQUE INDEX t_id ON t (id)"]);
    check_found(&prepared, &[Value::from("12")], &["12 2"]);
    run(&session, &["DROP INDEX t_id", "INSERT INTO t VALUES ('12', 3)"]);
    check_found(&prepared, &[Value::from("12")], &["12 2", "12 3"]);
    run(&session, &["DROP TABLE t", "CREATE VIEW t AS SELECT 12 AS id, 'view' AS what"]);
    check_found(&prepared, &one, &["12 view"]);
}

#[test]
fn plans_are_made_anew_when_settings_and_relations_change() {
    let (_database, session) = with_table();
    run(
        &session,
        &[
            "CREATE TABLE z (id BIGINT PRIMARY KEY, at TIMESTAMP WITH TIME ZONE)",
            "INSERT INTO z VALUES (1, TIMESTAMP WITH TIME ZONE '2024-06-01 12:00:00+00')",
        ],
    );
    let prepared = session.prepare("SELECT CAST(at AS VARCHAR) FROM z WHERE id = ?").unwrap();
    let one = [Value::Integer(1)];
    let utc = found(&prepared, &one);
    run(&session, &["SET timezone = 'Asia/Tokyo'"]);
    let tokyo = found(&prepared, &one);
    assert!(tokyo[0].contains("21:00:00") && utc[0].contains("12:00:00"), "{tokyo:?} {utc:?}");
    run(&session, &["RESET timezone"]);
    assert_eq!(found(&prepared, &one), utc);
    run(&session, &["SET index_scan = 'never'"]);
    assert_eq!(found(&prepared, &one), utc);

    let hidden = session.prepare("SELECT a FROM t WHERE id = ?").unwrap();
    check_found(&hidden, &one, &["10"]);
    let batch = session.query("SELECT 1 AS id, 99 AS a").unwrap().collect().unwrap();
    let relation = weft::Relation::of_batches(batch[0].schema(), batch).unwrap();
    session.register("t", relation);
    check_found(&hidden, &one, &["99"]);
    session.unregister("t");
    check_found(&hidden, &one, &["10"]);
}

#[test]
fn errors_of_expressions_are_told() {
    let (_database, session) = with_table();
    run(&session, &["INSERT INTO t (id, a) VALUES (7000, 9223372036854775807)"]);
    let prepared = session.prepare("SELECT a + 1 FROM t WHERE id = ?").unwrap();
    check_found(&prepared, &[Value::Integer(1)], &["11"]);
    let kept = prepared.query(&[Value::Integer(7000)]).and_then(weft::QueryResult::collect);
    let usual =
        session.query("SELECT a + 1 FROM t WHERE id = 7000").and_then(weft::QueryResult::collect);
    let (kept, usual) = (kept.unwrap_err(), usual.unwrap_err());
    assert_eq!(kept.kind(), usual.kind());
    assert!(kept.message().contains("9223372036854775807 + 1"), "{kept}");
}

#[test]
fn rows_on_a_device_are_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let options = DatabaseOptions { create: true, ..DatabaseOptions::default() };
    {
        let database = Database::open(directory.path(), &options).unwrap();
        let session = database.session().unwrap();
        run(
            &session,
            &[
                "CREATE TABLE t (id BIGINT PRIMARY KEY, s VARCHAR)",
                "INSERT INTO t SELECT value, 'text ' || value FROM generate_series(1, 100000) AS g(value)",
            ],
        );
    }
    let database = Database::open(directory.path(), &options).unwrap();
    let session = database.session().unwrap();
    let prepared = session.prepare("SELECT s FROM t WHERE id = ?").unwrap();
    for key in [1, 50_000, 100_000, 3, 77_777] {
        check_found(&prepared, &[Value::Integer(key)], &[&format!("text {key}")]);
    }
    check_found(&prepared, &[Value::Integer(100_001)], &[]);
}

#[test]
fn sessions_on_many_threads_read_while_others_write() {
    let (database, session) = with_table();
    std::thread::scope(|scope| {
        for thread in 0..3_i64 {
            let session = database.session().unwrap();
            scope.spawn(move || {
                let prepared = session.prepare("SELECT id, a FROM t WHERE id = ?").unwrap();
                for round in 0..2_000 {
                    let key = 1 + (round * 37 + thread) % 5_000;
                    let result = prepared.query(&[Value::Integer(key)]).unwrap().collect().unwrap();
                    let row = texts(&result);
                    let expected =
                        [format!("{key} {}", key * 10), format!("{key} {}", key * 10 + 1)];
                    assert!(row.len() == 1 && expected.contains(&row[0]), "{key}: {row:?}");
                }
            });
        }
        for key in 0..20 {
            run(
                &session,
                &[&format!("UPDATE t SET a = id * 10 + 1 WHERE id BETWEEN {key} AND {key} + 5")],
            );
        }
    });
}
