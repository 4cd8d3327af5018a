//! The io_uring driver: one ring per worker, shared with nobody.
//!
//! Requests are collected in the submission queue and handed over by one system call (Spilly,
//! section 5.1). Where the kernel has them, the ring uses single-issuer mode and deferred task work,
//! so that completions are processed when this worker asks for them instead of interrupting it;
//! files and arenas are registered, which spares each request the look-up of the file and the
//! pinning of the buffer.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use io_uring::types::{Fd, Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};

use super::arena::{Arena, REGISTERED_BYTES_MAX};
use super::driver::{Completion, Driver, Notify, Operation, Request, Submitted};
use super::file::{File, WeakFile};

/// Files that one ring registers; further ones are used by descriptor.
const FILE_SLOTS: u32 = 64;
/// Arenas that one ring registers; buffers of further ones are transferred as plain ones.
const ARENA_SLOTS: u32 = 64;
/// Smallest submission queue.
const RING_ENTRIES_MIN: u32 = 64;
/// Largest submission queue that the kernel accepts.
const RING_ENTRIES_MAX: u32 = 32_768;
/// Longest single transfer: the kernel's own limit is 2 GiB less a page.
const TRANSFER_BYTES_MAX: u64 = 1 << 30;
/// The flag of `io_uring_enter` that asks for completions (`IORING_ENTER_GETEVENTS`).
const ENTER_GETEVENTS: u32 = 1;
/// Completions of the wake-up descriptor carry this instead of a request's key.
const WAKE_KEY: u64 = u64::MAX;

/// Executes requests through a ring of its own.
pub(crate) struct UringDriver {
    ring: IoUring,
    wake: Arc<EventFd>,
    wake_armed: bool,
    /// Some of what was handed over was not taken.
    is_behind: bool,
    in_flight: usize,
    in_flight_max: usize,
    files: Vec<Option<(WeakFile, usize)>>,
    last_file: (usize, u32),
    arenas: Vec<Option<(Weak<Arena>, u32)>>,
    fixed_files: bool,
    fixed_buffers: bool,
}

impl UringDriver {
    /// A ring with room for `depth` requests.
    ///
    /// # Errors
    /// The system's error where io_uring is refused or memory is short.
    pub(crate) fn new(depth: usize) -> io::Result<UringDriver> {
        let entries = u32::try_from(depth)
            .unwrap_or(RING_ENTRIES_MAX)
            .next_power_of_two()
            .clamp(RING_ENTRIES_MIN, RING_ENTRIES_MAX);
        let ring = build_ring(entries)?;
        // Without sparse tables it is slower only.
        let fixed_files = ring.submitter().register_files_sparse(FILE_SLOTS).is_ok();
        let fixed_buffers = ring.submitter().register_buffers_sparse(ARENA_SLOTS).is_ok();
        let mut driver = UringDriver {
            wake: Arc::new(EventFd::new()?),
            wake_armed: false,
            is_behind: false,
            in_flight: 0,
            // One completion entry stays free for the wake-up.
            in_flight_max: ring.params().cq_entries() as usize - 1,
            files: (0..FILE_SLOTS).map(|_| None).collect(),
            last_file: (0, 0),
            arenas: (0..ARENA_SLOTS).map(|_| None).collect(),
            fixed_files,
            fixed_buffers,
            ring,
        };
        driver.arm_wake()?;
        Ok(driver)
    }

    fn arm_wake(&mut self) -> io::Result<()> {
        let poll = opcode::PollAdd::new(Fd(self.wake.0.as_raw_fd()), libc::POLLIN as u32)
            .build()
            .user_data(WAKE_KEY);
        self.push(&poll)?;
        self.wake_armed = true;
        Ok(())
    }

