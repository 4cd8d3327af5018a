//! What does not fit in memory, on disk, for as long as a query needs it.
//!
//! A [`SpillArea`] (`area`) has a file without a name on each of its directories (`spill_file`), and what a database leaves free
//! of its block devices (`place` is either), so that nothing is left of it after a crash. Space in it is taken for what is written, comes back when the [`Spilled`] is dropped, and grows in
//! large steps; a file that nobody uses any more is forgotten. `scheme` compresses what is
//! written; a `meter` tells how fast the devices are. `address` is where something lies, in 64 bits. `directory` is
//! the directory that a database has for it.

mod address;
mod area;
mod directory;
mod meter;
mod place;
mod scheme;
mod spill_file;
mod thread_time;

pub use area::{
    HEADER_BYTES, Moved, SpillArea, SpillCosts, SpillRates, SpillStats, Spilled, Written,
    operator_time,
};
pub(crate) use directory::SpillDirectory;
pub use directory::{remove_leftovers, temp_directory};
pub use meter::Rate;
pub use place::SpillPlace;
pub use scheme::{Grade, LEVELS, Levels, SCALE, Scheme, level_name};
pub use thread_time::thread_time;
