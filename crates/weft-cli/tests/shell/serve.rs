//! `.serve`: clients of PostgreSQL's protocol find the shell's database while the shell goes on.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout};

use super::Workplace;

/// A shell that waits for more input.
struct Running {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    fn start(workplace: &Workplace, words: &[&str]) -> Running {
        let mut child = workplace.command(words).spawn().expect("the binary starts");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        Running { child, stdin, stdout }
    }

    fn write(&mut self, lines: &str) {
        self.stdin.write_all(lines.as_bytes()).expect("the shell reads");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("the shell writes");
        line
    }

    /// The port that a shell that was told to serve says.
    fn port(&mut self) -> u16 {
        let line = self.line();
        let port = line.trim_end().rsplit(' ').next().and_then(|port| port.parse().ok());
        port.unwrap_or_else(|| panic!("no port: {line}"))
    }

    fn end(mut self) {
        drop(self.stdin);
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("the shell writes");
        assert!(self.child.wait().expect("the shell ends").success());
    }
}

/// A message of PostgreSQL's protocol.
fn message(kind: &[u8], body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("a short message");
    [kind, &length.to_be_bytes(), body].concat()
}

/// The answer to a statement of a client, as text.
fn ask(port: u16, sql: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    let version = 196_608_u32.to_be_bytes();
    stream.write_all(&message(b"", &[&version[..], b"user\0me\0\0"].concat()))?;
    stream.write_all(&message(b"Q", format!("{sql}\0").as_bytes()))?;
    stream.write_all(&message(b"X", b""))?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[test]
fn clients_and_the_shell_see_one_database() {
    let workplace = Workplace::new();
    let mut shell = Running::start(&workplace, &["db"]);
    shell.write("CREATE TABLE t AS SELECT 'of the shell' AS s;\n.serve 127.0.0.1:0\n");
    let port = shell.port();
    assert!(ask(port, "SELECT s FROM t").unwrap().contains("of the shell"));
    assert!(ask(port, "INSERT INTO t VALUES ('of a client')").unwrap().contains("INSERT 0 1"));
    shell.write(".mode list\n.headers off\nSELECT s FROM t WHERE s LIKE '%client';\n.serve stop\n");
    assert_eq!(shell.line(), "of a client\n");
    assert!(shell.line().contains("no more"));
    assert!(ask(port, "SELECT 1").is_err());
    // Once more, on another port.
    shell.write(".serve 0\n");
    let port = shell.port();
    assert!(ask(port, "SELECT count(*) FROM t").unwrap().contains('2'));
    // The database is another one then.
    shell.write(".open\n.print opened\n.serve 0\n");
    assert_eq!(shell.line(), "opened\n");
    let other = shell.port();
    assert!(ask(port, "SELECT 1").is_err());
    assert!(ask(other, "SELECT count(*) FROM t").unwrap().contains("does not exist"));
    shell.end();
}

#[test]
fn flight_sql_is_served_too() {
    let workplace = Workplace::new();
    let mut shell = Running::start(&workplace, &["db"]);
    shell.write(".serve 0 --flight 0\n");
    let line = shell.line();
    let address = line.trim_end().strip_prefix("Arrow Flight SQL is served at grpc://");
    let address = address.unwrap_or_else(|| panic!("no address: {line}"));
    let mut stream = TcpStream::connect(address).expect("it is served");
    // The server's part of HTTP/2 begins with a frame of settings, of kind 4.
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("it is read");
    let mut head = [0; 9];
    stream.read_exact(&mut head).expect("it answers");
    assert_eq!(head[3], 4);
    assert!(ask(shell.port(), "SELECT 'here'").unwrap().contains("here"));
    shell.write(".serve stop\n");
    assert!(shell.line().contains("no more"));
    assert!(TcpStream::connect(address).is_err());
    shell.end();
}

#[test]
fn what_other_machines_reach_needs_roles_with_passwords() {
    let workplace = Workplace::new();
    let refused = workplace.failing(".serve 0.0.0.0:0");
    assert!(refused.contains("other machines reach it"), "{refused}");
    let refused = workplace.failing("CREATE ROLE ann;\n.serve 0.0.0.0:0");
    assert!(refused.contains("other machines reach it"), "{refused}");
    let sql = "CREATE ROLE ann LOGIN PASSWORD 'secret';\n.serve 0.0.0.0:0\n.serve stop\n";
    let served = workplace.run_with(&[], sql);
    assert_eq!(served.code, Some(0), "{}", served.stderr);
    // Nothing is encrypted, which the log says.
    assert!(served.stderr.contains("not encrypted"), "{}", served.stderr);
    assert!(served.stdout.contains("Weft listens on 0.0.0.0:"), "{}", served.stdout);
    assert!(!served.stdout.contains("secret") && !served.stderr.contains("secret"));
}

#[test]
fn what_cannot_be_served_is_said() {
    let workplace = Workplace::new();
    assert!(workplace.failing(".serve stop").contains("no server runs"));
    assert!(workplace.failing(".serve nowhere").contains("nowhere is no address"));
    assert!(workplace.failing(".serve 0 --flight").contains("no address"));
    let twice = workplace.failing(".serve 127.0.0.1:0\n.serve 127.0.0.1:0\n");
    assert!(twice.contains("already"), "{twice}");
}
