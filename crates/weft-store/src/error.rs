//! What can go wrong with a database directory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::DataType;
use weft_codec::Scalar;
use weft_index::IndexError;
use weft_rt::io::FileError;
use weft_rt::memory::MemoryError;
use weft_rt::{JoinError, RuntimeError};

use crate::sizes::human_bytes;

/// Why the store could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory holds no database.
    #[error("{path} holds no Weft database: check the path, or create one there")]
    NotFound {
        /// The directory.
        path: PathBuf,
    },
    /// Another process, or another handle of this one, has the database open.
    #[error("the database {path} is in use by {holder}: close it there first")]
    Locked {
        /// The directory.
        path: PathBuf,
        /// Who has it, with the number of the process where it is known.
        holder: String,
    },
    /// The operating system refused something.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What it was tried on.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A request to a device failed, or a file is too short.
    #[error(transparent)]
    File(#[from] FileError),
    /// A page could not be brought into memory.
    #[error(transparent)]
    Buffer(weft_buffer::BufferError),
    /// A device has no room for what is to be written.
    #[error(
        "{path} has no room for {needed_bytes} more bytes: {source}; free space there, or add a device"
    )]
    DiskFull {
        /// The data file.
        path: PathBuf,
        /// Bytes that could not be placed.
        needed_bytes: u64,
        /// The system's reason.
        source: Box<FileError>,
    },
    /// What is spilled may not take more room.
    #[error(
        "what does not fit in memory needs {} more on disk, but {}",
        human_bytes(*.needed_bytes), spill_limit(*.limit_bytes)
    )]
    SpillLimit {
        /// Bytes that could not be placed.
        needed_bytes: u64,
        /// What the setting allows; `u64::MAX` for anything.
        limit_bytes: u64,
    },
    /// The disk has no room for what is spilled.
    #[error(
        "{path} has no room for {} more that does not fit in memory: {source}; free space there, set temp_directory to \
         a directory of another disk, or raise memory_limit",
        human_bytes(*.needed_bytes)
    )]
    SpillFull {
        /// The directory, or the block device.
        path: PathBuf,
        /// Bytes that could not be placed.
        needed_bytes: u64,
        /// The system's reason.
        source: Box<FileError>,
    },
    /// The directory for what does not fit in memory is none, or not to be written to.
    #[error(
        "the setting temp_directory is {path}, where nothing can be written: {source}; make the directory, or set another \
         one"
    )]
    TempDirectory {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// What does not fit in memory cannot be written, or read back.
    #[error(
        "what does not fit in memory is on a disk that fails: {source}; check that disk, set temp_directory to a \
         directory of another one, or raise memory_limit"
    )]
    SpillFailed {
        /// What was tried, where, and the system's reason.
        source: Box<StoreError>,
    },
    /// What was spilled is not what was written.
    #[error(
        "what was written to {path} at offset {offset} while a query ran came back damaged: check the \
         disk, or set temp_directory to a directory of another one"
    )]
    SpillDamaged {
        /// The spill file, or the block device.
        path: PathBuf,
        /// Where there.
        offset: u64,
    },
    /// The bytes of a file are not those that were written.
    #[error("{path} is damaged: {place}: {problem}; restore the database from a backup")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What the bytes belong to: table, row group and column, where they are known.
        place: String,
        /// What is wrong with them.
        problem: String,
    },
    /// What went wrong with commits of several statements that were made durable together.
    #[error(transparent)]
    Shared(Arc<StoreError>),
    /// A part of a table could not be read.
    #[error("{place}: {source}")]
    At {
        /// Table, row group and column.
        place: String,
        /// Why.
        source: Box<StoreError>,
    },
    /// The database was written by another version of the format.
    #[error(
        "{path} has format version {found}, but this program reads version {supported}: use the \
         version of Weft that wrote it, export the data and import them here"
    )]
    FormatVersion {
        /// The file.
        path: PathBuf,
        /// Version in the file.
        found: u32,
        /// The version that this program reads and writes.
        supported: u32,
    },
    /// A device of the database is not the one that it should be.
    #[error("device {number} of the database, {path}: {problem}")]
    Device {
        /// The device's number.
        number: usize,
        /// Its data file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// The database is open for reading only.
    #[error(
        "cannot {action}: {path} is open for reading only; close it and open it without the read-only \
         option to change it"
    )]
    ReadOnly {
        /// The database.
        path: PathBuf,
        /// What was asked for.
        action: &'static str,
    },
    /// The last commits are in the journal alone, and a database that is only read cannot apply them.
    #[error(
        "the database at {path} was not closed, and its last commits have to be recovered: open it once for writing"
    )]
    NotRecovered {
        /// The database.
        path: PathBuf,
    },
    /// There is no table of that name.
    #[error("there is no table {name}")]
    NoSuchTable {
        /// The name asked for.
        name: String,
    },
    /// There is no view of that name.
    #[error("there is no view {name}")]
    NoSuchView {
        /// The name asked for.
        name: String,
    },
    /// A table or view has the name already.
    #[error("{kind} {name} exists already")]
    Exists {
        /// `table`, `view`, `index` or `constraint`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// Somebody else changed what the commit relies on.
    #[error("table {table} was {change} by another statement meanwhile: run this one again")]
    Conflict {
        /// The table.
        table: String,
        /// `dropped`, `replaced` or `changed`.
        change: &'static str,
    },
    /// Another transaction has committed what this one cannot go together with: it is rolled back.
    #[error(
        "could not serialize access: {what} was {change} by another transaction meanwhile; this transaction was rolled back: \
         run it again"
    )]
    Serialization {
        /// `table t`, `view v`, or what else the transactions share.
        what: String,
        /// `changed`, `dropped`, `created`, or what else was done to it.
        change: &'static str,
    },
    /// Transactions wait for rows of each other in a circle, which this one would close.
    #[error(
        "deadlock detected: a transaction that has changed a row which this statement is to change waits for this transaction"
    )]
    Deadlock,
    /// A row that a statement does not wait for is locked.
    #[error("could not obtain lock on row in relation \"{table}\"")]
    RowLocked {
        /// The table.
        table: String,
    },
    /// What was asked for is a transaction of its own.
    #[error("{what} cannot run within a transaction: COMMIT or ROLLBACK first")]
    NotInTransaction {
        /// The statement.
        what: &'static str,
    },
    /// The transaction was committed or rolled back already.
    #[error("the transaction has ended already")]
    TransactionEnded,
    /// The transaction has no savepoint of that name.
    #[error("there is no savepoint {name}")]
    NoSuchSavepoint {
        /// The name asked for.
        name: String,
    },
    /// What a transaction keeps until it ends does not fit into memory.
    #[error(
        "out of memory: a transaction keeps the ids of the rows that it has deleted, {bytes} bytes, for which memory is missing"
    )]
    TransactionMemory {
        /// All that it would keep.
        bytes: u64,
    },
    /// A table cannot have a column of this type.
    #[error("column {column} cannot be stored as {data_type}: cast it to a supported type")]
    UnsupportedType {
        /// The column.
        column: String,
        /// Its type.
        data_type: DataType,
    },
    /// An index could not be read or changed.
    #[error("index {index} of table {table}: {source}")]
    Index {
        /// Its name.
        index: String,
        /// Its table.
        table: String,
        /// Why.
        source: Box<IndexError>,
    },
    /// There is no index of that name.
    #[error("there is no index {name}")]
    NoSuchIndex {
        /// The name asked for.
        name: String,
    },
    /// A row has the key of another one.
    #[error("table {table} has two rows with one key, which {constraint} does not allow")]
    Duplicate {
        /// The table.
        table: String,
        /// The constraint, or the unique index.
        constraint: String,
        /// Whether it is the primary key.
        is_primary: bool,
        /// Names and values of the key's columns.
        key: Vec<(String, Scalar)>,
        /// Their types.
        types: Vec<DataType>,
    },
    /// A row refers to none of another table.
    #[error(
        "a row of table {table} refers to a row of table {parent} that there is not: {constraint}"
    )]
    Unreferenced {
        /// The table.
        table: String,
        /// The constraint.
        constraint: String,
        /// The referenced table.
        parent: String,
        /// Names and values of the columns.
        key: Vec<(String, Scalar)>,
        /// Their types.
        types: Vec<DataType>,
    },
    /// What is to be dropped is needed by a foreign key.
    #[error(
        "{what} is needed by the constraint {constraint} of table {table}: drop that table first, or drop with CASCADE"
    )]
    Referenced {
        /// `table t`, or `index i`.
        what: String,
        /// The constraint.
        constraint: String,
        /// Its table.
        table: String,
    },
    /// A table's definition is impossible.
    #[error("table {table}: {problem}")]
    Schema {
        /// The table.
        table: String,
        /// What is wrong.
        problem: String,
    },
    /// Rows do not fit the table that they are written to.
    #[error("rows do not fit table {table}: {problem}")]
    Mismatch {
        /// The table.
        table: String,
        /// What differs.
        problem: String,
    },
    /// A request names something that is not there.
    #[error("table {table}: {problem}")]
    Request {
        /// The table.
        table: String,
        /// What was asked for and what there is.
        problem: String,
    },
    /// Values could not be encoded.
    #[error("cannot encode {place}: {source}")]
    Encode {
        /// Table and column.
        place: String,
        /// Why.
        source: weft_codec::Error,
    },
    /// Values are not what was asked for: a predicate of another type, for example.
    #[error(transparent)]
    Values(weft_codec::Error),
    /// A part of the rows was given up before it was complete.
    #[error("a part of the rows for table {table} was given up before it was complete")]
    Incomplete {
        /// The table.
        table: String,
    },
    /// An earlier failure leaves it open what the directory holds.
    #[error(
        "{path} takes no more changes since this failed: {reason}; what was acknowledged before is \
         safe: close the database and open it again"
    )]
    Halted {
        /// The directory.
        path: PathBuf,
        /// The failure.
        reason: String,
    },
    /// The last step of a commit failed.
    #[error(
        "it is not known whether the changes are durable: {source}; close the database and open it \
         again to find out: all of them are there, or none"
    )]
    InDoubt {
        /// The failure.
        source: Box<StoreError>,
    },
    /// The statement was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The memory limit is too small.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A task panicked or the runtime ended.
    #[error(transparent)]
    Task(#[from] JoinError),
    /// No threads for the runtime.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// What the setting max_temp_size does not allow, and what to do.
fn spill_limit(limit_bytes: u64) -> String {
    match limit_bytes {
        u64::MAX => "a file has no more addresses: raise memory_limit".to_owned(),
        limit => format!(
            "the setting max_temp_size allows {} in all: raise max_temp_size, or memory_limit",
            human_bytes(limit)
        ),
    }
}

impl StoreError {
    /// The same error with what was being read when it happened.
    pub(crate) fn at(self, place: impl Into<String>) -> StoreError {
        match self {
            StoreError::Damaged { path, place: inner, problem } => {
                let place = format!("{}: {inner}", place.into());
                StoreError::Damaged { path, place, problem }
            }
            error @ (StoreError::Cancelled | StoreError::At { .. } | StoreError::Task(_)) => error,
            error => StoreError::At { place: place.into(), source: Box::new(error) },
        }
    }

    /// What keeps so many bytes from being written.
    pub(crate) fn of_write(error: FileError, path: &Path, needed_bytes: u64) -> StoreError {
        if !is_no_space(&error) {
            return error.into();
        }
        StoreError::DiskFull { path: path.into(), needed_bytes, source: Box::new(error) }
    }

    /// True if a device was full.
    pub fn is_disk_full(&self) -> bool {
        match self {
            StoreError::DiskFull { .. } | StoreError::SpillFull { .. } => true,
            StoreError::At { source, .. } | StoreError::SpillFailed { source } => {
                source.is_disk_full()
            }
            StoreError::Shared(source) => source.is_disk_full(),
            StoreError::File(error) => is_no_space(error),
            _ => false,
        }
    }
}

/// True if the system had no space left for a request.
pub(crate) fn is_no_space(error: &FileError) -> bool {
    match error {
        FileError::Transfer { source, .. } | FileError::Open { source, .. } => matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        ),
        FileError::Truncated { .. } | FileError::Kind { .. } => false,
    }
}

/// True if the file system has no such operation.
pub(crate) fn is_unsupported(error: &FileError) -> bool {
    let unsupported = io::ErrorKind::Unsupported;
    matches!(error, FileError::Transfer { source, .. } if source.kind() == unsupported)
}

/// A result with this crate's error.
pub type Result<T> = std::result::Result<T, StoreError>;
