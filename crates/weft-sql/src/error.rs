//! What can go wrong with a statement, in the words of the person who wrote it.
//!
//! DataFusion's errors are nested, name their own crates and dump plans. [`translate()`] digs out the one that matters,
//! says it plainly, and keeps where in the text it is.

mod planning;
mod translate;
mod words;

use std::fmt;
use std::sync::Arc;

use arrow::error::ArrowError;
use datafusion::common::DataFusionError;
use weft_exec::ExecError;
use weft_remote::{Failure, RemoteError};
use weft_store::{Scalar, StoreError};

pub(crate) use planning::{occurs_twice, unknown_table};
pub(crate) use translate::{from_store, internal, translate};
use translate::{translate_arrow, translate_exec};

/// Result of this crate.
pub type Result<T, E = SqlError> = std::result::Result<T, E>;

/// What kind of failure it is, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The text is not SQL.
    Syntax,
    /// The statement names what does not exist, or its types do not fit.
    Semantic,
    /// What is to be created exists already.
    AlreadyExists,
    /// Correct SQL that this version does not run.
    NotSupported,
    /// A value cannot be computed or stored: a cast, a division by zero, a constraint, a bad file.
    Data,
    /// A row has the key of another one, where a primary key or a unique index allows none.
    UniqueViolation,
    /// A statement would change a row twice.
    CardinalityViolation,
    /// A row does not satisfy a CHECK condition.
    CheckViolation,
    /// A row refers to a row that there is not, or a table is to go that others refer to.
    ForeignKeyViolation,
    /// A setting does not exist or cannot have this value.
    Setting,
    /// `memory_limit` or `max_temp_size` does not suffice.
    OutOfMemory,
    /// The operating system refused a file.
    Io,
    /// The database directory: locked, read-only, damaged, full.
    Storage,
    /// Another statement changed meanwhile what this one relies on: it may be run again, or the transaction that it ends.
    Conflict,
    /// Transactions wait for each other's rows in a circle, which the statement would have closed.
    Deadlock,
    /// Rows that another transaction has locked were not waited for, or in vain.
    LockNotAvailable,
    /// A statement of the transaction has failed before: it can only be rolled back.
    TransactionAborted,
    /// There is no transaction that could be ended, or changed.
    NoActiveTransaction,
    /// There is a transaction, in which the statement cannot run.
    ActiveTransaction,
    /// The transaction is READ ONLY.
    ReadOnlyTransaction,
    /// The session's role has no right to what the statement does.
    Forbidden,
    /// The transaction has no savepoint of the name.
    NoSavepoint,
    /// The statement was cancelled.
    Cancelled,
    /// A bug.
    Internal,
}

impl ErrorKind {
    /// The five characters by which clients of SQL tell kinds of errors (SQLSTATE).
    pub fn sqlstate(self) -> &'static str {
        match self {
            ErrorKind::Syntax => "42601",
            ErrorKind::Semantic => "42000",
            ErrorKind::AlreadyExists => "42P07",
            ErrorKind::NotSupported => "0A000",
            ErrorKind::Data => "22000",
            ErrorKind::Setting => "22023",
            ErrorKind::OutOfMemory => "53200",
            ErrorKind::Io => "58030",
            ErrorKind::Storage => "58000",
            ErrorKind::UniqueViolation => "23505",
            ErrorKind::CardinalityViolation => "21000",
            ErrorKind::CheckViolation => "23514",
            ErrorKind::ForeignKeyViolation => "23503",
            ErrorKind::Conflict => "40001",
            ErrorKind::Deadlock => "40P01",
            ErrorKind::LockNotAvailable => "55P03",
            ErrorKind::TransactionAborted => "25P02",
            ErrorKind::NoActiveTransaction => "25P01",
            ErrorKind::ActiveTransaction => "25001",
            ErrorKind::ReadOnlyTransaction => "25006",
            ErrorKind::Forbidden => "42501",
            ErrorKind::NoSavepoint => "3B001",
            ErrorKind::Cancelled => "57014",
            ErrorKind::Internal => "XX000",
        }
    }
}

/// A place in a statement's text, both counted from 1, the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Line.
    pub line: u64,
    /// Column, in characters.
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Why a statement failed. Its message says what happened, to what; its hint what to do about it.
/// Cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", self.details.message)]
pub struct SqlError {
    details: Arc<Details>,
}

