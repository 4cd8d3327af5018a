//! Sessions without tables: results, errors with places, settings, parameters, cancellation.

use std::time::{Duration, Instant};

use crate::support::{check, check_error, database, rows};
use futures::StreamExt;
use weft::{Database, DatabaseOptions, ErrorKind, Position, ResultKind, Value};

#[test]
fn returns_rows() {
    let session = database().session().unwrap();
    check(&session, "SELECT 1 + 1 AS two, 'x' || 'y'", &["2 xy"]);
    check(
        &session,
        "SELECT * FROM (VALUES (1, 'a'), (2, NULL)) AS t(n, s) ORDER BY n DESC",
        &["2 NULL", "1 a"],
    );
    check(
        &session,
        "SELECT sum(value) FROM generate_series(1, 100000) AS g(value)",
        &["5000050000"],
    );
}

#[test]
fn errors_have_kinds_places_and_hints() {
    let session = database().session().unwrap();
    let error = check_error(&session, "SELECT (1 +\n )", ErrorKind::Syntax);
    assert_eq!(error.position(), Some(Position { line: 2, column: 2 }), "{error}");
    let error = check_error(&session, "SELECT 1 FROM", ErrorKind::Syntax);
    assert!(error.message().contains("the end of the statement"), "{error}");
    let error = check_error(&session, "SELECT a FROM nowhere", ErrorKind::Semantic);
    assert_eq!(error.message(), "table nowhere does not exist");
    assert_eq!(error.position(), Some(Position { line: 1, column: 15 }));
    let error =
        check_error(&session, "SELECT amont FROM (VALUES (1)) AS t(amount)", ErrorKind::Semantic);
    assert_eq!(error.message(), "column amont does not exist");
    assert_eq!(error.hint(), Some("did you mean amount?"));
    assert_eq!(error.position(), Some(Position { line: 1, column: 8 }));
    let error = check_error(&session, "SELECT nosuchfunction(1)", ErrorKind::Semantic);
    assert!(error.message().contains("nosuchfunction"), "{error}");
    check_error(&session, "SELECT 1 / 0", ErrorKind::Data);
    let error = check_error(&session, "SELECT CAST('x' AS INTEGER)", ErrorKind::Data);
    assert!(error.message().starts_with("cannot cast"), "{error}");
    check_error(&session, "", ErrorKind::Syntax);
    check_error(&session, "SELECT 1; SELECT 2", ErrorKind::Syntax);
    check_error(&session, "SELECT 'abc", ErrorKind::Syntax);
}

#[test]
fn what_does_not_run_says_so() {
    let session = database().session().unwrap();
    for sql in [
        "UPDATE t SET a = 1 LIMIT 1",
        "DELETE FROM t ORDER BY a",
        "MERGE INTO t USING s ON t.a = s.a WHEN NOT MATCHED THEN INSERT ROW",
        "COMMIT AND CHAIN",
        "ALTER VIEW v AS SELECT 1",
        "CREATE INDEX CONCURRENTLY i ON t(a)",
        "CREATE DATABASE s",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 'x.csv'",
    ] {
        let error = check_error(&session, sql, ErrorKind::NotSupported);
        assert!(error.message().contains("not supported"), "{sql}: {error}");
    }
}

