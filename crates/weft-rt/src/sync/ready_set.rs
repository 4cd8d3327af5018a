//! The set of coroutines that have something to do: a bitmap that any thread may add to and one
//! thread takes from.
//!
//! A summary word says which words of the bitmap may be non-empty, so that taking from a set of
//! 4,096 costs one exchange when nothing is there. Whoever turns the summary from empty to
//! non-empty is told so and wakes the owner: one wake however many coroutines become ready.

use super::primitives::{AtomicU64, Ordering};

/// Most coroutines that one set can hold.
pub const READY_SET_CAPACITY_MAX: usize = 64 * 64;

/// A fixed-capacity set of small integers, added to by many threads and emptied by one.
#[derive(Debug)]
pub struct ReadySet {
    summary: AtomicU64,
    words: Box<[AtomicU64]>,
}

impl ReadySet {
    /// An empty set of the numbers below `capacity`.
    ///
    /// # Panics
    /// If `capacity` is 0 or above [`READY_SET_CAPACITY_MAX`].
    pub fn new(capacity: usize) -> ReadySet {
        assert!((1..=READY_SET_CAPACITY_MAX).contains(&capacity), "ready set of {capacity}");
        let words = (0..capacity.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        ReadySet { summary: AtomicU64::new(0), words }
    }

    /// Number of words of the bitmap.
    pub fn word_count(&self) -> usize {
        self.words.len()
    }

    /// Adds `index`. True if the set was empty, as far as its owner had seen: the caller then has to
    /// wake the owner. Everything the caller did before is visible to whoever takes the index.
    pub fn insert(&self, index: usize) -> bool {
        let (word, bit) = (index / 64, 1 << (index % 64));
        // Release even when the bit is there already: the taker must see this caller's writes too.
        if self.words[word].fetch_or(bit, Ordering::Release) & bit != 0 {
            return false;
        }
        self.summary.fetch_or(1 << word, Ordering::AcqRel) == 0
    }

    /// True if nothing has been added since the last [`ReadySet::take`].
    pub fn is_empty(&self) -> bool {
        self.summary.load(Ordering::SeqCst) == 0
    }

    /// Takes out everything: calls `each(word, bits)` for every word that had bits. Only the owner
    /// calls it.
    pub fn take(&self, mut each: impl FnMut(usize, u64)) {
        if self.summary.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut summary = self.summary.swap(0, Ordering::AcqRel);
        while summary != 0 {
            let word = summary.trailing_zeros() as usize;
            summary &= summary - 1;
            let bits = self.words[word].swap(0, Ordering::Acquire);
            if bits != 0 {
                each(word, bits);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn taken(set: &ReadySet) -> Vec<usize> {
        let mut all = Vec::new();
        set.take(|word, bits| {
            all.extend((0..64).filter(|bit| bits >> bit & 1 == 1).map(|bit| word * 64 + bit));
        });
        all
    }

    #[test]
    fn gives_back_what_was_added_once() {
        let set = ReadySet::new(200);
        assert!(set.insert(199));
        assert!(!set.insert(3));
        assert!(!set.insert(3));
        assert_eq!(taken(&set), [3, 199]);
        assert!(set.is_empty());
        assert!(taken(&set).is_empty());
        assert!(set.insert(64));
    }
}
