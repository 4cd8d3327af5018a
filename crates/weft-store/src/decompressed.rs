//! Blocks that are compressed as a whole, kept decompressed for readers of single values: decompressing a block takes a
//! hundred times as long as decoding one of its values.
//!
//! The cache takes only free memory, a part of the budget at most, and gives all of it back when a reservation lacks memory.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weft_codec::Block as Decoder;
use weft_rt::memory::{Cache, Ledger, Reservation};

use crate::pages::Stored;

/// The part of the memory budget that may be taken.
const SHARE_DIVISOR: u64 = 32;

/// A block, by where it lies and what it consists of: a place that is used again has another checksum.
type Key = (u8, u64, u32, u32);

pub(crate) struct Decompressed {
    ledger: Ledger,
    kept: Mutex<Kept>,
}

struct Kept {
    blocks: HashMap<Key, Arc<Decoder<'static>>>,
    /// The keys in the order in which the blocks came.
    order: VecDeque<Key>,
    memory: Reservation,
}

/// What is let go of, when the lock is: blocks first, then their memory.
type Gone = (Vec<Arc<Decoder<'static>>>, Reservation);

impl Decompressed {
    /// # Panics
    /// Never: a reservation of nothing is always granted.
    pub(crate) fn new(ledger: Ledger) -> Arc<Decompressed> {
        let memory = ledger.try_reserve(0).expect("nothing is always free");
        let kept = Kept { blocks: HashMap::new(), order: VecDeque::new(), memory };
        let made = Arc::new(Decompressed { ledger, kept: Mutex::new(kept) });
        let weak: Weak<Decompressed> = Arc::downgrade(&made);
        made.ledger.add_cache(weak);
        made
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The block that is stored so, if it is kept.
    pub(crate) fn get(&self, stored: &Stored) -> Option<Arc<Decoder<'static>>> {
        self.lock().blocks.get(&key_of(stored)).cloned()
    }

    /// Keeps a block, in place of the oldest blocks, if there is memory for it.
    pub(crate) fn keep(&self, stored: &Stored, block: Decoder<'static>) {
        let (key, bytes) = (key_of(stored), block.body_bytes() as u64);
        let bytes_max = self.ledger.limit() / SHARE_DIVISOR;
        let mut kept = self.lock();
        if bytes > bytes_max || kept.blocks.contains_key(&key) {
            return;
        }
        let gone = kept.shrink_to(bytes_max - bytes);
        if kept.memory.try_grow_from_free(bytes) {
            kept.blocks.insert(key, Arc::new(block));
            kept.order.push_back(key);
        }
        drop(kept);
        drop(gone);
    }

    /// Bytes that are reserved for blocks.
    pub(crate) fn bytes(&self) -> u64 {
        self.lock().memory.bytes()
    }
}

impl Kept {
    /// Lets go of the blocks that came first, until the others take `bytes` at most.
    fn shrink_to(&mut self, bytes: u64) -> Gone {
        let (mut blocks, mut freed) = (Vec::new(), 0);
        while self.memory.bytes() - freed > bytes
            && let Some(key) = self.order.pop_front()
        {
            if let Some(block) = self.blocks.remove(&key) {
                freed += block.body_bytes() as u64;
                blocks.push(block);
            }
        }
        (blocks, self.memory.split(freed))
    }
}

impl Cache for Decompressed {
    fn give_back(&self, _: u64) {
        let gone = self.lock().shrink_to(0);
        drop(gone);
    }
}

impl fmt::Debug for Decompressed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Decompressed").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

fn key_of(stored: &Stored) -> Key {
    (stored.device, stored.start, stored.bytes, stored.checksum)
}

#[cfg(test)]
mod tests {
    use arrow_array::StringViewArray;
    use weft_codec::{Options, Scalar, encode};

    use super::*;

    /// A block of texts that compress well, and where it would lie.
    fn block(number: u64) -> (Stored, Decoder<'static>) {
        let text = |row| format!("{number}, and what is said in each of them {}", row / 3 * 7);
        let texts = StringViewArray::from_iter_values((0..4_000).map(text));
        let bytes = encode(&texts, &Options::default()).unwrap();
        let block = Decoder::open(&bytes).unwrap();
        assert!(block.is_compressed());
        let stored = Stored { device: 0, start: number, bytes: bytes.len() as u32, checksum: 7 };
        (stored, block.into_owned())
    }

    fn is_kept(cache: &Decompressed, number: u64) -> bool {
        let (stored, block) = block(number);
        let kept = cache.get(&stored);
        if let Some(kept) = &kept {
            assert_eq!(kept.value(2_999).unwrap(), block.value(2_999).unwrap());
            assert!(matches!(kept.value(0).unwrap(), Scalar::Bytes(_)));
        }
        kept.is_some()
    }

    #[test]
    fn the_blocks_that_came_last_are_kept() {
        let bytes = block(0).1.body_bytes() as u64;
        let ledger = Ledger::new((2 * bytes + bytes / 2) * SHARE_DIVISOR);
        let cache = Decompressed::new(ledger.clone());
        for number in 0..3 {
            let (stored, block) = block(number);
            cache.keep(&stored, block);
        }
        assert_eq!([0, 1, 2].map(|number| is_kept(&cache, number)), [false, true, true]);
        assert_eq!(ledger.used(), cache.bytes());
        let (stored, _) = block(2);
        assert!(cache.get(&Stored { checksum: 8, ..stored }).is_none(), "the place is used again");
    }

    #[test]
    fn memory_goes_back_when_others_lack_it() {
        let ledger = Ledger::new(block(0).1.body_bytes() as u64 * 2 * SHARE_DIVISOR);
        let cache = Decompressed::new(ledger.clone());
        let (stored, of) = block(1);
        cache.keep(&stored, of);
        assert!(is_kept(&cache, 1) && cache.bytes() > 0);
        let all = ledger.try_reserve(ledger.limit());
        assert!(all.is_some() && !is_kept(&cache, 1) && cache.bytes() == 0);
        let (stored, of) = block(2);
        cache.keep(&stored, of);
        assert!(!is_kept(&cache, 2), "no memory is free");
    }
}
