//! Tables and views: definitions, rows, types, errors, what survives being reopened.

use std::thread;

use crate::support::{check, check_error, database, rows};
use weft::{Database, DatabaseOptions, ErrorKind, ResultKind, Session};

#[test]
fn rows_come_back() {
    let session = database().session().unwrap();
    session.execute("CREATE TABLE t (a INTEGER, b VARCHAR)").unwrap();
    assert_eq!(session.execute("INSERT INTO t VALUES (1, 'one'), (2, NULL)").unwrap(), 2);
    assert_eq!(
        session
            .execute("INSERT INTO t (b) SELECT 'x' || value FROM generate_series(1, 3) AS g(value)")
            .unwrap(),
        3
    );
    check(&session, "SELECT * FROM t WHERE a IS NOT NULL ORDER BY a", &["1 one", "2 NULL"]);
    check(&session, "SELECT count(*), count(a), max(b) FROM t", &["5 2 x3"]);
    check(&session, "SELECT b FROM main.t WHERE a = 1", &["one"]);
    check(&session, "SELECT b FROM weft.main.t AS u WHERE u.a < 2", &["one"]);
    assert_eq!(session.execute("INSERT INTO t SELECT * FROM t").unwrap(), 5);
    check(&session, "SELECT count(*) FROM t", &["10"]);
}

#[test]
fn definitions_are_checked() {
    let session = database().session().unwrap();
    session
        .execute(
            "CREATE TABLE t (a INTEGER NOT NULL, b VARCHAR DEFAULT 'none', c INT DEFAULT 1 + 1)",
        )
        .unwrap();
    assert_eq!(session.execute("INSERT INTO t (a) VALUES (1)").unwrap(), 1);
    check(&session, "SELECT * FROM t", &["1 none 2"]);
    let error = check_error(&session, "INSERT INTO t (b) VALUES ('x')", ErrorKind::Data);
    assert!(error.message().contains("column a of table t is NOT NULL"), "{error}");
    check_error(&session, "INSERT INTO t VALUES (NULL, 'x', 1)", ErrorKind::Data);
    check_error(&session, "INSERT INTO t VALUES ('abc', 'x', 1)", ErrorKind::Data);
    check_error(&session, "INSERT INTO t VALUES (3000000000, 'x', 1)", ErrorKind::Data);
    check_error(&session, "INSERT INTO t VALUES (1)", ErrorKind::Semantic);
    check_error(&session, "INSERT INTO t (a, nosuch) VALUES (1, 2)", ErrorKind::Semantic);
    check(&session, "SELECT count(*) FROM t", &["1"]);
    check_error(&session, "CREATE TABLE t (a INTEGER)", ErrorKind::AlreadyExists);
    session.execute("CREATE TABLE IF NOT EXISTS t (z INTEGER)").unwrap();
    check(&session, "SELECT a FROM t", &["1"]);
    session.execute("CREATE OR REPLACE TABLE t (z INTEGER)").unwrap();
    check(&session, "SELECT count(z) FROM t", &["0"]);
    for bad in [
        "CREATE TABLE u (a INTEGER CHECK (a > 0) NOT ENFORCED)",
        "CREATE TABLE u (a INTEGER, UNIQUE NULLS NOT DISTINCT (a))",
        "CREATE TEMPORARY TABLE u (a INTEGER) ON COMMIT DROP",
        "INSERT OR FAIL INTO t VALUES (1)",
        "DROP DATABASE main",
    ] {
        let error = check_error(&session, bad, ErrorKind::NotSupported);
        assert!(error.message().contains("not supported"), "{bad}: {error}");
    }
    check_error(&session, "CREATE TABLE u (a DECIMAL(39, 2))", ErrorKind::Semantic);
    check_error(&session, "CREATE TABLE u (a INTEGER, a VARCHAR)", ErrorKind::Semantic);
    check_error(&session, "CREATE TABLE u (a INTEGER DEFAULT nosuch)", ErrorKind::Semantic);
    check_error(&session, "CREATE TABLE u (a NOSUCHTYPE)", ErrorKind::NotSupported);
    check_error(&session, "CREATE TABLE other.u (a INTEGER)", ErrorKind::Semantic);
}

