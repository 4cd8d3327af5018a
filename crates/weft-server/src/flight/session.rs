//! The session of a client: what it has between its calls, and what ends with it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use pgwire::messages::startup::SecretKey;
use tokio::sync::Notify;
use tonic::{Code, Status};
use weft::{QueryResult, Session};

use super::error::{OrStatus, with_sqlstate};
use super::handles::Handles;
use super::prepared::{Prepared, PreparedStatements};
use super::running::{RunningGuard, RunningStatements};
use super::tickets::{Query, Tickets};
use super::transactions::Transactions;
use crate::server::{Cancel, Registration, Shared};
use crate::state::ClientState;

/// A client's session. No other client's handles reach what it has.
pub(crate) struct FlightSession {
    shared: Arc<Shared>,
    /// The client has said the password of its user, and acts for it.
    has_password: bool,
    state: Arc<ClientState>,
    main: Session,
    handles: Handles,
    running: Arc<RunningStatements>,
    transactions: Mutex<Transactions>,
    prepared: Mutex<PreparedStatements>,
    tickets: Mutex<Tickets>,
    ended: Arc<Notify>,
    is_ended: AtomicBool,
    _registration: Registration,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FlightSession {
    /// A session of a user.
    ///
    /// # Errors
    /// `ResourceExhausted` if there are too many clients.
    pub(super) fn new(
        shared: &Arc<Shared>,
        user: String,
        has_password: bool,
        address: SocketAddr,
        key: &[u8],
    ) -> Result<Arc<FlightSession>, Status> {
        let ended = Arc::new(Notify::new());
        let pid = shared.next_pid();
        let is_superuser = shared.is_superuser(&user);
        let state =
            ClientState::new(pid, user.clone(), address, Arc::clone(&ended), Arc::clone(shared));
        let state = Arc::new(state);
        state.with_settings(|settings| {
            settings.tell("session_authorization", &user);
            settings.tell("is_superuser", if is_superuser { "on" } else { "off" });
        });
        let main = open(shared, &state, has_password)?;
        let key = SecretKey::Bytes(Bytes::copy_from_slice(key));
        let running = Arc::new(RunningStatements::default());
        let statements = Arc::clone(&running) as Arc<dyn Cancel>;
        let registration = shared.register(&key, statements, &state).ok_or_else(|| {
            with_sqlstate(Code::ResourceExhausted, "53300", "sorry, too many clients already")
        })?;
        let session = Arc::new(FlightSession {
            shared: Arc::clone(shared),
            has_password,
            state,
            main,
            handles: Handles::new(),
            running,
            transactions: Mutex::default(),
            prepared: Mutex::default(),
            tickets: Mutex::default(),
            ended: Arc::clone(&ended),
            is_ended: AtomicBool::new(false),
            _registration: registration,
        });
        let weak = Arc::downgrade(&session);
        tokio::spawn(async move {
            ended.notified().await;
            if let Some(session) = weak.upgrade() {
                session.end();
            }
        });
        Ok(session)
    }

    pub(super) fn main(&self) -> &Session {
        &self.main
    }

    pub(super) fn state(&self) -> &Arc<ClientState> {
        &self.state
    }

    pub(super) fn handles(&self) -> &Handles {
        &self.handles
    }

    pub(super) fn running(&self) -> &RunningStatements {
        &self.running
    }

    pub(super) fn transactions(&self) -> MutexGuard<'_, Transactions> {
        locked(&self.transactions)
    }

    /// Another session of the database for the same user.
    pub(super) fn open(&self) -> Result<Session, Status> {
        open(&self.shared, &self.state, self.has_password)
    }

