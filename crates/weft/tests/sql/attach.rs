//! Attached databases: what statements of one database read of another.

use std::path::Path;

use crate::support::{check, check_error, database, rows};
use tempfile::TempDir;
use weft::{Database, DatabaseOptions, ErrorKind, Session};

fn open(path: &Path) -> Database {
    let options = DatabaseOptions::default().with("threads", 2).with("memory_limit", "256MB");
    Database::open(path, &options).unwrap()
}

fn run(session: &Session, statements: &[&str]) {
    for sql in statements {
        session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// A directory with a database `other` in it, which is closed.
fn other() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let database = open(&directory.path().join("other"));
    run(
        &database.session().unwrap(),
        &[
            "CREATE SCHEMA s",
            "CREATE TABLE t (id BIGINT PRIMARY KEY, x VARCHAR, d DECIMAL(8, 2))",
            "INSERT INTO t SELECT value, 'x' || value, value / 4.0 FROM generate_series(1, 1000) AS g(value)",
            "CREATE TABLE s.u (id BIGINT, y BIGINT)",
            "INSERT INTO s.u VALUES (1, 10), (2, 20), (5000, 30)",
            "CREATE VIEW v AS SELECT t.id, y FROM t JOIN s.u ON t.id = u.id",
        ],
    );
    directory
}

fn attach(session: &Session, directory: &TempDir, rest: &str) {
    let path = directory.path().join("other");
    run(session, &[&format!("ATTACH '{}' {rest}", path.display())]);
}

#[test]
fn tables_and_views_of_an_attached_database_are_read() {
    let (directory, home) = (other(), tempfile::tempdir().unwrap());
    let database = open(&home.path().join("own"));
    let session = database.session().unwrap();
    run(&session, &["CREATE TABLE t (id BIGINT)", "INSERT INTO t VALUES (3), (4)"]);
    attach(&session, &directory, "AS o (READ_ONLY)");
    check(&session, "SELECT count(*), min(d), max(x) FROM o.t", &["1000 0.25 x999"]);
    check(&session, "SELECT * FROM o.main.t WHERE id = 7", &["7 x7 1.75"]);
    check(&session, "SELECT sum(y) FROM o.s.u", &["60"]);
    check(&session, "SELECT * FROM o.v ORDER BY id", &["1 10", "2 20"]);
    // Names without a database are those of the one that is open, also beside others.
    check(&session, "SELECT a.x FROM o.t AS a JOIN t ON a.id = t.id ORDER BY 1", &["x3", "x4"]);
    check(&session, "SELECT count(*) FROM t", &["2"]);
    run(&session, &["CREATE TABLE copied AS SELECT * FROM o.t WHERE id <= 10"]);
    check(&session, "SELECT count(*), sum(id) FROM copied", &["10 55"]);
    run(&session, &["INSERT INTO copied SELECT * FROM o.t WHERE id BETWEEN 11 AND 12"]);
    run(
        &session,
        &["UPDATE copied SET x = a.x || '!' FROM o.t AS a WHERE a.id = copied.id AND a.id > 11"],
    );
    check(&session, "SELECT x FROM copied WHERE id > 10 ORDER BY id", &["x11", "x12!"]);
    assert_eq!(rows(&session, "DESCRIBE o.t").len(), 3);
    let listed =
        "SELECT table_name FROM o.information_schema.tables WHERE table_schema = 'main' ORDER BY 1";
    check(&session, listed, &["t", "v"]);
    // A prepared statement by key, and all sessions.
    let other = database.session().unwrap();
    let by_key = other.prepare("SELECT x FROM o.t WHERE id = $1").unwrap();
    for id in 1..5_i64 {
        let mut result = by_key.query(&[weft::Value::Integer(id)]).unwrap();
        let batch = result.next_batch().unwrap().unwrap();
        assert_eq!(weft::to_text(&[batch]).unwrap(), [[format!("x{id}")]]);
    }
    // A transaction sees it, too.
    run(&session, &["BEGIN", "INSERT INTO t SELECT id FROM o.s.u"]);
    check(&session, "SELECT count(*) FROM t JOIN o.s.u ON t.id = u.id", &["3"]);
    run(&session, &["ROLLBACK"]);
}

#[test]
fn attached_databases_are_listed_and_detached() {
    let directory = other();
    let database = database();
    let session = database.session().unwrap();
    attach(&session, &directory, "");
    attach(&session, &directory, "AS second");
    let path = directory.path().join("other");
    let shown = [format!("other {}", path.display()), format!("second {}", path.display())];
    assert_eq!(rows(&session, "SHOW DATABASES"), ["weft NULL", &shown[0], &shown[1]]);
    let again = format!("ATTACH '{}' AS second", path.display());
    check_error(&session, &again, ErrorKind::AlreadyExists);
    attach(&session, &directory, "AS third (READ_ONLY TRUE, TYPE weft)");
    run(&session, &[&format!("ATTACH IF NOT EXISTS '{}' AS second", path.display())]);
    // Rows that are being read come although the database is detached meanwhile.
    let mut result = session.query("SELECT a.id FROM second.t AS a, second.t AS b").unwrap();
    let mut count = result.next_batch().unwrap().unwrap().num_rows();
    let another = database.session().unwrap();
    run(&another, &["DETACH second", "DETACH DATABASE third", "DETACH DATABASE IF EXISTS third"]);
    while let Some(batch) = result.next_batch().unwrap() {
        count += batch.num_rows();
    }
    assert_eq!(count, 1_000_000);
    drop(result);
    check_error(&session, "SELECT * FROM second.t", ErrorKind::Semantic);
    check_error(&session, "DETACH second", ErrorKind::Semantic);
    check(&session, "SELECT count(*) FROM other.t", &["1000"]);
    run(&session, &["DETACH other"]);
    // Nothing holds it any more: it can be opened to be changed.
    drop(open(&path));
}

#[test]
fn attached_databases_cannot_be_changed() {
    let (directory, home) = (other(), tempfile::tempdir().unwrap());
    let database = open(&home.path().join("own"));
    let session = database.session().unwrap();
    attach(&session, &directory, "AS o");
    for sql in [
        "INSERT INTO o.t VALUES (1)",
        "UPDATE o.t SET x = 'y' WHERE id = 1",
        "DELETE FROM o.t",
        "TRUNCATE o.t",
        "DROP TABLE o.t",
        "ALTER TABLE o.t ADD COLUMN z INTEGER",
        "CREATE INDEX i ON o.t (x)",
        "CREATE TABLE o.new (i INTEGER)",
        "CREATE TABLE o.new AS SELECT 1 AS i",
        "CREATE VIEW o.w AS SELECT 1 AS i",
        "CREATE SEQUENCE o.q",
        "COPY o.t FROM 'nothing.csv'",
        "MERGE INTO o.t USING o.s.u AS u ON t.id = u.id WHEN MATCHED THEN DELETE",
    ] {
        let error = check_error(&session, sql, ErrorKind::NotSupported);
        assert!(error.message().contains("attached database o"), "{sql}: {error}");
    }
    check_error(&session, "INSERT INTO o.main.t VALUES (1)", ErrorKind::Semantic);
    check(&session, "SELECT count(*) FROM o.t", &["1000"]);
}

#[test]
fn what_cannot_be_attached_says_so() {
    let (directory, home) = (other(), tempfile::tempdir().unwrap());
    let database = open(&home.path().join("own"));
    let session = database.session().unwrap();
    run(&session, &["CREATE SCHEMA taken"]);
    let path = directory.path().join("other").display().to_string();
    for name in ["weft", "main", "taken", "information_schema"] {
        let sql = format!("ATTACH '{path}' AS {name}");
        check_error(&session, &sql, ErrorKind::AlreadyExists);
    }
    check_error(&session, &format!("ATTACH '{path}x'"), ErrorKind::Storage);
    check_error(&session, &format!("ATTACH '{}'", home.path().display()), ErrorKind::Storage);
    check_error(&session, &format!("ATTACH '{path}' (READ_ONLY FALSE)"), ErrorKind::NotSupported);
    check_error(&session, "ATTACH 'x.db' (TYPE sqlite)", ErrorKind::NotSupported);
    // One that is open to be changed, this one among them.
    let own = home.path().join("own").display().to_string();
    check_error(&session, &format!("ATTACH '{own}' AS itself"), ErrorKind::Storage);
    let changed = open(&directory.path().join("other"));
    check_error(&session, &format!("ATTACH '{path}' AS o"), ErrorKind::Storage);
    drop(changed);
    run(&session, &[&format!("ATTACH '{path}' AS o")]);
    // A schema that is made later is meant by its name.
    run(&session, &["CREATE SCHEMA IF NOT EXISTS p", "CREATE TABLE p.t AS SELECT 1 AS i"]);
    check(&session, "SELECT count(*) FROM p.t", &["1"]);
}

#[test]
fn pages_of_attached_databases_obey_the_memory_limit() {
    let (directory, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = directory.path().join("large");
    {
        let database = open(&path);
        let session = database.session().unwrap();
        run(
            &session,
            &["CREATE TABLE t AS SELECT value AS id, repeat(md5(CAST(value AS VARCHAR)), 8) AS x \
                 FROM generate_series(1, 200000) AS g(value)"],
        );
    }
    let options = DatabaseOptions::default().with("threads", 2).with("memory_limit", "32MB");
    let database = Database::open(home.path().join("own"), &options).unwrap();
    let session = database.session().unwrap();
    run(&session, &[&format!("ATTACH '{}' AS large", path.display())]);
    for _ in 0..2 {
        check(&session, "SELECT count(*), sum(length(x)) FROM large.t", &["200000 51200000"]);
    }
    let by_text =
        "SELECT count(*) FROM (SELECT x, count(*) FROM large.t GROUP BY x HAVING count(*) = 1)";
    check(&session, by_text, &["200000"]);
    assert!(database.stats().memory_peak <= 32_000_000);
}
