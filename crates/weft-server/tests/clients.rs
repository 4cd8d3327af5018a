//! A server as a client meets it: `tokio-postgres` speaks the extended protocol in the binary format, and the simple
//! one in the text format.

mod hostile;
mod noise;

use std::error::Error;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{SinkExt, TryStreamExt};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};
use weft::{Database, DatabaseOptions};
use weft_server::{Server, ServerError, ServerOptions};

fn server_with(connections_max: usize) -> Server {
    let options = DatabaseOptions::default().with("memory_limit", "256MB").with("threads", 2);
    let database = Database::in_memory(&options).expect("a database opens");
    let listen = "127.0.0.1:0".parse().expect("an address");
    Server::start(&database, &ServerOptions { listen, flight: None, connections_max, tls: None })
        .expect("a port is free")
}

async fn connect(server: &Server) -> Result<Client, tokio_postgres::Error> {
    let address = server.address();
    let words = format!("host={} port={} user=me dbname=weft", address.ip(), address.port());
    let (client, connection) = tokio_postgres::connect(&words, NoTls).await?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

/// Runs a test with a server and one client of it.
fn with_client<F: Future<Output = ()>>(test: impl FnOnce(Client) -> F) {
    let server = server_with(10);
    let runtime = tokio::runtime::Runtime::new().expect("threads start");
    runtime.block_on(async { test(connect(&server).await.expect("it connects")).await });
}

fn texts(messages: &[SimpleQueryMessage]) -> Vec<Vec<Option<String>>> {
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    rows.map(|row| (0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect()).collect()
}

#[test]
fn binary_values_of_each_type_come_back() {
    with_client(|client| async move {
        let row = client
            .query_one(
                "SELECT TRUE, CAST(-7 AS SMALLINT), 42::INT, 9000000000, CAST(1.5 AS REAL), 0.1::DOUBLE, \
                 'ä', X'00FF', NULL::INT, [1, 2, NULL]::INT[], {a: 1} AS s",
                &[],
            )
            .await
            .expect("the query runs");
        assert!(row.get::<_, bool>(0));
        assert_eq!(row.get::<_, i16>(1), -7);
        assert_eq!(row.get::<_, i32>(2), 42);
        assert_eq!(row.get::<_, i64>(3), 9_000_000_000);
        assert_eq!(row.get::<_, f32>(4).to_bits(), 1.5_f32.to_bits());
        assert_eq!(row.get::<_, f64>(5).to_bits(), 0.1_f64.to_bits());
        assert_eq!(row.get::<_, &str>(6), "ä");
        assert_eq!(row.get::<_, &[u8]>(7), [0, 255]);
        assert_eq!(row.get::<_, Option<i32>>(8), None);
        assert_eq!(row.get::<_, Vec<Option<i32>>>(9), [Some(1), Some(2), None]);
        assert_eq!(row.columns()[10].type_(), &Type::JSON);
    });
}

/// A UUID as clients send and read it in the binary format.
#[derive(Debug, PartialEq)]
struct Uuid([u8; 16]);

impl<'a> FromSql<'a> for Uuid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Uuid, Box<dyn Error + Sync + Send>> {
        Ok(Uuid(raw.try_into()?))
    }

    fn accepts(found: &Type) -> bool {
        *found == Type::UUID
    }
}

impl ToSql for Uuid {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(found: &Type) -> bool {
        *found == Type::UUID
    }

    to_sql_checked!();
}

#[test]
fn uuids_go_both_ways_in_both_formats() {
    with_client(|client| async move {
        let create = "CREATE TABLE t (id UUID PRIMARY KEY DEFAULT gen_random_uuid(), n INT)";
        client.batch_execute(create).await.expect("the table is made");
        let first = Uuid(std::array::from_fn(|at| 0xa0 + at as u8));
        let insert = "INSERT INTO t VALUES ($1, $2), ($3, $4) RETURNING id";
        let insert = client.prepare(insert).await.expect("it is parsed");
        assert_eq!(insert.params(), [Type::UUID, Type::INT4, Type::UUID, Type::INT4]);
        let rows = client.query(&insert, &[&first, &1, &Uuid([0; 16]), &2]).await;
        let rows = rows.expect("the rows are inserted");
        assert_eq!((rows[0].get::<_, Uuid>(0), rows.len()), (Uuid(first.0), 2));
        let find = client.prepare("SELECT n, id FROM t WHERE id = $1").await.expect("it is parsed");
        assert_eq!((find.params(), find.columns()[1].type_()), (&[Type::UUID][..], &Type::UUID));
        for (id, n) in [(&first, 1), (&Uuid([0; 16]), 2)] {
            let row = client.query_one(&find, &[id]).await.expect("there is a row");
            assert_eq!((row.get::<_, i32>(0), &row.get::<_, Uuid>(1)), (n, id));
        }
        let any = "SELECT n FROM t WHERE id = ANY($1::UUID[])";
        let any = client.prepare(any).await.expect("it is parsed");
        assert_eq!(any.params(), [Type::UUID_ARRAY]);
        let row = client.query_one(&any, &[&vec![&first]]).await.expect("there is a row");
        assert_eq!(row.get::<_, i32>(0), 1);
        let found = client.simple_query("SELECT id FROM t WHERE n = 1").await.expect("it runs");
        let text = "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf".to_owned();
        assert_eq!(texts(&found), [[Some(text)]]);
        let made = client.query_one("INSERT INTO t (n) VALUES (3) RETURNING id", &[]).await;
        assert_eq!(made.expect("a row is made").get::<_, Uuid>(0).0[6] >> 4, 4);
        let error =
            client.simple_query("SELECT n FROM t WHERE id = 'x'").await.expect_err("no UUID");
        assert!(
            error.as_db_error().is_some_and(|error| error.message().contains("'x' is no UUID"))
        );
    });
}

#[test]
fn enumerations_go_both_ways_as_texts() {
    with_client(|client| async move {
        let create = "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TABLE t (e mood, n INT)";
        client.batch_execute(create).await.expect("the table is made");
        let insert = client.prepare("INSERT INTO t VALUES ($1, $2)").await.expect("it is parsed");
        for (label, n) in [("ok", 1), ("sad", 2)] {
            client.execute(&insert, &[&label, &n]).await.expect("the row is inserted");
        }
        let sql = "SELECT e FROM t WHERE e >= $1 ORDER BY e";
        let rows = client.query(sql, &[&"sad"]).await.expect("the query runs");
        let labels: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(labels, ["sad", "ok"]);
        let error = client.execute(&insert, &[&"bad", &3]).await.expect_err("it is no label");
        let state = error.as_db_error().map(|error| error.code().code().to_owned());
        assert_eq!(state.as_deref(), Some("22P02"));
        // As drivers ask for a type and its labels.
        let sql = "SELECT e.enumlabel FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid \
                   WHERE t.oid = to_regtype('mood') ORDER BY e.enumsortorder";
        let found = client.simple_query(sql).await.expect("it runs");
        assert_eq!(texts(&found), [[Some("sad".to_owned())], [Some("ok".to_owned())]]);
    });
}

#[test]
fn dates_and_times_come_back_in_both_formats() {
    with_client(|client| async move {
        let sql = "SELECT DATE '1999-12-31' AS d, TIMESTAMP '2000-01-01 00:00:01.5' AS t, \
                   TIMESTAMP '1969-12-31 23:59:59' AS u, INTERVAL '1 month 2 days 3 hours' AS i";
        let row = client.query_one(sql, &[]).await.expect("the query runs");
        let types: Vec<&Type> = row.columns().iter().map(|column| column.type_()).collect();
        assert_eq!(types, [&Type::DATE, &Type::TIMESTAMP, &Type::TIMESTAMP, &Type::INTERVAL]);
        let epoch = std::time::UNIX_EPOCH;
        let expected = epoch + Duration::from_millis(946_684_801_500);
        assert_eq!(row.get::<_, std::time::SystemTime>(1), expected);
        assert_eq!(row.get::<_, std::time::SystemTime>(2), epoch - Duration::from_secs(1));
        let found = texts(&client.simple_query(sql).await.expect("the query runs"));
        let text = |value: &str| Some(value.to_owned());
        let expected = [
            text("1999-12-31"),
            text("2000-01-01 00:00:01.5"),
            text("1969-12-31 23:59:59"),
            text("1 mon 2 days 03:00:00"),
        ];
        assert_eq!(found, [expected]);
    });
}

#[test]
fn parameters_have_the_types_of_what_they_are_compared_with() {
    with_client(|client| async move {
        client
            .batch_execute(
                "CREATE TABLE t (i INT, d DECIMAL(10, 2), s VARCHAR, at TIMESTAMP, b BLOB);
                 INSERT INTO t VALUES (1, 1.25, 'one', TIMESTAMP '2020-01-01 00:00:00', X'01')",
            )
            .await
            .expect("the script runs");
        let insert = client
            .prepare("INSERT INTO t (i, s, at, b) VALUES ($1, $2, $3, $4)")
            .await
            .expect("it is parsed");
        assert_eq!(insert.params(), [Type::INT4, Type::TEXT, Type::TIMESTAMP, Type::BYTEA]);
        let at = std::time::UNIX_EPOCH + Duration::from_secs(86_400);
        let rows =
            client.execute(&insert, &[&2_i32, &"it's", &at, &[7_u8, 8].as_slice()]).await.unwrap();
        assert_eq!(rows, 1);
        let found = client
            .query("SELECT s, at, b FROM t WHERE i = $1 AND s LIKE $2", &[&2_i32, &"it%"])
            .await
            .expect("the query runs");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].get::<_, &str>(0), "it's");
        assert_eq!(found[0].get::<_, std::time::SystemTime>(1), at);
        assert_eq!(found[0].get::<_, &[u8]>(2), [7, 8]);
        let none = client.query("SELECT 1 FROM t WHERE i = $1", &[&None::<i32>]).await.unwrap();
        assert!(none.is_empty());
    });
}

