//! How fast a simulated device is.
//!
//! A device has `queue_depth` slots, one pipe for the data, and a limit on the requests that it
//! starts per second. A request starts when a slot is free, and completes when its latency is over
//! and the pipe has carried its bytes. So the throughput of a closed loop at depth `d` is the
//! smallest of `min(d, queue_depth) / latency`, bandwidth / size, and the limit of requests.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::random::Random;

/// The speed of an array of equal devices.
#[derive(Clone, Debug, PartialEq)]
pub struct SimModel {
    /// From the start of a read to its completion, on an idle device.
    pub read_latency: Duration,
    /// The same for a write, a sync or an allocation.
    pub write_latency: Duration,
    /// Bytes per second that one device transfers, in both directions together.
    pub bandwidth_bytes_per_s: f64,
    /// Requests per second that one device starts.
    pub iops_max: f64,
    /// Requests that one device works on at once; further ones wait.
    pub queue_depth: usize,
    /// Each latency is spread evenly over ± this part of itself.
    pub jitter: f64,
    /// Devices in the array.
    pub devices: usize,
    /// Determines every random choice of the disk.
    pub seed: u64,
}

impl SimModel {
    /// The storage of the papers: eight Samsung PM9A3, 73 µs for a random read of 4 KiB, together
    /// 50 GB/s and 8 M requests per second. Saturating the bandwidth takes some 28 requests of
    /// 16 KiB in flight per device, saturating the requests per second takes 73.
    pub fn nvme_array() -> SimModel {
        SimModel {
            read_latency: Duration::from_micros(73),
            write_latency: Duration::from_micros(20),
            bandwidth_bytes_per_s: 50e9 / 8.0,
            iops_max: 1e6,
            queue_depth: 128,
            jitter: 0.0,
            devices: 8,
            seed: 0,
        }
    }

    /// Checks the numbers.
    ///
    /// # Panics
    /// If a number is one that no device could have: a rate, depth or count that is not positive,
    /// or a jitter outside `[0, 1]`.
    pub(crate) fn check(&self) {
        assert!(self.bandwidth_bytes_per_s > 0.0, "bandwidth {}", self.bandwidth_bytes_per_s);
        assert!(self.iops_max > 0.0, "requests per second {}", self.iops_max);
        assert!(self.queue_depth > 0, "queue depth 0");
        assert!(self.devices > 0, "an array of 0 devices");
        assert!((0.0..=1.0).contains(&self.jitter), "jitter {}", self.jitter);
    }
}

/// When one device is free for what; times in ns of the disk's clock.
#[derive(Debug)]
pub(crate) struct DeviceTiming {
    /// Completion times of the requests that occupy slots, earliest first.
    slots: BinaryHeap<Reverse<u64>>,
    pipe_free_ns: f64,
    start_free_ns: f64,
    random: Random,
}

impl DeviceTiming {
    pub(crate) fn new(model: &SimModel, device: usize) -> DeviceTiming {
        DeviceTiming {
            slots: BinaryHeap::with_capacity(model.queue_depth),
            pipe_free_ns: 0.0,
            start_free_ns: 0.0,
            random: Random::new(model.seed, 1000 + device as u64),
        }
    }

    /// Takes a request of `bytes` that arrives at `now_ns`; returns when it will be complete.
    pub(crate) fn schedule(
        &mut self,
        model: &SimModel,
        now_ns: u64,
        latency: Duration,
        bytes: u64,
    ) -> u64 {
        while self.slots.peek().is_some_and(|Reverse(end)| *end <= now_ns) {
            self.slots.pop();
        }
        let mut start = (now_ns as f64).max(self.start_free_ns);
        if self.slots.len() >= model.queue_depth {
            let Reverse(freed) = self.slots.pop().expect("the depth is not 0");
            start = start.max(freed as f64);
        }
        self.start_free_ns = start + 1e9 / model.iops_max;
        let spread = 1.0 + model.jitter * (2.0 * self.random.unit() - 1.0);
        let latency_over = start + latency.as_nanos() as f64 * spread;
        let transfer = bytes as f64 / model.bandwidth_bytes_per_s * 1e9;
        self.pipe_free_ns = self.pipe_free_ns.max(start) + transfer;
        let end = latency_over.max(self.pipe_free_ns).ceil() as u64;
        self.slots.push(Reverse(end));
        debug_assert!(self.slots.len() <= model.queue_depth && end >= now_ns);
        end
    }
}
