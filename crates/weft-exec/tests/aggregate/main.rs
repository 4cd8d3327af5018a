//! Aggregation against a naive oracle: random rows, keys, functions, filters, vector sizes, workers and partition modes.

mod drive;
mod edges;
mod oracle;
mod random;
mod rows;
#[path = "../spill_compression/mod.rs"]
mod spill_compression;
#[path = "../spill_context/mod.rs"]
mod spill_context;
mod spilling;
