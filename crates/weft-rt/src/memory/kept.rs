//! Freed blocks that are kept for who allocates next.
//!
//! Operators allocate and free blocks of many pages all the time, a column of a batch each. An allocator that
//! gives them back to the system at once has it map, clear and unmap every page of every batch, which takes
//! longer than to compute what is in them; one that gives back late, or never, obeys no memory limit. A
//! [`KeepingAllocator`] keeps a bounded number of bytes, and those count as allocated
//! ([`live_bytes`](super::heap::live_bytes)).

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Blocks of 2 to the power of this many bytes, and of up to [`DOUBLINGS`] times twice that, are kept.
const SMALLEST_LOG2: u32 = 17;

const DOUBLINGS: usize = 5;

/// Sizes of blocks from a power of two to the next: rounding takes an eighth at most.
const STEPS: usize = 8;

const CLASSES: usize = DOUBLINGS * STEPS + 1;

const SMALLEST_BYTES: usize = 1 << SMALLEST_LOG2;

const LARGEST_BYTES: usize = SMALLEST_BYTES << DOUBLINGS;

/// The alignment that all these blocks have. Who wants more gets a block of its own.
const ALIGNMENT: usize = 128;

/// Most bytes that are kept.
static CAPACITY: AtomicUsize = AtomicUsize::new(32 << 20);

/// Bytes that are kept.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Keeps up to `capacity_bytes` bytes of freed blocks from now on, 32 MiB at first. What is kept beyond goes
/// when the next block is freed.
pub fn keep_freed(capacity_bytes: usize) {
    CAPACITY.store(capacity_bytes, Ordering::Relaxed);
}

/// Bytes of the freed blocks that are kept.
pub(super) fn kept_bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}

/// An allocator that keeps some of the blocks of 128 KiB to 4 MiB that are freed, as [`keep_freed`] says.
///
/// ```
/// use std::alloc::System;
/// use weft_rt::memory::heap::CountingAllocator;
/// use weft_rt::memory::kept::{KeepingAllocator, keep_freed};
///
/// #[global_allocator]
/// static ALLOCATOR: CountingAllocator<KeepingAllocator<System>> =
///     CountingAllocator::new(KeepingAllocator::new(System));
///
/// keep_freed(1 << 20);
/// let block = vec![1_u8; 200 << 10];
/// let address = block.as_ptr();
/// drop(block);
/// assert_eq!(vec![1_u8; 201 << 10].as_ptr(), address);
/// ```
#[derive(Debug)]
pub struct KeepingAllocator<A> {
    allocator: A,
    kept: Mutex<Kept>,
}

