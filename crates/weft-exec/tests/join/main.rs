//! Joins of random tables against a nested loop: all kinds, lanes of keys, meanings of null, residual conditions,
//! vector sizes, workers and partition modes; by hashes that are good, and by hashes so bad that most of them collide.

mod case;
mod drive;
mod filters;
mod grace;
mod large;
mod random;
#[path = "../spill_compression/mod.rs"]
mod spill_compression;
#[path = "../spill_context/mod.rs"]
mod spill_context;
mod spilling;
mod tables;
