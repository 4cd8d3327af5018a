//! Morsel-driven parallelism with a coroutine per morsel.
//!
//! A pipeline hands out morsels; each worker runs up to `depth` morsel coroutines and starts the
//! next one as soon as one ends, so that the devices' queues never drain at a morsel's or batch's
//! end (Spilly, section 5.2: weakened morsel boundaries). With [`Boundary::Hard`] a worker takes
//! `depth` morsels at once and waits for all of them, as the ADMS paper does (section 3.1).

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use super::batch::{Batch, Boundary};
use super::runtime::Runtime;
use super::task::{JoinError, JoinHandle};
use crate::cancel::CancelToken;
use crate::progress::Progress;

/// How a pipeline's morsels are run.
#[derive(Clone, Debug)]
pub struct MorselOptions {
    /// Morsel coroutines that each worker keeps going.
    pub depth: usize,
    /// When a worker starts the next morsel.
    pub boundary: Boundary,
    /// Ends the run early; looked at between morsels and whenever a worker has polled a few
    /// coroutines.
    pub cancel: CancelToken,
    /// Counts a unit for each morsel that has ended.
    pub progress: Arc<Progress>,
}

impl MorselOptions {
    /// Weak boundaries, nobody to cancel it.
    pub fn new(depth: usize) -> MorselOptions {
        MorselOptions {
            depth,
            boundary: Boundary::Weak,
            cancel: CancelToken::new(),
            progress: Arc::new(Progress::new()),
        }
    }
}

/// Why a pipeline did not run to its end.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MorselError<E> {
    /// A morsel failed.
    #[error(transparent)]
    Failed(#[from] E),
    /// It was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// A worker's task panicked or was shut down.
    #[error("{0}")]
    Join(JoinError),
}

/// The central work queue of a scan: hands out ranges of `0..len`.
#[derive(Debug)]
pub struct MorselQueue {
    next: AtomicU64,
    len: u64,
    size: u64,
}

impl MorselQueue {
    /// A queue of the morsels of `size` units of `0..len`.
    ///
    /// # Panics
    /// If `size` is 0.
    pub fn new(len: u64, size: u64) -> MorselQueue {
        assert!(size > 0, "a morsel has at least one unit");
        MorselQueue { next: AtomicU64::new(0), len, size }
    }

    /// The next morsel; `None` when all have been handed out.
    pub fn next(&self) -> Option<Range<u64>> {
        // Never beyond `len`, where the counter could wrap around and begin again.
        let end = |start: u64| start.saturating_add(self.size).min(self.len);
        let advance = |start| (start < self.len).then(|| end(start));
        let taken = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance);
        taken.ok().map(|start| start..end(start))
    }

    /// Number of morsels that have not been handed out.
    pub fn left(&self) -> u64 {
        self.len.saturating_sub(self.next.load(Ordering::Relaxed)).div_ceil(self.size)
    }

    /// How many morsels each of `workers` may have at once, so that the last ones are not all with whoever came first: its share of
    /// what is left (guided self-scheduling; Polychronopoulos, Kuck, 1987), and two at least, so that one is read while
    /// the other is worked on.
    pub fn share(&self, workers: usize) -> usize {
        if workers == 1 {
            return usize::MAX;
        }
        usize::try_from(self.left() / workers as u64).unwrap_or(usize::MAX).max(2)
    }

    /// Number of morsels in all.
    pub fn morsels(&self) -> u64 {
        self.len.div_ceil(self.size)
    }
}

/// A pipeline that is being run.
#[must_use = "the results, errors included, are only seen here"]
pub struct MorselRun<L, E> {
    handles: Vec<JoinHandle<Result<L, MorselError<E>>>>,
}

impl<L, E> MorselRun<L, E> {
    /// Waits for all workers, and gives their local states in the order of the workers. Blocks this
    /// thread, which must be no worker.
    ///
    /// # Errors
    /// The first morsel's error, if one failed; else [`MorselError::Cancelled`] or
    /// [`MorselError::Join`].
    pub fn wait(self) -> Result<Vec<L>, MorselError<E>> {
        gather(self.handles.into_iter().map(JoinHandle::wait))
    }