#[test]
fn settings_are_shown_set_and_reset() {
    let database = database();
    let session = database.session().unwrap();
    check(&session, "SHOW batch_size", &["batch_size 8192"]);
    session.execute("SET batch_size = 1000").unwrap();
    check(&session, "SHOW batch_size", &["batch_size 1000"]);
    check(&database.session().unwrap(), "SHOW batch_size", &["batch_size 8192"]);
    session.execute("RESET batch_size").unwrap();
    check(&session, "SHOW batch_size", &["batch_size 8192"]);
    session.execute("SET memory_limit TO '1.5GiB'").unwrap();
    check(&database.session().unwrap(), "SHOW memory_limit", &["memory_limit 1.5 GiB"]);
    assert_eq!(database.stats().memory_limit, 3 << 29);
    session.execute("SET threads = 3").unwrap();
    check(&session, "SHOW threads", &["threads 3"]);
    session.execute("SET timezone = 'Europe/Berlin'").unwrap();
    check(&session, "SHOW TIMEZONE", &["timezone Europe/Berlin"]);
    session.execute("SET datafusion.optimizer.max_passes = 2").unwrap();
    check(&session, "SHOW datafusion.optimizer.max_passes", &["datafusion.optimizer.max_passes 2"]);
    session.execute("RESET ALL").unwrap();
    check(&session, "SHOW datafusion.optimizer.max_passes", &["datafusion.optimizer.max_passes 3"]);
    assert!(rows(&session, "SHOW ALL").len() > 50);
    for bad in [
        "SET memory_limit = 'much'",
        "SET threads = 0",
        "SET io_driver = 'blocking'",
        "SET temp_directory = '/tmp'",
        "SET nonsense = 1",
        "SHOW nonsense",
        "RESET nonsense",
        "SET datafusion.nonsense = 1",
        "SET datafusion.execution.target_partitions = 1",
        "SET timezone = 'Mars'",
    ] {
        check_error(&session, bad, ErrorKind::Setting);
    }
}

#[test]
fn parameters_are_bound() {
    let session = database().session().unwrap();
    let prepared = session.prepare("SELECT ? + 1, upper(?)").unwrap();
    assert_eq!(prepared.parameters(), 2);
    let run = |values: &[Value]| {
        prepared
            .query(values)
            .and_then(weft::QueryResult::collect)
            .map(|batches| weft::to_text(&batches).unwrap())
    };
    assert_eq!(run(&[41.into(), "x".into()]).unwrap(), [["42", "X"]]);
    assert_eq!(run(&[Value::Null, "y".into()]).unwrap(), [["NULL", "Y"]]);
    assert_eq!(run(&[1.into()]).unwrap_err().kind(), ErrorKind::Semantic);
    let again = session.prepare("SELECT $2 || $1 || $2").unwrap();
    assert_eq!(again.parameters(), 2);
    let batches = again.query(&["a".into(), "b".into()]).unwrap().collect().unwrap();
    assert_eq!(weft::to_text(&batches).unwrap(), [["bab"]]);
    let limited =
        session.prepare("SELECT value FROM generate_series(1, 9) AS g(value) LIMIT ?").unwrap();
    assert_eq!(limited.query(&[3.into()]).unwrap().collect().unwrap()[0].num_rows(), 3);
    session.execute("PREPARE plus AS SELECT $1 + $2").unwrap();
    check(&session, "EXECUTE plus(40, 1 + 1)", &["42"]);
    session.execute("DEALLOCATE plus").unwrap();
    check_error(&session, "EXECUTE plus(1, 2)", ErrorKind::Semantic);
    check_error(&session, "SELECT $1", ErrorKind::Semantic);
}

#[test]
fn every_type_is_a_parameter() {
    let session = database().session().unwrap();
    let same = |value: Value, sql: &str| {
        let prepared =
            session.prepare(&format!("SELECT arrow_typeof(?) = arrow_typeof({sql}), ? = {sql}"));
        let batches = prepared.unwrap().query(&[value.clone(), value]).unwrap().collect().unwrap();
        assert_eq!(weft::to_text(&batches).unwrap(), [["true", "true"]], "{sql}");
    };
    same(true.into(), "TRUE");
    same(i64::MIN.into(), "CAST('-9223372036854775808' AS BIGINT)");
    same(u64::MAX.into(), "CAST('18446744073709551615' AS BIGINT UNSIGNED)");
    same(1.5.into(), "CAST(1.5 AS DOUBLE)");
    same(f64::NEG_INFINITY.into(), "CAST('-inf' AS DOUBLE)");
    same(Value::Decimal(-12_345, 10, 2), "CAST('-123.45' AS DECIMAL(10, 2))");
    same("it's $1 ?".into(), "CAST('it''s $1 ?' AS VARCHAR)");
    same(vec![0, 255].into(), "CAST(X'00ff' AS BLOB)");
    same(Value::Date(-1), "DATE '1969-12-31'");
    same(Value::Time(3_661_000_001), "CAST('01:01:01.000001' AS TIME)");
    same(Value::Timestamp(-1), "TIMESTAMP '1969-12-31T23:59:59.999999'");
    same(Value::TimestampUtc(0), "CAST('1970-01-01T00:00:00Z' AS TIMESTAMP WITH TIME ZONE)");
    same(Value::Interval(1, -2, 3_000_000_000), "INTERVAL '1 month -2 days 3 seconds'");
}

