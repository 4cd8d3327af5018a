//! The simulated disk, tested through the driver trait.

mod crash;
mod faults;
mod timing;
mod transfers;

use std::time::{SystemTime, UNIX_EPOCH};

use super::driver::SimDriver;
use super::{SimDisk, SimOptions};
use crate::io::conformance::Harness;

/// A worker of the disk, played by the harness.
fn worker(disk: &SimDisk, number: usize) -> Harness<SimDriver> {
    Harness::new(SimDriver::new(disk.clone(), number).unwrap())
}

/// A new disk and its one worker.
fn disk(options: SimOptions) -> (SimDisk, Harness<SimDriver>) {
    let disk = SimDisk::new(options);
    let harness = worker(&disk, 0);
    (disk, harness)
}

/// A fixed list of seeds, and as many fresh ones. Callers print the seed of what they check.
fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let fresh = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    (0..count).chain((0..count).map(move |at| fresh.wrapping_add(at)))
}

/// Prints the seed if the test fails while this is alive.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {}", self.0);
        }
    }
}
