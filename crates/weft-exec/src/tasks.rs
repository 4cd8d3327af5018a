//! The tasks of a query, counted, so that it ends when all have ended.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use weft_rt::cancel::CancelToken;
use weft_rt::{JoinError, JoinHandle, spawn_local};

use crate::error::{ExecError, Result};
use crate::parallel::{CancelRest, unless_cancelled};
use crate::profile::{Measuring, measured};

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

/// The result of a task of a query, to be awaited or waited for by a thread outside the runtime. Dropping it lets the task go on.
/// The query does not end before the result, with the memory that it may hold, was taken or dropped.
#[derive(Debug)]
#[must_use = "a task's result, errors included, is only seen here"]
pub struct QueryTask<T> {
    handle: JoinHandle<(T, Counted)>,
}

impl<T> QueryTask<T> {
    pub(crate) fn new(handle: JoinHandle<(T, Counted)>) -> QueryTask<T> {
        QueryTask { handle }
    }

    /// Blocks this thread, which must be no worker, until the task has ended.
    ///
    /// # Errors
    /// [`JoinError`] if it panicked or the runtime was shut down.
    ///
    /// # Panics
    /// On a worker, which would wait for itself.
    pub fn wait(self) -> std::result::Result<T, JoinError> {
        self.handle.wait().map(|(output, _)| output)
    }
}

impl<T> Future for QueryTask<T> {
    type Output = std::result::Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.handle).poll(context).map_ok(|(output, _)| output)
    }
}

/// A task that does what will be wanted soon. It ends where it waits when this is dropped.
#[derive(Debug)]
pub(crate) struct Ahead<T> {
    task: QueryTask<Result<T>>,
    _rest: CancelRest,
}

impl<T> Ahead<T> {
    /// What it gives.
    ///
    /// # Errors
    /// Those of its future; [`ExecError::Join`] for a panic.
    pub(crate) async fn result(self) -> Result<T> {
        self.task.await.map_err(ExecError::Join).flatten()
    }
}

impl Tasks {
    /// Starts a task on this worker whose result will be wanted soon, unless what this gives is dropped.
    ///
    /// # Panics
    /// Outside of a worker.
    pub(crate) fn spawn_ahead<F, T>(
        self: &Arc<Self>,
        measuring: Option<Measuring>,
        future: F,
    ) -> Ahead<T>
    where
        F: Future<Output = Result<T>> + 'static,
        T: 'static,
    {
        let cancel = CancelToken::new();
        let _rest = CancelRest::new(&cancel);
        let until_dropped = async move { unless_cancelled(future, &cancel).await };
        Ahead { task: self.spawn_local(measuring, until_dropped), _rest }
    }

    /// Starts a task on this worker, which is measured if somebody wants to know.
    ///
    /// # Panics
    /// Outside of a worker.
    pub(crate) fn spawn_local<F>(
        self: &Arc<Self>,
        measuring: Option<Measuring>,
        future: F,
    ) -> QueryTask<F::Output>
    where
        F: Future + 'static,
    {
        let counted = self.count();
        QueryTask::new(spawn_local(async move {
            let counted = counted;
            (measured(measuring, future).await, counted)
        }))
    }

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

#[cfg(test)]
mod tests {
    use weft_rt::{Runtime, RuntimeOptions, yield_now};

    use super::*;

    /// What a task gives, which sees how many tasks there are when it is dropped.
    struct Given {
        tasks: Arc<Tasks>,
        seen: Arc<AtomicUsize>,
    }

    impl Drop for Given {
        fn drop(&mut self) {
            self.seen.store(self.tasks.count.load(Ordering::SeqCst), Ordering::SeqCst);
        }
    }

    #[test]
    fn tasks_end_after_what_nobody_takes_is_dropped() {
        let options = RuntimeOptions { workers: 1, ..RuntimeOptions::default() };
        let runtime = Runtime::new(&options).unwrap();
        let work = || async {
            let (tasks, seen) = (Arc::<Tasks>::default(), Arc::new(AtomicUsize::new(0)));
            let given = Given { tasks: tasks.clone(), seen: seen.clone() };
            let task = tasks.spawn_local(None, async move {
                yield_now().await;
                given
            });
            drop(task);
            tasks.all_ended().await;
            assert_eq!(seen.load(Ordering::SeqCst), 1);
            // What is taken counts no more.
            let given = Given { tasks: tasks.clone(), seen: seen.clone() };
            let taken = tasks.spawn_local(None, async move { given }).await.unwrap();
            tasks.all_ended().await;
            drop(taken);
            assert_eq!(seen.load(Ordering::SeqCst), 0);
            // What nobody will want is not waited for.
            let ahead = tasks.spawn_ahead(None, std::future::pending::<Result<()>>());
            yield_now().await;
            drop(ahead);
            tasks.all_ended().await;
            let ahead = tasks.spawn_ahead(None, async { Ok(7) });
            assert_eq!(ahead.result().await.unwrap(), 7);
        };
        runtime.spawn_on(0, work).wait().unwrap();
    }
}
