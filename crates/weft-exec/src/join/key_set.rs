//! The keys of a build side as a bitmap over the range in which they lie: an exact filter, which takes no hash, and whose
//! words lie one after the other where keys come in order.
//!
//! Each worker has words of its own while the set is made, if they are not large for so many keys. They are joined in the end: of words
//! that all set at random, each would be in another processor's cache about every other time.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::words::{Words, set_bits};
use crate::lane::{Lane, Value, for_short_integer};

/// Bits that a key may take. A Bloom filter has 16 to 32; but it errs, and its words are never in order.
const BITS_PER_KEY: u64 = 256;
/// Bits that are spent on however few keys.
const BITS_MIN: u64 = 64 << 10;
/// Bits per key that the words of all workers may take, for each to have its own.
const OWN_BITS_PER_KEY: u64 = 128;
/// Words that are joined at once.
const JOINED: usize = 8 << 10;
const WORD: u64 = u64::BITS as u64;

/// A value of a lane of at most 64 bits as a number, whose differences are those of the values.
pub(crate) trait Integer: Value {
    /// Its bits, its sign extended.
    fn bits(self) -> u64;
}

macro_rules! integers {
    ($($value:ty),*) => {
        $(impl Integer for $value {
            #[inline(always)]
            fn bits(self) -> u64 {
                self as u64
            }
        })*
    };
}
integers!(i8, i16, i32, i64, u8, u16, u32, u64);

/// True if a set can have values of this lane.
pub(crate) fn is_integer(lane: Lane) -> bool {
    for_short_integer!(lane, T => T::LANE == lane, else false)
}

/// A set that is being made.
#[derive(Debug)]
pub(crate) struct MakingKeys {
    least: u64,
    /// One of all workers, or each worker's.
    parts: Vec<Words>,
}

impl MakingKeys {
    /// Words of a set of so many keys between `least` and `greatest`; `None` if there would be too many.
    pub fn words_for(least: u64, greatest: u64, keys: usize) -> Option<usize> {
        let last = greatest.wrapping_sub(least);
        let bits_max = (keys as u64).saturating_mul(BITS_PER_KEY).max(BITS_MIN);
        (last < bits_max).then(|| (last / WORD + 1) as usize)
    }

    /// How many times these words there are to be for a set of so many keys that `workers` add.
    pub fn parts_for(words: usize, keys: usize, workers: usize) -> usize {
        let bits = (words * workers) as u64 * WORD;
        if bits <= (keys as u64).saturating_mul(OWN_BITS_PER_KEY) { workers } else { 1 }
    }

    /// The empty set of keys from `least` on, to be made in so many parts.
    ///
    /// # Errors
    /// The system's if it has no memory.
    pub fn new(least: u64, words: usize, parts: usize) -> std::io::Result<MakingKeys> {
        let parts = (0..parts).map(|_| Words::new(words)).collect::<std::io::Result<_>>()?;
        Ok(MakingKeys { least, parts })
    }

    /// Its memory.
    pub fn words(&self) -> &[Words] {
        &self.parts
    }

    /// True if each worker has words of its own.
    pub fn is_in_parts(&self) -> bool {
        self.parts.len() > 1
    }

    /// Those that this worker adds keys to.
    pub fn part(&self, worker: usize) -> &Words {
        self.parts.get(worker).unwrap_or(&self.parts[0])
    }

    /// Adds a key, which lies in the range, to a part; `ALONE` if nobody else adds any to that meanwhile.
    #[inline(always)]
    pub fn add<const ALONE: bool>(&self, part: &Words, key: u64) {
        let place = key.wrapping_sub(self.least);
        set_bits::<ALONE>(&part[(place / WORD) as usize], 1 << (place % WORD));
    }

    /// In how many steps the parts are joined.
    pub fn steps(&self) -> usize {
        if self.is_in_parts() { self.parts[0].len().div_ceil(JOINED) } else { 0 }
    }