    /// As [`MorselRun::wait`], for coroutines.
    ///
    /// # Errors
    /// As [`MorselRun::wait`].
    pub async fn join(self) -> Result<Vec<L>, MorselError<E>> {
        let mut results = Vec::with_capacity(self.handles.len());
        for handle in self.handles {
            results.push(handle.await);
        }
        gather(results.into_iter())
    }
}

type WorkerResult<L, E> = Result<Result<L, MorselError<E>>, JoinError>;

fn gather<L, E>(
    results: impl Iterator<Item = WorkerResult<L, E>>,
) -> Result<Vec<L>, MorselError<E>> {
    let mut locals = Vec::new();
    let mut error: Option<MorselError<E>> = None;
    for result in results {
        match result.map_err(MorselError::Join).flatten() {
            Ok(local) => locals.push(local),
            // The other workers were cancelled because of the failure: the failure is the news.
            Err(MorselError::Cancelled) if error.is_some() => {}
            Err(news) => {
                if matches!(error, None | Some(MorselError::Cancelled)) {
                    error = Some(news);
                }
            }
        }
    }
    error.map_or(Ok(locals), Err)
}

impl Runtime {
    /// Runs a pipeline on all workers: `source` hands out morsels (it is told the worker's number),
    /// `local` makes each worker's own state, `body` makes the coroutine of a morsel.
    ///
    /// The first failure or panic cancels the rest. Coroutines are dropped where they are suspended, which
    /// is safe at every wait of this crate.
    pub fn run_morsels<M, L, E, S, I, B, F>(
        &self,
        options: &MorselOptions,
        source: S,
        local: I,
        body: B,
    ) -> MorselRun<L, E>
    where
        S: Fn(usize) -> Option<M> + Send + Sync + 'static,
        I: Fn(usize) -> L + Send + Sync + 'static,
        B: Fn(Rc<L>, M) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + 'static,
        L: Send + 'static,
        E: Send + 'static,
    {
        let pipeline = Arc::new((source, local, body));
        let cancel = options.cancel.child();
        let handles = (0..self.workers())
            .map(|worker| {
                let pipeline = pipeline.clone();
                let options = MorselOptions { cancel: cancel.clone(), ..options.clone() };
                self.spawn_on(worker, move || async move {
                    let (source, local, body) = &*pipeline;
                    let local = Rc::new(local(worker));
                    let MorselOptions { depth, boundary, cancel, progress } = options;
                    let rest = CancelRest(Some(cancel.clone()));
                    let batch = Batch::new(depth, boundary, || {
                        if cancel.is_cancelled() {
                            return None;
                        }
                        Some(counted(body(local.clone(), source(worker)?), &progress))
                    });
                    unless_cancelled(batch, &cancel).await?;
                    rest.disarm();
                    Ok(Rc::into_inner(local).expect("all coroutines have ended"))
                })
            })
            .collect();
        MorselRun { handles }
    }
}

/// Cancels the other workers' morsels when this worker's fail, panic or are dropped.
struct CancelRest(Option<CancelToken>);

