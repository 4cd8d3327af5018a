//! What can go wrong with a data set: each message says what happened, to which file, and what to do.

use std::io;
use std::path::{Path, PathBuf};

use weft_buffer::page::{PageError, PageId};

use super::layout::LayoutError;

/// An error of the TPC-H data set or of a query on it.
#[derive(Debug, thiserror::Error)]
pub enum TpchError {
    /// A scale factor that tpchgen or the page layouts cannot represent.
    #[error("scale factor {0} is not supported; choose one from 0.001 to 10000")]
    ScaleFactor(f64),
    /// No directory, or more than a page id can name.
    #[error("a table needs 1 to 256 directories to lie in, not {0}")]
    Directories(usize),
    /// A page file that does not exist.
    #[error(
        "{path} does not exist; generate the data set, or restore the file if only this one of its stripes is missing"
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A file that the operating system would not let us use.
    #[error(
        "cannot {action} {path}: {source}; check that the directory exists, is writable and is the one you mean"
    )]
    Io {
        /// What was being done.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The file system has no room left.
    #[error(
        "the disk is full at {path}; free some space and run again: generation continues where it stopped"
    )]
    DiskFull {
        /// The file that could not grow.
        path: PathBuf,
    },
    /// Another process generates in the same directory.
    #[error(
        "another process is generating data in this directory (it holds {path}); wait for it to finish, then run again"
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// A file of somebody else under a name of ours.
    #[error(
        "{path} is not a page file of weft; move it away, or choose another directory, and run again"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A page file of another version of Weft.
    #[error(
        "{path} has page file version {found}, this program reads version {expected}; delete it and run again"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Version in the file.
        found: u32,
        /// Version that this program reads.
        expected: u32,
    },
    /// A header block that fails its checksum or says impossible things.
    #[error("the header of {path} is damaged ({reason}); delete the file and run again")]
    HeaderDamaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A sound page file, but of another table, size, scale, stripe or set.
    #[error(
        "{path} holds other data than its name says: its {what} is {found}, not {expected}; delete it and run again"
    )]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// The property that differs.
        what: &'static str,
        /// Its value in the file.
        found: String,
        /// Its value asked for.
        expected: String,
    },
    /// A file that generation has not finished.
    #[error(
        "{path} is incomplete ({parts_done} of {parts} parts); run the generation again to finish it"
    )]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// Parts written.
        parts_done: u32,
        /// Parts in all.
        parts: u32,
    },
    /// A file shorter or longer than its header says.
    #[error("{path} has {found} bytes where its header says {expected}; delete it and run again")]
    Length {
        /// The file.
        path: PathBuf,
        /// Bytes in the file.
        found: u64,
        /// Bytes it should have.
        expected: u64,
    },
    /// Progress was refused by the caller.
    #[error(
        "generation of {table} was stopped after {parts_done} of {parts} parts; run again to continue"
    )]
    Stopped {
        /// The table's name.
        table: &'static str,
        /// Parts that are safely on disk.
        parts_done: u32,
        /// Parts in all.
        parts: u32,
    },
    /// A page that fails its checksum, or is another page.
    #[error("{path}, {page:?}: {source}; delete the file and generate it again")]
    Page {
        /// The file.
        path: PathBuf,
        /// The page.
        page: PageId,
        /// What is wrong with it.
        source: PageError,
    },
    /// A sound page with an impossible content.
    #[error("{path}, {page:?}: {source}; delete the file and generate it again")]
    Layout {
        /// The file.
        path: PathBuf,
        /// The page.
        page: PageId,
        /// What is wrong with it.
        source: LayoutError,
    },
    /// Values beyond what the exact sums can hold.
    #[error(
        "a sum of query {query} does not fit 128 bits; the data is not TPC-H's: delete it and generate it again"
    )]
    Overflow {
        /// The query's number.
        query: u32,
    },
    /// Values beyond what the engine accepts in a column.
    #[error(
        "{path}: {column} holds {value}, which TPC-H cannot; delete the file and generate it again"
    )]
    Value {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
        /// The value.
        value: i64,
    },
    /// A file of reference answers that cannot be used.
    #[error(
        "{path} does not hold the answers of this data set ({reason}); delete it and run again"
    )]
    AnswersDamaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A result that differs from the reference.
    #[error(
        "query {query} computed {found} for {what}, the reference is {expected}; the data or the engine is wrong"
    )]
    WrongAnswer {
        /// The query's number.
        query: u32,
        /// The group and the value.
        what: String,
        /// Computed.
        found: String,
        /// Reference.
        expected: String,
    },
}

impl TpchError {
    /// An I/O error at `path`; a full disk gets its own variant.
    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> TpchError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                TpchError::DiskFull { path: path.to_owned() }
            }
            _ => TpchError::Io { action, path: path.to_owned(), source },
        }
    }
}
