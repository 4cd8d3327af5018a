//! `weft serve`: a database behind PostgreSQL's protocol, until a signal ends it.

use std::io::{self, Write};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use weft_server::{Server, ServerOptions, TlsFiles};

use crate::args::ServeArgs;
use crate::error::ShellError;
use crate::shell::open::{Open, OpenOptions};

/// Opens the database and serves it.
///
/// # Errors
/// If the database cannot be opened, or the address cannot be listened on.
pub fn run(args: &ServeArgs) -> Result<(), ShellError> {
    let options = OpenOptions {
        read_only: args.read_only,
        devices: Vec::new(),
        settings: args.all_settings(),
    };
    // Before the database is open, so that a signal never ends the process in between.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(ShellError::Signals)?;
    let open = Open::new(args.directory.as_deref(), &options)?;
    let files = args.tls_certificate.clone().zip(args.tls_key.clone());
    let tls = files.map(|(certificate, key)| TlsFiles { certificate, key });
    let options = ServerOptions {
        listen: args.listen,
        flight: args.flight,
        connections_max: args.connections,
        tls,
    };
    let server = Server::start(open.session.database(), &options)?;
    let address = server.address();
    let flight = server.flight_address();
    let flight = flight.map_or_else(String::new, |flight| {
        let scheme = if args.tls_key.is_some() { "grpc+tls" } else { "grpc" };
        format!("Arrow Flight SQL is served at {scheme}://{flight}\n")
    });
    let message = format!(
        "{flight}Weft listens on {address}. Connect with: psql -h {} -p {}\n",
        address.ip(),
        address.port()
    );
    // A script that starts the server may have closed standard output; the server serves all the same.
    drop(io::stdout().write_all(message.as_bytes()).and_then(|()| io::stdout().flush()));
    if let Some(signal) = signals.forever().next() {
        log::info!("signal {signal}: the server ends, with {} clients", server.connections());
    }
    Ok(())
}
