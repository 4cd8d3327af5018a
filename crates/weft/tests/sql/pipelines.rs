//! Weft's own engine as its users see it: the setting, EXPLAIN, errors, cancellation, and what it does when memory is
//! short.

use std::time::{Duration, Instant};

use crate::support::{check, check_error, database, rows};
use weft::{Database, DatabaseOptions, ErrorKind, Session};

fn by_pipelines(memory_limit: &str) -> Database {
    let options = DatabaseOptions::default().with("threads", 2).with("engine", "weft");
    Database::in_memory(&options.with("memory_limit", memory_limit)).unwrap()
}

/// A session with a table `t` of the numbers from 1 to `count`, also as texts.
fn with_numbers(database: &Database, count: u32) -> Session {
    let session = database.session().unwrap();
    let sql = format!(
        "CREATE TABLE t AS SELECT value AS n, 'number ' || value AS s FROM generate_series(1, {count}) AS g(value)"
    );
    session.execute(&sql).unwrap();
    session
}

fn plan(session: &Session, sql: &str) -> String {
    rows(session, &format!("EXPLAIN {sql}")).join("\n")
}

#[test]
fn the_engine_is_a_setting_of_the_session() {
    let database = database();
    let session = with_numbers(&database, 10);
    let query = "SELECT n % 3, count(*) FROM t WHERE s LIKE '%1%' GROUP BY n % 3";
    let unnested = "SELECT max(r) FROM (SELECT unnest([n, -n]) AS r FROM t)";
    check(&session, "SHOW engine", &["engine auto"]);
    let filtered = "pipeline 0\n  source  scan of t\n  step    filter s LIKE %1%\n  \
        sink    group by n % 3: count";
    let planned = plan(&session, query);
    assert!(planned.contains(filtered), "{planned}");
    let whole = plan(&session, unnested);
    assert!(!whole.contains("pipeline 0") && whole.contains("FallbackExec: no pip"), "{whole}");
    session.execute("SET engine = 'datafusion'").unwrap();
    assert!(!plan(&session, query).contains("pipeline 0"));
    session.execute("SET engine = 'Weft'").unwrap();
    check(&session, "SHOW engine", &["engine weft"]);
    assert!(plan(&session, query).contains(filtered));
    let error = check_error(&session, "SET engine = 'steam'", ErrorKind::Setting);
    assert!(error.message().contains("auto, datafusion or weft"), "{error}");
    session.execute("RESET engine").unwrap();
    check(&session, "SHOW engine", &["engine auto"]);
}

#[test]
fn a_plan_names_what_datafusion_executes() {
    let database = by_pipelines("1GB");
    let session = with_numbers(&database, 10);
    let sql = "SELECT count(r) FROM (SELECT unnest([n, -n]) AS r FROM t WHERE n > 3)";
    let plan = plan(&session, sql);
    let above = "PipelinesExec 0\npipeline 0\n  source  rows of UnnestExec\n  sink    aggregate: count(r)\n";
    assert!(plan.contains(above) && plan.contains("\nPipelinesExec 1\npipeline 0\n"), "{plan}");
    assert!(plan.contains("FallbackExec: no pipelines for UnnestExec"), "{plan}");
    check(&session, sql, &["14"]);
    let analyzed = rows(&session, "EXPLAIN ANALYZE SELECT sum(n) FROM t").join("\n");
    assert!(analyzed.contains("rows looked at 10"), "{analyzed}");
    assert!(analyzed.contains("rows      1 returned"), "{analyzed}");
}

#[test]
fn threads_are_the_workers_of_pipelines() {
    let database = by_pipelines("1GB");
    let session = with_numbers(&database, 1_000);
    let analyzed =
        || rows(&session, "EXPLAIN ANALYZE SELECT s, sum(n) FROM t GROUP BY s").join("\n");
    for threads in [1, 5, 2] {
        session.execute(&format!("SET threads = {threads}")).unwrap();
        let analyzed = analyzed();
        assert!(analyzed.contains(&format!("% of {threads} workers")), "{analyzed}");
        check(&session, "SELECT count(DISTINCT s), sum(n) FROM t", &["1000 500500"]);
    }
}

