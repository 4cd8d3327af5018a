//! Readers of files that hold tables, from bytes to Arrow batches.
//!
//! A [`FileReader`] is one table in one or several files. [`FileReader::open`] gives its [`Pieces`], which are found one
//! after the other in the order of the file and decoded by as many threads as there are. Nothing is read twice, and no more is
//! in memory than the pieces that are being decoded.
//!
//! **API boundary:** the crate knows Arrow, and neither SQL nor who runs it: no threads, no budget, no catalog.

#![forbid(unsafe_code)]

pub mod arrow_ipc;
pub mod csv;
mod error;
mod input;
pub mod json;
mod names;
mod source;
mod union;
mod whole;
pub mod xlsx;

pub use error::{FilesError, Result};
pub use input::{Compression, Encoding, Input};
pub use names::distinct;
pub use source::{FileReader, Piece, Pieces, PlacedBatch, ReadPlan, TypesFrom};
pub use union::{Member, MemberColumn, Union};
pub use whole::{Content, WholeFiles};
