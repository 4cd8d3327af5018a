//! Few groups whose keys all come from dictionaries: a row's group is looked up by its codes, without a hash, and without
//! a look at the keys.

use super::clusters::Clusters;
use super::state::Tuple;
use crate::program::Register;
use crate::registers::Registers;
use crate::vector::VECTOR_ROWS_MAX;

/// Most combinations of codes.
const COMBINATIONS_MAX: usize = 4096;
/// In place of a group's number.
const UNKNOWN: u8 = u8::MAX;

/// Which group each combination of codes has, as far as it came up.
#[derive(Debug)]
pub(super) struct Coded {
    /// The dictionaries of the keys.
    dictionaries: Vec<u64>,
    /// By combination: a group's number.
    numbers: Vec<u8>,
    /// [`Clusters::age`] of these numbers.
    age: u64,
    /// The combination of each row, whether it is selected or not.
    combined: Box<[u16; VECTOR_ROWS_MAX]>,
}

/// For which of a vector's rows the codes say the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coverage {
    /// For none: some key has no codes, or there are too many combinations.
    Missing,
    /// Some combinations came up for the first time.
    Partial,
    /// For all.
    Full,
}

impl Default for Coded {
    fn default() -> Coded {
        Coded {
            dictionaries: Vec::new(),
            numbers: Vec::new(),
            age: 0,
            combined: Box::new([0; VECTOR_ROWS_MAX]),
        }
    }
}

impl Coded {
    /// Looks up the groups of `rows`. Their numbers are in the clusters if all are known.
    pub(super) fn look_up(
        &mut self,
        registers: &Registers,
        keys: &[Register],
        rows: &[u16],
        clusters: &mut Clusters,
    ) -> Coverage {
        let Some(age) = clusters.age() else { return Coverage::Missing };
        if !self.combine(registers, keys, age) {
            return Coverage::Missing;
        }
        let mut greatest = 0;
        for (row, number) in rows.iter().zip(clusters.numbers()) {
            // Combinations are below the length.
            *number = self.numbers[usize::from(self.combined[usize::from(*row)])];
            greatest = greatest.max(*number);
        }
        if greatest == UNKNOWN { Coverage::Partial } else { Coverage::Full }
    }

    /// Remembers the groups of `rows`, for which [`Coded::look_up`] was called before they were found.
    pub(super) fn learn(&mut self, rows: &[u16], tuples: &[Tuple], clusters: &Clusters) {
        if clusters.age() != Some(self.age) {
            return;
        }
        for (row, tuple) in rows.iter().zip(tuples) {
            let combination = self.combined[usize::from(*row)];
            self.numbers[usize::from(combination)] = Clusters::number(*tuple);
        }
    }

    /// Combines the codes of all rows; false if they have none.
    fn combine(&mut self, registers: &Registers, keys: &[Register], age: u64) -> bool {
        let mut combinations = 1;
        let mut is_same = self.age == age && self.dictionaries.len() == keys.len();
        for (at, key) in keys.iter().enumerate() {
            let Some(codes) = registers.vector(*key).codes() else { return false };
            // One more is for nulls.
            combinations *= codes.values + 1;
            if combinations > COMBINATIONS_MAX || codes.codes.len() < registers.rows() {
                return false;
            }
            is_same = is_same && self.dictionaries[at] == codes.dictionary;
        }
        if !is_same {
            let codes = keys.iter().filter_map(|key| registers.vector(*key).codes());
            self.dictionaries.clear();
            self.dictionaries.extend(codes.map(|codes| codes.dictionary));
            self.age = age;
            self.numbers.clear();
            self.numbers.resize(combinations, UNKNOWN);
        }
        let combined = &mut self.combined[..registers.rows()];
        combined.fill(0);
        for key in keys {
            let vector = registers.vector(*key);
            let codes = vector.codes().expect("every key has codes");
            let (size, null) = (codes.values as u16 + 1, codes.values as u16);
            let codes = combined.iter_mut().zip(codes.codes.iter());
            match vector.validity.words() {
                None => codes.for_each(|(combined, code)| *combined = *combined * size + code),
                Some(words) => codes.enumerate().for_each(|(row, (combined, code))| {
                    let is_valid = words[row / 64] >> (row % 64) & 1 == 1;
                    *combined = *combined * size + if is_valid { *code } else { null };
                }),
            }
        }
        true
    }
}
