//! Changes of rows by key whose plans are kept: they leave and return the same rows, and tell of the same errors, as in the usual way.

use std::sync::Barrier;

use crate::support::{check, check_error, database};
use fastrand::Rng;
use weft::{Database, ErrorKind, Prepared, Session, Value};

/// Executions after which a plan is kept.
const EXECUTIONS: usize = 2;

fn run(session: &Session, statements: &[&str]) {
    for sql in statements {
        session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// What a statement with these values returns: its rows or how many it has changed, or its error.
fn outcome(session: &Session, sql: &str, values: &[Value]) -> Result<String, String> {
    let run = || {
        let mut result = session.prepare(sql)?.query(values)?;
        let mut batches = Vec::new();
        while let Some(batch) = result.next_batch()? {
            batches.push(batch);
        }
        let columns = result.schema();
        let columns = columns.fields().iter().map(|of| format!("{} {}", of.name(), of.data_type()));
        let columns: Vec<String> = columns.collect();
        let rows = weft::to_text(&batches)?;
        Ok(format!("{:?} {columns:?} {rows:?}", result.kind()))
    };
    run().map_err(|error: weft::Error| format!("{:?} {}", error.kind(), error.message()))
}

/// Two sessions of databases of their own, of which the second keeps no plans.
struct Pair {
    _databases: [Database; 2],
    kept: Session,
    usual: Session,
}

impl Pair {
    fn new(statements: &[&str]) -> Pair {
        let databases = [database(), database()];
        let [kept, usual] = [0, 1].map(|number: usize| databases[number].session().unwrap());
        run(&usual, &["SET index_scan = 'never'"]);
        let pair = Pair { _databases: databases, kept, usual };
        statements.iter().for_each(|sql| pair.run(sql, &[]));
        pair
    }

    /// Runs a statement in both.
    #[track_caller]
    fn run(&self, sql: &str, values: &[Value]) {
        let [kept, usual] = [&self.kept, &self.usual].map(|of| outcome(of, sql, values));
        assert_eq!(kept, usual, "{sql} {values:?}");
    }

    /// Runs a statement with each of these values in both, and looks whether the plan is kept.
    #[track_caller]
    fn run_kept(&self, sql: &str, all: &[&[Value]]) {
        let before = self.kept.kept_statements();
        for values in all {
            self.run(sql, values);
        }
        assert_eq!(self.kept.kept_statements(), before + 1, "{sql}");
        assert_eq!(self.usual.kept_statements(), 0);
    }
}

const TABLES: [&str; 4] = [
    "CREATE TABLE t (id INTEGER PRIMARY KEY, k BIGINT UNIQUE, a SMALLINT, b BIGINT NOT NULL DEFAULT 7, d DECIMAL(8, 2), \
     s VARCHAR(6), f DOUBLE, day DATE, at TIMESTAMP, flag BOOLEAN, CHECK (a < 1000), CHECK (s <> 'bad'))",
    "INSERT INTO t SELECT value, value * 10, value % 100, value, value / 4.0, 's' || (value % 50), value / 8.0, \
     DATE '2024-01-01' + CAST(value AS INTEGER), TIMESTAMP '2024-01-01 00:00:00', value % 2 = 0 FROM generate_series(1, 60) AS g(value)",
    "CREATE TABLE child (id BIGINT PRIMARY KEY, t_id INTEGER REFERENCES t (id))",
    "CREATE TABLE numbered (id BIGINT GENERATED ALWAYS AS IDENTITY, s VARCHAR, n BIGINT DEFAULT 5)",
];

/// Statements by key, and what their parameters are.
const STATEMENTS: [(&str, &[Kind]); 26] = [
    ("UPDATE t SET a = a + $1 WHERE id = $2", &[Kind::Number, Kind::Id]),
    (
        "UPDATE t SET b = $1, s = $2 WHERE id = $3 RETURNING *",
        &[Kind::Number, Kind::Text, Kind::Id],
    ),
    ("UPDATE t SET d = d * 2 + $1, f = b / 3.0 WHERE k = $2", &[Kind::Number, Kind::Key]),
    ("UPDATE t SET id = $1 WHERE id = $2", &[Kind::Id, Kind::Id]),
    (
        "UPDATE t SET k = $1 WHERE $2 = id RETURNING k, id + 1 AS next, upper(s)",
        &[Kind::Key, Kind::Id],
    ),
    ("UPDATE t SET s = s || $1 WHERE id = $2", &[Kind::Text, Kind::Id]),
    ("UPDATE t SET s = lower($1), day = $2 WHERE id = $3", &[Kind::Text, Kind::Day, Kind::Id]),
    ("UPDATE t AS x SET b = DEFAULT, flag = NOT x.flag WHERE x.id = ?", &[Kind::Id]),
    (
        "UPDATE t SET a = b / $1, b = coalesce($2, b) WHERE id = $3",
        &[Kind::Number, Kind::Number, Kind::Id],
    ),
    ("UPDATE t SET d = $1, f = f + $1 WHERE id = $2", &[Kind::Any, Kind::Id]),
    ("UPDATE t SET day = $1, at = $1 WHERE id = $2", &[Kind::Any, Kind::Id]),
    (
        "UPDATE t SET a = CAST($1 AS SMALLINT), s = CAST(b AS VARCHAR) WHERE id = $2",
        &[Kind::Any, Kind::Id],
    ),
    (
        "UPDATE t SET flag = a > $1 AND $2 IS NULL, k = -k WHERE id = $3",
        &[Kind::Number, Kind::Text, Kind::Id],
    ),
    (
        "UPDATE t SET s = CASE WHEN a > 50 THEN 'high' ELSE substr(s, 1, 2) END WHERE id = $1",
        &[Kind::Id],
    ),
    ("DELETE FROM t WHERE id = $1", &[Kind::Id]),
    ("DELETE FROM t WHERE k = $1 RETURNING id, s, d * 2", &[Kind::Key]),
    (
        "INSERT INTO t (id, k, a, s) VALUES ($1, $2, $3, $4)",
        &[Kind::Id, Kind::Key, Kind::Number, Kind::Text],
    ),
    (
        "INSERT INTO t VALUES ($1, NULL, 1, $2, $3, 'x', 1.5, $4, NULL, TRUE) RETURNING *",
        &[Kind::Id, Kind::Number, Kind::Any, Kind::Day],
    ),
    (
        "INSERT INTO t (id, s, b) VALUES ($1, $2, DEFAULT), ($3, upper($2), 1)",
        &[Kind::Id, Kind::Text, Kind::Id],
    ),
    ("INSERT INTO t (id, a, b) VALUES ($1, 5, $2 + 1) RETURNING id, b", &[Kind::Id, Kind::Number]),
    ("INSERT INTO child VALUES ($1, $2)", &[Kind::Key, Kind::Id]),
    ("UPDATE child SET t_id = $1 WHERE id = $2", &[Kind::Id, Kind::Key]),
    ("DELETE FROM child WHERE id = $1", &[Kind::Key]),
    ("INSERT INTO numbered (s) VALUES ($1)", &[Kind::Text]),
    (
        "INSERT INTO numbered (s, n) VALUES ($1, $2), ($1, DEFAULT) RETURNING *",
        &[Kind::Text, Kind::Number],
    ),
    ("SELECT id, k, a, b, s FROM t WHERE id = $1", &[Kind::Id]),
];

#[derive(Clone, Copy)]
enum Kind {
    Id,
    Key,
    Number,
    Text,
    Day,
    Any,
}

fn value(random: &mut Rng, kind: Kind) -> Value {
    if random.u32(0..12) == 0 {
        return Value::Null;
    }
    match kind {
        Kind::Id => Value::Integer(random.i64(1..90)),
        Kind::Key => Value::Integer(random.i64(1..90) * 10),
        Kind::Number => match random.u32(0..8) {
            0 => Value::Integer([0, i64::MAX, i64::MIN, 40_000][random.usize(0..4)]),
            1 => Value::Double(random.f64() * 100.0),
            2 => Value::Decimal(random.i64(-9_999..9_999).into(), 5, 2),
            3 => Value::Unsigned(random.u64(0..200)),
            _ => Value::Integer(random.i64(-20..300)),
        },
        Kind::Text => {
            let texts = ["", "a", "Bc", "12", "bad", "too long", "2024-02-03", "é"];
            Value::from(texts[random.usize(0..texts.len())])
        }
        Kind::Day => match random.bool() {
            true => Value::Date(random.i32(19_000..20_000)),
            false => Value::Timestamp(random.i64(0..1 << 50)),
        },
        Kind::Any => {
            let kinds = [Kind::Number, Kind::Text, Kind::Day];
            let kind = kinds[random.usize(0..kinds.len())];
            value(random, kind)
        }
    }
}

/// A statement about transactions or definitions.
fn other(random: &mut Rng) -> &'static str {
    let statements = [
        "BEGIN",
        "BEGIN",
        "BEGIN READ ONLY",
        "COMMIT",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT s",
        "ROLLBACK TO s",
        "ALTER TABLE t ALTER COLUMN b SET DEFAULT 9",
        "ALTER TABLE t ALTER COLUMN b SET DEFAULT 8",
        "ALTER TABLE t DROP CONSTRAINT t_k_key",
        "ALTER TABLE t ADD CONSTRAINT t_k_key UNIQUE (k)",
        "ALTER TABLE t ADD COLUMN more INTEGER DEFAULT 3",
        "ALTER TABLE t DROP COLUMN more",
        "ALTER TABLE t ADD CONSTRAINT small CHECK (b < 250)",
        "ALTER TABLE t DROP CONSTRAINT small",
        "CREATE OR REPLACE VIEW v AS SELECT * FROM t",
        "UPDATE t SET a = 1 WHERE id < 20",
        "DELETE FROM t WHERE id % 7 = 3",
        "INSERT INTO t (id, k, s) SELECT value, value * 10, 'new' FROM generate_series(1, 60) AS g(value) \
         WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.id = value OR t.k = value * 10)",
    ];
    statements[random.usize(0..statements.len())]
}

#[test]
fn random_changes_are_those_of_the_usual_way() {
    for seed in [1, 2, 3, 3_615_656_665_920_825_167] {
        println!("seed {seed}");
        let mut random = Rng::with_seed(seed);
        let pair = Pair::new(&TABLES);
        for step in 0..300 {
            if random.u32(0..6) == 0 {
                pair.run(other(&mut random), &[]);
                continue;
            }
            let (sql, kinds) = STATEMENTS[random.usize(0..STATEMENTS.len())];
            let values: Vec<Value> = kinds.iter().map(|kind| value(&mut random, *kind)).collect();
            pair.run(sql, &values);
            if step % 20 == 0 {
                pair.run("SELECT * FROM t ORDER BY id", &[]);
            }
        }
        if pair.kept.execute("ROLLBACK").is_ok() {
            run(&pair.usual, &["ROLLBACK"]);
        }
        for table in ["t ORDER BY id", "child ORDER BY id", "numbered ORDER BY id"] {
            pair.run(&format!("SELECT * FROM {table}"), &[]);
        }
        assert!(pair.kept.kept_statements() > 15, "{}", pair.kept.kept_statements());
        pair.run("PRAGMA integrity_check", &[]);
    }
}

#[test]
fn plans_are_kept_from_the_first_execution_on() {
    let pair = Pair::new(&TABLES);
    let (id, n) = (Value::Integer(5), Value::Integer(3));
    pair.run_kept("UPDATE t SET a = a + $1 WHERE id = $2", &[&[n.clone(), id.clone()]]);
    pair.run_kept("DELETE FROM t WHERE k = $1 RETURNING *", &[&[Value::Integer(70)]]);
    pair.run_kept("INSERT INTO t (id, s) VALUES ($1, $2)", &[&[Value::Integer(100), "x".into()]]);
    pair.run_kept("INSERT INTO numbered (s) VALUES ($1) RETURNING id", &[&["y".into()]]);
    pair.run_kept("INSERT INTO child VALUES ($1, $2)", &[&[n.clone(), id.clone()], &[id, n]]);
    pair.run("SELECT * FROM t ORDER BY id", &[]);
}

#[test]
fn the_time_is_that_of_the_statement() {
    let database = database();
    let session = database.session().unwrap();
    run(
        &session,
        &["CREATE TABLE h (n INTEGER, at TIMESTAMP, zoned TIMESTAMP WITH TIME ZONE DEFAULT now())"],
    );
    let insert = session.prepare("INSERT INTO h (n, at) VALUES ($1, CURRENT_TIMESTAMP)").unwrap();
    for number in 0..5 {
        assert_eq!(insert.execute(&[Value::Integer(number)]).unwrap(), 1);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert_eq!(session.kept_statements(), 1);
    check(&session, "SELECT count(DISTINCT at), count(DISTINCT zoned) FROM h", &["5 5"]);
    let late = "SELECT count(*) FROM h WHERE zoned > now() OR zoned < now() - INTERVAL '1 minute'";
    check(&session, late, &["0"]);
    check(&session, "SELECT count(*) FROM h WHERE CAST(zoned AS TIMESTAMP) <> at", &["0"]);
}

fn kept(session: &Session, sql: &str, values: &[Value]) -> Prepared {
    let prepared = session.prepare(sql).unwrap();
    for _ in 0..EXECUTIONS {
        prepared.execute(values).unwrap();
    }
    assert!(session.kept_statements() > 0, "{sql}");
    prepared
}

#[test]
fn the_first_of_two_transactions_that_change_a_row_wins() {
    let database = database();
    let [first, second] = [0, 1].map(|_| database.session().unwrap());
    run(
        &first,
        &[
            "CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)",
            "INSERT INTO t VALUES (1, 0), (2, 0)",
        ],
    );
    let add = "UPDATE t SET n = n + $1 WHERE id = $2";
    let one = [Value::Integer(1), Value::Integer(1)];
    let [by_first, by_second] = [&first, &second].map(|session| kept(session, add, &one));
    check(&first, "SELECT n FROM t ORDER BY id", &["4", "0"]);
    run(&first, &["BEGIN"]);
    run(&second, &["BEGIN"]);
    assert_eq!(by_first.execute(&one).unwrap(), 1);
    assert_eq!(by_second.execute(&one).unwrap(), 1);
    run(&first, &["COMMIT"]);
    check_error(&second, "COMMIT", ErrorKind::Conflict);
    run(&second, &["BEGIN", "SAVEPOINT s"]);
    assert_eq!(by_second.execute(&one).unwrap(), 1);
    run(&second, &["ROLLBACK TO s"]);
    assert_eq!(by_second.execute(&[Value::Integer(7), Value::Integer(2)]).unwrap(), 1);
    run(&second, &["COMMIT"]);
    check(&first, "SELECT n FROM t ORDER BY id", &["5", "7"]);
}

#[test]
fn changes_of_one_row_by_many_sessions_are_all_made() {
    const SESSIONS: i64 = 4;
    const CHANGES: i64 = 60;
    let database = database();
    let session = database.session().unwrap();
    run(
        &session,
        &["CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)", "INSERT INTO t VALUES (1, 0)"],
    );
    run(&session, &["CREATE TABLE log (id BIGINT PRIMARY KEY, session BIGINT)"]);
    let barrier = Barrier::new(SESSIONS as usize);
    std::thread::scope(|scope| {
        for number in 0..SESSIONS {
            let session = database.session().unwrap();
            let barrier = &barrier;
            scope.spawn(move || {
                let add = session.prepare("UPDATE t SET n = n + 1 WHERE id = $1").unwrap();
                let note = session.prepare("INSERT INTO log VALUES ($1, $2)").unwrap();
                barrier.wait();
                for change in 0..CHANGES {
                    assert_eq!(add.execute(&[Value::Integer(1)]).unwrap(), 1);
                    let id = Value::Integer(number * CHANGES + change);
                    note.execute(&[id, Value::Integer(number)]).unwrap();
                }
                assert_eq!(session.kept_statements(), 2);
            });
        }
    });
    let all = (SESSIONS * CHANGES).to_string();
    check(&session, "SELECT n FROM t", &[&all]);
    check(&session, "SELECT count(*), count(DISTINCT id) FROM log", &[&format!("{all} {all}")]);
}

#[test]
fn definitions_that_change_are_heeded() {
    let pair = Pair::new(&TABLES);
    let sql = "UPDATE t SET b = b + $1 WHERE id = $2 RETURNING *";
    let values = [Value::Integer(1), Value::Integer(9)];
    pair.run_kept(sql, &[&values, &values]);
    for change in [
        "ALTER TABLE t ADD CONSTRAINT small CHECK (b < 12)",
        "ALTER TABLE t DROP CONSTRAINT small",
        "ALTER TABLE t ADD COLUMN z INTEGER DEFAULT 4",
        "ALTER TABLE t ALTER COLUMN b TYPE INTEGER",
        "CREATE TEMPORARY TABLE t (id INTEGER PRIMARY KEY, b BIGINT)",
        "INSERT INTO t VALUES (9, 1000)",
        "DROP TABLE t",
        "ALTER TABLE t RENAME TO other",
        "CREATE VIEW t AS SELECT 1 AS id, 2 AS b",
        "DROP VIEW t",
        "CREATE TABLE t (id VARCHAR, b DOUBLE)",
        "INSERT INTO t VALUES ('9', 1.5), ('9', 2.5)",
    ] {
        pair.run(change, &[]);
        for _ in 0..3 {
            pair.run(sql, &values);
        }
    }
}
