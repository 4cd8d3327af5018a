//! The keys of a build side as a bitmap over the range in which they lie: an exact filter, which takes no hash, and whose
//! words lie one after the other where keys come in order.

use std::sync::atomic::Ordering;

use super::words::Words;
use crate::lane::{Lane, Value, for_short_integer};

/// Bits that a key may take. A Bloom filter has 16 to 32; but it errs, and its words are never in order.
const BITS_PER_KEY: u64 = 256;
/// Bits that are spent on however few keys.
const BITS_MIN: u64 = 64 << 10;
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
    words: Words,
}

impl MakingKeys {
    /// Words of a set of so many keys between `least` and `greatest`; `None` if there would be too many.
    pub fn words_for(least: u64, greatest: u64, keys: usize) -> Option<usize> {
        let last = greatest.wrapping_sub(least);
        let bits_max = (keys as u64).saturating_mul(BITS_PER_KEY).max(BITS_MIN);
        (last < bits_max).then(|| (last / WORD + 1) as usize)
    }

    /// The empty set of keys from `least` on.
    ///
    /// # Errors
    /// The system's if it has no memory.
    pub fn new(least: u64, words: usize) -> std::io::Result<MakingKeys> {
        Ok(MakingKeys { least, words: Words::new(words)? })
    }

    /// Its memory.
    pub fn words(&self) -> &Words {
        &self.words
    }

    /// Adds a key, which lies in the range.
    #[inline(always)]
    pub fn add(&self, key: u64) {
        let place = key.wrapping_sub(self.least);
        let (word, bit) = (&self.words[(place / WORD) as usize], 1 << (place % WORD));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// The set.
    pub fn finish(self) -> KeySet {
        KeySet { least: self.least, words: self.words }
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
            let making = MakingKeys::new(least.bits(), words).unwrap();
            let keys: Vec<i64> = (0..40).map(|_| random.i64(least..=greatest)).collect();
            keys.iter().for_each(|key| making.add(key.bits()));
            let set = making.finish();
            let range = least.saturating_sub(200)..=greatest.saturating_add(200);
            assert!(range.into_iter().all(|key| set.has(key.bits()) == keys.contains(&key)));
            assert!(
                [i64::MIN + 9999, 0, i64::MAX - 9999]
                    .iter()
                    .all(|key| { set.has(key.bits()) == keys.contains(key) })
            );
        }
    }

    #[test]
    fn wide_ranges_have_no_set() {
        assert_eq!(MakingKeys::words_for(0, u64::MAX, 1 << 20), None);
        assert_eq!(MakingKeys::words_for((-1i64).bits(), 0, 1), Some(1));
        assert_eq!(MakingKeys::words_for(0, BITS_MIN, 1), None);
        assert_eq!(MakingKeys::words_for(0, (256 << 20) - 1, 1 << 20), Some(4 << 20));
    }
}
