//! Comparisons of strings.
//!
//! Most are decided by the views alone: by length and first four bytes, or by all of them if a string is short. With a
//! short constant no string is ever looked at.

use super::compare::Loop;
use super::map::{Operation, Pair, cheapest};
use crate::lane::Bool;
use crate::program::Operand;
use crate::registers::Registers;
use crate::text::Str;
use crate::vector::Vector;

/// Views that are the same, or not if it is turned.
#[derive(Clone, Copy)]
struct SameView {
    turned: Bool,
}

impl Operation<Str, Str> for SameView {
    type Out = Bool;
    type Alarm = ();

    #[inline(always)]
    fn apply(self, a: Str, b: Str, _: &mut ()) -> Bool {
        Bool(u8::from(a == b) ^ self.turned.0)
    }
}

/// `out` is a comparison of `a` and `b` where `out` is not null.
pub(crate) fn run(
    registers: &Registers,
    kind: Loop,
    turned: bool,
    a: &Operand,
    b: &Operand,
    out: &mut Vector,
) {
    let pair = Pair::<Str>::new(registers, a, b);
    let short = match &pair {
        Pair::Right(_, constant) | Pair::Left(constant, _) => constant.is_inline(),
        _ => false,
    };
    if kind == Loop::Same && short {
        // A view of so few bytes is all there is to compare.
        pair.map(SameView { turned: turned.into() }, cheapest(registers, 4), out.values_mut());
        return;
    }
    // SAFETY: both are only called for strings that are selected and not null, which are alive.
    let same = |a: Str, b: Str| unsafe { a.equals(&b) };
    // SAFETY: as above.
    let is_less = |a: Str, b: Str| unsafe { a.compare(&b).is_lt() };
    match (kind, &pair) {
        (Loop::Same, Pair::Both(a, b)) => {
            compare(registers, turned, out, |row| same(a[row], b[row]))
        }
        (Loop::Less, Pair::Both(a, b)) => {
            compare(registers, turned, out, |row| is_less(a[row], b[row]));
        }
        (kind, pair) => compare(registers, turned, out, |row| {
            let (a, b) = pair.at(row);
            if kind == Loop::Same { same(a, b) } else { is_less(a, b) }
        }),
    }
}

fn compare(registers: &Registers, turned: bool, out: &mut Vector, truth: impl Fn(usize) -> bool) {
    let words = out.validity.words().copied();
    let values = out.values_mut::<Bool>();
    match words {
        None => registers.selected().for_each(|row| values[row] = Bool::from(truth(row) != turned)),
        Some(words) => registers.selected().for_each(|row| {
            if words[row / 64] >> (row % 64) & 1 == 1 {
                values[row] = Bool::from(truth(row) != turned);
            }
        }),
    }
}
