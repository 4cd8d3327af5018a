//! What can go wrong with YCSB.

use std::path::PathBuf;

use weft_buffer::BufferError;
use weft_index::IndexError;
use weft_rt::io::FileError;
use weft_rt::{JoinError, RuntimeError};
use weft_txn::TxnError;

/// Why a table could not be loaded, a transaction failed, or a check did.
#[derive(Debug, thiserror::Error)]
pub enum YcsbError {
    /// A transaction failed for a reason that running it again does not change.
    #[error(transparent)]
    Transaction(#[from] TxnError),
    /// The index could not be made or read.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The memory for pages could not be had.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A file of the table could not be opened.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file of rows could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The workers could not be started.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// A worker has ended.
    #[error(transparent)]
    Worker(#[from] JoinError),
    /// A row is not there that the table had at first, or has the key of another.
    #[error(
        "the row of key {0} is not there, or is another row's: this is a fault of the engine, please report it"
    )]
    Missing(u64),
    /// The counters of the rows are not what was added to them.
    #[error(
        "the counters of all rows sum up to {found}, but {expected} updates have committed: this is a fault of the engine, please report it"
    )]
    Inconsistent {
        /// Updates that have committed.
        expected: u64,
        /// The sum of the counters.
        found: u64,
    },
    /// A form that a table cannot have.
    #[error("{0}")]
    Form(String),
}

/// What operations give.
pub(crate) type Result<T> = std::result::Result<T, YcsbError>;
