//! TPC-C on the transaction engine, and the two variants of it that CoroBase is measured with (section 5.2 of the thesis of 2021).
//!
//! *TPC-C* is the standard mix of five transactions on nine tables (TPC Benchmark C, revision 5.11), without terminals, keying
//! and think times. *TPC-CR* consists of Order-Status and Stock-Level in halves. *TPC-CH* adds Q2*, a query over stock and
//! suppliers that changes what it finds (CH-benCHmark's second query as ERMIA has it). Transactions are written once, as
//! coroutines over single keys; a [`Variant`] says how they wait for memory and how many of them a worker runs at a time.
//!
//! Read in this order: `rows` (the tables), `random` (the numbers that the specification draws), `database`, `load`, `inputs` and
//! `transactions`, `consistency` (the twelve conditions of clause 3.3.2), `run`, `analytics`
//! (the tables as relations, which queries scan meanwhile).

mod analytics;
mod consistency;
mod database;
mod error;
mod inputs;
mod load;
mod random;
mod rows;
mod run;
mod transactions;
mod variant;

pub use analytics::Relation;
pub use consistency::check;
pub use database::{Database, Scale, Storage};
pub use error::TpccError;
pub use inputs::Kind;
pub use load::load;
pub use run::{Measured, RunOptions, run, run_until};
pub use transactions::{FrameBytes, OperationBytes, frame_bytes};
pub use variant::{Variant, Workload};
