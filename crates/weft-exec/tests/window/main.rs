//! Window functions through the public interface.

mod case;
mod oracle;
mod random;
#[path = "../spill_compression/mod.rs"]
mod spill_compression;
mod spilling;