#[test]
fn tables_are_made_of_queries() {
    let session = database().session().unwrap();
    let made = "CREATE TABLE t AS SELECT value AS n, value % 3 AS r FROM generate_series(1, 200000) AS g(value)";
    let mut result = session.query(made).unwrap();
    assert_eq!(result.finish().unwrap(), 200_000);
    let kind = ResultKind::Command { tag: "CREATE TABLE AS", rows_affected: Some(200_000) };
    assert_eq!(result.kind(), kind);
    check(&session, "SELECT count(*), sum(n), count(DISTINCT r) FROM t", &["200000 20000100000 3"]);
    check(
        &session,
        "SELECT n FROM t WHERE n BETWEEN 99999 AND 100001 ORDER BY n",
        &["99999", "100000", "100001"],
    );
    check_error(&session, "DROP SCHEMA main", ErrorKind::Semantic);
    check_error(&session, "CREATE TABLE u AS SELECT 1 / (n - 5) FROM t", ErrorKind::Data);
    check_error(&session, "SELECT * FROM u", ErrorKind::Semantic);
}

#[test]
fn relations_are_dropped() {
    let session = database().session().unwrap();
    session.execute("CREATE TABLE t (a INTEGER)").unwrap();
    session.execute("CREATE VIEW v AS SELECT a + 1 AS b FROM t").unwrap();
    check(&session, "SHOW TABLES", &["t table", "v view"]);
    check_error(&session, "DROP TABLE v", ErrorKind::Semantic);
    check_error(&session, "DROP VIEW t", ErrorKind::Semantic);
    let error = check_error(&session, "DROP TABLE tt", ErrorKind::Semantic);
    assert_eq!(error.message(), "table tt does not exist");
    session.execute("DROP TABLE IF EXISTS tt").unwrap();
    session.execute("DROP TABLE t").unwrap();
    let error = check_error(&session, "SELECT * FROM v", ErrorKind::Semantic);
    assert!(error.message().contains("view v does not work any more"), "{error}");
    rows(&session, "SELECT * FROM information_schema.tables");
    session.execute("DROP VIEW v").unwrap();
    check(&session, "SHOW TABLES", &[]);
}

#[test]
fn views_are_queries() {
    let session = database().session().unwrap();
    session.execute("CREATE TABLE t (a INTEGER, b VARCHAR)").unwrap();
    session.execute("INSERT INTO t VALUES (1, 'x'), (2, 'y')").unwrap();
    session.execute("CREATE VIEW v AS SELECT a * 10 AS c, b FROM t WHERE a > 1").unwrap();
    session.execute("CREATE VIEW w(p, q) AS SELECT c, upper(b) FROM v").unwrap();
    check(&session, "SELECT * FROM w", &["20 Y"]);
    session.execute("INSERT INTO t VALUES (3, 'z')").unwrap();
    check(&session, "SELECT p FROM w ORDER BY p", &["20", "30"]);
    check_error(&session, "CREATE VIEW v AS SELECT 1", ErrorKind::AlreadyExists);
    session.execute("CREATE OR REPLACE VIEW v AS SELECT a AS c, b FROM t").unwrap();
    check(&session, "SELECT count(*) FROM w", &["3"]);
    // A view cannot come to contain itself.
    let circle = "CREATE OR REPLACE VIEW v AS SELECT p AS c, q AS b FROM w";
    let error = check_error(&session, circle, ErrorKind::Semantic);
    assert_eq!(error.message(), "view v refers to itself");
    check(&session, "SELECT count(*) FROM v", &["3"]);
    check_error(&session, "INSERT INTO v VALUES (1, 'x')", ErrorKind::Semantic);
    assert_eq!(session.columns("t"), ["a", "b"]);
}