#[test]
fn an_error_has_a_code_and_a_place_and_the_connection_goes_on() {
    with_client(|client| async move {
        let error =
            client.simple_query("SELECT 1;\nSELECT nothing FROM nowhere").await.unwrap_err();
        let error = error.as_db_error().expect("the server says it");
        assert_eq!(error.code().code(), "42000");
        assert!(error.message().contains("nowhere"), "{error}");
        let place = tokio_postgres::error::ErrorPosition::Original(31);
        assert_eq!(error.position(), Some(&place));
        let error = client.simple_query("SELEC 1").await.unwrap_err();
        assert_eq!(error.code().expect("a code").code(), "42601");
        let error =
            client.query("SELECT 1 / (i - 3) FROM generate_series(1, 5) AS v(i)", &[]).await;
        assert_eq!(error.unwrap_err().code().expect("a code").code(), "22000");
        let one = client.query_one("SELECT 1", &[]).await.expect("the connection goes on");
        assert_eq!(one.get::<_, i64>(0), 1);
    });
}

#[test]
fn a_transaction_is_committed_or_rolled_back_as_a_whole() {
    with_client(|client| async move {
        let count = || async {
            client.query_one("SELECT count(*) FROM t", &[]).await.map(|row| row.get::<_, i64>(0))
        };
        client.batch_execute("CREATE TABLE t (i INT PRIMARY KEY)").await.expect("it is created");
        client.batch_execute("BEGIN; INSERT INTO t VALUES (1); ROLLBACK").await.unwrap();
        assert_eq!(count().await.unwrap(), 0);
        client.batch_execute("BEGIN").await.unwrap();
        assert_eq!(client.execute("INSERT INTO t VALUES (1)", &[]).await.unwrap(), 1);
        assert_eq!(count().await.unwrap(), 1);
        client.batch_execute("SAVEPOINT s").await.unwrap();
        let error = client.execute("INSERT INTO t VALUES (1)", &[]).await.unwrap_err();
        assert_eq!(error.code().expect("a code").code(), "23505");
        let error = client.simple_query("SELECT 1").await.unwrap_err();
        assert_eq!(error.code().expect("a code").code(), "25P02");
        let error = client.query("SELECT 1", &[]).await.unwrap_err();
        assert_eq!(error.code().expect("a code").code(), "25P02");
        client.execute("ROLLBACK TO SAVEPOINT s", &[]).await.unwrap();
        client.execute("INSERT INTO t VALUES (2)", &[]).await.unwrap();
        client.batch_execute("COMMIT").await.unwrap();
        assert_eq!(count().await.unwrap(), 2);
        client.batch_execute("BEGIN; DELETE FROM t").await.unwrap();
        assert!(client.batch_execute("SELEC 1").await.is_err());
        client.batch_execute("COMMIT").await.expect("it is rolled back");
        assert_eq!(count().await.unwrap(), 2);
        client.batch_execute("START TRANSACTION READ ONLY").await.unwrap();
        let error = client.execute("DELETE FROM t", &[]).await.unwrap_err();
        assert_eq!(error.code().expect("a code").code(), "25006");
        client.batch_execute("ROLLBACK").await.unwrap();
        client.batch_execute("COMMIT").await.expect("PostgreSQL only warns of it");
        client.batch_execute("BEGIN; CREATE ROLE ann; ROLLBACK").await.unwrap();
        let error = client.batch_execute("DROP ROLE ann").await.unwrap_err();
        assert_eq!(error.code().expect("a code").code(), "42000");
    });
}

