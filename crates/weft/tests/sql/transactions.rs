//! Transactions of several sessions: what they see of each other, what does not go together, and what becomes of those that fail
//! or are given up.

use std::collections::BTreeMap;

use crate::support::{check, check_error, database, rows};
use weft::{Database, DatabaseOptions, ErrorKind, Session, TransactionStatus};

/// Two sessions of a database with a table of keys and values.
fn two() -> (Database, Session, Session) {
    let database = database();
    let first = database.session().unwrap();
    first.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v INTEGER)").unwrap();
    first.execute("INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)").unwrap();
    let second = database.session().unwrap();
    (database, first, second)
}

fn run(session: &Session, statements: &[&str]) {
    for sql in statements {
        session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

fn check_conflict(session: &Session, sql: &str, message: &str) {
    let error = check_error(session, sql, ErrorKind::Conflict);
    assert!(error.message().contains(message), "{error}");
    assert_eq!(session.transaction_status(), TransactionStatus::Idle);
}

#[test]
fn no_dirty_read() {
    let (_database, first, second) = two();
    run(&first, &["BEGIN", "UPDATE t SET v = 11 WHERE k = 1", "INSERT INTO t VALUES (4, 40)"]);
    check(&second, "SELECT k, v FROM t ORDER BY k", &["1 10", "2 20", "3 30"]);
    run(&first, &["ROLLBACK"]);
    check(&second, "SELECT k, v FROM t ORDER BY k", &["1 10", "2 20", "3 30"]);
}

#[test]
fn no_read_that_changes_and_no_phantom() {
    let (_database, first, second) = two();
    run(&first, &["BEGIN"]);
    check(&first, "SELECT v FROM t WHERE k = 1", &["10"]);
    run(&second, &["UPDATE t SET v = 11 WHERE k = 1", "INSERT INTO t VALUES (4, 40)"]);
    run(&second, &["CREATE TABLE u AS SELECT 1 AS n", "DELETE FROM t WHERE k = 2"]);
    check(&first, "SELECT v FROM t WHERE k = 1", &["10"]);
    check(&first, "SELECT count(*), sum(v) FROM t", &["3 60"]);
    check(
        &first,
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main'",
        &["t"],
    );
    run(&first, &["COMMIT"]);
    check(&first, "SELECT k, v FROM t ORDER BY k", &["1 11", "3 30", "4 40"]);
}

#[test]
fn no_lost_update() {
    let (_database, first, second) = two();
    for session in [&first, &second] {
        run(session, &["BEGIN"]);
        check(session, "SELECT v FROM t WHERE k = 1", &["10"]);
    }
    run(&first, &["UPDATE t SET v = v + 1 WHERE k = 1", "COMMIT"]);
    run(&second, &["UPDATE t SET v = v + 1 WHERE k = 1"]);
    check_conflict(&second, "COMMIT", "table t was changed by another transaction");
    check(&second, "SELECT v FROM t WHERE k = 1", &["11"]);
    // A statement by itself begins anew, and so waits for nobody.
    run(&first, &["BEGIN", "UPDATE t SET v = v + 1 WHERE k = 2"]);
    run(&second, &["UPDATE t SET v = v + 1 WHERE k = 2"]);
    check_conflict(&first, "COMMIT", "table t was changed");
    check(&first, "SELECT v FROM t WHERE k = 2", &["21"]);
}

#[test]
fn no_read_skew() {
    let (_database, first, second) = two();
    run(&first, &["BEGIN"]);
    check(&first, "SELECT v FROM t WHERE k = 1", &["10"]);
    run(&second, &["BEGIN", "UPDATE t SET v = v - 5 WHERE k = 1"]);
    run(&second, &["UPDATE t SET v = v + 5 WHERE k = 2", "COMMIT"]);
    check(&first, "SELECT v FROM t WHERE k = 2", &["20"]);
    check(&first, "SELECT sum(v) FROM t", &["60"]);
    run(&first, &["COMMIT"]);
    check(&first, "SELECT v FROM t ORDER BY k", &["5", "25", "30"]);
}

#[test]
fn write_skew_is_allowed_by_snapshots_and_refused_if_serializable() {
    for (level, is_allowed) in [
        ("SNAPSHOT", true),
        ("REPEATABLE READ", true),
        ("READ COMMITTED", true),
        ("SERIALIZABLE", false),
    ] {
        let (_database, first, second) = two();
        let begin = format!("BEGIN ISOLATION LEVEL {level}");
        for session in [&first, &second] {
            run(session, &[&begin]);
            check(session, "SELECT sum(v) FROM t WHERE k <= 2", &["30"]);
        }
        run(&first, &["UPDATE t SET v = v - 30 WHERE k = 1", "COMMIT"]);
        run(&second, &["UPDATE t SET v = v - 30 WHERE k = 2"]);
        match is_allowed {
            true => {
                run(&second, &["COMMIT"]);
                check(&first, "SELECT sum(v) FROM t WHERE k <= 2", &["-30"]);
            }
            false => {
                check_conflict(&second, "COMMIT", "table t, which this transaction has read,");
                check(&first, "SELECT sum(v) FROM t WHERE k <= 2", &["0"]);
            }
        }
    }
}

#[test]
fn serializable_transactions_that_only_read_or_only_add_commit() {
    let (_database, first, second) = two();
    run(&first, &["CREATE TABLE u (n INTEGER)"]);
    for session in [&first, &second] {
        run(session, &["BEGIN ISOLATION LEVEL SERIALIZABLE"]);
    }
    run(&first, &["INSERT INTO u VALUES (1)"]);
    run(&second, &["INSERT INTO u VALUES (2)"]);
    run(&first, &["COMMIT"]);
    run(&second, &["COMMIT"]);
    run(&first, &["BEGIN ISOLATION LEVEL SERIALIZABLE"]);
    check(&first, "SELECT count(*) FROM u", &["2"]);
    run(&second, &["DELETE FROM u"]);
    check(&first, "SELECT count(*) FROM u", &["2"]);
    run(&first, &["COMMIT"]);
    // What is counted without being scanned was read as well.
    run(&first, &["BEGIN ISOLATION LEVEL SERIALIZABLE"]);
    check(&first, "SELECT count(*) FROM u", &["0"]);
    run(&second, &["INSERT INTO u VALUES (3)"]);
    run(&first, &["INSERT INTO t VALUES (9, 9)"]);
    check_conflict(&first, "COMMIT", "table u, which this transaction has read,");
}

#[test]
fn keys_parents_and_tables_of_others_are_conflicts() {
    let (_database, first, second) = two();
    run(&first, &["CREATE TABLE c (k INTEGER REFERENCES t (k))"]);
    run(&first, &["BEGIN", "INSERT INTO t VALUES (7, 70)"]);
    run(&second, &["INSERT INTO t VALUES (7, 77)"]);
    check_conflict(&first, "COMMIT", "a key of t_pkey in table t was taken");
    run(&first, &["BEGIN", "INSERT INTO c VALUES (7)"]);
    run(&second, &["DELETE FROM t WHERE k = 7"]);
    check_conflict(&first, "COMMIT", "a row of table t that c_k_fkey needs was deleted");
    run(&first, &["BEGIN", "INSERT INTO c VALUES (1)"]);
    run(&second, &["DROP TABLE c"]);
    check_conflict(&first, "COMMIT", "table c was dropped");
    run(&first, &["BEGIN", "CREATE TABLE n (a INTEGER)", "CREATE VIEW w AS SELECT a FROM n"]);
    run(&second, &["CREATE VIEW w AS SELECT 1 AS a"]);
    check_conflict(&first, "COMMIT", "view w was created");
    check_error(&first, "SELECT * FROM n", ErrorKind::Semantic);
    check(&first, "SELECT a FROM w", &["1"]);
}

#[test]
fn a_failed_transaction_is_told_of_until_it_is_rolled_back() {
    let (_database, first, _) = two();
    assert_eq!(first.transaction_status(), TransactionStatus::Idle);
    check_error(&first, "COMMIT", ErrorKind::NoActiveTransaction);
    run(&first, &["BEGIN"]);
    assert_eq!(first.transaction_status(), TransactionStatus::InTransaction);
    run(&first, &["DELETE FROM t"]);
    check_error(&first, "SELECT nothing FROM t", ErrorKind::Semantic);
    assert_eq!(first.transaction_status(), TransactionStatus::Failed);
    check_error(&first, "SELECT 1", ErrorKind::TransactionAborted);
    check_error(&first, "SET batch_size = 100", ErrorKind::TransactionAborted);
    // Names are still completed.
    assert_eq!(first.tables(), ["t"]);
    run(&first, &["COMMIT"]);
    assert_eq!(first.transaction_status(), TransactionStatus::Idle);
    check(&first, "SELECT count(*) FROM t", &["3"]);
    run(&first, &["BEGIN READ ONLY"]);
    check_error(&first, "DELETE FROM t WHERE false", ErrorKind::ReadOnlyTransaction);
    check_error(&first, "ROLLBACK TO s", ErrorKind::NoSavepoint);
    first.roll_back();
    assert_eq!(first.transaction_status(), TransactionStatus::Idle);
    run(&first, &["PREPARE e AS COMMIT", "BEGIN", "DELETE FROM t WHERE k = 1", "EXECUTE e"]);
    assert_eq!(first.transaction_status(), TransactionStatus::Idle);
    check(&first, "SELECT count(*) FROM t", &["2"]);
}

#[test]
fn a_statement_that_is_cancelled_fails_its_transaction_and_one_that_is_dropped_does_not() {
    let (_database, first, second) = two();
    const LONG: &str = "SELECT value FROM generate_series(1, 100000000) AS g(value)";
    run(&first, &["BEGIN", "INSERT INTO t VALUES (4, 40)"]);
    let mut result = first.query(LONG).unwrap();
    assert!(result.next_batch().unwrap().is_some());
    drop(result);
    assert_eq!(first.transaction_status(), TransactionStatus::InTransaction);
    check(&first, "SELECT count(*) FROM t", &["4"]);
    let mut result = first.query(LONG).unwrap();
    assert!(result.next_batch().unwrap().is_some());
    first.cancel();
    drop(result);
    check_error(&first, "SELECT 1", ErrorKind::TransactionAborted);
    run(&first, &["ROLLBACK"]);
    check(&second, "SELECT count(*) FROM t", &["3"]);
}

#[test]
fn a_result_that_is_read_after_its_transaction_is_whole() {
    let (_database, first, _) = two();
    run(&first, &["BEGIN", "INSERT INTO t SELECT i, i FROM generate_series(10, 200000) AS g(i)"]);
    run(&first, &["DELETE FROM t WHERE k % 2 = 0"]);
    let read = |end: &str| {
        let mut result = first.query("SELECT k FROM t").unwrap();
        let mut rows = result.next_batch().unwrap().unwrap().num_rows();
        run(&first, &[end, "DELETE FROM t WHERE k > 100"]);
        while let Some(batch) = result.next_batch().unwrap() {
            rows += batch.num_rows();
        }
        rows
    };
    assert_eq!(read("COMMIT"), 99_997);
    check(&first, "SELECT count(*) FROM t", &["47"]);
}

#[test]
fn a_transaction_goes_with_its_session_and_with_a_closed_database() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Database::open(directory.path(), &DatabaseOptions::default()).unwrap();
    let database = open();
    let first = database.session().unwrap();
    run(&first, &["CREATE TABLE t (n INTEGER)", "INSERT INTO t VALUES (1)"]);
    run(&first, &["BEGIN", "INSERT INTO t SELECT i FROM generate_series(2, 100000) AS g(i)"]);
    drop(first);
    let second = database.session().unwrap();
    check(&second, "SELECT count(*) FROM t", &["1"]);
    run(&second, &["BEGIN", "INSERT INTO t VALUES (2)", "COMMIT", "BEGIN", "DELETE FROM t"]);
    drop((second, database));
    let database = open();
    let session = database.session().unwrap();
    check(&session, "SELECT n FROM t ORDER BY n", &["1", "2"]);
}

/// A bank in the memory of the test.
type Accounts = BTreeMap<i64, i64>;

/// Transfers between accounts, in transactions beside each other, with a model of the accounts as the commits left them.
fn check_transfers(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let database = database();
    let sessions: Vec<Session> = (0..3).map(|_| database.session().unwrap()).collect();
    run(&sessions[0], &["CREATE TABLE a (id INTEGER PRIMARY KEY, amount INTEGER)"]);
    run(&sessions[0], &["INSERT INTO a SELECT i, 100 FROM generate_series(1, 8) AS g(i)"]);
    let mut accounts: Accounts = (1..=8).map(|id| (id, 100)).collect();
    // What each transaction began with, what it sees, and the accounts that it has changed.
    let mut running: Vec<Option<(Accounts, Accounts, Vec<i64>)>> = vec![None; sessions.len()];
    let mut conflicts = 0;
    for _ in 0..80 {
        let number = random.usize(..sessions.len());
        let session = &sessions[number];
        let Some((began_with, seen, changed)) = &mut running[number] else {
            run(session, &["BEGIN"]);
            running[number] = Some((accounts.clone(), accounts.clone(), Vec::new()));
            continue;
        };
        let all = |accounts: &Accounts| -> Vec<String> {
            accounts.iter().map(|(id, amount)| format!("{id} {amount}")).collect()
        };
        match random.u8(..6) {
            0..=2 => {
                let (from, to, amount) = (random.i64(1..=8), random.i64(1..=8), random.i64(1..50));
                for (id, change) in [(from, -amount), (to, amount)] {
                    let sql = format!("UPDATE a SET amount = amount + {change} WHERE id = {id}");
                    run(session, &[&sql]);
                    *seen.get_mut(&id).unwrap() += change;
                    changed.push(id);
                }
            }
            3 => check_rows(session, &all(seen), seed),
            4 => {
                run(session, &["ROLLBACK"]);
                running[number] = None;
            }
            _ => {
                let is_conflict = changed.iter().any(|id| began_with[id] != accounts[id]);
                match session.execute("COMMIT") {
                    Ok(_) => {
                        assert!(!is_conflict, "seed {seed}: an update is lost");
                        for id in changed.iter() {
                            accounts.insert(*id, seen[id]);
                        }
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Conflict, "seed {seed}: {error}");
                        conflicts += 1;
                    }
                }
                running[number] = None;
                let other = database.session().unwrap();
                check_rows(&other, &all(&accounts), seed);
                check(&other, "SELECT sum(amount) FROM a", &["800"]);
            }
        }
    }
    println!("seed {seed}: {conflicts} conflicts");
}

