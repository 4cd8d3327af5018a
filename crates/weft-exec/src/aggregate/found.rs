//! What is known about a vector's rows while their groups are looked up.

use super::state::Tuple;
use crate::selection::Selected;
use crate::vector::VECTOR_ROWS_MAX;

/// Rows of a vector, and their groups.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) rows: Box<[u16; VECTOR_ROWS_MAX]>,
    /// That many of the first of `rows` are the row of their number.
    identical: usize,
    pub(super) tuples: Box<[Tuple; VECTOR_ROWS_MAX]>,
    /// For each row that is looked up, where to go on.
    pub(super) places: Box<[u32; VECTOR_ROWS_MAX]>,
    /// Rows without a group yet, by their numbers in `rows`.
    pub(super) pending: Vec<u16>,
    /// Rows whose keys are to be compared with those of groups, in the order of `pending`: the numbers of that many.
    pub(super) candidates: Box<[u16; VECTOR_ROWS_MAX]>,
    pub(super) candidate_rows: Box<[u16; VECTOR_ROWS_MAX]>,
    pub(super) candidate_tuples: Box<[Tuple; VECTOR_ROWS_MAX]>,
    pub(super) same: Box<[bool; VECTOR_ROWS_MAX]>,
    pub(super) new_rows: Vec<u16>,
    pub(super) new_tuples: Vec<Tuple>,
    pub(super) new_strings: Vec<*mut u8>,
}

// SAFETY: `new_strings` has meaning only within a call.
unsafe impl Send for Found {}

impl Default for Found {
    fn default() -> Found {
        Found {
            rows: Box::new([0; VECTOR_ROWS_MAX]),
            identical: 0,
            tuples: Box::new([Tuple::NONE; VECTOR_ROWS_MAX]),
            places: Box::new([0; VECTOR_ROWS_MAX]),
            pending: Vec::new(),
            candidates: Box::new([0; VECTOR_ROWS_MAX]),
            candidate_rows: Box::new([0; VECTOR_ROWS_MAX]),
            candidate_tuples: Box::new([Tuple::NONE; VECTOR_ROWS_MAX]),
            same: Box::new([true; VECTOR_ROWS_MAX]),
            new_rows: Vec::new(),
            new_tuples: Vec::new(),
            new_strings: Vec::new(),
        }
    }
}

impl Found {
    /// Puts down the rows that are to be looked up; gives how many they are.
    pub(super) fn put_rows(&mut self, selected: Selected<'_>) -> usize {
        match selected {
            Selected::Some(rows) => {
                self.rows[..rows.len()].copy_from_slice(rows);
                self.identical = 0;
            }
            Selected::All(count) if count > self.identical => {
                (0..).zip(&mut self.rows[..count]).for_each(|(number, row)| *row = number);
                self.identical = count;
            }
            Selected::All(_) => {}
        }
        selected.count()
    }
}
