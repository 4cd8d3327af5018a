//! What these tests run over: a driver with a place for files; seeds; a time limit.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weft_rt::io::{Access, DriverKind, File};
use weft_rt::{Runtime, RuntimeOptions};

/// Far more than any test takes, so that a lost wake-up is a failure and not a hang.
const LIMIT: Duration = Duration::from_secs(300);

static NEXT_SCRATCH: AtomicU64 = AtomicU64::new(0);

/// A directory of its own for files, which nothing is written to by these tests: trees stay in memory.
pub struct Setup {
    directory: PathBuf,
}

impl Setup {
    pub fn new() -> Setup {
        let number = NEXT_SCRATCH.fetch_add(1, Ordering::Relaxed);
        let directory = format!("weft-txn-test-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(directory);
        std::fs::create_dir(&directory).unwrap();
        Setup { directory }
    }

    /// A new directory in it.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.directory.join(name);
        std::fs::create_dir(&path).unwrap();
        path
    }

    /// Another directory, for files of the same names.
    pub fn another(&self) -> Setup {
        Setup::new()
    }

    /// A new file, open for reading and writing.
    pub fn file(&self, name: &str) -> File {
        File::open(self.directory.join(name), Access::Create).unwrap()
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.directory).ok();
    }
}

pub fn runtime(kind: DriverKind, workers: usize) -> Runtime {
    let options = RuntimeOptions { workers, pin: false, driver: kind, io_depth: 16 };
    Runtime::new(&options).unwrap()
}

/// The seeds of a randomized test: fixed ones and a fresh one, printed.
pub fn seeds(test: &'static str) -> impl Iterator<Item = u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    [1, 0xC0FFEE, now.as_nanos() as u64]
        .into_iter()
        .inspect(move |seed| println!("{test}: seed {seed}"))
}

/// Runs `test` on a thread of its own.
///
/// # Panics
/// If it panics, or has not ended after five minutes.
pub fn within_limit(test: impl FnOnce() + Send + 'static) {
    let (ended, end) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        ended.send(()).ok();
    });
    match end.recv_timeout(LIMIT) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("hangs: a wake-up was lost"),
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}