#[test]
fn cancels_at_once_and_goes_on() {
    let session = database().session().unwrap();
    let slow = "SELECT count(*) FROM generate_series(1, 1000000000) AS a";
    let mut result = session.query(slow).unwrap();
    let handle = result.cancel_handle();
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        handle.cancel();
        Instant::now()
    });
    let error = result.next_batch().unwrap_err();
    let since = canceller.join().unwrap().elapsed();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(since < Duration::from_secs(2), "{since:?}");
    assert!(result.next_batch().unwrap().is_none(), "nothing comes after an error");
    check(&session, "SELECT 1", &["1"]);
}

/// A cancelled join must let go of its thread: with one thread, the next statement waits for it.
#[test]
fn joins_give_way() {
    let options = DatabaseOptions {
        settings: vec![("threads".to_owned(), "1".to_owned())],
        ..DatabaseOptions::default()
    };
    let session = Database::in_memory(&options).unwrap().session().unwrap();
    let slow = "SELECT sum(a.value % 7 * b.value % 3)
                FROM generate_series(1, 200000) AS a(value), generate_series(1, 1000000) AS b(value)";
    let mut result = session.query(slow).unwrap();
    let handle = result.cancel_handle();
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        handle.cancel();
    });
    assert_eq!(result.next_batch().unwrap_err().kind(), ErrorKind::Cancelled);
    canceller.join().unwrap();
    let since = Instant::now();
    check(&session, "SELECT 6", &["6"]);
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
}

#[test]
fn results_are_streams_too() {
    let session = database().session().unwrap();
    let result = session.query("SELECT * FROM generate_series(1, 20000)").unwrap();
    let batches: Vec<_> = futures::executor::block_on(StreamExt::collect(result));
    let rows: usize = batches.iter().map(|batch| batch.as_ref().unwrap().num_rows()).sum();
    assert_eq!(rows, 20_000);
}

#[test]
fn scripts_tell_where_they_failed() {
    let session = database().session().unwrap();
    let mut seen = Vec::new();
    let script =
        "SELECT 1;\n-- a comment; with a semicolon\n SELECT ';';\n  SELECT nosuch;\nSELECT 4";
    let error = session
        .execute_script(script, |statement, result| {
            seen.push(statement.text.clone());
            while result.next_batch()?.is_some() {}
            Ok(())
        })
        .unwrap_err();
    assert_eq!(seen, ["SELECT 1", "SELECT ';'"]);
    assert_eq!(error.position(), Some(Position { line: 4, column: 10 }), "{error}");
}

#[test]
fn commands_have_tags() {
    let session = database().session().unwrap();
    let mut result = session.query("SET threads = 2").unwrap();
    result.finish().unwrap();
    assert_eq!(result.kind(), ResultKind::Command { tag: "SET", rows_affected: None });
    assert_eq!(result.schema().fields().len(), 0);
}

#[test]
fn several_sessions_work_at_once() {
    let database = database();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let session = database.session().unwrap();
            scope.spawn(move || {
                for _ in 0..10 {
                    check(&session, &format!("SELECT {number} + 1"), &[&(number + 1).to_string()]);
                }
            });
        }
    });
}

