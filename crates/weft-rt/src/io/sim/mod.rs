//! Simulated disks: seeded, with chosen speed and chosen faults.
//!
//! A [`SimDisk`] is a set of named files in memory on devices that follow a [`SimModel`]. Under a
//! virtual clock it is deterministic: tests make *every* request suspend, fail it as scheduled, cut
//! the power at any write and look at what a disk may hold afterwards. Under the real clock it
//! stands for devices that the machine does not have, such as the eight-SSD array of the papers;
//! results got that way are to be labelled as simulated.

mod clock;
mod content;
mod directory;
mod disk;
mod dma;
pub(crate) mod driver;
mod faults;
mod file;
mod inbox;
mod model;
mod options;
mod placement;
mod random;
#[cfg(test)]
mod tests;
mod transfer;

pub use super::driver::Operation;
pub use clock::SimClock;
pub use disk::SimDisk;
pub use faults::{CrashOdds, Fault, FaultRule, FaultWhen, SimFaults};
pub use file::SimFile;
pub use model::SimModel;
pub use options::{SimMode, SimOptions};
pub use placement::Placement;
