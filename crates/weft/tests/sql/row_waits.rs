//! Sessions whose statements wait for rows that other transactions have changed, as those of PostgreSQL do.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::support::{check, check_error, database, rows};
use weft::{Database, ErrorKind, Session, TransactionStatus};

/// How long a statement that does not wait may take at most.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a statement is seen to wait.
const WAITS: Duration = Duration::from_millis(100);

/// A database with a table of keys and values, and sessions that wait for rows.
fn waiting(count: usize) -> (Database, Vec<Session>) {
    let database = database();
    let sessions: Vec<Session> = (0..count).map(|_| database.session().unwrap()).collect();
    sessions.iter().for_each(Session::wait_for_rows);
    sessions[0].execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v INTEGER)").unwrap();
    sessions[0].execute("INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)").unwrap();
    (database, sessions)
}

fn run(session: &Session, statements: &[&str]) {
    for sql in statements {
        session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// A statement on its way on another thread: its outcome, and the kind of its error.
struct Waiting(mpsc::Receiver<Result<u64, ErrorKind>>);

impl Waiting {
    fn new(session: &Session, sql: &str) -> Waiting {
        let (sender, receiver) = mpsc::channel();
        let (session, sql) = (session.clone(), sql.to_owned());
        std::thread::spawn(move || {
            let done = session.execute(&sql);
            sender.send(done.map_err(|error| error.kind())).ok();
        });
        Waiting(receiver)
    }

    /// Checks that the statement has not ended.
    fn waits(self) -> Waiting {
        let early = self.0.recv_timeout(WAITS);
        assert!(early.is_err(), "the statement has not waited: {early:?}");
        self
    }

    fn outcome(self) -> Result<u64, ErrorKind> {
        self.0.recv_timeout(PATIENCE).expect("the statement ends")
    }
}

/// Waits until a statement waits for rows or keys.
fn until_one_waits(session: &Session) {
    let waits = "SELECT count(*) > 0 FROM weft_locks WHERE NOT granted";
    let end = Instant::now() + PATIENCE;
    while rows(session, waits) != ["true"] {
        assert!(Instant::now() < end, "no statement waits");
        std::thread::yield_now();
    }
}

#[test]
fn statements_see_what_is_committed_when_they_begin() {
    let (_database, sessions) = waiting(2);
    let [first, second] = &sessions[..] else { unreachable!() };
    run(first, &["BEGIN"]);
    check(first, "SELECT sum(v) FROM t", &["60"]);
    run(second, &["UPDATE t SET v = 11 WHERE k = 1"]);
    check(first, "SELECT sum(v) FROM t", &["61"]);
    check(first, "SELECT v FROM t WHERE k = 1", &["11"]);
    // Beside what it has changed itself.
    run(first, &["UPDATE t SET v = 21 WHERE k = 2", "INSERT INTO t VALUES (4, 40)", "SAVEPOINT s"]);
    run(first, &["DELETE FROM t WHERE k = 4", "INSERT INTO t VALUES (5, 50)"]);
    run(second, &["UPDATE t SET v = 12 WHERE k = 1", "INSERT INTO t VALUES (6, 60)"]);
    check(first, "SELECT k, v FROM t ORDER BY k", &["1 12", "2 21", "3 30", "5 50", "6 60"]);
    check(second, "SELECT k, v FROM t ORDER BY k", &["1 12", "2 20", "3 30", "6 60"]);
    check(first, "SELECT v FROM t WHERE k = 5", &["50"]);
    run(second, &["DELETE FROM t WHERE k = 3"]);
    run(first, &["ROLLBACK TO s"]);
    check(first, "SELECT k, v FROM t ORDER BY k", &["1 12", "2 21", "4 40", "6 60"]);
    run(first, &["COMMIT"]);
    check(second, "SELECT k, v FROM t ORDER BY k", &["1 12", "2 21", "4 40", "6 60"]);
    // One snapshot, where that is asked for.
    run(first, &["BEGIN ISOLATION LEVEL REPEATABLE READ"]);
    check(first, "SELECT v FROM t WHERE k = 1", &["12"]);
    run(second, &["UPDATE t SET v = 13 WHERE k = 1"]);
    check(first, "SELECT v FROM t WHERE k = 1", &["12"]);
    run(first, &["COMMIT"]);
}

#[test]
fn a_transaction_sees_changes_that_it_has_not_applied_yet() {
    let (_database, sessions) = waiting(2);
    let [first, second] = &sessions[..] else { unreachable!() };
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        run(first, &["UPDATE t SET v = 10 WHERE k = 1", &format!("BEGIN ISOLATION LEVEL {level}")]);
        run(first, &["UPDATE t SET v = v + 1 WHERE k = 1"]);
        check(first, "SELECT v FROM t WHERE k = 1", &["11"]);
        check(first, "SELECT v FROM t WHERE k = 2", &["20"]);
        check(second, "SELECT v FROM t WHERE k = 1", &["10"]);
        run(first, &["INSERT INTO t VALUES (7, 70)"]);
        check(first, "SELECT v FROM t WHERE k = 7", &["70"]);
        check(first, "SELECT count(*), sum(v) FROM t", &["4 131"]);
        run(first, &["UPDATE t SET k = 8 WHERE k = 7"]);
        check(first, "SELECT v FROM t WHERE k = 7", &[]);
        check(first, "SELECT v FROM t WHERE k = 8", &["70"]);
        run(first, &["DELETE FROM t WHERE k = 3"]);
        check(first, "SELECT v FROM t WHERE k = 3", &[]);
        run(first, &["INSERT INTO t VALUES (3, 30)", "DELETE FROM t WHERE k = 8", "SAVEPOINT s"]);
        check(second, "SELECT v FROM t WHERE k = 3", &["30"]);
        check_error(first, "INSERT INTO t VALUES (1, 0)", ErrorKind::UniqueViolation);
        run(first, &["ROLLBACK TO s", "UPDATE t SET v = v + 1 WHERE k = 1"]);
        run(first, &["UPDATE t SET v = v + 1 WHERE k = 1"]);
        check(first, "SELECT k, v FROM t ORDER BY k", &["1 13", "2 20", "3 30"]);
        run(first, &["COMMIT"]);
        check(second, "SELECT k, v FROM t ORDER BY k", &["1 13", "2 20", "3 30"]);
    }
    // Nothing is left of a transaction that is rolled back.
    run(first, &["BEGIN", "UPDATE t SET v = 0 WHERE k = 1", "ROLLBACK"]);
    check(first, "SELECT v FROM t WHERE k = 1", &["13"]);
}

#[test]
fn a_statement_waits_for_a_row_and_sees_what_has_become_of_it() {
    let (_database, sessions) = waiting(2);
    let [first, second] = &sessions[..] else { unreachable!() };
    let updates = [
        "UPDATE t SET v = v + 1 WHERE k = 1",
        "UPDATE t SET v = v + 1 WHERE v BETWEEN 1 AND 19",
        "INSERT INTO t VALUES (1, 0) ON CONFLICT (k) DO UPDATE SET v = t.v + 1",
    ];
    for sql in updates {
        for within in [false, true] {
            run(
                first,
                &["UPDATE t SET v = 10 WHERE k = 1", "BEGIN", "UPDATE t SET v = 15 WHERE k = 1"],
            );
            if within {
                run(second, &["BEGIN"]);
            }
            // Another row is not waited for.
            run(second, &["UPDATE t SET v = 20 WHERE k = 2"]);
            let update = Waiting::new(second, sql).waits();
            run(first, &["COMMIT"]);
            assert_eq!(update.outcome(), Ok(1), "{sql}");
            if within {
                run(second, &["COMMIT"]);
            }
            check(first, "SELECT v FROM t WHERE k = 1", &["16"]);
        }
    }
    // Of a transaction that is rolled back nothing has become.
    run(first, &["BEGIN", "DELETE FROM t WHERE k = 1"]);
    let update = Waiting::new(second, updates[0]).waits();
    run(first, &["ROLLBACK"]);
    assert_eq!(update.outcome(), Ok(1));
    check(first, "SELECT v FROM t WHERE k = 1", &["17"]);
    // A row that is gone is not updated.
    run(first, &["BEGIN", "DELETE FROM t WHERE k = 1"]);
    let update = Waiting::new(second, updates[0]).waits();
    run(first, &["COMMIT"]);
    assert_eq!(update.outcome(), Ok(0));
}

#[test]
fn rows_that_are_read_for_update_are_waited_for() {
    let (database, sessions) = waiting(2);
    let [first, second] = &sessions[..] else { unreachable!() };
    for sql in [
        "SELECT v FROM t WHERE k = 1 FOR UPDATE",
        "SELECT a.v FROM t AS a WHERE a.k < 2 ORDER BY a.k LIMIT 1 FOR SHARE",
    ] {
        run(second, &["UPDATE t SET v = 10 WHERE k = 1"]);
        run(first, &["BEGIN"]);
        check(first, sql, &["10"]);
        let update = Waiting::new(second, "UPDATE t SET v = v + 1 WHERE k = 1").waits();
        run(first, &["UPDATE t SET v = 15 WHERE k = 1", "COMMIT"]);
        assert_eq!(update.outcome(), Ok(1));
        // Nothing is held outside of a transaction.
        check(first, sql, &["16"]);
        run(second, &["UPDATE t SET v = 17 WHERE k = 1"]);
    }
    run(first, &["BEGIN READ ONLY"]);
    check_error(first, "SELECT v FROM t FOR UPDATE", ErrorKind::ReadOnlyTransaction);
    run(first, &["ROLLBACK"]);
    // Without waits, the first one to commit wins.
    let alone = database.session().unwrap();
    run(&alone, &["BEGIN"]);
    check(&alone, "SELECT v FROM t WHERE k = 1 FOR UPDATE", &["17"]);
    run(second, &["UPDATE t SET v = 18 WHERE k = 1"]);
    check_error(&alone, "COMMIT", ErrorKind::Conflict);
}

#[test]
fn only_what_is_returned_is_locked() {
    let (_database, sessions) = waiting(2);
    let [first, second] = &sessions[..] else { unreachable!() };
    for (sql, rows) in [
        ("SELECT k FROM t ORDER BY k LIMIT 1 FOR UPDATE", vec!["1"]),
        ("SELECT -k AS n, v FROM t ORDER BY n DESC LIMIT 1 FOR UPDATE", vec!["-1 10"]),
        ("SELECT v, k FROM t ORDER BY 2 LIMIT 1 FOR NO KEY UPDATE", vec!["10 1"]),
        ("SELECT t.* FROM t WHERE k < 3 ORDER BY v LIMIT 2 - 1 FOR UPDATE", vec!["1 10"]),
        ("SELECT k FROM t ORDER BY k DESC LIMIT 1 OFFSET 2 FOR UPDATE OF t", vec!["1"]),
    ] {
        run(first, &["BEGIN"]);
        check(first, sql, &rows);
        check_error(
            second,
            "SELECT v FROM t WHERE k = 1 FOR UPDATE NOWAIT",
            ErrorKind::LockNotAvailable,
        );
        // OFFSET has read the others.
        if !sql.contains("OFFSET") {
            run(second, &["UPDATE t SET v = 20 WHERE k = 2", "UPDATE t SET v = 30 WHERE k = 3"]);
        }
        run(first, &["ROLLBACK"]);
    }
    // A row that is gone is made up for by the next one.
    run(first, &["BEGIN", "DELETE FROM t WHERE k = 1"]);
    let select =
        Waiting::new(second, "CREATE TABLE found AS SELECT k FROM t ORDER BY k LIMIT 1 FOR UPDATE");
    let select = select.waits();
    run(first, &["COMMIT"]);
    assert_eq!(select.outcome(), Ok(1));
    check(second, "SELECT k FROM found", &["2"]);
}

#[test]
fn locked_rows_are_errors_or_passed_over() {
    let (_database, sessions) = waiting(3);
    let [first, second, third] = &sessions[..] else { unreachable!() };
    run(first, &["BEGIN", "UPDATE t SET v = 11 WHERE k = 1"]);
    run(second, &["BEGIN"]);
    let sql = "SELECT v FROM t WHERE k = 1 FOR UPDATE NOWAIT";
    let error = check_error(second, sql, ErrorKind::LockNotAvailable);
    assert_eq!(error.sqlstate(), "55P03");
    assert_eq!(error.message(), "could not obtain lock on row in relation \"t\"");
    run(second, &["ROLLBACK", "BEGIN"]);
    check(second, "SELECT k FROM t ORDER BY k LIMIT 1 FOR UPDATE SKIP LOCKED", &["2"]);
    // Again, as they are its own.
    check(second, "SELECT k FROM t ORDER BY k LIMIT 1 FOR UPDATE SKIP LOCKED", &["2"]);
    check(third, "SELECT k FROM t ORDER BY k FOR SHARE SKIP LOCKED", &["3"]);
    check(third, "SELECT k FROM t ORDER BY k LIMIT 1 OFFSET 1 FOR UPDATE SKIP LOCKED", &[]);
    run(first, &["COMMIT"]);
    check(third, "SELECT k, v FROM t ORDER BY k FOR UPDATE SKIP LOCKED", &["1 11", "3 30"]);
    run(second, &["ROLLBACK"]);
    // Rows that several transactions only read.
    run(first, &["BEGIN"]);
    check(first, "SELECT v FROM t WHERE k = 1 FOR SHARE", &["11"]);
    run(second, &["BEGIN"]);
    check(second, "SELECT v FROM t WHERE k = 1 FOR KEY SHARE NOWAIT", &["11"]);
    let update = Waiting::new(third, "UPDATE t SET v = 5 WHERE k = 1").waits();
    run(first, &["COMMIT"]);
    let update = update.waits();
    run(second, &["COMMIT"]);
    assert_eq!(update.outcome(), Ok(1));
}

#[test]
fn each_row_of_a_queue_is_taken_once() {
    const WORKERS: usize = 4;
    const ROWS: usize = 60;
    let (_database, sessions) = waiting(WORKERS);
    run(&sessions[0], &["CREATE TABLE q (id INTEGER PRIMARY KEY, state VARCHAR)"]);
    let fill = format!("INSERT INTO q SELECT i, 'new' FROM generate_series(1, {ROWS}) AS s(i)");
    run(&sessions[0], &[fill.as_str(), "CREATE TABLE taken (id INTEGER)"]);
    let next = "(SELECT id FROM q WHERE state = 'new' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)";
    let taken: Vec<u64> = std::thread::scope(|scope| {
        let workers: Vec<_> = sessions
            .iter()
            .enumerate()
            .map(|(number, session)| {
                scope.spawn(move || {
                    let change = match number % 2 {
                        0 => format!("UPDATE q SET state = 'done' WHERE id IN {next}"),
                        _ => format!("WITH n AS {next} DELETE FROM q USING n WHERE q.id = n.id"),
                    };
                    let mut taken = 0;
                    loop {
                        let within = number >= 2;
                        if within {
                            session.execute("BEGIN").unwrap();
                        }
                        let count = session.execute(&change).unwrap();
                        if within {
                            session.execute("COMMIT").unwrap();
                        }
                        taken += count;
                        // Others may have what is left, and give it back.
                        if count == 0 && left(session) == 0 {
                            return taken;
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    assert_eq!(taken.iter().sum::<u64>(), ROWS as u64, "{taken:?}");
    let of_updates = taken.iter().step_by(2).sum::<u64>().to_string();
    check(&sessions[0], "SELECT count(*) FROM q WHERE state = 'done'", &[of_updates.as_str()]);
}

/// Rows of the queue that nobody has taken.
fn left(session: &Session) -> u64 {
    let found = rows(session, "SELECT count(*) FROM q WHERE state = 'new'");
    found[0].parse().unwrap()
}

#[test]
fn rows_of_joins_are_locked() {
    let (_database, sessions) = waiting(2);
    let [first, second] = &sessions[..] else { unreachable!() };
    run(first, &["CREATE TABLE u (k INTEGER PRIMARY KEY, w VARCHAR)"]);
    run(first, &["INSERT INTO u VALUES (1, 'a'), (2, 'b')"]);
    let is_locked = |sql: &str, locked: bool| match locked {
        true => drop(check_error(
            second,
            &format!("{sql} FOR UPDATE NOWAIT"),
            ErrorKind::LockNotAvailable,
        )),
        false => run(second, &[format!("{sql} FOR UPDATE NOWAIT").as_str()]),
    };
    let join = "FROM t JOIN u USING (k) WHERE u.w = 'a'";
    for (sql, rows, locked) in [
        (format!("SELECT k, v, w {join} FOR UPDATE"), vec!["1 10 a"], [true, true]),
        (format!("SELECT v, w {join} FOR SHARE OF u"), vec!["10 a"], [false, true]),
        (format!("SELECT * {join} FOR UPDATE OF t, u SKIP LOCKED"), vec!["1 10 a"], [true, true]),
        (
            "SELECT x.k, y.k FROM t AS x, t AS y WHERE x.k = 1 AND y.k = 2 FOR UPDATE OF x"
                .to_owned(),
            vec!["1 2"],
            [true, false],
        ),
        (
            "SELECT t.k, w FROM t LEFT JOIN u ON u.k = t.k + 2 WHERE t.k = 1 FOR UPDATE".to_owned(),
            vec!["1 NULL"],
            [true, false],
        ),
        (
            "SELECT k FROM t WHERE k IN (SELECT k FROM u WHERE w = 'a' FOR UPDATE)".to_owned(),
            vec!["1"],
            [false, true],
        ),
    ] {
        run(first, &["BEGIN"]);
        check(first, &sql, &rows);
        is_locked("SELECT v FROM t WHERE k = 1", locked[0]);
        is_locked("SELECT w FROM u WHERE k = 1", locked[1]);
        is_locked("SELECT v FROM t WHERE k = 2", false);
        run(first, &["ROLLBACK"]);
    }
    let refused = [
        ("SELECT count(*) FROM t FOR UPDATE", "aggregate functions"),
        ("SELECT row_number() OVER () FROM t FOR UPDATE", "window functions"),
        ("SELECT DISTINCT v FROM t FOR UPDATE", "DISTINCT"),
        ("SELECT v FROM t GROUP BY v FOR UPDATE", "GROUP BY"),
        ("SELECT v FROM t UNION SELECT v FROM t FOR UPDATE", "UNION"),
        ("SELECT v FROM (SELECT v FROM t) AS s FOR UPDATE", "subquery"),
    ];
    for (sql, what) in refused {
        let error = check_error(first, sql, ErrorKind::NotSupported);
        assert!(error.message().contains(what), "{error}");
    }
    check_error(first, "SELECT v FROM t FOR UPDATE OF x", ErrorKind::Semantic);
    run(first, &["CREATE VIEW w AS SELECT * FROM t"]);
    check_error(first, "SELECT v FROM w FOR UPDATE", ErrorKind::Semantic);
    // What EXPLAIN tells of is not locked.
    run(first, &["BEGIN", "EXPLAIN SELECT v FROM t FOR UPDATE"]);
    is_locked("SELECT v FROM t", false);
    run(first, &["ROLLBACK"]);
}

#[test]
fn sessions_that_do_not_wait_pass_over_locked_rows() {
    let (database, sessions) = waiting(1);
    let alone: Vec<Session> = (0..2).map(|_| database.session().unwrap()).collect();
    let [first, second] = &alone[..] else { unreachable!() };
    run(first, &["BEGIN"]);
    check(first, "SELECT k FROM t ORDER BY k LIMIT 1 FOR UPDATE SKIP LOCKED", &["1"]);
    check(second, "SELECT k FROM t ORDER BY k LIMIT 1 FOR UPDATE SKIP LOCKED", &["2"]);
    check_error(second, "SELECT k FROM t FOR UPDATE NOWAIT", ErrorKind::LockNotAvailable);
    // A plain one waits for nobody: the first one to commit wins.
    run(second, &["BEGIN"]);
    check(second, "SELECT k FROM t ORDER BY k LIMIT 1 FOR UPDATE", &["1"]);
    run(first, &["UPDATE t SET v = 11 WHERE k = 1", "COMMIT"]);
    check_error(second, "COMMIT", ErrorKind::Conflict);
    check(&sessions[0], "SELECT v FROM t WHERE k = 1", &["11"]);
}

#[test]
fn who_waits_for_whom_is_shown() {
    let (_database, sessions) = waiting(2);
    let [first, second] = &sessions[..] else { unreachable!() };
    check(first, "SELECT * FROM weft_locks", &[]);
    run(first, &["BEGIN", "UPDATE t SET v = 1 WHERE k < 3", "INSERT INTO t VALUES (9, 1)"]);
    run(second, &["BEGIN"]);
    check(second, "SELECT k FROM t WHERE k = 3 FOR SHARE", &["3"]);
    let held = "SELECT table_name, lock, count, granted FROM weft_locks WHERE granted ORDER BY transaction, lock";
    let rows = ["t keys 1 true", "t rows for update 2 true", "t rows for share 1 true"];
    check(first, held, &rows);
    let update = Waiting::new(second, "UPDATE t SET v = 2 WHERE k = 1");
    until_one_waits(first);
    let pid = std::process::id();
    let waits = format!("{pid} t waits NULL false {pid}");
    let sql = "SELECT pid, table_name, lock, count, granted, blocked_by FROM weft_locks WHERE NOT granted";
    check(first, sql, &[waits.as_str()]);
    let by = "SELECT pg_blocking_pids(pg_backend_pid())[1] = pg_backend_pid()";
    check(first, by, &["true"]);
    let of_postgres =
        "SELECT locktype, mode, granted FROM pg_locks ORDER BY transactionid, pid, granted, mode";
    check(
        first,
        of_postgres,
        &[
            "relation RowExclusiveLock true",
            "relation RowShareLock true",
            "transactionid ShareLock false",
            "transactionid ExclusiveLock true",
            "transactionid ExclusiveLock true",
        ],
    );
    run(first, &["ROLLBACK"]);
    assert_eq!(update.outcome(), Ok(1));
    run(second, &["ROLLBACK"]);
    check(first, "SELECT * FROM weft_locks", &[]);
}

#[test]
fn keys_that_others_have_inserted_are_waited_for() {
    let (_database, sessions) = waiting(2);
    let [first, second] = &sessions[..] else { unreachable!() };
    let plain = "INSERT INTO t VALUES (9, 2)";
    let nothing = "INSERT INTO t VALUES (9, 2) ON CONFLICT DO NOTHING";
    let update = "INSERT INTO t VALUES (9, 2) ON CONFLICT (k) DO UPDATE SET v = t.v + 10";
    let several = "INSERT INTO t SELECT i, 2 FROM generate_series(9, 10) AS s(i)";
    let taken = Err(ErrorKind::UniqueViolation);
    for (sql, committed, value) in [
        (plain, taken, "1"),
        (nothing, Ok(0), "1"),
        (update, Ok(1), "11"),
        (several, taken, "1"),
        ("UPDATE t SET k = 9, v = 2 WHERE k = 3", taken, "1"),
    ] {
        for within in [false, true] {
            for commits in [true, false] {
                run(first, &["BEGIN", "INSERT INTO t VALUES (9, 1)"]);
                if within {
                    run(second, &["BEGIN"]);
                }
                let insert = Waiting::new(second, sql).waits();
                run(first, &[if commits { "COMMIT" } else { "ROLLBACK" }]);
                let expected = match commits {
                    true => committed,
                    false => Ok(if sql == several { 2 } else { 1 }),
                };
                assert_eq!(insert.outcome(), expected, "{sql} {within} {commits}");
                if within {
                    run(second, &["COMMIT"]);
                }
                let value = if commits { value } else { "2" };
                check(first, "SELECT v FROM t WHERE k = 9", &[value]);
                run(first, &["DELETE FROM t", "INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)"]);
            }
        }
    }
    // Another key is not waited for.
    run(first, &["BEGIN", "INSERT INTO t VALUES (9, 1)"]);
    run(second, &["INSERT INTO t VALUES (10, 1)"]);
    run(first, &["ROLLBACK"]);
    // A row that another one has deleted has its key until that one has ended.
    for (end, outcome) in [("COMMIT", Ok(1)), ("ROLLBACK", taken)] {
        run(first, &["BEGIN", "DELETE FROM t WHERE k = 1"]);
        let insert = Waiting::new(second, "INSERT INTO t VALUES (1, 5)").waits();
        run(first, &[end]);
        assert_eq!(insert.outcome(), outcome);
    }
    // Its own is not.
    run(first, &["BEGIN", "DELETE FROM t WHERE k = 1", "INSERT INTO t VALUES (1, 6)", "COMMIT"]);
    check(first, "SELECT v FROM t WHERE k = 1", &["6"]);
}

#[test]
fn a_transaction_of_one_snapshot_is_told_of_keys_at_once() {
    let (_database, sessions) = waiting(2);
    let [first, second] = &sessions[..] else { unreachable!() };
    run(second, &["BEGIN ISOLATION LEVEL REPEATABLE READ"]);
    check(second, "SELECT count(*) FROM t", &["3"]);
    run(first, &["INSERT INTO t VALUES (9, 1)"]);
    check_error(second, "INSERT INTO t VALUES (9, 2)", ErrorKind::UniqueViolation);
    run(second, &["ROLLBACK", "BEGIN ISOLATION LEVEL REPEATABLE READ"]);
    check(second, "SELECT count(*) FROM t", &["4"]);
    run(first, &["INSERT INTO t VALUES (10, 1)"]);
    let sql = "INSERT INTO t VALUES (10, 2) ON CONFLICT DO NOTHING";
    check_error(second, sql, ErrorKind::Conflict);
    run(second, &["ROLLBACK"]);
}

#[test]
fn a_circle_of_keys_is_an_error_of_one_statement() {
    let (_database, sessions) = waiting(2);
    let [first, second] = &sessions[..] else { unreachable!() };
    run(first, &["BEGIN", "INSERT INTO t VALUES (8, 1)"]);
    run(second, &["BEGIN", "UPDATE t SET v = 2 WHERE k = 1"]);
    let update = Waiting::new(first, "UPDATE t SET v = 1 WHERE k = 1");
    until_one_waits(second);
    check_error(second, "INSERT INTO t VALUES (8, 2)", ErrorKind::Deadlock);
    run(second, &["ROLLBACK"]);
    assert_eq!(update.outcome(), Ok(1));
    run(first, &["COMMIT"]);
    check(second, "SELECT k, v FROM t WHERE k IN (1, 8) ORDER BY k", &["1 1", "8 1"]);
}

#[test]
fn a_transaction_of_one_snapshot_waits_and_fails() {
    let (_database, sessions) = waiting(2);
    let [first, second] = &sessions[..] else { unreachable!() };
    run(first, &["BEGIN", "UPDATE t SET v = 15 WHERE k = 1"]);
    run(second, &["BEGIN ISOLATION LEVEL REPEATABLE READ"]);
    let update = Waiting::new(second, "UPDATE t SET v = v + 1 WHERE k = 1").waits();
    run(first, &["COMMIT"]);
    assert_eq!(update.outcome(), Err(ErrorKind::Conflict));
    assert_eq!(second.transaction_status(), TransactionStatus::Failed);
    run(second, &["ROLLBACK", "BEGIN ISOLATION LEVEL SERIALIZABLE"]);
    check(second, "SELECT v FROM t WHERE k = 1", &["15"]);
    run(first, &["UPDATE t SET v = 16 WHERE k = 1"]);
    check_error(second, "UPDATE t SET v = 0 WHERE k = 1", ErrorKind::Conflict);
    run(second, &["ROLLBACK"]);
}

#[test]
fn a_circle_of_waits_is_an_error_of_one_statement() {
    let (_database, sessions) = waiting(2);
    let [first, second] = &sessions[..] else { unreachable!() };
    run(first, &["BEGIN", "UPDATE t SET v = 1 WHERE k = 1"]);
    run(second, &["BEGIN", "UPDATE t SET v = 2 WHERE k = 2"]);
    let updates = [
        (first, second, Waiting::new(first, "UPDATE t SET v = 1 WHERE k = 2")),
        (second, first, Waiting::new(second, "UPDATE t SET v = 2 WHERE k = 1")),
    ];
    // One of them closes the circle; the other one goes on when that one's transaction has ended.
    let closes = |(_, _, update): &&(_, _, Waiting)| match update.0.recv_timeout(WAITS) {
        Ok(outcome) => {
            assert_eq!(outcome, Err(ErrorKind::Deadlock));
            true
        }
        Err(_) => false,
    };
    let (loser, winner, _) = updates.iter().cycle().find(closes).unwrap();
    run(loser, &["ROLLBACK"]);
    let left = updates.iter().find(|(session, _, _)| std::ptr::eq(*session, *winner)).unwrap();
    assert_eq!(left.2.0.recv_timeout(PATIENCE).unwrap(), Ok(1));
    run(winner, &["COMMIT"]);
    let expected = match std::ptr::eq(*winner, first) {
        true => ["1 1", "2 1", "3 30"],
        false => ["1 2", "2 2", "3 30"],
    };
    check(loser, "SELECT k, v FROM t ORDER BY k", &expected);
}

#[test]
fn a_statement_that_waits_can_be_cancelled() {
    let (_database, sessions) = waiting(3);
    let [first, second, third] = &sessions[..] else { unreachable!() };
    run(first, &["BEGIN", "UPDATE t SET v = 1 WHERE k = 1"]);
    run(second, &["BEGIN"]);
    let update = Waiting::new(second, "UPDATE t SET v = 2 WHERE k = 1").waits();
    // The statement may not have begun on a busy machine.
    let outcome = loop {
        second.cancel();
        if let Ok(outcome) = update.0.recv_timeout(WAITS) {
            break outcome;
        }
    };
    assert_eq!(outcome, Err(ErrorKind::Cancelled));
    run(second, &["ROLLBACK"]);
    // A session that goes unlocks its rows.
    let update = Waiting::new(third, "UPDATE t SET v = v + 1 WHERE k = 1").waits();
    first.roll_back();
    assert_eq!(update.outcome(), Ok(1));
    check(second, "SELECT v FROM t WHERE k = 1", &["11"]);
}

#[test]
fn no_update_of_many_sessions_is_lost_and_none_fails() {
    const THREADS: usize = 6;
    const ROUNDS: usize = 15;
    let (_database, sessions) = waiting(THREADS);
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = sessions
            .iter()
            .enumerate()
            .map(|(number, session)| {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(number as u64);
                    let mut failures = Vec::new();
                    for _ in 0..ROUNDS {
                        let within = random.bool();
                        let own =
                            format!("INSERT INTO t VALUES ({}, 0)", random.u32(1_000..1_000_000));
                        let mut statements = vec![
                            "UPDATE t SET v = v + 1 WHERE k = 1",
                            "UPDATE t SET v = v + 1 WHERE k = 2",
                        ];
                        if within {
                            statements.insert(1, &own);
                            statements.insert(0, "BEGIN");
                            statements.push("COMMIT");
                        }
                        for sql in statements {
                            if let Err(error) = session.execute(sql) {
                                failures.push(format!("{sql}: {error}"));
                            }
                        }
                    }
                    failures
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "{failures:?}");
    let total = THREADS * ROUNDS;
    let expected = [format!("{} {}", 10 + total, 20 + total)];
    let sums = "SELECT (SELECT v FROM t WHERE k = 1), (SELECT v FROM t WHERE k = 2)";
    check(&sessions[0], sums, &[expected[0].as_str()]);
}