impl CancelRest {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelRest {
    fn drop(&mut self) {
        if let Some(cancel) = &self.0 {
            cancel.cancel();
        }
    }
}

async fn counted<E>(
    morsel: impl Future<Output = Result<(), E>>,
    progress: &Progress,
) -> Result<(), E> {
    morsel.await?;
    progress.add_done(1);
    Ok(())
}

/// Runs `future` to its end, or drops it when `cancel` is set.
async fn unless_cancelled<E>(
    future: impl Future<Output = Result<(), E>>,
    cancel: &CancelToken,
) -> Result<(), MorselError<E>> {
    let mut future = pin!(future);
    let mut cancelled = pin!(cancel.cancelled());
    let mut armed = false;
    poll_fn(|context| {
        // One poll leaves the waker with the token; after that the flag is enough.
        let is_cancelled = if armed {
            cancel.is_cancelled()
        } else {
            armed = true;
            cancelled.as_mut().poll(context).is_ready()
        };
        if is_cancelled {
            return Poll::Ready(Err(MorselError::Cancelled));
        }
        future.as_mut().poll(context).map_err(MorselError::Failed)
    })
    .await?;
    // Morsels that were not handed out because of the cancellation are missing.
    if cancel.is_cancelled() { Err(MorselError::Cancelled) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::exec::runtime::RuntimeOptions;
    use crate::{sleep, yield_now};

    fn runtime(workers: usize) -> Runtime {
        Runtime::new(&RuntimeOptions { workers, ..RuntimeOptions::default() }).unwrap()
    }

    fn sum(boundary: Boundary, workers: usize, depth: usize, len: u64, size: u64) -> u64 {
        let queue = MorselQueue::new(len, size);
        let options = MorselOptions { boundary, ..MorselOptions::new(depth) };
        let runtime = runtime(workers);
        let run = runtime.run_morsels(
            &options,
            move |_| queue.next(),
            |_| Cell::new(0),
            |sum, morsel| async move {
                for unit in morsel {
                    if unit % 3 == 0 {
                        yield_now().await;
                    }
                    sum.set(sum.get() + unit);
                }
                Ok::<(), ()>(())
            },
        );
        let total = run.wait().unwrap().iter().map(Cell::get).sum();
        assert_eq!(options.progress.snapshot().units_done, len.div_ceil(size));
        total
    }

    #[test]
    fn every_unit_is_processed_once() {
        for boundary in [Boundary::Weak, Boundary::Hard] {
            for (workers, depth, len, size) in
                [(1, 1, 0, 1), (1, 1, 10, 3), (2, 64, 1000, 7), (3, 100, 5, 1), (2, 4096, 9999, 1)]
            {
                let expected = (0..len).sum::<u64>();
                assert_eq!(sum(boundary, workers, depth, len, size), expected, "{len} by {size}");
            }
        }
    }

    #[test]
    fn the_first_failure_ends_the_run() {
        let queue = MorselQueue::new(u64::MAX, 1);
        let runtime = runtime(2);
        let run = runtime.run_morsels(
            &MorselOptions::new(8),
            move |_| queue.next(),
            |_| (),
            |_, morsel| async move {
                yield_now().await;
                if morsel.start == 1000 { Err("unit 1000") } else { Ok(()) }
            },
        );
        assert_eq!(run.wait(), Err(MorselError::Failed("unit 1000")));
    }

    #[test]
    fn cancellation_reaches_sleeping_and_busy_coroutines() {
        for busy in [false, true] {
            let options = MorselOptions::new(4);
            let runtime = runtime(2);
            let run = runtime.run_morsels(
                &options,
                |_| Some(()),
                |_| (),
                move |_, ()| async move {
                    loop {
                        if busy {
                            yield_now().await;
                        } else {
                            sleep(Duration::from_secs(3600)).await;
                        }
                    }
                    #[expect(unreachable_code, reason = "gives the coroutine its type")]
                    Ok::<(), ()>(())
                },
            );
            std::thread::sleep(Duration::from_millis(20));
            let start = Instant::now();
            options.cancel.cancel();
            assert_eq!(run.wait(), Err(MorselError::Cancelled));
            assert!(start.elapsed() < Duration::from_secs(5), "cancellation was not noticed");
        }
    }

    #[test]
    fn a_panic_becomes_an_error() {
        let queue = MorselQueue::new(10, 1);
        let runtime = runtime(1);
        let run = runtime.run_morsels(
            &MorselOptions::new(2),
            move |_| queue.next(),
            |_| (),
            |_, morsel| async move {
                assert!(morsel.start != 5, "unit five");
                Ok::<(), ()>(())
            },
        );
        let error = run.wait().unwrap_err();
        assert_eq!(error, MorselError::Join(JoinError::Panicked("unit five".into())));
        assert_eq!(runtime.block_on(|| async { 7 }), Ok(7), "the worker goes on");
    }
}
