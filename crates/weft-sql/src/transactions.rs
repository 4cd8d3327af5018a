//! The transaction of a session: what its statements see and change until COMMIT, and what an error makes of it.
//!
//! Outside of one, each statement is a transaction of its own. Within one, a statement that fails or is cancelled has changed
//! nothing, but those after it are refused until the transaction is rolled back, or to a savepoint: a program that does not
//! look at errors must not commit half of what it meant to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use weft_store::{
    Change, FoundRows, Isolation, ResidentRow, Snapshot, StatementLocks, Table, Transaction,
    WhenLocked,
};

use crate::control::Control;
use crate::error::{ErrorKind, Result, SqlError};
use crate::run::{Run, Started};
use crate::session::Session;
use crate::statement::Parsed;
use crate::transaction_statement::{Level, Modes, TransactionStatement};

/// Whether a session has a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    /// No: each statement commits by itself.
    Idle,
    /// Yes.
    InTransaction,
    /// Yes, but a statement has failed: it can only be rolled back.
    Failed,
}

/// A transaction of a session.
#[derive(Debug)]
pub(crate) struct SessionTransaction {
    store: Arc<Transaction>,
    /// Its statements wait for rows that other transactions have changed.
    waits_for_rows: bool,
    is_read_only: bool,
    has_failed: AtomicBool,
    /// A statement has run in it, after which its modes are fixed.
    has_run: AtomicBool,
}

impl SessionTransaction {
    /// Begins a transaction with these modes.
    pub(crate) fn begin(session: &Session, modes: Modes) -> SessionTransaction {
        let isolation = match modes.level {
            Some(Level::Serializable) => Isolation::Serializable,
            Some(Level::ReadCommitted) => Isolation::ReadCommitted,
            Some(Level::Snapshot) | None => Isolation::Snapshot,
        };
        SessionTransaction {
            store: Arc::new(session.engine().store().begin_for(isolation, session.pid())),
            waits_for_rows: session.waits_for_rows() || isolation == Isolation::ReadCommitted,
            is_read_only: modes.is_read_only.unwrap_or(false),
            has_failed: AtomicBool::new(false),
            has_run: AtomicBool::new(false),
        }
    }

    /// The modes that it has.
    fn modes(&self) -> Modes {
        let level = match self.store.isolation() {
            Isolation::Serializable => Level::Serializable,
            Isolation::ReadCommitted => Level::ReadCommitted,
            Isolation::Snapshot => Level::Snapshot,
        };
        Modes { level: Some(level), is_read_only: Some(self.is_read_only) }
    }

    pub(crate) fn status(&self) -> TransactionStatus {
        match self.has_failed.load(Ordering::Acquire) {
            true => TransactionStatus::Failed,
            false => TransactionStatus::InTransaction,
        }
    }

    /// Refuses statements from now on, until it is rolled back.
    pub(crate) fn fail(&self) {
        self.has_failed.store(true, Ordering::Release);
    }

    /// The database as it sees it, without changes that wait.
    ///
    /// # Errors
    /// If it has ended.
    pub(crate) fn snapshot(&self) -> Result<Arc<Snapshot>> {
        Ok(self.store.snapshot()?)
    }

    /// Has a statement that is about to begin see what is committed, if the transaction is read committed and that takes no waiting; false
    /// if it does.
    pub(crate) fn refresh_now(&self) -> bool {
        // What has ended is told of by the statement.
        self.store.refresh_now().unwrap_or(true)
    }

    /// True if its statements cannot change the database.
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Locks rows that a query has found, the first so many at most, and returns which are locked now.
    ///
    /// # Errors
    /// Those of [`Transaction::lock_found`].
    pub(crate) async fn lock_found(
        &self,
        found: FoundRows,
        wanted: (usize, WhenLocked),
    ) -> weft_store::Result<Vec<usize>> {
        self.store.lock_found(found, wanted).await
    }

    /// True if changes of it wait that what it reads of a table lacks.
    pub(crate) fn has_waiting(&self, table: &str) -> bool {
        self.store.has_waiting(table)
    }

    /// The row of a table with a key of an index as it sees it with changes that wait, as far as that is known without waiting.
    ///
    /// # Errors
    /// Those of reading.
    pub(crate) fn resident_row(
        &self,
        table: &Table,
        (index, key): (&str, &[u8]),
        projection: &[usize],
    ) -> Result<ResidentRow> {
        Ok(self.store.resident_row(table, (index, key), projection)?)
    }

