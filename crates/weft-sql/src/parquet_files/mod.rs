//! Parquet files as other programs write them: what DataFusion's reader takes for granted of a footer is checked or mended
//! before it sees it (`footer.rs`; those of files elsewhere are read by requests of their own, `elsewhere.rs`), the columns of several files become those of one table (`merge.rs`), footers are kept between statements, within the memory budget (`kept.rs`), and a panic of the
//! decoder is an error that names the file (`guard.rs`).

mod elsewhere;
mod footer;
mod format;
mod guard;
mod kept;
mod merge;

pub(crate) use elsewhere::ElsewhereFiles;
pub(crate) use footer::{Footers, arrow_schema};
pub(crate) use format::{INT96_UNIT, ParquetFiles};
pub(crate) use guard::{of_panic, parquet_source};
pub(crate) use kept::KeptFooters;
