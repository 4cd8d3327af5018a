//! What the catalog and its functions say about connections. A server tells it; a program that uses the library has no
//! connection and is told so.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::catalog::CATALOG;
use crate::error::{ErrorKind, Result, SqlError};
use crate::postgres::numbers::OWNER;

/// A connection to a server.
#[derive(Clone, Debug)]
pub struct Backend {
    /// Its number.
    pub pid: i32,
    /// The user.
    pub user: String,
    /// The name that the client gave itself.
    pub application_name: String,
    /// The client's address, and its port.
    pub client: Option<(String, u16)>,
    /// When it connected, in microseconds since 1970.
    pub started_us: i64,
    /// When its last statement began, in microseconds since 1970.
    pub statement_started_us: Option<i64>,
    /// When it began to be as it is, in microseconds since 1970.
    pub changed_us: i64,
    /// `active`, `idle` or `idle in transaction`.
    pub state: &'static str,
    /// The last statement.
    pub query: String,
}

/// A setting of a connection that PostgreSQL has, too.
#[derive(Clone, Debug)]
pub struct ClientSetting {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// The value that it has at first.
    pub default: String,
}

/// The other end of a session: who is connected, how, and who else is.
pub trait Client: Send + Sync {
    /// The user.
    fn user(&self) -> String;

    /// The number of the connection.
    fn pid(&self) -> i32;

    /// The settings that PostgreSQL has, too.
    fn settings(&self) -> Vec<ClientSetting>;

    /// Changes such a setting, until the transaction ends if it is local, and returns its value.
    ///
    /// # Errors
    /// For settings that there are not, and values that cannot be.
    fn set(&self, name: &str, value: &str, is_local: bool) -> Result<String>;

    /// How long its statements wait at a time for rows that other transactions have locked; `None` for ever.
    fn lock_timeout(&self) -> Option<Duration> {
        None
    }

    /// All connections of the server.
    fn backends(&self) -> Vec<Backend>;

    /// Cancels the statement of a connection; false if there is no such connection.
    fn cancel(&self, pid: i32) -> bool;

    /// Ends a connection; false if there is no such one.
    fn terminate(&self, pid: i32) -> bool;
}

/// A session without a connection.
#[derive(Debug)]
pub(crate) struct LocalClient;

impl Client for LocalClient {
    fn user(&self) -> String {
        OWNER.to_owned()
    }

    fn pid(&self) -> i32 {
        i32::try_from(std::process::id()).unwrap_or_default()
    }

    fn settings(&self) -> Vec<ClientSetting> {
        let setting = |name: &str, value: &str| ClientSetting {
            name: name.to_owned(),
            value: value.to_owned(),
            default: value.to_owned(),
        };
        vec![
            setting("search_path", "main"),
            setting("server_encoding", "UTF8"),
            setting("server_version", super::functions::POSTGRES_VERSION),
        ]
    }

    fn set(&self, name: &str, _: &str, _: bool) -> Result<String> {
        let message = format!("{name} is a setting of connections to a server");
        Err(SqlError::new(ErrorKind::Setting, message))
    }

    fn backends(&self) -> Vec<Backend> {
        Vec::new()
    }

    fn cancel(&self, _: i32) -> bool {
        false
    }

    fn terminate(&self, _: i32) -> bool {
        false
    }
}

/// The client of a session, which a server sets once the session is there.
#[derive(Clone)]
pub(crate) struct Connected(Arc<RwLock<Arc<dyn Client>>>);

impl Default for Connected {
    fn default() -> Connected {
        Connected(Arc::new(RwLock::new(Arc::new(LocalClient))))
    }
}

impl Connected {
    pub(crate) fn get(&self) -> Arc<dyn Client> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set(&self, client: Arc<dyn Client>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = client;
    }

    /// The name of the database.
    pub(crate) fn database() -> &'static str {
        CATALOG
    }
}

impl std::fmt::Debug for Connected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connected")
    }
}
