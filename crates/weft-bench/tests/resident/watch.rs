//! How much memory the process has had while something ran, compared with what it may have: without the pages of its own code, which
//! the kernel takes back when it needs them.

use libtest_mimic::Failed;
use weft_bench::experiment::memory::allowed_bytes;
use weft_bench::resident;
use weft_rt::memory::heap;

/// Does some work with a database of this memory limit in bytes.
///
/// # Errors
/// Those of the work, or if the process has had more memory than it may have. Code that is not optimized is several times as large as
/// code that is: in a debug build that is not looked at.
pub fn watch(memory_limit: u64, work: impl FnOnce() -> Result<(), Failed>) -> Result<(), Failed> {
    // What was there before is not this one's.
    heap::trim(0, 0);
    resident::reset_peak();
    let unknown = || "it is not known how much memory is resident";
    let code_before = resident::file_bytes().ok_or_else(unknown)?;
    work()?;
    let code = code_before.min(resident::file_bytes().ok_or_else(unknown)?);
    // Code that has come or gone meanwhile counts.
    let had = resident::peak_bytes().ok_or_else(unknown)?.saturating_sub(code);
    let allowed = allowed_bytes(memory_limit);
    match had <= allowed || cfg!(debug_assertions) {
        true => Ok(()),
        false => Err(format!("{had} bytes were resident, and {allowed} may be").into()),
    }
}