#[test]
fn a_plan_names_all_that_keeps_it_from_pipelines() {
    let database = database();
    let session = with_numbers(&database, 10);
    let sql = "WITH RECURSIVE g(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM g WHERE i < 3) \
        SELECT count(*) FROM (SELECT unnest([n, -n]) AS r FROM t) AS a \
        JOIN g ON r = i JOIN (SELECT unnest([n]) AS q FROM t) ON q = i";
    let plan = plan(&session, sql);
    let line = plan.lines().find(|line| line.contains("FallbackExec")).unwrap_or_default();
    assert_eq!(line.matches("no pipelines for UnnestExec").count(), 1, "{plan}");
    assert_eq!(line.matches("no pipelines for").count(), 2, "{plan}");
    check(&session, sql, &["3"]);
}

#[test]
fn windows_over_the_same_partitions_are_evaluated_together() {
    let database = by_pipelines("1GB");
    let session = with_numbers(&database, 10);
    session.execute("CREATE TABLE u AS SELECT n, n % 3 AS g, s FROM t").unwrap();
    let rank = "rank() OVER (PARTITION BY g ORDER BY s) AS r";
    let sum = "sum(n) OVER (PARTITION BY g) AS total";
    let lag = "lag(n) OVER (ORDER BY s) AS l";
    let together = plan(&session, &format!("SELECT *, {rank}, {sum} FROM u"));
    assert!(
        together.contains("sink    window\npipeline 1, after 0\n  source  window rank, sum\n"),
        "{together}"
    );
    let apart = plan(&session, &format!("SELECT *, {rank}, {lag} FROM u"));
    assert!(
        apart.contains("source  window rank\n") && apart.contains("source  window lag\n"),
        "{apart}"
    );
    // A filter over partitions reaches the rows below.
    session.execute("CREATE TABLE few AS SELECT 4 AS k").unwrap();
    let joined = format!(
        "SELECT count(*), sum(total) FROM few JOIN (SELECT n AS k, {sum} FROM u) AS x USING (k)"
    );
    check(&session, &joined, &["1 22"]);
    let by_key = "SELECT n AS k, count(*) OVER (PARTITION BY n) AS c FROM u";
    let joined = format!("SELECT count(*), sum(c) FROM few JOIN ({by_key}) AS x USING (k)");
    let filtered = plan(&session, &joined);
    let asks = "source  scan of u filtered by 0\n  step    filter by 0\n  sink    window\n";
    assert!(filtered.contains(asks), "{filtered}");
    check(&session, &joined, &["1 1"]);
}

/// How many pipelines store rows for others in the plan of a query, and how many read them.
fn sharing(session: &Session, sql: &str) -> (usize, usize) {
    let plan = plan(session, sql);
    (plan.matches("sink    shared rows").count(), plan.matches("source  shared rows").count())
}

