//! Timers of a worker.

use std::collections::BTreeMap;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::current::{try_worker, with_worker};

/// The longest sleep, 30 years: longer ones end then, rather than overflow the clock.
const SLEEP_MAX: Duration = Duration::from_secs(30 * 365 * 86_400);

/// The timers that a worker's coroutines wait for, by deadline.
#[derive(Default)]
pub(crate) struct Timers {
    entries: BTreeMap<(Instant, u64), Waker>,
    next: u64,
}

impl Timers {
    /// The earliest deadline.
    pub(crate) fn first(&self) -> Option<Instant> {
        self.entries.first_key_value().map(|((deadline, _), _)| *deadline)
    }

    /// Takes out the wakers whose deadline has come.
    pub(crate) fn expire(&mut self, now: Instant, expired: &mut Vec<Waker>) {
        while let Some(entry) = self.entries.first_entry()
            && entry.key().0 <= now
        {
            expired.push(entry.remove());
        }
    }
}

/// Waits at least `duration` by the clock of the worker's driver.
pub fn sleep(duration: Duration) -> Sleep {
    Sleep { duration, key: None, _local: PhantomData }
}

/// The future of [`sleep`]. Runs on a worker.
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    duration: Duration,
    key: Option<(Instant, u64)>,
    /// Tied to the worker that first polled it.
    _local: PhantomData<*const ()>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Dropped when nothing is borrowed any more: a waker may run another executor's code.
        let mut replaced = None;
        let poll = with_worker(|worker| {
            let now = worker.reactor().now();
            let mut timers = worker.timers();
            let key = match self.key {
                Some(key) => key,
                None => {
                    timers.next += 1;
                    (now + self.duration.min(SLEEP_MAX), timers.next)
                }
            };
            if key.0 <= now {
                replaced = timers.entries.remove(&key);
                self.key = None;
                self.duration = Duration::ZERO;
                return Poll::Ready(());
            }
            self.key = Some(key);
            replaced = timers.entries.insert(key, context.waker().clone());
            Poll::Pending
        });
        drop(replaced);
        poll
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        // A worker that has ended has dropped its timers already.
        if let Some(key) = self.key
            && let Some(worker) = try_worker()
        {
            let waker = worker.timers().entries.remove(&key);
            drop(waker);
        }
    }
}
