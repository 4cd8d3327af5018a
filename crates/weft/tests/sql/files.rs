//! Queries over files and other leaves that DataFusion reads: pipelines execute all above them, and what does not fit into memory
//! spills.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{check, check_error, database, rows};
use tempfile::TempDir;
use weft::{Database, DatabaseOptions, DatabaseStats, ErrorKind, Session};

/// Some of the rows: how many, the least text, and the greatest number.
const FEW: &str = "10 19b1367281a8f38e846ab6e0ab21e787 150009";

/// Rows of the files.
const ROWS: u32 = 300_000;

fn open(memory_limit: &str, engine: &str) -> Database {
    let options = DatabaseOptions::default().with("threads", 2).with("engine", engine);
    Database::in_memory(&options.with("memory_limit", memory_limit)).unwrap()
}

/// A directory with the same rows as a Parquet file of one row group, and as a CSV file.
fn files() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let session = database().session().unwrap();
    let sql = format!(
        "SELECT value AS n, value % 100 AS g, md5(value::VARCHAR) AS s, \
         (value * 7919 % 1000003)::DOUBLE AS x FROM generate_series(1, {ROWS}) AS g(value)"
    );
    for name in ["t.parquet", "t.csv"] {
        let path = directory.path().join(name);
        session.execute(&format!("COPY ({sql}) TO '{}'", path.display())).unwrap();
    }
    directory
}

/// A session with views of the files, `p` and `c`.
fn with_views(database: &Database, directory: &Path) -> Session {
    let session = database.session().unwrap();
    for (view, name) in [("p", "t.parquet"), ("c", "t.csv")] {
        let path = directory.join(name);
        let sql = format!("CREATE VIEW {view} AS SELECT * FROM '{}'", path.display());
        session.execute(&sql).unwrap();
    }
    session
}

fn plan(session: &Session, sql: &str) -> String {
    rows(session, &format!("EXPLAIN {sql}")).join("\n")
}

/// Statements that keep more rows than a small limit permits.
const LARGE: [&str; 9] = [
    "SELECT count(*), max(a.s || b.s) FROM p AS a JOIN p AS b ON a.n = b.n AND a.s = b.s",
    "SELECT count(*), sum(c), max(m) FROM (SELECT n, s, count(*) AS c, min(s) AS m FROM p GROUP BY n, s)",
    "SELECT count(*), max(r) FROM (SELECT s, row_number() OVER (ORDER BY s) AS r FROM p)",
    "SELECT count(v), max(v) FROM (SELECT sum(n) OVER (ORDER BY s ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS v FROM p)",
    "SELECT count(*), count(a.s), count(b.s) FROM p AS a FULL JOIN p AS b ON a.n = b.n + 100000",
    "SELECT count(*) FROM p WHERE s NOT IN (SELECT s FROM p WHERE n % 2 = 0)",
    "SELECT count(*) FROM (SELECT n, s FROM p INTERSECT SELECT n, s FROM p)",
    "SELECT count(*), max(s) FROM (SELECT * FROM p ORDER BY s LIMIT 200000)",
    "SELECT sum(length(s)), min(n) FROM (SELECT n, s, x FROM p ORDER BY x, s, n OFFSET 10)",
];

#[test]
fn what_outgrows_memory_spills() {
    let directory = files();
    let reference = open("1GiB", "datafusion");
    let reference = with_views(&reference, directory.path());
    for (limit, views) in [("1GiB", &["p"][..]), ("64MiB", &["c"]), ("24MiB", &["p", "c"])] {
        let database = open(limit, "auto");
        let session = with_views(&database, directory.path());
        for sql in LARGE {
            let expected = rows(&reference, sql);
            let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
            for view in views {
                let sql =
                    sql.replace(" p ", &format!(" {view} ")).replace(" p)", &format!(" {view})"));
                check(&session, &sql, &expected);
            }
        }
        check_spilled(limit, &database.stats());
    }
}

/// What was spilled was spilled for lack of memory, is gone, and went to disk on pages that were not nearly empty.
fn check_spilled(limit: &str, stats: &DatabaseStats) {
    let (raw, written) = (stats.spill_bytes_raw, stats.spill_bytes_written);
    match limit {
        "1GiB" => assert_eq!(written, 0),
        "24MiB" => assert!(written > 0, "nothing was spilled"),
        _ => {}
    }
    assert_eq!(stats.spilled_bytes, 0, "{limit}");
    assert!(written <= 3 * raw, "{limit}: {written} bytes written for {raw}");
}

#[test]
fn a_file_that_is_no_table_fails_its_statement_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("odd.csv");
    fs::write(&path, "a,b\n1,x\n2\n3,y\n").unwrap();
    let database = open("64MiB", "auto");
    let session = database.session().unwrap();
    let sql = format!("SELECT b, sum(a) FROM '{}' GROUP BY b", path.display());
    check_error(&session, &sql, ErrorKind::Data);
    fs::write(&path, "a,b\n1,x\n2,x\n3,y\n").unwrap();
    check(&session, &format!("{sql} ORDER BY b"), &["x 3", "y 3"]);
}

