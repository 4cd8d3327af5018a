//! `.serve`: the open database behind PostgreSQL's protocol, and Arrow Flight SQL, while the shell goes on.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use weft_server::{Server, ServerOptions};

use super::{Flow, Shell};
use crate::error::ShellError;

/// Where the server listens unless told otherwise.
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5432);

/// Connections at a time, at most.
const CONNECTIONS_MAX: usize = 1000;

/// `.serve`
pub fn serve(shell: &mut Shell, words: &[String]) -> Result<Flow, ShellError> {
    let word = words.first().map(String::as_str);
    if word.is_some_and(|word| word.eq_ignore_ascii_case("stop")) {
        let Some(server) = shell.server.take() else {
            let words = "no server runs; .serve starts one";
            return Err(ShellError::Command(words.to_owned()));
        };
        let (address, clients) = (server.address(), server.connections());
        drop(server);
        writeln!(
            shell.target,
            "Weft listens on {address} no more; {clients} clients were connected."
        )?;
        shell.target.flush()?;
        return Ok(Flow::Continue);
    }
    if let Some(server) = &shell.server {
        let words = format!(
            "the database is served on {} already; .serve stop ends that",
            server.address()
        );
        return Err(ShellError::Command(words));
    }
    let (listen, flight) = addresses(words)?;
    let options = ServerOptions { listen, flight, connections_max: CONNECTIONS_MAX, tls: None };
    let server = Server::start(shell.open.session.database(), &options)?;
    let address = server.address();
    if let Some(flight) = server.flight_address() {
        writeln!(shell.target, "Arrow Flight SQL is served at grpc://{flight}")?;
    }
    shell.server = Some(server);
    let (host, port) = (address.ip(), address.port());
    writeln!(
        shell.target,
        "Weft listens on {address} until .serve stop, or the end of the shell. Connect with: psql -h {host} -p {port}"
    )?;
    // A program that runs the shell waits for the address.
    shell.target.flush()?;
    Ok(Flow::Continue)
}

/// The address to listen on, and that of Flight SQL after `--flight`.
fn addresses(words: &[String]) -> Result<(SocketAddr, Option<SocketAddr>), ShellError> {
    let (mut listen, mut flight) = (None, None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (place, word) = match word.as_str() {
            "--flight" => (&mut flight, words.next().map(String::as_str).unwrap_or_default()),
            word => (&mut listen, word),
        };
        if place.replace(address(word)?).is_some() {
            let words = "write one address, and one after --flight".to_owned();
            return Err(ShellError::Command(words));
        }
    }
    Ok((listen.unwrap_or(ADDRESS), flight))
}

/// `HOST:PORT`, `PORT` or `HOST`.
fn address(word: &str) -> Result<SocketAddr, ShellError> {
    let word = match word.strip_prefix("localhost") {
        Some(rest) => format!("{}{rest}", ADDRESS.ip()),
        None => word.to_owned(),
    };
    let of_port = || word.parse().map(|port| SocketAddr::new(ADDRESS.ip(), port)).ok();
    let of_host = || word.parse().map(|host| SocketAddr::new(host, ADDRESS.port())).ok();
    word.parse().ok().or_else(of_port).or_else(of_host).ok_or_else(|| {
        let words = format!("{word} is no address; write 127.0.0.1:5432, a port, or stop");
        ShellError::Command(words)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_be_cut_short() {
        let read = |word| address(word).map(|address| address.to_string()).unwrap();
        assert_eq!(read("5433"), "127.0.0.1:5433");
        assert_eq!(read("0.0.0.0"), "0.0.0.0:5432");
        assert_eq!(read("localhost:1"), "127.0.0.1:1");
        assert_eq!(read("[::1]:6000"), "[::1]:6000");
        assert!(address("nowhere:5432").is_err() && address("70000").is_err());
    }

    #[test]
    fn flight_sql_has_an_address_of_its_own() {
        let read = |words: &str| {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            addresses(&words)
        };
        let at = |port| SocketAddr::new(ADDRESS.ip(), port);
        assert_eq!(read("").unwrap(), (ADDRESS, None));
        assert_eq!(read("1 --flight 2").unwrap(), (at(1), Some(at(2))));
        assert_eq!(read("--flight 2").unwrap(), (ADDRESS, Some(at(2))));
        for wrong in ["--flight", "1 2", "--flight 1 --flight 2", "--flight nowhere", "--other 1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