    /// Puts an entry into the submission queue, submitting what is queued if it is full.
    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: the entry's buffer and file stay valid until its completion: requests by the
            // reactor's contract (see `Request`), the wake-up poll has no buffer.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.submit_queued()?;
        }
    }

    fn submit_queued(&mut self) -> io::Result<()> {
        let submitted = self.ring.submit().map(|_| ());
        self.is_behind = !self.ring.submission().is_empty();
        submitted.or_else(ignore_transient)
    }

    /// The registered slot of a file; `None` where it must be used by descriptor.
    fn file_slot(&mut self, file: &File, fd: i32) -> Option<u32> {
        let identity = file.identity();
        if self.last_file.0 == identity {
            return Some(self.last_file.1);
        }
        if !self.fixed_files {
            return None;
        }
        let known =
            self.files.iter().position(|slot| matches!(slot, Some((_, id)) if *id == identity));
        let slot = match known {
            Some(slot) => slot,
            None => {
                self.release_closed_files();
                let slot = self.files.iter().position(Option::is_none)?;
                self.ring.submitter().register_files_update(slot as u32, &[fd]).ok()?;
                self.files[slot] = Some((file.downgrade(), identity));
                slot
            }
        };
        self.last_file = (identity, slot as u32);
        Some(slot as u32)
    }

    /// Lets go of registered files that nobody else has open any more.
    fn release_closed_files(&mut self) {
        for (slot, entry) in self.files.iter_mut().enumerate() {
            if entry.as_ref().is_some_and(|(file, _)| !file.is_open()) {
                // A slot that cannot be cleared is kept, and tried again the next time.
                if self.ring.submitter().register_files_update(slot as u32, &[-1]).is_ok() {
                    *entry = None;
                    self.last_file = (0, 0);
                }
            }
        }
    }

    fn release_dropped_arenas(&mut self) {
        for (slot, entry) in self.arenas.iter_mut().enumerate() {
            if entry.as_ref().is_some_and(|(arena, _)| arena.strong_count() == 0) {
                let none = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
                // SAFETY: an empty entry names no memory.
                let cleared = unsafe {
                    self.ring.submitter().register_buffers_update(slot as u32, &[none], None)
                };
                if cleared.is_ok() {
                    *entry = None;
                }
            }
        }
    }

    fn arena_slot(&self, id: u32) -> Option<u16> {
        let slot =
            self.arenas.iter().position(|slot| matches!(slot, Some((_, known)) if *known == id))?;
        Some(slot as u16)
    }

    fn entry(&mut self, request: &Request, fd: i32) -> squeue::Entry {
        let len = request.len.min(TRANSFER_BYTES_MAX) as u32;
        let buffer = request.arena.and_then(|id| self.arena_slot(id));
        let slot = self.file_slot(&request.file, fd);
        macro_rules! on_file {
            ($file:expr) => {
                match (request.operation, buffer) {
                    (Operation::Read, Some(index)) => {
                        opcode::ReadFixed::new($file, request.ptr, len, index)
                            .offset(request.offset)
                            .build()
                    }
                    (Operation::Read, None) => {
                        opcode::Read::new($file, request.ptr, len).offset(request.offset).build()
                    }
                    (Operation::ReadVectored, _) => {
                        let vectors = request.ptr.cast::<libc::iovec>();
                        opcode::Readv::new($file, vectors, request.parts)
                            .offset(request.offset)
                            .build()
                    }
                    (Operation::Write, Some(index)) => {
                        opcode::WriteFixed::new($file, request.ptr, len, index)
                            .offset(request.offset)
                            .build()
                    }
                    (Operation::Write, None) => {
                        opcode::Write::new($file, request.ptr, len).offset(request.offset).build()
                    }
                    (Operation::Sync, _) => {
                        opcode::Fsync::new($file).flags(FsyncFlags::DATASYNC).build()
                    }
                    (Operation::Allocate, _) => {
                        opcode::Fallocate::new($file, request.len).offset(request.offset).build()
                    }
                }
            };
        }
        match slot {
            Some(slot) => on_file!(Fixed(slot)),
            None => on_file!(Fd(fd)),
        }
    }

    fn collect(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        let mut woken = false;
        for entry in self.ring.completion() {
            if entry.user_data() == WAKE_KEY {
                woken = true;
                continue;
            }
            let result = entry.result();
            self.in_flight -= 1;
            done.push(Completion {
                key: entry.user_data() as u32,
                result: usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)),
            });
        }
        if woken {
            self.wake.clear();
            self.wake_armed = false;
            self.arm_wake()?;
        }
        Ok(())
    }

    /// Has the kernel post completions whose processing it has deferred; submits nothing.
    fn run_deferred(&mut self) -> io::Result<()> {
        let queue = self.ring.submission();
        if !queue.taskrun() && !queue.cq_overflow() {
            return Ok(());
        }
        drop(queue);
        // SAFETY: without a submission and without an argument the call only posts completions.
        let result =
            unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, 0, ENTER_GETEVENTS, None) };
        match result {
            Ok(_) => Ok(()),
            Err(error) => ignore_transient(error),
        }
    }
}