#[test]
fn settings_of_postgresql_are_set_and_shown() {
    with_client(|client| async move {
        client
            .batch_execute("SET client_encoding TO 'utf-8'; SET extra_float_digits = 3")
            .await
            .unwrap();
        let found = texts(&client.simple_query("SHOW extra_float_digits").await.unwrap());
        assert_eq!(found, [[Some("3".to_owned())]]);
        let error = client.batch_execute("SET client_encoding TO 'LATIN1'").await.unwrap_err();
        assert_eq!(error.code().expect("a code").code(), "22023");
        client.batch_execute("SET statement_timeout = 50").await.unwrap();
        let long = "SELECT count(*) FROM generate_series(1, 100000000000) AS v(i) WHERE i % 7 = 3";
        let error = client.simple_query(long).await.unwrap_err();
        assert_eq!(error.code().expect("a code").code(), "57014");
        client.batch_execute("RESET statement_timeout").await.unwrap();
    });
}

#[test]
fn a_cancel_request_ends_a_statement() {
    with_client(|client| async move {
        let token = client.cancel_token();
        let cancel = tokio::spawn(async move {
            // The statement below never ends by itself, so that it is running at one of these.
            loop {
                tokio::time::sleep(Duration::from_millis(50)).await;
                drop(token.cancel_query(NoTls).await);
            }
        });
        let long = "SELECT count(*) FROM generate_series(1, 1000000000000) AS v(i) WHERE i % 7 = 3";
        let error = client.simple_query(long).await.unwrap_err();
        assert_eq!(error.code().expect("a code").code(), "57014");
        cancel.abort();
    });
}

