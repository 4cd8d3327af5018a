//! What roles may do: kept plans of sessions that act for them, rights of other sessions and after a restart, and transactions.

use weft::{Database, DatabaseOptions, ErrorKind, Role, Session, Standing, Value};

fn options() -> DatabaseOptions {
    DatabaseOptions::default().with("memory_limit", "64MiB").with("threads", 2)
}

fn run(session: &Session, sql: &str) {
    session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Statements that the role of a session has no right to.
fn check_forbidden(session: &Session, sql: &str) {
    match session.execute(sql) {
        Ok(_) => panic!("{sql} was permitted"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Forbidden, "{sql}: {error}");
            assert_eq!(error.kind().sqlstate(), "42501");
        }
    }
}

/// A session of a database with a table, and one that has logged in as `ann`, who has no rights.
fn sessions() -> (Session, Session) {
    let database = Database::in_memory(&options()).unwrap();
    let (owner, ann) = (database.session().unwrap(), database.session().unwrap());
    run(&owner, "CREATE TABLE t (id INTEGER PRIMARY KEY, a INTEGER)");
    run(&owner, "INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)");
    run(&owner, "CREATE ROLE ann");
    ann.log_in("ann");
    (owner, ann)
}

#[test]
fn kept_plans_of_queries_look_at_rights() {
    let (owner, ann) = sessions();
    run(&owner, "GRANT SELECT ON t TO ann");
    let prepared = ann.prepare("SELECT a FROM t WHERE id = $1").unwrap();
    for _ in 0..4 {
        prepared.execute(&[Value::Integer(1)]).unwrap();
        run(&ann, "SELECT a FROM t WHERE id = 2");
    }
    assert!(ann.kept_statements() > 0);
    let error = |result: weft::Result<u64>| result.unwrap_err().kind();
    for again in 0..3 {
        run(&owner, "REVOKE SELECT ON t FROM ann");
        for _ in 0..3 {
            let found = prepared.execute(&[Value::Integer(again)]);
            assert_eq!(error(found), ErrorKind::Forbidden);
            check_forbidden(&ann, "SELECT a FROM t WHERE id = 2");
            check_forbidden(&ann, "SELECT a FROM t WHERE id = 77");
        }
        run(&owner, "GRANT SELECT ON t TO PUBLIC");
        prepared.execute(&[Value::Integer(again)]).unwrap();
        run(&ann, "SELECT a FROM t WHERE id = 2");
        run(&owner, "REVOKE SELECT ON t FROM PUBLIC");
        check_forbidden(&ann, "SELECT a FROM t WHERE id = 2");
        run(&owner, "GRANT SELECT ON t TO ann");
        run(&ann, "SELECT a FROM t WHERE id = 2");
    }
}

#[test]
fn kept_plans_of_changes_look_at_rights() {
    let (owner, ann) = sessions();
    run(&owner, "GRANT ALL ON t TO ann");
    let statements = [
        "UPDATE t SET a = 5 WHERE id = 1",
        "DELETE FROM t WHERE id = 99",
        "INSERT INTO t VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET a = excluded.a",
        "UPDATE t SET a = a + 1 WHERE id = 2 RETURNING a",
    ];
    for sql in statements {
        for _ in 0..4 {
            run(&ann, sql);
        }
    }
    assert!(ann.kept_statements() > 0);
    // Each of the rights that the first statement needs is looked for.
    for (sql, rights) in statements.iter().zip([
        ["UPDATE", "SELECT"].as_slice(),
        &["DELETE", "SELECT"],
        &["INSERT", "UPDATE", "SELECT"],
        &["UPDATE", "SELECT"],
    ]) {
        for right in rights {
            run(&owner, &format!("REVOKE {right} ON t FROM ann"));
            check_forbidden(&ann, sql);
            check_forbidden(&ann, sql);
            run(&owner, &format!("GRANT {right} ON t TO ann"));
            run(&ann, sql);
        }
    }
    let insert = ann.prepare("INSERT INTO t VALUES ($1, $2)").unwrap();
    for id in 100..105 {
        insert.execute(&[Value::Integer(id), Value::Integer(1)]).unwrap();
    }
    run(&owner, "REVOKE INSERT ON t FROM ann");
    let refused = insert.execute(&[Value::Integer(200), Value::Integer(1)]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Forbidden);
}

