//! The futures of device requests.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use super::buffer::IoBuf;
use super::driver::Operation;
use super::file::{File, FileError};
use super::reactor::{Buffers, Finished, Job, Started};
use crate::exec::current::{try_worker, with_worker};
use crate::exec::timer::{Sleep, sleep};
use crate::exec::worker::WorkerContext;

/// A buffer and what became of its transfer: bytes transferred, or the error.
pub type TransferResult = (Result<usize, FileError>, IoBuf);

/// As [`TransferResult`], of several buffers.
pub type VectoredResult = (Result<usize, FileError>, Vec<IoBuf>);

/// Most buffers of one vectored transfer: the kernel's limit.
pub const VECTORS_MAX: usize = 1024;

impl File {
    /// Reads into the whole of `buffer` from byte `offset` on; fewer bytes only where the file
    /// ends. With direct I/O, offset and length must be multiples of 4 KiB.
    ///
    /// The future runs on a worker. Dropping it abandons the result, never the memory.
    pub fn read(&self, buffer: IoBuf, offset: u64) -> Transfer {
        Transfer::new(self, Operation::Read, buffer, offset)
    }

    /// Reads exactly the whole of `buffer`.
    ///
    /// # Errors
    /// As [`File::read`], and [`FileError::Truncated`] if the file ends before.
    pub async fn read_exact(&self, buffer: IoBuf, offset: u64) -> TransferResult {
        let len = buffer.len();
        let (result, buffer) = self.read(buffer, offset).await;
        (result.and_then(|got| self.whole(offset, len, got)), buffer)
    }

    /// Reads into all of `buffers`, one after the other, from byte `offset` on, in one request; fewer
    /// bytes only where the file ends. With direct I/O, the offset and each length must be multiples of
    /// 4 KiB.
    ///
    /// The future runs on a worker. Dropping it abandons the result, never the memory.
    ///
    /// # Panics
    /// If there are no buffers, or more than [`VECTORS_MAX`].
    pub fn read_vectored(&self, buffers: Vec<IoBuf>, offset: u64) -> VectoredTransfer {
        assert!((1..=VECTORS_MAX).contains(&buffers.len()), "{} buffers", buffers.len());
        let len = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let (file, operation) = (self.clone(), Operation::ReadVectored);
        let buffers = Buffers::Many(buffers);
        VectoredTransfer(InFlight::new(Job { operation, file, buffers, offset, len }))
    }

    /// As [`File::read_vectored`], exactly the whole of the buffers.
    ///
    /// # Errors
    /// As [`File::read_exact`].
    ///
    /// # Panics
    /// As [`File::read_vectored`].
    pub async fn read_vectored_exact(&self, buffers: Vec<IoBuf>, offset: u64) -> VectoredResult {
        let len = buffers.iter().map(|buffer| buffer.len()).sum();
        let (result, buffers) = self.read_vectored(buffers, offset).await;
        (result.and_then(|got| self.whole(offset, len, got)), buffers)
    }

    fn whole(&self, offset: u64, len: usize, got: usize) -> Result<usize, FileError> {
        if got == len {
            return Ok(len);
        }
        let path = self.path().into();
        Err(FileError::Truncated { path, offset, len: len as u64, got: got as u64 })
    }

    /// Writes the whole of `buffer` at byte `offset`. With direct I/O, offset and length must be
    /// multiples of 4 KiB. What was written survives power loss only after [`File::sync`].
    pub fn write(&self, buffer: IoBuf, offset: u64) -> Transfer {
        Transfer::new(self, Operation::Write, buffer, offset)
    }

    /// Makes everything written so far durable.
    pub fn sync(&self) -> Command {
        Command::new(self, Operation::Sync, 0, 0)
    }

    /// Reserves space for `len` bytes from `offset` on, so that writing there cannot run out of it;
    /// the file grows if it was shorter, and reads there give zeros.
    pub fn allocate(&self, offset: u64, len: u64) -> Command {
        Command::new(self, Operation::Allocate, offset, len)
    }
}

/// What became of a request.
type Outcome = (Result<usize, FileError>, Buffers);

/// A request on its way through a worker's reactor.
enum Stage {
    New(Job),
    InFlight(u32, Asked),
    /// It has ended sooner than the bandwidth allows.
    Held(Box<(Outcome, Sleep)>),
    Done,
}

/// What a request in flight was.
struct Asked {
    file: File,
    operation: Operation,
    offset: u64,
    len: u64,
    /// Not before this may anybody hear that it has ended.
    due: Option<Instant>,
}

impl Asked {
    fn new(job: &Job, worker: &WorkerContext) -> Asked {
        let Job { file, operation, offset, len, .. } = job;
        let take = || worker.bandwidth().take(*len, worker.reactor().now());
        let due = operation.is_transfer().then(take).flatten();
        Asked { file: file.clone(), operation: *operation, offset: *offset, len: *len, due }
    }