#[test]
fn every_type_makes_the_round_trip() {
    let session = database().session().unwrap();
    let types = [
        ("TINYINT", "-128", "-128"),
        ("SMALLINT", "-32768", "-32768"),
        ("INTEGER", "2147483647", "2147483647"),
        ("BIGINT", "-9223372036854775808", "-9223372036854775808"),
        ("TINYINT UNSIGNED", "255", "255"),
        ("SMALLINT UNSIGNED", "65535", "65535"),
        ("INTEGER UNSIGNED", "4294967295", "4294967295"),
        ("BIGINT UNSIGNED", "18446744073709551615", "18446744073709551615"),
        (
            "DECIMAL(38, 10)",
            "'-1234567890123456789012345678.0123456789'",
            "-1234567890123456789012345678.0123456789",
        ),
        ("REAL", "1.5", "1.5"),
        ("DOUBLE", "'-inf'", "-inf"),
        ("BOOLEAN", "TRUE", "true"),
        ("DATE", "'2024-02-29'", "2024-02-29"),
        ("TIME", "'23:59:59.999999'", "23:59:59.999999"),
        ("TIMESTAMP", "'9999-12-31 23:59:59.999999'", "9999-12-31T23:59:59.999999"),
        ("TIMESTAMP(9)", "'2020-01-01 00:00:00.123456789'", "2020-01-01T00:00:00.123456789"),
        ("TIMESTAMP WITH TIME ZONE", "'2020-01-01T02:00:00+02:00'", "2020-01-01T00:00:00Z"),
        ("VARCHAR", "'grüß''e'", "grüß'e"),
        ("TEXT", "''", ""),
        ("CHAR(3)", "'abc'", "abc"),
        ("BLOB", "X'00ff'", "00ff"),
        ("BYTEA", "X''", ""),
        ("INTERVAL", "INTERVAL '1 month 2 days'", "1 mons 2 days"),
        ("INTEGER[]", "[1, NULL, 3]", "[1, NULL, 3]"),
        ("VARCHAR[]", "['a', 'b']", "[a, b]"),
        ("INTEGER[][]", "[[1], [2, 3]]", "[[1], [2, 3]]"),
        ("STRUCT<x INTEGER, y VARCHAR>", "named_struct('x', 1, 'y', 'z')", "{x: 1, y: z}"),
    ];
    for (number, (name, value, shown)) in types.iter().enumerate() {
        session
            .execute(&format!("CREATE TABLE t{number} (v {name})"))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        session
            .execute(&format!("INSERT INTO t{number} VALUES ({value}), (NULL)"))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        check(&session, &format!("SELECT v FROM t{number} WHERE v IS NOT NULL"), &[shown]);
        check(&session, &format!("SELECT count(*) FROM t{number} WHERE v IS NULL"), &["1"]);
        let described = rows(&session, &format!("DESCRIBE t{number}"));
        assert_eq!(described.len(), 1, "{name}");
    }
}

#[test]
fn indexes_are_used_where_a_scan_takes_longer() {
    let session = database().session().unwrap();
    session.execute("CREATE TABLE t (n BIGINT PRIMARY KEY, k BIGINT, s VARCHAR)").unwrap();
    session.execute("CREATE INDEX by_k ON t (k DESC, n)").unwrap();
    session.execute("INSERT INTO t SELECT value, value % 1000, 's' || value FROM generate_series(1, 200000) AS g(value)").unwrap();
    let index = |condition: &str| {
        let plan = rows(&session, &format!("EXPLAIN SELECT s FROM t WHERE {condition}")).join("\n");
        ["t_pkey", "by_k"].into_iter().find(|index| plan.contains(index))
    };
    for (condition, used) in [
        ("n = 77", Some("t_pkey")),
        ("n IN (1, 2, 3, 100000)", Some("t_pkey")),
        ("n IN (1, 2)", Some("t_pkey")),
        ("n = 5 OR n = 7 OR n = 9", Some("t_pkey")),
        ("n = 5 OR k = 7", None),
        ("n BETWEEN 5 AND 9", Some("t_pkey")),
        ("k = 77 AND n = 1077", Some("t_pkey")),
        ("k < 900", None),
        ("s = 's5'", None),
    ] {
        assert_eq!(index(condition), used, "{condition}");
    }
    check(&session, "SELECT s FROM t WHERE n = 77", &["s77"]);
    session.execute("SET index_scan = 'always'").unwrap();
    assert_eq!(index("k < 900"), Some("by_k"));
    assert_eq!(index("k = 5 AND n < 100"), Some("by_k"));
    check(&session, "SELECT s FROM t WHERE k = 5 AND n < 2100", &["s5", "s1005", "s2005"]);
    session.execute("SET index_scan = 'never'").unwrap();
    assert_eq!(index("n = 77"), None);
}

