//! How much memory the process has while something runs, compared with what it may have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use libtest_mimic::Failed;
use weft_bench::experiment::memory::allowed_bytes;
use weft_bench::resident;
use weft_rt::memory::{code, heap};

/// Does some work with a database of this memory limit in bytes.
///
/// # Errors
/// Those of the work, or if the process has had more memory than it may have.
pub fn watch(memory_limit: u64, work: impl FnOnce() -> Result<(), Failed>) -> Result<(), Failed> {
    // What was there before is not this one's.
    heap::trim(0, 0);
    resident::reset_peak();
    let sampler = Sampler::start();
    let result = work();
    let (without_code, peak) = (sampler.end(), resident::peak_bytes());
    result?;
    let allowed = allowed_bytes(memory_limit);
    // Code that is not optimized is several times as large as code that is.
    let had = if cfg!(debug_assertions) { without_code } else { peak.unwrap_or(0) };
    match had {
        0 => Err("it is not known how much memory is resident".into()),
        had if had <= allowed => Ok(()),
        had => Err(format!("{had} bytes were resident, and {allowed} may be").into()),
    }
}

/// Looks again and again how much memory the process has beside its code.
struct Sampler {
    is_done: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Sampler {
    fn start() -> Sampler {
        let is_done = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&is_done);
        let thread = thread::spawn(move || {
            let mut most = 0;
            let mut is_last = false;
            while !is_last {
                is_last = of_thread.load(Ordering::Relaxed);
                let code_bytes = code::resident_bytes().unwrap_or(0);
                most = most.max(resident::now_bytes().unwrap_or(0).saturating_sub(code_bytes));
                thread::sleep(Duration::from_millis(1));
            }
            most
        });
        Sampler { is_done, thread }
    }

    /// The most that it has seen, in bytes.
    fn end(self) -> u64 {
        self.is_done.store(true, Ordering::Relaxed);
        self.thread.join().expect("it only looks")
    }
}
