//! How often a thread has allocated memory.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::hint::black_box;

thread_local! {
    /// The number of blocks that this thread has allocated; a block that gets another size counts again.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// An allocator of which each thread counts how often it allocates: an addition to a number of its own, which the product's
/// allocator does without.
#[derive(Debug, Default)]
pub struct Tally<A>(A);

impl<A> Tally<A> {
    /// Counts the allocations of `allocator`.
    pub const fn new(allocator: A) -> Tally<A> {
        Tally(allocator)
    }
}

/// Blocks that this thread has allocated so far, if the program's allocator is a [`Tally`].
pub fn allocations() -> Option<u64> {
    let before = ALLOCATIONS.get();
    if before == 0 {
        drop(black_box(Box::new(0_u8)));
    }
    let after = ALLOCATIONS.get();
    (after > 0).then_some(after)
}

#[inline]
fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: all is done by the other allocator, whose contract is the same. Counting neither allocates nor panics: the thread's number is
// a constant without a destructor.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Tally<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise about the layout is the one that the other allocator asks for.
        unsafe { self.0.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as for `alloc`.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: what the caller frees was allocated here, and so by the other allocator, with this layout.
        unsafe { self.0.dealloc(address, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, address: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: as for `dealloc`; the caller's promise about the new size is passed on.
        unsafe { self.0.realloc(address, layout, new_size) }
    }
}
