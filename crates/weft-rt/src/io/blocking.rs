//! The blocking driver: every request completes in place, by one system call.
//!
//! It is the synchronous baseline of every experiment: the same coroutines run over it, but none of
//! them ever suspends for a transfer. The system calls themselves are shared with the POSIX driver,
//! whose threads make them, and with the simulated device where it sits on a real file.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use super::arena::Arena;
use super::driver::{Completion, Driver, Notify, Operation, Request, Submitted};

/// Makes the one system call that `request` stands for, and waits for it.
///
/// # Errors
/// The system's error, `EINTR` included; `InvalidInput` for a file of a simulated disk.
pub(crate) fn execute(request: &Request) -> io::Result<usize> {
    let Some(fd) = request.file.raw_fd() else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a simulated file can be used with the sim driver only",
        ));
    };
    let out_of_range = || io::Error::from_raw_os_error(libc::EINVAL);
    let offset = libc::off_t::try_from(request.offset).map_err(|_| out_of_range())?;
    let len = usize::try_from(request.len).map_err(|_| out_of_range())?;
    let returned = match request.operation {
        // SAFETY: the reactor keeps `[ptr, ptr + len)` valid and unaliased until completion.
        Operation::Read => unsafe { libc::pread(fd, request.ptr.cast(), len, offset) },
        Operation::ReadVectored => {
            let vectors = request.vectors();
            let count = libc::c_int::try_from(vectors.len()).map_err(|_| out_of_range())?;
            // SAFETY: as above, for each of the buffers.
            unsafe { libc::preadv(fd, vectors.as_ptr(), count, offset) }
        }
        // SAFETY: as above.
        Operation::Write => unsafe { libc::pwrite(fd, request.ptr.cast(), len, offset) },
        // SAFETY: the call takes no memory of ours; `request.file` keeps the descriptor open.
        Operation::Sync => unsafe { libc::fdatasync(fd) as libc::ssize_t },
        Operation::Allocate => {
            let len = libc::off_t::try_from(request.len).map_err(|_| out_of_range())?;
            // SAFETY: as for `fdatasync`.
            unsafe { libc::fallocate(fd, 0, offset, len) as libc::ssize_t }
        }
    };
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

/// Executes each request as it is submitted.
#[derive(Default)]
pub(crate) struct BlockingDriver {
    bell: Arc<Bell>,
}

#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    wake: Condvar,
}

impl Notify for Bell {
    fn notify(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_one();
    }
}

impl BlockingDriver {
    /// A driver without any state but its bell.
    pub(crate) fn new() -> BlockingDriver {
        BlockingDriver::default()
    }
}

impl Driver for BlockingDriver {
    fn submit(&mut self, request: Request) -> Submitted {
        Submitted::Done(execute(&request))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn reap(&mut self, _: &mut Vec<Completion>) -> io::Result<()> {
        Ok(())
    }

    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        let mut rung = self.bell.rung.lock().unwrap_or_else(PoisonError::into_inner);
        while !*rung {
            rung = match deadline {
                None => self.bell.wake.wait(rung).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    let waited = self.bell.wake.wait_timeout(rung, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        *rung = false;
        Ok(())
    }

    fn in_flight(&self) -> usize {
        0
    }

    fn notifier(&self) -> Arc<dyn Notify> {
        self.bell.clone()
    }

    fn register(&mut self, _: &Arc<Arena>) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::conformance::{self, Harness, TempFile};
    use crate::io::sim::{SimDisk, SimOptions};

    #[test]
    fn transfers_the_right_bytes() {
        let temp = TempFile::new();
        conformance::check_bytes(BlockingDriver::new(), &temp.create());
    }

    #[test]
    fn vectored_reads_fill_their_buffers() {
        let temp = TempFile::new();
        conformance::check_vectored(BlockingDriver::new(), &temp.create());
    }

    #[test]
    fn errors_are_completions() {
        let temp = TempFile::new();
        temp.create();
        conformance::check_read_only_file(BlockingDriver::new(), &temp.open_for_reading());
    }

    #[test]
    fn every_request_is_done_at_submission() {
        let temp = TempFile::new();
        let mut harness = Harness::new(BlockingDriver::new());
        let key = harness.start_write(&temp.create(), 0, &[7; 4096]).unwrap();
        assert_eq!(harness.driver.in_flight(), 0);
        assert!(harness.is_done(key));
    }

    #[test]
    fn simulated_files_are_refused() {
        let disk = SimDisk::new(SimOptions::testing(1));
        let file = disk.create("a", 4096).unwrap();
        let error = Harness::new(BlockingDriver::new()).read(&file, 0, 4096).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_waiting_driver_is_woken() {
        conformance::check_notify(BlockingDriver::new);
        conformance::check_deadline(BlockingDriver::new());
    }
}
