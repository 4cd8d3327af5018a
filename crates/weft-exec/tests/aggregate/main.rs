//! Aggregation against a naive oracle: random rows, keys, functions, filters, vector sizes, workers and partition modes.

mod drive;
mod edges;
mod oracle;
mod random;
mod rows;
mod spilling;