#[test]
fn keys_hold_after_reopening_and_among_sessions() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let options = DatabaseOptions { create: true, ..DatabaseOptions::default() };
    let database = Database::open(&path, &options).unwrap();
    let session = database.session().unwrap();
    session.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b VARCHAR CHECK (b <> ''))").unwrap();
    session.execute("CREATE TABLE u (a INTEGER REFERENCES t)").unwrap();
    session.execute("INSERT INTO t VALUES (1, 'x')").unwrap();
    drop((session, database));
    let database = Database::open(&path, &options).unwrap();
    let session = database.session().unwrap();
    let error = check_error(&session, "INSERT INTO t VALUES (1, 'y')", ErrorKind::UniqueViolation);
    let expected = "a = 1 is there twice, which the primary key t_pkey of table t does not allow";
    assert_eq!(error.message(), expected);
    check_error(&session, "INSERT INTO t VALUES (2, '')", ErrorKind::CheckViolation);
    check_error(&session, "INSERT INTO u VALUES (2)", ErrorKind::ForeignKeyViolation);
    check_error(&session, "DROP TABLE t", ErrorKind::ForeignKeyViolation);
    let inserted = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let session = database.session().unwrap();
                    let insert = |n: &i32| format!("INSERT INTO t VALUES ({n}, 'z')");
                    (2..12).filter(|n| session.execute(&insert(n)).is_ok()).count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert_eq!(inserted, 10);
    check(&session, "SELECT count(*), count(DISTINCT a) FROM t", &["11 11"]);
    session.execute("DROP TABLE t CASCADE").unwrap();
    session.execute("INSERT INTO u VALUES (2)").unwrap();
    check(&session, "PRAGMA integrity_check", &["u NULL ok"]);
}

#[test]
fn conditions_are_pushed_into_scans() {
    let session = database().session().unwrap();
    session.execute("CREATE TABLE t AS SELECT value AS n, 'k' || (value % 7) AS s, CASE WHEN value % 5 = 0 THEN NULL ELSE value END AS m FROM generate_series(1, 200000) AS g(value)").unwrap();
    let explain = |condition: &str| {
        rows(&session, &format!("EXPLAIN SELECT s FROM t WHERE {condition}")).join("\n")
    };
    for (condition, count) in [
        ("n = 77", "1"),
        ("n > 199990", "10"),
        ("n IN (1, 2, 3, 300000)", "3"),
        ("n BETWEEN 10 AND 19", "10"),
        ("s = 'k3'", "28572"),
        ("s LIKE 'k6%' AND n <= 70", "10"),
        ("m IS NULL AND n < 100", "19"),
        ("m IS NOT NULL AND n < 100", "80"),
        ("n = 5 AND m = 5", "0"),
        ("n <> 1", "199999"),
        ("n = NULL", "0"),
        ("CAST(n AS INTEGER) = 5", "1"),
        ("n < 10.5", "10"),
    ] {
        check(&session, &format!("SELECT count(*) FROM t WHERE {condition}"), &[count]);
    }
    let plan = explain("n > 199990 AND s LIKE 'k%'");
    assert!(plan.contains("filter=[n > 199990 AND s LIKE 'k%']"), "{plan}");
    assert!(!plan.contains("  step"), "{plan}");
    let plan = explain("n % 2 = 0");
    assert!(plan.contains("source  scan of t\n  step    filter n % 2 = 0\n"), "{plan}");
    let analyzed =
        rows(&session, "EXPLAIN ANALYZE SELECT max(n) FROM t WHERE n > 199990 AND s <> 'x'")
            .join("\n");
    for told in ["read ", "waited ", "pages in memory ", "row groups left out 3", "rows looked at "]
    {
        assert!(analyzed.contains(told), "{told}: {analyzed}");
    }
}

#[test]
fn statistics_answer_without_reading() {
    let session = database().session().unwrap();
    session
        .execute("CREATE TABLE t AS SELECT value AS n FROM generate_series(1, 1000) AS g(value) ORDER BY n")
        .unwrap();
    check(&session, "SELECT count(*), min(n), max(n) FROM t", &["1000 1 1000"]);
    let plan = rows(&session, "EXPLAIN SELECT count(*), min(n), max(n) FROM t").join("\n");
    assert!(!plan.contains("WeftScan"), "{plan}");
}