    fn outcome(&self, (result, buffers): Finished) -> Outcome {
        let result = result.map_err(|source| FileError::Transfer {
            operation: match self.operation {
                Operation::Read | Operation::ReadVectored => "read",
                Operation::Write => "write",
                Operation::Sync => "sync",
                Operation::Allocate => "allocate",
            },
            path: self.file.path().into(),
            offset: self.offset,
            len: self.len,
            source,
        });
        (result, buffers)
    }
}

struct InFlight {
    stage: Stage,
    /// Tied to the worker that first polled it.
    _local: PhantomData<*const ()>,
}

impl InFlight {
    fn new(job: Job) -> InFlight {
        InFlight { stage: Stage::New(job), _local: PhantomData }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        let polled = self.advance(context);
        if let Poll::Ready((Ok(bytes @ 1..), _)) = &polled {
            with_worker(|worker| worker.bandwidth().note_moved(*bytes as u64));
        }
        polled
    }

    fn advance(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        loop {
            let (finished, asked) = match std::mem::replace(&mut self.stage, Stage::Done) {
                Stage::New(job) => {
                    let start = |worker: &WorkerContext| {
                        let asked = Asked::new(&job, worker);
                        (worker.reactor().start(job), asked)
                    };
                    match with_worker(start) {
                        (Started::Finished(finished), asked) => (finished, asked),
                        (Started::InFlight(key), asked) => {
                            self.stage = Stage::InFlight(key, asked);
                            continue;
                        }
                    }
                }
                Stage::InFlight(key, asked) => {
                    let mut replaced = None;
                    let poll =
                        |worker: &WorkerContext| worker.reactor().poll(key, context, &mut replaced);
                    match with_worker(poll) {
                        Poll::Ready(finished) => (finished, asked),
                        Poll::Pending => {
                            self.stage = Stage::InFlight(key, asked);
                            return Poll::Pending;
                        }
                    }
                }
                Stage::Held(mut held) => {
                    if Pin::new(&mut held.1).poll(context).is_pending() {
                        self.stage = Stage::Held(held);
                        return Poll::Pending;
                    }
                    return Poll::Ready(held.0);
                }
                Stage::Done => panic!("a finished transfer was polled again"),
            };
            let outcome = asked.outcome(finished);
            let now = || with_worker(|worker| worker.reactor().now());
            let early = asked.due.map(|due| due.saturating_duration_since(now()));
            match early {
                Some(early) if !early.is_zero() => {
                    self.stage = Stage::Held(Box::new((outcome, sleep(early))));
                }
                _ => return Poll::Ready(outcome),
            }
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        // A worker that has ended has waited for all its requests.
        if let Stage::InFlight(key, _) = self.stage
            && let Some(worker) = try_worker()
        {
            let buffers = worker.reactor().abandon(key);
            // Dropped here, without a borrow of the reactor: their owner may wake somebody.
            drop(buffers);
        }
    }
}

/// The future of a read or write.
#[must_use = "futures do nothing unless awaited"]
pub struct Transfer(InFlight);

impl Transfer {
    fn new(file: &File, operation: Operation, buffer: IoBuf, offset: u64) -> Transfer {
        let len = buffer.len() as u64;
        let file = file.clone();
        let buffers = Buffers::One(buffer);
        Transfer(InFlight::new(Job { operation, file, buffers, offset, len }))
    }
}

impl Future for Transfer {
    type Output = TransferResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<TransferResult> {
        self.0.poll(context).map(|(result, buffers)| {
            let Buffers::One(buffer) = buffers else {
                unreachable!("a transfer has a buffer, which comes back")
            };
            (result, buffer)
        })
    }
}

/// The future of a vectored read.
#[must_use = "futures do nothing unless awaited"]
pub struct VectoredTransfer(InFlight);

impl Future for VectoredTransfer {
    type Output = VectoredResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<VectoredResult> {
        self.0.poll(context).map(|(result, buffers)| {
            let Buffers::Many(buffers) = buffers else {
                unreachable!("a vectored transfer has buffers, which come back")
            };
            (result, buffers)
        })
    }
}

/// The future of a sync or allocation.
#[must_use = "futures do nothing unless awaited"]
pub struct Command(InFlight);

impl Command {
    fn new(file: &File, operation: Operation, offset: u64, len: u64) -> Command {
        let (file, buffers) = (file.clone(), Buffers::None);
        Command(InFlight::new(Job { operation, file, buffers, offset, len }))
    }
}

impl Future for Command {
    type Output = Result<(), FileError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), FileError>> {
        self.0.poll(context).map(|(result, _)| result.map(drop))
    }
}
