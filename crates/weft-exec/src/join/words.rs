//! Words that threads set at random places: of directories and filters.

use std::fmt;
use std::hint::black_box;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_rt::io::arena::HUGE_PAGE_BYTES;
use weft_rt::memory::huge::HugeBlock;

/// Words of a huge page.
const PAGE_WORDS: usize = HUGE_PAGE_BYTES / size_of::<u64>();

/// Words that are zero in the beginning. Many come as they are first used, not at once: that would take the system long. Who is
/// going to set words here and there has the huge pages come before, one by one ([`Words::touch`]): else a turn would meet with
/// as many new ones as it sets words.
pub(crate) struct Words {
    start: NonNull<AtomicU64>,
    count: usize,
    _memory: Memory,
}

/// What keeps them.
enum Memory {
    Small {
        _words: Box<[AtomicU64]>,
    },
    /// On huge pages: with small ones, half of the accesses would miss the processor's table of pages too.
    Huge {
        _block: HugeBlock,
    },
}

// SAFETY: the words are its own, and anybody may use atomics.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Bytes that so many take.
    pub fn bytes(count: usize) -> usize {
        let bytes = count * size_of::<u64>();
        if bytes < HUGE_PAGE_BYTES { bytes } else { bytes.next_multiple_of(HUGE_PAGE_BYTES) }
    }

    /// So many zeros.
    ///
    /// # Errors
    /// The system's if it has no memory.
    pub fn new(count: usize) -> std::io::Result<Words> {
        let bytes = Words::bytes(count);
        if bytes < HUGE_PAGE_BYTES {
            let words: Box<[AtomicU64]> = (0..count).map(|_| AtomicU64::new(0)).collect();
            let start = NonNull::from(&*words).cast();
            return Ok(Words { start, count, _memory: Memory::Small { _words: words } });
        }
        let block = HugeBlock::new(bytes)?;
        Ok(Words { start: block.start().cast(), count, _memory: Memory::Huge { _block: block } })
    }

    /// Huge pages that they are on.
    pub fn huge_pages(&self) -> usize {
        match self._memory {
            Memory::Small { .. } => 0,
            Memory::Huge { .. } => self.count.div_ceil(PAGE_WORDS),
        }
    }

    /// Has a huge page come.
    pub fn touch(&self, page: usize) {
        // To set no bit is something that compilers leave out, if they know.
        self[page * PAGE_WORDS].fetch_or(black_box(0), Ordering::Relaxed);
    }
}

/// Sets bits of a word; `ALONE` if nobody else sets any of it meanwhile.
#[inline(always)]
pub(crate) fn set_bits<const ALONE: bool>(word: &AtomicU64, bits: u64) {
    let before = word.load(Ordering::Relaxed);
    if ALONE {
        word.store(before | bits, Ordering::Relaxed);
    } else if before & bits != bits {
        word.fetch_or(bits, Ordering::Relaxed);
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: so many zeros, which are words, were allocated; the borrow keeps them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Words({})", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_zero_and_stay_what_they_become() {
        for count in [0, 1, 1000, HUGE_PAGE_BYTES / 8, HUGE_PAGE_BYTES / 8 + 1] {
            let words = Words::new(count).unwrap();
            assert_eq!(words.huge_pages(), Words::bytes(count) / HUGE_PAGE_BYTES);
            (0..words.huge_pages()).for_each(|page| words.touch(page));
            assert_eq!(words.len(), count);
            assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
            for (number, word) in words.iter().enumerate() {
                word.store(number as u64, Ordering::Relaxed);
            }
            let moved = words;
            let read = moved.iter().map(|word| word.load(Ordering::Relaxed));
            assert!(read.eq(0..count as u64));
        }
    }
}
