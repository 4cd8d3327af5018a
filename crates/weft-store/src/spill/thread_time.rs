//! The processor time of a thread: what is computed while others run on the core does not count.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The processor time of this thread so far.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