#[test]
fn parts_that_occur_twice_run_once() {
    let database = database();
    let session = with_numbers(&database, 20_000);
    session.execute("CREATE TABLE u AS SELECT n AS x, n % 40 AS y, s AS z FROM t").unwrap();
    let once = [
        // The second reader wants fewer columns, and other functions.
        "SELECT s FROM t JOIN u ON n = x WHERE y = 3 AND n > (SELECT max(n) / 2 FROM t JOIN u ON n = x WHERE y = 3)",
        "SELECT a.y FROM (SELECT y, sum(x) AS f, max(z) AS m FROM u GROUP BY y) a JOIN (SELECT y, sum(x) AS g FROM u GROUP BY y) b ON f = g WHERE m > ''",
        "WITH r AS (SELECT n, x FROM t LEFT JOIN u ON n = x - 7 AND y < 2 WHERE n % 100 = 7) SELECT count(*) FROM r a JOIN r b ON a.n = b.x",
        "WITH r AS (SELECT n, x FROM (SELECT * FROM u WHERE x < 30) JOIN t ON n < x) SELECT count(*) FROM r a JOIN r b ON a.n = b.x",
        "WITH r AS (SELECT n, s FROM t ORDER BY s DESC LIMIT 20) SELECT count(*) FROM r a JOIN r b ON a.n = b.n + 1",
        "WITH r AS (SELECT y, x, sum(x) OVER (PARTITION BY y ORDER BY x) AS q FROM u) SELECT count(*) FROM r a JOIN r b ON a.x = b.q AND a.q = b.x",
        "WITH r AS (SELECT y, sum(x) AS q FROM u WHERE x > (SELECT avg(n) FROM t) GROUP BY y) SELECT count(*) FROM r a JOIN r b ON a.q = b.y",
        "WITH r AS (SELECT y % 3 AS k, sum(x) AS q FROM u GROUP BY ROLLUP (y % 3)) SELECT count(*) FROM r a JOIN r b ON a.q = b.k",
        "SELECT (SELECT count(*) FROM t WHERE s LIKE '%99' AND n % 7 = 1), (SELECT sum(n) FROM t WHERE s LIKE '%99' AND n % 7 = 1)",
    ];
    for sql in once {
        assert_eq!(sharing(&session, sql), (1, 2), "{sql}: {}", plan(&session, sql));
    }
    let never = [
        // To keep most rows takes longer than to read them again.
        "SELECT (SELECT count(*) FROM t WHERE n % 7 <> 1), (SELECT sum(n) FROM t WHERE n % 7 <> 1)",
        "SELECT (SELECT count(*) FROM t), (SELECT sum(n) FROM t), (SELECT max(s) FROM t)",
        // They are not the same.
        "SELECT (SELECT count(*) FROM t JOIN u ON n = x AND n > y * 3), (SELECT count(*) FROM t JOIN u ON n = x AND n > y * 4)",
        "SELECT (SELECT sum(random()) FROM t), (SELECT sum(random()) FROM t)",
        "SELECT (SELECT count(*) FROM t WHERE n > (SELECT avg(x) FROM u)), (SELECT sum(n) FROM t WHERE n > (SELECT max(x) FROM u))",
    ];
    for sql in never {
        assert_eq!(sharing(&session, sql), (0, 0), "{sql}: {}", plan(&session, sql));
    }
}

#[test]
fn errors_have_their_kinds() {
    let database = by_pipelines("1GB");
    let session = with_numbers(&database, 10);
    for (sql, part) in [
        ("SELECT n + 9223372036854775800 FROM t", "out of the range of BIGINT"),
        ("SELECT sum(n + 9223372036854775000) FROM t", "out of the range of BIGINT"),
        (
            "SELECT sum(n + 9223372036854775000) OVER (ORDER BY n) FROM t",
            "out of the range of BIGINT",
        ),
        ("SELECT 1 / (n - 5) FROM t", "division by zero"),
        ("SELECT CAST(n * 100 AS TINYINT) FROM t", "TINYINT"),
        ("SELECT CAST(s AS INTEGER) FROM t", "number 1"),
        ("SELECT n FROM t WHERE n = (SELECT n FROM t WHERE n < 5)", "more than one row"),
    ] {
        let error = check_error(&session, sql, ErrorKind::Data);
        assert!(error.message().contains(part), "{sql}: {error}");
    }
}

#[test]
fn what_is_not_asked_for_does_not_fail() {
    let database = by_pipelines("1GB");
    let session = with_numbers(&database, 3);
    for (sql, expected) in [
        ("SELECT sum(CASE WHEN n = 2 THEN 0 ELSE 6 / (n - 2) END) FROM t", "0"),
        ("SELECT count(*) FROM t WHERE n <> 2 AND 6 / (n - 2) > 0", "1"),
        ("SELECT count(*) FROM t WHERE n = 2 OR 6 / (n - 2) > 0", "2"),
        ("SELECT bool_or(n = 2 OR 6 / (n - 2) > 0) FROM t", "true"),
        ("SELECT bool_and(n <> 2 AND 6 / (n - 2) > 0) FROM t", "false"),
        ("SELECT sum(6 / (n - 2)) FILTER (WHERE n <> 2) FROM t", "0"),
        ("SELECT sum(6 / (n - 3)) FROM (SELECT n FROM t ORDER BY n LIMIT 2)", "-9"),
    ] {
        check(&session, sql, &[expected]);
    }
}

