//! Benchmarks of the database as a whole: their data, their queries and the answers to them.

mod error;
mod load;
mod query;
mod statement;
mod suite;
pub mod tpcds_csv;
mod tpcds_queries;
pub mod tpch_loops;
pub mod tpch_parquet;
mod tpch_queries;
pub mod tpch_rows;

pub use error::WorkloadError;
pub(crate) use error::advice;
pub use load::{Loaded, count};
pub use query::Query;
pub use statement::run_with_progress;
pub use suite::{Generated, Suite, TPCDS, TPCH, TableSize};
