//! The POSIX driver: a pool of threads that make blocking calls on behalf of one worker.
//!
//! It is what remains where the kernel refuses io_uring, as many container runtimes make it do. A
//! flush hands everything submitted since the last one to the pool under one lock and one wake-up;
//! the pool's threads put completions into a list that the worker takes whole.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::arena::Arena;
use super::blocking::execute;
use super::driver::{Completion, Driver, Notify, Request, Submitted};

/// Requests that a driver made by [`PosixDriver::new`] accepts before it says `Full`.
pub(crate) const IN_FLIGHT_MAX: usize = 4096;

/// Executes requests on threads of its own.
pub(crate) struct PosixDriver {
    pool: Arc<Pool>,
    threads: Vec<JoinHandle<()>>,
    /// Accepted, not yet handed to the pool.
    accepted: Vec<Request>,
    in_flight: usize,
    in_flight_max: usize,
}

/// What the worker and the pool's threads share.
#[derive(Default)]
struct Pool {
    work: Mutex<Work>,
    work_came: Condvar,
    finished: Mutex<Finished>,
    finished_came: Condvar,
}

#[derive(Default)]
struct Work {
    requests: VecDeque<Request>,
    idle_threads: usize,
    closing: bool,
}

#[derive(Default)]
struct Finished {
    completions: Vec<Completion>,
    notified: bool,
    /// The worker sleeps, and wants to be woken by the next completion.
    worker_sleeps: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Executes requests until the driver closes and none is left.
    fn serve(&self) {
        let mut work = lock(&self.work);
        loop {
            if let Some(request) = work.requests.pop_front() {
                drop(work);
                let result = execute(&request);
                let key = request.key;
                // The file's last handle may be this one: let go of it before anyone can know.
                drop(request);
                let mut finished = lock(&self.finished);
                finished.completions.push(Completion { key, result });
                let wake = mem::take(&mut finished.worker_sleeps);
                drop(finished);
                if wake {
                    self.finished_came.notify_one();
                }
                work = lock(&self.work);
            } else if work.closing {
                return;
            } else {
                work.idle_threads += 1;
                work = self.work_came.wait(work).unwrap_or_else(PoisonError::into_inner);
                work.idle_threads -= 1;
            }
        }
    }
}

impl Notify for Pool {
    fn notify(&self) {
        lock(&self.finished).notified = true;
        self.finished_came.notify_one();
    }
}

impl PosixDriver {
    /// A driver with `threads` threads, and so at most that many requests on the device at once.
    ///
    /// # Errors
    /// The system's error if it has no threads left.
    ///
    /// # Panics
    /// If `threads` is 0.
    pub(crate) fn new(threads: usize) -> io::Result<PosixDriver> {
        PosixDriver::with_limit(threads, IN_FLIGHT_MAX)
    }

    /// The same, saying `Full` once `in_flight_max` requests are accepted and not reaped.
    ///
    /// # Errors
    /// The system's error if it has no threads left.
    ///
    /// # Panics
    /// If either number is 0.
    pub(crate) fn with_limit(threads: usize, in_flight_max: usize) -> io::Result<PosixDriver> {
        assert!(threads > 0 && in_flight_max > 0, "a driver that could never execute anything");
        let mut driver = PosixDriver {
            pool: Arc::new(Pool::default()),
            threads: Vec::with_capacity(threads),
            accepted: Vec::new(),
            in_flight: 0,
            in_flight_max,
        };
        for index in 0..threads {
            let pool = driver.pool.clone();
            let thread = thread::Builder::new().name(format!("weft-posix-{index}"));
            driver.threads.push(thread.spawn(move || pool.serve())?);
        }
        Ok(driver)
    }

    fn hand_over(&mut self) {
        if self.accepted.is_empty() {
            return;
        }
        let mut work = lock(&self.pool.work);
        let wanted = self.accepted.len().min(work.idle_threads);
        work.requests.extend(self.accepted.drain(..));
        drop(work);
        match wanted {
            0 => {}
            1 => self.pool.work_came.notify_one(),
            _ => self.pool.work_came.notify_all(),
        }
    }
}

impl Driver for PosixDriver {
    fn submit(&mut self, request: Request) -> Submitted {
        if self.in_flight == self.in_flight_max {
            return Submitted::Full;
        }
        self.in_flight += 1;
        self.accepted.push(request);
        Submitted::Queued
    }

    fn flush(&mut self) -> io::Result<()> {
        self.hand_over();
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        let mut finished = lock(&self.pool.finished);
        self.in_flight -= finished.completions.len();
        done.append(&mut finished.completions);
        Ok(())
    }

    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.hand_over();
        let came = &self.pool.finished_came;
        let mut finished = lock(&self.pool.finished);
        while finished.completions.is_empty() && !finished.notified {
            finished.worker_sleeps = true;
            finished = match deadline {
                None => came.wait(finished).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    came.wait_timeout(finished, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        finished.worker_sleeps = false;
        finished.notified = false;
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn notifier(&self) -> Arc<dyn Notify> {
        self.pool.clone()
    }

    fn register(&mut self, _: &Arc<Arena>) -> bool {
        false
    }
}

impl Drop for PosixDriver {
    fn drop(&mut self) {
        self.hand_over();
        lock(&self.pool.work).closing = true;
        self.pool.work_came.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has released its request all the same.
            thread.join().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::conformance::{self, Harness, TempFile};

    #[test]
    fn transfers_the_right_bytes() {
        for threads in [1, 4] {
            let temp = TempFile::new();
            conformance::check_bytes(PosixDriver::new(threads).unwrap(), &temp.create());
        }
    }

    #[test]
    fn vectored_reads_fill_their_buffers() {
        let temp = TempFile::new();
        conformance::check_vectored(PosixDriver::new(3).unwrap(), &temp.create());
    }

    #[test]
    fn errors_are_completions() {
        let temp = TempFile::new();
        temp.create();
        let driver = PosixDriver::new(2).unwrap();
        conformance::check_read_only_file(driver, &temp.open_for_reading());
    }

    #[test]
    fn a_full_driver_says_so() {
        let temp = TempFile::new();
        conformance::check_full(PosixDriver::with_limit(2, 8).unwrap(), &temp.create(), 8);
    }

    #[test]
    fn a_waiting_driver_is_woken() {
        conformance::check_notify(|| PosixDriver::new(1).unwrap());
        conformance::check_deadline(PosixDriver::new(1).unwrap());
    }

    #[test]
    fn dropping_it_finishes_what_is_in_flight() {
        let temp = TempFile::new();
        let file = temp.create();
        let mut harness = Harness::new(PosixDriver::new(2).unwrap());
        for page in 0..64 {
            harness.start_write(&file, page * 4096, &[page as u8 + 1; 4096]).unwrap();
        }
        drop(harness);
        let mut harness = Harness::new(PosixDriver::new(1).unwrap());
        for page in 0..64 {
            let bytes = harness.read(&file, page * 4096, 4096).unwrap();
            assert_eq!(bytes, [page as u8 + 1; 4096], "page {page}");
        }
    }
}
