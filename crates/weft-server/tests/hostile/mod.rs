//! Clients that do not keep to the protocol: messages that are cut off, too long or of random bytes at each stage of a connection,
//! and copies that are broken off. Each ends its own connection at most: the server does not panic, no client waits forever,
//! and the place of each is free again.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::panic;
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weft_server::Server;

use crate::noise::noise;
use crate::server_with;

/// How long an answer may take before it counts as missing.
const PATIENCE: Duration = Duration::from_secs(300);

/// What threads of the server panicked with.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Notes panics of the server from now on.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if thread::current().name().is_some_and(|name| name.starts_with("weft")) {
                PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(info.to_string());
            }
            before(info);
        }));
    });
}

/// Checks that nothing panicked, and that all places but some are free, or get free.
fn check(server: &Server, connected: usize) {
    let limit = Instant::now() + PATIENCE;
    while server.connections() > connected {
        assert!(Instant::now() < limit, "{} connections are left", server.connections());
        thread::sleep(Duration::from_millis(5));
    }
    let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(panics.is_empty(), "{panics:?}");
}

/// A message of a kind.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("a short message");
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

/// The first message of a client.
fn startup(user: &str) -> Vec<u8> {
    let body = [&[0, 3, 0, 0][..], b"user\0", user.as_bytes(), b"\0database\0weft\0\0"].concat();
    let length = u32::try_from(body.len() + 4).expect("a short message");
    [&length.to_be_bytes()[..], &body].concat()
}

/// A client that sends bytes.
struct Raw {
    socket: TcpStream,
    /// The process number and the key for cancel requests.
    key: Vec<u8>,
}

/// A message of the server.
struct Answer {
    kind: u8,
    body: Vec<u8>,
}

impl Answer {
    /// A field of an error.
    fn field(&self, code: u8) -> String {
        let mut fields = self.body.split(|byte| *byte == 0);
        let found = fields.find(|field| field.first() == Some(&code));
        found.map(|field| String::from_utf8_lossy(&field[1..]).into_owned()).unwrap_or_default()
    }
}

impl Raw {
    /// Connects without a word.
    fn silent(server: &Server) -> Raw {
        let socket = TcpStream::connect(server.address()).expect("it connects");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        Raw { socket, key: Vec::new() }
    }

    /// Connects and waits until statements may come.
    fn started(server: &Server) -> Raw {
        let mut client = Raw::silent(server);
        client.send(&startup("me"));
        let answers = client.until_ready();
        let key = answers.into_iter().find(|answer| answer.kind == b'K').expect("a key");
        client.key = key.body;
        client
    }

    /// Sends bytes; the server may have ended the connection.
    fn send(&mut self, bytes: &[u8]) {
        drop(self.socket.write_all(bytes));
    }

    fn query(&mut self, sql: &str) {
        self.send(&message(b'Q', &[sql.as_bytes(), b"\0"].concat()));
    }