#[test]
fn a_file_is_a_source_of_pipelines() {
    let directory = files();
    let database = open("1GiB", "auto");
    let session = with_views(&database, directory.path());
    let sql = "SELECT g, count(*) FROM p WHERE n > 10 GROUP BY g";
    let grouped = plan(&session, sql);
    let source = "pipeline 0\n  source  scan of t.parquet\n  step    filter ";
    assert!(grouped.contains(source) && !grouped.contains("FallbackExec"), "{grouped}");
    // The workers read Parquet themselves.
    assert!(!grouped.contains("DataSourceExec: "), "{grouped}");
    let both = "SELECT count(*) FROM p JOIN c ON p.n = c.n";
    let both = plan(&session, both);
    assert!(both.contains("scan of t.parquet") && both.contains("scan of t.csv"), "{both}");
    let pattern = directory.path().join("t*.csv");
    fs::copy(directory.path().join("t.csv"), directory.path().join("t2.csv")).unwrap();
    let several = plan(&session, &format!("SELECT max(s) FROM '{}'", pattern.display()));
    assert!(several.contains("source  scan of 2 csv files"), "{several}");
    // What only passes rows on is DataFusion's as a whole.
    let passed = plan(&session, "SELECT n + 1 FROM p WHERE g = 3");
    assert!(!passed.contains("pipeline 0") && !passed.contains("FallbackExec"), "{passed}");
    let values = plan(
        &session,
        "SELECT count(*) FROM generate_series(1, 10) AS g(value) WHERE value > random()",
    );
    assert!(values.contains("pipeline 0\n  source  rows of "), "{values}");
    let analyzed = rows(&session, &format!("EXPLAIN ANALYZE {sql}")).join("\n");
    for told in ["scan of t.parquet", "read ", "files 1", "row groups 1", "rows looked at"] {
        assert!(analyzed.contains(told), "{analyzed}");
    }
    assert!(!analyzed.contains("read      0 B"), "{analyzed}");
}

#[test]
fn conditions_are_put_to_pages() {
    let directory = files();
    for limit in ["1GiB", "24MiB"] {
        let database = open(limit, "auto");
        let session = with_views(&database, directory.path());
        let sql = "SELECT count(*), sum(n), count(DISTINCT s), sum(length(s)) FROM p";
        check(&session, sql, &["300000 45000150000 300000 9600000"]);
        let few = "SELECT count(*), min(s), max(n) FROM p WHERE n BETWEEN 150000 AND 150009";
        check(&session, few, &[FEW]);
    }
}

#[test]
fn what_is_left_to_datafusion_is_carved_when_memory_is_short() {
    let directory = files();
    let database = open("24MiB", "auto");
    let session = with_views(&database, directory.path());
    // UNNEST has no pipelines.
    let sql = "SELECT count(*), max(s) FROM (SELECT unnest([n, -n]) AS u, s FROM \
        (SELECT n, s, count(*) AS k FROM p GROUP BY n, s)) WHERE u > 0";
    assert!(!plan(&session, sql).contains("pipeline 0"));
    let expected = with_views(&open("1GiB", "datafusion"), directory.path());
    let expected = rows(&expected, sql);
    check(&session, sql, &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_limit_stops_reading() {
    let directory = files();
    let database = open("1GiB", "auto");
    let session = with_views(&database, directory.path());
    // The join goes on for ever if nobody stops it.
    let sql =
        "SELECT count(*) FROM (SELECT a.n FROM p AS a JOIN p AS b ON a.g = b.g, p AS d LIMIT 10)";
    check(&session, sql, &["10"]);
    session.execute("SET engine = 'weft'").unwrap();
    check(&session, "SELECT n FROM c LIMIT 3 OFFSET 2", &["3", "4", "5"]);
}

#[test]
fn cancellation_ends_reading() {
    let directory = files();
    let database = open("1GiB", "auto");
    let session = with_views(&database, directory.path());
    check(&session, "SELECT count(*) FROM p JOIN c ON p.n = c.n", &["300000"]);
    let before = database.stats().memory_used;
    let slow = "SELECT count(*) FROM p AS a JOIN c AS b ON a.g = b.g WHERE a.s < b.s || 'x'";
    for wait_ms in [0, 1, 50, 200] {
        let mut result = session.query(slow).unwrap();
        let handle = result.cancel_handle();
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(wait_ms));
            handle.cancel();
        });
        assert_eq!(result.next_batch().unwrap_err().kind(), ErrorKind::Cancelled);
        canceller.join().unwrap();
        let since = Instant::now();
        while database.stats().memory_used > before + (1 << 20) {
            assert!(since.elapsed() < Duration::from_secs(20), "memory is still in use");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
