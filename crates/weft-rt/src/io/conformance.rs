//! What every driver must do, checked through the trait alone, by a stand-in for the reactor.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::buffer::IoBuf;
use super::driver::{Completion, Driver, Operation, Request, Submitted};
use super::file::{Access, File};

/// The driver had no room.
#[derive(Debug)]
pub(crate) struct Full;

/// Owns the buffers of requests in flight, as the reactor does.
pub(crate) struct Harness<D: Driver> {
    /// Dropped first: it may still use the buffers.
    pub(crate) driver: D,
    buffers: HashMap<u32, Option<IoBuf>>,
    /// The buffers of vectored reads, and the arrays that name them.
    vectored: HashMap<u32, (Vec<IoBuf>, Vec<libc::iovec>)>,
    results: HashMap<u32, io::Result<usize>>,
    /// Keys in the order of their completion.
    pub(crate) order: Vec<u32>,
    next_key: u32,
}

impl<D: Driver> Harness<D> {
    pub(crate) fn new(driver: D) -> Harness<D> {
        Harness {
            driver,
            buffers: HashMap::new(),
            vectored: HashMap::new(),
            results: HashMap::new(),
            order: Vec::new(),
            next_key: 0,
        }
    }

    fn start(
        &mut self,
        operation: Operation,
        file: &File,
        buffer: Option<IoBuf>,
        offset: u64,
        len: u64,
    ) -> Result<u32, Full> {
        let key = self.next_key;
        let ptr = buffer.as_ref().map_or(NonNull::dangling(), IoBuf::as_ptr).as_ptr();
        self.buffers.insert(key, buffer);
        let file = file.clone();
        self.submit(Request { key, operation, file, ptr, parts: 0, len, offset, arena: None })
    }

    /// Starts a read into buffers of these lengths.
    pub(crate) fn start_vectored(
        &mut self,
        file: &File,
        offset: u64,
        lens: &[usize],
    ) -> Result<u32, Full> {
        let key = self.next_key;
        let mut buffers: Vec<IoBuf> = lens.iter().map(|&len| IoBuf::zeroed(len)).collect();
        let mut vectors: Vec<libc::iovec> = buffers
            .iter_mut()
            .map(|buffer| libc::iovec {
                iov_base: buffer.as_mut_ptr().cast(),
                iov_len: buffer.len(),
            })
            .collect();
        let (ptr, parts) = (vectors.as_mut_ptr().cast(), vectors.len() as u32);
        self.buffers.insert(key, None);
        self.vectored.insert(key, (buffers, vectors));
        let len = lens.iter().sum::<usize>() as u64;
        let (operation, file) = (Operation::ReadVectored, file.clone());
        self.submit(Request { key, operation, file, ptr, parts, len, offset, arena: None })
    }

    fn submit(&mut self, request: Request) -> Result<u32, Full> {
        let key = request.key;
        match self.driver.submit(request) {
            Submitted::Queued => {}
            Submitted::Done(result) => self.complete(Completion { key, result }),
            Submitted::Full => {
                self.buffers.remove(&key);
                return Err(Full);
            }
        }
        self.next_key += 1;
        Ok(key)
    }

    fn complete(&mut self, completion: Completion) {
        let key = completion.key;
        assert!(self.buffers.contains_key(&key), "completion of an unknown request {key}");
        assert!(self.results.insert(key, completion.result).is_none(), "{key} completed twice");
        self.order.push(key);
    }

    pub(crate) fn start_read(&mut self, file: &File, offset: u64, len: usize) -> Result<u32, Full> {
        self.start(Operation::Read, file, Some(IoBuf::zeroed(len)), offset, len as u64)
    }