impl<A> KeepingAllocator<A> {
    /// Keeps blocks of `allocator`.
    pub const fn new(allocator: A) -> KeepingAllocator<A> {
        KeepingAllocator { allocator, kept: Mutex::new(Kept::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the sizes of blocks that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    number: usize,
    bytes: usize,
}

impl Class {
    /// The class that a block with this layout has, if it is kept at all.
    fn of(layout: Layout) -> Option<Class> {
        let is_kept = (SMALLEST_BYTES..=LARGEST_BYTES).contains(&layout.size())
            && layout.align() <= ALIGNMENT;
        is_kept.then(|| {
            let step = 1 << (layout.size().ilog2() - STEPS.ilog2());
            let bytes = layout.size().next_multiple_of(step);
            let doublings = bytes.ilog2() - SMALLEST_LOG2;
            let within =
                (bytes - (SMALLEST_BYTES << doublings)) / ((SMALLEST_BYTES / STEPS) << doublings);
            Class { number: doublings as usize * STEPS + within, bytes }
        })
    }

    fn numbered(number: usize) -> Class {
        let (doublings, within) = (number / STEPS, number % STEPS);
        let bytes =
            (SMALLEST_BYTES << doublings) + within * ((SMALLEST_BYTES / STEPS) << doublings);
        Class { number, bytes }
    }

    /// How its blocks are allocated.
    fn layout(self) -> Layout {
        Layout::from_size_align(self.bytes, ALIGNMENT).expect("far from the largest size")
    }
}

/// A kept block has the address of the next one of its class.
type Link = Option<NonNull<u8>>;

/// The blocks that are kept, and when there was last need of each class.
#[derive(Debug)]
struct Kept {
    first: [Link; CLASSES],
    wanted_at: [u64; CLASSES],
    now: u64,
}

// SAFETY: the blocks belong to the list alone, whichever thread it is on.
unsafe impl Send for Kept {}

impl Kept {
    const fn new() -> Kept {
        Kept { first: [None; CLASSES], wanted_at: [0; CLASSES], now: 0 }
    }

    /// A block that somebody wants.
    fn take(&mut self, class: Class) -> Link {
        self.now += 1;
        self.wanted_at[class.number] = self.now;
        self.pop(class)
    }

    fn pop(&mut self, class: Class) -> Link {
        let block = self.first[class.number]?;
        // SAFETY: a block in the list begins with the address of the next one.
        self.first[class.number] = unsafe { block.cast::<Link>().read() };
        BYTES.fetch_sub(class.bytes, Ordering::Relaxed);
        Some(block)
    }

    fn push(&mut self, class: Class, block: NonNull<u8>) {
        // SAFETY: nobody else has the block, which is large enough and aligned for a link.
        unsafe { block.cast::<Link>().write(self.first[class.number]) };
        self.first[class.number] = Some(block);
        BYTES.fetch_add(class.bytes, Ordering::Relaxed);
    }

    /// A block too many, of the class that has been unwanted longest.
    fn surplus(&mut self) -> Option<(Class, NonNull<u8>)> {
        if BYTES.load(Ordering::Relaxed) <= CAPACITY.load(Ordering::Relaxed) {
            return None;
        }
        let held = (0..CLASSES).filter(|&number| self.first[number].is_some());
        let class = Class::numbered(held.min_by_key(|&number| self.wanted_at[number])?);
        self.pop(class).map(|block| (class, block))
    }
}

// SAFETY: a block is allocated, kept and freed by the layout of its class, which depends on nothing but the
// layout that its owner knows, is no smaller and no less aligned. A kept block is nobody's. Nothing here
// allocates or panics: the lock is one of the system's.
unsafe impl<A: GlobalAlloc> GlobalAlloc for KeepingAllocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(class) = Class::of(layout) else {
            // SAFETY: the caller's promise is the one that the other allocator asks for.
            return unsafe { self.allocator.alloc(layout) };
        };
        let kept = self.lock().take(class);
        match kept {
            Some(block) => block.as_ptr(),
            // SAFETY: the size of a class is not 0.
            None => unsafe { self.allocator.alloc(class.layout()) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(class) = Class::of(layout) else {
            // SAFETY: as for `alloc`.
            return unsafe { self.allocator.alloc_zeroed(layout) };
        };
        let kept = self.lock().take(class);
        match kept {
            Some(block) => {
                // SAFETY: the block has this many bytes and is the caller's.
                unsafe { ptr::write_bytes(block.as_ptr(), 0, layout.size()) };
                block.as_ptr()
            }
            // SAFETY: as for `alloc`.
            None => unsafe { self.allocator.alloc_zeroed(class.layout()) },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        let (Some(class), Some(block)) = (Class::of(layout), NonNull::new(address)) else {
            // SAFETY: what the caller frees was allocated by the other allocator with this layout.
            return unsafe { self.allocator.dealloc(address, layout) };
        };
        self.lock().push(class, block);
        loop {
            // The system may take long to free a block: nobody waits for it here.
            let surplus = self.lock().surplus();
            let Some((class, block)) = surplus else { return };
            // SAFETY: the block is in no list any more, and was allocated with the layout of its class.
            unsafe { self.allocator.dealloc(block.as_ptr(), class.layout()) };
        }
    }

    #[inline]
    unsafe fn realloc(&self, address: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let Ok(new) = Layout::from_size_align(new_size, layout.align()) else {
            return ptr::null_mut();
        };
        match (Class::of(layout), Class::of(new)) {
            // SAFETY: neither size is one that is kept, so the block is the other allocator's.
            (None, None) => unsafe { self.allocator.realloc(address, layout, new_size) },
            (old, new_class) if old == new_class => address,
            _ => {
                // SAFETY: the new size is not 0, by the caller's promise.
                let moved = unsafe { self.alloc(new) };
                if !moved.is_null() {
                    // SAFETY: both blocks have at least this many bytes, and are different ones; the old one
                    // has the layout that the caller says.
                    unsafe {
                        ptr::copy_nonoverlapping(address, moved, layout.size().min(new_size));
                        self.dealloc(address, layout);
                    }
                }
                moved
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;
    use std::thread;

    use super::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 64).unwrap()
    }

    /// The tests share what is kept and its limit: they take turns.
    static TURN: Mutex<()> = Mutex::new(());

    fn turn(capacity_bytes: usize) -> MutexGuard<'static, ()> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        keep_freed(capacity_bytes);
        turn
    }

    #[test]
    fn classes_are_little_larger_than_what_they_are_for() {
        for size in (SMALLEST_BYTES..=LARGEST_BYTES).step_by(1021).chain([LARGEST_BYTES]) {
            let class = Class::of(layout(size)).unwrap();
            assert!(class.bytes >= size && class.bytes <= size + size / 8 + 1, "{size}: {class:?}");
            assert_eq!(Class::numbered(class.number), class);
            assert!(class.number < CLASSES);
        }
        assert_eq!(Class::of(layout(SMALLEST_BYTES - 1)), None);
        assert_eq!(Class::of(layout(LARGEST_BYTES + 1)), None);
        assert_eq!(Class::of(Layout::from_size_align(1 << 20, 4096).unwrap()), None);
    }

    #[test]
    fn freed_blocks_are_used_again_within_the_capacity() {
        let _turn = turn(1 << 20);
        let allocator = KeepingAllocator::new(System);
        // SAFETY: no size is 0; memory is freed once, with the layout that it has.
        unsafe {
            let (a, b) = (allocator.alloc(layout(600 << 10)), allocator.alloc(layout(400 << 10)));
            let c = allocator.alloc(layout(300 << 10));
            a.write_bytes(1, 600 << 10);
            allocator.dealloc(a, layout(600 << 10));
            allocator.dealloc(b, layout(400 << 10));
            assert_eq!(
                kept_bytes(),
                (640 << 10) + (416 << 10) - (640 << 10),
                "the older class left"
            );
            allocator.dealloc(c, layout(300 << 10));
            assert_eq!(kept_bytes(), (416 << 10) + (320 << 10));
            let zeroed = allocator.alloc_zeroed(layout(390 << 10));
            assert_eq!(zeroed, b);
            assert!((0..390 << 10).all(|at| zeroed.add(at).read() == 0));
            assert_eq!(allocator.realloc(zeroed, layout(390 << 10), 410 << 10), zeroed);
            keep_freed(0);
            allocator.dealloc(zeroed, layout(410 << 10));
        }
        assert_eq!(kept_bytes(), 0);
    }

    #[test]
    fn blocks_grow_into_the_sizes_that_are_kept_and_beyond() {
        let _turn = turn(8 << 20);
        let allocator = KeepingAllocator::new(System);
        let sizes =
            [1_000, 100_000, 130_000, 140_000, 500_000, 4 << 20, 5 << 20, 9 << 20, 200_000, 10];
        // SAFETY: as above.
        unsafe {
            let mut block = allocator.alloc(layout(sizes[0]));
            block.write_bytes(7, sizes[0]);
            for pair in sizes.windows(2) {
                let filled = pair[0].min(1_000);
                block = allocator.realloc(block, layout(pair[0]), pair[1]);
                assert!((0..filled.min(pair[1])).all(|at| block.add(at).read() == 7));
            }
            allocator.dealloc(block, layout(10));
            keep_freed(0);
            let last = allocator.alloc(layout(SMALLEST_BYTES));
            allocator.dealloc(last, layout(SMALLEST_BYTES));
        }
        assert_eq!(kept_bytes(), 0);
    }

    #[test]
    fn threads_share_what_is_kept() {
        let _turn = turn(4 << 20);
        let allocator = KeepingAllocator::new(System);
        thread::scope(|scope| {
            for seed in 0..4 {
                let allocator = &allocator;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let mut held: Vec<(usize, usize, u8)> = Vec::new();
                    for step in 0..2_000 {
                        if held.len() < 6 && random.bool() {
                            let (size, mark) = (random.usize(100_000..700_000), step as u8);
                            // SAFETY: as above; the first and last bytes are within the block.
                            unsafe {
                                let block = allocator.alloc(layout(size));
                                block.write(mark);
                                block.add(size - 1).write(mark);
                                held.push((block as usize, size, mark));
                            }
                        } else if let Some((block, size, mark)) = held.pop() {
                            let block = block as *mut u8;
                            // SAFETY: as above.
                            unsafe {
                                assert_eq!(
                                    (block.read(), block.add(size - 1).read()),
                                    (mark, mark)
                                );
                                allocator.dealloc(block, layout(size));
                            }
                        }
                    }
                    for (block, size, _) in held {
                        // SAFETY: as above.
                        unsafe { allocator.dealloc(block as *mut u8, layout(size)) };
                    }
                });
            }
        });
        assert!(kept_bytes() > 0 && kept_bytes() <= 4 << 20);
        keep_freed(0);
        // SAFETY: as above.
        unsafe {
            allocator.dealloc(allocator.alloc(layout(SMALLEST_BYTES)), layout(SMALLEST_BYTES))
        };
        assert_eq!(kept_bytes(), 0);
    }
}
