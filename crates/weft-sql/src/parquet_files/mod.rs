//! Parquet files as other programs write them: what DataFusion's reader takes for granted of a footer is checked or mended
//! before it sees it (`footer.rs`), the columns of several files become those of one table (`merge.rs`), and a panic of the
//! decoder is an error that names the file (`guard.rs`).

mod footer;
mod format;
mod guard;
mod merge;

pub(crate) use format::ParquetFiles;
