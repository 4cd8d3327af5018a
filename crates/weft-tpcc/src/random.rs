//! What the specification draws at random: numbers of skewed distributions, names, strings (clauses 2.1.6, 4.3.2 and 4.3.3).

use crate::rows::{Address, NAME_BYTES, Name, Text50};

/// Last names are made of three of these.
const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// The constants of NURand, of the load and of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Constants {
    last_load: u32,
    last_run: u32,
    customer: u32,
    item: u32,
}

impl Constants {
    /// Constants that clause 2.1.6.1 permits.
    pub(crate) fn new(seed: u64) -> Constants {
        let mut random = fastrand::Rng::with_seed(seed);
        let last_load = random.u32(..=255);
        // How far the two constants of last names are apart lies within limits, and is neither 96 nor 112.
        let last_run = loop {
            let last_run = random.u32(..=255);
            let distance = last_load.abs_diff(last_run);
            if (65..=119).contains(&distance) && distance != 96 && distance != 112 {
                break last_run;
            }
        };
        Constants { last_load, last_run, customer: random.u32(..=1023), item: random.u32(..=8191) }
    }
}

/// NURand(A, x, y) of clause 2.1.6.
fn skewed(random: &mut fastrand::Rng, a: u32, constant: u32, low: u32, high: u32) -> u32 {
    ((random.u32(..=a) | random.u32(low..=high)) + constant) % (high - low + 1) + low
}

/// A customer's number, 1 to `customers`.
pub(crate) fn customer(random: &mut fastrand::Rng, of: &Constants, customers: u16) -> u16 {
    skewed(random, 1023, of.customer, 1, u32::from(customers)) as u16
}

/// An item's number, 1 to `items`.
pub(crate) fn item(random: &mut fastrand::Rng, of: &Constants, items: u32) -> u32 {
    skewed(random, 8191, of.item, 1, items)
}

/// The number of a last name as the load draws it, 0 to `last`.
pub(crate) fn last_of_load(random: &mut fastrand::Rng, of: &Constants, last: u32) -> u32 {
    skewed(random, 255, of.last_load, 0, last)
}

/// The number of a last name as transactions draw it, 0 to `last`.
pub(crate) fn last_of_run(random: &mut fastrand::Rng, of: &Constants, last: u32) -> u32 {
    skewed(random, 255, of.last_run, 0, last)
}

/// The last name with a number below 1000.
pub(crate) fn last_name(number: u32) -> Name {
    let digits = [number / 100, number / 10 % 10, number % 10];
    let mut name = [0; NAME_BYTES];
    let mut at = 0;
    for digit in digits {
        let syllable = SYLLABLES[digit as usize].as_bytes();
        name[at..at + syllable.len()].copy_from_slice(syllable);
        at += syllable.len();
    }
    name
}

/// A string of `low` to as many letters and digits as there are bytes, filled up with zeros.
pub(crate) fn letters<const N: usize>(random: &mut fastrand::Rng, low: usize) -> [u8; N] {
    let len = random.usize(low..=N);
    let mut text = [0; N];
    fill_letters(random, &mut text[..len]);
    text
}

/// Fills bytes with letters and digits.
pub(crate) fn fill_letters(random: &mut fastrand::Rng, text: &mut [u8]) {
    for chunk in text.chunks_mut(8) {
        let mut bits = random.u64(..);
        for byte in chunk {
            *byte = LETTERS[(bits & 0xff) as usize * LETTERS.len() / 256];
            bits >>= 8;
        }
    }
}

/// A string of digits.
pub(crate) fn digits<const N: usize>(random: &mut fastrand::Rng) -> [u8; N] {
    std::array::from_fn(|_| random.u8(b'0'..=b'9'))
}

/// A string of 26 to 50 letters, in a tenth of which is the word ORIGINAL.
pub(crate) fn data(random: &mut fastrand::Rng) -> Text50 {
    let mut text = [0; 50];
    let len = random.usize(26..=50);
    fill_letters(random, &mut text[..len]);
    if random.u8(..10) == 0 {
        let at = random.usize(..=len - 8);
        text[at..at + 8].copy_from_slice(b"ORIGINAL");
    }
    let mut halves = Text50::default();
    halves.as_flattened_mut().copy_from_slice(&text);
    halves
}

/// Whether a string has the word ORIGINAL in it.
pub(crate) fn is_original(text: &Text50) -> bool {
    text.as_flattened().windows(8).any(|window| window == b"ORIGINAL")
}

/// Streets, a city, a state, a zip code.
pub(crate) fn address(random: &mut fastrand::Rng) -> Address {
    let mut zip = [b'1'; 9];
    zip[..4].copy_from_slice(&digits::<4>(random));
    Address {
        street_1: letters(random, 10),
        street_2: letters(random, 10),
        city: letters(random, 10),
        state: std::array::from_fn(|_| random.u8(b'A'..=b'Z')),
        zip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_names_are_those_of_the_specification() {
        assert_eq!(last_name(371), *b"PRICALLYOUGHT\0\0\0");
        assert_eq!(last_name(40), *b"BARPRESBAR\0\0\0\0\0\0");
    }

    #[test]
    fn skewed_numbers_stay_within_their_bounds() {
        let constants = Constants::new(7);
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..100_000 {
            assert!((1..=3000).contains(&customer(&mut random, &constants, 3000)));
            assert!((1..=100_000).contains(&item(&mut random, &constants, 100_000)));
            assert!(last_of_run(&mut random, &constants, 999) < 1000);
            assert!((1..=20).contains(&item(&mut random, &constants, 20)));
        }
    }

    #[test]
    fn a_tenth_of_the_data_is_original() {
        let mut random = fastrand::Rng::with_seed(3);
        let original = (0..10_000).filter(|_| is_original(&data(&mut random))).count();
        assert!((900..1100).contains(&original), "{original}");
    }
}
