//! The runtime: workers, of which there may come to be more, and what is asked of all of them.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Waker};
use std::thread;
use std::time::Instant;

use super::cores::{allowed_cores, pin_to};
use super::current::{Polled, try_worker, with_worker};
use super::share::Share;
use super::task::{JoinError, JoinHandle, join_channel, task};
use super::worker::{Worker, WorkerContext, WorkerShared, discard, poll_task};
use crate::io::arena::Arena;
use crate::io::bandwidth::{Bandwidth, Transfers};
use crate::io::blocking::BlockingDriver;
use crate::io::driver::{Driver, DriverKind};
use crate::io::posix::PosixDriver;
use crate::io::reactor::IoStats;
use crate::io::sim::driver::SimDriver;
use crate::io::uring::UringDriver;

/// I/O depth per worker where nothing else is said.
pub const IO_DEPTH_DEFAULT: usize = 128;

/// Largest I/O depth per worker.
pub const IO_DEPTH_MAX: usize = super::batch::BATCH_DEPTH_MAX;

/// Threads per worker of the `posix` driver, at most: further requests queue.
const POSIX_THREADS_MAX: usize = 64;

/// Why a runtime could not be started.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The system has no thread, ring or memory left, or refuses io_uring.
    #[error("cannot start worker {worker} with the {driver} driver: {source}")]
    Start {
        /// The worker's number.
        worker: usize,
        /// Name of the I/O driver.
        driver: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// An option is out of range.
    #[error("{option} is {value}, but must be between {min} and {max}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// The value given.
        value: usize,
        /// Smallest value.
        min: usize,
        /// Largest value.
        max: usize,
    },
}

/// How a runtime is set up.
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// Workers, a thread each.
    pub workers: usize,
    /// Bind each worker to a core of its own.
    pub pin: bool,
    /// How requests reach the devices.
    pub driver: DriverKind,
    /// Requests that each worker is expected to have in flight.
    pub io_depth: usize,
}

impl Default for RuntimeOptions {
    fn default() -> RuntimeOptions {
        RuntimeOptions {
            workers: thread::available_parallelism().map_or(1, usize::from),
            pin: false,
            driver: DriverKind::Auto,
            io_depth: IO_DEPTH_DEFAULT,
        }
    }
}

/// Most workers of a runtime.
const WORKERS_MAX: usize = 1024;

/// Workers, a thread each. Dropping it drops all tasks, waits for what the devices still have in
/// flight, and ends the threads.
pub struct Runtime {
    /// As many as have been started, and places for more.
    workers: Box<[OnceLock<WorkerHandle>]>,
    /// How many there are.
    started: AtomicUsize,
    /// Held while more are started.
    starting: Mutex<()>,
    options: RuntimeOptions,
    driver: DriverKind,
    next: AtomicUsize,
    bandwidth: Arc<Bandwidth>,
}

struct WorkerHandle {
    shared: Arc<WorkerShared>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

impl Runtime {
    /// Starts the workers.
    ///
    /// # Errors
    /// [`RuntimeError`] for options out of range, or where the system refuses a worker.
    pub fn new(options: &RuntimeOptions) -> Result<Runtime, RuntimeError> {
        check("io_depth", options.io_depth, 1, IO_DEPTH_MAX)?;
        let runtime = Runtime {
            workers: (0..WORKERS_MAX).map(|_| OnceLock::new()).collect(),
            started: AtomicUsize::new(0),
            starting: Mutex::default(),
            options: options.clone(),
            driver: resolve(&options.driver),
            next: AtomicUsize::new(0),
            bandwidth: Arc::default(),
        };
        check("workers", options.workers, 1, WORKERS_MAX)?;
        runtime.grow(options.workers)?;
        Ok(runtime)
    }

