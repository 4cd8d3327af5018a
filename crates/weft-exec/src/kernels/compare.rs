//! Comparisons.
//!
//! Two loops are enough for all of them: whether values are equal, and whether one is less than the other, with the
//! sides exchanged or the result turned round. Whole registers are compared, rows that do not count among them, unless
//! few are selected.

use super::bits::{pack, unpack};
use super::compare_text;
use super::map::{Operation, Pair, cheapest, nulls_of};
use crate::lane::{Bool, Lane, Value};
use crate::program::{Comparison, Operand, Register};
use crate::registers::Registers;
use crate::validity::Validity;
use crate::vector::Vector;

/// Values with an order, as [`Comparison`] has it.
pub(crate) trait Ordered: Value {
    /// True if both are the same.
    fn same(self, other: Self) -> bool;
    /// True if this one is smaller.
    fn is_less(self, other: Self) -> bool;
}

macro_rules! ordered {
    ($($value:ty),*) => {$(
        impl Ordered for $value {
            #[inline(always)]
            fn same(self, other: Self) -> bool {
                self == other
            }

            #[inline(always)]
            fn is_less(self, other: Self) -> bool {
                self < other
            }
        }
    )*};
}
ordered!(Bool, i8, i16, i32, i64, u8, u16, u32, u64, i128);

macro_rules! ordered_floats {
    ($($value:ty),*) => {$(
        impl Ordered for $value {
            #[inline(always)]
            fn same(self, other: Self) -> bool {
                (self == other) | (self.is_nan() & other.is_nan())
            }

            #[inline(always)]
            fn is_less(self, other: Self) -> bool {
                (self < other) | (!self.is_nan() & other.is_nan())
            }
        }
    )*};
}
ordered_floats!(f32, f64);

/// `a = b`, or not if it is turned.
#[derive(Clone, Copy)]
struct Same {
    turned: Bool,
}

/// `a < b`, or not if it is turned.
#[derive(Clone, Copy)]
struct Less {
    turned: Bool,
}

impl<T: Ordered> Operation<T, T> for Same {
    type Out = Bool;
    type Alarm = ();

    #[inline(always)]
    fn apply(self, a: T, b: T, _: &mut ()) -> Bool {
        Bool(u8::from(a.same(b)) ^ self.turned.0)
    }
}

impl<T: Ordered> Operation<T, T> for Less {
    type Out = Bool;
    type Alarm = ();

    #[inline(always)]
    fn apply(self, a: T, b: T, _: &mut ()) -> Bool {
        Bool(u8::from(a.is_less(b)) ^ self.turned.0)
    }
}

/// A comparison as one of the two loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loop {
    /// Whether both are equal.
    Same,
    /// Whether the first is less.
    Less,
}

/// The loop that makes a comparison, whether its sides are exchanged, and whether its result is turned round.
pub(crate) fn plan(op: Comparison) -> (Loop, bool, bool) {
    match op {
        Comparison::Equal | Comparison::NotDistinct => (Loop::Same, false, false),
        Comparison::NotEqual | Comparison::Distinct => (Loop::Same, false, true),
        Comparison::Less => (Loop::Less, false, false),
        Comparison::Greater => (Loop::Less, true, false),
        Comparison::LessOrEqual => (Loop::Less, true, true),
        Comparison::GreaterOrEqual => (Loop::Less, false, true),
    }
}

/// `out = a op b`
pub(crate) fn run(
    registers: &mut Registers,
    op: Comparison,
    a: &Operand,
    b: &Operand,
    out: Register,
) {
    let lane = match a {
        Operand::Register(a) => registers.vector(*a).lane(),
        Operand::Constant(a) => a.lane(),
    };
    let (kind, exchanged, turned) = plan(op);
    let (a, b) = if exchanged { (b, a) } else { (a, b) };
    registers.write(out, |registers, out| {
        nulls_of(registers, [a, b], &mut out.validity);
        match lane {
            Lane::Bool => numbers::<Bool>(registers, kind, turned, a, b, out),
            Lane::I8 => numbers::<i8>(registers, kind, turned, a, b, out),
            Lane::I16 => numbers::<i16>(registers, kind, turned, a, b, out),
            Lane::I32 => numbers::<i32>(registers, kind, turned, a, b, out),
            Lane::I64 => numbers::<i64>(registers, kind, turned, a, b, out),
            Lane::U8 => numbers::<u8>(registers, kind, turned, a, b, out),
            Lane::U16 => numbers::<u16>(registers, kind, turned, a, b, out),
            Lane::U32 => numbers::<u32>(registers, kind, turned, a, b, out),
            Lane::U64 => numbers::<u64>(registers, kind, turned, a, b, out),
            Lane::I128 => numbers::<i128>(registers, kind, turned, a, b, out),
            Lane::F32 => numbers::<f32>(registers, kind, turned, a, b, out),
            Lane::F64 => numbers::<f64>(registers, kind, turned, a, b, out),
            Lane::Str => compare_text::run(registers, kind, turned, a, b, out),
        }
        if matches!(op, Comparison::NotDistinct | Comparison::Distinct) {
            distinguish(registers, op == Comparison::Distinct, a, b, out);
        }
    });
}

fn numbers<T: Ordered>(
    registers: &Registers,
    kind: Loop,
    turned: bool,
    a: &Operand,
    b: &Operand,
    out: &mut Vector,
) {
    let rows = cheapest(registers, 64 / size_of::<T>());
    let pair = Pair::<T>::new(registers, a, b);
    let turned = turned.into();
    match kind {
        Loop::Same => pair.map(Same { turned }, rows, out.values_mut()),
        Loop::Less => pair.map(Less { turned }, rows, out.values_mut()),
    }
}

/// Makes a comparison that knows null of one that does not: null is the same as null, and distinct from all else.
fn distinguish(
    registers: &Registers,
    is_distinct: bool,
    a: &Operand,
    b: &Operand,
    out: &mut Vector,
) {
    if !out.validity.has_nulls() {
        return;
    }
    let rows = registers.rows();
    let all = Validity::default();
    let validity = |operand: &Operand| match operand {
        Operand::Register(register) => &registers.vector(*register).validity,
        Operand::Constant(_) => &all,
    };
    let word_of = |validity: &Validity, word: usize| match validity.words() {
        Some(words) => words[word],
        None => u64::MAX,
    };
    let (a, b) = (validity(a), validity(b));
    let mut bits = pack(out.values::<Bool>(), rows);
    for (word, bits) in bits.iter_mut().enumerate() {
        let (x, y) = (word_of(a, word), word_of(b, word));
        let one_is_null = x ^ y;
        let both_are = !x & !y;
        let (set, cleared) =
            if is_distinct { (one_is_null, both_are) } else { (both_are, one_is_null) };
        *bits = (*bits | set) & !cleared;
    }
    unpack(&bits, rows, out.values_mut());
    out.validity.set_all();
}
