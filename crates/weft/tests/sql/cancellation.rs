//! Statements that are cancelled at any time, with all that they have in memory.

use std::time::{Duration, Instant};

use weft::{Database, DatabaseOptions, ErrorKind, Session};

const STATEMENTS: [&str; 8] = [
    // A hash join: its build side, its directory, matches that go on for long.
    "SELECT count(*), sum(n + m), max(s) FROM t JOIN u USING (k)",
    "SELECT count(*), sum(n + m) FROM t FULL JOIN u USING (k) WHERE n IS NULL OR n > 7",
    "SELECT count(*) FROM t WHERE k NOT IN (SELECT k FROM u WHERE m > 100)",
    // Aggregations: many groups, lists and sets of few, and none.
    "SELECT max(c), max(x) FROM (SELECT k, count(*) AS c, max(s) AS x FROM t GROUP BY k) AS g",
    "SELECT g, median(k), string_agg(s, ',' ORDER BY k), count(DISTINCT s) FROM t GROUP BY g",
    "SELECT array_agg(n), quantile_cont(d, 0.3), sum(DISTINCT k) FROM t",
    "SELECT g, k % 7, grouping(g), count(*), sum(d) FROM t GROUP BY CUBE (g, k % 7)",
    "SELECT max(r) FROM (SELECT rank() OVER (PARTITION BY g ORDER BY s) AS r FROM t) AS w",
];

/// Runs a statement, which is cancelled after a while, unless it has ended.
fn cancelled(session: &Session, sql: &str, after: Duration) {
    let result = session.query(sql).unwrap();
    let handle = result.cancel_handle();
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(after);
        handle.cancel();
    });
    if let Err(error) = result.collect() {
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{sql}: {error}");
    }
    canceller.join().unwrap();
}

/// Bytes that are in use beside the cache.
fn used(database: &Database) -> u64 {
    let stats = database.stats();
    stats.memory_used.saturating_sub(stats.memory_cached)
}

#[test]
fn cancellation_at_any_time_leaves_no_memory_behind() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for partition in ["adaptive", "always"] {
        let options = DatabaseOptions::default().with("threads", 2).with("engine", "weft");
        let database = Database::in_memory(&options.with("partition", partition)).unwrap();
        let session = database.session().unwrap();
        let columns = "value AS n, value * 7919 % 30011 AS k, value % 3 AS g, 'text number ' || value AS s, value / 4.0::double AS d";
        let sql = format!(
            "CREATE TABLE t AS SELECT {columns} FROM generate_series(1, 30000) AS g(value)"
        );
        session.execute(&sql).unwrap();
        session.execute("CREATE TABLE u AS SELECT k, n AS m FROM t").unwrap();
        let before = used(&database);
        for sql in STATEMENTS {
            let start = Instant::now();
            session.execute(sql).unwrap();
            let whole = start.elapsed();
            for _ in 0..8 {
                let after = whole.mul_f64(random.f64() * 1.2);
                cancelled(&session, sql, after);
                // The statement is answered at once, its tasks end soon.
                let since = Instant::now();
                while used(&database) > before {
                    let left = used(&database);
                    assert!(since.elapsed() < Duration::from_secs(20), "{left} bytes, {sql}");
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        session.execute("SELECT 1").unwrap();
    }
}
