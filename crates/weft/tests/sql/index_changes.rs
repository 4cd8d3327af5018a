//! UPDATE and DELETE that look rows up in indexes: they read few rows, and change those that they would find by a scan.

use crate::support::{check, check_error, database, rows};
use weft::{ErrorKind, Session};

/// Pages of the table that a statement looks at.
fn pages(session: &Session, sql: &str) -> u64 {
    let looked_at = || {
        let stats = session.database().stats();
        stats.cache_hits + stats.cache_misses
    };
    let before = looked_at();
    session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    looked_at() - before
}

fn run(session: &Session, statements: &[&str]) {
    for sql in statements {
        session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

#[test]
fn rows_with_a_key_are_found_without_a_scan() {
    let database = database();
    let session = database.session().unwrap();
    run(
        &session,
        &[
            "CREATE TABLE t (id BIGINT, a BIGINT, s VARCHAR)",
            // In no order, so that zones tell nothing.
            "INSERT INTO t SELECT (value * 7919) % 200003, value, 'text ' || value FROM generate_series(1, 200000) AS g(value)",
            "CREATE UNIQUE INDEX t_id ON t (id)",
            "BEGIN",
        ],
    );
    // No row has the keys, though zones do not tell, so that nothing is written.
    for sql in [
        "UPDATE t SET a = 0 WHERE id = 184165",
        "DELETE FROM t WHERE id = 184165",
        "DELETE FROM t WHERE id IN (184165, 192084)",
    ] {
        run(&session, &["SET index_scan = 'auto'"]);
        let looked_up = pages(&session, sql);
        run(&session, &["SET index_scan = 'never'"]);
        let scanned = pages(&session, sql);
        assert!(looked_up < scanned, "{sql}: {looked_up} pages by the index, {scanned} by a scan");
    }
}

#[test]
fn random_changes_are_those_of_a_scan() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let database = database();
    let session = database.session().unwrap();
    for name in ["by_index", "by_scan"] {
        run(
            &session,
            &[
                &format!("CREATE TABLE {name} (id BIGINT PRIMARY KEY, k BIGINT, s VARCHAR)"),
                &format!(
                    "INSERT INTO {name} SELECT value, value % 40, 'text ' || value FROM generate_series(1, 2000) AS g(value)"
                ),
                &format!("CREATE INDEX {name}_k ON {name} (k DESC, s)"),
            ],
        );
    }
    for round in 0..40 {
        if round % 10 == 3 {
            run(&session, &["BEGIN"]);
        }
        let id = random.i64(-5..2_100);
        let condition = match random.u8(..5) {
            0 => format!("id = {id}"),
            1 => format!("id IN ({id}, {}, {}, NULL)", id + 1, id * 2),
            2 => format!("id BETWEEN {id} AND {}", id + random.i64(..20)),
            3 => format!("k = {} AND s > 'text {}'", id % 45, random.u8(1..9)),
            _ => format!("k = {} AND id < {id}", id % 40),
        };
        let change = match random.u8(..4) {
            0 => format!("DELETE FROM TABLE_NAME WHERE {condition}"),
            1 => format!("UPDATE TABLE_NAME SET k = k + 1, s = s || '!' WHERE {condition}"),
            2 => format!("UPDATE TABLE_NAME SET id = id + 5000 WHERE {condition} AND id < 3000"),
            _ => format!("UPDATE TABLE_NAME SET s = 'new' WHERE {condition} RETURNING id"),
        };
        let mut returned = Vec::new();
        for (name, setting) in [("by_index", "always"), ("by_scan", "never")] {
            run(&session, &[&format!("SET index_scan = '{setting}'")]);
            let mut found = rows(&session, &change.replace("TABLE_NAME", name));
            found.sort();
            returned.push(found);
        }
        assert_eq!(returned[0], returned[1], "{change}");
        let all = |name: &str| rows(&session, &format!("SELECT * FROM {name} ORDER BY id"));
        assert_eq!(all("by_index"), all("by_scan"), "{change}");
        if round % 10 == 8 {
            run(&session, &[if random.bool() { "COMMIT" } else { "ROLLBACK" }]);
        }
    }
    check(
        &session,
        "SELECT count(*) FROM (SELECT * FROM by_index EXCEPT SELECT * FROM by_scan) AS d",
        &["0"],
    );
    check_error(&session, "UPDATE by_index SET none = 1 WHERE id = 1", ErrorKind::Semantic);
}