    /// Starts more workers, until there are so many; there are never fewer again. Blocks this thread until they run.
    ///
    /// # Errors
    /// [`RuntimeError`] for too many, or where the system refuses one: there are as many as before then.
    pub fn grow(&self, workers: usize) -> Result<(), RuntimeError> {
        check("workers", workers, 0, WORKERS_MAX)?;
        let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.workers();
        let cores = if self.options.pin { allowed_cores() } else { Vec::new() };
        let mut fresh = Vec::new();
        for index in before..workers {
            let core = (!cores.is_empty()).then(|| cores[index % cores.len()]);
            match self.start(index, core) {
                Ok(worker) => fresh.push(worker),
                Err(source) => {
                    fresh.into_iter().for_each(WorkerHandle::end);
                    let driver = self.driver.name();
                    return Err(RuntimeError::Start { worker: index, driver, source });
                }
            }
        }
        for (place, worker) in self.workers[before..].iter().zip(fresh) {
            assert!(place.set(worker).is_ok(), "one starts workers at a time");
        }
        self.started.store(before.max(workers), Ordering::Release);
        Ok(())
    }

    /// Starts a worker, and waits until it runs.
    fn start(&self, index: usize, core: Option<usize>) -> io::Result<WorkerHandle> {
        let shared = WorkerShared::new();
        let (kind, depth) = (self.driver.clone(), self.options.io_depth);
        let (for_thread, bandwidth) = (shared.clone(), self.bandwidth.clone());
        let (report, started) = mpsc::sync_channel(1);
        let run = move || {
            if let Some(core) = core {
                pin_to(core);
            }
            match make_driver(&kind, index, depth) {
                Ok(driver) => {
                    let worker = Worker::new(for_thread, index, driver, bandwidth);
                    report.send(Ok(())).expect("somebody waits for it");
                    worker.run();
                }
                Err(error) => report.send(Err(error)).expect("somebody waits for it"),
            }
        };
        let thread = thread::Builder::new().name(format!("weft-{index}")).spawn(run)?;
        started.recv().unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))?;
        Ok(WorkerHandle { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.started.load(Ordering::Acquire)
    }

    fn all(&self) -> impl Iterator<Item = &WorkerHandle> {
        self.workers[..self.workers()].iter().map(|worker| worker.get().expect("it was started"))
    }

    /// Name of the I/O driver in use: `uring`, `posix`, `blocking`, `sim` or `sim-blocking`.
    pub fn driver(&self) -> &'static str {
        self.driver.name()
    }

    /// Makes the devices slower than they are: all transfers together get so many bytes per second, from now on. `None`: as many as
    /// there are.
    ///
    /// # Panics
    /// If the limit is 0.
    pub fn limit_bandwidth(&self, bytes_per_s: Option<u64>) {
        self.bandwidth.set(bytes_per_s);
    }

    /// Runs a task on one worker, counted modulo their number. `make` is called there, so that the
    /// future itself need not be `Send`. It has the share of the task that calls this, if one does.
    pub fn spawn_on<M, F>(&self, worker: usize, make: M) -> JoinHandle<F::Output>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let share = try_worker().and_then(|worker| worker.share());
        self.spawn_in(share, worker, make)
    }

    /// As [`Runtime::spawn_on`], with a share or none.
    pub fn spawn_in<M, F>(
        &self,
        share: Option<Share>,
        worker: usize,
        make: M,
    ) -> JoinHandle<F::Output>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let (sender, handle) = join_channel();
        let worker = self.workers[worker % self.workers()].get().expect("it was started");
        worker.shared.send(share, Box::new(move || task(async move { make().await }, sender)));
        handle
    }

    /// Runs a task on some worker: the workers take turns.
    pub fn spawn<M, F>(&self, make: M) -> JoinHandle<F::Output>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_on(self.next_of(self.workers()), make)
    }

    /// One of the first `workers`: they take turns.
    pub fn next_of(&self, workers: usize) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed) % workers
    }

    /// Runs a task on some worker and blocks this thread, which must be no worker, until it ends.
    ///
    /// # Errors
    /// [`JoinError`] if it panicked.
    pub fn block_on<M, F>(&self, make: M) -> Result<F::Output, JoinError>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        self.spawn(make).wait()
    }

    /// Readies the buffers of an arena for faster transfers on every worker. Blocks this thread,
    /// which must be no worker. True if every driver could.
    pub fn register(&self, arena: &Arc<Arena>) -> bool {
        let handles: Vec<_> = (0..self.workers())
            .map(|worker| {
                let arena = arena.clone();
                self.spawn_on(worker, move || async move {
                    with_worker(|worker| worker.reactor().register(&arena))
                })
            })
            .collect();
        let mut all = true;
        for handle in handles {
            all &= handle.wait().unwrap_or(false);
        }
        all
    }

    /// What each worker has asked of its devices so far. Blocks this thread, which must be no
    /// worker.
    pub fn io_stats(&self) -> Vec<IoStats> {
        (0..self.workers())
            .filter_map(|worker| self.spawn_on(worker, || async { io_stats() }).wait().ok())
            .collect()
    }
}

