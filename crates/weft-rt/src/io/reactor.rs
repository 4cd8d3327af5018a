//! The table of a worker's requests in flight.
//!
//! **Architecture invariant:** a slot owns its buffer and keeps its file open from submission to
//! completion, whether or not the coroutine that asked still exists. Dropping a future only marks
//! the slot as abandoned; the buffer is dropped when the driver reports that the kernel is done
//! with it. Short transfers, `EINTR` and `EAGAIN` are handled here, once for all drivers.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::arena::Arena;
use super::buffer::IoBuf;
use super::driver::{Completion, Driver, Notify, Operation, Request, Submitted};
use super::file::File;

/// What one worker has asked of its devices so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoStats {
    /// Reads completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes completed.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Most requests in flight at once.
    pub in_flight_max: usize,
    /// Times the worker slept because nothing was runnable.
    pub sleeps: u64,
}

/// What the kernel is asked to do, and with what.
pub(crate) struct Job {
    pub(crate) operation: Operation,
    pub(crate) file: File,
    pub(crate) buffers: Buffers,
    pub(crate) offset: u64,
    /// Bytes to transfer or allocate.
    pub(crate) len: u64,
}

/// What a job transfers to or from.
#[derive(Debug)]
pub(crate) enum Buffers {
    None,
    One(IoBuf),
    /// One after the other, by a vectored request.
    Many(Vec<IoBuf>),
}

impl Buffers {
    /// The bytes from `start` on, as entries of a vectored request.
    fn vectors(&mut self, start: usize, vectors: &mut Vec<libc::iovec>) {
        let Buffers::Many(buffers) = self else { return };
        let mut skipped = start;
        vectors.clear();
        for buffer in buffers {
            let before = skipped.min(buffer.len());
            skipped -= before;
            let part = &mut buffer[before..];
            if !part.is_empty() {
                let (iov_base, iov_len) = (part.as_mut_ptr().cast(), part.len());
                vectors.push(libc::iovec { iov_base, iov_len });
            }
        }
    }

    fn drain_into(self, all: &mut Vec<IoBuf>) {
        match self {
            Buffers::None => {}
            Buffers::One(buffer) => all.push(buffer),
            Buffers::Many(buffers) => all.extend(buffers),
        }
    }
}

/// A finished job: its result, and its buffers back.
pub(crate) type Finished = (io::Result<usize>, Buffers);

enum State {
    Free,
    Waiting(Option<Waker>),
    Abandoned,
    Done(io::Result<usize>),
}

struct Slot {
    state: State,
    job: Option<Job>,
    /// Bytes transferred by earlier, short parts of the job.
    transferred: usize,
    /// The array of a vectored request in flight. Kept for the next one in this slot.
    vectors: Vec<libc::iovec>,
}

/// How a job started.
pub(crate) enum Started {
    /// The driver completed it in place.
    Finished(Finished),
    /// It is in flight under this key.
    InFlight(u32),
}

/// What a turn of the reactor leaves to be done without a borrow of it.
#[derive(Default)]
pub(crate) struct Aftermath {
    /// Coroutines to wake.
    pub(crate) wakers: Vec<Waker>,
    /// Buffers of abandoned requests, to be dropped.
    pub(crate) buffers: Vec<IoBuf>,
}

impl Aftermath {
    /// Wakes and drops; the reactor must not be borrowed.
    pub(crate) fn settle(&mut self) {
        self.buffers.clear();
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
    }
}

/// Where a submission or completion left a request.
enum Progress {
    /// With the driver.
    Queued,
    /// In the backlog: the driver has no room.
    Full,
    /// Finished.
    Finished,
    /// A part is missing, or the kernel asked to try again.
    Again,
}

/// Requests that a busy worker collects before it hands them over. Telling the device costs a system
/// call, and on a virtual machine an exit to the hypervisor (15 µs where it was measured).
const FLUSH_BATCH: usize = 16;
/// Requests that a worker collects after it has slept: the devices had run out of requests of this
/// worker's, so that every microsecond until the next one counts more than the call.
const FLUSH_BATCH_EAGER: usize = 1;
/// Turns after which a busy worker hands over what it has collected: well below a millisecond for
/// coroutines that run for a few microseconds at a time.
const TURNS_UNFLUSHED_MAX: u32 = 4;
/// The same if they run for longer: the next request or turn hands over what is older. Devices are not to run out of requests that
/// the worker has.
const UNFLUSHED_MAX: Duration = Duration::from_micros(100);

/// Whoever sleeps for less than this may have found what had completed before.
const SLEEP: Duration = Duration::from_micros(50);

