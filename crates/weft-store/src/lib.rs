//! The database directory: tables in row groups on one or more devices, and commits that are all or nothing.
//!
//! A [`Store`] is an open directory. What it holds is looked at through [`Snapshot`]s, which never change:
//! [`Snapshot::table`] gives a [`Table`], [`Table::scan`] its rows as Arrow batches ([`Table::scan_morsels`] for
//! whoever runs on the workers itself), [`Table::get`] one row. Rows are written through a [`TableWriter`] and become
//! visible by [`Store::commit`], together with all other [`Change`]s. The files are described byte by byte in
//! `docs/FILE_FORMAT.md`.
//!
//! Nothing here knows SQL: expressions and views are texts, names are case-sensitive.
#![forbid(unsafe_code)]

mod alter;
mod append;
mod array_bytes;
mod change;
mod combine;
mod commit;
mod core;
mod data_type;
mod decompressed;
mod delete;
mod deleted;
mod device;
mod directory;
mod draft;
mod error;
mod extent;
mod fetch;
mod file_header;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod group_rows;
mod group_writer;
mod index;
mod journal;
mod lock;
mod manifest;
mod manifest_file;
mod open;
mod page_io;
mod pages;
mod pieces;
mod place;
mod point;
mod row_group;
mod row_locks;
mod row_set;
mod scan;
mod scan_group;
mod scan_morsels;
mod scan_options;
mod schema;
mod segment;
mod sizes;
mod snapshot;
mod space;
mod sparse_ids;
pub mod spill;
mod statistics;
mod store;
mod table;
mod tidy;
mod transaction;
mod wire;
mod writer;

pub use alter::Alteration;
pub use change::Change;
pub use device::DEVICES_MAX;
pub use directory::Directory;
pub use error::{Result, StoreError};
pub use group_rows::ScanRows;
pub use index::{
    Check, Constraints, ForeignKey, IndexColumn, IndexDefinition, IndexEnds, IndexScan,
    IndexScanOptions, KeyLookup, KeyLookupOptions, KeyLookupStats, KeyLookups, KeyMatches,
    KeyRange, ProbeCode, ProbeRound, Probed, Unknowns,
};
pub use point::{KeyedRow, ResidentRow};
pub use row_group::ROW_GROUP_ROWS_MAX;
pub use row_locks::{FoundRows, HeldLocks, HeldTable, LockMode, WhenLocked};
pub use row_set::RowSet;
pub use scan::Scan;
pub use scan_morsels::{MorselScan, ScanMorsel};
pub use scan_options::{ColumnFilter, ROW_ID, ScanOptions, ScanStats};
pub use schema::{COLUMNS_MAX, Column, TableSchema, scan_type};
pub use sizes::human_bytes;
pub use snapshot::Snapshot;
pub use statistics::{SAMPLE_ROWS_MAX, Statistics};
pub use store::{StatementLocks, Store, StoreOptions, StoreStats};
pub use table::{ColumnResidence, Table};
pub use transaction::{Isolation, Transaction};
pub use weft_codec::{Op, Predicate, Scalar, Zone};
pub use weft_index::{IndexError, KeyColumn, NO_ROW, PrefixFound};
pub use writer::{PartitionWriter, TableWriter, WriterOptions, WrittenGroups};

/// Version of the format of the files.
pub const FORMAT_VERSION: u32 = 4;

/// The oldest version that can be read: it differs in that it has no journal.
pub(crate) const FORMAT_VERSION_OLDEST: u32 = 3;
