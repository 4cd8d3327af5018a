//! Clients that do not keep to the protocol: bytes that are no HTTP/2, messages of random bytes in every call, statements and messages that
//! are too long, and streams that stop midway. Each is refused or ends its own connection: the server goes on.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, Any, CommandStatementIngest, CommandStatementUpdate,
    ProstMessageExt, TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};
use arrow_flight::{Action, FlightData, FlightDescriptor, HandshakeRequest, Ticket};
use futures::stream;
use prost::Message;
use tonic::Code;

use super::*;
use crate::noise::noise;

/// How long an answer may take before it counts as missing.
const PATIENCE: Duration = Duration::from_secs(300);

/// A message with some of its bytes changed, or cut off.
fn damaged(random: &mut fastrand::Rng, message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    for _ in 0..random.usize(1..4) {
        match (random.u8(..4), message.is_empty()) {
            (0, _) => message.truncate(random.usize(..=message.len())),
            (_, false) => {
                let at = random.usize(..message.len());
                message[at] = random.u8(..);
            }
            (_, true) => message = noise(random, 20),
        }
    }
    message
}

/// Checks that the server answers, and that the places of all clients get free.
fn check(server: &Server) {
    let limit = std::time::Instant::now() + PATIENCE;
    block_on(async {
        let mut client = connect(server).await;
        assert_eq!(number(&mut client, "SELECT 1").await, 1);
    });
    while server.connections() > 0 {
        assert!(std::time::Instant::now() < limit, "{} clients are left", server.connections());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn bytes_that_are_no_http_end_their_connection_only() {
    let (_database, server) = server_with(10);
    let address = server.flight_address().expect("Flight SQL is served");
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let mut random = fastrand::Rng::with_seed(3);
    let mut attempts = vec![
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        vec![0xff; 64],
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".to_vec(),
        [&preface[..], &[0xff; 100]].concat(),
        // Headers without an end, and a frame that is longer than may be.
        [&preface[..], b"\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\0\0\0\0\x01\x82"].concat(),
        [&preface[..], b"\xff\xff\xff\0\0\0\0\0\x01"].concat(),
    ];
    attempts.extend((0..preface.len()).map(|length| preface[..length].to_vec()));
    for _ in 0..200 {
        let count = random.usize(..100);
        let bytes = noise(&mut random, count);
        attempts.push([&preface[..], b"\0\0\0\x04\0\0\0\0\0", &bytes].concat());
        attempts.push(bytes);
    }
    for attempt in attempts {
        let mut socket = TcpStream::connect(address).expect("it connects");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        drop(socket.write_all(&attempt));
        drop(socket.shutdown(Shutdown::Write));
        let ended = socket.read_to_end(&mut Vec::new());
        let is_late = ended.is_err_and(|error| {
            matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
        });
        assert!(!is_late, "the server neither answers nor ends the connection: {attempt:?}");
    }
    check(&server);
}

#[test]
fn random_messages_are_refused() {
    // Each handshake that is taken makes a session.
    let (_database, server) = server_with(500);
    block_on(async {
        let mut client = FlightServiceClient::new(channel(&server).await);
        let mut random = fastrand::Rng::with_seed(5);
        let update = CommandStatementUpdate { query: "SELEC".to_owned(), transaction_id: None };
        let close =
            ActionClosePreparedStatementRequest { prepared_statement_handle: vec![1; 16].into() };
        let whole = [update.as_any().encode_to_vec(), close.as_any().encode_to_vec()];
        let actions = [
            "CreatePreparedStatement",
            "ClosePreparedStatement",
            "BeginTransaction",
            "EndTransaction",
            "BeginSavepoint",
            "EndSavepoint",
            "CancelQuery",
            "CancelFlightInfo",
            "Unknown",
        ];
        for round in 0..500 {
            let body = match random.usize(..2) {
                0 => {
                    let count = random.usize(..50);
                    noise(&mut random, count)
                }
                _ => {
                    let one = random.usize(..2);
                    damaged(&mut random, &whole[one])
                }
            };
            let descriptor = FlightDescriptor::new_cmd(body.clone());
            let status = match round % 6 {
                0 => client.get_flight_info(descriptor).await.err(),
                1 => client.get_schema(descriptor).await.err(),
                2 => client.do_get(Ticket::new(body)).await.err(),
                3 => {
                    let r#type = actions[random.usize(..actions.len())].to_owned();
                    client.do_action(Action { r#type, body: body.into() }).await.err()
                }
                4 => {
                    let data = FlightData::new().with_descriptor(descriptor);
                    client.do_put(stream::iter([data])).await.err()
                }
                _ => {
                    let payload = body.into();
                    let request = HandshakeRequest { protocol_version: 0, payload };
                    client.handshake(stream::iter([request])).await.err()
                }
            };
            let code = status.map(|status| status.code());
            // `arrow-flight` itself says Internal of messages within actions and streams that it cannot decode.
            let is_fault = match code {
                Some(Code::Internal) => !matches!(round % 6, 3 | 4),
                code => matches!(code, Some(Code::Unknown | Code::Unavailable)),
            };
            assert!(!is_fault, "{code:?} in round {round}");
        }
    });
    block_on(async {
        let mut client = connect(&server).await;
        assert_eq!(number(&mut client, "SELECT 1").await, 1);
    });
}

#[test]
fn damaged_batches_are_refused() {
    let (_database, server) = server_with(10);
    block_on(async {
        let mut client = connect(&server).await;
        update(&mut client, "CREATE TABLE t (i BIGINT, s VARCHAR)").await;
        let command = CommandStatementIngest {
            table_definition_options: Some(TableDefinitionOptions {
                if_not_exist: TableNotExistOption::Fail.into(),
                if_exists: TableExistsOption::Append.into(),
            }),
            table: "t".to_owned(),
            schema: None,
            catalog: None,
            temporary: false,
            transaction_id: None,
            options: Default::default(),
        };
        let batches =
            query(&mut client, "SELECT i, 'text ' || i AS s FROM generate_series(1, 100) AS v(i)");
        let batches = batches.await.expect("it runs");
        let descriptor = FlightDescriptor::new_cmd(command.as_any().encode_to_vec());
        let encoded = FlightDataEncoderBuilder::new()
            .with_flight_descriptor(Some(descriptor))
            .build(stream::iter(batches.into_iter().map(Ok)));
        let whole: Vec<FlightData> = encoded.try_collect().await.expect("they are encoded");
        let mut inner = FlightServiceClient::new(channel(&server).await);
        assert!(inner.do_put(stream::iter(whole.clone())).await.is_ok());
        let mut random = fastrand::Rng::with_seed(9);
        let mut accepted = 1;
        for _ in 0..300 {
            let mut messages = whole.clone();
            let at = random.usize(..messages.len());
            match random.usize(..3) {
                0 => messages[at].data_body = damaged(&mut random, &whole[at].data_body).into(),
                1 => messages[at].data_header = damaged(&mut random, &whole[at].data_header).into(),
                _ => drop(messages.remove(at)),
            }
            accepted += i64::from(inner.do_put(stream::iter(messages)).await.is_ok());
        }
        // Each was taken as a whole or not at all, and a text is text.
        let rows = number(&mut client, "SELECT count(*) FROM t").await;
        assert!(rows <= accepted * 100, "{rows} rows of {accepted} streams");
        query(&mut client, "SELECT count(*), max(length(s)) FROM t").await.expect("all are read");
    });
    check(&server);
}

#[test]
fn what_is_too_long_is_refused() {
    let (_database, server) = server_with(10);
    block_on(async {
        let mut client = connect(&server).await;
        let text = |bytes: usize| format!("SELECT '{}'", "x".repeat(bytes));
        let long = text(1 << 20);
        assert_eq!(texts(&query(&mut client, &long).await.expect("it runs"))[0][0].len(), 1 << 20);
        let limit = (Code::ResourceExhausted, "54000".to_owned());
        let too_long = text(17 << 20);
        assert_eq!(refused(client.execute(too_long.clone(), None).await), limit);
        assert_eq!(refused(client.execute_update(too_long.clone(), None).await), limit);
        assert_eq!(refused(client.prepare(too_long, None).await), limit);
        let code = refused(client.execute(text(70 << 20), None).await).0;
        assert!(matches!(code, Code::OutOfRange | Code::ResourceExhausted), "{code}");
        // Before a client is known, little is read.
        let mut inner = FlightServiceClient::new(channel(&server).await);
        let payload = vec![0; 1 << 20].into();
        let request = HandshakeRequest { protocol_version: 0, payload };
        let refusal = inner.handshake(stream::iter([request])).await;
        let code = refusal.expect_err("it is too long").code();
        assert!(matches!(code, Code::OutOfRange | Code::ResourceExhausted), "{code}");
        let handles = Any { type_url: "x".repeat(1 << 20), value: Default::default() };
        let ticket = Ticket::new(handles.encode_to_vec());
        assert_eq!(refused(client.do_get(ticket).await).0, Code::Unimplemented);
        assert_eq!(number(&mut client, "SELECT 1").await, 1);
    });
    check(&server);
}

#[test]
fn streams_that_stop_midway_end_with_their_client() {
    let (_database, server) = server_with(30);
    block_on(async {
        let mut readers = Vec::new();
        for _ in 0..20 {
            let mut client = connect(&server).await;
            let info = client.execute(MANY.to_owned(), None).await.expect("it is described");
            let mut stream = client.do_get(ticket(&info)).await.expect("it begins");
            futures::StreamExt::next(&mut stream).await.expect("rows").expect("rows");
            readers.push((client, stream));
        }
        // Others are served while these read nothing.
        let mut other = connect(&server).await;
        assert_eq!(
            number(&mut other, "SELECT count(*) FROM generate_series(1, 1000000)").await,
            1_000_000
        );
        assert_eq!(number(&mut other, ACTIVE).await, 20);
        drop(readers);
        while number(&mut other, ACTIVE).await > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    check(&server);
}
