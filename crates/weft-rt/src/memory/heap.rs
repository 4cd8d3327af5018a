//! The heap, counted: a global allocator that knows how many bytes are allocated.
//!
//! A ledger knows what was reserved in it. What code allocates that reserves nothing, or less than it takes,
//! it learns from here: a program whose `#[global_allocator]` is a [`CountingAllocator`] gives its ledger
//! [`live_bytes`] ([`Ledger::watching`](super::Ledger::watching)), and so the process obeys its memory limit
//! whoever allocates.
//!
//! Counting costs an addition to a counter that few threads share. Threads hand on what they have counted
//! only when it has become much, so that [`live_bytes`] is one load.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use super::huge::huge_bytes;
use super::kept::kept_bytes;
use super::slab::resident_bytes;

/// Counters: threads beyond share them.
const SHARDS: usize = 32;

/// What a counter may have before it is handed on, in bytes, more or less.
const HANDED_ON_BYTES: i64 = 64 << 10;

/// Larger blocks go back to the system at once.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 128 << 10;

/// What an arena has free at its end goes back to the system if it is more.
#[cfg(target_env = "gnu")]
const ARENA_END_BYTES: libc::c_int = 1 << 20;

/// Arenas of the allocator, whose gaps nobody else can use: threads share them.
#[cfg(target_env = "gnu")]
const ARENAS: libc::c_int = 4;

/// Bytes that were allocated and not freed, without what the shards have.
static LIVE: AtomicI64 = AtomicI64::new(0);

/// What was counted and not handed on yet.
static COUNTED: [Shard; SHARDS] = [const { Shard(AtomicI64::new(0)) }; SHARDS];

/// Bytes in gaps of the heap that did not go back to the system when they were to.
static GAPS: AtomicU64 = AtomicU64::new(0);

/// Threads that have a shard.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The shard of this thread; none yet if there is no such shard.
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// A counter with cache lines of its own.
#[repr(align(128))]
struct Shard(AtomicI64);

/// An allocator that counts what another one allocates.
///
/// ```
/// use std::alloc::System;
/// use weft_rt::memory::heap::{CountingAllocator, live_bytes};
///
/// #[global_allocator]
/// static ALLOCATOR: CountingAllocator<System> = CountingAllocator::new(System);
///
/// let before = live_bytes();
/// let block = vec![0_u8; 1 << 20];
/// assert!(live_bytes() > before);
/// # drop(block);
/// ```
#[derive(Debug, Default)]
pub struct CountingAllocator<A> {
    allocator: A,
}

impl<A> CountingAllocator<A> {
    /// Counts what `allocator` allocates.
    pub const fn new(allocator: A) -> CountingAllocator<A> {
        CountingAllocator { allocator }
    }
}

/// About how many bytes of the heap are allocated, as their owners asked for them: wrong by up to 64 KiB for
/// each thread that allocates. Freed blocks that are [kept](super::kept) are among them, what is resident of
/// [blocks](super::slab) on huge pages, [large ones](super::huge), and what [`trim`] could not give back; without those 0
/// if the program has no [`CountingAllocator`].
pub fn live_bytes() -> u64 {
    u64::try_from(LIVE.load(Ordering::Relaxed)).unwrap_or(0)
        + (kept_bytes() + resident_bytes() + huge_bytes()) as u64
        + gap_bytes()
}

/// Bytes in gaps of the heap that count as allocated, as they did not go back to the system.
pub(super) fn gap_bytes() -> u64 {
    GAPS.load(Ordering::Relaxed)
}

/// True if the program's global allocator is a [`CountingAllocator`].
pub fn is_counted() -> bool {
    // This very call may come from a thread that has not allocated anything.
    THREADS.load(Ordering::Relaxed) > 0
}

/// Has the system's allocator give back to the system what is freed, rather than keep it for those who
/// allocate next: for programs that promise to stay small. To be called before there are threads. Does
/// nothing where that allocator is not the GNU C library's.
pub fn give_back_promptly() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_MMAP_THRESHOLD, MAPPED_BYTES),
        (libc::M_TRIM_THRESHOLD, ARENA_END_BYTES),
        (libc::M_ARENA_MAX, ARENAS),
    ] {
        // SAFETY: the call takes numbers, and locks what it changes.
        let is_accepted = unsafe { libc::mallopt(parameter, value) } == 1;
        debug_assert!(is_accepted, "the allocator knows no parameter {parameter}");
    }
}

