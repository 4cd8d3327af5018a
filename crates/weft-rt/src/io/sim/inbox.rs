//! Where a simulated driver's worker hears from other threads: copies that are done, notifications.

use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::io::driver::Notify;

/// A finished copy: the driver's slot, and what the request is to report.
pub(crate) type Copied = (u32, io::Result<usize>);

/// One worker's inbox.
#[derive(Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    came: Condvar,
    /// A notification is waiting. Beside the lock, so that a spinning worker can look cheaply.
    rung: AtomicBool,
    /// A copy is waiting; likewise.
    delivered: AtomicBool,
}

#[derive(Default)]
struct State {
    copied: Vec<Copied>,
    /// The worker sleeps, and wants to be woken by the next copy.
    waits_for_copy: bool,
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers a finished copy.
    pub(crate) fn deliver(&self, copied: Copied) {
        let mut state = self.state();
        state.copied.push(copied);
        self.delivered.store(true, Ordering::Release);
        let wake = mem::take(&mut state.waits_for_copy);
        drop(state);
        if wake {
            self.came.notify_one();
        }
    }

    /// Takes the copies finished since the last call.
    pub(crate) fn take_copied(&self, into: &mut Vec<Copied>) {
        if self.has_copied() {
            let mut state = self.state();
            self.delivered.store(false, Ordering::Relaxed);
            into.append(&mut state.copied);
        }
    }

    /// True if a finished copy is waiting.
    pub(crate) fn has_copied(&self) -> bool {
        self.delivered.load(Ordering::Acquire)
    }

    /// True if a notification is waiting.
    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Acquire)
    }

    /// Takes the notification, if one is waiting.
    pub(crate) fn take_ring(&self) -> bool {
        self.rung.swap(false, Ordering::AcqRel)
    }

    /// Sleeps for at most `time`, until a notification, or until a copy if `for_copy`. May return
    /// early for no reason.
    pub(crate) fn sleep(&self, time: Option<Duration>, for_copy: bool) {
        let mut state = self.state();
        if self.is_rung() || (for_copy && !state.copied.is_empty()) {
            return;
        }
        state.waits_for_copy = for_copy;
        let mut state = match time {
            None => self.came.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(time) => {
                self.came.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.waits_for_copy = false;
    }
}

impl Notify for Inbox {
    fn notify(&self) {
        // Under the lock, so that it cannot fall between the worker's look and its sleep.
        let state = self.state();
        self.rung.store(true, Ordering::Release);
        drop(state);
        self.came.notify_one();
    }
}
