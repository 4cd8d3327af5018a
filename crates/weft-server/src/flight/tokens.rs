//! Who calls: tokens that clients get for a password, and sessions of connections whose clients say it with each call.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pgwire::api::auth::sasl::scram::random_nonce;
use tokio::sync::Semaphore;
use tonic::Status;

use super::session::FlightSession;
use crate::auth;
use crate::server::Shared;

/// How long a token holds that is not used.
const IDLE_MAX: Duration = Duration::from_secs(3600);

/// How long a token holds once no connection is left that has used it.
const UNCONNECTED_MAX: Duration = Duration::from_secs(30);

/// How often tokens are looked at whether they still hold.
pub(super) const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Passwords that are checked at a time: each takes thousands of hashes.
const CHECKS_MAX: usize = 1;

/// The longest header that is looked at, in bytes.
const HEADER_BYTES_MAX: usize = 8192;

/// Who is at the other end of a connection.
#[derive(Clone)]
pub(crate) struct Peer {
    address: SocketAddr,
    connection: Arc<()>,
    /// The session of calls without a token, with the header that they have.
    own: Arc<Mutex<Option<(String, Arc<FlightSession>)>>>,
}

impl Peer {
    pub(super) fn new(address: SocketAddr) -> Peer {
        Peer { address, connection: Arc::new(()), own: Arc::default() }
    }
}

/// A token's session, and when it was used.
struct Entry {
    session: Arc<FlightSession>,
    used: Instant,
    connections: Vec<Weak<()>>,
}

/// The tokens.
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
    /// `Unauthenticated` if it is none that holds.
    pub(super) async fn session(
        &self,
        header: Option<&str>,
        peer: &Peer,
    ) -> Result<Arc<FlightSession>, Status> {
        if let Some(token) = header.and_then(|header| after(header, "bearer ")) {
            let session = self.of_token(token, peer);
            return session.ok_or_else(|| {
                Status::unauthenticated("the token is not known, or has expired: connect again")
            });
        }
        let header = header.unwrap_or_default();
        let known = peer.own.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, session)) =
            known.filter(|(known, session)| known == header && !session.is_ended())
        {
            return Ok(session);
        }
        let session = self.log_in(header, peer).await?;
        let mut own = peer.own.lock().unwrap_or_else(PoisonError::into_inner);
        *own = Some((header.to_owned(), Arc::clone(&session)));
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

    /// A new token for a user who says the password.
    ///
    /// # Errors
    /// `Unauthenticated` if it is not the password.
    pub(super) async fn new_token(&self, header: &str, peer: &Peer) -> Result<String, Status> {
        let session = self.log_in(header, peer).await?;
        // Each has 18 bytes of the system.
        let token = format!("{}{}", random_nonce(), random_nonce());
        let connections = vec![Arc::downgrade(&peer.connection)];
        let entry = Entry { session, used: Instant::now(), connections };
        self.entries().insert(token.clone(), entry);
        Ok(token)
    }

    /// A session for who says the password, or for anybody where there are no roles.
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

    /// Forgets tokens that hold no longer, with their sessions.
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

/// What comes after a word in whatever case.
fn after<'a>(header: &'a str, word: &str) -> Option<&'a str> {
    let (start, rest) = header.split_at_checked(word.len())?;
    start.eq_ignore_ascii_case(word).then(|| rest.trim())
}

/// The user and the password of a Basic authorization.
fn user_and_password(encoded: &str) -> Option<(String, String)> {
    if encoded.len() > HEADER_BYTES_MAX {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
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
        assert_eq!(read("Basic YW5uOmE6Yg=="), Some(expected));
        assert_eq!(read("Bearer YW5uOmE6Yg=="), None);
        assert_eq!(read("Basic ???"), None);
    }
}
