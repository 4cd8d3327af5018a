//! The log: redo records of transactions, made durable by group commit through the worker's own ring.
//!
//! A transaction hands its records over before others can see what it has done. A *flush* takes the records of all
//! transactions up to a timestamp below which nothing is undecided, writes them as one block in the order of their
//! timestamps, and syncs; the next flush begins after it. So what a crash leaves is all transactions up to some
//! timestamp, and none behind it: nothing of a transaction that has seen what was lost. Whoever commits durably is
//! parked meanwhile; one flush is for all that wait. Relaxed commits go on, and a flush follows within the time that they
//! allow.

pub(crate) mod block;
pub(crate) mod checkpoint;
pub(crate) mod files;
pub(crate) mod recover;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use weft_rt::background;
use weft_rt::io::File;
use weft_rt::sync::ParkingLot;
use weft_rt::{sleep, spawn_local, try_worker_index, yield_now};

use crate::engine::Core;
use crate::error::{Result, TxnError};
use crate::primitives::lock;
pub use files::LogDirectory;

/// Queues that records wait in, by worker.
const QUEUES: usize = 16;
/// Bytes of waiting records from which on relaxed commits wait, too.
const BACKLOG_BYTES: u64 = 16 << 20;

/// How a log is kept.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Where its files lie.
    pub directory: LogDirectory,
    /// Bytes of a file of the log, from which on the next one is begun: a multiple of 4 KiB.
    pub segment_bytes: u64,
}

impl LogOptions {
    /// A log in a directory, in files of 64 MiB.
    pub fn new(directory: LogDirectory) -> LogOptions {
        LogOptions { directory, segment_bytes: 64 << 20 }
    }
}

/// Records of a transaction that has committed at a timestamp.
type Records = (u64, Vec<u8>);

/// The log of an engine.
pub(crate) struct Log {
    options: LogOptions,
    queues: Box<[Mutex<Vec<Records>>]>,
    queued_bytes: AtomicU64,
    /// All that was committed up to this timestamp is durable.
    durable: AtomicU64,
    /// Somebody waits for this timestamp.
    wanted: AtomicU64,
    is_flushing: AtomicBool,
    is_scheduled: AtomicBool,
    failed: OnceLock<String>,
    /// Where the next block goes; `None` before the log was read, and while a flush has it.
    tail: Mutex<Option<Tail>>,
    /// Files that are full, with the timestamp of their last block.
    sealed: Mutex<Vec<(u64, u64)>>,
}

/// The end of the log.
pub(crate) struct Tail {
    /// The file that is written to; `None` if one is to be made.
    segment: Option<Segment>,
    pub(crate) next_segment: u64,
    pub(crate) sequence: u64,
    /// The timestamp of the last block.
    pub(crate) last: u64,
}

struct Segment {
    number: u64,
    file: File,
    end: u64,
    bytes: u64,
}

impl Tail {
    pub(crate) fn new(next_segment: u64, sequence: u64, last: u64) -> Tail {
        Tail { segment: None, next_segment, sequence, last }
    }
}

impl Log {
    pub(crate) fn new(options: LogOptions) -> Log {
        Log {
            options,
            queues: (0..QUEUES).map(|_| Mutex::default()).collect(),
            queued_bytes: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            is_flushing: AtomicBool::new(false),
            is_scheduled: AtomicBool::new(false),
            failed: OnceLock::new(),
            tail: Mutex::new(None),
            sealed: Mutex::default(),
        }
    }

    pub(crate) fn directory(&self) -> &LogDirectory {
        &self.options.directory
    }

    /// The log goes on from here.
    pub(crate) fn begin(&self, tail: Tail, sealed: Vec<(u64, u64)>) {
        self.durable.store(tail.last, Ordering::SeqCst);
        *lock(&self.sealed) = sealed;
        *lock(&self.tail) = Some(tail);
    }

    /// True once it was read.
    pub(crate) fn is_begun(&self) -> bool {
        self.durable.load(Ordering::Relaxed) > 0
    }

    /// The error of a log that cannot be written any more.
    pub(crate) fn check(&self) -> Result<()> {
        match self.failed.get() {
            Some(reason) => Err(TxnError::LogFailed { reason: reason.clone() }),
            None if !self.is_begun() => {
                Err(TxnError::LogFailed { reason: "it was not recovered from yet".into() })
            }
            None => Ok(()),
        }
    }

    /// Takes the records of a transaction that is about to be seen as committed.
    pub(crate) fn enqueue(&self, at: u64, redo: &[u8]) {
        self.queued_bytes.fetch_add(redo.len() as u64, Ordering::Relaxed);
        let queue = try_worker_index().unwrap_or(0) % QUEUES;
        lock(&self.queues[queue]).push((at, redo.to_vec()));
    }

    fn key(&self) -> usize {
        (&raw const self.durable).addr()
    }

    /// Waits until all is durable that was committed up to `at`.
    pub(crate) async fn wait(&self, core: &Core, at: u64) -> Result<()> {
        while self.durable.load(Ordering::SeqCst) < at {
            self.check()?;
            self.wanted.fetch_max(at, Ordering::SeqCst);
            self.start_flush(core);
            let must_wait =
                || self.durable.load(Ordering::SeqCst) < at && self.failed.get().is_none();
            ParkingLot::global().park(self.key(), must_wait).await;
        }
        Ok(())
    }

