//! Executes the code of a run on registers: puts the addresses of vectors into the function's argument, calls it, and says
//! afterwards which values are null and which rows are selected.

use weft_exec::compile::Scratch;
use weft_exec::for_lane;
use weft_exec::program::Register;
use weft_exec::registers::Registers;
use weft_exec::selection::Selected;
use weft_exec::validity::Validity;
use weft_exec::vector::VECTOR_ROWS_MAX;

use crate::compiler::RunCode;
use crate::emit::{FAILED, OutputValidity, words};
use crate::helpers::TABLE;
use crate::run::Run;

/// A generated function. Its argument has the words of [`words`].
pub(crate) type Function = unsafe extern "C" fn(*const u64) -> i64;

/// All rows of a vector.
static ALL_ROWS: [u16; VECTOR_ROWS_MAX] = all_rows();

const fn all_rows() -> [u16; VECTOR_ROWS_MAX] {
    let mut rows = [0; VECTOR_ROWS_MAX];
    let mut row = 0;
    while row < VECTOR_ROWS_MAX {
        rows[row] = row as u16;
        row += 1;
    }
    rows
}

/// The validity of vectors without nulls.
static ALL_VALID: [u64; VECTOR_ROWS_MAX / 64] = [u64::MAX; VECTOR_ROWS_MAX / 64];

/// Constants in the form in which code loads them.
#[derive(Clone, Debug)]
#[repr(C, align(16))]
pub(crate) struct Slot(pub(crate) i128);

/// Executes a run. False if a tuple has an error, or a register lacks values: nothing that the run reads has changed then, nor has
/// the selection.
pub(crate) fn execute(
    code: &RunCode,
    run: &Run,
    constants: &[Slot],
    registers: &mut Registers,
    scratch: &mut Scratch,
) -> bool {
    let shape = &run.shape;
    let of_program = |register: Register| run.registers[register.index()];
    let rows = registers.rows();
    let kept = shape.kept.iter().map(|register| (*register, true));
    let has_values = |register: Register, registers: &Registers| {
        let vector = registers.vector(register);
        for_lane!(vector.lane(), T => vector.values::<T>().len() >= rows)
    };
    for register in &shape.kept {
        registers.vector_mut(of_program(*register)).make_room();
    }
    let is_missing = |(register, reads): &(Register, bool)| {
        *reads && !has_values(of_program(*register), registers)
    };
    if shape.inputs.iter().any(is_missing) {
        return false;
    }
    let inputs = || shape.inputs.iter().copied().chain(kept.clone());
    let has_nulls =
        inputs().any(|(register, _)| registers.vector(of_program(register)).validity.has_nulls());
    let (function, validity) = match has_nulls {
        true => (code.with_nulls, &code.validity_with_nulls),
        false => (code.without_nulls, &code.validity_without_nulls),
    };
    let computed = validity.iter().filter(|validity| validity.is_computed).count();
    if scratch.bytes.len() < computed * VECTOR_ROWS_MAX {
        scratch.bytes.resize(computed * VECTOR_ROWS_MAX, 0);
    }
    if shape.filters() && scratch.rows.len() < VECTOR_ROWS_MAX {
        scratch.rows.resize(VECTOR_ROWS_MAX, 0);
    }
    let mut argument = Vec::with_capacity(
        words::COLUMNS + 2 * (shape.inputs.len() + shape.kept.len() + shape.outputs.len()),
    );
    argument.extend([0; words::COLUMNS]);
    for (register, reads) in inputs() {
        let vector = registers.vector(of_program(register));
        let values = match reads {
            true => for_lane!(vector.lane(), T => vector.values::<T>().as_ptr() as u64),
            false => 0,
        };
        let valid = vector.validity.words().unwrap_or(&ALL_VALID).as_ptr() as u64;
        argument.extend([values, valid]);
    }
    let mut place = scratch.bytes.as_mut_ptr();
    for (register, validity) in shape.outputs.iter().zip(validity) {
        let vector = registers.vector_mut(of_program(*register));
        let values = for_lane!(vector.lane(), T => vector.values_mut::<T>().as_mut_ptr() as u64);
        argument.extend([values, place as u64]);
        if validity.is_computed {
            place = place.wrapping_add(VECTOR_ROWS_MAX);
        }
    }
    let selected = match registers.selected() {
        Selected::All(rows) => &ALL_ROWS[..rows],
        Selected::Some(rows) => rows,
    };
    argument[words::COUNT] = selected.len() as u64;
    argument[words::SELECTED] = selected.as_ptr() as u64;
    argument[words::KEPT] = scratch.rows.as_mut_ptr() as u64;
    argument[words::CONSTANTS] = constants.as_ptr() as u64;
    argument[words::HELPERS] = TABLE.address();
    // SAFETY: inputs have values for all rows and bits for as many as a vector has, outputs and scratch memory have room for as many,
    // selected rows are below that number, and constants are as many as the shape has. Each register has memory of its own, which
    // no other thread uses. Outputs are no inputs, but for kept registers, which the code knows to be both.
    let result = unsafe { function(argument.as_ptr()) };
    if result == FAILED {
        return false;
    }
    let mut bytes = scratch.bytes.chunks_exact(VECTOR_ROWS_MAX);
    for (register, of_output) in shape.outputs.iter().zip(validity) {
        let computed = if of_output.is_computed { bytes.next() } else { None };
        let out = of_program(*register);
        let mut validity = std::mem::take(&mut registers.vector_mut(out).validity);
        match computed {
            Some(bytes) if shape.kept.contains(register) => {
                registers.selected().for_each(|row| validity.set(row, bytes[row] == 1));
            }
            Some(bytes) => {
                validity.set_bytes(&bytes[..rows]);
                and_inputs(&mut validity, of_output, run, registers);
            }
            None => {
                validity.set_all();
                and_inputs(&mut validity, of_output, run, registers);
            }
        }
        registers.vector_mut(out).validity = validity;
    }
    if shape.filters() {
        registers.selection.keep(&scratch.rows[..result as usize]);
    }
    true
}

/// Values are null where those of inputs are.
fn and_inputs(
    validity: &mut Validity,
    of_output: &OutputValidity,
    run: &Run,
    registers: &Registers,
) {
    for input in &of_output.inputs {
        let (register, _) = run.shape.inputs[*input];
        validity.and(&registers.vector(run.registers[register.index()]).validity);
    }
}
