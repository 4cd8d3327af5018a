//! [`Step::Load`](crate::program::Step::Load): fields of materialized tuples, as [`tuple::load`](crate::tuple::load())
//! reads them.

use crate::program::Register;
use crate::registers::Registers;
use crate::tuple::{self, Layout};

/// `out` is a field of the tuples at the addresses in `tuples`.
pub(super) fn run(
    registers: &mut Registers,
    tuples: Register,
    layout: &Layout,
    field: usize,
    out: Register,
) {
    registers.write(out, |registers, vector| {
        let addresses = registers.values::<u64>(tuples);
        // SAFETY: the step's contract: 0, or a tuple of that layout that is there while the query runs.
        unsafe { tuple::load(addresses, registers.selected(), layout, field, vector) };
    });
}
