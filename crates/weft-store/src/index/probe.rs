//! Lookups of a join's keys by generated code ([`ProbeCode`]): what the code is given, and what it calls.
//!
//! The code makes the keys of some outer tuples, or finds them made; has them put in order here ([`ProbeRound::order`]), so that equal ones are
//! looked up once and neighbours find each other's nodes in the cache; and awaits [`ProbeRound::find`] for each different key,
//! some at a time. Rows are fetched afterwards, by `join.rs`, as those of lookups without code are.

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use weft_index::{Keys, PrefixCursor, PrefixFound, PrefixRound, Tree};

/// Rows that are fetched in a round, about.
pub(crate) const ROWS_MAX: usize = 2_048;
/// Pairs of a key and a row in a round, about.
const PAIRS_MAX: usize = 8_192;

/// Code that has keys looked up: a generated coroutine.
pub trait ProbeCode: fmt::Debug + Send + Sync {
    /// Bytes of a key that the code makes of a tuple; `None` if it makes none, and finds the keys made.
    fn key_bytes(&self) -> Option<usize>;

    /// Begins a coroutine: has the keys of the round made, if they are not, and those from number `first` on looked up.
    fn probe<'a>(
        &'a self,
        round: &'a ProbeRound<'a>,
        first: usize,
    ) -> Pin<Box<dyn Future<Output = Probed> + 'a>>;

    /// Bytes of machine code.
    fn bytes(&self) -> u64;

    /// How long it took to compile; zero for what was compiled before.
    fn took(&self) -> Duration;
}

/// What a coroutine has come to.
#[derive(Debug)]
pub struct Probed {
    /// The number of the first key that was not looked up, as enough rows were found.
    pub next: usize,
    /// Rows that lookups gave to the code: the number of the key, and the id of the row.
    pub rows: Vec<[u64; 2]>,
}

/// Lookups of keys in one tree.
#[derive(Debug)]
pub struct ProbeRound<'a> {
    keys: &'a ProbeKeys,
    tree: &'a Tree,
    found: &'a PrefixRound,
}

impl<'a> ProbeRound<'a> {
    pub(crate) fn new(
        keys: &'a ProbeKeys,
        tree: &'a Tree,
        found: &'a PrefixRound,
    ) -> ProbeRound<'a> {
        ProbeRound { keys, tree, found }
    }

    /// The addresses of the tuples whose keys are to be made.
    pub fn tuples(&self) -> &'a [u64] {
        &self.keys.tuples
    }

    /// The number of different keys, if they are made.
    pub fn keys(&self) -> Option<usize> {
        self.keys.ordered.get().map(Ordered::len)
    }

    /// Takes the keys of tuples, as the index has them, each in `words` followed by zeros, and the numbers of their
    /// tuples; gives how many different ones there are.
    ///
    /// # Panics
    /// If the keys were made before, or are not as many as tuples.
    pub fn order(&self, words: &[u64], numbers: &[u32]) -> usize {
        let ordered = Ordered::of_words(words, numbers, self.keys.key_bytes);
        let len = ordered.len();
        self.found.set_rows_max(ordered.rows_max());
        self.keys.ordered.set(ordered).expect("keys are made once");
        len
    }

    /// Words that a key takes which code makes.
    pub fn key_words(&self) -> usize {
        self.keys.key_bytes.div_ceil(8).max(1)
    }

    /// Looks up a key by its number.
    ///
    /// # Panics
    /// If the keys are not made, or there is no such key.
    pub fn find(&self, number: u64) -> impl Future<Output = PrefixFound> + use<'a> {
        let (tree, found) = (self.tree, self.found);
        let key = self.keys.ordered().get(number as usize);
        async move { tree.find_prefix(found, key, number as u32).await }
    }

    /// Set by a lookup that is pending and can be polled again at once.
    pub fn paused(&self) -> &'a Cell<bool> {
        self.found.paused()
    }

    /// Rows at which no further lookup is to begin.
    pub fn rows_max(&self) -> usize {
        self.found.rows_max()
    }
}

