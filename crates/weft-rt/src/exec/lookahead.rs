//! Prefetching for the coroutine that runs next.
//!
//! [`prefetch`](crate::prefetch) hides the wait for one cache line. A coroutine that is about to read a
//! whole page *announces* it and suspends; whoever runs meanwhile asks for the announced lines bit by
//! bit between its own instructions, so that the page is in the second-level cache when its coroutine
//! resumes. The memory bus never idles at a page's end, which hardware prefetchers, stopping at every
//! 4 KiB, cannot achieve.
//!
//! Announcements are hints: they name memory, nobody dereferences it, and one that comes to nothing
//! costs nothing but the wait that it would have spared.

use std::collections::VecDeque;

use super::current::try_worker;
use super::prefetch::{prefetch_line_to_l2, yield_now};

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// What the coroutines of a worker have announced, in the order in which they will run.
#[derive(Default)]
pub(crate) struct Announcements {
    /// Number, address and length in bytes.
    waiting: VecDeque<(u64, usize, usize)>,
    next: u64,
}

impl Announcements {
    fn add(&mut self, bytes: &[u8]) -> u64 {
        self.next += 1;
        self.waiting.push_back((self.next, bytes.as_ptr().addr(), bytes.len()));
        self.next
    }

    /// Forgets the announcement and all before it: their coroutines have resumed or were dropped.
    fn resumed(&mut self, number: u64) {
        while self.waiting.front().is_some_and(|(first, ..)| *first <= number) {
            self.waiting.pop_front();
        }
    }

    fn first(&self) -> Ahead {
        match self.waiting.front() {
            Some(&(_, address, len)) => Ahead { next: address, end: address + len },
            None => Ahead::NOTHING,
        }
    }
}

/// Announces that this coroutine reads `bytes` next, lets the others run once, and gives what the
/// coroutine after this one has announced.
pub async fn announce(bytes: &[u8]) -> Ahead {
    let Some(worker) = try_worker() else { return Ahead::NOTHING };
    let number = worker.announcements().add(bytes);
    yield_now().await;
    let mut announcements = worker.announcements();
    announcements.resumed(number);
    announcements.first()
}

/// What the coroutine that runs next has announced.
pub fn announced() -> Ahead {
    try_worker().map_or(Ahead::NOTHING, |worker| worker.announcements().first())
}

/// Memory that is asked for bit by bit, for whoever runs next.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    next: usize,
    end: usize,
}

impl Ahead {
    /// Nothing to ask for.
    pub const NOTHING: Ahead = Ahead { next: 0, end: 0 };

    /// All of `bytes`.
    pub fn of(bytes: &[u8]) -> Ahead {
        let next = bytes.as_ptr().addr();
        Ahead { next, end: next + bytes.len() }
    }

    /// True if all has been asked for.
    pub fn is_empty(&self) -> bool {
        self.next >= self.end
    }

    /// Asks for the next `lines` cache lines.
    #[inline(always)]
    pub fn prefetch(&mut self, lines: usize) {
        let stop = self.end.min(self.next + lines * LINE_BYTES);
        while self.next < stop {
            prefetch_line_to_l2(std::ptr::without_provenance::<u8>(self.next));
            self.next += LINE_BYTES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_come_in_the_order_of_the_coroutines() {
        let (a, b, c) = ([0u8; 64], [0u8; 128], [0u8; 192]);
        let mut announcements = Announcements::default();
        let first = announcements.add(&a);
        let second = announcements.add(&b);
        let third = announcements.add(&c);
        announcements.resumed(first);
        assert_eq!(announcements.first().next, b.as_ptr().addr());
        // The second coroutine was dropped, the third resumes.
        assert!(second < third);
        announcements.resumed(third);
        assert!(announcements.first().is_empty());
    }

    #[test]
    fn asking_ends_at_the_end() {
        let bytes = [0u8; 1000];
        let mut ahead = Ahead::of(&bytes);
        ahead.prefetch(10);
        assert!(!ahead.is_empty());
        ahead.prefetch(10);
        assert!(ahead.is_empty());
        ahead.prefetch(1);
        assert!(Ahead::NOTHING.is_empty());
    }
}
