//! Filters: truth values narrow the selection.

use super::bits::{Bits, pack};
use crate::lane::Bool;
use crate::program::Register;
use crate::registers::Registers;
use crate::selection::Selected;
use crate::vector::Vector;

/// Lists of less than one row in so many are gone through row by row.
const SPARSE: usize = 8;

/// Keeps those selected for which `condition` is true.
pub(crate) fn keep_true(registers: &mut Registers, condition: Register) {
    keep(registers, condition, true);
}

/// Keeps those selected for which `condition` is true, or those for which it is false or null.
pub(crate) fn keep(registers: &mut Registers, condition: Register, when: bool) {
    let rows = registers.rows();
    let (vector, selection) = registers.with_selection(condition);
    let values = vector.values::<Bool>();
    let is_sparse = match selection.selected() {
        Selected::All(_) => false,
        Selected::Some(list) => list.len() * SPARSE < rows,
    };
    match (is_sparse, vector.validity.words()) {
        (true, None) => selection.retain(|row| values[row].get() == when),
        (true, Some(words)) => selection
            .retain(|row| (values[row].0 & (words[row / 64] >> (row % 64)) as u8 & 1 == 1) == when),
        (false, _) => {
            let mut bits = true_bits(vector, rows);
            if !when {
                bits.iter_mut().for_each(|word| *word = !*word);
            }
            selection.retain_bits(&bits);
        }
    }
}

/// A bit for each of `rows` rows, set where `vector` is true: not where it is false or null.
pub(crate) fn true_bits(vector: &Vector, rows: usize) -> Bits {
    let mut bits = pack(vector.values::<Bool>(), rows);
    if let Some(words) = vector.validity.words() {
        for (word, valid) in bits.iter_mut().zip(words) {
            *word &= valid;
        }
    }
    bits
}
