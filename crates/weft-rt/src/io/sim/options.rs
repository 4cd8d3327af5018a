//! How a simulated disk behaves, apart from what it holds.

use std::time::Duration;

use super::clock::SimClock;
use super::faults::SimFaults;
use super::model::SimModel;

/// Whether a request suspends its coroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimMode {
    /// Every request suspends, a sync too; none completes at submission.
    Async,
    /// Every request completes at submission, which takes as long as the model says: the
    /// synchronous baseline on the same device.
    Blocking,
}

/// The settings of a [`SimDisk`](super::SimDisk).
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Speed.
    pub model: SimModel,
    /// What goes wrong.
    pub faults: SimFaults,
    /// Whether requests suspend.
    pub mode: SimMode,
    /// Whose time passes.
    pub clock: SimClock,
    /// Completions that are ready together come back in random order.
    pub reorder: bool,
    /// Keep apart what is durable and what is not, as [`SimDisk::crash`](super::SimDisk::crash)
    /// needs it. Costs a copy of each write; without, everything written counts as durable.
    pub volatile_writes: bool,
    /// Bytes in a row on one device, for files created without a placement of their own and for
    /// the operating system's files.
    pub stripe_bytes: u64,
    /// Requests that one driver accepts before it says that it is full.
    pub in_flight_max: usize,
}

impl SimOptions {
    /// For tests: virtual clock, every request suspends, completions reordered, one fast device
    /// with uneven latencies, no faults.
    pub fn testing(seed: u64) -> SimOptions {
        SimOptions {
            model: SimModel {
                read_latency: Duration::from_micros(80),
                write_latency: Duration::from_micros(20),
                bandwidth_bytes_per_s: 4e9,
                iops_max: 1e6,
                queue_depth: 32,
                jitter: 0.5,
                devices: 1,
                seed,
            },
            faults: SimFaults::none(),
            mode: SimMode::Async,
            clock: SimClock::Virtual,
            reorder: true,
            volatile_writes: true,
            stripe_bytes: 64 << 10,
            in_flight_max: 4096,
        }
    }

    /// For benchmarks: real clock, completions in order, no durability to simulate.
    pub fn benchmark(model: SimModel, mode: SimMode) -> SimOptions {
        SimOptions {
            model,
            faults: SimFaults::none(),
            mode,
            clock: SimClock::Real,
            reorder: false,
            volatile_writes: false,
            stripe_bytes: 64 << 10,
            in_flight_max: 4096,
        }
    }
}