/// Owns the requests of one worker.
pub(crate) struct Reactor {
    driver: Box<dyn Driver>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    backlog: VecDeque<u32>,
    completions: Vec<Completion>,
    /// Requests given to the driver since it last handed them on, when the first of them was, and turns since.
    unflushed: usize,
    unflushed_since: Instant,
    turns_unflushed: u32,
    /// The worker's last turn ended in sleep: it waits for the devices, so they wait for it.
    has_slept: bool,
    /// When it woke, unless it had hardly slept.
    woke_at: Option<Instant>,
    stats: IoStats,
}

impl Reactor {
    pub(crate) fn new(driver: Box<dyn Driver>) -> Reactor {
        let now = driver.now();
        Reactor {
            driver,
            slots: Vec::new(),
            free: Vec::new(),
            backlog: VecDeque::new(),
            completions: Vec::new(),
            unflushed: 0,
            unflushed_since: now,
            turns_unflushed: 0,
            has_slept: false,
            woke_at: None,
            stats: IoStats::default(),
        }
    }

    pub(crate) fn stats(&self) -> IoStats {
        self.stats
    }

    pub(crate) fn now(&self) -> Instant {
        self.driver.now()
    }

    /// When the worker woke, if its last turn ended in sleep that was more than a moment.
    pub(crate) fn woke_at(&self) -> Option<Instant> {
        self.woke_at
    }

    pub(crate) fn notifier(&self) -> Arc<dyn Notify> {
        self.driver.notifier()
    }

    pub(crate) fn register(&mut self, arena: &Arc<Arena>) -> bool {
        self.driver.register(arena)
    }

    /// Requests that are not finished.
    pub(crate) fn in_flight(&self) -> usize {
        self.driver.in_flight() + self.backlog.len()
    }