#[test]
fn portals_give_rows_in_parts() {
    with_client(|mut client| async move {
        let transaction = client.transaction().await.expect("a transaction begins");
        let portal = transaction
            .bind("SELECT i FROM generate_series(1, 10) AS v(i) ORDER BY i", &[])
            .await
            .expect("it is bound");
        let mut found = Vec::new();
        for _ in 0..4 {
            let rows = transaction.query_portal(&portal, 3).await.expect("rows come");
            found.push(rows.iter().map(|row| row.get::<_, i64>(0)).collect::<Vec<_>>());
        }
        assert_eq!(found, [vec![1, 2, 3], vec![4, 5, 6], vec![7, 8, 9], vec![10]]);
        transaction.commit().await.expect("it ends");
    });
}

#[test]
fn copy_goes_both_ways_by_the_extended_protocol() {
    with_client(|client| async move {
        client.batch_execute("CREATE TABLE t (i INT, s VARCHAR)").await.unwrap();
        let sink = client.copy_in("COPY t FROM STDIN").await.expect("it begins");
        let mut sink = std::pin::pin!(sink);
        sink.send(Bytes::from_static(b"1\tone\n2\t")).await.unwrap();
        sink.send(Bytes::from_static(b"\\N\n")).await.unwrap();
        assert_eq!(sink.finish().await.expect("it ends"), 2);
        let stream = client.copy_out("COPY t TO STDOUT (FORMAT csv)").await.expect("it begins");
        let chunks: Vec<Bytes> = stream.try_collect().await.expect("rows come");
        assert_eq!(chunks.concat(), b"1,one\n2,\n");
        // What does not fit leaves nothing, and the connection goes on.
        let sink = client.copy_in("COPY t FROM STDIN (FORMAT csv)").await.expect("it begins");
        let mut sink = std::pin::pin!(sink);
        sink.send(Bytes::from_static(b"3,three\nx,y\n")).await.unwrap();
        let error = sink.finish().await.unwrap_err();
        assert!(error.as_db_error().expect("the server says it").message().contains("line 2"));
        let count = client.query_one("SELECT count(*) FROM t", &[]).await.unwrap();
        assert_eq!(count.get::<_, i64>(0), 2);
        let error =
            client.copy_in::<_, Bytes>("COPY nowhere FROM STDIN").await.map(drop).unwrap_err();
        assert_eq!(error.code().expect("a code").code(), "42000");
    });
}

