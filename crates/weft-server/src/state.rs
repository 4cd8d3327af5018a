//! What the server knows of a connection, and tells of it: the user, the settings, and what the connection does.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pgwire::messages::response::TransactionStatus;
use tokio::sync::Notify;
use weft::{Backend, Client, ClientSetting, Error, ErrorKind};

use crate::commands::ClientSettings;
use crate::server::Shared;

/// How long a statement may go on beyond its limit before its connection is ended: its client takes no rows.
const OVERTIME: Duration = Duration::from_secs(10);

/// Characters of a statement that are kept.
const QUERY_MAX: usize = 1024;

/// A connection whose client has said who it is.
pub(crate) struct ClientState {
    pub(crate) pid: i32,
    pub(crate) user: String,
    address: SocketAddr,
    started_us: i64,
    settings: Mutex<ClientSettings>,
    activity: Mutex<Activity>,
    ended: Arc<Notify>,
    shared: Arc<Shared>,
}

/// What a connection does.
#[derive(Clone, Debug)]
struct Activity {
    /// Statements that go on: several at a time on connections of Flight SQL.
    statements: usize,
    transaction: TransactionStatus,
    query: String,
    statement_started_us: Option<i64>,
    changed_us: i64,
    changed: Instant,
}

impl ClientState {
    pub(crate) fn new(
        pid: i32,
        user: String,
        address: SocketAddr,
        ended: Arc<Notify>,
        shared: Arc<Shared>,
    ) -> ClientState {
        let started_us = now_us();
        let activity = Activity {
            statements: 0,
            transaction: TransactionStatus::Idle,
            query: String::new(),
            statement_started_us: None,
            changed_us: started_us,
            changed: Instant::now(),
        };
        ClientState {
            pid,
            user,
            address,
            started_us,
            settings: Mutex::default(),
            activity: Mutex::new(activity),
            ended,
            shared,
        }
    }

    pub(crate) fn with_settings<T>(&self, of: impl FnOnce(&mut ClientSettings) -> T) -> T {
        of(&mut self.settings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn activity(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a statement begins; it has ended when what is returned is dropped.
    pub(crate) fn begin(self: &Arc<ClientState>, sql: &str) -> Busy {
        let mut activity = self.activity();
        activity.statements += 1;
        activity.query = sql.chars().take(QUERY_MAX).collect();
        activity.statement_started_us = Some(now_us());
        activity.change();
        Busy(Arc::clone(self))
    }

    /// Notes what the transaction of the connection is at.
    pub(crate) fn set_transaction(&self, status: TransactionStatus) {
        if status == TransactionStatus::Idle {
            self.with_settings(ClientSettings::end_transaction);
        }
        self.activity().transaction = status;
    }

    /// Ends the connection.
    pub(crate) fn end(&self) {
        self.ended.notify_one();
    }

    /// True if a timeout of the settings is over.
    pub(crate) fn is_overdue(&self) -> bool {
        let activity = self.activity().clone();
        let (name, more) = match (activity.statements > 0, activity.transaction) {
            (true, _) => ("statement_timeout", OVERTIME),
            (false, TransactionStatus::Idle) => ("idle_session_timeout", Duration::ZERO),
            (false, _) => ("idle_in_transaction_session_timeout", Duration::ZERO),
        };
        let limit = self.with_settings(|settings| settings.timeout(name));
        limit.is_some_and(|limit| activity.changed.elapsed() > limit + more)
    }

    /// The connection as `pg_stat_activity` has it.
    pub(crate) fn backend(&self) -> Backend {
        let activity = self.activity().clone();
        let state = match (activity.statements > 0, activity.transaction) {
            (true, _) => "active",
            (false, TransactionStatus::Idle) => "idle",
            (false, TransactionStatus::Transaction) => "idle in transaction",
            (false, TransactionStatus::Error) => "idle in transaction (aborted)",
        };
        Backend {
            pid: self.pid,
            user: self.user.clone(),
            application_name: self
                .with_settings(|settings| settings.get("application_name").to_owned()),
            client: Some((self.address.ip().to_string(), self.address.port())),
            started_us: self.started_us,
            statement_started_us: activity.statement_started_us,
            changed_us: activity.changed_us,
            state,
            query: activity.query,
        }
    }

    /// True if the user may do to another's connection what its own user may.
    fn may_act_on(&self, other: &ClientState) -> bool {
        self.user == other.user || self.shared.is_superuser(&self.user)
    }
}

impl Activity {
    fn change(&mut self) {
        (self.changed_us, self.changed) = (now_us(), Instant::now());
    }
}

/// A statement of a connection that goes on.
pub(crate) struct Busy(Arc<ClientState>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut activity = self.0.activity();
        activity.statements -= 1;
        activity.change();
    }
}

fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

impl Client for ClientState {
    fn user(&self) -> String {
        self.user.clone()
    }

    fn pid(&self) -> i32 {
        self.pid
    }

    fn settings(&self) -> Vec<ClientSetting> {
        self.with_settings(|settings| settings.list())
    }

    fn set(&self, name: &str, value: &str, is_local: bool) -> weft::Result<String> {
        if crate::commands::known(name).is_none() {
            let message = format!("there is no setting {name} of connections");
            return Err(Error::new(ErrorKind::Setting, message));
        }
        let is_within = self.activity().transaction != TransactionStatus::Idle;
        self.with_settings(|settings| {
            let set = match (is_local, is_within) {
                (false, _) => settings.set(name, value),
                (true, true) => settings.set_local(name, value),
                (true, false) => return Ok(value.to_owned()),
            };
            set.map_err(|error| Error::new(ErrorKind::Setting, error.to_string()))?;
            Ok(settings.get(name).to_owned())
        })
    }

    fn lock_timeout(&self) -> Option<Duration> {
        self.with_settings(|settings| settings.timeout("lock_timeout"))
    }

    fn backends(&self) -> Vec<Backend> {
        self.shared.states().iter().map(|state| state.backend()).collect()
    }

    fn cancel(&self, pid: i32) -> bool {
        self.shared.act_on(pid, |other| self.may_act_on(other), false)
    }

    fn terminate(&self, pid: i32) -> bool {
        self.shared.act_on(pid, |other| self.may_act_on(other), true)
    }
}
