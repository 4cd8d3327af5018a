//! Authentication: tokens, which clients get for a password in a handshake, and the sessions of connections whose clients send the password with
//! each call.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use pgwire::api::auth::sasl::scram::random_nonce;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tonic::Status;

use super::session::FlightSession;
use crate::auth;
use crate::server::Shared;

/// How long an unused token holds.
const IDLE_MAX: Duration = Duration::from_secs(3600);

/// How long a token holds once no connection is left that has used it.
const UNCONNECTED_MAX: Duration = Duration::from_secs(30);

/// How often tokens are dropped that hold no more.
pub(super) const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Passwords that are checked at a time: each takes thousands of hashes.
const CHECKS_MAX: usize = 1;

/// The longest `authorization` that is decoded, in bytes.
const HEADER_BYTES_MAX: usize = 8192;

/// The Base64 of `authorization: Basic`, which some clients write without its padding.
const BASIC: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A connection's own session, with the `authorization` of the calls that it is for.
type OwnSession = (String, Arc<FlightSession>);

/// The client's end of a connection.
#[derive(Clone)]
pub(crate) struct Peer {
    address: SocketAddr,
    connection: Arc<()>,
    /// The client has called with a token that holds, or with what else is demanded of it.
    is_known: Arc<AtomicBool>,
    /// The session of calls without a token.
    own: Arc<AsyncMutex<Option<OwnSession>>>,
}

impl Peer {
    pub(super) fn new(address: SocketAddr) -> Peer {
        Peer { address, connection: Arc::new(()), is_known: Arc::default(), own: Arc::default() }
    }

    pub(super) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    fn set_known(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }
}

/// A token's session, and when it was used.
struct Entry {
    session: Arc<FlightSession>,
    used: Instant,
    connections: Vec<Weak<()>>,
}

/// The tokens of all clients.
pub(crate) struct Tokens {
    shared: Arc<Shared>,
    entries: Mutex<HashMap<String, Entry>>,
    checks: Semaphore,
}

