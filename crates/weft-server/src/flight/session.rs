//! What a client has between its calls: sessions of the database, transactions, prepared statements, and the statements that run.
//!
//! Flight SQL names transactions, and a client may have several. The first one takes the session that the client's statements have
//! otherwise, so that settings and temporary tables are the same; statements outside of it find another session meanwhile, as further
//! transactions do.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use pgwire::messages::response::TransactionStatus as Told;
use pgwire::messages::startup::SecretKey;
use tokio::sync::Notify;
use tonic::{Code, Status};
use weft::{CancelHandle, QueryResult, Session, TransactionStatus};

use super::error::{OrStatus, with_sqlstate};
use crate::server::{Registration, Shared};
use crate::state::{Busy, ClientState};

/// Prepared statements of a client, at most.
const PREPARED_MAX: usize = 1000;

/// Transactions of a client at a time, at most.
const TRANSACTIONS_MAX: usize = 16;

/// Bytes of the rows that are bound to prepared statements of a client, at most.
pub(super) const BOUND_BYTES_MAX: usize = 64 << 20;

/// Bytes of the texts of a client's prepared statements, at most.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// What a client has.
pub(crate) struct FlightSession {
    shared: Arc<Shared>,
    user: String,
    /// The client has said the password of the user, and acts for it.
    has_password: bool,
    state: Arc<ClientState>,
    main: Session,
    ended: Arc<Notify>,
    is_ended: AtomicBool,
    held: Mutex<Held>,
    _registration: Registration,
}

#[derive(Default)]
struct Held {
    last_number: u64,
    /// The session of statements outside of transactions while one has the main session.
    spare: Option<Session>,
    transactions: HashMap<u64, Transaction>,
    prepared: HashMap<u64, Prepared>,
    running: HashMap<u64, (Option<Bytes>, CancelHandle)>,
}

struct Transaction {
    session: Session,
    is_main: bool,
    /// The savepoints, by their numbers.
    savepoints: HashMap<u64, String>,
}

/// A prepared statement.
#[derive(Clone)]
pub(super) struct Prepared {
    pub(super) sql: Arc<str>,
    pub(super) transaction: Option<Bytes>,
    /// The columns of its rows; `None` of a command.
    pub(super) columns: Option<SchemaRef>,
    /// The rows that are bound.
    pub(super) bound: Option<Arc<[RecordBatch]>>,
}