    /// Starts a job; in place if the driver works that way.
    pub(crate) fn start(&mut self, job: Job) -> Started {
        let key = self.free.pop().unwrap_or_else(|| {
            let vectors = Vec::new();
            self.slots.push(Slot { state: State::Free, job: None, transferred: 0, vectors });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[key as usize];
        assert!(matches!(slot.state, State::Free) && slot.job.is_none(), "slot {key} is in use");
        slot.state = State::Waiting(None);
        slot.job = Some(job);
        slot.transferred = 0;
        // A request that finishes in place has no waker yet, and is not abandoned.
        let mut nothing = Aftermath::default();
        if let Progress::Full = self.submit(key, &mut nothing) {
            self.backlog.push_back(key);
        }
        self.stats.in_flight_max = self.stats.in_flight_max.max(self.in_flight());
        match self.slots[key as usize].state {
            State::Done(_) => Started::Finished(self.release(key)),
            _ => {
                let batch = if self.has_slept { FLUSH_BATCH_EAGER } else { FLUSH_BATCH };
                if self.unflushed >= batch || self.is_overdue() {
                    self.flush();
                }
                Started::InFlight(key)
            }
        }
    }

    /// True if requests have been collected for long.
    fn is_overdue(&self) -> bool {
        self.unflushed > 0
            && self.now().saturating_duration_since(self.unflushed_since) >= UNFLUSHED_MAX
    }

    /// Hands over what is queued. A driver that fails here fails in the next turn too, which
    /// reports it.
    fn flush(&mut self) {
        self.unflushed = 0;
        self.turns_unflushed = 0;
        if let Err(error) = self.driver.flush() {
            log::debug!("early submission failed: {error}");
        }
    }

    /// The job's outcome, or parks the coroutine until there is one.
    /// A waker that another takes the place of is left in `replaced`, to be dropped without a borrow.
    pub(crate) fn poll(
        &mut self,
        key: u32,
        context: &mut Context<'_>,
        replaced: &mut Option<Waker>,
    ) -> Poll<Finished> {
        match &mut self.slots[key as usize].state {
            State::Done(_) => Poll::Ready(self.release(key)),
            State::Waiting(waker) => {
                match waker {
                    Some(known) if known.will_wake(context.waker()) => {}
                    other => *replaced = other.replace(context.waker().clone()),
                }
                Poll::Pending
            }
            State::Free | State::Abandoned => unreachable!("request {key} has no coroutine"),
        }
    }

    /// The coroutine is gone: the outcome interests nobody, but buffer and file stay until the
    /// completion. Gives back buffers that are free already, to be dropped without a borrow.
    pub(crate) fn abandon(&mut self, key: u32) -> Buffers {
        match self.slots[key as usize].state {
            State::Done(_) => self.release(key).1,
            State::Waiting(_) => {
                self.slots[key as usize].state = State::Abandoned;
                Buffers::None
            }
            State::Free | State::Abandoned => unreachable!("request {key} has no coroutine"),
        }
    }

    /// Hands queued requests to the device and collects what has completed, without waiting.
    /// `deadline` is that of the first timer: a simulated clock goes on only if it is looked at.
    pub(crate) fn turn(
        &mut self,
        deadline: Option<Instant>,
        after: &mut Aftermath,
    ) -> io::Result<()> {
        self.woke_at = None;
        if self.in_flight() == 0 && deadline.is_none() {
            return Ok(());
        }
        self.has_slept = false;
        self.turns_unflushed += 1;
        if self.unflushed == 0 {
            self.turns_unflushed = 0;
        } else if self.turns_unflushed >= TURNS_UNFLUSHED_MAX || self.is_overdue() {
            self.unflushed = 0;
            self.turns_unflushed = 0;
            self.driver.flush()?;
        }
        self.collect(after)
    }

    /// Sleeps until something completes, another thread notifies, or `deadline`; then as `turn`.
    pub(crate) fn wait(
        &mut self,
        deadline: Option<Instant>,
        after: &mut Aftermath,
    ) -> io::Result<()> {
        self.stats.sleeps += 1;
        self.has_slept = true;
        if mem::take(&mut self.unflushed) > 0 {
            self.driver.flush()?;
        }
        let began = self.now();
        self.driver.wait(deadline)?;
        let ended = self.now();
        self.woke_at = (ended.saturating_duration_since(began) >= SLEEP).then_some(ended);
        self.collect(after)
    }

    fn collect(&mut self, after: &mut Aftermath) -> io::Result<()> {
        let mut completions = mem::take(&mut self.completions);
        let result = self.driver.reap(&mut completions);
        for completion in completions.drain(..) {
            if let Progress::Again = self.complete(completion.key, completion.result, after)
                && let Progress::Full = self.submit(completion.key, after)
            {
                self.backlog.push_back(completion.key);
            }
        }
        self.completions = completions;
        while let Some(key) = self.backlog.pop_front() {
            if let Progress::Full = self.submit(key, after) {
                self.backlog.push_front(key);
                break;
            }
        }
        result
    }

    /// Gives the missing part of the request to the driver.
    fn submit(&mut self, key: u32, after: &mut Aftermath) -> Progress {
        loop {
            let slot = &mut self.slots[key as usize];
            let job = slot.job.as_mut().expect("a request in flight has a job");
            let start = slot.transferred;
            job.buffers.vectors(start, &mut slot.vectors);
            let (ptr, arena) = match &mut job.buffers {
                Buffers::One(buffer) => (buffer[start..].as_mut_ptr(), buffer.arena()),
                Buffers::Many(_) => (slot.vectors.as_mut_ptr().cast(), None),
                Buffers::None => (ptr::null_mut(), None),
            };
            let parts = match &job.buffers {
                Buffers::Many(_) => slot.vectors.len() as u32,
                Buffers::One(_) | Buffers::None => 0,
            };
            let request = Request {
                key,
                operation: job.operation,
                file: job.file.clone(),
                ptr,
                parts,
                len: job.len - start as u64,
                offset: job.offset + start as u64,
                arena,
            };
            match self.driver.submit(request) {
                Submitted::Queued => {
                    if self.unflushed == 0 {
                        self.unflushed_since = self.now();
                    }
                    self.unflushed += 1;
                    return Progress::Queued;
                }
                Submitted::Full => return Progress::Full,
                Submitted::Done(result) => match self.complete(key, result, after) {
                    Progress::Again => {}
                    other => return other,
                },
            }
        }
    }

    /// Takes note of what a driver reports for a request.
    fn complete(&mut self, key: u32, result: io::Result<usize>, after: &mut Aftermath) -> Progress {
        let slot = &mut self.slots[key as usize];
        let job = slot.job.as_ref().expect("a completed request has a job");
        let (moves_bytes, is_read) = (job.operation.is_transfer(), job.operation.is_read());
        let outcome = match result {
            // With sectors of 4 KiB a file may end where no further direct read can begin.
            Err(error)
                if is_read
                    && !slot.transferred.is_multiple_of(4096)
                    && error.raw_os_error() == Some(libc::EINVAL) =>
            {
                Ok(slot.transferred)
            }
            Err(error) => {
                let transient = matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN));
                if transient && !matches!(slot.state, State::Abandoned) {
                    return Progress::Again;
                }
                Err(error)
            }
            Ok(_) if !moves_bytes => Ok(0),
            Ok(0) if job.operation == Operation::Write && job.len > 0 => {
                Err(io::ErrorKind::WriteZero.into())
            }
            Ok(bytes) => {
                slot.transferred += bytes;
                let missing = job.len - slot.transferred as u64;
                let end = job.offset + slot.transferred as u64;
                // A read stops inside a sector only where the file ends.
                let at_end = bytes == 0
                    || (is_read && !bytes.is_multiple_of(512) && !end.is_multiple_of(512));
                if missing > 0 && !at_end && !matches!(slot.state, State::Abandoned) {
                    return Progress::Again;
                }
                Ok(slot.transferred)
            }
        };
        match (job.operation, &outcome) {
            (Operation::Read | Operation::ReadVectored, Ok(bytes)) => {
                self.stats.reads += 1;
                self.stats.read_bytes += *bytes as u64;
            }
            (Operation::Write, Ok(bytes)) => {
                self.stats.writes += 1;
                self.stats.written_bytes += *bytes as u64;
            }
            _ => {}
        }
        match mem::replace(&mut slot.state, State::Done(outcome)) {
            State::Waiting(waker) => after.wakers.extend(waker),
            State::Abandoned => self.release(key).1.drain_into(&mut after.buffers),
            State::Free | State::Done(_) => unreachable!("request {key} was not in flight"),
        }
        Progress::Finished
    }

