//! YCSB on the transaction engine, as CoroBase is measured with it (section 5.2 of the thesis of 2021): one table of rows with a key and
//! a value, and transactions of some operations each.
//!
//! Rows lie in memory, as versions, or in files that the memory for them is a part of ([`Place`]): a row that no transaction has changed is
//! read from its page then, and what changes is a version in memory. Operations are written once; a [`Variant`] says how they
//! wait for memory and files, and how many transactions a worker runs at a time.
//!
//! Each update adds one to the counter in a row: [`check`] compares the sum of all counters with the updates that have committed.
//!
//! Read in this order: `database` and `files` (the table), `random` (keys), `variant`, `operations`, `run`.

mod database;
mod error;
mod files;
mod operations;
mod random;
mod run;
mod variant;

pub use database::{Database, Form, KEY_BYTES_MAX, Place, VALUE_BYTES_MAX, check};
pub use error::YcsbError;
pub use files::{Files, prepare};
pub use operations::OPERATIONS_MAX;
pub use run::{Measured, RunOptions, run};
pub use variant::{Variant, Workload};
