//! Reads and writes as suspension points: files, buffers, and the drivers behind one trait.
//!
//! A coroutine hands a [`File`] and an [`IoBuf`] to the worker's reactor and is parked; the
//! reactor owns both until the driver reports the completion, whatever becomes of the coroutine
//! meanwhile. How a request reaches the device is the driver's business alone (`driver.rs`).

pub mod arena;
pub(crate) mod bandwidth;
pub(crate) mod blocking;
pub mod buffer;
#[cfg(test)]
mod conformance;
pub(crate) mod driver;
pub mod file;
pub(crate) mod posix;
pub(crate) mod reactor;
pub mod sim;
mod transfer;
pub(crate) mod uring;

pub use arena::{Arena, HUGE_PAGE_BYTES};
pub use bandwidth::Transfers;
pub use buffer::{IoBuf, Recycle};
pub use driver::DriverKind;
pub use file::{Access, File, FileError};
pub use reactor::IoStats;
pub use transfer::{
    Command, Transfer, TransferResult, VECTORS_MAX, VectoredResult, VectoredTransfer,
};
