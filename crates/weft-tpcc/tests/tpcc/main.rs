//! TPC-C with few rows: every variant keeps the twelve consistency conditions, at each isolation level, and after crashes.

mod crash;
mod kill;
mod mixes;
mod relations;
mod setup;
