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
/// Tables that are kept: coroutines that take turns on a worker bring dictionaries of their own.
const TABLES: usize = 4;

/// Which group each combination of codes has, as far as it came up.
#[derive(Debug)]
pub(super) struct Coded {
    tables: [Table; TABLES],
    /// The table for the rows that are looked at.
    current: usize,
    /// The combination of each row, whether it is selected or not.
    combined: Box<[u16; VECTOR_ROWS_MAX]>,
}

/// What is known of the combinations of some dictionaries.
#[derive(Debug, Default)]
struct Table {
    /// The dictionaries of the keys.
    dictionaries: Vec<u64>,
    /// By combination: a group's number.
    numbers: Vec<u8>,
    /// [`Clusters::age`] of these numbers.
    age: u64,
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
        Coded { tables: Default::default(), current: 0, combined: Box::new([0; VECTOR_ROWS_MAX]) }
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
        let numbers = &self.tables[self.current].numbers;
        let mut greatest = 0;
        for (row, number) in rows.iter().zip(clusters.numbers()) {
            // Combinations are below the length.
            *number = numbers[usize::from(self.combined[usize::from(*row)])];
            greatest = greatest.max(*number);
        }
        if greatest == UNKNOWN { Coverage::Partial } else { Coverage::Full }
    }

    /// Remembers the groups of `rows`, for which [`Coded::look_up`] was called before they were found.
    pub(super) fn learn(&mut self, rows: &[u16], tuples: &[Tuple], clusters: &Clusters) {
        let table = &mut self.tables[self.current];
        if clusters.age() != Some(table.age) {
            return;
        }
        for (row, tuple) in rows.iter().zip(tuples) {
            let combination = self.combined[usize::from(*row)];
            table.numbers[usize::from(combination)] = Clusters::number(*tuple);
        }
    }

    /// Has the table of the keys' dictionaries at hand, a new one in place of the oldest if there is none.
    fn choose(&mut self, registers: &Registers, keys: &[Register], age: u64, combinations: usize) {
        let codes = keys.iter().filter_map(|key| registers.vector(*key).codes());
        let dictionaries = codes.map(|codes| codes.dictionary);
        let is_known = |table: &usize| {
            let table = &self.tables[*table];
            table.age == age && table.dictionaries.iter().copied().eq(dictionaries.clone())
        };
        let nearest = (0..TABLES).map(|ahead| (self.current + ahead) % TABLES);
        match nearest.into_iter().find(is_known) {
            Some(table) => self.current = table,
            None => {
                self.current = (self.current + 1) % TABLES;
                let table = &mut self.tables[self.current];
                table.dictionaries.clear();
                table.dictionaries.extend(dictionaries);
                table.age = age;
                table.numbers.clear();
                table.numbers.resize(combinations, UNKNOWN);
            }
        }
    }

    /// Combines the codes of all rows; false if they have none.
    fn combine(&mut self, registers: &Registers, keys: &[Register], age: u64) -> bool {
        let mut combinations = 1;
        for key in keys {
            let Some(codes) = registers.vector(*key).codes() else { return false };
            // One more is for nulls.
            combinations *= codes.values + 1;
            if combinations > COMBINATIONS_MAX || codes.codes.len() < registers.rows() {
                return false;
            }
        }
        self.choose(registers, keys, age, combinations);
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
