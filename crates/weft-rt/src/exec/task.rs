//! Tasks: what is spawned onto workers, and how their results come back.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::sync::oneshot;

/// Why a task has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// It panicked.
    #[error("a task panicked: {0}")]
    Panicked(String),
    /// The runtime was shut down before it ended.
    #[error("the runtime was shut down before the task ended")]
    Shutdown,
}

/// The result of a task, to be awaited anywhere or waited for by a thread outside the runtime.
/// Dropping it lets the task go on.
#[must_use = "a task's result, errors included, is only seen here"]
pub struct JoinHandle<T> {
    receiver: oneshot::Receiver<Result<T, JoinError>>,
}

impl<T> JoinHandle<T> {
    /// Blocks this thread, which must be no worker, until the task has ended.
    ///
    /// # Errors
    /// [`JoinError`] if it panicked or the runtime was shut down.
    ///
    /// # Panics
    /// On a worker, which would wait for itself.
    pub fn wait(self) -> Result<T, JoinError> {
        assert!(super::current::try_worker().is_none(), "a worker must not block");
        self.receiver.blocking_recv().unwrap_or(Err(JoinError::Shutdown))
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.receiver)
            .poll(context)
            .map(|result| result.unwrap_or(Err(JoinError::Shutdown)))
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinHandle")
    }
}

/// A task as workers keep it.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Boxes a future as a task that sends its result or panic to the handle.
pub(crate) fn task<F>(future: F, sender: oneshot::Sender<Result<F::Output, JoinError>>) -> Task
where
    F: Future + 'static,
    F::Output: 'static,
{
    Box::pin(async move {
        let result = Caught { future: Box::pin(future) }.await;
        // Nobody may be interested any more.
        sender.send(result).ok();
    })
}

/// A channel for a task's result.
pub(crate) fn join_channel<T>() -> (oneshot::Sender<Result<T, JoinError>>, JoinHandle<T>) {
    let (sender, receiver) = oneshot::channel();
    (sender, JoinHandle { receiver })
}

struct Caught<F> {
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Caught<F> {
    type Output = Result<F::Output, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // A task that panicked is never polled again, so nobody sees its broken state.
        let result = catch_unwind(AssertUnwindSafe(|| self.future.as_mut().poll(context)));
        match result {
            Ok(poll) => poll.map(Ok),
            Err(payload) => Poll::Ready(Err(JoinError::Panicked(message(payload.as_ref())))),
        }
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "unknown panic".to_owned())
}