#[test]
fn a_database_survives_being_closed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("my.weft");
    let options = DatabaseOptions::default();
    let database = Database::open(&path, &options).unwrap();
    let session = database.session().unwrap();
    session
        .execute("CREATE TABLE \"Mixed Case\" (\"A b\" INTEGER DEFAULT 7, c DECIMAL(5, 2))")
        .unwrap();
    session.execute("INSERT INTO \"Mixed Case\" (c) VALUES (1.25)").unwrap();
    session.execute("CREATE VIEW v AS SELECT \"A b\" + c AS d FROM \"Mixed Case\"").unwrap();
    let error = Database::open(&path, &options).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
    drop(session);
    database.close();
    let database =
        Database::open(&path, &DatabaseOptions { read_only: true, ..options.clone() }).unwrap();
    let session = database.session().unwrap();
    check(&session, "SELECT * FROM v", &["8.25"]);
    check(
        &session,
        "DESCRIBE \"Mixed Case\"",
        &["A b INTEGER YES 7 NULL", "c DECIMAL(5, 2) YES NULL NULL"],
    );
    check_error(&session, "CREATE TABLE t (a INTEGER)", ErrorKind::Storage);
    check_error(&session, "INSERT INTO \"Mixed Case\" VALUES (1, 1)", ErrorKind::Storage);
    drop((session, database));
    let missing = DatabaseOptions { create: false, ..options };
    let error = Database::open(directory.path().join("nowhere"), &missing).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Storage);
}

#[test]
fn readers_see_one_snapshot_during_commits() {
    let database = database();
    let session = database.session().unwrap();
    session.execute("CREATE TABLE t (a INTEGER, b INTEGER)").unwrap();
    thread::scope(|scope| {
        for writer in 0..2 {
            let session = database.session().unwrap();
            scope.spawn(move || {
                for number in 0..10 {
                    let sql =
                        format!("INSERT INTO t VALUES ({writer}, {number}), ({writer}, -{number})");
                    session.execute(&sql).unwrap();
                }
            });
        }
        for _ in 0..2 {
            let session = database.session().unwrap();
            scope.spawn(move || {
                for _ in 0..20 {
                    let row = &rows(&session, "SELECT count(*) % 2, coalesce(sum(b), 0) FROM t")[0];
                    assert_eq!(row, "0 0");
                }
            });
        }
    });
    check(&session, "SELECT count(*) FROM t", &["40"]);
}

#[test]
fn rows_of_one_key_get_the_updates_of_all_sessions() {
    let database = database();
    let session = database.session().unwrap();
    session.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, n INTEGER)").unwrap();
    thread::scope(|scope| {
        for _ in 0..3 {
            let session = database.session().unwrap();
            scope.spawn(move || {
                for number in 0..8 {
                    let sql = format!(
                        "INSERT INTO t VALUES ({}, 1) ON CONFLICT (k) DO UPDATE SET n = t.n + 1",
                        number % 2
                    );
                    assert_eq!(session.execute(&sql).unwrap(), 1);
                }
            });
        }
    });
    check(&session, "SELECT * FROM t ORDER BY k", &["0 12", "1 12"]);
}

#[test]
fn rows_that_are_inserted_while_a_table_is_altered_fit_it() {
    let database = database();
    let session = database.session().unwrap();
    session.execute("CREATE TABLE t (a INTEGER)").unwrap();
    thread::scope(|scope| {
        for writer in 0..2 {
            let session = database.session().unwrap();
            scope.spawn(move || {
                for number in 0..10 {
                    let sql = format!("INSERT INTO t (a) VALUES ({})", writer * 10 + number);
                    session.execute(&sql).unwrap();
                }
            });
        }
        let session = database.session().unwrap();
        scope.spawn(move || {
            session.execute("ALTER TABLE t ADD COLUMN b INTEGER DEFAULT 7").unwrap();
            session.execute("ALTER TABLE t ADD CHECK (b = 7), ALTER b SET NOT NULL").unwrap();
            session.execute("ALTER TABLE t ALTER a TYPE BIGINT, ADD UNIQUE (a)").unwrap();
        });
    });
    check(&session, "SELECT count(*), sum(a), sum(b) FROM t", &["20 190 140"]);
    check(&session, "CHECK TABLE t", &["t NULL ok", "t t_a_key ok"]);
    check_error(&session, "INSERT INTO t VALUES (20, 8)", ErrorKind::CheckViolation);
}