    fn release(&mut self, key: u32) -> Finished {
        let slot = &mut self.slots[key as usize];
        let State::Done(result) = mem::replace(&mut slot.state, State::Free) else {
            unreachable!("request {key} is not done")
        };
        let job = slot.job.take().expect("a finished request has a job");
        self.free.push(key);
        (result, job.buffers)
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        // Waits for the kernel; only then may the slots drop the buffers.
        let mut after = Aftermath::default();
        while self.in_flight() > 0 {
            if let Err(error) = self.wait(None, &mut after) {
                log::error!("cannot wait for {} requests in flight: {error}", self.in_flight());
                std::process::abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    use super::*;
    use crate::io::blocking::BlockingDriver;
    use crate::io::conformance::TempFile;

    /// Accepts all requests, remembers how many there were at each flush, and completes all that it has when it is waited for.
    struct Holding {
        bell: BlockingDriver,
        keys: Vec<u32>,
        flushed: Rc<RefCell<Vec<usize>>>,
        now: Rc<Cell<Instant>>,
    }

    impl Driver for Holding {
        fn submit(&mut self, request: Request) -> Submitted {
            self.keys.push(request.key);
            Submitted::Queued
        }

        fn flush(&mut self) -> io::Result<()> {
            self.flushed.borrow_mut().push(self.keys.len());
            Ok(())
        }

        fn reap(&mut self, _: &mut Vec<Completion>) -> io::Result<()> {
            Ok(())
        }

        fn wait(&mut self, _: Option<Instant>) -> io::Result<()> {
            self.keys.clear();
            Ok(())
        }

        fn in_flight(&self) -> usize {
            self.keys.len()
        }

        fn notifier(&self) -> Arc<dyn Notify> {
            self.bell.notifier()
        }

        fn register(&mut self, _: &Arc<Arena>) -> bool {
            false
        }

        fn now(&self) -> Instant {
            self.now.get()
        }
    }

    fn ask(reactor: &mut Reactor, file: &File) {
        let (operation, buffers) = (Operation::Sync, Buffers::None);
        let job = Job { operation, file: file.clone(), buffers, offset: 0, len: 0 };
        assert!(matches!(reactor.start(job), Started::InFlight(_)));
    }

    #[test]
    fn devices_do_not_run_out_of_requests_that_a_busy_worker_has() {
        let (temp, flushed) = (TempFile::new(), Rc::default());
        let (file, bell) = (temp.create(), BlockingDriver::new());
        let (keys, now) = (Vec::new(), Rc::new(Cell::new(Instant::now())));
        let driver = Holding { bell, keys, flushed: Rc::clone(&flushed), now: Rc::clone(&now) };
        let mut reactor = Reactor::new(Box::new(driver));
        let mut after = Aftermath::default();
        let flushed = |reactor: &mut Reactor, requests: usize| {
            (0..requests).for_each(|_| ask(reactor, &file));
            std::mem::take(&mut *flushed.borrow_mut())
        };
        assert_eq!(flushed(&mut reactor, 40), [16, 32]);
        // What is left goes along after a few turns, or with the next if it has been there for long.
        (0..TURNS_UNFLUSHED_MAX).for_each(|_| reactor.turn(None, &mut after).unwrap());
        assert_eq!(flushed(&mut reactor, 1), [40]);
        now.set(now.get() + UNFLUSHED_MAX);
        assert_eq!(flushed(&mut reactor, 2), [42]);
        now.set(now.get() + UNFLUSHED_MAX);
        reactor.turn(None, &mut after).unwrap();
        assert_eq!(flushed(&mut reactor, 0), [43]);
        // It sleeps, and then sends each at once.
        reactor.wait(None, &mut after).unwrap();
        assert_eq!(flushed(&mut reactor, 3), [1, 2, 3]);
        reactor.wait(None, &mut after).unwrap();
    }
}
