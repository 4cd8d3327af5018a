//! Listening: connections are accepted up to a number, and all of them end with the server.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use pgwire::api::RandomPidSecretKeyGenerator;
use pgwire::api::auth::sasl::scram::ScramAuth;
use pgwire::api::cancel::CancelHandler;
use pgwire::messages::cancel::CancelRequest;
use pgwire::messages::startup::SecretKey;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, Semaphore};
use tokio_rustls::TlsAcceptor;
use weft::{Database, Session, Standing};

use crate::auth::{make_verifiers, verifiers};
use crate::connection::Connection;
use crate::flight;
use crate::flight::tokens::Tokens;
use crate::messages;
use crate::state::ClientState;
use crate::tls;

/// Threads that read and write messages; statements run on the database's own.
const THREADS: usize = 2;

/// How long statements that still run may take to notice that the server ends.
const SHUTDOWN_MAX: Duration = Duration::from_secs(5);

/// How long accepting waits after the system refused a connection, so that it does not refuse it over and over.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often connections are looked at whether one is idle for longer than it may be.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

/// Connections beyond the permitted number that may be on their way to being refused.
const CONNECTING_MAX: usize = 64;

/// Connections that the system keeps until they are accepted.
const BACKLOG: u32 = 1024;

/// How a server listens.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The address and port; port 0 is any that is free. On addresses that other machines reach, clients must have the
    /// password of a role.
    pub listen: SocketAddr,
    /// The address and port of Arrow Flight SQL, if it is served; the same holds for it.
    pub flight: Option<SocketAddr>,
    /// Connections at a time, at most; on the port of Flight as many, whose clients count among these once they have said who they are.
    pub connections_max: usize,
    /// The files of the certificate and its key, in PEM; without them, connections are not encrypted.
    pub tls: Option<TlsFiles>,
}

/// The files of a server's certificate.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate, and the certificates that vouch for it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        let listen = SocketAddr::from(([127, 0, 0, 1], 5432));
        ServerOptions { listen, flight: None, connections_max: 1000, tls: None }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Other machines could reach the address, and there are no users.
    #[error(
        "cannot listen on {0}: other machines reach it, and there are no users yet; serve 127.0.0.1 first and make one \
         there: CREATE ROLE name LOGIN SUPERUSER PASSWORD 'text'"
    )]
    NoUsers(SocketAddr),
    /// The system refused the address.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// The certificate cannot be used.
    #[error("cannot use the certificate in '{}': {problem}", file.display())]
    Certificate {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The system refused threads.
    #[error("cannot start the threads of the server: {0}")]
    Threads(io::Error),
}

/// Sessions by what a cancel request names them with.
type Sessions = HashMap<(i32, Vec<u8>), (Arc<dyn Cancel>, Arc<ClientState>)>;

/// What runs the statements of a connection.
pub(crate) trait Cancel: Send + Sync {
    /// Cancels the statements that run.
    fn cancel(&self);
}

impl Cancel for Session {
    fn cancel(&self) {
        Session::cancel(self);
    }
}

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) database: Database,
    pub(crate) keys: RandomPidSecretKeyGenerator,
    pub(crate) scram: ScramAuth,
    /// Clients need a password even if there are no roles any more.
    is_reachable: bool,
    connections_max: usize,
    sessions: Mutex<Sessions>,
}

impl Shared {
    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if clients have to say a password.
    pub(crate) fn demands_password(&self) -> bool {
        self.is_reachable || self.database.has_roles()
    }

    /// True if a user may do everything: where there are no roles, each.
    pub(crate) fn is_superuser(&self, user: &str) -> bool {
        match self.database.role(user) {
            Some(role) => role.standing == Standing::Superuser,
            None => !self.demands_password(),
        }
    }

    /// A number that names no connection yet; most of it is random, as in those of PostgreSQL's clients.
    pub(crate) fn next_pid(&self) -> i32 {
        let mut pid = (RandomState::new().hash_one(0) >> 33) as i32;
        while pid == 0 || self.sessions().keys().any(|(known, _)| *known == pid) {
            pid = pid.wrapping_add(1) & i32::MAX;
        }
        pid
    }

    /// Takes a place for a connection; `None` if there are too many.
    pub(crate) fn register(
        self: &Arc<Shared>,
        key: &SecretKey,
        session: Arc<dyn Cancel>,
        state: &Arc<ClientState>,
    ) -> Option<Registration> {
        let key = (state.pid, key.to_bytes().to_vec());
        let mut sessions = self.sessions();
        if sessions.len() >= self.connections_max {
            return None;
        }
        sessions.insert(key.clone(), (session, Arc::clone(state)));
        Some(Registration { shared: Arc::clone(self), key })
    }

    /// The connections.
    pub(crate) fn states(&self) -> Vec<Arc<ClientState>> {
        self.sessions().values().map(|(_, state)| Arc::clone(state)).collect()
    }