#[test]
fn enumerations_survive_being_reopened() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let options = DatabaseOptions { create: true, ..DatabaseOptions::default() };
    let database = Database::open(&path, &options).unwrap();
    let session = database.session().unwrap();
    session.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'it''s fine')").unwrap();
    session.execute("CREATE TABLE t (e mood, f ENUM ('b', 'a'), PRIMARY KEY (e))").unwrap();
    session.execute("INSERT INTO t VALUES ('it''s fine', 'b'), ('sad', 'a')").unwrap();
    session.execute("ALTER TYPE mood ADD VALUE 'meh' BEFORE 'ok'").unwrap();
    session.execute("INSERT INTO t VALUES ('meh', NULL)").unwrap();
    drop((session, database));
    let database = Database::open(&path, &options).unwrap();
    let session = database.session().unwrap();
    check(&session, "SELECT e, f FROM t ORDER BY e", &["sad a", "meh NULL", "it's fine b"]);
    check(&session, "SELECT f FROM t WHERE f IS NOT NULL ORDER BY f", &["b", "a"]);
    check(&session, "SELECT enum_range('ok'::mood, NULL)", &["[ok, it's fine]"]);
    let made = "CREATE TYPE IF NOT EXISTS mood AS ENUM('sad', 'meh', 'ok', 'it''s fine');\n\
                CREATE TABLE t (\n    e mood NOT NULL,\n    f ENUM('b', 'a'),\n    \
                CONSTRAINT t_pkey PRIMARY KEY (e)\n)";
    check(&session, "SHOW CREATE TABLE t", &[&format!("t {made}")]);
    for sql in [
        "INSERT INTO t VALUES ('bad', 'a')",
        "SELECT e FROM t WHERE e = 'bad'",
        "SELECT 'bad'::mood",
        "INSERT INTO t VALUES ('ok', 'c')",
    ] {
        let error = check_error(&session, sql, ErrorKind::Data);
        assert_eq!(error.sqlstate(), "22P02", "{sql}");
    }
    check_error(&session, "DROP TYPE mood", ErrorKind::Semantic);
    drop((session, database));
    // Another database has the labels, but not the type.
    let other = Database::open(directory.path().join("other"), &options).unwrap();
    let session = other.session().unwrap();
    session.execute(&format!("ATTACH '{}' AS first", path.display())).unwrap();
    check(&session, "SELECT e FROM first.t ORDER BY e LIMIT 2", &["sad", "meh"]);
    session.execute("CREATE TABLE copied AS SELECT e FROM first.t").unwrap();
    check(&session, "SELECT e FROM copied ORDER BY e DESC LIMIT 1", &["it's fine"]);
    let kind = "SELECT typeof(e) FROM copied LIMIT 1";
    check(&session, kind, &["ENUM('sad', 'meh', 'ok', 'it''s fine')"]);
}

#[test]
fn altered_tables_survive_being_reopened() {
    let directory = tempfile::tempdir().unwrap();
    let (path, options) = (directory.path().join("my.weft"), DatabaseOptions::default());
    let database = Database::open(&path, &options).unwrap();
    let session = database.session().unwrap();
    for sql in [
        "CREATE TABLE t (a INTEGER, b VARCHAR, c BIGINT, CHECK (c >= 0))",
        "INSERT INTO t SELECT value, 'x' || value, value * 2 FROM generate_series(1, 3000) AS g(value)",
        "CREATE INDEX t_c ON t (c)",
        "ALTER TABLE t DROP COLUMN b",
        "ALTER TABLE t RENAME COLUMN c TO d",
        "ALTER TABLE t ADD COLUMN e DOUBLE DEFAULT 0.5, ALTER a TYPE BIGINT",
        "ALTER TABLE t DROP COLUMN a",
        "ALTER TABLE t RENAME TO u",
        "ALTER INDEX t_c RENAME TO u_d",
    ] {
        session.execute(sql).unwrap();
    }
    drop((session, database));
    let database = Database::open(&path, &options).unwrap();
    let session = database.session().unwrap();
    check(&session, "SELECT count(*), sum(d), sum(e) FROM u", &["3000 9003000 1500.0"]);
    check(&session, "SELECT * FROM u WHERE d = 40", &["40 0.5"]);
    check(&session, "PRAGMA integrity_check", &["u NULL ok", "u u_d ok"]);
    check_error(&session, "INSERT INTO u VALUES (-1, 1)", ErrorKind::CheckViolation);
}

