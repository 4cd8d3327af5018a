//! Joins whose lookups run as generated coroutines: the rows of the interpreter for all kinds of joins and keys, what EXPLAIN says of them,
//! reads that suspend with each driver, and coroutines that are dropped where they wait.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{check, check_error, database, rows};
use weft::{Database, DatabaseOptions, ErrorKind, Session};

/// A table of outer rows, some of whose keys are NULL, equal, or not there, and one with indexes of all kinds on keys.
fn with_keys(session: &Session, outer: u32, inner: u32) {
    for sql in [
        format!(
            "CREATE TABLE a AS SELECT value AS id, \
             CASE WHEN value % 11 = 0 THEN NULL ELSE value * 7919 % {inner} END AS k, \
             CAST(value % 300 - 150 AS SMALLINT) AS s, DATE '2020-01-01' + CAST(value % 90 AS INTEGER) AS d, \
             'text ' || value % 500 AS t FROM generate_series(1, {outer}) AS g(value)"
        ),
        format!(
            "CREATE TABLE b AS SELECT value AS k, value / 3 AS third, \
             CASE WHEN value % 7 = 0 THEN NULL ELSE value % 50 END AS n, \
             CAST(value % 250 - 125 AS SMALLINT) AS s, DATE '2020-01-01' + CAST(value % 60 AS INTEGER) AS d, \
             'text ' || value % 400 AS t FROM generate_series(1, {inner}) AS g(value)"
        ),
        "CREATE UNIQUE INDEX b_k ON b (k)".to_owned(),
        "CREATE INDEX b_third ON b (third DESC, n NULLS FIRST)".to_owned(),
        "CREATE INDEX b_s ON b (s DESC NULLS LAST, d)".to_owned(),
        "CREATE INDEX b_t ON b (t)".to_owned(),
    ] {
        session.execute(&sql).unwrap();
    }
    session.execute("SET index_join = 'always'").unwrap();
    session.execute("SET index_scan = 'never'").unwrap();
}

/// Joins of `a` with `b`: those of each kind by each index.
fn joins() -> Vec<String> {
    let conditions = [
        "b.k = a.k",
        "b.third = a.k AND b.n < a.id % 50",
        "b.third = a.k AND b.n = a.id % 50",
        "b.s = a.s AND b.d = a.d",
        "b.s = a.s AND b.d = a.d AND b.k > a.id",
        "b.t = a.t AND a.id % 40 = 3",
    ];
    let of_condition = |on: &str| {
        [
            format!("SELECT count(*), sum(a.id), sum(b.k), max(b.t) FROM a JOIN b ON {on}"),
            format!("SELECT count(*), sum(a.id), count(b.k), sum(b.n) FROM a LEFT JOIN b ON {on}"),
            format!("SELECT count(*), sum(id) FROM a WHERE EXISTS (SELECT * FROM b WHERE {on})"),
            format!(
                "SELECT count(*), sum(id) FROM a WHERE NOT EXISTS (SELECT * FROM b WHERE {on})"
            ),
        ]
    };
    let beside = [
        "SELECT count(*), sum(id) FROM a WHERE k NOT IN (SELECT k FROM b WHERE k < 700)",
        "SELECT count(*), sum(id) FROM a WHERE id > 90 OR k IN (SELECT k FROM b)",
        "SELECT count(*), sum(CAST(b.d AS VARCHAR)::DATE - DATE '2020-01-01') FROM a JOIN b ON b.k = a.k",
    ];
    conditions.iter().flat_map(|on| of_condition(on)).chain(beside.map(str::to_owned)).collect()
}

fn set(session: &Session, name: &str, value: impl std::fmt::Display) {
    session.execute(&format!("SET {name} = '{value}'")).unwrap();
}

/// Compares the rows of all joins, by code and without.
fn compare(session: &Session, tuples: &[u32]) {
    let mut by_index = 0;
    for sql in joins() {
        set(session, "compile", "never");
        let expected = rows(session, &sql);
        by_index +=
            usize::from(rows(session, &format!("EXPLAIN {sql}")).join("\n").contains("by index"));
        for compile in ["always", "auto"] {
            set(session, "compile", compile);
            for tuples in tuples {
                set(session, "index_join_tuples", tuples);
                assert_eq!(rows(session, &sql), expected, "{compile}, {tuples} tuples: {sql}");
            }
        }
    }
    assert!(by_index >= 20, "{by_index} joins looked rows up");
}

#[test]
fn code_gives_the_rows_of_the_interpreter() {
    let database = database();
    let session = database.session().unwrap();
    with_keys(&session, 3_000, 2_000);
    compare(&session, &[1, 7, 128, 2048]);
    set(&session, "batch_size", 7);
    compare(&session, &[128]);
    set(&session, "batch_size", 1);
    compare(&session, &[7]);
}