    pub(crate) fn start_write(
        &mut self,
        file: &File,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u32, Full> {
        let mut buffer = IoBuf::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        self.start(Operation::Write, file, Some(buffer), offset, bytes.len() as u64)
    }

    pub(crate) fn start_sync(&mut self, file: &File) -> Result<u32, Full> {
        self.start(Operation::Sync, file, None, 0, 0)
    }

    pub(crate) fn is_done(&self, key: u32) -> bool {
        self.results.contains_key(&key)
    }

    /// Reaps once; true if something completed.
    pub(crate) fn reap(&mut self) -> bool {
        let mut done = Vec::new();
        self.driver.reap(&mut done).unwrap();
        let any = !done.is_empty();
        done.into_iter().for_each(|completion| self.complete(completion));
        any
    }

    /// Waits until `key` is done; its result and its buffer.
    pub(crate) fn finish(&mut self, key: u32) -> (io::Result<usize>, Option<IoBuf>) {
        while !self.is_done(key) {
            self.driver.wait(None).unwrap();
            self.reap();
        }
        (self.results.remove(&key).unwrap(), self.buffers.remove(&key).unwrap())
    }

    /// Lets go of the buffers and the results of all requests that are done.
    pub(crate) fn forget_done(&mut self) {
        for (key, _) in self.results.drain() {
            self.buffers.remove(&key);
        }
    }

    pub(crate) fn read(&mut self, file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let key = self.start_read(file, offset, len).unwrap();
        let (result, buffer) = self.finish(key);
        result.map(|count| buffer.unwrap()[..count].to_vec())
    }

    /// What a vectored read into buffers of these lengths finds, together.
    pub(crate) fn read_vectored(
        &mut self,
        file: &File,
        offset: u64,
        lens: &[usize],
    ) -> io::Result<Vec<u8>> {
        let key = self.start_vectored(file, offset, lens).unwrap();
        let (result, _) = self.finish(key);
        let (buffers, _) = self.vectored.remove(&key).unwrap();
        let bytes = buffers.iter().flat_map(|buffer| buffer.iter().copied());
        result.map(|count| bytes.take(count).collect())
    }

    pub(crate) fn write(&mut self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let key = self.start_write(file, offset, bytes).unwrap();
        self.finish(key).0
    }

    pub(crate) fn sync(&mut self, file: &File) -> io::Result<usize> {
        let key = self.start_sync(file).unwrap();
        self.finish(key).0
    }

    pub(crate) fn allocate(&mut self, file: &File, offset: u64, len: u64) -> io::Result<usize> {
        let key = self.start(Operation::Allocate, file, None, offset, len).unwrap();
        self.finish(key).0
    }
}

/// A path of its own in the system's temporary directory; the file is removed on drop.
pub(crate) struct TempFile(pub(crate) PathBuf);

impl TempFile {
    pub(crate) fn new() -> TempFile {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weft-rt-driver-{}-{number}", std::process::id());
        TempFile(std::env::temp_dir().join(name))
    }

    pub(crate) fn create(&self) -> File {
        File::open(&self.0, Access::Create).unwrap()
    }

