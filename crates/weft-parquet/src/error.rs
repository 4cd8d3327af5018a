//! What can go wrong with a Parquet file.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use weft_remote::RemoteError;
use weft_rt::io::FileError;
use weft_rt::memory::MemoryError;

/// What this crate's functions give.
pub type Result<T, E = ReadError> = std::result::Result<T, E>;

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system does not give its bytes.
    #[error("cannot read '{name}': {source}")]
    Io {
        /// The file.
        name: String,
        /// The system's reason.
        source: FileError,
    },
    /// Its bytes are not what they should be.
    #[error("cannot read '{name}': {problem}")]
    Damaged {
        /// The file.
        name: String,
        /// Where, and what is wrong.
        problem: String,
    },
    /// A store or a server does not give its bytes.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// There is no memory for its bytes.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl ReadError {
    pub(crate) fn damaged(name: &str, problem: impl ToString) -> ReadError {
        ReadError::Damaged { name: name.to_owned(), problem: problem.to_string() }
    }

    /// The error with the place of the problem in the file.
    pub(crate) fn at(self, place: &str) -> ReadError {
        match self {
            ReadError::Damaged { name, problem } => {
                ReadError::Damaged { name, problem: format!("{place}: {problem}") }
            }
            other => other,
        }
    }
}

/// What a call of the decoder returns, about the file of this name; its panic is an error.
pub(crate) fn caught<T, E: ToString>(
    name: &str,
    call: impl FnOnce() -> std::result::Result<T, E>,
) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| ReadError::damaged(name, error)),
        Err(panic) => Err(of_panic(name, panic.as_ref())),
    }
}

fn of_panic(name: &str, panic: &(dyn Any + Send)) -> ReadError {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("its decoder failed");
    ReadError::damaged(name, format!("it is damaged ({text})"))
}