#[test]
fn a_cancelled_load_leaves_nothing() {
    let database = database();
    let session = database.session().unwrap();
    session.execute("CREATE TABLE t (a BIGINT)").unwrap();
    let mut result = session
        .query("INSERT INTO t SELECT value FROM generate_series(1, 500000000) AS g(value)")
        .unwrap();
    let handle = result.cancel_handle();
    let canceller = thread::spawn(move || {
        thread::sleep(std::time::Duration::from_millis(200));
        handle.cancel();
        std::time::Instant::now()
    });
    assert_eq!(result.finish().unwrap_err().kind(), ErrorKind::Cancelled);
    let since = canceller.join().unwrap().elapsed();
    assert!(since < std::time::Duration::from_secs(2), "{since:?}");
    check(&session, "SELECT count(*) FROM t", &["0"]);
    // One that nobody waits for leaves nothing, too.
    drop(
        session
            .query("INSERT INTO t SELECT value FROM generate_series(1, 500000000) AS g(value)")
            .unwrap(),
    );
    check(&session, "SELECT count(*) FROM t", &["0"]);
}

#[test]
fn queries_larger_than_memory_spill() {
    let numbers = |rows: u32| format!("generate_series(1, {rows}) AS t(n)");
    let queries = [
        // A sort, and a window function over it.
        (
            format!(
                "SELECT count(*), sum(r) FROM (SELECT row_number() OVER (ORDER BY md5(CAST(n AS VARCHAR))) AS r FROM {})",
                numbers(600_000)
            ),
            "600000 180000300000",
        ),
        // Several columns, some of them long.
        (
            format!(
                "SELECT count(*), count(DISTINCT b) FROM (SELECT b, rank() OVER (ORDER BY b, a DESC) FROM (SELECT n AS a, repeat(md5(CAST(n % 1000 AS VARCHAR)), 4) AS b FROM {}))",
                numbers(400_000)
            ),
            "400000 1000",
        ),
        // Many groups.
        (
            format!(
                "SELECT count(*), sum(c), max(m) FROM (SELECT md5(CAST(n AS VARCHAR)) AS k, count(*) AS c, max(n) AS m FROM {} GROUP BY k)",
                numbers(1_000_000)
            ),
            "1000000 1000000 1000000",
        ),
        (
            format!(
                "SELECT count(*) FROM (SELECT DISTINCT 'key ' || n AS k FROM {})",
                numbers(1_000_000)
            ),
            "1000000",
        ),
        // A build side that does not fit.
        (
            "SELECT count(*), sum(x) FROM generate_series(1, 3000000) AS a(x) JOIN generate_series(1, 3000000) AS b(y) ON x = y".to_owned(),
            "3000000 4500001500000",
        ),
    ];
    for threads in [1, 2, 4] {
        let options =
            DatabaseOptions::default().with("memory_limit", "64MiB").with("threads", threads);
        let database = Database::in_memory(&options).unwrap();
        let session = database.session().unwrap();
        // Those of one operator each are the same for any number of threads.
        let chosen = if threads == 2 { &queries[..] } else { &queries[..1] };
        for (query, expected) in chosen {
            check(&session, query, &[expected]);
        }
        assert!(database.stats().memory_peak <= 64 << 20);
        assert_eq!(database.stats().spilled_bytes, 0);
    }
}

/// Both sides of a join that does not fit are read by several threads, and exchanged among several.
#[test]
fn exchanges_that_spill_go_on() {
    let options = DatabaseOptions::default().with("memory_limit", "64MiB").with("threads", 2);
    let database = Database::in_memory(&options.with("engine", "datafusion")).unwrap();
    let session = database.session().unwrap();
    session.execute("CREATE TABLE t AS SELECT value AS n, md5(CAST(value AS VARCHAR)) AS s FROM generate_series(1, 1500000) AS g(value)").unwrap();
    let join = "SELECT count(*), min(a.n), max(length(a.s || b.s)) FROM t AS a JOIN t AS b ON a.n = b.n AND a.s = b.s";
    check(&session, join, &["1500000 1 64"]);
    assert_eq!(database.stats().spilled_bytes, 0);
}

#[test]
fn what_cannot_spill_says_what_it_lacks() {
    let options = DatabaseOptions::default().with("memory_limit", "64MiB").with("threads", 2);
    let database = Database::in_memory(&options).unwrap();
    let session = database.session().unwrap();
    // Weft's own window function would spill.
    session.execute("SET engine = 'datafusion'").unwrap();
    let error = check_error(
        &session,
        "SELECT count(s) FROM (SELECT sum(n) OVER (ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS s FROM generate_series(1, 9000000) AS t(n))",
        ErrorKind::OutOfMemory,
    );
    assert!(error.message().contains("the window function"), "{error}");
    assert!(error.message().contains("memory_limit"), "{error}");
    check(&session, "SELECT 1", &["1"]);
    assert_eq!(database.stats().spilled_bytes, 0);
}