    pub(crate) fn open_for_reading(&self) -> File {
        File::open(&self.0, Access::Read).unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

fn page(number: u64) -> Vec<u8> {
    (0..4096u64).map(|at| (number * 31 + at * 7 + at / 256) as u8).collect()
}

/// Reads, writes, syncs and allocations of an empty file do what they say.
pub(crate) fn check_bytes<D: Driver>(driver: D, file: &File) {
    let mut harness = Harness::new(driver);
    assert_eq!(harness.read(file, 0, 4096).unwrap(), [], "an empty file has nothing to read");
    assert_eq!(harness.allocate(file, 0, 32 * 4096).unwrap(), 0);
    assert_eq!(file.size().unwrap(), 32 * 4096);
    assert_eq!(harness.read(file, 4096, 4096).unwrap(), [0; 4096], "allocated bytes are zero");
    assert_eq!(harness.write(file, 8192, &page(2)).unwrap(), 4096);
    assert_eq!(harness.allocate(file, 0, 32 * 4096).unwrap(), 0);
    assert_eq!(harness.read(file, 8192, 4096).unwrap(), page(2), "allocation keeps the bytes");
    assert_eq!(harness.write(file, 40 * 4096, &page(40)).unwrap(), 4096);
    assert_eq!(file.size().unwrap(), 41 * 4096);
    assert_eq!(harness.read(file, 35 * 4096, 4096).unwrap(), [0; 4096], "a hole reads as zeros");
    assert_eq!(harness.read(file, 40 * 4096, 8192).unwrap(), page(40), "short at the end");
    assert_eq!(harness.read(file, 41 * 4096, 4096).unwrap(), [], "0 at the end");
    assert_eq!(harness.read(file, 1 << 30, 4096).unwrap(), [], "0 beyond the end");
    let writes: Vec<u32> =
        (0..64).map(|at| harness.start_write(file, at * 4096, &page(at + 100)).unwrap()).collect();
    for key in writes {
        assert_eq!(harness.finish(key).0.unwrap(), 4096);
    }
    assert_eq!(harness.sync(file).unwrap(), 0);
    let reads: Vec<u32> =
        (0..64).map(|at| harness.start_read(file, at * 4096, 4096).unwrap()).collect();
    for (at, key) in reads.into_iter().enumerate().rev() {
        let (result, buffer) = harness.finish(key);
        assert_eq!(result.unwrap(), 4096);
        assert_eq!(buffer.unwrap()[..], page(at as u64 + 100), "page {at}");
    }
    assert_eq!(harness.driver.in_flight(), 0);
}

/// Vectored reads fill their buffers in order, and end where the file does.
pub(crate) fn check_vectored<D: Driver>(driver: D, file: &File) {
    let mut harness = Harness::new(driver);
    let all: Vec<u8> = (0..20).flat_map(page).collect();
    assert_eq!(harness.write(file, 0, &all).unwrap(), all.len());
    for lens in [&[4096][..], &[4096, 4096], &[8192, 4096, 12_288], &[4096; 16]] {
        for first in [0, 3] {
            let total: usize = lens.iter().sum();
            let expected = &all[first * 4096..first * 4096 + total];
            let found = harness.read_vectored(file, first as u64 * 4096, lens).unwrap();
            assert!(found == expected, "{lens:?} from page {first}");
        }
    }
    let found = harness.read_vectored(file, 17 * 4096, &[8192, 8192, 4096]).unwrap();
    assert!(found == all[17 * 4096..], "short at the end");
    assert_eq!(harness.read_vectored(file, 20 * 4096, &[4096, 4096]).unwrap(), []);
    let keys: Vec<u32> =
        (0..10).map(|at| harness.start_vectored(file, at * 4096, &[4096; 5]).unwrap()).collect();
    for (at, key) in keys.into_iter().enumerate() {
        assert_eq!(harness.finish(key).0.unwrap(), 5 * 4096);
        let (buffers, _) = harness.vectored.remove(&key).unwrap();
        for (number, buffer) in buffers.iter().enumerate() {
            assert_eq!(buffer[..], page((at + number) as u64), "page {number} from {at}");
        }
    }
    assert_eq!(harness.driver.in_flight(), 0);
}

/// A failed request is a completion with the system's error, and others go on.
pub(crate) fn check_read_only_file<D: Driver>(driver: D, file: &File) {
    let mut harness = Harness::new(driver);
    let error = harness.write(file, 0, &[1; 4096]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    assert_eq!(harness.read(file, 0, 4096).unwrap(), []);
}

/// The driver accepts exactly `limit` requests, and more after a reap.
pub(crate) fn check_full<D: Driver>(driver: D, file: &File, limit: usize) {
    let mut harness = Harness::new(driver);
    let keys: Vec<u32> = (0..limit)
        .map(|at| harness.start_write(file, at as u64 * 4096, &[1; 4096]).unwrap())
        .collect();
    assert_eq!(harness.driver.in_flight(), limit);
    harness.start_read(file, 0, 4096).unwrap_err();
    harness.driver.flush().unwrap();
    harness.start_read(file, 0, 4096).unwrap_err();
    for key in keys {
        harness.finish(key).0.unwrap();
    }
    assert_eq!(harness.read(file, 0, 4096).unwrap(), [1; 4096]);
}

/// A notification from another thread ends a wait, whether it came before or during it.
pub(crate) fn check_notify<D: Driver>(make: impl FnOnce() -> D + Send) {
    let (send, receive) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut driver = make();
            let notifier = driver.notifier();
            notifier.notify();
            driver.wait(None).unwrap();
            send.send(notifier).unwrap();
            driver.wait(None).unwrap();
        });
        let notifier = receive.recv().unwrap();
        // Usually the driver sleeps by now; if not, this is the other case once more.
        thread::sleep(Duration::from_millis(20));
        notifier.notify();
    });
}

/// A wait ends at its deadline, and not before.
pub(crate) fn check_deadline<D: Driver>(mut driver: D) {
    let deadline = driver.now() + Duration::from_millis(5);
    let began = Instant::now();
    driver.wait(Some(deadline)).unwrap();
    assert!(driver.now() >= deadline);
    assert!(began.elapsed() < Duration::from_secs(5));
}
