//! What these tests run over: every driver, each with a place for files; seeds; a time limit.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weft_rt::io::sim::{SimClock, SimDisk, SimOptions};
use weft_rt::io::{Access, DriverKind, File};
use weft_rt::{Runtime, RuntimeOptions};

/// Far more than any test takes, so that a lost wake-up is a failure and not a hang.
const LIMIT: Duration = Duration::from_secs(300);

static NEXT_SCRATCH: AtomicU64 = AtomicU64::new(0);

/// A driver and a directory of its own.
pub struct Setup {
    pub name: &'static str,
    pub kind: DriverKind,
    /// The simulated disk that files are on; none for the operating system's.
    pub disk: Option<SimDisk>,
    directory: PathBuf,
}

impl Setup {
    pub fn new(name: &'static str, kind: DriverKind, disk: Option<SimDisk>) -> Setup {
        let number = NEXT_SCRATCH.fetch_add(1, Ordering::Relaxed);
        let directory = format!("weft-test-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(directory);
        std::fs::create_dir(&directory).unwrap();
        Setup { name, kind, disk, directory }
    }

    /// A simulated disk with these options.
    pub fn sim(name: &'static str, options: SimOptions) -> Setup {
        let disk = SimDisk::new(options);
        Setup::new(name, DriverKind::Sim(disk.clone()), Some(disk))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A new file with these bytes, open for reading and writing.
    pub fn file(&self, name: &str, bytes: &[u8]) -> File {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        match &self.disk {
            Some(disk) => {
                // There is none the first time.
                disk.remove(name).ok();
                disk.load_from(name, path).unwrap()
            }
            None => File::open(path, Access::ReadWrite).unwrap(),
        }
    }

    pub fn runtime(&self, workers: usize, io_depth: usize) -> Runtime {
        let kind = self.kind.clone();
        let options = RuntimeOptions { workers, pin: false, driver: kind, io_depth };
        Runtime::new(&options).unwrap()
    }

    /// True if requests suspend their coroutines.
    pub fn suspends(&self) -> bool {
        self.name != "blocking"
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.directory).ok();
    }
}

/// Every driver that works here; the simulated one in both clocks, every request suspended and
/// completions reordered.
pub fn setups(seed: u64) -> Vec<Setup> {
    let mut setups = Vec::new();
    let uring = Setup::new("uring", DriverKind::Uring, None);
    match Runtime::new(&RuntimeOptions { driver: uring.kind.clone(), ..Default::default() }) {
        Ok(_) => setups.push(uring),
        Err(error) => println!("not tested: {error}"),
    }
    setups.push(Setup::new("posix", DriverKind::Posix, None));
    setups.push(Setup::new("blocking", DriverKind::Blocking, None));
    setups.push(Setup::sim("sim", SimOptions::testing(seed)));
    let real = SimOptions { clock: SimClock::Real, ..SimOptions::testing(seed) };
    setups.push(Setup::sim("sim in real time", real));
    for setup in &setups {
        println!("{} with seed {seed}", setup.name);
    }
    setups
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

/// `len` bytes that tell where in which file they belong: one number in every eight.
pub fn pattern(file: u64, len: usize) -> Vec<u8> {
    (0..len.div_ceil(8) as u64)
        .flat_map(|at| (file << 40 | at).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes())
        .take(len)
        .collect()
}
