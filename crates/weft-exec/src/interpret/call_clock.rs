//! The clock by which calls of functions are timed: the processor time of the thread that calls.
//!
//! Unit tests have a clock that only their own functions advance, so that what they check does not depend on how busy the machine is.

#[cfg(not(test))]
pub(super) use weft_store::spill::thread_time as call_time;

#[cfg(test)]
pub(super) use test_clock::{advance, call_time};

#[cfg(test)]
mod test_clock {
    use std::cell::Cell;
    use std::time::Duration;

    thread_local! {
        static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    /// The time that functions called on this thread have taken so far.
    pub(in crate::interpret) fn call_time() -> Duration {
        NOW.get()
    }

    /// Lets the clock of this thread advance by what a call takes.
    pub(in crate::interpret) fn advance(taken: Duration) {
        NOW.set(NOW.get() + taken);
    }
}
