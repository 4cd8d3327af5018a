//! Which rows of the vectors at hand count.
//!
//! A filter narrows a selection and moves no values (MonetDB/X100's selection vectors). Steps that cannot fail may
//! compute rows that are not selected if that is faster; steps that can must not let those fail.

use std::ops::Range;

use crate::vector::VECTOR_ROWS_MAX;

/// For each byte, which of its bits are set.
static PLACES: [[u8; 8]; 256] = places();

const fn places() -> [[u8; 8]; 256] {
    let mut places = [[0; 8]; 256];
    let mut bits = 0;
    while bits < 256 {
        let (mut bit, mut count) = (0, 0);
        while bit < 8 {
            if bits >> bit & 1 == 1 {
                places[bits][count] = bit as u8;
                count += 1;
            }
            bit += 1;
        }
        bits += 1;
    }
    places
}

/// Rows that count: all, or a list of some in ascending order.
#[derive(Clone, Debug)]
pub struct Selection {
    rows: Box<[u16; VECTOR_ROWS_MAX]>,
    count: usize,
    is_all: bool,
}

/// A selection to be gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selected<'a> {
    /// That many rows, from the first on.
    All(usize),
    /// These, ascending.
    Some(&'a [u16]),
}

impl Selected<'_> {
    /// How many they are.
    pub fn count(self) -> usize {
        match self {
            Selected::All(rows) => rows,
            Selected::Some(rows) => rows.len(),
        }
    }

    /// Calls `work` with each row.
    #[inline(always)]
    pub fn for_each(self, mut work: impl FnMut(usize)) {
        match self {
            // Loops, as closures of iterators need not be compiled for the processor that a kernel is.
            Selected::All(rows) => {
                for row in 0..rows {
                    work(row);
                }
            }
            Selected::Some(rows) => {
                for row in rows {
                    work(usize::from(*row));
                }
            }
        }
    }

    /// Calls `work` with each row of a part: the `numbers.start`th and those after it.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline(always)]
    pub fn for_each_of(self, numbers: Range<usize>, mut work: impl FnMut(usize)) {
        assert!(numbers.end <= self.count(), "rows {numbers:?} of {}", self.count());
        match self {
            Selected::All(_) => {
                for row in numbers {
                    work(row);
                }
            }
            Selected::Some(rows) => {
                for row in &rows[numbers] {
                    work(usize::from(*row));
                }
            }
        }
    }

    /// Calls `work` with each row until it fails.
    ///
    /// # Errors
    /// The first that `work` gives.
    #[inline(always)]
    pub fn try_for_each<E>(self, mut work: impl FnMut(usize) -> Result<(), E>) -> Result<(), E> {
        match self {
            Selected::All(rows) => (0..rows).try_for_each(work),
            Selected::Some(rows) => rows.iter().try_for_each(|row| work(usize::from(*row))),
        }
    }
}

impl Default for Selection {
    fn default() -> Selection {
        Selection { rows: Box::new([0; VECTOR_ROWS_MAX]), count: 0, is_all: true }
    }
}

impl Selection {
    /// Selects all of `rows` rows.
    pub fn select_all(&mut self, rows: usize) {
        assert!(rows <= VECTOR_ROWS_MAX, "{rows} rows");
        (self.count, self.is_all) = (rows, true);
    }