/// What is within a CASE is looked at once for each level, and not twice as often for each level more.
#[test]
fn cases_nest_deeply() {
    let database = by_pipelines("1GB");
    let session = with_numbers(&database, 3);
    let nested = |innermost: &str, around: fn(u32, String) -> String| {
        (10..40).fold(innermost.to_owned(), |inner, number| around(number, inner))
    };
    let case = nested("n", |number, inner| {
        format!("CASE WHEN n = {number} THEN n + {number} ELSE {inner} END")
    });
    check(&session, &format!("SELECT sum({case}) FROM t"), &["6"]);
    let cast = nested("n", |number, inner| format!("TRY_CAST({inner} AS DECIMAL({number}, 1))"));
    let cast = cast.replace("DECIMAL(39, 1)", "DECIMAL(38, 1)");
    check(&session, &format!("SELECT sum({cast}) FROM t"), &["6.0"]);
}

#[test]
fn limits_count_the_rows_that_they_see() {
    let database = by_pipelines("1GB");
    let session = with_numbers(&database, 100_000);
    for (sql, expected) in [
        ("SELECT count(*) FROM (SELECT n FROM t LIMIT 17)", "17"),
        ("SELECT count(*) FROM (SELECT n FROM t LIMIT 20 OFFSET 99990)", "10"),
        ("SELECT count(*) FROM (SELECT * FROM (SELECT n FROM t LIMIT 30) LIMIT 20 OFFSET 25)", "5"),
        ("SELECT count(*) FROM (SELECT n FROM t UNION ALL SELECT n FROM t LIMIT 150000)", "150000"),
        ("SELECT sum(n) FROM (SELECT n FROM t ORDER BY n DESC LIMIT 3 OFFSET 2)", "299991"),
        ("SELECT count(*) FROM (SELECT n FROM t LIMIT 0)", "0"),
        ("SELECT count(*) FROM (SELECT * FROM t WHERE s = 'number 7' LIMIT 5) AS a", "1"),
    ] {
        check(&session, sql, &[expected]);
    }
}

#[test]
fn build_sides_filter_the_rows_of_probe_sides() {
    let database = by_pipelines("1GB");
    let session = with_numbers(&database, 200_000);
    for sql in [
        "CREATE TABLE few AS SELECT value AS n FROM generate_series(1000, 1100) AS g(value) WHERE value % 10 = 0",
        "CREATE TABLE facts AS SELECT n % 50000 AS k, n % 7 AS l, n AS v FROM t",
    ] {
        session.execute(sql).unwrap();
    }
    let groups = "SELECT k, sum(v) AS s FROM facts GROUP BY k";
    let limited = "SELECT k, v AS s FROM facts ORDER BY v LIMIT 1000";
    let of = |kind: &str, facts: &str| {
        format!("SELECT count(*), sum(s) FROM few {kind} JOIN ({facts}) AS f ON few.n = f.k")
    };
    let inner = plan(&session, &of("", groups));
    assert!(inner.contains("pipeline 0\n  source  scan of few\n  sink    build\n"), "{inner}");
    let asks = "scan of facts filtered by 0\n  step    filter by 0\n  sink    group by ";
    assert!(inner.contains(asks), "{inner}");
    assert!(
        plan(&session, &of("LEFT", groups)).contains("step    filter by 0\n  sink    group by")
    );
    // Rows without a match count, and so do all rows for which of them are the first ones.
    assert!(!plan(&session, &of("RIGHT", groups)).contains("filter"));
    assert!(!plan(&session, &of("FULL", groups)).contains("filter"));
    assert!(!plan(&session, &of("", limited)).contains("filter"));
    check(&session, &of("", groups), &["11 3346200"]);
    check(&session, &of("LEFT", groups), &["11 3346200"]);
    check(&session, &of("RIGHT", groups), &["50000 20000100000"]);
    check(&session, &of("", limited), &["1 1000"]);
    let analyzed = rows(&session, &format!("EXPLAIN ANALYZE {}", of("", groups))).join("\n");
    // The scan asks about the row groups that the bounds leave (which rows are where depends on who wrote first), and
    // the pipeline about what the scan leaves.
    let step = analyzed.lines().find(|line| line.contains("step    filter by 0"));
    let step: Vec<&str> = step.into_iter().flat_map(str::split_whitespace).collect();
    assert_eq!(step.get(5), Some(&"44"), "{analyzed}");
    // Of the row groups, only the first one has such numbers.
    let analyzed = "EXPLAIN ANALYZE SELECT count(s) FROM few JOIN t ON few.n = t.n";
    let analyzed = rows(&session, analyzed).join("\n");
    assert!(analyzed.contains("row groups left out 3"), "{analyzed}");
}