    /// Cancels the statement of a connection, or ends it, if that is permitted; false if there is no such connection.
    pub(crate) fn act_on(
        &self,
        pid: i32,
        is_permitted: impl FnOnce(&ClientState) -> bool,
        ends: bool,
    ) -> bool {
        let sessions = self.sessions();
        let found = sessions.iter().find(|((known, _), _)| *known == pid).map(|(_, found)| found);
        let Some((session, state)) = found.cloned() else { return false };
        drop(sessions);
        if !is_permitted(&state) {
            return false;
        }
        session.cancel();
        if ends {
            state.end();
        }
        true
    }
}

/// A connection's place among the permitted connections; the place is free again when this is dropped.
pub(crate) struct Registration {
    shared: Arc<Shared>,
    key: (i32, Vec<u8>),
}

impl Drop for Registration {
    fn drop(&mut self) {
        let found = self.shared.sessions().remove(&self.key);
        // A statement whose client is gone has no reader.
        if let Some((session, _)) = found {
            session.cancel();
        }
    }
}

#[async_trait]
impl CancelHandler for Shared {
    async fn on_cancel_request(&self, request: CancelRequest) {
        let key = (request.pid, request.secret_key.to_bytes().to_vec());
        let found = self.sessions().get(&key).cloned();
        if let Some((session, _)) = found {
            session.cancel();
        }
    }
}

/// A running server. It ends when it is dropped.
pub struct Server {
    address: SocketAddr,
    flight: Option<(SocketAddr, Arc<Tokens>)>,
    runtime: Option<Runtime>,
    shared: Arc<Shared>,
}

impl Server {
    /// Listens for PostgreSQL's clients, and for those of Flight SQL if they have an address.
    ///
    /// # Errors
    /// [`ServerError`] if other machines reach the address and there are no roles, if the certificate cannot be used, or if
    /// the system refuses the address or threads.
    pub fn start(database: &Database, options: &ServerOptions) -> Result<Server, ServerError> {
        let addresses = [Some(options.listen), options.flight];
        let reachable = addresses.into_iter().flatten().find(|address| !address.ip().is_loopback());
        make_verifiers(database);
        if let Some(address) = reachable.filter(|_| !database.has_logins()) {
            return Err(ServerError::NoUsers(address));
        }
        let is_reachable = reachable.is_some();
        let mut scram: ScramAuth = ScramAuth::new(verifiers(database));
        let tls = options.tls.as_ref().map(|files| tls::acceptor(files, &mut scram)).transpose()?;
        if is_reachable && tls.is_none() {
            log::warn!("what clients send and get is not encrypted: there is no certificate");
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("weft-server")
            .enable_all()
            .build()
            .map_err(ServerError::Threads)?;
        let entered = runtime.enter();
        let listen_on = |address| {
            let refused = |error| ServerError::Listen { address, error };
            let listener = listen(address).map_err(refused)?;
            let address = listener.local_addr().map_err(refused)?;
            Ok((listener, address))
        };
        let (listener, address) = listen_on(options.listen)?;
        let flight = options.flight.map(listen_on).transpose()?;
        let flight_tls = options.tls.as_ref().map(|files| tls::acceptor_for(files, b"h2"));
        let flight_tls = flight_tls.transpose()?;
        let shared = Arc::new(Shared {
            database: database.clone(),
            keys: RandomPidSecretKeyGenerator::default(),
            scram,
            is_reachable,
            connections_max: options.connections_max,
            sessions: Mutex::default(),
        });
        let flight = flight.map(|(listener, address)| {
            let limit = options.connections_max.saturating_add(CONNECTING_MAX);
            (address, flight::serve(listener, &shared, flight_tls, limit))
        });
        drop(entered);
        runtime.spawn(accept(listener, Arc::clone(&shared), tls));
        runtime.spawn(watch(Arc::clone(&shared)));
        Ok(Server { address, flight, runtime: Some(runtime), shared })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of Flight SQL, if it is served.
    pub fn flight_address(&self) -> Option<SocketAddr> {
        self.flight.as_ref().map(|(address, _)| *address)
    }

    /// How many clients are connected.
    pub fn connections(&self) -> usize {
        self.shared.sessions().len()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for (session, _) in self.shared.sessions().values() {
            session.cancel();
        }
        if let Some((_, tokens)) = &self.flight {
            tokens.end();
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(SHUTDOWN_MAX);
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Listens on an address; the system notices clients that are gone without a word.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_keepalive(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, tls: Option<TlsAcceptor>) {
    let places = Arc::new(Semaphore::new(shared.connections_max.saturating_add(CONNECTING_MAX)));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((socket, _)) => {
                let ended = Arc::new(Notify::new());
                let connection = Connection::new(Arc::clone(&shared), Arc::clone(&ended));
                let work = messages::serve(socket, tls.clone(), Arc::new(connection));
                tokio::spawn(async move {
                    let _place = place;
                    tokio::select! {
                        ended = work => {
                            if let Err(error) = ended {
                                log::debug!("a connection ended: {error}");
                            }
                        }
                        () = ended.notified() => log::info!("a connection was ended by the server"),
                    }
                });
            }
            Err(error) => {
                log::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Ends connections that are idle, or do not take their rows, for longer than their settings permit.
async fn watch(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(WATCH_INTERVAL).await;
        for state in shared.states().into_iter().filter(|state| state.is_overdue()) {
            log::info!("the connection {} of {} is overdue", state.pid, state.user);
            state.end();
        }
    }
}
