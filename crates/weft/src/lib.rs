//! Weft as a library: databases, sessions, results.
//!
//! ```
//! use weft::{Database, DatabaseOptions};
//!
//! # fn main() -> weft::Result<()> {
//! let database = Database::in_memory(&DatabaseOptions::default())?;
//! let session = database.session()?;
//!
//! let mut result = session.query("SELECT n, n * n AS square FROM (VALUES (1), (2), (3)) AS t(n)")?;
//! assert_eq!(result.schema().field(1).name(), "square");
//! let mut rows = 0;
//! while let Some(batch) = result.next_batch()? {
//!     rows += batch.num_rows();
//! }
//! assert_eq!(rows, 3);
//!
//! let prepared = session.prepare("SELECT $1 + 1")?;
//! assert_eq!(prepared.parameters(), 1);
//! let batches = prepared.query(&[41.into()])?.collect()?;
//! assert_eq!(weft::to_text(&batches)?[0], ["42"]);
//! # Ok(())
//! # }
//! ```
//!
//! A [`Database`] is one open directory, shared by any number of [`Session`]s on any threads. A
//! statement that was started runs on the database's threads, while its [`QueryResult`] is read;
//! a [`CancelHandle`] stops it from anywhere.
//!
//! # Memory
//!
//! The setting `memory_limit` holds for what a database reserves: its cache, operators, loads. Code that it
//! uses allocates more beside that. A program whose allocator counts lets it know how much, and then the
//! limit holds for all that the program has: the cache shrinks, and operators spill, by what is really taken.
//!
//! ```
//! use std::alloc::System;
//! use weft::{CountingAllocator, KeepingAllocator};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator<KeepingAllocator<System>> =
//!     CountingAllocator::new(KeepingAllocator::new(System));
//! ```
//!
//! Nobody counts what the allocator keeps of the memory that was freed. The system's keeps less once
//! [`give_back_promptly`] was called; a [`KeepingAllocator`] over it keeps the large blocks that are wanted
//! again at once, up to a sixteenth of the memory limit, and counts them.

#![forbid(unsafe_code)]

mod bound;
mod catalog;
mod complete;
mod database;
mod ingest;
mod kept;
mod prepared;
mod result;
mod session;
mod text;

pub use arrow;
pub use bound::{BatchesOnce, BoundRows, bound_types};
pub use catalog::{
    CATALOG, ConstraintEntry, ConstraintType, DEFAULT_SCHEMA, ReferencedKey, TableEntry,
};
pub use complete::{Completions, keywords};
pub use database::{Database, DatabaseOptions, DatabaseStats};
pub use ingest::{Ingest, IngestMode};
pub use kept::{Keep, KeptResult};
pub use prepared::Prepared;
pub use result::QueryResult;
pub use session::Session;
pub use text::to_text;
pub use weft_rt::memory::heap::{CountingAllocator, give_back_promptly};
pub use weft_rt::memory::kept::KeepingAllocator;
pub use weft_rt::progress::ProgressSnapshot;
pub use weft_rt::sync::block_on;
pub use weft_sql::{
    Backend, BatchReader, BatchSource, CLIENT_ROWS, CancelHandle, Client, ClientSetting,
    CopyStream, ErrorKind, FunctionCode, OWNER, POSTGRES_TYPE, POSTGRES_VERSION, Parameters,
    Position, Relation, Result, ResultKind, Role, SPILL_LEVELS, SessionFunction, Setting,
    Signature, SourceStatistics, SqlError as Error, Standing, Statement, StreamFormat,
    TransactionStatus, Value, array_items, copy_stream, grouped, insert_of_rows, is_incomplete,
    quoted, relation_names, spill_level_name, split_statements, type_name, uuid_bytes,
};
