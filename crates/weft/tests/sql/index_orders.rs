//! First rows of orders, and least and greatest values, that come from the ends of indexes: the same as of scans.

use crate::support::{check, check_error, database, rows};
use fastrand::Rng;
use weft::{ErrorKind, Session};

fn run(session: &Session, statements: &[&str]) {
    for sql in statements {
        session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// A table of several indexes.
fn with_table(session: &Session) {
    run(
        session,
        &[
            "CREATE TABLE t (id BIGINT PRIMARY KEY, a INTEGER, b SMALLINT NOT NULL, s VARCHAR, u INTEGER UNIQUE, day DATE NOT NULL)",
            "INSERT INTO t SELECT value, CASE WHEN value % 11 = 0 THEN NULL ELSE value * 7919 % 501 END, value % 13, \
             CASE WHEN value % 7 = 0 THEN NULL ELSE 'text ' || (value * 31 % 97) END, \
             CASE WHEN value % 5 = 0 THEN NULL ELSE value * 3 END, DATE '2024-01-01' + CAST(value * 17 % 400 AS INTEGER) \
             FROM generate_series(1, 2000) AS g(value)",
            "CREATE INDEX t_a ON t (a)",
            "CREATE INDEX t_b_a ON t (b, a DESC NULLS LAST)",
            "CREATE INDEX t_s ON t (s DESC NULLS FIRST)",
            "CREATE INDEX t_day_b ON t (day, b)",
        ],
    );
}

fn one_of<'a>(random: &mut Rng, all: &[&'a str]) -> &'a str {
    all[random.usize(0..all.len())]
}

/// A query whose result follows from its rows, whatever order equal ones have.
fn query(random: &mut Rng) -> String {
    let condition = match random.u32(0..8) {
        0 => format!("WHERE b = {}", random.i32(0..15)),
        1 => format!("WHERE b = {} AND a > {}", random.i32(0..13), random.i32(0..500)),
        2 => format!("WHERE a <= {}", random.i32(-5..510)),
        3 => format!("WHERE a BETWEEN {} AND {}", random.i32(0..300), random.i32(200..500)),
        4 => format!("WHERE s >= 'text {}'", random.u32(0..99)),
        5 => format!("WHERE day > DATE '2024-05-01' AND b <> {}", random.i32(0..13)),
        _ => String::new(),
    };
    if random.u32(0..3) == 0 {
        let column = one_of(random, &["id", "a", "b", "s", "u", "day"]);
        return format!("SELECT min({column}), max({column}) FROM t {condition}");
    }
    let columns = one_of(random, &["id", "a", "b", "s", "u", "day", "b, a", "day, b", "a, b"]);
    let direction =
        one_of(random, &["", "DESC", "DESC NULLS LAST", "NULLS FIRST", "DESC NULLS FIRST"]);
    let keys: Vec<String> = columns.split(", ").map(|of| format!("{of} {direction}")).collect();
    let (limit, offset) = (random.usize(0..12), random.usize(0..5));
    format!(
        "SELECT {columns} FROM t {condition} ORDER BY {} LIMIT {limit} OFFSET {offset}",
        keys.join(", ")
    )
}

fn change(random: &mut Rng) -> String {
    let id = random.i64(1..2_300);
    match random.u32(0..5) {
        0 => format!("DELETE FROM t WHERE id % 97 = {}", id % 97),
        1 => format!("DELETE FROM t WHERE a < {} OR a > {}", id % 20, 500 - id % 20),
        2 => format!("UPDATE t SET a = {}, s = NULL WHERE id % 50 = {}", id - 1_000, id % 50),
        3 => format!("UPDATE t SET u = -u, b = b + 1 WHERE id % 50 = {}", id % 50),
        _ => format!(
            "INSERT INTO t SELECT {id} + value, value - 3, value % 3, 'a', NULL, DATE '2020-01-01' FROM generate_series(1, 5) AS g(value) \
             WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.id = {id} + value)"
        ),
    }
}