    /// Has what was committed up to now become durable within some time.
    pub(crate) async fn flush_within(&self, core: &Core, at: u64, delay: Duration) -> Result<()> {
        if self.queued_bytes.load(Ordering::Relaxed) > BACKLOG_BYTES {
            return self.wait(core, at).await;
        }
        if !self.is_scheduled.swap(true, Ordering::SeqCst)
            && let Some(core) = core.this.upgrade()
        {
            drop(spawn_local(async move {
                sleep(delay).await;
                let Some(log) = &core.log else { return };
                log.is_scheduled.store(false, Ordering::SeqCst);
                log.wanted.fetch_max(core.slots.now(), Ordering::SeqCst);
                log.start_flush(&core);
            }));
        }
        Ok(())
    }

    /// Starts a flush on this worker unless there is one.
    fn start_flush(&self, core: &Core) {
        if !self.is_flushing.swap(true, Ordering::SeqCst)
            && let Some(core) = core.this.upgrade()
        {
            drop(spawn_local(async move {
                let Some(log) = &core.log else { return };
                let flushing = Flushing(log);
                log.flush_all(&core).await;
                std::mem::forget(flushing);
            }));
        }
    }

    /// Flushes as long as somebody waits.
    async fn flush_all(&self, core: &Core) {
        loop {
            while self.wanted.load(Ordering::SeqCst) > self.durable.load(Ordering::SeqCst) {
                if let Err(error) = self.flush(core).await {
                    self.fail(error.to_string());
                    return;
                }
            }
            self.is_flushing.store(false, Ordering::SeqCst);
            // Another may have come to wait just before.
            let is_wanted =
                self.wanted.load(Ordering::SeqCst) > self.durable.load(Ordering::SeqCst);
            if !is_wanted || self.is_flushing.swap(true, Ordering::SeqCst) {
                return;
            }
        }
    }

    fn fail(&self, reason: String) {
        log::error!("the log cannot be written: {reason}");
        self.failed.set(reason).ok();
        ParkingLot::global().unpark_all(self.key());
    }

    /// Writes and syncs one block of what is decided.
    async fn flush(&self, core: &Core) -> Result<()> {
        let decided = loop {
            match core.slots.decided() {
                Some(decided) => break decided,
                None => yield_now().await,
            }
        };
        if decided <= self.durable.load(Ordering::SeqCst) {
            // Whoever is about to commit waits for nothing but others that are.
            yield_now().await;
            return Ok(());
        }
        let mut records = Vec::new();
        for queue in &self.queues {
            records.extend(lock(queue).extract_if(.., |(at, _)| *at <= decided));
        }
        if !records.is_empty() {
            records.sort_unstable_by_key(|(at, _)| *at);
            let bytes: u64 = records.iter().map(|(_, redo)| redo.len() as u64).sum();
            let tail = lock(&self.tail).take();
            let mut tail = tail.expect("one flushes at a time, a log that was read");
            self.write(&mut tail, decided, &records).await?;
            *lock(&self.tail) = Some(tail);
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        self.durable.store(decided, Ordering::SeqCst);
        ParkingLot::global().unpark_all(self.key());
        Ok(())
    }

    async fn write(&self, tail: &mut Tail, decided: u64, records: &[Records]) -> Result<()> {
        let head = block::Head { sequence: tail.sequence, after: tail.last, at: decided };
        let buffer = block::encode(head, records);
        let len = buffer.len() as u64;
        if let Some(full) = tail.segment.take_if(|segment| segment.end + len > segment.bytes) {
            lock(&self.sealed).push((full.number, tail.last));
        }
        if tail.segment.is_none() {
            let number = tail.next_segment;
            let file = self.directory().create(&files::segment_name(number)).await?;
            let bytes = self.options.segment_bytes.max(len);
            // Room for all of it, so that a full device is seen before it matters.
            file.allocate(0, bytes).await?;
            self.directory().sync().await?;
            tail.next_segment += 1;
            tail.segment = Some(Segment { number, file, end: 0, bytes });
        }
        let segment = tail.segment.as_mut().expect("it was made");
        segment.file.write(buffer, segment.end).await.0?;
        segment.file.sync().await?;
        segment.end += len;
        tail.sequence += 1;
        tail.last = decided;
        Ok(())
    }

    /// Removes the files of which nothing is needed behind a timestamp; gives how many.
    pub(crate) async fn remove_until(&self, at: u64) -> Result<usize> {
        let sealed: Vec<(u64, u64)> =
            lock(&self.sealed).extract_if(.., |(_, last)| *last <= at).collect();
        for (number, _) in &sealed {
            self.directory().remove(&files::segment_name(*number)).await?;
        }
        Ok(sealed.len())
    }
}

/// A flush that is under way: if its worker ends before it does, those who wait hear of it.
struct Flushing<'a>(&'a Log);

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        self.0.fail("the worker that wrote it has ended".into());
    }
}

/// Runs what may wait for the system's directories on a thread of its own.
///
/// # Panics
/// If the system gives no thread, or if `work` does.
pub(crate) async fn off_worker<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = weft_rt::sync::oneshot::channel();
    let run = move || drop(sender.send(work()));
    background::spawn("weft-names", run).expect("a thread for the log's directory");
    receiver.await.expect("the thread sends what it has made")
}
