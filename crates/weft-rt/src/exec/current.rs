//! What the thread is polling right now.
//!
//! A coroutine that only wants to let others run (a prefetch, a yield) says so through a flag that
//! its poller looks at, instead of waking itself through atomics: that is the difference between
//! about 2 and about 10 nanoseconds a switch.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, RawWakerVTable, Waker};

use super::worker::WorkerContext;

/// What tells one waker from another. The data alone does not: other executors' may be null.
type Identity = (*const (), *const RawWakerVTable);

#[inline]
fn identity(waker: &Waker) -> Identity {
    (waker.data(), waker.vtable())
}

struct Polling {
    /// The waker of the coroutine being polled by one of our pollers.
    waker: Cell<Option<Identity>>,
    /// That coroutine returns `Pending`, but wants to be polled again in the next round.
    stays: Cell<bool>,
}

thread_local! {
    static POLLING: Polling =
        const { Polling { waker: Cell::new(None), stays: Cell::new(false) } };
    static WORKER: Cell<Option<Rc<WorkerContext>>> = const { Cell::new(None) };
}

/// What a poll left behind.
pub(crate) enum Polled<T> {
    /// It returned a value.
    Ready(T),
    /// It waits for a wake-up.
    Parked,
    /// It wants to be polled again in the next round.
    Runnable,
}

/// Polls one coroutine and notices if it stays runnable.
#[inline]
pub(crate) fn poll_coroutine<F: Future + ?Sized>(
    future: Pin<&mut F>,
    context: &mut Context<'_>,
) -> Polled<F::Output> {
    POLLING.with(|polling| {
        let outer = polling.waker.replace(Some(identity(context.waker())));
        let outer_stays = polling.stays.replace(false);
        // Restores the outer coroutine's state even if the inner one panics.
        let restore = Restore { polling, outer, outer_stays };
        let result = future.poll(context);
        let stays = polling.stays.get();
        drop(restore);
        match result {
            Poll::Ready(value) => Polled::Ready(value),
            Poll::Pending if stays => Polled::Runnable,
            Poll::Pending => Polled::Parked,
        }
    })
}

struct Restore<'a> {
    polling: &'a Polling,
    outer: Option<Identity>,
    outer_stays: bool,
}

impl Drop for Restore<'_> {
    #[inline]
    fn drop(&mut self) {
        self.polling.waker.set(self.outer);
        self.polling.stays.set(self.outer_stays);
    }
}

/// Makes sure that the coroutine that is about to return `Pending` is polled again in the next
/// round: by a flag if one of our pollers polls it directly, else by its waker.
#[inline]
pub(crate) fn stay_runnable(context: &Context<'_>) {
    POLLING.with(|polling| {
        if polling.waker.get() == Some(identity(context.waker())) {
            polling.stays.set(true);
        } else {
            context.waker().wake_by_ref();
        }
    });
}

/// Makes this thread a worker's, or nobody's again.
pub(crate) fn set_worker(worker: Option<Rc<WorkerContext>>) {
    WORKER.with(|current| current.set(worker));
}

/// Calls `f` with the worker that this thread belongs to.
///
/// # Panics
/// If the thread is no worker: only coroutines that run on a worker may wait for devices or timers.
pub(crate) fn with_worker<T>(f: impl FnOnce(&WorkerContext) -> T) -> T {
    match try_worker() {
        Some(worker) => f(&worker),
        None => panic!("this future does I/O or sleeps, so it must run on a Weft worker"),
    }
}

/// The worker that this thread belongs to.
pub(crate) fn try_worker() -> Option<Rc<WorkerContext>> {
    let worker = WORKER.try_with(|current| {
        let worker = current.take();
        let clone = worker.clone();
        current.set(worker);
        clone
    });
    worker.unwrap_or(None)
}

/// True if this thread is the worker with this id.
pub(crate) fn is_worker(id: u64) -> bool {
    // A thread that is ending may still wake somebody.
    let same = WORKER.try_with(|current| {
        let worker = current.take();
        let same = worker.as_ref().is_some_and(|worker| worker.id() == id);
        current.set(worker);
        same
    });
    same.unwrap_or(false)
}