impl Held {
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

/// The number that a handle stands for.
fn number_of(handle: &[u8]) -> Option<u64> {
    handle.try_into().ok().map(u64::from_be_bytes)
}

/// A number as a handle.
fn handle_of(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
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
        let state =
            ClientState::new(pid, user.clone(), address, Arc::clone(&ended), Arc::clone(shared));
        let state = Arc::new(state);
        let is_superuser = shared.is_superuser(&user);
        state.with_settings(|settings| {
            settings.tell("session_authorization", &user);
            settings.tell("is_superuser", if is_superuser { "on" } else { "off" });
        });
        let main = open(shared, &state, has_password)?;
        let key = SecretKey::Bytes(Bytes::copy_from_slice(key));
        let registration = shared.register(&key, &main, &state).ok_or_else(|| {
            with_sqlstate(Code::ResourceExhausted, "53300", "sorry, too many clients already")
        })?;
        let session = Arc::new(FlightSession {
            shared: Arc::clone(shared),
            user,
            has_password,
            state,
            main,
            ended: Arc::clone(&ended),
            is_ended: AtomicBool::new(false),
            held: Mutex::default(),
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

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn user(&self) -> &str {
        &self.user
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// True once the session was ended: it takes no further calls.
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }

    /// True while statements run.
    pub(super) fn is_busy(&self) -> bool {
        !self.held().running.is_empty()
    }

    /// Ends the session: its statements are cancelled, its transactions rolled back.
    pub(super) fn end(&self) {
        self.is_ended.store(true, Ordering::Relaxed);
        let mut held = self.held();
        for (_, handle) in held.running.values() {
            handle.cancel();
        }
        for transaction in held.transactions.values() {
            transaction.session.roll_back();
        }
        held.transactions.clear();
        held.prepared.clear();
        drop(held);
        self.main.roll_back();
    }

    /// The session of a transaction, or that of statements outside of one.
    ///
    /// # Errors
    /// `NotFound` if the client has no such transaction.
    pub(super) fn session(&self, transaction: Option<&[u8]>) -> Result<Session, Status> {
        let mut held = self.held();
        // Clients say by an empty handle, too, that there is none.
        if let Some(handle) = transaction.filter(|handle| !handle.is_empty()) {
            let found = number_of(handle).and_then(|number| held.transactions.get(&number));
            let found = found.ok_or_else(no_transaction)?;
            return Ok(found.session.clone());
        }
        if !held.transactions.values().any(|transaction| transaction.is_main) {
            return Ok(self.main.clone());
        }
        if held.spare.is_none() {
            held.spare = Some(open(&self.shared, &self.state, self.has_password)?);
        }
        held.spare.clone().ok_or_else(|| Status::internal("there is no session"))
    }

    /// Begins a transaction.
    pub(super) async fn begin(&self) -> Result<Bytes, Status> {
        let (number, session) = {
            let mut held = self.held();
            if held.transactions.len() >= TRANSACTIONS_MAX {
                let message = format!(
                    "the client has {TRANSACTIONS_MAX} transactions already: end one first"
                );
                return Err(with_sqlstate(Code::ResourceExhausted, "53400", &message));
            }
            let is_taken = held.transactions.values().any(|transaction| transaction.is_main);
            let is_main = !is_taken && self.main.transaction_status() == TransactionStatus::Idle;
            let session = match is_main {
                true => self.main.clone(),
                false => open(&self.shared, &self.state, self.has_password)?,
            };
            let number = held.number();
            let transaction =
                Transaction { session: session.clone(), is_main, savepoints: HashMap::new() };
            held.transactions.insert(number, transaction);
            (number, session)
        };
        let begun = self.run(&session, "BEGIN").await;
        if let Err(status) = begun {
            self.held().transactions.remove(&number);
            return Err(status);
        }
        self.state.set_transaction(Told::Transaction);
        Ok(handle_of(number))
    }

    /// Ends a transaction. One that has failed is rolled back in any case.
    pub(super) async fn finish(&self, handle: &[u8], commits: bool) -> Result<(), Status> {
        let found = {
            let mut held = self.held();
            let found = number_of(handle).and_then(|number| held.transactions.remove(&number));
            if held.transactions.is_empty() {
                self.state.set_transaction(Told::Idle);
            }
            found.ok_or_else(no_transaction)?
        };
        let done = match (commits, found.session.transaction_status()) {
            (true, TransactionStatus::InTransaction) => self.run(&found.session, "COMMIT").await,
            (true, TransactionStatus::Failed) => Err(with_sqlstate(
                Code::FailedPrecondition,
                "25P02",
                "a statement of the transaction has failed: it was rolled back instead",
            )),
            _ => Ok(()),
        };
        found.session.roll_back();
        done
    }

    /// Makes a savepoint of a transaction.
    pub(super) async fn save(&self, handle: &[u8], name: &str) -> Result<Bytes, Status> {
        let session = self.session(Some(handle))?;
        self.run(&session, &format!("SAVEPOINT {}", weft::quoted(name))).await?;
        let mut held = self.held();
        let number = held.number();
        let found = number_of(handle).and_then(|number| held.transactions.get_mut(&number));
        let transaction = found.ok_or_else(no_transaction)?;
        if transaction.savepoints.len() >= PREPARED_MAX {
            return Err(Status::resource_exhausted("the transaction has too many savepoints"));
        }
        transaction.savepoints.insert(number, name.to_owned());
        Ok(handle_of(number))
    }

    /// Releases a savepoint, or rolls its transaction back to it.
    pub(super) async fn finish_savepoint(
        &self,
        handle: &[u8],
        releases: bool,
    ) -> Result<(), Status> {
        let missing = || Status::not_found("there is no such savepoint, or it was released");
        let number = number_of(handle).ok_or_else(missing)?;
        let (session, name) = {
            let mut held = self.held();
            let mut all = held.transactions.values_mut();
            let found = all.find(|one| one.savepoints.contains_key(&number)).ok_or_else(missing)?;
            let name = match releases {
                true => found.savepoints.remove(&number),
                false => found.savepoints.get(&number).cloned(),
            };
            (found.session.clone(), name.ok_or_else(missing)?)
        };
        let name = weft::quoted(&name);
        let sql = match releases {
            true => format!("RELEASE SAVEPOINT {name}"),
            false => format!("ROLLBACK TO SAVEPOINT {name}"),
        };
        self.run(&session, &sql).await
    }

    /// Runs a statement to its end.
    async fn run(&self, session: &Session, sql: &str) -> Result<(), Status> {
        let _busy = self.state.begin(sql);
        let mut result = session.start(sql, &[]);
        while let Some(batch) = futures::StreamExt::next(&mut result).await {
            batch.or_status()?;
        }
        Ok(())
    }

    /// Keeps a prepared statement.
    ///
    /// # Errors
    /// `ResourceExhausted` if the client has too many.
    pub(super) fn keep(&self, prepared: Prepared) -> Result<Bytes, Status> {
        let mut held = self.held();
        let texts: usize = held.prepared.values().map(|one| one.sql.len()).sum();
        if held.prepared.len() >= PREPARED_MAX || texts + prepared.sql.len() > TEXT_BYTES_MAX {
            let message = format!(
                "the client has {} prepared statements already: close some first",
                held.prepared.len()
            );
            return Err(with_sqlstate(Code::ResourceExhausted, "53400", &message));
        }
        let number = held.number();
        held.prepared.insert(number, prepared);
        Ok(handle_of(number))
    }

    /// A prepared statement.
    ///
    /// # Errors
    /// `NotFound` if the client has none of this handle.
    pub(super) fn prepared(&self, handle: &[u8]) -> Result<Prepared, Status> {
        let held = self.held();
        let found = number_of(handle).and_then(|number| held.prepared.get(&number));
        found.cloned().ok_or_else(no_statement)
    }

    /// Binds rows to a prepared statement.
    ///
    /// # Errors
    /// `ResourceExhausted` if the client has bound too much, `NotFound` if it has no such statement.
    pub(super) fn bind(&self, handle: &[u8], batches: Vec<RecordBatch>) -> Result<(), Status> {
        let mut held = self.held();
        let number = number_of(handle).ok_or_else(no_statement)?;
        let bytes = |batches: &[RecordBatch]| -> usize {
            batches.iter().map(RecordBatch::get_array_memory_size).sum()
        };
        let others = held.prepared.iter().filter(|(other, _)| **other != number);
        let others: usize = others.filter_map(|(_, one)| one.bound.as_deref()).map(bytes).sum();
        if others.saturating_add(bytes(&batches)) > BOUND_BYTES_MAX {
            return Err(Status::resource_exhausted(format!(
                "rows bound to prepared statements take more than {BOUND_BYTES_MAX} bytes"
            )));
        }
        let found = held.prepared.get_mut(&number).ok_or_else(no_statement)?;
        found.bound = Some(batches.into());
        Ok(())
    }

    /// Forgets a prepared statement. It is no error if there is none: clients close twice.
    pub(super) fn close(&self, handle: &[u8]) {
        if let Some(number) = number_of(handle) {
            self.held().prepared.remove(&number);
        }
    }

    /// Notes that a statement runs, until what is returned is dropped.
    pub(super) fn note(
        self: &Arc<FlightSession>,
        sql: &str,
        ticket: Option<Bytes>,
        result: &QueryResult,
    ) -> Running {
        let busy = self.state.begin(sql);
        let mut held = self.held();
        let number = held.number();
        held.running.insert(number, (ticket, result.cancel_handle()));
        Running { session: Arc::clone(self), number, _busy: busy }
    }

    /// Cancels the statements that a ticket has started; false if none runs.
    pub(super) fn cancel(&self, ticket: &[u8]) -> bool {
        let held = self.held();
        let mut is_found = false;
        for (started_by, handle) in held.running.values() {
            if started_by.as_deref() == Some(ticket) {
                handle.cancel();
                is_found = true;
            }
        }
        is_found
    }
}

/// A session that acts for a user.
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

fn no_transaction() -> Status {
    Status::not_found("there is no such transaction, or it has ended")
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

/// A statement that runs.
pub(super) struct Running {
    session: Arc<FlightSession>,
    number: u64,
    _busy: Busy,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.session.held().running.remove(&self.number);
    }
}
