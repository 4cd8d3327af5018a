//! What can go wrong with a workload: each message says what happened, to what, and what to do.

use std::io;
use std::path::PathBuf;

use arrow::error::ArrowError;
use parquet::errors::ParquetError;

use crate::answer::AnswerError;

/// An error of a workload.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// A file or directory that the system would not let us use.
    #[error(
        "cannot {action} {path}: {source}; check that the path is the one you mean and is writable"
    )]
    File {
        /// What was being done.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A Parquet file that cannot be written.
    #[error("cannot write {path}: {source}; check that its device has room")]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: ParquetError,
    },
    /// A statement that failed.
    #[error("{what}: {source}{}", advice(.source))]
    Statement {
        /// Which.
        what: String,
        /// What the database says.
        source: weft::Error,
    },
    /// A value without a text form.
    #[error("the result of {what} cannot be written as text: {source}; please report it")]
    Text {
        /// Which query.
        what: String,
        /// What happened.
        source: ArrowError,
    },
    /// A database with other data.
    #[error(
        "{path} has {found} rows in {table}, which has {expected} at scale {scale}; name another \
         database with --db, or drop the table"
    )]
    Scale {
        /// The database.
        path: PathBuf,
        /// The table.
        table: &'static str,
        /// The scale factor asked for.
        scale: f64,
        /// Rows there.
        found: u64,
        /// Rows there should be.
        expected: u64,
    },
    /// A wrong answer.
    #[error("{query} has a wrong answer: {source}")]
    WrongAnswer {
        /// Which query, and how it was run.
        query: String,
        /// The first difference.
        source: AnswerError,
    },
}

/// What the database advises, as the end of a sentence.
pub(crate) fn advice(error: &weft::Error) -> String {
    error.hint().map_or_else(String::new, |hint| format!("; {hint}"))
}

impl WorkloadError {
    /// An error of the database in `what`.
    pub fn statement(what: impl Into<String>) -> impl FnOnce(weft::Error) -> WorkloadError {
        let what = what.into();
        move |source| WorkloadError::Statement { what, source }
    }
}
