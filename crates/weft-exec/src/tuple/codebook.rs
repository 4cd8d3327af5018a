//! Strings of which there are few different ones, as numbers: what lies in tuples are two bytes instead of a view of sixteen, and
//! the string behind it.
//!
//! The workers that store tuples of a layout share a codebook for each field that is coded, and add to it what they meet for the
//! first time; a number is never given to another string. Each worker has a [`Coder`], which remembers the numbers of what it has
//! met, by the codes of dictionaries where the rows of a vector have such, so that it hardly ever asks the codebook.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use foldhash::fast::FixedState;

use crate::selection::Selected;
use crate::text::Str;
use crate::vector::{VECTOR_ROWS_MAX, Vector};

/// Most strings of a codebook.
pub(super) const STRINGS_MAX: usize = 1 << 16;
/// The number of the empty string, and of what lies under a null.
const EMPTY: u16 = 0;
/// Dictionaries that a coder remembers: coroutines that take turns on a worker bring some of their own.
const DICTIONARIES: usize = 8;
/// In place of a number that is not known yet.
const UNKNOWN: u32 = u32::MAX;

/// Strings by their numbers.
#[derive(Debug)]
pub(crate) struct Codebook {
    strings: RwLock<Strings>,
}

#[derive(Debug)]
struct Strings {
    /// Views of the keys of `numbers`.
    by_number: Vec<Str>,
    numbers: HashMap<Box<[u8]>, u16, FixedState>,
}

/// All strings so far. They live as long as the codebook.
pub(super) struct Known<'a>(RwLockReadGuard<'a, Strings>);

impl Default for Codebook {
    fn default() -> Codebook {
        let numbers = HashMap::from_iter([(Box::default(), EMPTY)]);
        Codebook { strings: RwLock::new(Strings { by_number: vec![Str::EMPTY], numbers }) }
    }
}

impl Codebook {
    /// The number of a string, a new one if it has none; `None` if there are no more numbers.
    fn number(&self, string: &[u8]) -> Option<u16> {
        if let Some(number) = self.known().0.numbers.get(string) {
            return Some(*number);
        }
        let mut strings = self.strings.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = strings.numbers.get(string) {
            return Some(*number);
        }
        let number = u16::try_from(strings.by_number.len()).ok()?;
        let string: Box<[u8]> = string.into();
        // Where its bytes lie does not change when the box is moved.
        strings.by_number.push(Str::new(&string));
        strings.numbers.insert(string, number);
        Some(number)
    }

    /// All strings so far, those of all tuples that the caller can know of among them.
    pub(super) fn known(&self) -> Known<'_> {
        Known(self.strings.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Known<'_> {
    /// The string with a number.
    ///
    /// # Panics
    /// If there is none.
    #[inline(always)]
    pub(super) fn string(&self, number: u16) -> Str {
        self.0.by_number[usize::from(number)]
    }
}

/// Finds the numbers of the strings in a register, for one worker.
#[derive(Debug)]
pub(super) struct Coder {
    codebook: Arc<Codebook>,
    /// Numbers by the codes of a dictionary, whose own number is given. The one that was used last comes first.
    dictionaries: Vec<(u64, Vec<u32>)>,
    /// What came without a dictionary.
    met: HashMap<Box<[u8]>, u16, FixedState>,
    /// Of the rows at hand that are selected.
    numbers: Box<[u16; VECTOR_ROWS_MAX]>,
}

impl Coder {
    pub(super) fn new(codebook: Arc<Codebook>) -> Coder {
        Coder {
            codebook,
            dictionaries: Vec::new(),
            met: HashMap::default(),
            numbers: Box::new([EMPTY; VECTOR_ROWS_MAX]),
        }
    }

    /// The numbers of the rows that were [encoded](Coder::encode) last.
    pub(super) fn numbers(&self) -> &[u16] {
        &self.numbers[..]
    }

