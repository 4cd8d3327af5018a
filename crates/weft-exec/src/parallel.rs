//! What the workers do together: tasks of a query, and the parallel phases of its operators.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use weft_rt::MorselQueue;
use weft_rt::cancel::CancelToken;

use crate::error::{ExecError, Result};
use crate::pace::Pace;
use crate::profile::measured;
use crate::query::Context;
use crate::tasks::{Counted, QueryTask};

impl Context {
    /// Runs a task of the query on some worker; `make` is called there.
    pub fn spawn<M, F>(&self, make: M) -> QueryTask<F::Output>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let worker = self.runtime.next_of(self.workers);
        self.spawn_on(worker, make)
    }

    /// Runs a task of the query on a worker; `make` is called there.
    pub fn spawn_on<M, F>(&self, worker: usize, make: M) -> QueryTask<F::Output>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        QueryTask::new(self.runtime.spawn_in(Some(self.share), worker, self.counted(make)))
    }

    /// Runs what cannot go from worker to worker on one of them; `make` is called there. Cancellation drops it where it
    /// waits.
    ///
    /// # Errors
    /// Those of `make`; [`ExecError::Cancelled`]; [`ExecError::Join`] for a panic.
    pub async fn on_a_worker<M, F, T>(&self, make: M) -> Result<T>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<T>> + 'static,
        T: Send + 'static,
    {
        let cancel = self.cancel.clone();
        self.spawn(move || async move { unless_cancelled(make(), &cancel).await }).await?
    }

    /// The query ends no sooner than this task, and what it gives.
    fn counted<M, F>(
        &self,
        make: M,
    ) -> impl FnOnce() -> BoxLocal<(F::Output, Counted)> + Send + use<M, F>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
    {
        let (counted, measuring) = (self.tasks.count(), self.measuring.clone());
        move || {
            let future = make();
            Box::pin(async move {
                let counted = counted;
                (measured(measuring, future).await, counted)
            })
        }
    }

    /// Runs `work` on each worker that the query has, to which it is told the worker's number, and gives what they give in the order of
    /// the workers. The first failure, a panic, or the query's cancellation drops the others' futures where they wait.
    ///
    /// # Errors
    /// The first of `work`; [`ExecError::Cancelled`]; [`ExecError::Join`] for a panic.
    pub async fn on_all_workers<W, F, T>(&self, work: W) -> Result<Vec<T>>
    where
        W: Fn(usize) -> F + Send + Sync + 'static,
        F: Future<Output = Result<T>> + 'static,
        T: Send + 'static,
    {
        let cancel = self.cancel.child();
        // If this future is dropped, nobody is interested in what the workers do.
        let unless_dropped = CancelRest::new(&cancel);
        let work = Arc::new(work);
        let start = |worker| {
            let (work, cancel) = (work.clone(), cancel.clone());
            self.spawn_on(worker, move || async move {
                let rest = CancelRest::new(&cancel);
                let output = unless_cancelled(work(worker), &cancel).await?;
                rest.disarm();
                Ok(output)
            })
        };
        let tasks: Vec<QueryTask<Result<T>>> = (0..self.workers).map(start).collect();
        let mut outputs = Vec::with_capacity(tasks.len());
        let mut error = None;
        for task in tasks {
            match task.await.map_err(ExecError::Join).flatten() {
                Ok(output) => outputs.push(output),
                // The others were cancelled because of the failure: the failure is the news.
                Err(news) if matches!(error, None | Some(ExecError::Cancelled)) => {
                    error = Some(news);
                }
                Err(_) => {}
            }
        }
        unless_dropped.disarm();
        error.map_or(Ok(outputs), Err)
    }

    /// Runs `work` for each of `0..morsels` on all workers, one at a time on each; it is told the worker's number and
    /// the morsel's. For the phases of an operator between its two pipelines. Others are served between morsels, so a
    /// morsel takes well below a millisecond or yields by itself.
    ///
    /// # Errors
    /// As [`Context::on_all_workers`].
    pub async fn run_morsels<W, F>(&self, morsels: usize, work: W) -> Result<()>
    where
        W: Fn(usize, usize) -> F + Send + Sync + 'static,
        F: Future<Output = Result<()>> + 'static,
    {
        let shared = Arc::new((MorselQueue::new(morsels as u64, 1), work));
        self.on_all_workers(move |worker| {
            let shared = shared.clone();
            async move {
                let (queue, work) = &*shared;
                let mut pace = Pace::default();
                while let Some(morsel) = queue.next() {
                    work(worker, morsel.start as usize).await?;
                    pace.keep().await;
                }
                Ok(())
            }
        })
        .await?;
        Ok(())
    }
}

type BoxLocal<T> = std::pin::Pin<Box<dyn Future<Output = T>>>;

/// Cancels what is left when it is dropped, by a failure or a panic.
#[derive(Debug)]
pub(crate) struct CancelRest(Option<CancelToken>);

impl CancelRest {
    pub(crate) fn new(cancel: &CancelToken) -> CancelRest {
        CancelRest(Some(cancel.clone()))
    }

    pub(crate) fn cancel(&self) {
        if let Some(cancel) = &self.0 {
            cancel.cancel();
        }
    }

    pub(crate) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelRest {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// Runs `future` to its end, or drops it when `cancel` is set.
///
/// # Errors
/// Those of the future; [`ExecError::Cancelled`]
pub(crate) async fn unless_cancelled<T>(
    future: impl Future<Output = Result<T>>,
    cancel: &CancelToken,
) -> Result<T> {
    let mut future = pin!(future);
    let mut cancelled = pin!(cancel.cancelled());
    let mut is_armed = false;
    poll_fn(|context| {
        // One poll leaves the waker with the token; after that the flag is enough.
        let is_cancelled = if is_armed {
            cancel.is_cancelled()
        } else {
            is_armed = true;
            cancelled.as_mut().poll(context).is_ready()
        };
        if is_cancelled {
            return Poll::Ready(Err(ExecError::Cancelled));
        }
        future.as_mut().poll(context)
    })
    .await
}
