//! One budget for statements that run at once: whoever lacks memory waits or spills, and all of them end.

use std::collections::VecDeque;
use std::sync::mpsc;
use std::time::Duration;

use crate::bench::{Bench, answer};

/// How long all statements together may take, which is for ever if they wait for each other.
const LONG: Duration = Duration::from_secs(300);

/// A statement of each kind of operator.
const STATEMENTS: [&str; 7] = [
    "SELECT count(*), sum(c), max(m) FROM (SELECT n, s, count(*) AS c, min(s) AS m FROM t GROUP BY n, s)",
    "SELECT count(*), sum(length(t.s || u.s)), max(u.s) FROM t JOIN u ON t.n = u.n AND t.s = u.s",
    "SELECT n, s FROM t ORDER BY s DESC, n",
    "SELECT n, length(s), rank() OVER (PARTITION BY g ORDER BY s) FROM t",
    "SELECT n, s FROM t INTERSECT SELECT n, s FROM u",
    "SELECT g, sum(length(x)) FROM (SELECT g, string_agg(s, ',' ORDER BY n) AS x FROM t GROUP BY g) GROUP BY g",
    "SELECT count(*), count(t.s), max(u.s) FROM t LEFT JOIN u ON t.n = u.n + 1000",
];

/// Runs each statement `rounds` times, all at once, while `meanwhile` does something else; all answers are right.
fn run_at_once(bench: &Bench, rounds: usize, mut meanwhile: impl FnMut()) {
    let expected = STATEMENTS.map(|sql| bench.run_well(sql).0);
    let (sender, answers) = mpsc::channel();
    for (number, sql) in STATEMENTS.into_iter().enumerate() {
        let (session, sender) = (bench.database.session().unwrap(), sender.clone());
        std::thread::spawn(move || {
            for _ in 0..rounds {
                // Whoever waits for answers has given up.
                drop(sender.send((number, answer(&session, sql))));
            }
        });
    }
    let mut missing: VecDeque<usize> = (0..STATEMENTS.len() * rounds).collect();
    let (mut waited, step) = (Duration::ZERO, Duration::from_millis(20));
    while !missing.is_empty() {
        match answers.recv_timeout(step) {
            Ok((number, found)) => {
                let sql = STATEMENTS[number];
                let found = found.unwrap_or_else(|error| panic!("{sql}: {error}"));
                assert_eq!(found, expected[number], "{sql}");
                missing.pop_front();
            }
            Err(_) => waited += step,
        }
        assert!(waited < LONG, "{} statements do not end", missing.len());
        meanwhile();
    }
}

#[test]
fn all_end_at_a_limit_that_fits_one() {
    let bench = Bench::new(1);
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
