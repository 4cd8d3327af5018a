//! Arrow Flight SQL: a second port, for clients that speak Arrow.
//!
//! `incoming.rs` accepts connections and encrypts them. `access.rs` finds the session of a call before the call is read: `tokens.rs` has
//! the sessions of clients. `calls.rs` answers the calls of Flight, `sql.rs` those of Flight SQL: statements (`statements.rs`), what
//! the database holds (`metadata.rs`) and what it is (`info.rs`). Batches go out by `batches.rs` and come in by `upload.rs`; `error.rs`
//! gives errors the codes of gRPC.
//!
//! A session (`session.rs`) has transactions (`transactions.rs`), prepared statements (`prepared.rs`), tickets (`tickets.rs`) and
//! statements that run (`running.rs`), which its client names by handles (`handles.rs`).
//!
//! A query runs when its ticket is redeemed by DoGet, and once: the columns that GetFlightInfo has told are those of its batches. A
//! statement without rows runs within GetFlightInfo. As on the other port, statements run on the database's threads, and are read as fast
//! as their clients take the batches.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tonic::transport::Server;

use crate::server::Shared;
use tokens::Tokens;

mod access;
mod batches;
mod calls;
mod error;
mod handles;
mod incoming;
mod info;
mod metadata;
mod prepared;
mod running;
mod session;
mod sql;
mod statements;
mod tickets;
pub(crate) mod tokens;
mod transactions;
mod upload;

/// How long a connection may be silent before its client is asked for a sign of life.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// How long the client may take for the sign of life.
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(20);

/// Calls of a connection at a time, at most.
const CALLS_MAX: u32 = 128;

/// The longest headers of a call, in bytes.
const HEADERS_BYTES_MAX: u32 = 16 << 10;

/// Serves the clients of a listener as long as the runtime runs that it is called in.
pub(crate) fn serve(
    listener: TcpListener,
    shared: &Arc<Shared>,
    tls: Option<TlsAcceptor>,
    connections_max: usize,
) -> Arc<Tokens> {
    let tokens = Arc::new(Tokens::new(Arc::clone(shared)));
    let router = Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_MAX))
        .max_concurrent_streams(CALLS_MAX)
        .http2_max_header_list_size(HEADERS_BYTES_MAX)
        .add_service(access::Access::new(Arc::clone(&tokens)));
    let connections = incoming::connections(listener, tls, connections_max, incoming::UNKNOWN_MAX);
    tokio::spawn(async move {
        let ended: Result<(), _> = router.serve_with_incoming(connections).await;
        if let Err(error) = ended {
            log::warn!("Flight SQL is served no more: {}", io::Error::other(error));
        }
    });
    let swept = Arc::downgrade(&tokens);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(tokens::SWEEP_INTERVAL).await;
            let Some(tokens) = swept.upgrade() else { return };
            tokens.sweep();
        }
    });
    tokens
}
