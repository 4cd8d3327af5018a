//! What the hit path needs that no other thread writes to: a number for each thread, and a counter that is
//! a plain load and store in a cell of that number.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Threads that have a cell of their own; the others share one.
const CELLS: usize = 64;

static UNUSED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A thread's cell number, used again when the thread has ended.
struct Number(usize);

impl Number {
    fn take() -> Number {
        let unused = UNUSED.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Number(unused.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed) as usize))
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        UNUSED.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
    }
}

thread_local! {
    static NUMBER: Number = Number::take();
}

/// This thread's number: no other thread has it while this one runs, and numbers are as small as can be.
#[inline]
pub(crate) fn thread_number() -> usize {
    // A thread that is ending has no number any more.
    NUMBER.try_with(|number| number.0).unwrap_or(CELLS)
}

#[derive(Default)]
#[repr(align(64))]
struct Cell(AtomicU64);

/// A count that many threads add to and few read.
pub(crate) struct Hits {
    cells: Box<[Cell]>,
}

impl Hits {
    pub(crate) fn new() -> Hits {
        Hits { cells: (0..=CELLS).map(|_| Cell::default()).collect() }
    }

    #[inline]
    pub(crate) fn add_one(&self) {
        match self.cells[..CELLS].get(thread_number()) {
            // Nobody else writes to it: the number is this thread's, and a mutex lies between it and
            // the thread that had the number before.
            Some(Cell(own)) => own.store(own.load(Ordering::Relaxed) + 1, Ordering::Relaxed),
            None => {
                self.cells[CELLS].0.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn sum(&self) -> u64 {
        self.cells.iter().map(|Cell(count)| count.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hit_is_lost() {
        let hits = Hits::new();
        std::thread::scope(|scope| {
            for _ in 0..CELLS + 20 {
                scope.spawn(|| (0..1000).for_each(|_| hits.add_one()));
            }
        });
        assert_eq!(hits.sum(), (CELLS as u64 + 20) * 1000);
    }
}
