//! The experiments, one per file.

mod apart;
pub mod compile;
pub mod compression;
pub mod coroutine;
pub mod htap;
pub mod inlj;
pub mod io;
pub mod lookup;
mod measured;
pub mod memory;
pub(crate) mod neighbour;
pub mod prefetch;
pub mod probe;
pub mod rate;
pub mod scan;
pub mod spill;
pub mod storage;
pub mod suite;
pub mod tpcc;
pub mod ycsb;
