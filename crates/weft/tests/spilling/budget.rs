//! One budget for statements that run at once: whoever lacks memory waits or spills, and all of them end.

use std::collections::VecDeque;
use std::sync::mpsc;
use std::time::Duration;

use tempfile::TempDir;

use crate::bench::{Bench, answer, write_rows};

/// How long all statements together may take, which is for ever if they wait for each other.
const LONG: Duration = Duration::from_secs(300);

/// A statement of each kind of operator, those that write tables and files, and one that DataFusion executes.
const STATEMENTS: [(&str, &str); 11] = [
    (
        "weft",
        "SELECT count(*), sum(c), max(m) FROM (SELECT n, s, count(*) AS c, min(s) AS m FROM t GROUP BY n, s)",
    ),
    (
        "weft",
        "SELECT count(*), sum(length(t.s || u.s)), max(u.s) FROM t JOIN u ON t.n = u.n AND t.s = u.s",
    ),
    ("weft", "SELECT n, s FROM t ORDER BY s DESC, n"),
    ("weft", "SELECT n, length(s), rank() OVER (PARTITION BY g ORDER BY s) FROM t"),
    ("weft", "SELECT n, s FROM t INTERSECT SELECT n, s FROM u"),
    (
        "weft",
        "SELECT g, sum(length(x)) FROM (SELECT g, string_agg(s, ',' ORDER BY n) AS x FROM t GROUP BY g) GROUP BY g",
    ),
    ("weft", "SELECT count(*), count(t.s), max(u.s) FROM t LEFT JOIN u ON t.n = u.n + 1000"),
    ("auto", "CREATE OR REPLACE TABLE made AS SELECT n, left(max(s), 20) AS s FROM t GROUP BY n"),
    ("auto", "COPY filled FROM '{imports}/rows.csv' (FORMAT csv, HEADER true)"),
    ("auto", "COPY (SELECT n, s FROM t ORDER BY s) TO '{files}/copy.parquet'"),
    ("datafusion", "SELECT n, length(s) FROM t ORDER BY s DESC, n"),
];

/// Runs each statement `rounds` times, all at once, while `meanwhile` does something else; all answers are right.
fn run_at_once(bench: &Bench, rounds: usize, mut meanwhile: impl FnMut()) {
    let imports = TempDir::new().unwrap();
    write_rows(&bench.session, imports.path());
    let (files, imports) = (bench.files.path().display(), imports.path().display());
    let of = |(engine, sql): (&str, &str)| {
        let session = bench.database.session().unwrap();
        session.execute(&format!("SET engine = '{engine}'")).unwrap();
        let sql = sql.replace("{files}", &files.to_string());
        (session, sql.replace("{imports}", &imports.to_string()))
    };
    let statements = STATEMENTS.map(of);
    let expected = statements.each_ref().map(|(session, sql)| {
        answer(session, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    });
    let (sender, answers) = mpsc::channel();
    for (number, (session, sql)) in statements.into_iter().enumerate() {
        let sender = sender.clone();
        std::thread::spawn(move || {
            for _ in 0..rounds {
                // Whoever waits for answers has given up.
                drop(sender.send((number, answer(&session, &sql))));
            }
        });
    }
    let mut missing: VecDeque<usize> = (0..STATEMENTS.len() * rounds).collect();
    let (mut waited, step) = (Duration::ZERO, Duration::from_millis(20));
    while !missing.is_empty() {
        match answers.recv_timeout(step) {
            Ok((number, found)) => {
                let (_, sql) = STATEMENTS[number];
                let found = found.unwrap_or_else(|error| panic!("{sql}: {error}"));
                assert_eq!(found, expected[number], "{sql}");
                missing.pop_front();
            }
            Err(_) => waited += step,
        }
        assert!(waited < LONG, "{} statements do not end", missing.len());
        meanwhile();
    }
    let imported = answer(&bench.session, "SELECT 1 FROM filled").unwrap();
    assert_eq!(imported.0, (1 + rounds as u64) * expected[8].0);
    bench.session.execute("DROP TABLE made").unwrap();
    bench.session.execute("CREATE OR REPLACE TABLE filled (n BIGINT, s VARCHAR)").unwrap();
    std::fs::remove_file(bench.files.path().join("copy.parquet")).unwrap();
}

#[test]
fn all_end_at_a_limit_that_fits_one() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let bench = Bench::new(seed);
    run_at_once(&bench, 2, || ());
    bench.check_nothing_is_left("at once");
}

#[test]
fn the_limit_changes_while_they_run() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let bench = Bench::new(seed);
    let session = bench.database.session().unwrap();
    let set = |mebibytes: u64| {
        session.execute(&format!("SET memory_limit = '{mebibytes}MiB'")).unwrap();
    };
    run_at_once(&bench, 3, || {
        if random.u8(..) < 40 {
            set([16, 20, 24, 32, 128][random.usize(..5)]);
        }
    });
    set(16);
    bench.check_nothing_is_left("at limits that change");
    let stats = bench.database.stats();
    assert!(stats.memory_used <= stats.memory_limit, "{stats:?}");
}
