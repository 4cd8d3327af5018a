//! A worker, as others know it that are not on it.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};

use super::current::try_worker;
use super::task::{JoinHandle, join_channel, task};
use super::worker::WorkerShared;

/// A worker to send tasks to, from any thread, as long as it runs. Does not keep it running.
#[derive(Clone)]
pub struct WorkerRef {
    shared: Weak<WorkerShared>,
}

impl WorkerRef {
    /// The worker of this coroutine; `None` if this thread is no worker.
    pub fn current() -> Option<WorkerRef> {
        try_worker().map(|worker| WorkerRef { shared: Arc::downgrade(worker.shared()) })
    }

    /// False for good once the worker takes no more tasks.
    pub fn is_running(&self) -> bool {
        self.shared.upgrade().is_some_and(|shared| shared.is_running())
    }

    /// Runs a task on that worker, as [`Runtime::spawn_on`](super::runtime::Runtime::spawn_on); `None` if
    /// it has ended. If it ends meanwhile the handle says so.
    pub fn spawn<M, F>(&self, make: M) -> Option<JoinHandle<F::Output>>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let shared = self.shared.upgrade().filter(|shared| shared.is_running())?;
        let (sender, handle) = join_channel();
        let share = try_worker().and_then(|worker| worker.share());
        shared.send(share, Box::new(move || task(async move { make().await }, sender)));
        Some(handle)
    }
}

impl fmt::Debug for WorkerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerRef(running: {})", self.is_running())
    }
}
