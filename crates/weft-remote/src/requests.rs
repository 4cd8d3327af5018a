//! Carries requests out: on threads of their own, which are started by the first request, so that what waits for one is a
//! coroutine of a worker, a task of another runtime, or a thread that blocks.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, mpsc};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use weft_rt::background;
use weft_rt::cancel::CancelToken;

use crate::error::{Failure, RemoteError, Result};

/// Threads that carry requests out: they wait, decrypt and copy.
const THREADS: usize = 2;

/// Requests that are under way at once, of one database: more than stores need for all of a machine's bandwidth.
const REQUESTS_MAX: usize = 128;

/// How long the end of the threads may take: the requests that are under way are given up.
const END_MAX: Duration = Duration::from_secs(5);

/// How requests are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestOptions {
    /// How often a request that failed is made again.
    pub retries: usize,
    /// How long an answer, or its next bytes, may take.
    pub timeout: Duration,
}

impl Default for RequestOptions {
    fn default() -> RequestOptions {
        RequestOptions { retries: 3, timeout: Duration::from_secs(30) }
    }
}

impl RequestOptions {
    /// How long to wait before the retry of this number, from 0 on.
    pub(crate) fn pause(retry: usize) -> Duration {
        Duration::from_millis(100 << retry.min(6))
    }
}

/// The threads that carry requests out, and how.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    options: RwLock<RequestOptions>,
    runtime: Mutex<Option<Threads>>,
    permits: Permits,
    made: AtomicU64,
}

#[derive(Debug)]
struct Permits(Arc<Semaphore>);

impl Default for Permits {
    fn default() -> Permits {
        Permits(Arc::new(Semaphore::new(REQUESTS_MAX)))
    }
}

/// A runtime whose end is awaited on a thread of its own: the last reference may go on one of its threads.
#[derive(Debug)]
struct Threads {
    runtime: Option<Runtime>,
    handle: Handle,
    /// The process that has the threads: one that was forked from it has none of them.
    process: u32,
}

impl Drop for Threads {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        // Without a thread to wait on, those of the runtime stay.
        let runtime = ManuallyDrop::new(runtime);
        if self.process != std::process::id() {
            return;
        }
        let end = move || ManuallyDrop::into_inner(runtime).shutdown_timeout(END_MAX);
        if let Err(error) = background::spawn("weft-remote-end", end) {
            log::warn!("no thread to wait for the end of requests: {error}");
        }
    }
}

impl Requests {
    /// How requests are made from now on.
    pub(crate) fn set_options(&self, options: RequestOptions) {
        *self.options.write().unwrap_or_else(PoisonError::into_inner) = options;
    }

    /// How requests are made.
    pub(crate) fn options(&self) -> RequestOptions {
        *self.options.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests that were made.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// The threads, started if they are not there.
    fn handle(&self, name: &str) -> Result<Handle> {
        let mut runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(threads) = runtime.as_ref().filter(|found| found.process == std::process::id())
        {
            return Ok(threads.handle.clone());
        }
        let made = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(4)
            .thread_name("weft-remote")
            .enable_all()
            .build();
        let made = made.map_err(|error| {
            let problem = format!("no threads for requests: {error}");
            RemoteError::new(name, Failure::System, problem)
        })?;
        let handle = made.handle().clone();
        let process = std::process::id();
        *runtime = Some(Threads { runtime: Some(made), handle: handle.clone(), process });
        Ok(handle)
    }

    /// Carries out `work` about the file that messages call `name`, until the token is cancelled. To be awaited anywhere; dropped, it
    /// ends the work.
    ///
    /// # Errors
    /// Those of `work`, and [`Failure::Cancelled`].
    pub(crate) fn run<T, W>(
        &self,
        name: &str,
        token: Option<&CancelToken>,
        work: W,
    ) -> impl Future<Output = Result<T>> + Send + 'static + use<T, W>
    where
        T: Send + 'static,
        W: Future<Output = Result<T>> + Send + 'static,
    {
        let name = name.to_owned();
        let work = cancellable(name.clone(), token.cloned(), work);
        let task = self.handle(&name).map(|handle| Task(handle.spawn(work)));
        async move {
            match task?.await {
                Ok(result) => result,
                Err(error) => Err(RemoteError::new(&name, Failure::System, error.to_string())),
            }
        }
    }

    /// The same for a thread that blocks: the result comes over a channel.
    ///
    /// # Errors
    /// If there are no threads to carry it out.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        name: &str,
        token: Option<&CancelToken>,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<Pending<T>> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let work = cancellable(name.to_owned(), token.cloned(), work);
        let task = self.handle(name)?.spawn(async move {
            // A receiver that does not want the result any more has gone.
            sender.send(work.await).ok();
        });
        Ok(Pending { name: name.to_owned(), receiver, _task: Task(task) })
    }

    /// Carries out work that no task waits for.
    ///
    /// # Errors
    /// If there are no threads to carry it out.
    pub(crate) fn detach(
        &self,
        name: &str,
        work: impl Future<Output = Result<()>> + Send + 'static,
    ) -> Result<()> {
        drop(self.handle(name)?.spawn(work));
        Ok(())
    }

    /// Waits for the turn of a request.
    pub(crate) async fn permit(&self) -> Option<tokio::sync::OwnedSemaphorePermit> {
        self.made.fetch_add(1, Ordering::Relaxed);
        // The semaphore is never closed.
        Arc::clone(&self.permits.0).acquire_owned().await.ok()
    }
}

async fn cancellable<T>(
    name: String,
    token: Option<CancelToken>,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let Some(token) = token else { return work.await };
    tokio::select! {
        biased;
        () = token.cancelled() => Err(RemoteError::cancelled(&name)),
        result = work => result,
    }
}

/// A task that ends with the future that waits for it.
#[derive(Debug)]
struct Task<T>(JoinHandle<T>);

impl<T> Future for Task<T> {
    type Output = Result<T, tokio::task::JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(context)))
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A result that a thread will wait for.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    name: String,
    receiver: mpsc::Receiver<Result<T>>,
    _task: Task<()>,
}

impl<T> Pending<T> {
    /// Blocks until the result is there.
    ///
    /// # Errors
    /// Those of the work.
    pub(crate) fn wait(self) -> Result<T> {
        self.receiver.recv().unwrap_or_else(|_| Err(RemoteError::cancelled(&self.name)))
    }
}