#[derive(Clone, Debug)]
struct Details {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    position: Option<Position>,
    /// The name that the error is about, to find its place in the text by.
    subject: Option<String>,
    /// The key that violates a constraint.
    key: Option<ViolatedKey>,
    /// Its SQLSTATE, where that of its kind says less.
    sqlstate: Option<&'static str>,
}

/// A key that violates a constraint of the table that it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct ViolatedKey {
    /// The store's name of the table.
    pub(crate) table: String,
    /// The names of the key's columns, and its values.
    pub(crate) columns: Vec<(String, Scalar)>,
}

impl SqlError {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> SqlError {
        let (message, hint, position) = (message.into(), None, None);
        let (subject, key, sqlstate) = (None, None, None);
        let details = Details { kind, message, hint, position, subject, key, sqlstate };
        SqlError { details: Arc::new(details) }
    }

    pub(crate) fn cancelled() -> SqlError {
        SqlError::new(ErrorKind::Cancelled, "the statement was cancelled")
    }

    pub(crate) fn not_supported(what: impl fmt::Display) -> SqlError {
        SqlError::new(ErrorKind::NotSupported, format!("{what} is not supported yet"))
    }

    /// The same with advice.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> SqlError {
        self.change(|details| details.hint = Some(hint.into()))
    }

    /// The same with a place in the statement's text.
    #[must_use]
    pub fn with_position(self, position: Position) -> SqlError {
        self.change(|details| details.position = Some(position))
    }

    /// The same with another message.
    #[must_use]
    pub(crate) fn with_message(self, message: impl Into<String>) -> SqlError {
        self.change(|details| details.message = message.into())
    }

    /// The same with an SQLSTATE that says more than that of its kind.
    #[must_use]
    pub(crate) fn with_sqlstate(self, sqlstate: &'static str) -> SqlError {
        self.change(|details| details.sqlstate = Some(sqlstate))
    }

    /// The five characters by which clients of SQL tell errors.
    pub fn sqlstate(&self) -> &'static str {
        self.details.sqlstate.unwrap_or_else(|| self.kind().sqlstate())
    }

    /// The same, about this name.
    pub(crate) fn about(self, subject: impl Into<String>) -> SqlError {
        self.change(|details| details.subject = Some(subject.into()))
    }

    /// The same, of this key of a table.
    pub(crate) fn with_key(self, table: &str, columns: &[(String, Scalar)]) -> SqlError {
        let key = ViolatedKey { table: table.to_owned(), columns: columns.to_vec() };
        self.change(|details| details.key = Some(key))
    }

    /// The key that violates a constraint.
    pub(crate) fn key(&self) -> Option<&ViolatedKey> {
        self.details.key.as_ref()
    }

    pub(crate) fn subject(&self) -> Option<&str> {
        self.details.subject.as_deref()
    }

    fn change(self, change: impl FnOnce(&mut Details)) -> SqlError {
        let mut details = Arc::unwrap_or_clone(self.details);
        change(&mut details);
        SqlError { details: Arc::new(details) }
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> ErrorKind {
        self.details.kind
    }

    /// What happened, to what.
    pub fn message(&self) -> &str {
        &self.details.message
    }

    /// What the user can do.
    pub fn hint(&self) -> Option<&str> {
        self.details.hint.as_deref()
    }

    /// Where in the statement's text.
    pub fn position(&self) -> Option<Position> {
        self.details.position
    }
}

impl From<SqlError> for DataFusionError {
    fn from(error: SqlError) -> DataFusionError {
        DataFusionError::External(Box::new(error))
    }
}

impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> SqlError {
        translate(&error)
    }
}

impl From<StoreError> for SqlError {
    fn from(error: StoreError) -> SqlError {
        from_store(&error)
    }
}

impl From<ExecError> for SqlError {
    fn from(error: ExecError) -> SqlError {
        translate_exec(&error)
    }
}

impl From<RemoteError> for SqlError {
    fn from(error: RemoteError) -> SqlError {
        let kind = match error.failure() {
            Failure::Cancelled => return SqlError::cancelled(),
            Failure::Option => ErrorKind::Semantic,
            _ => ErrorKind::Io,
        };
        let found = SqlError::new(kind, error.to_string());
        match error.hint() {
            Some(hint) => found.with_hint(hint),
            None => found,
        }
    }
}

impl From<ArrowError> for SqlError {
    fn from(error: ArrowError) -> SqlError {
        translate_arrow(&error)
    }
}