/// Has the system's allocator give back the pages that are free between its blocks, if the process has more than
/// `most_bytes` of memory that are not a file's. Takes some 20 µs, and milliseconds if there is much to give back. What it has
/// beyond afterwards lies between blocks on pages that have others, and counts as allocated until this is called again: up to
/// `gaps_max` bytes of it. True if something was given back; never where the allocator is not the GNU C library's.
pub fn trim(most_bytes: u64, gaps_max: u64) -> bool {
    if note_gaps(most_bytes, gaps_max) == 0 {
        return false;
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes a number, and locks what it changes.
    let is_less = unsafe { libc::malloc_trim(0) } == 1;
    #[cfg(not(target_env = "gnu"))]
    let is_less = false;
    note_gaps(most_bytes, gaps_max);
    is_less
}

/// What the process has beyond `most_bytes` of memory that are not a file's; up to `gaps_max` of it count as allocated.
pub(super) fn note_gaps(most_bytes: u64, gaps_max: u64) -> u64 {
    let resident = super::code::status_bytes("RssAnon:");
    let gaps = resident.map_or(0, |bytes| bytes.saturating_sub(most_bytes));
    GAPS.store(gaps.min(gaps_max), Ordering::Relaxed);
    gaps
}

fn shard() -> &'static AtomicI64 {
    SHARD.with(|shard| {
        if shard.get() == usize::MAX {
            shard.set(THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        &COUNTED[shard.get()].0
    })
}

#[inline]
fn count(bytes: i64) {
    let shard = shard();
    let counted = shard.fetch_add(bytes, Ordering::Relaxed) + bytes;
    if counted.abs() >= HANDED_ON_BYTES {
        LIVE.fetch_add(shard.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The size of a layout, which is at most `isize::MAX`.
fn size(layout: Layout) -> i64 {
    layout.size() as i64
}

// SAFETY: all is done by the other allocator, whose contract is the same. Counting neither allocates nor
// panics: the thread's shard is a constant without a destructor.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about the layout is the one that the other allocator asks for.
        let address = unsafe { self.allocator.alloc(layout) };
        if !address.is_null() {
            count(size(layout));
        }
        address
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        let address = unsafe { self.allocator.alloc_zeroed(layout) };
        if !address.is_null() {
            count(size(layout));
        }
        address
    }

    #[inline]
    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: what the caller frees was allocated here, and so by the other allocator, with this layout.
        unsafe { self.allocator.dealloc(address, layout) };
        count(-size(layout));
    }

    #[inline]
    unsafe fn realloc(&self, address: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as for `dealloc`; the caller's promise about the new size is passed on.
        let moved = unsafe { self.allocator.realloc(address, layout, new_size) };
        if !moved.is_null() {
            count(new_size as i64 - size(layout));
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;
    use std::thread;

    use super::*;

    /// All that was counted, handed on or not.
    fn exact() -> i64 {
        let counted: i64 = COUNTED.iter().map(|shard| shard.0.load(Ordering::SeqCst)).sum();
        LIVE.load(Ordering::SeqCst) + counted
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn gaps_of_the_heap_go_back() {
        let resident = || crate::memory::code::status_bytes("RssAnon:").unwrap();
        let mut blocks: Vec<_> =
            (0..2_000_u32).map(|number| vec![number as u8; 60 << 10]).collect();
        // SAFETY: the call only reads what the allocator has counted, and locks it.
        let allocated = unsafe { libc::mallinfo2() }.uordblks;
        blocks.retain(|block| block[0] % 20 == 0);
        let before = resident();
        assert!(!trim(u64::MAX, 0));
        let is_less = trim(0, 1 << 20);
        assert_eq!(gap_bytes(), 1 << 20, "the test has more than nothing");
        assert!(!trim(u64::MAX, 1 << 20));
        assert_eq!(gap_bytes(), 0);
        // A sanitizer has an allocator of its own.
        if allocated > 100 << 20 {
            assert!(is_less);
            let after = resident();
            assert!(after + (50 << 20) < before, "{after} of {before} bytes");
        }
        assert!(blocks.iter().all(|block| block.iter().all(|byte| byte % 20 == 0)));
    }

    #[test]
    fn what_is_allocated_is_counted_until_it_is_freed() {
        // The tests' own allocator is another one: nothing else is counted.
        let allocator = CountingAllocator::new(System);
        let before = exact();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for size in [1, 100, 5_000, 100_000, 3_000_000] {
                        let layout = Layout::from_size_align(size, 64).unwrap();
                        // SAFETY: the size is not 0; memory is freed with the layout it has.
                        unsafe {
                            let zeroed = allocator.alloc_zeroed(layout);
                            assert_eq!(zeroed.read(), 0);
                            let moved = allocator.realloc(zeroed, layout, 2 * size);
                            let larger = Layout::from_size_align(2 * size, 64).unwrap();
                            allocator.dealloc(moved, larger);
                            // Left for another thread to free.
                            let left = allocator.alloc(layout);
                            let left = left as usize;
                            thread::scope(|inner| {
                                inner.spawn(|| allocator.dealloc(left as *mut u8, layout));
                            });
                        }
                    }
                });
            }
        });
        assert_eq!(exact(), before);
        assert!(is_counted());
        let layout = Layout::from_size_align(1 << 24, 8).unwrap();
        // SAFETY: as above.
        unsafe {
            let held = allocator.alloc(layout);
            assert_eq!(exact(), before + (1 << 24));
            assert!(live_bytes() >= 1 << 23, "handed on at once, as it is much");
            allocator.dealloc(held, layout);
        }
        assert_eq!(exact(), before);
        assert!(live_bytes() < 1 << 23);
    }
}
