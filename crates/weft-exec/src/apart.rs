//! What is not ours cannot be broken off. Where it will take long it runs on a thread of its own, and the coroutine waits for it
//! as for a device: the worker serves others meanwhile.
//!
//! A thread is made for each such piece of work: some ten microseconds, for what takes a millisecond or more.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use weft_rt::background;
use weft_rt::sync::oneshot;
use weft_store::spill::thread_time;

use crate::pace::TURN;
use crate::profile::{Wait, note_apart, waiting};

/// Bytes of what takes long: by far more than a vector of usual values has.
pub(crate) const LONG_BYTES: usize = 128 << 10;

/// What a worker has time for.
const LONG: Duration = TURN.saturating_mul(2);
/// More rows than these may take that long as far as anybody knows, and calls tell of those for so many times as many rows.
const UNKNOWN_ROWS: usize = 1024;
const TOLD_OF: usize = 8;

/// Threads for each processor, at most: those whose work nobody waits for any more are among them.
const THREADS_MAX: usize = 4;

/// Threads that there are.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// One of the threads, as long as it runs.
struct Place;

impl Place {
    /// Another one, if there may be more.
    fn take() -> Option<Place> {
        static MOST: LazyLock<usize> =
            LazyLock::new(|| THREADS_MAX * thread::available_parallelism().map_or(1, usize::from));
        let place = Place;
        (THREADS.fetch_add(1, Ordering::Relaxed) < *MOST).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs `work` on a thread of its own, and here and now if there is none to be had. Dropped while it waits, it leaves the
/// work to end by itself, with all that it owns.
///
/// # Panics
/// If the work does.
pub(crate) async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let Some(place) = Place::take() else { return work() };
    let (sender, receiver) = oneshot::channel();
    let run = move || {
        let before = thread_time();
        let result = catch_unwind(AssertUnwindSafe(work));
        let cpu = thread_time().saturating_sub(before);
        drop(place);
        // Nobody may want it any more.
        drop(sender.send((result, cpu)));
    };
    // Taken by the thread, or by whoever fails to start one.
    let run = Arc::new(Mutex::new(Some(run)));
    let take = |run: &Mutex<Option<_>>| run.lock().unwrap_or_else(PoisonError::into_inner).take();
    let for_thread = run.clone();
    let on_thread = move || {
        if let Some(run) = take(&for_thread) {
            run();
        }
    };
    if let Err(error) = background::spawn("weft-apart", on_thread) {
        log::warn!("no thread for a long call, which holds up others now: {error}");
        if let Some(run) = take(&run) {
            run();
        }
    }
    drop(run);
    let (result, cpu): (thread::Result<T>, Duration) =
        waiting(Wait::Other, receiver).await.expect("work that has begun sends what it gives");
    note_apart(cpu);
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// How long calls have taken by the clock, from which it is guessed how long the next one will: one that was held up is forgotten
/// with that.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    /// By the last one, for how many rows.
    last: Option<(Duration, usize)>,
}

impl Taken {
    /// True if a call for so many rows had better run apart.
    pub(crate) fn is_long(self, rows: usize) -> bool {
        match self.last {
            Some((took, of_rows)) if rows <= TOLD_OF * of_rows => {
                took.mul_f64(rows as f64 / of_rows as f64) > LONG
            }
            _ => rows > UNKNOWN_ROWS,
        }
    }

    /// A call for so many rows has taken so long.
    pub(crate) fn note(&mut self, rows: usize, took: Duration) {
        self.last = Some((took, rows.max(1)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures::FutureExt;
    use futures::executor::block_on;

    use super::*;

    #[test]
    fn work_runs_on_another_thread() {
        let here = thread::current().id();
        let (there, value) = block_on(run(|| (thread::current().id(), 7)));
        assert_ne!(there, here);
        assert_eq!(value, 7);
    }

    #[test]
    fn a_panic_comes_to_whoever_waits() {
        let caught = catch_unwind(|| block_on(run(|| panic!("of the work"))));
        let panic = caught.expect_err("a panic");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"of the work"));
    }

    #[test]
    fn calls_are_guessed_by_the_last_one() {
        let mut taken = Taken::default();
        assert!(!taken.is_long(1) && taken.is_long(5_000), "nothing is known");
        taken.note(100, Duration::from_micros(200));
        assert!(!taken.is_long(200) && taken.is_long(300));
        // It tells nothing of those.
        taken.note(1, Duration::from_micros(20));
        assert!(!taken.is_long(1_000) && taken.is_long(2_000));
        taken.note(5_000, Duration::from_micros(100));
        assert!(!taken.is_long(5_000) && taken.is_long(30_000));
    }

    #[test]
    fn whoever_goes_leaves_the_work_to_end() {
        let (begin, begins) = mpsc::channel::<()>();
        let (end, ended) = mpsc::channel();
        let work = run(move || {
            begins.recv().expect("somebody lets it begin");
            end.send(()).expect("somebody waits");
        });
        assert!(work.now_or_never().is_none(), "it has not ended");
        begin.send(()).expect("it waits");
        ended.recv().expect("it ends");
    }
}