/// The keys of some tuples.
#[derive(Debug)]
pub(crate) struct ProbeKeys {
    /// The tuples, if code makes the keys.
    pub(crate) tuples: Vec<u64>,
    /// Bytes of a key that code makes.
    pub(crate) key_bytes: usize,
    /// Once they are made.
    pub(crate) ordered: OnceCell<Ordered>,
}

impl ProbeKeys {
    pub(crate) fn ordered(&self) -> &Ordered {
        self.ordered.get().expect("the keys are made")
    }
}

/// Keys in order, each once.
#[derive(Debug, Default)]
pub(crate) struct Ordered {
    keys: OrderedKeys,
    /// The numbers of the tuples, those of equal keys beside each other, and where those of each key end.
    pub(crate) numbers: Vec<u32>,
    pub(crate) ends: Vec<u32>,
}

#[derive(Debug)]
enum OrderedKeys {
    /// Keys of one length, one after the other.
    Fixed(Vec<u8>, usize),
    /// Keys, and where among them the different ones are.
    Any(Keys, Vec<u32>),
}

impl Default for OrderedKeys {
    fn default() -> OrderedKeys {
        OrderedKeys::Any(Keys::default(), Vec::new())
    }
}

impl Ordered {
    /// Different keys of those that an encoder has made; `numbers` are those of their tuples.
    pub(crate) fn of_keys(keys: Keys, numbers: &[u32]) -> Ordered {
        let mut order: Vec<u32> = (0..keys.len() as u32).collect();
        let key = |place: u32| keys.get(place as usize);
        order.sort_unstable_by(|a, b| key(*a).cmp(key(*b)));
        let (mut different, mut ends) = (Vec::new(), Vec::new());
        for (at, place) in order.iter().enumerate() {
            let is_equal = at > 0 && key(order[at - 1]) == key(*place);
            match ends.last_mut() {
                Some(end) if is_equal => *end = at as u32 + 1,
                _ => {
                    different.push(*place);
                    ends.push(at as u32 + 1);
                }
            }
        }
        let numbers = order.iter().map(|at| numbers[*at as usize]).collect();
        Ordered { keys: OrderedKeys::Any(keys, different), numbers, ends }
    }

    /// Different keys of those that lie in words, of `key_bytes` each.
    fn of_words(words: &[u64], numbers: &[u32], key_bytes: usize) -> Ordered {
        let stride = key_bytes.div_ceil(8).max(1);
        assert_eq!(words.len(), stride * numbers.len(), "a key for each tuple");
        let word = |word: u64| u64::from_be(word);
        match stride {
            1 => {
                let keys = words.iter().map(|of| word(*of));
                Ordered::of_integers(keys.zip(numbers.iter().copied()), key_bytes, |key, bytes| {
                    bytes.extend_from_slice(&key.to_be_bytes()[..key_bytes]);
                })
            }
            2 => {
                let keys = words
                    .chunks_exact(2)
                    .map(|of| u128::from(word(of[0])) << 64 | u128::from(word(of[1])));
                Ordered::of_integers(keys.zip(numbers.iter().copied()), key_bytes, |key, bytes| {
                    bytes.extend_from_slice(&key.to_be_bytes()[..key_bytes]);
                })
            }
            _ => {
                let keys = words.chunks_exact(stride).map(|of| {
                    let swapped = of.iter().map(|of| word(*of));
                    swapped.collect::<Vec<u64>>()
                });
                Ordered::of_integers(keys.zip(numbers.iter().copied()), key_bytes, |key, bytes| {
                    let end = bytes.len() + key_bytes;
                    key.iter().for_each(|word| bytes.extend_from_slice(&word.to_be_bytes()));
                    bytes.truncate(end);
                })
            }
        }
    }

