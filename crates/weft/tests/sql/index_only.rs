//! Indexes that include columns, statements by key without parameters, and INSERT … ON CONFLICT, against a model: random changes, transactions,
//! savepoints, readers of earlier snapshots, and the database opened again.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::support::{check, check_error, database, rows};
use weft::{Database, DatabaseOptions, ErrorKind, Session};

/// The columns of a row behind its id.
type Row = (Option<i64>, Option<String>, f64);

type Model = BTreeMap<i64, Row>;

fn run(session: &Session, sql: &str) {
    session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

fn plan(session: &Session, sql: &str) -> String {
    rows(session, &format!("EXPLAIN {sql}")).join("\n")
}

fn with_table(session: &Session) {
    for sql in [
        "CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, s VARCHAR, d DOUBLE NOT NULL)",
        "CREATE INDEX t_k ON t (k DESC) INCLUDE (s, d)",
        "CREATE UNIQUE INDEX t_id ON t (id) INCLUDE (d, s, k)",
        "SET index_scan = 'always'",
        "SET index_join = 'always'",
    ] {
        run(session, sql);
    }
}

fn in_words(id: i64, (k, s, d): &Row) -> String {
    let k = k.map_or("NULL".to_owned(), |k| k.to_string());
    let s = s.as_ref().map_or("NULL".to_owned(), |s| format!("<{s}>"));
    format!("{id} {k} {s} {d:?}")
}

const COLUMNS: &str = "id, k, CASE WHEN s IS NULL THEN 'NULL' ELSE '<' || s || '>' END, d";

/// Compares what indexes say with the model.
fn compare(session: &Session, model: &Model, random: &mut fastrand::Rng) {
    let k = random.i64(-2..12);
    let id = random.i64(-5..60);
    let words = |is_wanted: &dyn Fn(i64, &Row) -> bool| -> Vec<String> {
        let wanted = model.iter().filter(|(id, row)| is_wanted(**id, row));
        wanted.map(|(id, row)| in_words(*id, row)).collect()
    };
    let query = |condition: &str| format!("SELECT {COLUMNS} FROM t WHERE {condition} ORDER BY id");
    assert_eq!(rows(session, &query(&format!("id = {id}"))), words(&|found, _| found == id));
    // Once more, by the plan that is kept.
    let by_key = format!("SELECT d, s, k FROM t WHERE id = {id}");
    assert_eq!(rows(session, &by_key), rows(session, &by_key));
    let between = query(&format!("id BETWEEN {id} AND {}", id + 9));
    assert_eq!(rows(session, &between), words(&|found, _| (id..=id + 9).contains(&found)));
    let sums = format!("SELECT count(*), count(s), sum(d) FROM t WHERE k IN ({k}, {})", k + 3);
    let is_of = |row: &Row| row.0 == Some(k) || row.0 == Some(k + 3);
    let found: Vec<&Row> = model.values().filter(|row| is_of(row)).collect();
    let with_text = found.iter().filter(|row| row.1.is_some()).count();
    let sum: f64 = found.iter().map(|row| row.2).sum();
    let sum = if found.is_empty() { "NULL".to_owned() } else { format!("{sum:?}") };
    check(session, &sums, &[&format!("{} {with_text} {sum}", found.len())]);
    assert!(plan(session, &sums).contains("index only"), "{}", plan(session, &sums));
    let mut joined: Vec<String> = Vec::new();
    for outer in 0..8 {
        let of_outer = model.iter().filter(|(_, row)| row.0 == Some(outer));
        let mut of_outer: Vec<String> = of_outer
            .map(|(_, (_, s, d))| format!("{outer} {} {d:?}", s.as_deref().unwrap_or("NULL")))
            .collect();
        of_outer.sort();
        joined.extend(of_outer);
    }
    let join = "SELECT o.v, t.s, t.d FROM (SELECT value AS v FROM generate_series(0, 7) AS g(value)) AS o JOIN t ON t.k = o.v";
    let mut by_join = rows(session, join);
    by_join.sort();
    joined.sort();
    assert_eq!(by_join, joined);
    assert!(
        plan(session, join).contains("by index t_k of t on k = v, index only"),
        "{}",
        plan(session, join)
    );
    let first: Vec<String> = model.keys().take(3).map(i64::to_string).collect();
    assert_eq!(rows(session, "SELECT id FROM t ORDER BY id LIMIT 3"), first);
    let has_k = |outer: i64| model.values().any(|row| row.0 == Some(outer));
    let has_null = model.values().any(|row| row.0.is_none());
    let without = (0..8).filter(|outer| !has_k(*outer) && !has_null).count();
    let not_in = "SELECT count(*) FROM (SELECT value AS v FROM generate_series(0, 7) AS g(value)) AS o WHERE v NOT IN (SELECT k FROM t)";
    check(session, not_in, &[&without.to_string()]);
    let with = (0..8).filter(|outer| has_k(*outer)).count();
    let marks = "SELECT count_if(m) FROM (SELECT v IN (SELECT k FROM t) AS m FROM (SELECT value AS v FROM generate_series(0, 7) AS g(value)) AS o) AS x";
    check(session, marks, &[&with.to_string()]);
}

/// A random change, of the table and of the model.
fn change(session: &Session, model: &mut Model, random: &mut fastrand::Rng) {
    let (id, k) = (random.i64(-5..60), random.i64(-2..12));
    let text = ["", "a", "it''s", "long text of some length", "ü"][random.usize(..5)];
    let s = text.replace("''", "'");
    let d = random.i64(-40..40) as f64 / 8.0;
    match random.u8(..9) {
        0 | 1 => {
            let sql =
                format!("INSERT INTO t VALUES ({id}, {k}, '{text}', {d:?}) ON CONFLICT DO NOTHING");
            run(session, &sql);
            model.entry(id).or_insert((Some(k), Some(s), d));
        }
        2 | 3 => {
            let sql = format!(
                "INSERT INTO t VALUES ({id}, NULL, '{text}', {d:?}) ON CONFLICT (id) DO UPDATE SET s = excluded.s, d = t.d + 1 WHERE t.k > {k}"
            );
            run(session, &sql);
            match model.get_mut(&id) {
                None => drop(model.insert(id, (None, Some(s), d))),
                Some(row) if row.0.is_some_and(|there| there > k) => {
                    (row.1, row.2) = (Some(s), row.2 + 1.0)
                }
                Some(_) => {}
            }
        }
        4 => {
            run(session, &format!("UPDATE t SET d = {d:?}, s = NULL WHERE id = {id}"));
            if let Some(row) = model.get_mut(&id) {
                (row.1, row.2) = (None, d);
            }
        }
        5 => {
            run(session, &format!("UPDATE t SET k = {k} WHERE id = {id}"));
            if let Some(row) = model.get_mut(&id) {
                row.0 = Some(k);
            }
        }
        6 => {
            run(session, &format!("DELETE FROM t WHERE id = {id}"));
            model.remove(&id);
        }
        7 => {
            run(session, &format!("UPDATE t SET s = s || '!', d = d - 0.5 WHERE k = {k}"));
            for row in model.values_mut().filter(|row| row.0 == Some(k)) {
                row.1 = row.1.take().map(|text| text + "!");
                row.2 -= 0.5;
            }
        }
        _ => {
            run(session, &format!("DELETE FROM t WHERE k = {k} AND d > 0.0"));
            model.retain(|_, row| row.0 != Some(k) || row.2 <= 0.0);
        }
    }
}

fn directory() -> PathBuf {
    let name = format!("weft_index_only_{}_{}", std::process::id(), fastrand::u32(..));
    std::env::temp_dir().join(name)
}

#[test]
fn random_changes_are_those_of_a_model() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let path = directory();
    let options = DatabaseOptions::default().with("memory_limit", "512MiB");
    let mut model = Model::new();
    for opening in 0..3 {
        let database = Database::open(&path, &options).unwrap();
        let session = database.session().unwrap();
        match opening {
            0 => with_table(&session),
            _ => {
                run(&session, "SET index_scan = 'always'");
                run(&session, "SET index_join = 'always'");
            }
        }
        let reader = database.session().unwrap();
        run(&reader, "SET index_scan = 'always'");
        run(&reader, "SET index_join = 'always'");
        run(&reader, "BEGIN");
        compare(&reader, &model, &mut random);
        let seen = model.clone();
        for _ in 0..6 {
            let mut before = None;
            let mut savepoint = None;
            if random.bool() {
                run(&session, "BEGIN");
                before = Some(model.clone());
            }
            for step in 0..random.usize(1..6) {
                if before.is_some() && step == 2 {
                    run(&session, "SAVEPOINT one");
                    savepoint = Some(model.clone());
                }
                change(&session, &mut model, &mut random);
                if random.u8(..3) == 0 {
                    compare(&session, &model, &mut random);
                }
            }
            if let Some(savepoint) = savepoint.filter(|_| random.bool()) {
                run(&session, "ROLLBACK TO one");
                model = savepoint;
                compare(&session, &model, &mut random);
            }
            match before {
                Some(before) if random.bool() => {
                    run(&session, "ROLLBACK");
                    model = before;
                }
                Some(_) => run(&session, "COMMIT"),
                None => {}
            }
            compare(&session, &model, &mut random);
        }
        compare(&reader, &seen, &mut random);
        run(&reader, "ROLLBACK");
        let checked = rows(&session, "CHECK TABLE t");
        assert!(checked.iter().all(|row| row.ends_with(" ok")), "{checked:?}");
        if opening == 1 {
            run(&session, "REINDEX TABLE t");
        }
        drop((session, reader, database));
    }
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn an_index_with_all_that_is_wanted_is_read_alone() {
    let database = database();
    let session = database.session().unwrap();
    with_table(&session);
    run(
        &session,
        "INSERT INTO t SELECT value, value % 50, 'text ' || value, value FROM generate_series(1, 5000) AS g(value)",
    );
    // As long as no row is deleted, what is known of row groups tells the least and greatest values.
    run(&session, "DELETE FROM t WHERE id = 77");
    for (sql, is_alone) in [
        ("SELECT s, d FROM t WHERE k = 7", true),
        ("SELECT id FROM t WHERE k = 7", false),
        ("SELECT k, s, d FROM t WHERE id = 7", true),
        ("SELECT s FROM t WHERE k BETWEEN 3 AND 4 AND d > 5", true),
        ("SELECT count(*) FROM t WHERE k IN (1, 2)", true),
        ("SELECT min(k), max(k) FROM t", true),
        ("SELECT k, s FROM t ORDER BY k DESC LIMIT 5", true),
    ] {
        let plan = plan(&session, sql);
        assert_eq!(plan.contains("index only"), is_alone, "{sql}: {plan}");
    }
}

#[test]
fn the_second_statement_of_a_shape_is_not_planned() {
    let database = database();
    let session = database.session().unwrap();
    with_table(&session);
    for (number, (first, second)) in [
        ("INSERT INTO t VALUES (1, 2, 'x', 0.5)", "INSERT INTO t VALUES (2, 3, 'y', 0.5)"),
        ("SELECT s FROM t WHERE id = 1", "SELECT s FROM t WHERE id = 2"),
        ("UPDATE t SET k = 5 WHERE id = 1", "UPDATE t SET k = 6 WHERE id = 2"),
        ("DELETE FROM t WHERE id = 1", "DELETE FROM t WHERE id = 2"),
        (
            "INSERT INTO t VALUES (1, 2, 'x', 0.5) ON CONFLICT (id) DO UPDATE SET k = t.k + 1",
            "INSERT INTO t VALUES (1, 9, 'x', 0.5) ON CONFLICT (id) DO UPDATE SET k = t.k + 1",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        run(&session, first);
        assert_eq!(session.kept_statements(), number + 1, "{first}");
        run(&session, second);
        assert_eq!(session.kept_statements(), number + 1, "{second}");
    }
    check(&session, "SELECT id, k FROM t ORDER BY id", &["1 3"]);
    let taken = "INSERT INTO t VALUES (1, 9, 'x', 0.5)";
    check_error(&session, taken, ErrorKind::UniqueViolation);
    run(&session, "PREPARE p AS DELETE FROM t WHERE id = $1");
    run(&session, "EXECUTE p(1)");
    // The text is that of a statement without parameters, but for the number.
    assert_eq!(session.kept_statements(), 5);
    check(&session, "SELECT count(*) FROM t", &["0"]);
}