#[test]
fn rows_of_a_transaction_and_rows_that_have_left_the_index_are_found() {
    let database = database();
    let session = database.session().unwrap();
    with_keys(&session, 1_500, 1_000);
    let other = database.session().unwrap();
    session.execute("BEGIN").unwrap();
    compare(&session, &[128]);
    for sql in [
        "DELETE FROM b WHERE k % 5 = 1",
        "UPDATE b SET third = third + 1 WHERE k % 5 = 2",
        "INSERT INTO b SELECT k + 5000, third, n, s, d, t FROM b WHERE k % 9 = 0",
    ] {
        other.execute(sql).unwrap();
    }
    // The first transaction sees none of that, although the index has it.
    compare(&session, &[7, 128]);
    session.execute("ROLLBACK").unwrap();
    session.execute("BEGIN").unwrap();
    session.execute("DELETE FROM b WHERE k % 10 = 3").unwrap();
    session.execute("UPDATE b SET s = s + 1 WHERE k % 6 = 2").unwrap();
    compare(&session, &[1, 128]);
    session.execute("ROLLBACK").unwrap();
}

#[test]
fn keys_with_more_rows_than_a_round_has_are_gone_on_with() {
    let database = database();
    let session = database.session().unwrap();
    for sql in [
        "CREATE TABLE few AS SELECT value % 5 AS k, value AS id FROM generate_series(1, 20) AS g(value)",
        "CREATE TABLE many AS SELECT value % 4 AS k, value AS v FROM generate_series(1, 60000) AS g(value)",
        "CREATE INDEX many_k ON many (k)",
        "CREATE INDEX many_k_v ON many (k) INCLUDE (v)",
    ] {
        session.execute(sql).unwrap();
    }
    set(&session, "index_join", "always");
    let sql = "SELECT count(*), sum(v), sum(id) FROM few JOIN many ON few.k = many.k AND v > id";
    set(&session, "compile", "never");
    let expected = rows(&session, sql);
    set(&session, "compile", "always");
    assert!(rows(&session, &format!("EXPLAIN {sql}")).join("\n").contains("by index many_k"));
    assert_eq!(rows(&session, sql), expected);
    check(&session, "SELECT count(*) FROM few JOIN many ON few.k = many.k", &["240000"]);
}

#[test]
fn explain_shows_the_coroutine_and_what_share_of_probes_ran_in_it() {
    let database = database();
    let session = database.session().unwrap();
    with_keys(&session, 3_000, 2_000);
    let sql = "SELECT count(*), sum(b.n) FROM a JOIN b ON b.k = a.k";
    let code = rows(&session, &format!("EXPLAIN (CODE) {sql}")).join("\n");
    assert!(code.contains("coroutine that looks up in the index"), "{code}");
    assert!(code.contains("keys of 1 integers made by it") && code.contains("bswap"), "{code}");
    let analyzed = |compile: &str| {
        set(&session, "compile", compile);
        rows(&session, &format!("EXPLAIN ANALYZE {sql}")).join("\n")
    };
    let always = analyzed("always");
    assert!(always.contains("keys by generated coroutines 100 %"), "{always}");
    assert!(!analyzed("never").contains("generated coroutines"));
    let text = "SELECT count(*) FROM a JOIN b ON b.t = a.t AND a.id < 20";
    let code = rows(&session, &format!("EXPLAIN (CODE) {text}")).join("\n");
    assert!(code.contains("keys made by the interpreter"), "{code}");
}

#[test]
fn errors_are_those_of_the_interpreter() {
    let database = database();
    let session = database.session().unwrap();
    with_keys(&session, 3_000, 2_000);
    let sql = "SELECT count(*) FROM a JOIN b ON b.k = a.k AND 100 / (b.n - 3) > a.id";
    let errors = ["never", "always", "auto"].map(|compile| {
        set(&session, "compile", compile);
        check_error(&session, sql, ErrorKind::Data).to_string()
    });
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
}

fn open(path: &Path, driver: &str) -> Database {
    let options = DatabaseOptions { create: true, ..DatabaseOptions::default() };
    let options = options.with("threads", 2).with("io_driver", driver);
    Database::open(path, &options.with("memory_limit", "24MiB")).unwrap()
}

#[test]
fn reads_suspend_with_each_driver_and_dropped_coroutines_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    with_keys(&open(&path, "auto").session().unwrap(), 20_000, 60_000);
    let mut expected = Vec::new();
    for driver in ["blocking", "posix", "auto"] {
        // Nothing is in memory when it begins.
        let database = open(&path, driver);
        let session = database.session().unwrap();
        set(&session, "index_join", "always");
        set(&session, "compile", "always");
        let sql = "SELECT count(*), sum(b.n), max(b.t) FROM a JOIN b ON b.k = a.k";
        let used = || {
            let stats = database.stats();
            stats.memory_used.saturating_sub(stats.memory_cached)
        };
        let before = used();
        for after in [0, 2, 10] {
            let result = session.query(sql).unwrap();
            let handle = result.cancel_handle();
            std::thread::sleep(Duration::from_millis(after));
            handle.cancel();
            if let Err(error) = result.collect() {
                assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
            }
            let since = Instant::now();
            // The code itself is kept.
            while used() > before + (1 << 20) {
                assert!(since.elapsed() < Duration::from_secs(20), "{} bytes are left", used());
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let found = rows(&session, sql);
        if expected.is_empty() {
            set(&session, "compile", "never");
            expected = rows(&session, sql);
        }
        assert_eq!(found, expected, "{driver}");
    }
}