#[test]
fn a_grouping_set_without_keys_has_a_group() {
    let database = by_pipelines("1GB");
    let session = with_numbers(&database, 3);
    let sql =
        "SELECT s, sum(1.2), count(*), max(n) FROM t WHERE n > 5 GROUP BY GROUPING SETS ((s), ())";
    check(&session, sql, &["NULL NULL 0 NULL"]);
}

/// Aggregates that begin anew for each frame.
const SLOW_WINDOW: &str = "SELECT max(m) FROM (SELECT mode(n % 100) OVER (ORDER BY n ROWS BETWEEN 10000 PRECEDING AND CURRENT ROW) AS m FROM t)";

/// Waits until as much memory is in use as before a query.
fn check_memory_comes_back(database: &Database, before: u64) {
    let since = Instant::now();
    while database.stats().memory_used > before + (1 << 20) {
        let used = database.stats().memory_used;
        assert!(since.elapsed() < Duration::from_secs(20), "{used} bytes, {before} before");
        std::thread::sleep(Duration::from_millis(1));
    }
}

const SLOW: &str =
    "SELECT count(*) FROM t AS a, t AS b, t AS c WHERE a.n + b.n + c.n < 0 OR a.s = b.s || c.s";

#[test]
fn cancellation_ends_pipelines() {
    let database = by_pipelines("1GB");
    let session = with_numbers(&database, 20_000);
    // What is cached stays.
    check(&session, "SELECT count(n), count(DISTINCT s) FROM t", &["20000 20000"]);
    let before = database.stats().memory_used;
    for (wait_ms, sql) in [(0, SLOW), (1, SLOW), (5, SLOW), (50, SLOW), (50, SLOW_WINDOW)] {
        let mut result = session.query(sql).unwrap();
        let handle = result.cancel_handle();
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(wait_ms));
            handle.cancel();
        });
        assert_eq!(result.next_batch().unwrap_err().kind(), ErrorKind::Cancelled);
        canceller.join().unwrap();
        check_memory_comes_back(&database, before);
    }
    check(&session, "SELECT 1", &["1"]);
}

#[test]
fn a_result_that_is_dropped_ends_its_pipelines() {
    let database = by_pipelines("1GB");
    let session = with_numbers(&database, 20_000);
    // What is cached stays.
    check(&session, "SELECT count(n), count(DISTINCT s) FROM t", &["20000 20000"]);
    let before = database.stats().memory_used;
    for sql in [SLOW, "SELECT a.n, b.s FROM t AS a, t AS b", "SELECT * FROM t ORDER BY s"] {
        let result = session.query(sql).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        drop(result);
        check_memory_comes_back(&database, before);
    }
    check(&session, "SELECT 1", &["1"]);
}

#[test]
fn what_does_not_fit_into_memory_is_left_to_datafusion() {
    let database = by_pipelines("64MiB");
    let session = with_numbers(&database, 1_000_000);
    check_large(&session);
    assert_eq!(database.stats().spilled_bytes, 0);
}

