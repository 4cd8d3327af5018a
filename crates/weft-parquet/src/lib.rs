//! Reading of Parquet files by the workers: a coroutine asks for the bytes that it needs through its worker's reactor, or of a store
//! by requests, and decodes them where it is.
//!
//! - [`read_metadata`], [`read_remote_metadata`] and [`bloom_filters`] read what a file says of itself.
//! - [`ColumnsReader`] reads some columns of a [`Piece`], rows of one row group, batch by batch. The decoder of the `parquet`
//!   crate does no I/O: it names byte ranges, and takes them when they are there (`fetch` reads those that are near to each
//!   other in one request, and all requests at once).
//! - [`Handle`] is where bytes come from: a file here, or elsewhere.
//! - [`InFlight`] is the budget of what a scan has read and not decoded yet.
//!
//! **Architecture invariant:** besides the worker only the threads take part that carry requests to stores out, and nothing blocks the worker but the opening of a file. A panic of
//! the decoder, which damaged files may cause, is an error that names the file, the row group and the column.

#![forbid(unsafe_code)]

mod columns;
mod error;
mod fetch;
mod handle;
mod in_flight;
mod metadata;
#[cfg(test)]
mod tests;

pub use columns::{ColumnsReader, OpenFile, Piece};
pub use error::{ReadError, Result};
pub use fetch::ReadCounts;
pub use handle::Handle;
pub use in_flight::{Grant, InFlight};
pub use metadata::{bloom_filters, read_metadata, read_remote_metadata};
