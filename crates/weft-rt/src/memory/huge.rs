//! Large blocks on huge pages, for what is too large for the [slab](super::slab) and is read or written in no order.
//!
//! A gigabyte of small pages takes the system half a second to hand out and a tenth to take back, at once where a block is
//! zeroed or freed; and every other access to it misses the processor's table of pages. Huge ones come as they
//! are first used, each within a fraction of a millisecond, and go in no time.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::io::arena::{Arena, HUGE_PAGE_BYTES};

/// Bytes of all blocks.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes that blocks have, whether they have come or not.
pub(super) fn huge_bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}

/// Some zeroed memory, given back when it is dropped. It counts as allocated
/// ([`live_bytes`](super::heap::live_bytes)).
#[derive(Debug)]
pub struct HugeBlock {
    arena: Arc<Arena>,
    /// Behind the memory: it is given back first.
    _counted: Counted,
}

/// Bytes that count as long as this is there.
#[derive(Debug)]
struct Counted(usize);

impl HugeBlock {
    /// A block of `bytes`, aligned to [`HUGE_PAGE_BYTES`]. What is beyond the last whole huge page is on small ones.
    ///
    /// # Errors
    /// The system's error if it has no address space or memory left.
    ///
    /// # Panics
    /// If `bytes` is 0.
    pub fn new(bytes: usize) -> io::Result<HugeBlock> {
        let arena = Arena::new(bytes)?;
        let whole_bytes = bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        arena.use_small_pages(whole_bytes..arena.len());
        BYTES.fetch_add(bytes, Ordering::Relaxed);
        Ok(HugeBlock { arena, _counted: Counted(bytes) })
    }

    /// The address of its first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.arena.as_ptr()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_zeroed_and_counted() {
        for bytes in [1, 4097, HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES + 5] {
            let block = HugeBlock::new(bytes).unwrap();
            assert!(huge_bytes() >= bytes);
            let start = block.start();
            assert!(start.addr().get().is_multiple_of(HUGE_PAGE_BYTES));
            // SAFETY: the block's bytes, which nobody else has.
            let all = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), bytes) };
            assert!(all.iter().all(|byte| *byte == 0));
            all.fill(7);
        }
    }
}
