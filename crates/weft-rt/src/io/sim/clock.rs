//! The two clocks of a simulated disk.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A sleep ends this long before its target; the rest is spun, for the kernel's timers are only
/// about this precise. Below the latency of any device that is worth simulating.
pub(crate) const SPIN_NS: u64 = 60_000;

/// Whose time the simulated devices follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimClock {
    /// Time passes only when the worker waits: it jumps to the next completion or deadline. With
    /// one worker everything is then determined by the seed; several share the clock, and whoever
    /// waits moves it for all.
    Virtual,
    /// The machine's clock, for benchmarks.
    Real,
}

/// A disk's clock, in ns since the disk was made.
#[derive(Debug)]
pub(crate) struct Clock {
    pub(crate) kind: SimClock,
    base: Instant,
    virtual_ns: AtomicU64,
}

impl Clock {
    pub(crate) fn new(kind: SimClock) -> Clock {
        Clock { kind, base: Instant::now(), virtual_ns: AtomicU64::new(0) }
    }

    /// Now.
    pub(crate) fn now_ns(&self) -> u64 {
        match self.kind {
            SimClock::Virtual => self.virtual_ns.load(Ordering::Relaxed),
            SimClock::Real => self.base.elapsed().as_nanos() as u64,
        }
    }

    /// The instant of a time on this clock.
    pub(crate) fn instant(&self, ns: u64) -> Instant {
        self.base + Duration::from_nanos(ns)
    }

    /// The time of an instant on this clock; 0 for one before the disk was made.
    pub(crate) fn ns_of(&self, instant: Instant) -> u64 {
        instant.saturating_duration_since(self.base).as_nanos() as u64
    }

    /// Moves virtual time to `ns` unless it is past it.
    pub(crate) fn advance_to(&self, ns: u64) {
        debug_assert_eq!(self.kind, SimClock::Virtual);
        self.virtual_ns.fetch_max(ns, Ordering::Relaxed);
    }

    /// Returns at `ns`, precisely.
    pub(crate) fn pass_until(&self, ns: u64) {
        if self.kind == SimClock::Virtual {
            return self.advance_to(ns);
        }
        let left = ns.saturating_sub(self.now_ns());
        if left > SPIN_NS {
            thread::sleep(Duration::from_nanos(left - SPIN_NS));
        }
        while self.now_ns() < ns {
            hint::spin_loop();
        }
    }
}

/// Asks the kernel to end this thread's sleeps on time, rather than up to 50 µs late.
pub(crate) fn make_sleeps_precise() {
    // SAFETY: sets one number of the calling thread. If it is refused, sleeps stay less precise.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
}
