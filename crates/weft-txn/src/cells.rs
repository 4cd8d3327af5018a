//! Cells: memory of versions on huge pages.
//!
//! Versions are visited in no order. On pages of 4 KiB almost every visit misses the processor's table of address translations,
//! and so does its prefetch: the walk of the page tables holds the core up where the system is a guest, however many coroutines
//! could go on meanwhile. So versions lie in cells of their size, of spans of 64 KiB, which are blocks of the runtime's
//! [slab](weft_rt::memory::slab); where there are none, or for large versions, the heap has them.
//!
//! A thread keeps some free cells of each size, and takes and gives back some at a time. A span of which no cell is in use goes back.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::Mutex;

use weft_rt::memory::slab::{BLOCK_BYTES_MIN, Block};

use crate::primitives::lock;

const SPAN_BYTES: usize = BLOCK_BYTES_MIN;
/// Sizes of cells are multiples of this, up to the largest ones.
const STEP_BYTES: usize = 16;
const CELL_BYTES_MAX: usize = 1024;
const CLASSES: usize = CELL_BYTES_MAX / STEP_BYTES + 1;
/// Free cells of a size that a thread keeps at most; it takes, and gives back, half of them.
const KEPT_MAX: usize = 64;
/// Where the cells of a span begin.
const CELLS_AT: usize = size_of::<Span>().next_multiple_of(64);
/// The place of a span that has no free cell.
const FULL: usize = usize::MAX;

/// What a span begins with. Only who has its class's lock looks at it.
struct Span {
    block: Block,
    used: usize,
    /// The first of its free cells, each of which begins with the address of the next; `None` after the last.
    free: Option<NonNull<u8>>,
    /// Offset of the first cell that was never used.
    unused_at: usize,
    /// Its place among those with free cells.
    place: usize,
}

/// The spans of a class that have free cells.
#[derive(Default)]
struct Class(Vec<NonNull<Span>>);

// SAFETY: spans belong to their class, and have no tie to a thread.
unsafe impl Send for Class {}

static SPANS: [Mutex<Class>; CLASSES] = [const { Mutex::new(Class(Vec::new())) }; CLASSES];

/// The free cells of a thread, by class.
struct Kept([Vec<NonNull<u8>>; CLASSES]);

impl Drop for Kept {
    fn drop(&mut self) {
        for (class, cells) in self.0.iter_mut().enumerate() {
            give(class, cells, 0);
        }
    }
}

thread_local! {
    static KEPT: RefCell<Kept> = const { RefCell::new(Kept([const { Vec::new() }; CLASSES])) };
}

/// Memory of `bytes` bytes, aligned to 16; `None` if the heap is to have it.
#[inline]
pub(crate) fn allocate(bytes: usize) -> Option<NonNull<u8>> {
    if bytes > CELL_BYTES_MAX {
        return None;
    }
    let class = bytes.div_ceil(STEP_BYTES);
    let kept = KEPT.try_with(|kept| {
        let cells = &mut kept.borrow_mut().0[class];
        if cells.is_empty() {
            take(class, cells, KEPT_MAX / 2);
        }
        cells.pop()
    });
    // The thread is ending.
    kept.unwrap_or_else(|_| {
        let mut cells = Vec::new();
        take(class, &mut cells, 1);
        cells.pop()
    })
}

/// Takes back what [`allocate`] has given.
///
/// # Safety
/// `cell` is of [`allocate`] with the same `bytes`, and in no use any more.
#[inline]
pub(crate) unsafe fn free(cell: NonNull<u8>, bytes: usize) {
    let class = bytes.div_ceil(STEP_BYTES);
    let kept = KEPT.try_with(|kept| {
        let cells = &mut kept.borrow_mut().0[class];
        cells.push(cell);
        if cells.len() > KEPT_MAX {
            give(class, cells, KEPT_MAX / 2);
        }
    });
    if kept.is_err() {
        give(class, &mut vec![cell], 0);
    }
}

/// Takes up to `count` free cells of a class: fewer if there are no more blocks.
#[cold]
fn take(class: usize, cells: &mut Vec<NonNull<u8>>, count: usize) {
    let mut spans = lock(&SPANS[class]);
    while cells.len() < count {
        let Some(&span) = spans.0.last() else {
            let Some(span) = new_span() else { return };
            // It is the only one.
            spans.0.push(span);
            continue;
        };
        match take_of(span, class * STEP_BYTES) {
            Some(cell) => cells.push(cell),
            None => {
                spans.0.pop();
                // SAFETY: the class's lock is held.
                unsafe { (*span.as_ptr()).place = FULL };
            }
        }
    }
}

