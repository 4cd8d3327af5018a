//! The transactions of a client. Flight SQL names them, and a client may have several.
//!
//! The first one takes the session of the database that the client's statements have otherwise (the main session), so that settings and
//! temporary tables are the same; statements outside of it find another session meanwhile, as further transactions do.

use std::collections::HashMap;

use bytes::Bytes;
use pgwire::messages::response::TransactionStatus as Told;
use tonic::{Code, Status};
use weft::{Session, TransactionStatus};

use super::error::{OrStatus, with_sqlstate};
use super::session::FlightSession;

/// Transactions of a client at a time, at most.
const TRANSACTIONS_MAX: usize = 16;

/// Savepoints of a transaction, at most.
const SAVEPOINTS_MAX: usize = 1000;

/// The transactions of one session, by the numbers of their handles.
#[derive(Default)]
pub(super) struct Transactions {
    by_number: HashMap<u64, Transaction>,
    /// The session of statements outside of transactions while one has the main session.
    spare: Option<Session>,
}

struct Transaction {
    session: Session,
    is_main: bool,
    /// The names of the savepoints, by the numbers of their handles.
    savepoints: HashMap<u64, String>,
}

impl Transactions {
    fn has_main(&self) -> bool {
        self.by_number.values().any(|transaction| transaction.is_main)
    }

    /// Rolls all of them back.
    pub(super) fn end(&mut self) {
        for (_, transaction) in self.by_number.drain() {
            transaction.session.roll_back();
        }
        if let Some(spare) = self.spare.take() {
            spare.roll_back();
        }
    }
}

impl FlightSession {
    /// The session of a transaction, or that of statements outside of one.
    ///
    /// # Errors
    /// `NotFound` if the client has no such transaction.
    pub(super) fn session(&self, transaction: Option<&[u8]>) -> Result<Session, Status> {
        let mut transactions = self.transactions();
        // Some clients say by an empty handle that there is none.
        if let Some(handle) = transaction.filter(|handle| !handle.is_empty()) {
            let number = self.handles().number(handle);
            let found = number.and_then(|number| transactions.by_number.get(&number));
            return Ok(found.ok_or_else(no_transaction)?.session.clone());
        }
        if !transactions.has_main() {
            return Ok(self.main().clone());
        }
        match &transactions.spare {
            Some(spare) => Ok(spare.clone()),
            None => Ok(transactions.spare.insert(self.open()?).clone()),
        }
    }

    /// The session that sees most of what the client has made: the main one, with the tables that its transaction has made so far. If that
    /// transaction has failed, it is the session of statements outside of it.
    pub(super) fn reader(&self) -> Result<Session, Status> {
        match self.main().transaction_status() {
            TransactionStatus::Failed => self.session(None),
            TransactionStatus::Idle | TransactionStatus::InTransaction => Ok(self.main().clone()),
        }
    }

    /// Begins a transaction, and returns its handle.
    ///
    /// # Errors
    /// `ResourceExhausted` if the client has too many.
    pub(super) async fn begin(&self) -> Result<Bytes, Status> {
        let number = self.handles().next_number();
        let session = {
            let mut transactions = self.transactions();
            if transactions.by_number.len() >= TRANSACTIONS_MAX {
                let message =
                    format!("the client has {TRANSACTIONS_MAX} transactions: end one first");
                return Err(with_sqlstate(Code::ResourceExhausted, "53400", &message));
            }
            let is_main = !transactions.has_main()
                && self.main().transaction_status() == TransactionStatus::Idle;
            let session = if is_main { self.main().clone() } else { self.open()? };
            let begun =
                Transaction { session: session.clone(), is_main, savepoints: HashMap::new() };
            transactions.by_number.insert(number, begun);
            session
        };
        if let Err(status) = self.run(&session, "BEGIN").await {
            self.transactions().by_number.remove(&number);
            return Err(status);
        }
        if self.is_ended() {
            session.roll_back();
        }
        self.note_transaction();
        Ok(self.handles().handle(number))
    }

