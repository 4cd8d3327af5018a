//! Indexes of tables: what they are, where their pages lie, and how they follow the tables' rows.
//!
//! An index is a B+tree of `weft-index` over keys of some columns, whose values are the ids of the rows. All snapshots
//! that have an index share one tree: a reader passes over rows that are newer than its snapshot (`lookup.rs`), and finds entries that
//! have left the tree since in memory (`past.rs`); what a transaction adds lies in a tree of its own until it commits (`overlay.rs`).
//! Commits change the tree one after the other (`maintain.rs`); what they write lies at new places, which become
//! the index with the manifest that names its new root (`version.rs`, `space.rs`).

mod check;
pub(crate) mod definition;
pub(crate) mod foreign;
pub(crate) mod join;
mod key_run;
mod lookup;
pub(crate) mod maintain;
pub(crate) mod new_rows;
pub(crate) mod overlay;
mod past;
pub(crate) mod probe;
mod space;
pub(crate) mod version;

pub use definition::{Check, Constraints, ForeignKey, IndexColumn, IndexDefinition};
pub use join::{KeyLookup, KeyLookupOptions, KeyLookupStats, KeyLookups, KeyMatches, Unknowns};
pub use lookup::{IndexEnds, IndexScan, IndexScanOptions, KeyRange};
pub use probe::{ProbeCode, ProbeRound, Probed};
