//! Handshakes, tokens, passwords, rights, and sessions that end.

use arrow_flight::Action;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use futures::stream;
use tonic::Code;

use super::*;

/// A server with the superuser `boss` and the role `ann`, whose passwords are their names' first letters, and a table.
fn server_with_roles() -> (Database, Server) {
    let (database, server) = server_with(10);
    let session = database.session().expect("a session");
    for sql in [
        "CREATE TABLE secret (i BIGINT)",
        "INSERT INTO secret VALUES (1)",
        "CREATE ROLE boss LOGIN SUPERUSER PASSWORD 'b'",
        "CREATE ROLE ann LOGIN PASSWORD 'a'",
    ] {
        session.execute(sql).expect(sql);
    }
    (database, server)
}

async fn log_in(server: &Server, user: &str, password: &str) -> Client {
    let mut client = connect(server).await;
    client.handshake(user, password).await.expect("the password is right");
    client
}

async fn user(client: &mut Client) -> String {
    texts(&query(client, "SELECT current_user").await.expect("it runs"))[0][0].clone()
}

#[test]
fn a_token_stands_for_the_password() {
    let (_database, server) = server_with_roles();
    block_on(async {
        let mut client = log_in(&server, "ann", "a").await;
        assert_eq!(user(&mut client).await, "ann");
        let token = client.token().expect("it was given").clone();
        // It holds on another connection, for the same session.
        let mut other = connect(&server).await;
        other.set_token(token.clone());
        let info = client.execute("SELECT 1".to_owned(), None).await.expect("it is described");
        assert_eq!(texts(&get(&mut other, &info).await.expect("it runs")), [["1"]]);
        for forged in ["", "x", &token[1..], &token.to_lowercase()] {
            other.set_token(forged.to_owned());
            assert_eq!(refused(query(&mut other, "SELECT 1").await).0, Code::Unauthenticated);
        }
        let close = Action { r#type: "CloseSession".to_owned(), body: Default::default() };
        client.do_action(close).await.expect("it is closed");
        assert_eq!(refused(query(&mut client, "SELECT 1").await).0, Code::Unauthenticated);
        while server.connections() > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn without_the_password_nothing_is_answered() {
    let (_database, server) = server_with_roles();
    block_on(async {
        for (user, password) in
            [("ann", "b"), ("ann", ""), ("nobody", "a"), ("", ""), ("boss", "a")]
        {
            let mut client = connect(&server).await;
            client.handshake(user, password).await.expect_err("it is refused");
            assert_eq!(refused(query(&mut client, "SELECT 1").await).0, Code::Unauthenticated);
            let basic = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
            client.set_header("authorization", basic);
            assert_eq!(refused(query(&mut client, "SELECT 1").await).0, Code::Unauthenticated);
        }
        let mut client = connect(&server).await;
        for header in ["Basic", "Basic ???", "Basic YQ", "Digest x", "Bearer", "x"] {
            client.set_header("authorization", header);
            let refusal = refused(query(&mut client, "SELECT 1").await);
            assert_eq!(refusal.0, Code::Unauthenticated, "{header}");
        }
        assert_eq!(server.connections(), 0);
    });
}

#[test]
fn each_call_may_have_the_password_padded_or_not() {
    let (_database, server) = server_with_roles();
    block_on(async {
        let words = "ann:a";
        assert!(STANDARD.encode(words).ends_with('='));
        for encoded in [STANDARD.encode(words), STANDARD_NO_PAD.encode(words)] {
            let mut client = connect(&server).await;
            client.set_header("authorization", format!("Basic {encoded}"));
            assert_eq!(user(&mut client).await, "ann");
            // One session for all calls of the connection.
            let mut prepared = client.prepare("SELECT 1".to_owned(), None).await.expect("it is");
            let info = prepared.execute().await.expect("it is described");
            assert_eq!(texts(&get(&mut client, &info).await.expect("it runs")), [["1"]]);
        }
    });
}

#[test]
fn a_role_may_do_what_it_was_granted() {
    let (_database, server) = server_with_roles();
    block_on(async {
        let mut boss = log_in(&server, "boss", "b").await;
        let mut ann = log_in(&server, "ann", "a").await;
        let forbidden = (Code::PermissionDenied, "42501".to_owned());
        let select = "SELECT * FROM secret".to_owned();
        let insert = "INSERT INTO secret VALUES (2)".to_owned();
        for sql in [&select, &insert] {
            assert_eq!(refused(ann.execute(sql.clone(), None).await), forbidden);
            assert_eq!(refused(ann.execute_update(sql.clone(), None).await), forbidden);
        }
        assert_eq!(refused(ann.prepare(select.clone(), None).await), forbidden);
        // A change is described without a right, as by PostgreSQL, and refused when it is executed.
        let mut change = ann.prepare(insert, None).await.expect("it is described");
        assert_eq!(refused(change.execute().await), forbidden);
        assert_eq!(refused(change.execute_update().await), forbidden);
        let numbers = arrow::array::Int64Array::from(vec![1]);
        let numbers: arrow::array::ArrayRef = std::sync::Arc::new(numbers);
        let rows = RecordBatch::try_from_iter([("i", numbers)]).expect("a batch");
        let command = arrow_flight::sql::CommandStatementIngest {
            table_definition_options: Some(arrow_flight::sql::TableDefinitionOptions {
                if_not_exist: arrow_flight::sql::TableNotExistOption::Fail.into(),
                if_exists: arrow_flight::sql::TableExistsOption::Append.into(),
            }),
            table: "secret".to_owned(),
            schema: None,
            catalog: None,
            temporary: false,
            transaction_id: None,
            options: Default::default(),
        };
        let ingested = ann.execute_ingest(command, stream::iter([Ok(rows)])).await;
        assert_eq!(refused(ingested), forbidden);
        let file = "SELECT * FROM read_text('/etc/passwd')".to_owned();
        assert_eq!(refused(ann.execute(file, None).await), forbidden);
        update(&mut boss, "GRANT SELECT ON secret TO ann").await;
        let info = ann.execute(select.clone(), None).await.expect("it is granted");
        let mut prepared = ann.prepare(select, None).await.expect("it is granted");
        update(&mut boss, "REVOKE SELECT ON secret FROM ann").await;
        // A ticket, or a prepared statement, keeps no right.
        assert_eq!(refused(get(&mut ann, &info).await), forbidden);
        let info = prepared.execute().await.expect("it is described");
        assert_eq!(refused(get(&mut ann, &info).await), forbidden);
        assert_eq!(number(&mut boss, "SELECT count(*) FROM secret").await, 1);
    });
}

#[test]
fn too_many_clients_are_told_and_a_free_place_is_taken() {
    let (_database, server) = server_with(2);
    block_on(async {
        let (mut first, mut second) = (connect(&server).await, connect(&server).await);
        assert_eq!(number(&mut first, "SELECT 1").await, 1);
        assert_eq!(number(&mut second, "SELECT 1").await, 1);
        let mut third = connect(&server).await;
        let answer = refused(query(&mut third, "SELECT 1").await);
        assert_eq!(answer, (Code::ResourceExhausted, "53300".to_owned()));
        drop(first);
        while server.connections() > 1 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(number(&mut third, "SELECT 1").await, 1);
        assert_eq!(number(&mut second, "SELECT 1").await, 1);
    });
}

#[test]
fn sessions_are_shown_cancelled_and_ended_by_others() {
    let (_database, server) = server_with_roles();
    block_on(async {
        let mut boss = log_in(&server, "boss", "b").await;
        let mut ann = log_in(&server, "ann", "a").await;
        let transaction = ann.begin_transaction().await.expect("it begins");
        let state = "SELECT state FROM pg_stat_activity WHERE usename = 'ann'";
        let shown = query(&mut boss, state).await.expect("it runs");
        assert_eq!(texts(&shown), [["idle in transaction"]]);
        // A statement of any of its sessions of the database is cancelled.
        let info = ann.execute(LONG.to_owned(), None).await.expect("it is described");
        let mut reader = ann.clone();
        let reading = tokio::spawn(async move { get(&mut reader, &info).await });
        let pid = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = 'ann'";
        while !reading.is_finished() {
            query(&mut boss, pid).await.expect("it runs");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        let answer = refused(reading.await.expect("no panic"));
        assert_eq!(answer, (Code::Cancelled, "57014".to_owned()));
        assert_eq!(number(&mut ann, "SELECT 1").await, 1);
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'ann'";
        query(&mut boss, end).await.expect("it runs");
        let mut code = Code::Ok;
        while code != Code::Unauthenticated {
            let next = ann.execute("SELECT 1".to_owned(), Some(transaction.clone())).await;
            code = if next.is_ok() { Code::Ok } else { refused(next).0 };
        }
        assert_eq!(user(&mut boss).await, "boss");
    });
}
