//! Pipelines through the public interface: the driver, sources and sinks, alone and together.

mod drive;
mod results;
mod rows;
mod shares;
mod sort;
mod sort_spilling;
#[path = "../spill_compression/mod.rs"]
mod spill_compression;
#[path = "../spill_context/mod.rs"]
mod spill_context;
mod spilling;
mod stored;
mod support;