    /// Ends a transaction. One that has failed is rolled back in any case.
    ///
    /// # Errors
    /// `NotFound` if there is none, `FailedPrecondition` if one that has failed was to be committed, and those of COMMIT.
    pub(super) async fn finish(&self, handle: &[u8], commits: bool) -> Result<(), Status> {
        let number = self.handles().number(handle).ok_or_else(no_transaction)?;
        let removed = self.transactions().by_number.remove(&number);
        let session = removed.ok_or_else(no_transaction)?.session;
        let done = match (commits, session.transaction_status()) {
            (true, TransactionStatus::InTransaction) => self.run(&session, "COMMIT").await,
            (true, TransactionStatus::Failed) => Err(with_sqlstate(
                Code::FailedPrecondition,
                "25P02",
                "a statement of the transaction has failed: it was rolled back instead",
            )),
            (true, TransactionStatus::Idle) | (false, _) => Ok(()),
        };
        session.roll_back();
        self.note_transaction();
        done
    }

    /// Makes a savepoint of a transaction, and returns its handle.
    ///
    /// # Errors
    /// `NotFound` if there is no such transaction, `ResourceExhausted` if it has too many savepoints.
    pub(super) async fn save(&self, handle: &[u8], name: &str) -> Result<Bytes, Status> {
        let number = self.handles().number(handle).ok_or_else(no_transaction)?;
        let session = {
            let transactions = self.transactions();
            let found = transactions.by_number.get(&number).ok_or_else(no_transaction)?;
            if found.savepoints.len() >= SAVEPOINTS_MAX {
                let message = format!("the transaction has {SAVEPOINTS_MAX} savepoints");
                return Err(with_sqlstate(Code::ResourceExhausted, "53400", &message));
            }
            found.session.clone()
        };
        self.run(&session, &format!("SAVEPOINT {}", weft::quoted(name))).await?;
        let savepoint = self.handles().next_number();
        let mut transactions = self.transactions();
        let found = transactions.by_number.get_mut(&number).ok_or_else(no_transaction)?;
        found.savepoints.insert(savepoint, name.to_owned());
        Ok(self.handles().handle(savepoint))
    }

    /// Releases a savepoint, or rolls its transaction back to it.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub(super) async fn finish_savepoint(
        &self,
        handle: &[u8],
        releases: bool,
    ) -> Result<(), Status> {
        let missing = || Status::not_found("there is no such savepoint, or it was released");
        let number = self.handles().number(handle).ok_or_else(missing)?;
        let (session, name) = {
            let mut transactions = self.transactions();
            let mut all = transactions.by_number.values_mut();
            let found = all.find(|one| one.savepoints.contains_key(&number)).ok_or_else(missing)?;
            let name = match releases {
                true => found.savepoints.remove(&number),
                false => found.savepoints.get(&number).cloned(),
            };
            (found.session.clone(), weft::quoted(&name.ok_or_else(missing)?))
        };
        let sql = match releases {
            true => format!("RELEASE SAVEPOINT {name}"),
            false => format!("ROLLBACK TO SAVEPOINT {name}"),
        };
        let done = self.run(&session, &sql).await;
        self.note_transaction();
        done
    }

    /// Tells `pg_stat_activity`, and the timeouts, what the client's transactions are at.
    pub(super) fn note_transaction(&self) {
        let transactions = self.transactions();
        let named = transactions.by_number.values().map(|one| one.session.transaction_status());
        let mut all: Vec<TransactionStatus> = named.collect();
        all.push(self.main().transaction_status());
        let told = if all.contains(&TransactionStatus::Failed) {
            Told::Error
        } else if all.contains(&TransactionStatus::InTransaction) {
            Told::Transaction
        } else {
            Told::Idle
        };
        self.state().set_transaction(told);
    }

    /// Runs a statement of a transaction to its end.
    async fn run(&self, session: &Session, sql: &str) -> Result<(), Status> {
        let _busy = self.state().begin(sql);
        let mut result = session.start(sql, &[]);
        while let Some(batch) = futures::StreamExt::next(&mut result).await {
            batch.or_status()?;
        }
        Ok(())
    }
}

fn no_transaction() -> Status {
    Status::not_found("there is no such transaction, or it has ended")
}