#[test]
fn operators_get_memory_that_the_cache_had() {
    let options = DatabaseOptions::default().with("memory_limit", "96MiB").with("threads", 2);
    let database = Database::in_memory(&options).unwrap();
    let session = database.session().unwrap();
    session.execute("CREATE TABLE t AS SELECT value AS n, md5(CAST(value AS VARCHAR)) AS s FROM generate_series(1, 1500000) AS g(value)").unwrap();
    // Fills the cache.
    check(&session, "SELECT count(DISTINCT length(s)), sum(n) FROM t", &["1 1125000750000"]);
    let cached = database.stats().memory_used;
    assert!(cached > 20 << 20, "{cached} bytes");
    // The build side of the join does not spill.
    let join =
        "SELECT count(*) FROM (SELECT n, s FROM t WHERE n <= 300000) AS a JOIN t AS b ON a.n = b.n";
    check(&session, join, &["300000"]);
    assert!(database.stats().memory_peak <= 96 << 20);
}

#[test]
fn sequences_never_give_a_value_again() {
    let directory = tempfile::tempdir().unwrap();
    let (path, options) = (directory.path().join("my.weft"), DatabaseOptions::default());
    let mut given: Vec<String> = Vec::new();
    for round in 0..3 {
        let database = Database::open(&path, &options).unwrap();
        let session = database.session().unwrap();
        if round == 0 {
            session.execute("CREATE SEQUENCE s").unwrap();
            session.execute("CREATE TABLE t (id SERIAL PRIMARY KEY, x INTEGER)").unwrap();
        }
        let of_thread = || {
            let session = database.session().unwrap();
            let mut given = Vec::new();
            for number in 0..20 {
                // What a transaction took it has taken, though it is rolled back.
                let is_rolled_back = number % 5 == 0;
                if is_rolled_back {
                    session.execute("BEGIN").unwrap();
                }
                given.extend(rows(&session, "SELECT nextval('s')"));
                if is_rolled_back {
                    session.execute("ROLLBACK").unwrap();
                }
                session.execute("INSERT INTO t (x) VALUES (1), (2)").unwrap();
            }
            given
        };
        let more = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(of_thread)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        given.extend(more);
        // More than are reserved at a time.
        given.extend(rows(&session, "SELECT nextval('s') FROM range(200)"));
        drop((session, database));
    }
    assert_eq!(given.len(), 3 * (60 + 200));
    given.sort_unstable();
    given.dedup();
    assert_eq!(given.len(), 3 * (60 + 200), "a value was given twice");
    let database = Database::open(&path, &options).unwrap();
    let session = database.session().unwrap();
    check(&session, "SELECT count(*), count(DISTINCT id) FROM t", &["360 360"]);
    check_error(&session, "SELECT currval('s')", ErrorKind::Semantic);
    drop((session, database));
    let options = DatabaseOptions { read_only: true, ..options };
    let session = Database::open(&path, &options).unwrap().session().unwrap();
    check_error(&session, "SELECT nextval('s')", ErrorKind::Storage);
}

#[test]
fn an_altered_sequence_goes_on_behind_its_values_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (path, options) = (directory.path().join("my.weft"), DatabaseOptions::default());
    let value = |session: &Session| -> i64 {
        rows(session, "SELECT nextval('s')").concat().trim().parse().unwrap()
    };
    let statements =
        ["INCREMENT 10", "RESTART WITH 5000 MAXVALUE 100000", "INCREMENT -1 MAXVALUE 200000"];
    let first = {
        let session = Database::open(&path, &options).unwrap().session().unwrap();
        session.execute("CREATE SEQUENCE s").unwrap();
        value(&session)
    };
    let mut last = first;
    for statement in statements {
        let session = Database::open(&path, &options).unwrap().session().unwrap();
        session.execute(&format!("ALTER SEQUENCE s {statement}")).unwrap();
        let next = value(&session);
        match statement.starts_with("RESTART") {
            true => assert_eq!(next, 5000),
            false => assert_ne!(next, last),
        }
        let step = value(&session) - next;
        assert_eq!(
            step,
            if statement.starts_with("INCREMENT -1") { -1 } else { 10 },
            "{statement}"
        );
        last = next + step;
    }
    // The values that were reserved before it was altered for the last time lie behind.
    assert!(last > 5010, "{last}");
}