    /// Takes changes of a statement if that waits for nothing, and they need not be applied before something reads their table; `None`
    /// if not, or if the statement was cancelled.
    pub(crate) fn take_at_once(
        &self,
        control: &Control,
        changes: Vec<Change>,
        has_new_keys: bool,
    ) -> Option<()> {
        if self.waits_for_rows {
            self.store.lock_rows(&changes, has_new_keys).now_or_never()?.ok()?;
        }
        control.begin_commit().ok()?;
        self.store.defer(changes).ok()?.is_none().then_some(())
    }

    /// Applies changes that wait if a table has some, which a statement is about to read.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn settle_table(&self, table: &str) -> Result<()> {
        if self.has_waiting(table) {
            self.store.settle().await?;
        }
        Ok(())
    }

    /// True if a statement that is run again may see what others have committed meanwhile.
    pub(crate) fn sees_commits(&self) -> bool {
        self.store.isolation() == Isolation::ReadCommitted
    }

    /// Notes that a statement reads the table of this number.
    pub(crate) fn note_read(&self, table: u64) {
        self.store.note_read(table);
    }

    /// Notes that a statement of it reads the table of this number, and changes nothing.
    pub(crate) fn note_statement_read(&self, table: u64) {
        self.note_statement();
        self.note_read(table);
    }

    /// Notes that a statement runs in it.
    pub(crate) fn note_statement(&self) {
        self.has_run.store(true, Ordering::Release);
    }

    /// True if statements that change data may run in it.
    pub(crate) fn takes_changes(&self) -> bool {
        self.status() == TransactionStatus::InTransaction && !self.is_read_only
    }

    /// Makes changes that are seen within it alone until it commits.
    ///
    /// # Errors
    /// What is wrong with a change.
    pub(crate) async fn apply(&self, changes: Vec<Change>) -> Result<()> {
        Ok(self.store.apply(changes).await?)
    }

    /// Checks that its statements may take values of sequences.
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnlyTransaction`].
    pub(crate) fn check_sequences(&self) -> Result<()> {
        match self.is_read_only {
            true => Err(SqlError::new(
                ErrorKind::ReadOnlyTransaction,
                "the transaction is READ ONLY: sequences give no values in it",
            )),
            false => Ok(()),
        }
    }

    /// Makes what it has changed durable, and ends it.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn commit(&self) -> Result<()> {
        Ok(self.store.commit().await?)
    }

    /// Ends it without a trace.
    pub(crate) fn roll_back(&self) {
        self.store.roll_back();
    }

    /// Checks that a statement may run in it.
    ///
    /// # Errors
    /// [`ErrorKind::TransactionAborted`], [`ErrorKind::ReadOnlyTransaction`], [`ErrorKind::ActiveTransaction`].
    fn check(&self, statement: &Parsed) -> Result<()> {
        if self.status() == TransactionStatus::Failed {
            return Err(aborted());
        }
        if statement.changes_data() && self.is_read_only {
            let message = "the transaction is READ ONLY: it cannot change the database";
            return Err(SqlError::new(ErrorKind::ReadOnlyTransaction, message)
                .with_hint("end it, and write BEGIN or START TRANSACTION READ WRITE"));
        }
        let alone = match statement {
            Parsed::AddDevice { .. } => Some("ALTER DATABASE"),
            Parsed::Vacuum { .. } => Some("VACUUM"),
            _ => None,
        };
        if let Some(what) = alone {
            let message = format!("{what} cannot run within a transaction");
            return Err(SqlError::new(ErrorKind::ActiveTransaction, message)
                .with_hint("COMMIT or ROLLBACK first"));
        }
        self.has_run.store(true, Ordering::Release);
        Ok(())
    }
}

fn aborted() -> SqlError {
    let message =
        "the transaction was aborted by an error: statements are refused until it is rolled back";
    SqlError::new(ErrorKind::TransactionAborted, message)
        .with_hint("write ROLLBACK, or ROLLBACK TO a savepoint")
}

fn not_active() -> SqlError {
    SqlError::new(ErrorKind::NoActiveTransaction, "no transaction is active")
        .with_hint("begin one with BEGIN; outside of one each statement commits by itself")
}

impl Run {
    /// Checks that a statement may run where it is to run, in a transaction or outside of one.
    ///
    /// # Errors
    /// [`ErrorKind::TransactionAborted`], [`ErrorKind::ReadOnlyTransaction`], [`ErrorKind::ActiveTransaction`].
    pub(crate) fn check_transaction(&self, statement: &Parsed) -> Result<()> {
        if statement.changes_data() {
            self.control.note_changes();
        }
        match &self.transaction {
            Some(transaction) => transaction.check(statement),
            None => Ok(()),
        }
    }

    /// Has the statement, which is about to begin, see what is committed, if its transaction is read committed.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn refresh_transaction(&self) -> Result<()> {
        match &self.transaction {
            Some(transaction) if transaction.status() == TransactionStatus::InTransaction => {
                Ok(transaction.store.refresh().await?)
            }
            _ => Ok(()),
        }
    }

    /// Applies changes of the session's transaction that wait, before a statement that may read any table.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn settle_transaction(&self) -> Result<()> {
        match &self.transaction {
            Some(transaction) if transaction.status() == TransactionStatus::InTransaction => {
                Ok(transaction.store.settle().await?)
            }
            _ => Ok(()),
        }
    }

    /// True if the statement waits for rows that other transactions have changed.
    pub(crate) fn waits_for_rows(&self) -> bool {
        match &self.transaction {
            Some(transaction) => transaction.waits_for_rows,
            None => self.session.waits_for_rows(),
        }
    }

    /// The locks that the statement has outside of transactions.
    pub(crate) fn statement_locks(&self) -> Arc<StatementLocks> {
        self.control.locks(|| self.session.engine().store().statement_locks(self.session.pid()))
    }

    /// What comes of waiting for rows, within the time that the session waits.
    ///
    /// # Errors
    /// [`ErrorKind::LockNotAvailable`] after that time; those of waiting.
    pub(crate) async fn within_lock_timeout<T>(
        &self,
        waiting: impl Future<Output = weft_store::Result<T>>,
    ) -> Result<T> {
        let Some(limit) = self.session.lock_timeout() else { return Ok(waiting.await?) };
        match tokio::time::timeout(limit, waiting).await {
            Ok(waited) => Ok(waited?),
            Err(_) => {
                let message = "canceling statement due to lock timeout";
                Err(SqlError::new(ErrorKind::LockNotAvailable, message).with_hint(
                    "another transaction has not ended in time: pg_blocking_pids tells which",
                ))
            }
        }
    }

    /// Makes changes: of the session's transaction if it has one, durable ones else. Waits before for rows that other transactions have
    /// changed and for keys that they have inserted, if the session's statements do. Not if the statement was cancelled.
    ///
    /// # Errors
    /// What is wrong with a change; [`ErrorKind::Conflict`], [`ErrorKind::Deadlock`], [`ErrorKind::LockNotAvailable`],
    /// [`ErrorKind::Cancelled`].
    pub(crate) async fn commit(&self, changes: Vec<Change>) -> Result<()> {
        self.commit_keys(changes, true).await
    }

    /// Makes changes as [`Run::commit`]; without `has_new_keys`, new rows have no keys but keys of rows that the changes delete.
    ///
    /// # Errors
    /// Those of [`Run::commit`].
    pub(crate) async fn commit_keys(&self, changes: Vec<Change>, has_new_keys: bool) -> Result<()> {
        self.commit_with(changes, (has_new_keys, false)).await
    }

    /// Makes changes as [`Run::commit_keys`]; those of a transaction may wait until something reads their tables, as the statement does
    /// not.
    ///
    /// # Errors
    /// Those of [`Run::commit`].
    pub(crate) async fn commit_unread(
        &self,
        changes: Vec<Change>,
        has_new_keys: bool,
    ) -> Result<()> {
        self.commit_with(changes, (has_new_keys, true)).await
    }

    async fn commit_with(
        &self,
        changes: Vec<Change>,
        (has_new_keys, may_wait): (bool, bool),
    ) -> Result<()> {
        self.keep_sequences().await?;
        match &self.transaction {
            Some(transaction) if transaction.waits_for_rows => {
                let locked = transaction.store.lock_rows(&changes, has_new_keys);
                self.within_lock_timeout(locked).await?;
            }
            None if self.session.waits_for_rows() => {
                let locks = self.statement_locks();
                self.within_lock_timeout(locks.lock_rows(&changes, has_new_keys)).await?;
            }
            _ => {}
        }
        self.control.begin_commit()?;
        match &self.transaction {
            Some(transaction) => {
                let left = match may_wait {
                    true => transaction.store.defer(changes)?,
                    false => Some(changes),
                };
                if let Some(changes) = left {
                    transaction.apply(changes).await?;
                }
            }
            None => {
                drop(self.session.engine().store().commit(changes).await?);
                self.control.release_locks();
            }
        }
        // What it returns of the rows may still fail.
        self.control.note_final();
        Ok(())
    }

    /// BEGIN, COMMIT, ROLLBACK, and the like.
    ///
    /// # Errors
    /// [`ErrorKind::ActiveTransaction`] and [`ErrorKind::NoActiveTransaction`] where there is a transaction, or none;
    /// [`ErrorKind::TransactionAborted`].
    pub(crate) fn start_transaction_statement(
        &self,
        statement: TransactionStatement,
    ) -> Result<Started> {
        self.control.note_final();
        let (session, transaction) = (Arc::clone(&self.session), self.transaction.clone());
        let command =
            |tag, work: BoxFuture<'static, Result<Option<u64>>>| Ok(Started::Command { tag, work });
        let control = Arc::clone(&self.control);
        match statement {
            TransactionStatement::Begin(modes) => match transaction {
                Some(_) => {
                    let message = "cannot start a transaction within a transaction";
                    Err(SqlError::new(ErrorKind::ActiveTransaction, message)
                        .with_hint("COMMIT or ROLLBACK first, or mark a place with SAVEPOINT"))
                }
                None => command(
                    "BEGIN",
                    async move {
                        control.begin_commit()?;
                        session.begin_transaction(modes)?;
                        Ok(None)
                    }
                    .boxed(),
                ),
            },
            TransactionStatement::Commit => {
                let transaction = transaction.ok_or_else(not_active)?;
                let has_failed = transaction.status() == TransactionStatus::Failed;
                let work = async move {
                    control.begin_commit()?;
                    session.end_transaction(&transaction);
                    match has_failed {
                        true => transaction.store.roll_back(),
                        false => transaction.store.commit().await?,
                    }
                    Ok(None)
                };
                command(if has_failed { "ROLLBACK" } else { "COMMIT" }, work.boxed())
            }
            TransactionStatement::Rollback => {
                let transaction = transaction.ok_or_else(not_active)?;
                let work = async move {
                    session.end_transaction(&transaction);
                    transaction.store.roll_back();
                    Ok(None)
                };
                command("ROLLBACK", work.boxed())
            }
            TransactionStatement::SetSession(modes) => command(
                "SET",
                async move {
                    session.set_transaction_modes(modes);
                    Ok(None)
                }
                .boxed(),
            ),
            TransactionStatement::SetTransaction(modes) => {
                let transaction = transaction.ok_or_else(not_active)?;
                if transaction.status() == TransactionStatus::Failed {
                    return Err(aborted());
                }
                if transaction.has_run.load(Ordering::Acquire) {
                    let message = "SET TRANSACTION must come before the first statement";
                    return Err(SqlError::new(ErrorKind::ActiveTransaction, message));
                }
                let modes = modes.or(transaction.modes());
                let work = async move {
                    session.end_transaction(&transaction);
                    transaction.store.roll_back();
                    session.begin_transaction(modes)?;
                    Ok(None)
                };
                command("SET", work.boxed())
            }
            TransactionStatement::Savepoint(name) => {
                let transaction = transaction.ok_or_else(not_active)?;
                if transaction.status() == TransactionStatus::Failed {
                    return Err(aborted());
                }
                let work = async move {
                    transaction.store.savepoint(&name)?;
                    Ok(None)
                };
                command("SAVEPOINT", work.boxed())
            }
            TransactionStatement::Release(name) => {
                let transaction = transaction.ok_or_else(not_active)?;
                if transaction.status() == TransactionStatus::Failed {
                    return Err(aborted());
                }
                let work = async move {
                    transaction.store.release(&name)?;
                    Ok(None)
                };
                command("RELEASE", work.boxed())
            }
            TransactionStatement::RollbackTo(name) => {
                let transaction = transaction.ok_or_else(not_active)?;
                let work = async move {
                    control.begin_commit()?;
                    transaction.store.roll_back_to(&name).await?;
                    transaction.has_failed.store(false, Ordering::Release);
                    Ok(None)
                };
                command("ROLLBACK", work.boxed())
            }
        }
    }
}