    /// True once the session was ended: it takes no further calls.
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }

    /// True while statements run.
    pub(super) fn is_busy(&self) -> bool {
        !self.running.is_empty()
    }

    /// Ends the session: its statements are cancelled, its transactions rolled back.
    pub(super) fn end(&self) {
        self.is_ended.store(true, Ordering::Relaxed);
        self.running.cancel();
        self.transactions().end();
        locked(&self.prepared).clear();
        locked(&self.tickets).clear();
        self.main.roll_back();
    }

    /// Keeps a prepared statement, and returns its handle.
    ///
    /// # Errors
    /// `ResourceExhausted` if the client has too many.
    pub(super) fn keep(&self, prepared: Prepared) -> Result<Bytes, Status> {
        let number = self.handles.next_number();
        locked(&self.prepared).add(number, prepared)?;
        Ok(self.handles.handle(number))
    }

    /// A prepared statement.
    ///
    /// # Errors
    /// `NotFound` if the client has none of this handle.
    pub(super) fn prepared(&self, handle: &[u8]) -> Result<Prepared, Status> {
        let number = self.handles.number(handle).ok_or_else(no_statement)?;
        locked(&self.prepared).get(number).cloned().ok_or_else(no_statement)
    }

    /// Binds rows to a prepared statement, with which its rows have these columns.
    ///
    /// # Errors
    /// `ResourceExhausted` if the client has bound too much, `NotFound` if it has no such statement.
    pub(super) fn bind(
        &self,
        handle: &[u8],
        batches: Vec<RecordBatch>,
        columns: Option<SchemaRef>,
    ) -> Result<(), Status> {
        let number = self.handles.number(handle).ok_or_else(no_statement)?;
        match locked(&self.prepared).bind(number, batches, columns)? {
            true => Ok(()),
            false => Err(no_statement()),
        }
    }

    /// Forgets a prepared statement. It is no error if there is none: clients close twice.
    pub(super) fn close(&self, handle: &[u8]) {
        if let Some(number) = self.handles.number(handle) {
            locked(&self.prepared).remove(number);
        }
    }

    /// Issues a ticket for the rows of a query, and returns its handle.
    pub(super) fn issue(&self, query: Query) -> Bytes {
        let number = self.handles.next_number();
        locked(&self.tickets).add(number, query);
        self.handles.handle(number)
    }

    /// Takes a ticket.
    ///
    /// # Errors
    /// `NotFound` if the client has none of this handle, or has used it.
    pub(super) fn redeem(&self, handle: &[u8]) -> Result<Query, Status> {
        let number = self.handles.number(handle);
        let found = number.and_then(|number| locked(&self.tickets).take(number));
        found.ok_or_else(|| {
            Status::not_found("there is no such ticket, or it was used: a ticket gives rows once")
        })
    }

    /// Cancels the statements of a ticket, or the ticket itself; false if there is nothing of it.
    pub(super) fn cancel(&self, handle: &[u8]) -> bool {
        self.redeem(handle).is_ok() || self.running.cancel_ticket(handle)
    }

    /// Notes that a statement runs, until what is returned is dropped.
    pub(super) fn note(
        self: &Arc<FlightSession>,
        sql: &str,
        ticket: &Bytes,
        result: &QueryResult,
    ) -> RunningGuard {
        let number = self.handles.next_number();
        self.running.add(number, ticket.clone(), result.cancel_handle());
        if self.is_ended() {
            // The session may have ended before the statement was among its running statements, which it cancels.
            result.cancel_handle().cancel();
        }
        RunningGuard::new(self, number, self.state.begin(sql))
    }
}

/// A session of the database that acts for a user.
fn open(
    shared: &Arc<Shared>,
    state: &Arc<ClientState>,
    has_password: bool,
) -> Result<Session, Status> {
    let session = shared.database.session().or_status()?;
    session.set_client(Arc::clone(state) as Arc<dyn weft::Client>);
    if has_password {
        session.log_in(&state.user);
    }
    Ok(session)
}

fn no_statement() -> Status {
    Status::not_found("there is no such prepared statement, or it was closed")
}

impl Drop for FlightSession {
    fn drop(&mut self) {
        self.end();
        self.ended.notify_one();
    }
}
