//! How often a coroutine that computes lets others run: devices' completions, timers, cancellation, other queries.

use std::time::{Duration, Instant};

use futures::FutureExt;
use weft_rt::yield_now;

use crate::profile::{Wait, waiting};

/// Time after which a coroutine yields; a few of them may have to wait for each other within a millisecond.
pub(crate) const TURN: Duration = Duration::from_micros(250);

/// A coroutine's pace. For tasks and what they await directly, where a yield leads back to the worker's loop.
#[derive(Debug)]
pub struct Pace {
    /// `None` if it never yields.
    since: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { since: Some(Instant::now()) }
    }
}

/// What `work` gives that goes by a pace which is unbroken.
///
/// # Panics
/// If it waits for something.
pub(crate) fn at_once<T>(work: impl Future<Output = T>) -> T {
    work.now_or_never().expect("it waits for nothing")
}

impl Pace {
    /// That of little work, which is not worth being broken off: it never yields.
    pub(crate) fn unbroken() -> Pace {
        Pace { since: None }
    }

    /// True if it never yields.
    pub(crate) fn is_unbroken(&self) -> bool {
        self.since.is_none()
    }

    /// Drops what takes some time to be dropped, one after the other.
    pub(crate) async fn drop_all<T>(&mut self, all: Vec<T>) {
        for one in all {
            drop(one);
            self.keep().await;
        }
    }

    /// Yields now, unless it never does.
    pub(crate) async fn rest(&mut self) {
        if self.since.is_some() {
            waiting(Wait::Other, yield_now()).await;
            self.since = Some(Instant::now());
        }
    }

    /// Yields if it is time to. To be called every few ten microseconds.
    pub async fn keep(&mut self) {
        if self.since.is_some_and(|since| since.elapsed() >= TURN) {
            self.rest().await;
        }
    }
}