/// A span without cells in use, first among those of its class.
fn new_span() -> Option<NonNull<Span>> {
    let block = Block::new(SPAN_BYTES)?;
    let span = block.start().cast::<Span>();
    let head = Span { block, used: 0, free: None, unused_at: CELLS_AT, place: 0 };
    // SAFETY: the block has room for the head, is aligned to its size, and no other code has it.
    unsafe { span.write(head) };
    Some(span)
}

/// A free cell of a span. Its class's lock is held.
fn take_of(span: NonNull<Span>, bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: the class's lock is held, so no other thread looks at the head.
    let head = unsafe { &mut *span.as_ptr() };
    let cell = match head.free {
        Some(cell) => {
            // SAFETY: a free cell begins with what `give` has written there.
            head.free = unsafe { cell.cast::<Option<NonNull<u8>>>().read() };
            cell
        }
        None if head.unused_at + bytes <= SPAN_BYTES => {
            let at = head.unused_at;
            head.unused_at += bytes;
            // SAFETY: it is within the span's block.
            unsafe { span.cast::<u8>().add(at) }
        }
        None => return None,
    };
    head.used += 1;
    Some(cell)
}

/// Gives cells back, all but so many.
#[cold]
fn give(class: usize, cells: &mut Vec<NonNull<u8>>, kept: usize) {
    if cells.len() <= kept {
        return;
    }
    let mut unused = Vec::new();
    let mut spans = lock(&SPANS[class]);
    for cell in cells.drain(kept..) {
        let span = cell.as_ptr().map_addr(|addr| addr & !(SPAN_BYTES - 1)).cast::<Span>();
        // SAFETY: spans are aligned to their size, so the cell's begins there; the class's lock is held.
        let head = unsafe { &mut *span };
        // SAFETY: the cell is free, aligned to 16, and has room for an address.
        unsafe { cell.cast::<Option<NonNull<u8>>>().write(head.free) };
        head.free = Some(cell);
        head.used -= 1;
        if head.place == FULL {
            head.place = spans.0.len();
            spans.0.push(NonNull::from(&mut *head));
        }
        if head.used == 0 && spans.0.len() > 1 {
            let place = head.place;
            spans.0.swap_remove(place);
            if let Some(moved) = spans.0.get(place) {
                // SAFETY: the class's lock is held.
                unsafe { (*moved.as_ptr()).place = place };
            }
            // SAFETY: nothing leads to the span any more.
            unused.push(unsafe { std::ptr::read(&raw const (*span).block) });
        }
    }
    drop(spans);
    drop(unused);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use weft_rt::memory::slab::keep_blocks;

    use super::*;

    /// Cells that were filled by one thread are freed by another: none is given out twice, and what is in them stays.
    #[test]
    fn cells_do_not_overlap() {
        struct Filled(NonNull<u8>, usize, u8);
        // SAFETY: a cell has no tie to a thread.
        unsafe impl Send for Filled {}

        keep_blocks(4 << 20);
        let (sender, receiver) = mpsc::channel::<Filled>();
        let threads = (0..3_u64).map(|seed| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..20_000 {
                    let (bytes, fill) = (random.usize(40..=1100), random.u8(..));
                    let Some(cell) = allocate(bytes) else {
                        assert!(bytes > CELL_BYTES_MAX);
                        continue;
                    };
                    assert!(cell.addr().get().is_multiple_of(16));
                    // SAFETY: the cell has as many bytes, and is this thread's.
                    unsafe { cell.write_bytes(fill, bytes) };
                    sender.send(Filled(cell, bytes, fill)).unwrap();
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        drop(sender);
        let mut kept = Vec::new();
        for Filled(cell, bytes, fill) in receiver {
            kept.push((cell, bytes, fill));
            if kept.len() > 5000 {
                let (cell, bytes, fill) = kept.swap_remove(bytes % 5000);
                check_and_free(cell, bytes, fill);
            }
        }
        kept.into_iter().for_each(|(cell, bytes, fill)| check_and_free(cell, bytes, fill));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        keep_blocks(0);
    }

    fn check_and_free(cell: NonNull<u8>, bytes: usize, fill: u8) {
        // SAFETY: the cell is filled, and in no other hands.
        let filled = unsafe { std::slice::from_raw_parts(cell.as_ptr(), bytes) };
        assert!(filled.iter().all(|byte| *byte == fill), "another has written there");
        // SAFETY: it is of `allocate` with as many bytes, and not used any more.
        unsafe { free(cell, bytes) };
    }
}