#[test]
fn kept_plans_of_a_session_are_not_those_of_another_role() {
    let (owner, _) = sessions();
    let sql = "SELECT a FROM t WHERE id = 3";
    for _ in 0..4 {
        run(&owner, sql);
    }
    run(&owner, "SET ROLE ann");
    check_forbidden(&owner, sql);
    check_forbidden(&owner, sql);
    run(&owner, "RESET ROLE");
    run(&owner, sql);
    // A role that is a superuser no more has lost what followed from that.
    run(&owner, "CREATE ROLE boss SUPERUSER");
    let boss = owner.database().session().unwrap();
    boss.log_in("boss");
    for _ in 0..4 {
        run(&boss, sql);
        run(&boss, "UPDATE t SET a = 4 WHERE id = 3");
    }
    run(&owner, "ALTER ROLE boss NOSUPERUSER");
    check_forbidden(&boss, sql);
    check_forbidden(&boss, "UPDATE t SET a = 4 WHERE id = 3");
    check_forbidden(&boss, "SELECT * FROM t");
}

#[test]
fn a_role_acts_for_those_that_it_is_a_member_of_alone() {
    let (owner, ann) = sessions();
    run(&owner, "CREATE ROLE team");
    run(&owner, "GRANT SELECT ON t TO team");
    check_forbidden(&ann, "SET ROLE team");
    check_forbidden(&ann, "SET ROLE weft");
    run(&owner, "GRANT team TO ann");
    run(&ann, "SELECT * FROM t");
    run(&ann, "SET ROLE team");
    run(&ann, "SELECT * FROM t");
    check_forbidden(&ann, "CREATE ROLE other");
    run(&ann, "RESET ROLE");
    run(&owner, "REVOKE team FROM ann");
    check_forbidden(&ann, "SELECT * FROM t");
}

#[test]
fn the_session_of_a_role_that_is_dropped_may_do_nothing() {
    let (owner, ann) = sessions();
    run(&owner, "GRANT SELECT ON t TO ann");
    run(&ann, "SELECT * FROM t");
    run(&owner, "DROP ROLE ann");
    check_forbidden(&ann, "SELECT * FROM t");
    check_forbidden(&ann, "CREATE TABLE u (a INTEGER)");
    // A role of the name that is made later has nothing of it.
    run(&owner, "CREATE ROLE ann");
    check_forbidden(&ann, "SELECT * FROM t");
}

#[test]
fn temporary_tables_are_those_of_their_session() {
    let (owner, ann) = sessions();
    run(&owner, "CREATE TEMP TABLE hidden AS SELECT * FROM t");
    run(&ann, "CREATE TEMP TABLE own (a INTEGER)");
    run(&ann, "INSERT INTO own VALUES (1)");
    run(&ann, "ALTER TABLE own ADD COLUMN b INTEGER");
    for number in 1..=2 {
        let sql = format!("SELECT * FROM weft_temp_{number}.hidden");
        let error = ann.execute(&sql).unwrap_err();
        let kinds = [ErrorKind::Forbidden, ErrorKind::Semantic];
        assert!(kinds.contains(&error.kind()), "{sql}: {error}");
    }
    run(&ann, "DROP TABLE own");
}

#[test]
fn rights_are_part_of_transactions() {
    let (owner, ann) = sessions();
    run(&owner, "BEGIN");
    run(&owner, "GRANT SELECT ON t TO ann");
    check_forbidden(&ann, "SELECT * FROM t");
    run(&owner, "COMMIT");
    run(&ann, "SELECT * FROM t");
    run(&owner, "BEGIN");
    run(&owner, "REVOKE SELECT ON t FROM ann");
    run(&owner, "ROLLBACK");
    run(&ann, "SELECT * FROM t");
    run(&ann, "BEGIN READ ONLY");
    let error = ann.execute("GRANT SELECT ON t TO PUBLIC");
    assert_eq!(error.unwrap_err().kind(), ErrorKind::ReadOnlyTransaction);
    run(&ann, "ROLLBACK");
}

#[test]
fn roles_and_rights_are_there_when_the_database_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let verifier = "SCRAM-SHA-256$4096:c2FsdA==$c3RvcmVk:c2VydmVy";
    {
        let database = Database::open(&path, &options()).unwrap();
        let session = database.session().unwrap();
        run(&session, "CREATE TABLE t (a INTEGER)");
        run(&session, "CREATE TABLE u (a INTEGER)");
        run(&session, &format!("CREATE ROLE ann PASSWORD '{verifier}'"));
        run(&session, "CREATE ROLE team");
        run(&session, "GRANT team TO ann");
        run(&session, "GRANT SELECT ON t TO team");
        run(&session, "ALTER TABLE u OWNER TO ann");
    }
    let database = Database::open(&path, &options()).unwrap();
    let kept = Role { standing: Standing::Restricted, verifier: Some(verifier.to_owned()) };
    assert_eq!(database.role("ann"), Some(kept));
    assert!(database.has_logins());
    let ann = database.session().unwrap();
    ann.log_in("ann");
    run(&ann, "SELECT * FROM t");
    run(&ann, "ALTER TABLE u ADD COLUMN b INTEGER");
    check_forbidden(&ann, "INSERT INTO t VALUES (1)");
}
