//! `IS NULL` and `IS NOT NULL`.

use super::bits::unpack;
use crate::lane::Bool;
use crate::program::Register;
use crate::registers::Registers;

/// `out` is whether `a` is null, or is not.
pub(crate) fn run(registers: &mut Registers, a: Register, negated: bool, out: Register) {
    registers.write(out, |registers, out| {
        let rows = registers.rows();
        out.validity.set_all();
        let values = out.values_mut::<Bool>();
        match registers.vector(a).validity.words() {
            None => values[..rows].fill(negated.into()),
            Some(words) if negated => unpack(words, rows, values),
            Some(words) => unpack(&words.map(|word| !word), rows, values),
        }
    });
}
