//! The boundary between the reactor and whatever executes its requests.
//!
//! **Architecture invariant:** everything that is specific to io_uring, to threads or to the
//! simulation stays behind [`Driver`]. Interrupted calls, `EAGAIN` and short transfers are handled
//! once, above it, in the reactor; dropped futures are too: a driver never hears of them.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::arena::Arena;
use super::file::File;
use super::sim::{SimDisk, SimMode};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read into the buffer.
    Read,
    /// Read into several buffers, one after the other.
    ReadVectored,
    /// Write the buffer.
    Write,
    /// Make everything written so far durable (`fdatasync`).
    Sync,
    /// Reserve `len` bytes from `offset` on without changing what reads return (`fallocate`).
    Allocate,
}

impl Operation {
    /// True if it reads.
    pub fn is_read(self) -> bool {
        matches!(self, Operation::Read | Operation::ReadVectored)
    }

    /// True if it moves bytes.
    pub fn is_transfer(self) -> bool {
        self.is_read() || self == Operation::Write
    }
}

/// One request to a driver.
///
/// The reactor keeps `file` open and `[ptr, ptr + len)` valid, unaliased and unmoved until the
/// driver has reported the completion of `key`; a driver must not touch either afterwards. The same
/// goes for the buffers of a vectored request, and for the array that names them.
#[derive(Clone, Debug)]
pub struct Request {
    /// Chosen by the reactor, unique among the requests in flight, handed back with the completion.
    pub key: u32,
    /// What to do.
    pub operation: Operation,
    /// The file to do it to.
    pub file: File,
    /// Start of the buffer, or for `ReadVectored` of an array of `parts` times `iovec`; dangling for
    /// `Sync` and `Allocate`.
    pub ptr: *mut u8,
    /// Buffers of a vectored request, which have `len` bytes together; 0 for others.
    pub parts: u32,
    /// Bytes to transfer or to allocate.
    pub len: u64,
    /// Byte offset in the file.
    pub offset: u64,
    /// The arena that the buffer is a part of, by its id, if it is.
    pub arena: Option<u32>,
}

// SAFETY: `ptr` is the only part that is not `Send`; the reactor guarantees that the memory behind
// it belongs to this request alone until completion, so any one thread may use it meanwhile.
unsafe impl Send for Request {}

impl Request {
    /// The buffers of a vectored request, in order; none for others.
    pub(crate) fn vectors(&self) -> &[libc::iovec] {
        if self.operation != Operation::ReadVectored {
            return &[];
        }
        // SAFETY: the reactor keeps the array valid and unchanged until the completion.
        unsafe { std::slice::from_raw_parts(self.ptr.cast::<libc::iovec>(), self.parts as usize) }
    }
}

/// What became of a request at submission.
#[derive(Debug)]
pub enum Submitted {
    /// It is under way; its completion comes from [`Driver::reap`].
    Queued,
    /// It completed in place (the blocking driver): bytes transferred, or the error.
    Done(io::Result<usize>),
    /// No room: submit it again after a [`Driver::reap`] that returned something.
    Full,
}

/// A finished request: its key, and the bytes transferred or the operating system's error.
#[derive(Debug)]
pub struct Completion {
    /// The request's key.
    pub key: u32,
    /// Bytes transferred (possibly fewer than asked for; 0 at the end of a file), or the error as
    /// the operating system gave it.
    pub result: io::Result<usize>,
}

/// Wakes a worker that sleeps in [`Driver::wait`], from any thread.
pub trait Notify: Send + Sync {
    /// Makes the current or next [`Driver::wait`] return soon. Never lost, may be spurious.
    fn notify(&self);
}

/// Executes requests for one worker. Created on, used by and dropped on that worker's thread.
///
/// Dropping a driver waits for what is still in flight: the buffers are the reactor's, and it
/// frees them afterwards.
pub trait Driver {
    /// Accepts a request. May delay handing it on until [`Driver::flush`].
    fn submit(&mut self, request: Request) -> Submitted;

    /// Hands everything accepted to the device, as one batch.
    ///
    /// # Errors
    /// Only failures of the driver itself; a failed request is a completion.
    fn flush(&mut self) -> io::Result<()>;

    /// Appends what has completed to `done`, without waiting.
    ///
    /// # Errors
    /// Only failures of the driver itself.
    fn reap(&mut self, done: &mut Vec<Completion>) -> io::Result<()>;

    /// Flushes, then sleeps until a completion can be reaped, [`Notify::notify`] is called or
    /// `deadline` has come (by [`Driver::now`]). Never spins longer than a few microseconds.
    ///
    /// # Errors
    /// Only failures of the driver itself.
    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()>;

    /// Requests accepted and not yet reaped.
    fn in_flight(&self) -> usize;

    /// A handle that wakes this driver's worker.
    fn notifier(&self) -> Arc<dyn Notify>;

    /// Readies buffers of this arena for faster transfers, if the driver can; `false` if it
    /// cannot, and transfers go the ordinary way.
    fn register(&mut self, arena: &Arc<Arena>) -> bool;

    /// The clock that timers follow: real time, unless the driver simulates it.
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// Which driver the workers use.
#[derive(Clone, Debug, Default)]
pub enum DriverKind {
    /// io_uring; `posix` with one log line where the kernel refuses it.
    #[default]
    Auto,
    /// io_uring, an error where the kernel refuses it.
    Uring,
    /// A pool of threads that make blocking calls.
    Posix,
    /// Completes every request in place with a blocking call: the synchronous baseline.
    Blocking,
    /// The devices of a simulated disk.
    Sim(SimDisk),
}

impl DriverKind {
    /// The driver's name in settings and output.
    pub fn name(&self) -> &'static str {
        match self {
            DriverKind::Auto => "auto",
            DriverKind::Uring => "uring",
            DriverKind::Posix => "posix",
            DriverKind::Blocking => "blocking",
            DriverKind::Sim(disk) => match disk.options().mode {
                SimMode::Async => "sim",
                SimMode::Blocking => "sim-blocking",
            },
        }
    }
}
