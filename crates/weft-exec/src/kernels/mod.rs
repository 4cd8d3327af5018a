//! Kernels: what each step does to a vector, compiled ahead for every lane.
//!
//! Each file has the kernel of one step, or of some that are alike. `map` has the loop that most of them share,
//! `dispatch` runs it as the processor can do it best. Two rules hold everywhere: rows that are not selected may be
//! computed, but must not fail; and strings are only looked at in rows that are selected and not null, since others may
//! refer to memory that is gone.

mod alarm;
mod arithmetic;
pub(crate) mod bits;
mod calendar;
pub(crate) mod call;
mod cast;
mod characters;
mod compare;
mod compare_text;
mod decimal;
mod extract;
mod fill;
pub(crate) mod filter;
pub(crate) mod hash;
pub mod in_set;
mod is_null;
mod length;
pub mod like;
mod load;
mod logic;
mod map;
mod number;
mod operators;
mod substring;

use crate::error::Result;
use crate::program::Step;
use crate::registers::Registers;

/// Runs a step that neither changes which tuples are selected nor makes more of them.
///
/// # Errors
/// What is wrong with a tuple that is selected.
pub(crate) fn run(step: &Step, registers: &mut Registers) -> Result<()> {
    match step {
        Step::Arithmetic { op, a, b, out, overflow } => {
            return arithmetic::run(registers, *op, a, b, *out, *overflow);
        }
        Step::Negate { a, out, overflow } => {
            return arithmetic::negate(registers, *a, *out, *overflow);
        }
        Step::Canonical { a, out } => arithmetic::canonical(registers, *a, *out),
        Step::Rescale { a, digits, out, overflow } => {
            return decimal::rescale(registers, *a, *digits, *out, *overflow);
        }
        Step::Digits { a, digits } => return decimal::check_digits(registers, *a, *digits),
        Step::Cast { a, out, failure } => return cast::run(registers, *a, *out, *failure),
        Step::Hash { keys, out } => hash::run(registers, keys, *out),
        Step::Compare { op, a, b, out } => compare::run(registers, *op, a, b, *out),
        Step::And { a, b, out } => logic::and(registers, *a, *b, *out),
        Step::Or { a, b, out } => logic::or(registers, *a, *b, *out),
        Step::Not { a, out } => logic::not(registers, *a, *out),
        Step::IsNull { a, negated, out } => is_null::run(registers, *a, *negated, *out),
        Step::Fill { value, out } => fill::fill(registers, value.as_ref(), *out),
        Step::Assign { a, out } => fill::assign(registers, a, *out),
        Step::Load { tuples, layout, field, out } => {
            load::run(registers, *tuples, layout, *field, *out);
        }
        Step::Like { a, pattern, negated, out } => {
            like::run(registers, *a, pattern, *negated, *out)
        }
        Step::In { a, values, has_null, negated, out } => {
            in_set::run(registers, *a, values, *has_null, *negated, *out);
        }
        Step::Substring { a, start, length, out } => {
            substring::run(registers, *a, *start, *length, *out);
        }
        Step::Length { a, unit, out } => length::run(registers, *a, *unit, *out),
        Step::Extract { a, unit, part, out } => extract::run(registers, *a, *unit, *part, *out),
        Step::Call { function, inputs, out } => {
            return call::run(registers, function, inputs, *out);
        }
        Step::Filter { .. }
        | Step::MayMatch { .. }
        | Step::Begin { .. }
        | Step::Else
        | Step::End
        | Step::Expand(_) => {
            unreachable!("{step:?} is the interpreter's");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