    /// The next message; `None` after the last.
    fn receive(&mut self) -> Option<Answer> {
        let mut head = [0; 5];
        self.read(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let mut body = vec![0; length as usize - 4];
        self.read(&mut body)?;
        Some(Answer { kind: head[0], body })
    }

    fn read(&mut self, into: &mut [u8]) -> Option<()> {
        match self.socket.read_exact(into) {
            Ok(()) => Some(()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("the server neither answers nor ends the connection")
            }
            Err(_) => None,
        }
    }

    /// The messages up to the next ReadyForQuery, with it; or up to the end of the connection.
    fn until_ready(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        while let Some(answer) = self.receive() {
            let is_last = answer.kind == b'Z';
            answers.push(answer);
            if is_last {
                break;
            }
        }
        answers
    }

    /// The SQLSTATE of the error that is answered, after which the connection goes on or not.
    fn refused(&mut self) -> (String, bool) {
        let answers = self.until_ready();
        let found = answers.iter().find(|answer| answer.kind == b'E').expect("an error");
        (found.field(b'C'), answers.iter().any(|answer| answer.kind == b'Z'))
    }

    /// Waits until the server ends the connection.
    fn wait_for_end(&mut self) {
        while self.receive().is_some() {}
    }

    /// The texts of the rows of a query of one column.
    fn rows(&mut self, sql: &str) -> Vec<String> {
        self.query(sql);
        let answers = self.until_ready();
        let rows = answers.iter().filter(|answer| answer.kind == b'D');
        rows.map(|row| String::from_utf8_lossy(&row.body[6..]).into_owned()).collect()
    }
}

/// Messages in the right form, one of each kind.
fn whole() -> Vec<Vec<u8>> {
    vec![
        message(b'Q', b"SELECT 1\0"),
        message(b'P', b"s\0SELECT $1 + 1\0\0\x01\0\0\0\x17"),
        message(b'B', b"p\0s\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x07\0\x01\0\x01"),
        message(b'E', b"p\0\0\0\0\0"),
        message(b'D', b"Ss\0"),
        message(b'C', b"Pp\0"),
        message(b'd', b"1\n"),
        message(b'f', b"no\0"),
        message(b'c', b""),
        message(b'H', b""),
        message(b'S', b""),
    ]
}

#[test]
fn messages_that_are_cut_off_end_their_connection() {
    watch_panics();
    let server = server_with(300);
    let first = startup("me");
    for length in 0..first.len() {
        let mut client = Raw::silent(&server);
        client.send(&first[..length]);
        drop(client.socket.shutdown(Shutdown::Write));
        client.wait_for_end();
    }
    for whole in whole() {
        for length in 1..whole.len() {
            let mut client = Raw::started(&server);
            client.send(&whole[..length]);
            drop(client.socket.shutdown(Shutdown::Write));
            client.wait_for_end();
        }
    }
    check(&server, 0);
}

#[test]
fn parts_that_do_not_fill_their_message_are_an_error() {
    watch_panics();
    let server = server_with(10);
    let mut client = Raw::started(&server);
    for whole in whole() {
        let (kind, body) = (whole[0], &whole[5..]);
        if body.is_empty() || kind == b'd' {
            continue;
        }
        for length in 0..body.len() {
            client.send(&message(kind, &body[..length]));
            // What comes after an error of the extended protocol is not heard up to here.
            client.send(&message(b'S', b""));
            let (code, goes_on) = client.refused();
            assert!(goes_on && code == "08P01", "{code} of {length} bytes of {}", char::from(kind));
            if b"Qf".contains(&kind) {
                client.until_ready();
            }
        }
    }
    client.send(&message(b'Q', b"SELECT '\xff'\0"));
    assert_eq!(client.refused(), ("22021".to_owned(), true));
    assert_eq!(client.rows("SELECT 1"), ["1"]);
    for flaw in [
        &b"Q\0\0\0\x03"[..],
        b"Q\x7f\xff\xff\xff",
        b"Q\xff\xff\xff\xff",
        b"p\0\0\0\x05\0",
        b"Z\0\0\0\x05I",
        b"S\0\0\0\x05\0",
        b"\0\0\0\0\0",
    ] {
        let mut client = Raw::started(&server);
        client.send(flaw);
        let (code, goes_on) = client.refused();
        assert!(!goes_on && code == "08P01", "{code} of {flaw:?}");
    }
    check(&server, 1);
}

#[test]
fn random_bytes_are_answered_or_end_their_connection() {
    watch_panics();
    let server = server_with(10);
    let mut random = fastrand::Rng::with_seed(7);
    let mut client = Raw::started(&server);
    for _ in 0..2000 {
        let kind = b"PBEDCHQdcf"[random.usize(..10)];
        let mut body = match random.usize(..3) {
            0 => {
                let count = random.usize(..40);
                noise(&mut random, count)
            }
            _ => {
                let whole = whole();
                whole[random.usize(..whole.len())][5..].to_vec()
            }
        };
        for _ in 0..random.usize(..3) {
            if !body.is_empty() {
                let at = random.usize(..body.len());
                body[at] = random.u8(..);
            }
        }
        client.send(&message(kind, &body));
        // A text that was answered with its own ReadyForQuery is followed by another of this.
        client.send(&message(b'S', b""));
        let wanted = if kind == b'Q' || kind == b'f' && client_waits(&body) { 2 } else { 1 };
        let ends =
            (0..wanted).any(|_| client.until_ready().last().is_none_or(|end| end.kind != b'Z'));
        if ends {
            client = Raw::started(&server);
        }
    }
    assert_eq!(client.rows("SELECT 1"), ["1"]);
    drop(client);
    // And without any form, from the first byte on.
    for _ in 0..100 {
        let mut client = Raw::silent(&server);
        let count = 1 + random.usize(..64);
        client.send(&noise(&mut random, count));
        drop(client.socket.shutdown(Shutdown::Write));
        client.wait_for_end();
    }
    check(&server, 0);
}

/// True of the body of a message for the end of a COPY that is answered by itself, as it has another form.
fn client_waits(body: &[u8]) -> bool {
    let text = body.strip_suffix(b"\0");
    text.is_none_or(|text| text.contains(&0) || str::from_utf8(text).is_err())
}

#[test]
fn a_client_that_owes_a_password_may_send_nothing_else() {
    watch_panics();
    let server = server_with(10);
    Raw::started(&server).rows("CREATE ROLE ann LOGIN PASSWORD 'secret'");
    check(&server, 0);
    let first_answer = b"SCRAM-SHA-256\0\0\0\0\x20n,,n=ann,r=0123456789abcdef01234";
    let mut attempts = vec![
        message(b'Q', b"SELECT 1\0"),
        message(b'S', b""),
        b"p\0\x02\0\0".to_vec(),
        b"p\xff\xff\xff\xff".to_vec(),
        b"p\0\0\0\0".to_vec(),
        message(b'p', b"secret\0"),
        message(b'p', b"SCRAM-SHA-256\0\xff\xff\xff\xfe"),
        message(b'p', b"SCRAM-SHA-256\0\x7f\xff\xff\xff"),
        message(b'p', b"SCRAM-SHA-256\0\0\0\0\x03\xff\xff\xff"),
    ];
    attempts.extend((0..first_answer.len()).map(|length| message(b'p', &first_answer[..length])));
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..50 {
        let count = random.usize(..60);
        let mut bytes = message(b'p', &first_answer[..]);
        bytes.extend(message(b'p', &noise(&mut random, count)));
        attempts.push(bytes);
    }
    for attempt in attempts {
        let mut client = Raw::silent(&server);
        client.send(&startup("ann"));
        assert_eq!(client.receive().expect("a demand").kind, b'R');
        client.send(&attempt);
        drop(client.socket.shutdown(Shutdown::Write));
        let mut answers = Vec::new();
        while let Some(answer) = client.receive() {
            answers.push(answer.kind);
        }
        assert!(!answers.contains(&b'Z'), "{attempt:?} is taken for a password");
    }
    check(&server, 0);
}

#[test]
fn a_copy_that_is_broken_off_leaves_nothing() {
    watch_panics();
    let server = server_with(10);
    let mut other = Raw::started(&server);
    other.rows("CREATE TABLE t (i INTEGER)");
    let row = message(b'd', b"1\n");
    let copying = || {
        let mut client = Raw::started(&server);
        client.query("COPY t FROM STDIN");
        assert_eq!(client.receive().expect("an answer").kind, b'G');
        client.send(&row);
        client
    };
    // The client is gone, in the middle of a message or between two.
    for length in 0..row.len() {
        copying().send(&row[..length]);
    }
    // It says why it ends.
    let mut client = copying();
    client.send(&message(b'f', b"no more\0"));
    assert_eq!(client.refused(), ("57014".to_owned(), true));
    assert_eq!(client.rows("SELECT count(*) FROM t"), ["0"]);
    drop(client);
    // What it says is cut off, or is another message.
    for flaw in [message(b'f', b"no more"), message(b'Q', b"SELECT 1\0"), message(b'P', b"")] {
        let mut client = copying();
        client.send(&flaw);
        assert_eq!(client.refused(), ("08P01".to_owned(), true));
        assert_eq!(client.rows("SELECT count(*) FROM t"), ["0"]);
    }
    // It is cancelled.
    let mut client = copying();
    let length = u32::try_from(client.key.len() + 8).expect("a short key").to_be_bytes();
    let request = [&length[..], &[4, 0xd2, 0x16, 0x2e], &client.key].concat();
    let mut cancel = Raw::silent(&server);
    cancel.send(&request);
    cancel.wait_for_end();
    client.send(&row);
    client.send(&message(b'c', b""));
    assert_eq!(client.refused(), ("57014".to_owned(), true));
    assert_eq!(client.rows("SELECT count(*) FROM t"), ["0"]);
    drop(client);
    // By the extended protocol, an error counts until Sync.
    let mut client = Raw::started(&server);
    client.send(&message(b'P', b"\0COPY t FROM STDIN\0\0\0"));
    client.send(&message(b'B', b"\0\0\0\0\0\0\0\0"));
    client.send(&message(b'E', b"\0\0\0\0\0"));
    client.send(&message(b'H', b""));
    let kinds: Vec<u8> = (0..3).map(|_| client.receive().expect("an answer").kind).collect();
    assert_eq!(kinds, [b'1', b'2', b'G']);
    client.send(&row);
    client.send(&message(b'f', b"no more\0"));
    client.send(&message(b'S', b""));
    assert_eq!(client.refused(), ("57014".to_owned(), true));
    drop(client);
    check(&server, 1);
    assert_eq!(other.rows("SELECT count(*) FROM t"), ["0"]);
}

#[test]
fn a_client_that_goes_frees_its_place_while_its_statement_runs() {
    watch_panics();
    let server = server_with(1);
    let mut client = Raw::started(&server);
    client.query("SELECT count(*) FROM generate_series(1, 1000000000000) AS v(i) WHERE i % 7 = 3");
    thread::sleep(Duration::from_millis(100));
    drop(client);
    check(&server, 0);
    assert_eq!(Raw::started(&server).rows("SELECT 1"), ["1"]);
}