    /// Makes one of these steps. Nobody adds keys any more.
    pub fn join(&self, step: usize) {
        let (first, others) = self.parts.split_first().expect("there is a part at least");
        let range = |words: &Words| Range {
            start: step * JOINED,
            end: words.len().min((step + 1) * JOINED),
        };
        for other in others {
            for (word, other) in first[range(first)].iter().zip(&other[range(other)]) {
                set_bits::<true>(word, other.load(Ordering::Relaxed));
            }
        }
    }

    /// The set, all steps of which were made.
    pub fn finish(mut self) -> KeySet {
        KeySet { least: self.least, words: self.parts.swap_remove(0) }
    }
}

/// A set of integers.
#[derive(Debug)]
pub(crate) struct KeySet {
    least: u64,
    words: Words,
}

impl KeySet {
    /// True if it has that key.
    #[inline(always)]
    pub fn has(&self, key: u64) -> bool {
        let place = key.wrapping_sub(self.least);
        let word = self.words.get((place / WORD) as usize);
        let word = word.map_or(0, |word| word.load(Ordering::Relaxed));
        word >> (place % WORD) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_added_and_nothing_else() {
        let mut random = fastrand::Rng::with_seed(5);
        for (least, greatest) in [(-700i64, 900), (i64::MIN, i64::MIN + 70), (i64::MAX, i64::MAX)] {
            let words = MakingKeys::words_for(least.bits(), greatest.bits(), 1).expect("few bits");
            let keys: Vec<i64> = (0..40).map(|_| random.i64(least..=greatest)).collect();
            let making = |parts| MakingKeys::new(least.bits(), words, parts).unwrap();
            let (shared, parted) = (making(1), making(3));
            for (at, key) in keys.iter().enumerate() {
                shared.add::<false>(shared.part(at % 3), key.bits());
                parted.add::<true>(parted.part(at % 3), key.bits());
            }
            assert_eq!((shared.steps(), parted.steps()), (0, 1));
            parted.join(0);
            let range = least.saturating_sub(200)..=greatest.saturating_add(200);
            for set in [shared.finish(), parted.finish()] {
                let is_known = |key: &i64| set.has(key.bits()) == keys.contains(key);
                assert!(range.clone().all(|key| is_known(&key)));
                assert!([i64::MIN + 9999, 0, i64::MAX - 9999].iter().all(is_known));
            }
        }
    }

    #[test]
    fn parts_are_joined_step_by_step() {
        let words = 2 * JOINED + 5;
        let making = MakingKeys::new(100, words, 4).unwrap();
        let keys = || (0..words as u64 * WORD).step_by(37).map(|place| 100 + place);
        keys().for_each(|key| making.add::<true>(making.part(key as usize % 4), key));
        assert_eq!(making.steps(), 3);
        (0..making.steps()).for_each(|step| making.join(step));
        let set = making.finish();
        let mut expected = keys().peekable();
        for key in 0..words as u64 * WORD + 300 {
            assert_eq!(set.has(key), expected.next_if_eq(&key).is_some(), "{key}");
        }
    }

    #[test]
    fn each_worker_has_words_where_they_are_not_many() {
        let words = MakingKeys::words_for(0, (6 << 20) - 1, 3 << 19).expect("few bits");
        assert_eq!(MakingKeys::parts_for(words, 3 << 19, 16), 16);
        assert_eq!(MakingKeys::parts_for(words, 3 << 19, 33), 1);
        assert_eq!(MakingKeys::parts_for(words, 1 << 10, 2), 1);
        assert_eq!(MakingKeys::parts_for(words, 3 << 19, 1), 1);
    }

    #[test]
    fn wide_ranges_have_no_set() {
        assert_eq!(MakingKeys::words_for(0, u64::MAX, 1 << 20), None);
        assert_eq!(MakingKeys::words_for((-1i64).bits(), 0, 1), Some(1));
        assert_eq!(MakingKeys::words_for(0, BITS_MIN, 1), None);
        assert_eq!(MakingKeys::words_for(0, (256 << 20) - 1, 1 << 20), Some(4 << 20));
    }
}
