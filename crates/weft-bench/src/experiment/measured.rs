//! What a run of a query takes: time, memory, and what it spills; and what a point says of it.

use std::collections::BTreeMap;

use weft::{DatabaseStats, SPILL_LEVELS, spill_level_name};

use super::memory::allowed_bytes;
use crate::report::{OverTime, Point};
use crate::resident;

/// What one run took.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) seconds: f64,
    /// Most bytes that were resident, where that is known.
    pub(super) resident_bytes: Option<u64>,
    limit_bytes: u64,
    bandwidth_bytes: Option<u64>,
    bytes_read: u64,
    spilled_bytes: u64,
    spilled_bytes_raw: u64,
    spilled_by_scheme: BTreeMap<String, u64>,
    spilled_partitions: u64,
    over_time: OverTime,
}

impl Measured {
    /// What a run of so many seconds took that has just ended: what a database counted `before` it and `after` it.
    pub(super) fn new(
        seconds: f64,
        before: &DatabaseStats,
        after: &DatabaseStats,
        over_time: OverTime,
    ) -> Measured {
        Measured {
            seconds,
            resident_bytes: resident::peak_bytes(),
            limit_bytes: after.memory_limit,
            bandwidth_bytes: after.io_bandwidth_limit,
            bytes_read: after.bytes_read - before.bytes_read,
            spilled_bytes: after.spill_bytes_written - before.spill_bytes_written,
            spilled_bytes_raw: after.spill_bytes_raw - before.spill_bytes_raw,
            spilled_by_scheme: by_scheme(std::array::from_fn(|level| {
                after.spill_bytes_by_level[level] - before.spill_bytes_by_level[level]
            })),
            spilled_partitions: after.spill_partitions - before.spill_partitions,
            over_time,
        }
    }

    /// The point of this run, which stands for others. What is not measured is as in `of_case`.
    pub(super) fn point(&self, of_case: Point) -> Point {
        Point {
            seconds: self.seconds,
            memory_limit: Some(self.limit_bytes),
            bytes_read: Some(self.bytes_read),
            spilled_bytes: Some(self.spilled_bytes),
            spilled_bytes_raw: Some(self.spilled_bytes_raw),
            spilled_by_scheme: Some(self.spilled_by_scheme.clone()),
            spilled_partitions: Some(self.spilled_partitions),
            io_bandwidth_limit: self.bandwidth_bytes,
            over_time: Some(self.over_time.clone()),
            resident_bytes_allowed: Some(allowed_bytes(self.limit_bytes)),
            ..of_case
        }
    }
}

/// Bytes by the names of levels, of those that have some.
fn by_scheme(by_level: [u64; SPILL_LEVELS]) -> BTreeMap<String, u64> {
    let named = by_level.into_iter().enumerate();
    let named = named.map(|(level, bytes)| (spill_level_name(level), bytes));
    named.filter(|(_, bytes)| *bytes > 0).collect()
}
