//! Pages of machine code: written once, then executable, and never both at a time. They count in the memory budget and are given back
//! when the last one who uses the code lets go of it.

use std::fs::OpenOptions;
use std::io::Write;

use memmap2::{Mmap, MmapMut};
use weft_rt::memory::{Ledger, Reservation};

/// Code of one shape.
#[derive(Debug)]
pub(crate) struct Pages {
    map: Mmap,
    _memory: Reservation,
}

/// What pages are multiples of, in bytes, for the budget.
const PAGE_BYTES: u64 = 4096;

/// Functions begin at multiples of so many bytes.
const FUNCTION_BYTES: usize = 64;

impl Pages {
    /// Pages with these functions, and where each begins. `None` if there is no memory for them, or if the system does not let memory
    /// become executable.
    pub(crate) fn new(functions: &[&[u8]], ledger: &Ledger) -> Option<(Pages, Vec<usize>)> {
        let mut starts = Vec::new();
        let mut bytes = 0;
        for function in functions {
            starts.push(bytes);
            bytes += function.len().next_multiple_of(FUNCTION_BYTES);
        }
        let memory = ledger.try_reserve((bytes as u64).next_multiple_of(PAGE_BYTES))?;
        let mut map = MmapMut::map_anon(bytes.max(1)).ok()?;
        for (function, start) in functions.iter().zip(&starts) {
            map[*start..*start + function.len()].copy_from_slice(function);
        }
        let map = map.make_exec().ok()?;
        #[cfg(target_arch = "aarch64")]
        {
            // SAFETY: the pages are mapped.
            unsafe {
                wasmtime_internal_jit_icache_coherence::clear_cache(map.as_ptr().cast(), map.len())
                    .ok()?;
            }
            wasmtime_internal_jit_icache_coherence::pipeline_flush_mt().ok()?;
        }
        Some((Pages { map, _memory: memory.mapped() }, starts))
    }

    /// The address of what begins at a place.
    pub(crate) fn address(&self, start: usize) -> *const u8 {
        self.map[start..].as_ptr()
    }

    /// Bytes that the functions take.
    pub(crate) fn bytes(&self) -> u64 {
        self.map.len() as u64
    }
}

/// Tells `perf` the names of functions, if the variable `WEFT_PERF_MAP` is 1: lines of address, length and name in
/// `/tmp/perf-PID.map`.
pub(crate) fn note_for_perf(pages: &Pages, functions: &[(usize, usize, String)]) {
    if std::env::var_os("WEFT_PERF_MAP").is_none_or(|value| value != "1") {
        return;
    }
    let mut lines = String::new();
    for (start, bytes, name) in functions {
        lines.push_str(&format!("{:x} {bytes:x} {name}\n", pages.address(*start) as usize));
    }
    let path = format!("/tmp/perf-{}.map", std::process::id());
    let file = OpenOptions::new().create(true).append(true).open(&path);
    if let Err(error) = file.and_then(|mut file| file.write_all(lines.as_bytes())) {
        log::warn!("perf does not learn the names of compiled code: {path}: {error}");
    }
}
