//! The process's resident memory, as the kernel counts it, and what is left for it.

use std::fs;

use crate::error::BenchError;

/// Makes the current resident memory the new peak, so that the next [`peak_bytes`] is of what came
/// after. Where the kernel does not allow it, peaks are since the process started.
pub fn reset_peak() {
    fs::write("/proc/self/clear_refs", "5").ok();
}

/// The resident memory now, in bytes; `None` where the kernel does not say.
pub fn now_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

/// The largest resident memory since the last reset, in bytes; `None` where the kernel does not say.
pub fn peak_bytes() -> Option<u64> {
    status_bytes("VmHWM:")
}

/// The resident pages of files now, those of the program itself above all, in bytes; `None` where the kernel does not say.
pub fn file_bytes() -> Option<u64> {
    status_bytes("RssFile:")
}

fn status_bytes(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(name))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Memory that can be had without swapping, in bytes; `None` where the kernel does not say.
pub fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Checks that `bytes` bytes of memory can be had: the system promises more than it has, and kills
/// who believes it.
///
/// # Errors
/// [`BenchError::Memory`] with `purpose` and `advice`.
pub fn require(bytes: u64, purpose: &'static str, advice: &'static str) -> Result<(), BenchError> {
    match available_bytes() {
        Some(available) if bytes > available => {
            Err(BenchError::Memory { purpose, bytes, available, advice })
        }
        _ => Ok(()),
    }
}
