//! AND, OR and NOT of SQL's three truth values.

use super::bits::{Bits, pack};
use super::map::{Operation, Same, cheapest, map};
use crate::lane::Bool;
use crate::program::Register;
use crate::registers::Registers;
use crate::validity::Validity;
use crate::vector::Vector;

/// Rows that are computed in the time of one that is picked out.
const VECTORIZED: usize = 32;

#[derive(Clone, Copy)]
struct And;
#[derive(Clone, Copy)]
struct Or;
#[derive(Clone, Copy)]
struct Not;

impl Operation<Bool, Bool> for And {
    type Out = Bool;
    type Alarm = ();

    #[inline(always)]
    fn apply(self, a: Bool, b: Bool, _: &mut ()) -> Bool {
        Bool(a.0 & b.0)
    }
}

impl Operation<Bool, Bool> for Or {
    type Out = Bool;
    type Alarm = ();

    #[inline(always)]
    fn apply(self, a: Bool, b: Bool, _: &mut ()) -> Bool {
        Bool(a.0 | b.0)
    }
}

impl Operation<Bool, ()> for Not {
    type Out = Bool;
    type Alarm = ();

    #[inline(always)]
    fn apply(self, a: Bool, _: (), _: &mut ()) -> Bool {
        Bool(a.0 ^ 1)
    }
}

/// `out = a AND b`
pub(crate) fn and(registers: &mut Registers, a: Register, b: Register, out: Register) {
    combine(registers, And, false, a, b, out);
}

/// `out = a OR b`
pub(crate) fn or(registers: &mut Registers, a: Register, b: Register, out: Register) {
    combine(registers, Or, true, a, b, out);
}

/// `out = NOT a`
pub(crate) fn not(registers: &mut Registers, a: Register, out: Register) {
    registers.write(out, |registers, out| {
        let a = registers.vector(a);
        let rows = cheapest(registers, VECTORIZED);
        map(Not, a.values::<Bool>(), Same(()), rows, out.values_mut::<Bool>());
        out.validity.copy_from(&a.validity);
    });
}

fn combine<O: Operation<Bool, Bool, Out = Bool>>(
    registers: &mut Registers,
    operation: O,
    decides: bool,
    a: Register,
    b: Register,
    out: Register,
) {
    registers.write(out, |registers, out| {
        let (a, b) = (registers.vector(a), registers.vector(b));
        let rows = cheapest(registers, VECTORIZED);
        let (x, y) = (a.values::<Bool>(), b.values::<Bool>());
        map(operation, x, y, rows, out.values_mut::<Bool>());
        out.validity.set_all();
        if a.validity.has_nulls() || b.validity.has_nulls() {
            decide(a, b, decides, registers.rows(), out);
        }
    });
}

/// Where either is null: not null where the other one decides alone, which is so if it is `decides`.
fn decide(a: &Vector, b: &Vector, decides: bool, rows: usize, out: &mut Vector) {
    let (x, y) = (words(&a.validity), words(&b.validity));
    let (p, q) = (pack(a.values::<Bool>(), rows), pack(b.values::<Bool>(), rows));
    let flip = if decides { 0 } else { u64::MAX };
    let valid = out.validity.words_mut();
    let mut value = [0; super::bits::WORDS];
    for word in 0..rows.div_ceil(64) {
        let (x, y) = (x[word], y[word]);
        let decided = x & (p[word] ^ flip) | y & (q[word] ^ flip);
        valid[word] = x & y | decided;
        // What lies under a null could have been taken for the value.
        value[word] = if decides { decided } else { x & y & p[word] & q[word] };
    }
    super::bits::unpack(&value, rows, out.values_mut::<Bool>());
}

fn words(validity: &Validity) -> Bits {
    validity.words().copied().unwrap_or([u64::MAX; super::bits::WORDS])
}
