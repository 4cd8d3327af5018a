//! Weft as a driver of ADBC, Arrow's interface of databases: programs in C, Go, Java, Python, R or Rust that know ADBC use a Weft
//! database in their own process by it, and get results as streams of Arrow batches, nothing of which is copied.
//!
//! [`WeftDriver`] is the driver, for programs in Rust; all others load a library that has it. That is `libadbc_driver_weft.so`, which
//! is built of this crate, or the extension module of Weft's package for Python, so that the package has the driver in it. The
//! entry point of either is `AdbcDriverWeftInit`.
//!
//! - A *database* (`database.rs`) is a directory, or a temporary one. It is opened once in a process, and closed when the last of its
//!   connections, statements and results is gone.
//! - A *connection* (`connection.rs`) is a session. Without autocommit, its transaction begins with the first statement after the
//!   last COMMIT or ROLLBACK. It also says what the database holds (`objects.rs`, `statistics.rs`) and what the driver is (`info.rs`).
//! - A *statement* (`statement.rs`) runs SQL, once for each row that is bound to its parameters (`bound.rs`), or takes rows into a
//!   table. Its result is read as it is computed (`reader.rs`).
//!
//! Options of Weft itself are named in `options.rs`. Errors (`error.rs`) have their SQLSTATE.

mod bound;
mod connection;
mod database;
mod error;
mod export;
mod info;
mod nested;
mod objects;
mod options;
mod reader;
mod statement;
mod statistics;

pub use connection::WeftConnection;
pub use database::{WeftDatabase, WeftDriver};
pub use options::{MEMORY_LIMIT, PATH, READ_ONLY, SETTING_PREFIX, THREADS};
pub use reader::WeftReader;
pub use statement::WeftStatement;

#[cfg(feature = "allocator")]
#[global_allocator]
static ALLOCATOR: weft::CountingAllocator<weft::KeepingAllocator<std::alloc::System>> =
    weft::CountingAllocator::new(weft::KeepingAllocator::new(std::alloc::System));