impl WorkerHandle {
    /// Asks the worker to end, and waits until it has.
    fn end(self) {
        self.shared.shut_down();
        self.join();
    }

    fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        // A task may own the runtime that it runs on: its worker ends when the task has.
        let is_own = thread.thread().id() == thread::current().id();
        if !is_own && thread.join().is_err() {
            log::error!("a worker thread panicked");
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.all().for_each(|worker| worker.shared.shut_down());
        self.all().for_each(WorkerHandle::join);
    }
}

/// Number of the worker that this coroutine runs on.
///
/// # Panics
/// If this thread is no worker.
pub fn worker_index() -> usize {
    with_worker(|worker| worker.index())
}

/// Number of the worker that this coroutine runs on; `None` if this thread is no worker.
pub fn try_worker_index() -> Option<usize> {
    try_worker().map(|worker| worker.index())
}

/// What the worker of this coroutine has asked of its devices so far.
///
/// # Panics
/// If this thread is no worker.
pub fn io_stats() -> IoStats {
    with_worker(|worker| worker.reactor().stats())
}

/// What all workers of this coroutine's runtime have read and written so far.
///
/// # Panics
/// If this thread is no worker.
pub fn transfers() -> Transfers {
    with_worker(|worker| worker.bandwidth().transfers())
}

/// The time by the clock of the worker's driver.
///
/// # Panics
/// If this thread is no worker.
pub fn now() -> Instant {
    with_worker(|worker| worker.reactor().now())
}

/// When the worker of this coroutine woke, if it had slept for more than a moment and has not looked at its devices again since: what
/// has woken it had just happened.
///
/// # Panics
/// If this thread is no worker.
pub fn woke_at() -> Option<Instant> {
    with_worker(|worker| worker.reactor().woke_at())
}

/// Runs a task on the worker of this coroutine, with its share.
///
/// # Panics
/// If this thread is no worker.
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let (sender, handle) = join_channel();
    with_worker(|worker| worker.spawn(worker.share(), task(future, sender)));
    handle
}

/// As [`spawn_local`], of a task that begins at once: it runs within the coroutine that calls this until it waits for the first time. So
/// a request that it begins with goes to the device with those of the caller.
///
/// # Panics
/// If this thread is no worker.
pub fn spawn_begun<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let share = with_worker(WorkerContext::share);
    let (sender, handle) = join_channel();
    let mut task = task(future, sender);
    // It is polled in the next round, whoever wakes it before.
    match poll_task(&mut task, &mut Context::from_waker(Waker::noop())) {
        Polled::Ready(()) => discard(task),
        Polled::Parked | Polled::Runnable => with_worker(|worker| worker.spawn(share, task)),
    }
    handle
}

fn check(option: &'static str, value: usize, min: usize, max: usize) -> Result<(), RuntimeError> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(RuntimeError::Option { option, value, min, max })
    }
}

/// Turns `Auto` into the best driver that works here.
fn resolve(kind: &DriverKind) -> DriverKind {
    match kind {
        DriverKind::Auto => match UringDriver::new(1) {
            Ok(_) => DriverKind::Uring,
            Err(error) => {
                log::warn!("io_uring is not available ({error}); I/O goes through threads");
                DriverKind::Posix
            }
        },
        other => other.clone(),
    }
}

fn make_driver(kind: &DriverKind, worker: usize, depth: usize) -> io::Result<Box<dyn Driver>> {
    Ok(match kind {
        DriverKind::Auto | DriverKind::Uring => Box::new(UringDriver::new(depth)?),
        DriverKind::Posix => Box::new(PosixDriver::new(depth.min(POSIX_THREADS_MAX))?),
        DriverKind::Blocking => Box::new(BlockingDriver::new()),
        DriverKind::Sim(disk) => Box::new(SimDriver::new(disk.clone(), worker)?),
    })
}