#[test]
fn columns_are_called_as_they_were_written() {
    let session = database().session().unwrap();
    session
        .execute("CREATE TABLE t AS SELECT value AS a, value % 3 AS b FROM generate_series(1, 9) AS g(value)")
        .unwrap();
    let names = |sql: &str| {
        let result = session.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let schema = result.schema();
        let names = schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
        result.collect().unwrap_or_else(|error| panic!("{sql}: {error}"));
        names.join("|")
    };
    for (sql, expected) in [
        ("SELECT 1, 'x', a + 1, t.b FROM t", "1|'x'|a + 1|b"),
        ("SELECT a, a, count(*) OVER () FROM t", "a|a_1|count(*) OVER ()"),
        ("SELECT b, sum(a) FROM t GROUP BY b ORDER BY sum(a) DESC", "b|sum(a)"),
        ("SELECT a + 1 FROM t GROUP BY a + 1 HAVING count(*) > 0 ORDER BY a + 1", "a + 1"),
        ("SELECT DISTINCT a % 2 FROM t ORDER BY a % 2", "a % 2"),
        ("SELECT max(a) FROM t UNION ALL SELECT 2 ORDER BY 1", "max(a)"),
        ("SELECT * FROM (SELECT b, min(a) FROM t GROUP BY b) ORDER BY 1", "b|min(t.a)"),
        ("SELECT (SELECT max(a) FROM t) FROM t LIMIT 1", "(SELECT max(a) FROM t)"),
        ("SELECT unnest([1, 2])", "UNNEST(make_array(Int64(1),Int64(2)))"),
        ("SELECT sum(a) AS s FROM t ORDER BY s", "s"),
        ("SELECT b AS x FROM t GROUP BY x ORDER BY x", "x"),
    ] {
        assert_eq!(names(sql), expected, "{sql}");
    }
    session.execute("CREATE TABLE u AS SELECT count(*), count(*) FROM t").unwrap();
    assert_eq!(session.columns("u"), ["count(*)", "count(*)_1"]);
}

#[test]
fn errors_are_in_the_words_of_sql() {
    let session = database().session().unwrap();
    session.execute("CREATE TABLE orders (a INTEGER, b VARCHAR)").unwrap();
    let error = check_error(&session, "SELECT sum(b) FROM orders", ErrorKind::Semantic);
    assert!(error.message().starts_with("there is no sum(VARCHAR)"), "{error}");
    let error = check_error(&session, "SELECT a FROM orders GROUP BY b", ErrorKind::Semantic);
    assert!(error.message().contains("orders.a must be in GROUP BY"), "{error}");
    let error = check_error(&session, "SELECT a FROM ordres", ErrorKind::Semantic);
    assert_eq!(error.hint(), Some("did you mean orders?"));
    let error = check_error(&session, "SELECT CAST('12x' AS INTEGER)", ErrorKind::Data);
    assert!(error.message().contains("INTEGER"), "{error}");
    let ignored = "EXPLAIN ANALYZE INSERT INTO orders VALUES (1, 'x')";
    check_error(&session, ignored, ErrorKind::NotSupported);
    let ignored = "CREATE VIEW v AS SELECT * FROM orders FOR UPDATE";
    check_error(&session, ignored, ErrorKind::NotSupported);
}

/// Neither overflows the stack.
#[test]
fn long_statements_are_answered_or_refused() {
    let session = database().session().unwrap();
    let chain = |term: &dyn Fn(usize) -> String, operator: &str, terms: usize| {
        (0..terms).map(term).collect::<Vec<_>>().join(operator)
    };
    let any = chain(&|term| format!("value = {}", 2 * term), " OR ", 10_000);
    let sql = format!("SELECT count(*) FROM generate_series(1, 100) AS g(value) WHERE {any}");
    check(&session, &sql, &["50"]);
    let one = |_| "1".to_owned();
    let sum = format!("SELECT {}", chain(&one, " + ", 5_000));
    let error = check_error(&session, &sum, ErrorKind::NotSupported);
    assert!(error.message().contains("4000 operators"), "{error}");
    let unions = chain(&|term| format!("SELECT {term} AS v"), " UNION ALL ", 2_000);
    let sql = format!("SELECT count(*), min(v), max(v) FROM ({unions})");
    check(&session, &sql, &["2000 0 1999"]);
    let unions = chain(&|_| "SELECT 1".to_owned(), " UNION ALL ", 5_000);
    let error = check_error(&session, &unions, ErrorKind::NotSupported);
    assert!(error.message().contains("5000 queries"), "{error}");
}

