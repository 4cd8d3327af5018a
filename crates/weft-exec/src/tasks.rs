//! The tasks of a query, counted, so that it ends when all have ended.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

/// How many tasks a query has.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    count: AtomicUsize,
    waiter: Mutex<Option<Waker>>,
}

/// A task that has not ended.
#[derive(Debug)]
pub(crate) struct Counted {
    tasks: Arc<Tasks>,
}

impl Tasks {
    /// Counts a task until what this gives is dropped.
    pub(crate) fn count(self: &Arc<Self>) -> Counted {
        self.count.fetch_add(1, Ordering::Relaxed);
        Counted { tasks: self.clone() }
    }

    /// Waits until there is no task. One waits at a time, and nobody else starts tasks meanwhile but tasks.
    pub(crate) async fn all_ended(&self) {
        poll_fn(|context| {
            let replaced = self.set_waiter(Some(context.waker().clone()));
            drop(replaced);
            if self.count.load(Ordering::Acquire) == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn set_waiter(&self, waker: Option<Waker>) -> Option<Waker> {
        let mut waiter = self.waiter.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut waiter, waker)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // All that the task has dropped is seen by whoever waits.
        if self.tasks.count.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(waker) = self.tasks.set_waiter(None)
        {
            waker.wake();
        }
    }
}