#[test]
fn what_is_spilled_is_told_whoever_does() {
    let database = by_pipelines("48MiB");
    let session = with_numbers(&database, 1_000_000);
    for engine in ["weft", "datafusion"] {
        session.execute(&format!("SET engine = '{engine}'")).unwrap();
        let sql = "SELECT s || 'of many', n FROM t ORDER BY 1 DESC, n";
        let mut result = session.query(sql).unwrap();
        let (mut returned, mut memory_bytes) = (0, 0);
        while let Some(batch) = result.next_batch().unwrap() {
            returned += batch.num_rows();
            memory_bytes = result.progress().memory_bytes.max(memory_bytes);
        }
        let progress = result.progress();
        let spilled = (progress.spilled_bytes, progress.spilled_bytes_raw);
        assert!(spilled.0 > 1 << 20 && spilled.1 > 1 << 20, "{engine}: {progress:?}");
        assert!(returned == 1_000_000 && memory_bytes > 1 << 20, "{engine}: {memory_bytes}");
    }
    let of_query = |sql: &str| rows(&session, &format!("EXPLAIN ANALYZE {sql}")).join("\n");
    let numbered = "row_number() OVER (ORDER BY s || 'of many', n) AS r";
    let analyzed = of_query(&format!("SELECT count(r), max(r) FROM (SELECT {numbered} FROM t)"));
    let line = |name: &str| {
        let line = analyzed.lines().find(|line| line.contains(name));
        line.unwrap_or_else(|| panic!("{analyzed}")).to_owned()
    };
    assert!(line("memory  ").contains("reserved by DataFusion's operators"), "{analyzed}");
    assert!(!line("memory  ").contains(" 0 "), "{analyzed}");
    assert!(line("spilled  ").contains("MiB"), "{analyzed}");
    let analyzed = of_query("SELECT sum(n) FROM t");
    assert!(analyzed.contains("spilled   nothing"), "{analyzed}");
}

#[test]
fn aggregations_that_outgrow_memory_spill() {
    let database = by_pipelines("64MiB");
    let session = with_numbers(&database, 1_000_000);
    let sql = "SELECT count(*), sum(c), max(m) \
        FROM (SELECT n, s, count(*) AS c, min(s) AS m FROM t GROUP BY n, s)";
    let analyzed = rows(&session, &format!("EXPLAIN ANALYZE {sql}")).join("\n");
    assert!(
        analyzed.contains("pages     by compression: off ")
            && analyzed.contains("partitions on disk"),
        "{analyzed}"
    );
    check(&session, sql, &["1000000 1000000 number 999999"]);
    assert_eq!(database.stats().spilled_bytes, 0);
    session.execute("SET max_temp_size = '1MiB'").unwrap();
    let error = check_error(&session, sql, ErrorKind::Storage);
    assert!(error.message().contains("raise max_temp_size"), "{error}");
    session.execute("RESET max_temp_size").unwrap();
    check(&session, sql, &["1000000 1000000 number 999999"]);
}

#[test]
fn all_partitions_are_spilled_if_asked_for() {
    let database = by_pipelines("40MiB");
    let session = with_numbers(&database, 1_000_000);
    let sql = "SELECT count(*), max(b.s) FROM t AS a JOIN t AS b ON a.n = b.n";
    let [hybrid, all] = ["hybrid", "all"].map(|mode| {
        session.execute(&format!("SET spill_mode = '{mode}'")).unwrap();
        let before = database.stats().spill_bytes_raw;
        check(&session, sql, &["1000000 number 999999"]);
        database.stats().spill_bytes_raw - before
    });
    assert!(0 < hybrid && hybrid < all, "{hybrid} of {all} bytes");
}

#[test]
fn a_limit_that_is_lowered_is_shared_anew() {
    let database = by_pipelines("4GiB");
    let session = with_numbers(&database, 1_000_000);
    session.execute("SET memory_limit = '64MiB'").unwrap();
    check(&session, "SELECT max(s) FROM t", &["number 999999"]);
    check_large(&session);
}

/// Queries that hold all rows of `t`.
fn check_large(session: &Session) {
    for (sql, expected) in [
        ("SELECT count(*), sum(a.n) FROM t AS a JOIN t AS b ON a.n = b.n", "1000000 500000500000"),
        ("SELECT count(*) FROM (SELECT s, count(*) FROM t GROUP BY s)", "1000000"),
        (
            "SELECT count(*), sum(r) FROM (SELECT s, row_number() OVER (PARTITION BY n % 7 ORDER BY s) AS r FROM t) WHERE s <> ''",
            "1000000 71429071429",
        ),
    ] {
        check(session, sql, &[expected]);
    }
}
