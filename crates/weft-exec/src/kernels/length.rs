//! Lengths of texts.

use super::characters;
use crate::program::{LengthUnit, Register};
use crate::registers::Registers;
use crate::text::Str;

/// `out` is the length of `a`.
pub(crate) fn run(registers: &mut Registers, a: Register, unit: LengthUnit, out: Register) {
    registers.write(out, |registers, out| {
        let vector = registers.vector(a);
        out.validity.copy_from(&vector.validity);
        let strings = vector.values::<Str>();
        match unit {
            LengthUnit::Bytes => {
                let values = out.values_mut::<i64>();
                registers.for_each_valid(a, |row| values[row] = strings[row].len() as i64);
            }
            LengthUnit::Characters => {
                let (rows, values) = (registers.selected(), out.values_mut::<i32>());
                characters::count(rows, strings, &vector.validity, values);
            }
        }
    });
}
