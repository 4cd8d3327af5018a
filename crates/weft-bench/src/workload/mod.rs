//! Benchmarks of the database as a whole: their data, their queries and the answers to them.

mod error;
mod statement;
pub mod tpch_load;
pub mod tpch_loops;
pub mod tpch_parquet;
pub mod tpch_queries;
pub mod tpch_rows;

pub use error::WorkloadError;
pub(crate) use error::advice;
pub use statement::run_with_progress;
