//! What can go wrong with TPC-C.

use weft_buffer::BufferError;
use weft_index::IndexError;
use weft_rt::io::FileError;
use weft_rt::{JoinError, RuntimeError};
use weft_txn::TxnError;

/// Why a database could not be loaded, a transaction failed, or a check did.
#[derive(Debug, thiserror::Error)]
pub enum TpccError {
    /// A transaction failed for a reason that running it again does not change.
    #[error(transparent)]
    Transaction(#[from] TxnError),
    /// An index could not be made.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The memory for indexes could not be had.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The file that stands behind the indexes could not be made.
    #[error(transparent)]
    File(#[from] FileError),
    /// The workers could not be started.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// A worker has ended.
    #[error(transparent)]
    Worker(#[from] JoinError),
    /// A row is not there that each database of TPC-C has.
    #[error("{table} has no row {key}: the database is damaged, load it again")]
    Missing {
        /// The table.
        table: &'static str,
        /// The key, in words.
        key: String,
    },
    /// One of the consistency conditions of the specification does not hold.
    #[error(
        "consistency condition {condition} of TPC-C (clause 3.3.2) does not hold: {details}; this is a fault of the engine, please report it"
    )]
    Inconsistent {
        /// The number of the condition, 1 to 12; 0 if two indexes of a table differ.
        condition: u32,
        /// Where, and what was found.
        details: String,
    },
    /// A scale that cannot be.
    #[error("{0}")]
    Scale(String),
}

/// What operations give.
pub(crate) type Result<T> = std::result::Result<T, TpccError>;
