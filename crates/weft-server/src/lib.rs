//! A server for PostgreSQL's clients, and those of Arrow Flight SQL: their protocols in front of a Weft database.
//!
//! [`Server`] listens on an address and gives each connection a session of the database. The crate `pgwire` takes messages apart,
//! after a look at what clients send (`messages.rs`), and writes them; answers to one batch of messages are sent at once (`gathered.rs`); what a message means is decided here: statements of clients that concern the connection itself
//! (`commands.rs`), queries by both protocols (`connection.rs`), types (`types.rs`), values in the text and the binary
//! format (`encode.rs`, `text.rs`, `binary.rs`, `json.rs`), parameters (`parameters.rs`), COPY between a client and a table
//! (`copy_in.rs`, `copy_out.rs`) and errors with their SQLSTATE (`error.rs`). `auth.rs` knows who a client is, and
//! makes verifiers of passwords, `tls.rs` has the certificate, and `state.rs` what the server tells of a connection.
//!
//! Clients of Arrow Flight SQL have a port of their own (`flight/`), with the same users, certificate and limit.
//!
//! A connection is a task of a few threads, never a thread; a statement runs on the database's own threads and is read
//! as fast as the client takes its rows.

#![forbid(unsafe_code)]

mod auth;
mod binary;
mod commands;
mod connection;
mod copy_channel;
mod copy_in;
mod copy_out;
mod encode;
mod error;
mod flight;
mod gathered;
mod json;
mod messages;
mod parameters;
mod server;
mod state;
mod text;
mod tls;
mod types;

pub use auth::make_verifiers;
pub use server::{Server, ServerError, ServerOptions, TlsFiles};