impl Driver for UringDriver {
    fn submit(&mut self, request: Request) -> Submitted {
        let Some(fd) = request.file.raw_fd() else {
            return Submitted::Done(Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a simulated file can be used with the sim driver only",
            )));
        };
        if i64::try_from(request.offset).is_err() {
            // The kernel takes -1 for the descriptor's own position.
            return Submitted::Done(Err(io::Error::from_raw_os_error(libc::EINVAL)));
        }
        if self.in_flight >= self.in_flight_max {
            return Submitted::Full;
        }
        let entry = self.entry(&request, fd).user_data(u64::from(request.key));
        if let Err(error) = self.push(&entry) {
            return Submitted::Done(Err(error));
        }
        self.in_flight += 1;
        Submitted::Queued
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() { Ok(()) } else { self.submit_queued() }
    }

    fn reap(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        if self.is_behind {
            self.submit_queued()?;
        }
        self.run_deferred()?;
        self.collect(done)
    }

    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.release_closed_files();
        self.release_dropped_arenas();
        if !self.ring.completion().is_empty() {
            return self.flush();
        }
        let result = match deadline {
            None => self.ring.submit_and_wait(1),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                let left = Timespec::from(left.max(Duration::from_nanos(1)));
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&left))
            }
        };
        match result {
            Ok(_) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => Ok(()),
            Err(error) => ignore_transient(error),
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn notifier(&self) -> Arc<dyn Notify> {
        self.wake.clone()
    }

    fn register(&mut self, arena: &Arc<Arena>) -> bool {
        if self.arena_slot(arena.id()).is_some() {
            return true;
        }
        if !self.fixed_buffers || arena.len() > REGISTERED_BYTES_MAX {
            return false;
        }
        self.release_dropped_arenas();
        let Some(slot) = self.arenas.iter().position(Option::is_none) else { return false };
        let vector = libc::iovec { iov_base: arena.as_ptr().as_ptr().cast(), iov_len: arena.len() };
        // SAFETY: the kernel pins the mapping's pages itself; buffers of the arena are only named
        // while they live, and the arena lives as long as any of its buffers.
        let result =
            unsafe { self.ring.submitter().register_buffers_update(slot as u32, &[vector], None) };
        match result {
            Ok(()) => {
                self.arenas[slot] = Some((Arc::downgrade(arena), arena.id()));
                true
            }
            Err(error) => {
                log::info!(
                    "{} MiB of buffers are not registered with io_uring ({error}; raise the \
                     memlock limit to allow it); plain buffers are used",
                    arena.len() >> 20
                );
                false
            }
        }
    }
}

impl Drop for UringDriver {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight > 0 {
            if let Err(error) = self.wait(None).and_then(|()| self.reap(&mut done)) {
                // The kernel may still write to buffers that are freed after this: no way on is safe.
                log::error!("cannot wait for {} requests in flight: {error}", self.in_flight);
                std::process::abort();
            }
        }
    }
}

/// The best ring that this kernel has.
fn build_ring(entries: u32) -> io::Result<IoUring> {
    let completions = entries.saturating_mul(2).min(2 * RING_ENTRIES_MAX);
    let deferred = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_cqsize(completions)
        .dontfork()
        .build(entries);
    match deferred {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            // Kernels before 6.1.
            IoUring::builder().setup_cqsize(completions).dontfork().build(entries)
        }
        other => other,
    }
}

/// Errors of `io_uring_enter` after which the same call succeeds later.
fn ignore_transient(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
        _ => Err(error),
    }
}

/// The descriptor that other threads write to to wake the worker out of its ring.
struct EventFd(OwnedFd);

impl EventFd {
    fn new() -> io::Result<EventFd> {
        // SAFETY: `eventfd` touches no memory of ours.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made, and nobody else has it.
        Ok(EventFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: reads 8 bytes into `count`; when there is nothing to read, nothing is to be
        // cleared.
        unsafe { libc::read(self.0.as_raw_fd(), ptr::from_mut(&mut count).cast(), 8) };
    }
}

impl Notify for EventFd {
    fn notify(&self) {
        let one = 1u64;
        // SAFETY: writes the 8 bytes of `one`; it fails only when the counter is full, and then
        // the worker is about to be woken anyway.
        unsafe { libc::write(self.0.as_raw_fd(), ptr::from_ref(&one).cast(), 8) };
    }
}