#[test]
fn random_orders_are_those_of_scans() {
    for seed in [1, 2, fastrand::u64(..)] {
        println!("seed {seed}");
        let mut random = Rng::with_seed(seed);
        let database = database();
        let session = database.session().unwrap();
        with_table(&session);
        let (mut by_index, mut is_transaction) = (0, false);
        for step in 0..160 {
            match random.u32(0..12) {
                0 | 1 => {
                    run(&session, &[&change(&mut random)]);
                    continue;
                }
                2 => {
                    let end = one_of(&mut random, &["COMMIT", "ROLLBACK"]);
                    run(&session, &[if is_transaction { end } else { "BEGIN" }]);
                    is_transaction = !is_transaction;
                    continue;
                }
                _ => {}
            }
            let sql = query(&mut random);
            run(&session, &["SET index_scan = 'always'"]);
            let found = rows(&session, &sql);
            let plan = rows(&session, &format!("EXPLAIN {sql}")).join("\n");
            by_index += u32::from(plan.contains(", first ") || plan.contains(", last "));
            run(&session, &["SET index_scan = 'never'"]);
            assert_eq!(found, rows(&session, &sql), "step {step}: {sql}\n{plan}");
        }
        assert!(by_index > 20, "{by_index}");
    }
}

#[test]
fn a_reader_of_an_earlier_state_finds_its_rows() {
    let database = database();
    let [reader, writer] = [0, 1].map(|_| database.session().unwrap());
    with_table(&writer);
    run(&reader, &["SET index_scan = 'always'", "BEGIN"]);
    let queries = [
        "SELECT id FROM t ORDER BY id LIMIT 3",
        "SELECT id FROM t ORDER BY id DESC LIMIT 3",
        "SELECT min(u), max(u) FROM t",
    ];
    let before = queries.map(|sql| rows(&reader, sql));
    assert_eq!(before, [vec!["1", "2", "3"], vec!["2000", "1999", "1998"], vec!["3 5997"]]);
    run(
        &writer,
        &[
            "DELETE FROM t WHERE id < 3 OR id > 1997",
            "INSERT INTO t VALUES (0, 1, 1, 'x', 1, DATE '2024-01-01')",
        ],
    );
    assert_eq!(queries.map(|sql| rows(&reader, sql)), before);
    run(
        &reader,
        &[
            "DELETE FROM t WHERE id IN (1, 1999)",
            "INSERT INTO t VALUES (5000, 1, 1, 'x', 2, DATE '2024-01-01')",
        ],
    );
    let own = [vec!["2", "3", "4"], vec!["5000", "2000", "1998"], vec!["2 5994"]];
    assert_eq!(queries.map(|sql| rows(&reader, sql)), own);
    run(&reader, &["ROLLBACK"]);
    let taken = "INSERT INTO t VALUES (1997, 1, 1, 'x', 7, DATE '2024-01-01')";
    check_error(&reader, taken, ErrorKind::UniqueViolation);
    check(&reader, "SELECT max(id) FROM t WHERE id < 1997", &["1996"]);
    let after = [vec!["0", "3", "4"], vec!["1997", "1996", "1995"], vec!["1 5991"]];
    assert_eq!(queries.map(|sql| rows(&reader, sql)), after);
}

#[test]
fn plans_say_which_end_of_an_index_they_read() {
    let database = database();
    let session = database.session().unwrap();
    with_table(&session);
    // As long as no row is deleted, what is known of row groups tells the least and greatest values.
    run(&session, &["SET index_scan = 'always'", "DELETE FROM t WHERE id = 700"]);
    let plan = |sql: &str| rows(&session, &format!("EXPLAIN {sql}")).join("\n");
    for (sql, expected) in [
        ("SELECT * FROM t ORDER BY id LIMIT 3", "t_pkey, first 3"),
        ("SELECT id FROM t ORDER BY id DESC LIMIT 3 OFFSET 2", "t_pkey, last 5"),
        ("SELECT a FROM t WHERE b = 3 ORDER BY a DESC NULLS LAST LIMIT 1", "t_b_a, first 1"),
        ("SELECT a FROM t WHERE b = 3 ORDER BY b, a NULLS FIRST LIMIT 1", "t_b_a, last 1"),
        ("SELECT min(a), max(a) FROM t", "t_a, first 1 and last 1"),
        ("SELECT max(a) - min(a) FROM t WHERE b = 4", "t_b_a, first 1 and last 1"),
    ] {
        assert!(plan(sql).contains(expected), "{sql}: {}", plan(sql));
    }
    for sql in [
        "SELECT a, b FROM t ORDER BY a, b LIMIT 3",
        "SELECT u FROM t ORDER BY u LIMIT 3",
        "SELECT b FROM t WHERE s <> 'x' ORDER BY b LIMIT 3",
        "SELECT min(a), max(b) FROM t",
        "SELECT min(a), count(*) FROM t",
        "SELECT b, min(a) FROM t GROUP BY b",
    ] {
        let plan = plan(sql);
        assert!(!plan.contains(", first ") && !plan.contains(", last "), "{sql}: {plan}");
    }
}
