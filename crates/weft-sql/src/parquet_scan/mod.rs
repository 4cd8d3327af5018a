//! Scans of Parquet files as sources of pipelines: the workers read and decode the row groups that they then work on.
//!
//! - [`ParquetScanExec`] stands in a plan for DataFusion's scan of the files, where the workers can read all that it asks for.
//! - `file` opens a file on a worker: its footer, kept between statements as long as the file does not change; how its columns
//!   become those of the table; which row groups and pages statistics, the page index and Bloom filters leave of it (`prune`);
//!   and its morsels, pieces of row groups (`pieces`).
//! - [`ParquetScan`] is the source, `morsel` reads a piece. Columns that conditions of the scan look at, or filters of joins ask
//!   about, are decoded first, as long as they drop many rows (`condition`), and the others where rows are left.
//!
//! Footers that are known when a statement is planned also say how narrow its numbers are (`zones`).
//!
//! What reads the bytes and decodes them is the crate `weft-parquet`.

mod condition;
mod file;
mod morsel;
mod node;
mod pieces;
mod prune;
mod source;
mod zones;

pub(crate) use condition::Condition;
pub(crate) use node::{ParquetScanExec, ScanOf};
pub(crate) use source::ParquetScan;
pub(crate) use zones::zones;