    /// Finds the numbers of these rows; false if there are more strings than numbers.
    pub(super) fn encode(&mut self, vector: &Vector, rows: Selected<'_>) -> bool {
        let strings = vector.values::<Str>();
        let Coder { codebook, dictionaries, met, numbers } = self;
        let mut all_known = true;
        if let Some(codes) = vector.codes() {
            let found = dictionaries.iter().position(|(number, _)| *number == codes.dictionary);
            if let Some(at) = found {
                dictionaries[..=at].rotate_right(1);
            } else {
                dictionaries.truncate(DICTIONARIES - 1);
                dictionaries.insert(0, (codes.dictionary, vec![UNKNOWN; codes.values]));
            }
            let known = &mut dictionaries[0].1;
            rows.for_each(|row| {
                let code = usize::from(codes.codes[row]);
                if !vector.validity.is_valid(row) {
                    numbers[row] = EMPTY;
                    return;
                }
                if known[code] == UNKNOWN {
                    // SAFETY: a string of a register is alive.
                    match codebook.number(unsafe { strings[row].bytes() }) {
                        Some(number) => known[code] = number.into(),
                        None => {
                            all_known = false;
                            return;
                        }
                    }
                }
                numbers[row] = known[code] as u16;
            });
            return all_known;
        }
        let mut last = (Str::EMPTY, EMPTY);
        rows.for_each(|row| {
            if !vector.validity.is_valid(row) {
                numbers[row] = EMPTY;
                return;
            }
            let string = strings[row];
            if string != last.0 {
                // SAFETY: a string of a register is alive.
                let bytes = unsafe { string.bytes() };
                let number = met.get(bytes).copied().or_else(|| {
                    let number = codebook.number(bytes)?;
                    met.insert(bytes.into(), number);
                    Some(number)
                });
                match number {
                    Some(number) => last = (string, number),
                    None => {
                        all_known = false;
                        return;
                    }
                }
            }
            numbers[row] = last.1;
        });
        all_known
    }
}

#[cfg(test)]
mod tests {
    use arrow_buffer::ScalarBuffer;

    use super::*;
    use crate::lane::Lane;
    use crate::vector::Codes;

    fn vector(texts: &[&str]) -> Vector {
        let mut vector = Vector::new(Lane::Str);
        for (value, text) in vector.values_mut::<Str>().iter_mut().zip(texts) {
            *value = Str::new(text.as_bytes());
        }
        vector.validity.set_all();
        vector
    }

    fn decoded(codebook: &Codebook, coder: &Coder, rows: usize) -> Vec<String> {
        let known = codebook.known();
        let text = |number: &u16| {
            let string = known.string(*number);
            // SAFETY: the codebook is alive.
            String::from_utf8(unsafe { string.bytes() }.to_vec()).unwrap()
        };
        coder.numbers()[..rows].iter().map(text).collect()
    }

    #[test]
    fn coders_agree() {
        let texts = ["", "AIR", "a text that is longer than a view", "AIR", "", "REG AIR"];
        let codebook = Arc::new(Codebook::default());
        let (mut plain, mut coded) = (Coder::new(codebook.clone()), Coder::new(codebook.clone()));
        let without = vector(&texts);
        assert!(plain.encode(&without, Selected::All(texts.len())));
        for dictionary in 0..2 * DICTIONARIES as u64 {
            let mut with = vector(&texts);
            let codes = ScalarBuffer::from(vec![0u16, 1, 2, 1, 0, 3]);
            with.set_codes(Codes { codes, values: 4, dictionary });
            assert!(coded.encode(&with, Selected::All(texts.len())));
            assert_eq!(coded.numbers()[..texts.len()], plain.numbers()[..texts.len()]);
        }
        assert_eq!(decoded(&codebook, &plain, texts.len()), texts);
        let mut with_null = vector(&texts);
        with_null.validity.set(1, false);
        assert!(plain.encode(&with_null, Selected::All(texts.len())));
        assert_eq!(decoded(&codebook, &plain, 2), ["", ""], "a null is empty");
    }

    #[test]
    fn numbers_come_to_an_end() {
        let codebook = Arc::new(Codebook::default());
        for number in 1..STRINGS_MAX {
            let text = format!("text {number}");
            assert_eq!(codebook.number(text.as_bytes()), Some(number as u16));
        }
        assert_eq!(codebook.number(b"one more"), None);
        assert_eq!(codebook.number(b"text 7"), Some(7));
        let mut coder = Coder::new(codebook);
        assert!(!coder.encode(&vector(&["text 9", "another"]), Selected::All(2)));
        assert!(coder.encode(&vector(&["text 9", "text 8"]), Selected::All(2)));
    }
}
