//! Values that are put somewhere as they are.

use crate::for_lane;
use crate::lane::Value;
use crate::program::{Constant, Operand, Register};
use crate::registers::Registers;
use crate::selection::Selected;

/// `out` is the same for every tuple, null if there is no value.
pub(crate) fn fill(registers: &mut Registers, value: Option<&Constant>, out: Register) {
    registers.write(out, |registers, out| {
        let rows = registers.rows();
        for_lane!(out.lane(), T => {
            let value = value.map(Constant::value::<T>);
            out.values_mut::<T>()[..rows].fill(value.unwrap_or_default());
        });
        match value {
            Some(_) => out.validity.set_all(),
            None => out.validity.clear_all(),
        }
    });
}

/// `out = a` for the tuples that are selected.
pub(crate) fn assign(registers: &mut Registers, a: &Operand, out: Register) {
    // Others keep what they have, the bytes of their strings too: `write` would forget those.
    let mut vector = registers.take(out);
    for_lane!(vector.lane(), T => assign_values::<T>(registers, a, vector.values_mut()));
    let validity = &mut vector.validity;
    let rows = registers.selected();
    let source = match a {
        Operand::Register(a) => Some(&registers.vector(*a).validity),
        Operand::Constant(_) => None,
    };
    match (rows, source.and_then(|source| source.words())) {
        (Selected::All(_), None) => validity.set_all(),
        (Selected::All(_), Some(words)) => validity.words_mut().copy_from_slice(words),
        (Selected::Some(_), None) if !validity.has_nulls() => {}
        (Selected::Some(rows), words) => {
            let valid = validity.words_mut();
            for row in rows {
                let (word, bit) = (usize::from(row / 64), row % 64);
                let is_valid = words.map_or(1, |words| words[word] >> bit & 1);
                valid[word] = valid[word] & !(1 << bit) | is_valid << bit;
            }
        }
    }
    registers.put(out, vector);
}

fn assign_values<T: Value>(registers: &Registers, a: &Operand, out: &mut [T]) {
    match (a, registers.selected()) {
        (Operand::Register(a), Selected::All(rows)) => {
            out[..rows].copy_from_slice(&registers.values::<T>(*a)[..rows]);
        }
        (Operand::Register(a), rows) => {
            let values = registers.values::<T>(*a);
            rows.for_each(|row| out[row] = values[row]);
        }
        (Operand::Constant(value), rows) => {
            let value = value.value();
            rows.for_each(|row| out[row] = value);
        }
    }
}