impl Tokens {
    pub(super) fn new(shared: Arc<Shared>) -> Tokens {
        Tokens { shared, entries: Mutex::default(), checks: Semaphore::new(CHECKS_MAX) }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of a call with this `authorization`.
    ///
    /// # Errors
    /// `Unauthenticated` if neither its token nor its password holds.
    pub(super) async fn session(
        &self,
        header: Option<&str>,
        peer: &Peer,
    ) -> Result<Arc<FlightSession>, Status> {
        if let Some(token) = header.and_then(|header| after(header, "bearer ")) {
            let session = self.of_token(token, peer).ok_or_else(|| {
                Status::unauthenticated("the token is not known, or has expired: connect again")
            })?;
            peer.set_known();
            return Ok(session);
        }
        let header = header.unwrap_or_default();
        // The first calls of a connection may come at once: one makes the session, and the others wait for it.
        let mut own = peer.own.lock().await;
        let known = own.as_ref().filter(|(known, session)| known == header && !session.is_ended());
        if let Some((_, session)) = known {
            return Ok(Arc::clone(session));
        }
        let session = self.log_in(header, peer).await?;
        *own = Some((header.to_owned(), Arc::clone(&session)));
        peer.set_known();
        Ok(session)
    }

    fn of_token(&self, token: &str, peer: &Peer) -> Option<Arc<FlightSession>> {
        let mut entries = self.entries();
        let entry = entries.get_mut(token)?;
        if entry.session.is_ended() {
            entries.remove(token);
            return None;
        }
        entry.used = Instant::now();
        let here = Arc::downgrade(&peer.connection);
        entry.connections.retain(|one| one.strong_count() > 0);
        if !entry.connections.iter().any(|one| one.ptr_eq(&here)) {
            entry.connections.push(here);
        }
        Some(Arc::clone(&entry.session))
    }

    /// A new token, for the user and the password of an `authorization`.
    ///
    /// # Errors
    /// `Unauthenticated` if it is not the password of the user.
    pub(super) async fn new_token(&self, header: &str, peer: &Peer) -> Result<String, Status> {
        let session = self.log_in(header, peer).await?;
        // Each has 18 bytes of the system.
        let token = format!("{}{}", random_nonce(), random_nonce());
        let connections = vec![Arc::downgrade(&peer.connection)];
        let entry = Entry { session, used: Instant::now(), connections };
        self.entries().insert(token.clone(), entry);
        peer.set_known();
        Ok(token)
    }

    /// A new session for the user of an `authorization`, or for anybody where there are no roles.
    async fn log_in(&self, header: &str, peer: &Peer) -> Result<Arc<FlightSession>, Status> {
        let said = after(header, "basic ").and_then(user_and_password);
        if !header.is_empty() && said.is_none() {
            return Err(Status::unauthenticated(
                "the authorization is neither Basic, with a user and a password, nor Bearer",
            ));
        }
        let demands = self.shared.demands_password();
        let user = match (said, demands) {
            (Some((user, password)), true) => {
                self.check(user.clone(), password).await?;
                user
            }
            (None, true) => {
                return Err(Status::unauthenticated("a user and a password are needed"));
            }
            (Some((user, _)), false) if !user.is_empty() => user,
            (_, false) => "weft".to_owned(),
        };
        let key = random_nonce();
        FlightSession::new(&self.shared, user, demands, peer.address, key.as_bytes())
    }

    async fn check(&self, user: String, password: String) -> Result<(), Status> {
        let _turn =
            self.checks.acquire().await.map_err(|_| Status::unavailable("the server ends"))?;
        let database = self.shared.database.clone();
        let message = format!("password authentication failed for user {}", weft::quoted(&user));
        let checked =
            tokio::task::spawn_blocking(move || auth::is_password(&database, &user, &password));
        match checked.await {
            Ok(true) => Ok(()),
            _ => Err(Status::unauthenticated(message)),
        }
    }

    /// Ends the session of a token.
    pub(super) fn forget(&self, session: &Arc<FlightSession>) {
        self.entries().retain(|_, entry| !Arc::ptr_eq(&entry.session, session));
        session.end();
    }

    /// Drops the tokens that hold no more, and ends their sessions.
    pub(super) fn sweep(&self) {
        let over = |entry: &Entry| {
            let is_connected = entry.connections.iter().any(|one| one.strong_count() > 0);
            let limit = if is_connected { IDLE_MAX } else { UNCONNECTED_MAX };
            let is_idle = entry.used.elapsed() > limit && !entry.session.is_busy();
            entry.session.is_ended() || is_idle
        };
        let gone: Vec<Entry> =
            self.entries().extract_if(|_, entry| over(entry)).map(|(_, entry)| entry).collect();
        for entry in gone {
            entry.session.end();
        }
    }

    /// Ends all sessions.
    pub(crate) fn end(&self) {
        let gone: Vec<Entry> = self.entries().drain().map(|(_, entry)| entry).collect();
        for entry in gone {
            entry.session.end();
        }
    }
}

/// What follows a word, in upper or lower case, at the beginning of a header.
fn after<'a>(header: &'a str, word: &str) -> Option<&'a str> {
    let (start, rest) = header.split_at_checked(word.len())?;
    start.eq_ignore_ascii_case(word).then(|| rest.trim())
}

/// The user and the password of a Basic authorization.
fn user_and_password(encoded: &str) -> Option<(String, String)> {
    if encoded.len() > HEADER_BYTES_MAX {
        return None;
    }
    let decoded = String::from_utf8(BASIC.decode(encoded).ok()?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_authorizations_are_read() {
        let read = |header| after(header, "basic ").and_then(user_and_password);
        let expected = ("ann".to_owned(), "a:b".to_owned());
        assert_eq!(read("Basic YW5uOmE6Yg=="), Some(expected.clone()));
        assert_eq!(read("basic YW5uOmE6Yg"), Some(expected));
        assert_eq!(read("Bearer YW5uOmE6Yg=="), None);
        assert_eq!(read("Basic ???"), None);
    }
}
