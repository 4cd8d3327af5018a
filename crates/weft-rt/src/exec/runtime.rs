//! The runtime: a fixed number of workers and what is asked of all of them.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use super::current::with_worker;
use super::task::{JoinError, JoinHandle, join_channel, task};
use super::worker::{Worker, WorkerShared};
use crate::io::arena::Arena;
use crate::io::bandwidth::Bandwidth;
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

/// A fixed number of workers. Dropping it drops all tasks, waits for what the devices still have in
/// flight, and ends the threads.
pub struct Runtime {
    workers: Vec<WorkerHandle>,
    driver: &'static str,
    next: AtomicUsize,
    bandwidth: Arc<Bandwidth>,
}

struct WorkerHandle {
    shared: Arc<WorkerShared>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Runtime {
    /// Starts the workers.
    ///
    /// # Errors
    /// [`RuntimeError`] for options out of range, or where the system refuses a worker.
    pub fn new(options: &RuntimeOptions) -> Result<Runtime, RuntimeError> {
        check("workers", options.workers, 1, 1024)?;
        check("io_depth", options.io_depth, 1, IO_DEPTH_MAX)?;
        let driver = resolve(&options.driver);
        let cores = if options.pin { allowed_cores() } else { Vec::new() };
        let mut runtime = Runtime {
            workers: Vec::with_capacity(options.workers),
            driver: driver.name(),
            next: AtomicUsize::new(0),
            bandwidth: Arc::default(),
        };
        let (report, started) = mpsc::channel();
        for index in 0..options.workers {
            let fail =
                |source| RuntimeError::Start { worker: index, driver: driver.name(), source };
            let shared = WorkerShared::new();
            let (report, kind, depth) = (report.clone(), driver.clone(), options.io_depth);
            let core = (!cores.is_empty()).then(|| cores[index % cores.len()]);
            let (for_thread, bandwidth) = (shared.clone(), runtime.bandwidth.clone());
            let thread = thread::Builder::new()
                .name(format!("weft-{index}"))
                .spawn(move || {
                    if let Some(core) = core {
                        pin_to(core);
                    }
                    match make_driver(&kind, index, depth) {
                        Ok(driver) => {
                            let worker = Worker::new(for_thread, index, driver, bandwidth);
                            // The runtime may have given up already.
                            report.send((index, Ok(()))).ok();
                            drop(report);
                            worker.run();
                        }
                        Err(error) => drop(report.send((index, Err(error)))),
                    }
                })
                .map_err(fail)?;
            runtime.workers.push(WorkerHandle { shared, thread: Some(thread) });
        }
        drop(report);
        for (worker, result) in started {
            result.map_err(|source| RuntimeError::Start {
                worker,
                driver: driver.name(),
                source,
            })?;
        }
        Ok(runtime)
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Name of the I/O driver in use: `uring`, `posix`, `blocking`, `sim` or `sim-blocking`.
    pub fn driver(&self) -> &'static str {
        self.driver
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
    /// future itself need not be `Send`.
    pub fn spawn_on<M, F>(&self, worker: usize, make: M) -> JoinHandle<F::Output>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let (sender, handle) = join_channel();
        let worker = &self.workers[worker % self.workers.len()];
        worker.shared.send(Box::new(move || task(async move { make().await }, sender)));
        handle
    }

    /// Runs a task on some worker: the workers take turns.
    pub fn spawn<M, F>(&self, make: M) -> JoinHandle<F::Output>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_on(self.next.fetch_add(1, Ordering::Relaxed), make)
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
        let handles: Vec<_> = (0..self.workers.len())
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
        (0..self.workers.len())
            .filter_map(|worker| self.spawn_on(worker, || async { io_stats() }).wait().ok())
            .collect()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        for worker in &self.workers {
            worker.shared.shut_down();
        }
        for worker in &mut self.workers {
            let Some(thread) = worker.thread.take() else { continue };
            // A task may own the runtime that it runs on: its worker ends when the task has.
            let is_own = thread.thread().id() == thread::current().id();
            if !is_own && thread.join().is_err() {
                log::error!("a worker thread panicked");
            }
        }
    }
}

/// Number of the worker that this coroutine runs on.
///
/// # Panics
/// If this thread is no worker.
pub fn worker_index() -> usize {
    with_worker(|worker| worker.index())
}

/// What the worker of this coroutine has asked of its devices so far.
///
/// # Panics
/// If this thread is no worker.
pub fn io_stats() -> IoStats {
    with_worker(|worker| worker.reactor().stats())
}

/// Bytes that all workers of this coroutine's runtime have read and written so far.
///
/// # Panics
/// If this thread is no worker.
pub fn bytes_moved() -> u64 {
    with_worker(|worker| worker.bandwidth().moved())
}

/// Runs a task on the worker of this coroutine.
///
/// # Panics
/// If this thread is no worker.
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let (sender, handle) = join_channel();
    with_worker(|worker| worker.spawn(task(future, sender)));
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

/// The cores that this process may run on.
fn allowed_cores() -> Vec<usize> {
    // SAFETY: a CPU set is plain bits, for which zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes at most the given size to `set`.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } != 0 {
        return Vec::new();
    }
    // SAFETY: the indexes lie inside the set.
    (0..libc::CPU_SETSIZE as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect()
}

fn pin_to(core: usize) {
    // SAFETY: a CPU set is plain bits; `core` came from one; the call reads `set` only.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set)
    };
    if result != 0 {
        log::warn!("cannot pin a worker to core {core}: {}", io::Error::last_os_error());
    }
}
