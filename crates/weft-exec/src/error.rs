//! What can go wrong while a query runs.

use arrow_schema::ArrowError;
use weft_rt::JoinError;
use weft_rt::memory::MemoryError;
use weft_store::StoreError;

/// Why a query failed.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// A number is too large for its type.
    #[error(
        "{operation} overflows: the result does not fit into {into}; cast the operands to a larger type"
    )]
    Overflow {
        /// What was computed, with its operands.
        operation: String,
        /// The type or lane.
        into: String,
    },
    /// An integer or decimal was divided by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// A value cannot be cast.
    #[error("cannot cast {value} to {into}: it does not fit; use TRY_CAST to have NULL instead")]
    Cast {
        /// The value.
        value: String,
        /// The type or lane.
        into: String,
    },
    /// An argument of a function has to be greater than zero.
    #[error("{argument} must be greater than zero, but is {value}")]
    NotPositive {
        /// Which.
        argument: &'static str,
        /// What it is.
        value: i64,
    },
    /// The memory budget has no room and nothing to give back.
    #[error("{operator} needs more memory: {source}; raise memory_limit")]
    Memory {
        /// What was materialized.
        operator: String,
        /// The ledger's reason.
        source: MemoryError,
    },
    /// Something has to be in memory as a whole, and is too large for it.
    #[error(
        "{what} has to be in memory, but outgrows the {limit_bytes} bytes of memory_limit; raise memory_limit"
    )]
    TooLarge {
        /// What it is.
        what: String,
        /// The budget.
        limit_bytes: u64,
    },
    /// Something takes more bytes than anything can, in memory of any size.
    #[error("{what} of more than {bytes_max} bytes, the most that there can be")]
    TooLong {
        /// What it is.
        what: &'static str,
        /// What it may take.
        bytes_max: u64,
    },
    /// Strings that were to be stored by their numbers, because few were known to be different, are too many.
    #[error(
        "more than {texts_max} different texts in a column that has few as far as its table's statistics tell"
    )]
    TooManyTexts {
        /// How many there may be.
        texts_max: usize,
    },
    /// A table could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An Arrow kernel failed.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    /// A function or a foreign source failed.
    #[error(transparent)]
    Function(Box<dyn std::error::Error + Send + Sync>),
    /// The query was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// A worker's task panicked or was shut down.
    #[error(transparent)]
    Join(#[from] JoinError),
}

/// Checks that `what` has no more bytes than there can be.
///
/// # Errors
/// [`ExecError::TooLong`]
pub(crate) fn check_length(what: &'static str, bytes: usize, bytes_max: usize) -> Result<()> {
    if bytes > bytes_max {
        return Err(ExecError::TooLong { what, bytes_max: bytes_max as u64 });
    }
    Ok(())
}

/// What this crate's functions give.
pub type Result<T, E = ExecError> = std::result::Result<T, E>;