    /// Number of rows that count.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The rows that count.
    pub fn selected(&self) -> Selected<'_> {
        if self.is_all {
            Selected::All(self.count)
        } else {
            Selected::Some(&self.rows[..self.count])
        }
    }

    /// Keeps those rows for which `keep` is true.
    #[inline(always)]
    pub fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        // Branch-free: every row is written, and counts if it is kept.
        let mut kept = 0;
        if self.is_all {
            for row in 0..self.count {
                self.rows[kept] = row as u16;
                kept += usize::from(keep(row));
            }
            self.is_all = kept == self.count;
        } else {
            for at in 0..self.count {
                let row = self.rows[at];
                self.rows[kept] = row;
                kept += usize::from(keep(usize::from(row)));
            }
        }
        self.count = kept;
    }

    /// Keeps those rows whose bit is set.
    ///
    /// # Panics
    /// If there are fewer bits than rows.
    pub fn retain_bits(&mut self, words: &[u64]) {
        if !self.is_all {
            return self.retain(|row| words[row / 64] >> (row % 64) & 1 == 1);
        }
        let mut kept = 0;
        for (number, word) in words[..self.count.div_ceil(64)].iter().enumerate() {
            let rows = (self.count - number * 64).min(64);
            let word = word & u64::MAX >> (64 - rows);
            for (byte, bits) in word.to_le_bytes().into_iter().enumerate() {
                // All eight are written, and those that count are followed by the next. What was kept is never more
                // than what was seen, so that there is always room.
                let first = (number * 64 + byte * 8) as u16;
                let places = &PLACES[usize::from(bits)];
                for (row, place) in self.rows[kept..kept + 8].iter_mut().zip(places) {
                    *row = first + u16::from(*place);
                }
                kept += bits.count_ones() as usize;
            }
        }
        self.is_all = kept == self.count;
        self.count = kept;
    }

    /// Becomes the same as `other`.
    pub fn copy_from(&mut self, other: &Selection) {
        (self.count, self.is_all) = (other.count, other.is_all);
        if !other.is_all {
            self.rows[..other.count].copy_from_slice(&other.rows[..other.count]);
        }
    }

    /// Keeps these, some of the rows that are selected, ascending.
    ///
    /// # Panics
    /// If they are more than a vector has.
    pub fn keep(&mut self, rows: &[u16]) {
        self.is_all = self.is_all && rows.len() == self.count;
        self.count = rows.len();
        if !self.is_all {
            self.rows[..rows.len()].copy_from_slice(rows);
        }
    }

    /// Selects `rows`, which are in ascending order.
    pub fn set(&mut self, rows: impl IntoIterator<Item = u16>) {
        (self.count, self.is_all) = (0, false);
        for row in rows {
            debug_assert!(self.count == 0 || self.rows[self.count - 1] < row, "ascending");
            self.rows[self.count] = row;
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_retained() {
        let mut selection = Selection::default();
        selection.select_all(10);
        selection.retain(|_| true);
        assert_eq!(selection.selected(), Selected::All(10));
        selection.retain(|row| row % 2 == 1);
        assert_eq!(selection.selected(), Selected::Some(&[1, 3, 5, 7, 9]));
        selection.retain(|row| row > 4);
        assert_eq!(selection.selected(), Selected::Some(&[5, 7, 9]));
        let mut other = Selection::default();
        other.copy_from(&selection);
        selection.retain(|_| false);
        assert_eq!((selection.count(), other.count()), (0, 3));
        let mut seen = Vec::new();
        other.selected().for_each(|row| seen.push(row));
        assert_eq!(seen, [5, 7, 9]);
    }

    #[test]
    fn rows_with_a_bit_are_retained() {
        let mut random = fastrand::Rng::with_seed(5);
        for rows in [0, 1, 7, 63, 64, 65, 2000, VECTOR_ROWS_MAX] {
            for density in [0, 1, 40, 128, 250, 256] {
                let words: Vec<u64> = (0..rows.div_ceil(64))
                    .map(|_| {
                        (0..64).fold(0, |word, bit| {
                            word | u64::from(random.u16(..256) < density) << bit
                        })
                    })
                    .collect();
                let has_bit = |row: usize| words[row / 64] >> (row % 64) & 1 == 1;
                let (mut actual, mut expected) = (Selection::default(), Selection::default());
                actual.select_all(rows);
                expected.select_all(rows);
                for _ in 0..2 {
                    actual.retain_bits(&words);
                    expected.retain(has_bit);
                    assert_eq!(actual.selected(), expected.selected(), "{rows} {density}");
                }
            }
        }
    }

    #[test]
    fn a_full_vector_is_retained() {
        let mut selection = Selection::default();
        selection.select_all(VECTOR_ROWS_MAX);
        selection.retain(|row| row != 0);
        assert_eq!(selection.count(), VECTOR_ROWS_MAX - 1);
        selection.set([3, 4]);
        assert_eq!(selection.selected(), Selected::Some(&[3, 4]));
    }
}
