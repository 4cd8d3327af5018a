//! What can go wrong with a transaction.

use weft_index::IndexError;
use weft_rt::io::FileError;
use weft_rt::memory::MemoryError;

/// Why an operation or a transaction failed.
#[derive(Debug, thiserror::Error)]
pub enum TxnError {
    /// Another transaction has changed the same row, or committed a key, since this one began. SQLSTATE 40001.
    #[error(
        "row {row} of table {table} was changed by another transaction at once: try the transaction again"
    )]
    Conflict {
        /// The table's id.
        table: u32,
        /// The row's id.
        row: u64,
    },
    /// Together with others, the transaction would have done what no order of them does. SQLSTATE 40001.
    #[error(
        "the transaction depends on others that ran at once in a circle: try the transaction again"
    )]
    NotSerializable,
    /// The transaction waits for one that waits for it. SQLSTATE 40P01.
    #[error(
        "row {row} of table {table} is held by a transaction that waits for this one: try the transaction again"
    )]
    Deadlock {
        /// The table's id.
        table: u32,
        /// The row's id.
        row: u64,
    },
    /// A row with this key exists. SQLSTATE 23505.
    #[error("table {table} has a row with this key in its unique index {index} already: row {row}")]
    DuplicateKey {
        /// The table's id.
        table: u32,
        /// The number of the index in the table.
        index: usize,
        /// The row that has the key.
        row: u64,
    },
    /// A changed row has another primary key than before.
    #[error(
        "the primary key of row {row} of table {table} cannot be changed: remove the row and insert another"
    )]
    KeyChanged {
        /// The table's id.
        table: u32,
        /// The row's id.
        row: u64,
    },
    /// A row is too long.
    #[error("a row of {bytes} bytes is longer than {bytes_max} bytes: store it in pieces")]
    RowTooLong {
        /// Its bytes.
        bytes: usize,
        /// Most bytes.
        bytes_max: usize,
    },
    /// The table has given out all ids of rows.
    #[error("table {table} has no ids of rows left")]
    RowIds {
        /// The table's id.
        table: u32,
    },
    /// There is no such table, or two would have this id.
    #[error("table {table}: {reason}")]
    Table {
        /// The table's id.
        table: u32,
        /// What is wrong.
        reason: String,
    },
    /// Too many transactions run.
    #[error(
        "{count} transactions run at once, which is the limit: end some, or raise the limit of transactions"
    )]
    TooManyTransactions {
        /// How many.
        count: usize,
    },
    /// The versions of rows would take more memory than there is.
    #[error(
        "{bytes} bytes for versions of rows are not free within the memory limit: end transactions that \
         began long ago, change fewer rows at a time, or raise memory_limit"
    )]
    Memory {
        /// Bytes asked for.
        bytes: u64,
    },
    /// More than the whole budget.
    #[error(transparent)]
    Budget(#[from] MemoryError),
    /// An index could not be read or changed.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// A frozen row could not be read.
    #[error("row {row} of table {table} cannot be read: {source}")]
    Frozen {
        /// The table's id.
        table: u32,
        /// The row's id.
        row: u64,
        /// The reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file of the log could not be read or written.
    #[error("the log cannot be used: {0}")]
    LogFile(#[from] FileError),
    /// A name in the log's directory could not be changed.
    #[error("cannot {action} {name} in the log's directory: {source}")]
    LogDirectory {
        /// What was to be done.
        action: &'static str,
        /// The file's name.
        name: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The log is damaged where it must not be.
    #[error("{file} is damaged at byte {offset}: {reason}")]
    LogDamaged {
        /// The file's name.
        file: String,
        /// The byte.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// The log could not be written before: it is not known whether the last commits are durable.
    #[error("the log failed: {reason}; open the database again to go on with what is durable")]
    LogFailed {
        /// What happened.
        reason: String,
    },
}

impl TxnError {
    /// True if the transaction may succeed when it is run again.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            TxnError::Conflict { .. } | TxnError::NotSerializable | TxnError::Deadlock { .. }
        )
    }

    /// The SQLSTATE that PostgreSQL's clients know it by.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            TxnError::Conflict { .. } | TxnError::NotSerializable => "40001",
            TxnError::Deadlock { .. } => "40P01",
            TxnError::DuplicateKey { .. } => "23505",
            TxnError::KeyChanged { .. } => "0A000",
            TxnError::RowTooLong { .. } | TxnError::RowIds { .. } => "54000",
            TxnError::Table { .. } => "42P01",
            TxnError::TooManyTransactions { .. } => "53300",
            TxnError::Memory { .. } | TxnError::Budget(_) => "53200",
            TxnError::Index(_) | TxnError::LogDamaged { .. } => "XX001",
            TxnError::Frozen { .. }
            | TxnError::LogFile(_)
            | TxnError::LogDirectory { .. }
            | TxnError::LogFailed { .. } => "58030",
        }
    }
}

/// What operations give.
pub type Result<T> = std::result::Result<T, TxnError>;