fn check_rows(session: &Session, expected: &[String], seed: u64) {
    let found = rows(session, "SELECT id, amount FROM a ORDER BY id");
    assert_eq!(found, expected, "seed {seed}");
}

#[test]
fn transfers_between_accounts_keep_the_sum() {
    for seed in [7, fastrand::u64(..)] {
        check_transfers(seed);
    }
}

/// Withdrawals from either of two accounts, each as long as both together permit it, in transactions beside each other; returns
/// the least that both had together.
fn least_of_both(level: &str, seed: u64) -> i64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let database = database();
    let sessions: Vec<Session> = (0..3).map(|_| database.session().unwrap()).collect();
    run(&sessions[0], &["CREATE TABLE a (v INTEGER)", "INSERT INTO a VALUES (50)"]);
    run(&sessions[0], &["CREATE TABLE b (v INTEGER)", "INSERT INTO b VALUES (50)"]);
    let both = |session: &Session| -> i64 {
        rows(session, "SELECT (SELECT v FROM a) + (SELECT v FROM b)")[0].parse().unwrap()
    };
    let mut least = 100;
    let mut seen: Vec<Option<i64>> = vec![None; sessions.len()];
    for _ in 0..60 {
        let number = random.usize(..sessions.len());
        let session = &sessions[number];
        match seen[number].take() {
            None => {
                run(session, &[&format!("BEGIN ISOLATION LEVEL {level}")]);
                seen[number] = Some(both(session));
            }
            Some(there) => {
                let table = ["a", "b"][random.usize(..2)];
                let change = if there >= 60 { -60 } else { 30 };
                run(session, &[&format!("UPDATE {table} SET v = v + {change}")]);
                match session.execute("COMMIT") {
                    Ok(_) => {}
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
                }
                let other = database.session().unwrap();
                least = least.min(both(&other));
            }
        }
    }
    least
}

#[test]
fn serializable_transactions_keep_what_each_of_them_keeps() {
    let first = fastrand::u64(..);
    for seed in [first, first.wrapping_add(1), first.wrapping_add(2)] {
        let least = least_of_both("SERIALIZABLE", seed);
        assert!(least >= 0, "seed {seed}: {least}");
    }
    let skewed = (0..10).any(|seed| least_of_both("REPEATABLE READ", seed) < 0);
    assert!(skewed, "snapshots alone do not keep it");
}