    fn of_integers<K: Ord>(
        keys: impl Iterator<Item = (K, u32)>,
        key_bytes: usize,
        append: impl Fn(&K, &mut Vec<u8>),
    ) -> Ordered {
        let mut keys: Vec<(K, u32)> = keys.collect();
        keys.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let (mut bytes, mut ends) = (Vec::with_capacity(keys.len() * key_bytes), Vec::new());
        for (at, (key, _)) in keys.iter().enumerate() {
            match ends.last_mut() {
                Some(end) if keys[at - 1].0 == *key => *end = at as u32 + 1,
                _ => {
                    append(key, &mut bytes);
                    ends.push(at as u32 + 1);
                }
            }
        }
        let numbers = keys.iter().map(|(_, number)| *number).collect();
        Ordered { keys: OrderedKeys::Fixed(bytes, key_bytes), numbers, ends }
    }

    /// Different keys.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// A key by its number.
    pub(crate) fn get(&self, number: usize) -> &[u8] {
        match &self.keys {
            OrderedKeys::Fixed(bytes, len) => &bytes[number * len..(number + 1) * len],
            OrderedKeys::Any(keys, different) => keys.get(different[number] as usize),
        }
    }

    /// Tuples that have the same key, at most.
    fn equal_max(&self) -> usize {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| (end - start) as usize).max().unwrap_or(1)
    }

    /// Rows of a round of lookups.
    pub(crate) fn rows_max(&self) -> usize {
        (PAIRS_MAX / self.equal_max().max(1)).clamp(1, ROWS_MAX)
    }
}

/// Keys that code looks up, and how far it has come.
#[derive(Debug)]
pub(crate) struct Probing {
    pub(crate) code: Arc<dyn ProbeCode>,
    pub(crate) keys: ProbeKeys,
    /// The tree at hand, and the first key that was not looked up in it.
    pub(crate) layer: usize,
    pub(crate) next: usize,
    /// Lookups that go on without code, as they have found much.
    pub(crate) left: Vec<(u32, PrefixCursor)>,
}

impl Probing {
    pub(crate) fn new(code: Arc<dyn ProbeCode>, keys: ProbeKeys) -> Probing {
        Probing { code, keys, layer: 0, next: 0, left: Vec::new() }
    }
}

/// A future whose time on the processor is added up.
pub(crate) async fn timed<F: Future>(future: F, spent: &mut Duration) -> F::Output {
    let mut future = pin!(future);
    std::future::poll_fn(|context: &mut Context<'_>| -> Poll<F::Output> {
        let began = Instant::now();
        let polled = future.as_mut().poll(context);
        *spent += began.elapsed();
        polled
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_and_equal_ones_joined() {
        for key_bytes in [4, 8, 9, 16, 20] {
            let stride = usize::div_ceil(key_bytes, 8);
            let values = [7_u8, 3, 7, 200, 3, 3];
            let mut words = Vec::new();
            for value in values {
                let mut key = vec![0; key_bytes];
                key[key_bytes - 1] = value;
                key.resize(stride * 8, 0);
                let of_key = key.chunks_exact(8);
                words.extend(of_key.map(|of| u64::from_ne_bytes(of.try_into().unwrap())));
            }
            let ordered = Ordered::of_words(&words, &[0, 1, 2, 3, 4, 6], key_bytes);
            assert_eq!((ordered.len(), ordered.equal_max()), (3, 3));
            let last: Vec<u8> = (0..3).map(|number| *ordered.get(number).last().unwrap()).collect();
            assert_eq!((last, ordered.get(2).len()), (vec![3, 7, 200], key_bytes));
            let mut of_three = ordered.numbers[..3].to_vec();
            of_three.sort_unstable();
            assert_eq!((of_three, &ordered.ends[..]), (vec![1, 4, 6], &[3, 5, 6][..]));
        }
    }
}