#[test]
fn integers_do_not_wrap() {
    let session = database().session().unwrap();
    session.execute("CREATE TABLE t (b BIGINT, i INTEGER, u TINYINT UNSIGNED)").unwrap();
    session
        .execute("INSERT INTO t VALUES (9223372036854775807, 2147483647, 0), (NULL, NULL, NULL)")
        .unwrap();
    for sql in [
        "SELECT 9223372036854775807 + 1",
        "SELECT b + 1 FROM t",
        "SELECT b * 2 FROM t",
        "SELECT -b - 2 FROM t",
        "SELECT i * i * i FROM t",
        "SELECT count(*) FROM t WHERE b + i > 0",
        "SELECT sum(b + 1) FROM t",
        "SELECT -(-b - 1) FROM t",
    ] {
        let error = check_error(&session, sql, ErrorKind::Data);
        let message = error.message().to_lowercase();
        let is_told = message.contains("overflow") || message.contains("out of the range of");
        assert!(is_told, "{sql}: {error}");
    }
    check(
        &session,
        "SELECT b - 1, i + 1, -i, u FROM t WHERE b > 0",
        &["9223372036854775806 2147483648 -2147483647 0"],
    );
    check(
        &session,
        "SELECT i + 1 AS x, count(*) FROM t GROUP BY i + 1 HAVING i + 1 > 0 ORDER BY i + 1",
        &["2147483648 1"],
    );
    check(&session, "SELECT (SELECT max(i) + 1 FROM t) - 1, 2 * 3 LIMIT 1 + 1", &["2147483647 6"]);
    check_error(&session, "CREATE TABLE u (a INTEGER DEFAULT 'x')", ErrorKind::Data);
}

#[test]
fn temporary_tables_are_of_one_session_and_end_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let (path, options) = (directory.path().join("my.weft"), DatabaseOptions::default());
    let database = Database::open(&path, &options).unwrap();
    let (one, other) = (database.session().unwrap(), database.session().unwrap());
    for sql in [
        "CREATE TABLE t AS SELECT 1 AS a",
        "CREATE TEMP TABLE t AS SELECT 2 AS a",
        "CREATE TEMP TABLE parent (a INTEGER PRIMARY KEY)",
        "CREATE TEMP VIEW v AS SELECT a + 1 AS b FROM t",
        "CREATE TEMP TABLE n (id SERIAL, x INTEGER)",
        "COMMENT ON TABLE n IS 'for a while'",
    ] {
        one.execute(sql).unwrap();
    }
    other.execute("CREATE TEMP TABLE t AS SELECT 3 AS a").unwrap();
    check(&one, "SELECT t.a, v.b FROM t, v", &["2 3"]);
    check(&other, "SELECT a FROM t", &["3"]);
    check_error(&other, "SELECT * FROM v", ErrorKind::Semantic);
    check(&database.session().unwrap(), "SELECT a FROM t", &["1"]);
    // One session ends, the other one goes on.
    drop(one);
    check(&other, "SELECT a FROM t", &["3"]);
    check(&other, "SELECT count(*) FROM information_schema.sequences", &["0"]);
    check(&other, "PRAGMA integrity_check", &["t NULL ok", "weft_temp_2.t NULL ok"]);
    drop((other, database));
    let database = Database::open(&path, &options).unwrap();
    let session = database.session().unwrap();
    check(&session, "SELECT a FROM t", &["1"]);
    check(&session, "PRAGMA integrity_check", &["t NULL ok"]);
}