#[test]
fn the_catalog_has_postgresqls_types() {
    with_client(|client| async move {
        client.batch_execute("CREATE TABLE t (i INT)").await.unwrap();
        let sql = "SELECT oid, relname, relkind FROM pg_class WHERE oid = $1::regclass";
        let row = client.query_one(sql, &[&"t"]).await.expect("the query runs");
        let types: Vec<&Type> = row.columns().iter().map(|column| column.type_()).collect();
        assert_eq!(types, [&Type::OID, &Type::NAME, &Type::CHAR]);
        assert!(row.get::<_, u32>(0) >= 16_384);
        assert_eq!((row.get::<_, &str>(1), row.get::<_, i8>(2)), ("t", b'r'.cast_signed()));
        // Types that the driver does not know are asked for.
        let list = client.query_one("SELECT i FROM t WHERE i = ANY($1)", &[&vec![1_i32]]).await;
        assert!(list.is_err());
    });
}

#[test]
fn too_many_clients_are_told_and_a_free_place_is_taken() {
    let server = server_with(2);
    let runtime = tokio::runtime::Runtime::new().expect("threads start");
    runtime.block_on(async {
        let first = connect(&server).await.expect("it connects");
        let second = connect(&server).await.expect("it connects");
        let error = connect(&server).await.map(drop).unwrap_err();
        assert_eq!(error.code().expect("a code").code(), "53300");
        drop(first);
        while server.connections() > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        connect(&server).await.expect("there is a place again");
        second.simple_query("SELECT 1").await.expect("the other client goes on");
    });
}

#[test]
fn addresses_that_others_reach_demand_users() {
    let database = Database::in_memory(&DatabaseOptions::default()).expect("a database opens");
    let listen = "0.0.0.0:0".parse().expect("an address");
    let options = ServerOptions { listen, flight: None, connections_max: 1, tls: None };
    let refused = Server::start(&database, &options);
    assert!(matches!(refused, Err(ServerError::NoUsers(_))));
}

#[test]
fn bytes_that_are_no_messages_end_their_connection_only() {
    use std::io::{Read, Write};
    let server = server_with(10);
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0, 0, 0, 8, 4, 0xd2, 0x16, 0x2e],
        &[0xff; 64],
        &[0, 0, 0, 9, 0, 3, 0, 0, 0, b'Q', 0xff, 0xff, 0xff, 0xff],
    ] {
        let mut socket = std::net::TcpStream::connect(server.address()).expect("it connects");
        drop(socket.write_all(garbage));
        drop(socket.shutdown(std::net::Shutdown::Write));
        let mut answer = Vec::new();
        drop(socket.read_to_end(&mut answer));
    }
    let runtime = tokio::runtime::Runtime::new().expect("threads start");
    runtime.block_on(async {
        let client = connect(&server).await.expect("the server goes on");
        client.simple_query("SELECT 1").await.expect("the server goes on");
    });
}
