//! `out = a op b`, `out = -a`, and one zero and one NaN for floats.

use super::alarm::Alarm;
use super::hash::{canonical_32, canonical_64};
use super::map::{Operation, Pair, Same, cheapest, map, nulls_of};
use super::operators::*;
use crate::error::{ExecError, Result};
use crate::lane::{Lane, Value};
use crate::program::{Arithmetic, Operand, Overflow, Register};
use crate::registers::Registers;
use crate::vector::Vector;

/// What is computed, of one lane.
#[derive(Clone, Copy)]
struct Work<'a> {
    registers: &'a Registers,
    op: Arithmetic,
    overflow: Overflow,
    a: &'a Operand,
    b: &'a Operand,
}

/// `out = a op b`
pub(crate) fn run(
    registers: &mut Registers,
    op: Arithmetic,
    a: &Operand,
    b: &Operand,
    out: Register,
    overflow: Overflow,
) -> Result<()> {
    registers.write(out, |registers, out| {
        let work = Work { registers, op, overflow, a, b };
        nulls_of(registers, [a, b], &mut out.validity);
        match out.lane() {
            Lane::I32 => integers_i32(work, out),
            Lane::I64 => integers_i64(work, out),
            Lane::U32 => integers_u32(work, out),
            Lane::U64 => integers_u64(work, out),
            Lane::I128 => integers_i128(work, out),
            Lane::F32 => floats_f32(work, out),
            Lane::F64 => floats_f64(work, out),
            lane => unreachable!("{op:?} of {lane}"),
        }
    })
}

impl Work<'_> {
    /// Computes what cannot fail.
    fn plain<T: Value, O: Operation<T, T, Out = T>>(
        self,
        operator: O,
        out: &mut Vector,
    ) -> Result<()> {
        let rows = cheapest(self.registers, 64 / size_of::<T>());
        Pair::<T>::new(self.registers, self.a, self.b).map(operator, rows, out.values_mut());
        Ok(())
    }

    /// Computes what can fail, where it takes so many rows in a row to be as expensive as one picked out; and if the
    /// alarm rang asks `check` about each row that counts.
    fn checked<T: Value + std::fmt::Display, O: Operation<T, T, Out = T>>(
        self,
        operator: O,
        vectorized: usize,
        out: &mut Vector,
        check: impl Fn(T, T) -> Result<T, Failure>,
    ) -> Result<()> {
        let rows = cheapest(self.registers, vectorized);
        let pair = Pair::<T>::new(self.registers, self.a, self.b);
        if !pair.map(operator, rows, out.values_mut()).rang() {
            return Ok(());
        }
        let Vector { validity, .. } = &*out;
        self.registers.selected().try_for_each(|row| {
            let (a, b) = pair.at(row);
            match check(a, b) {
                Err(failure) if validity.is_valid(row) => Err(failure.of(self.op, a, b, T::LANE)),
                _ => Ok(()),
            }
        })
    }
}

/// Why there is no result.
enum Failure {
    Overflow,
    DivisionByZero,
}

impl Failure {
    #[cold]
    fn of(
        self,
        op: Arithmetic,
        a: impl std::fmt::Display,
        b: impl std::fmt::Display,
        lane: Lane,
    ) -> ExecError {
        match self {
            Failure::Overflow => ExecError::Overflow {
                operation: format!("{a} {} {b}", sign(op)),
                into: lane.to_string(),
            },
            Failure::DivisionByZero => ExecError::DivisionByZero,
        }
    }
}

fn sign(op: Arithmetic) -> &'static str {
    match op {
        Arithmetic::Add => "+",
        Arithmetic::Subtract => "-",
        Arithmetic::Multiply => "*",
        Arithmetic::Divide => "/",
        Arithmetic::Remainder => "%",
        Arithmetic::BitAnd => "&",
        Arithmetic::BitOr => "|",
        Arithmetic::BitXor => "^",
    }
}

/// Rows that are divided in the time of one that is picked out: no instruction divides several integers.
const DIVIDED: usize = 1;

macro_rules! integers {
    ($($name:ident: $value:ident),*) => {$(
        fn $name(work: Work<'_>, out: &mut Vector) -> Result<()> {
            let vectorized = 32 / size_of::<$value>();
            let quotient = |quotient: Option<$value>, b: $value| {
                let failure = if b == 0 { Failure::DivisionByZero } else { Failure::Overflow };
                quotient.ok_or(failure)
            };
            match (work.op, work.overflow) {
                (Arithmetic::Add, Overflow::Impossible) => work.plain::<$value, _>(Add, out),
                (Arithmetic::Subtract, Overflow::Impossible) => work.plain::<$value, _>(Subtract, out),
                (Arithmetic::Multiply, Overflow::Impossible) => work.plain::<$value, _>(Multiply, out),
                (Arithmetic::BitAnd, _) => work.plain::<$value, _>(BitAnd, out),
                (Arithmetic::BitOr, _) => work.plain::<$value, _>(BitOr, out),
                (Arithmetic::BitXor, _) => work.plain::<$value, _>(BitXor, out),
                (Arithmetic::Add, Overflow::Error) => work
                    .checked(CheckedAdd, vectorized, out, |a: $value, b| a.checked_add(b).ok_or(Failure::Overflow)),
                (Arithmetic::Subtract, Overflow::Error) => work
                    .checked(CheckedSubtract, vectorized, out, |a: $value, b| a.checked_sub(b).ok_or(Failure::Overflow)),
                (Arithmetic::Multiply, Overflow::Error) => {
                    let pair = Pair::<$value>::new(work.registers, work.a, work.b);
                    let rows = cheapest(work.registers, vectorized);
                    if !pair.map(CheckedMultiply, rows, out.values_mut()).rang() {
                        return Ok(());
                    }
                    work.checked(ExactMultiply, DIVIDED, out, |a: $value, b| a.checked_mul(b).ok_or(Failure::Overflow))
                }
                (Arithmetic::Divide, _) => work
                    .checked(CheckedDivide, DIVIDED, out, |a: $value, b| quotient(a.checked_div(b), b)),
                (Arithmetic::Remainder, _) => work.checked(CheckedRemainder, DIVIDED, out, |a: $value, b| {
                    if b == 0 { Err(Failure::DivisionByZero) } else { Ok(a.wrapping_rem(b)) }
                }),
            }
        }
    )*};
}
integers!(integers_i32: i32, integers_i64: i64, integers_u32: u32, integers_u64: u64, integers_i128: i128);

macro_rules! floats {
    ($($name:ident: $value:ident),*) => {$(
        fn $name(work: Work<'_>, out: &mut Vector) -> Result<()> {
            match work.op {
                Arithmetic::Add => work.plain::<$value, _>(Add, out),
                Arithmetic::Subtract => work.plain::<$value, _>(Subtract, out),
                Arithmetic::Multiply => work.plain::<$value, _>(Multiply, out),
                Arithmetic::Divide => work.plain::<$value, _>(Divide, out),
                Arithmetic::Remainder => work.plain::<$value, _>(Remainder, out),
                op => unreachable!("{op:?} of floats"),
            }
        }
    )*};
}
floats!(floats_f32: f32, floats_f64: f64);

#[derive(Clone, Copy)]
struct Negative;

#[derive(Clone, Copy)]
struct Canonical;

macro_rules! of_floats {
    ($($name:ident of $value:ty: $apply:expr),*) => {$(
        impl Operation<$value, ()> for $name {
            type Out = $value;
            type Alarm = ();

            #[inline(always)]
            fn apply(self, a: $value, _: (), _: &mut ()) -> $value {
                $apply(a)
            }
        }
    )*};
}
of_floats!(
    Negative of f32: |a: f32| -a,
    Negative of f64: |a: f64| -a,
    Canonical of f32: |a| f32::from_bits(canonical_32(a)),
    Canonical of f64: |a| f64::from_bits(canonical_64(a))
);

/// `out = -a`
pub(crate) fn negate(
    registers: &mut Registers,
    a: Register,
    out: Register,
    overflow: Overflow,
) -> Result<()> {
    use crate::program::Constant;
    let zero = match registers.vector(out).lane() {
        Lane::F32 => {
            map_floats::<f32, _>(Negative, registers, a, out);
            return Ok(());
        }
        Lane::F64 => {
            map_floats::<f64, _>(Negative, registers, a, out);
            return Ok(());
        }
        Lane::I32 => Constant::I32(0),
        Lane::I64 => Constant::I64(0),
        Lane::U32 => Constant::U32(0),
        Lane::U64 => Constant::U64(0),
        Lane::I128 => Constant::I128(0),
        lane => unreachable!("negative {lane}"),
    };
    // 0 - a overflows where -a does.
    let (zero, a) = (Operand::Constant(zero), Operand::Register(a));
    run(registers, Arithmetic::Subtract, &zero, &a, out, overflow)
}

/// `out = a`, with one zero and one NaN.
pub(crate) fn canonical(registers: &mut Registers, a: Register, out: Register) {
    match registers.vector(out).lane() {
        Lane::F32 => map_floats::<f32, _>(Canonical, registers, a, out),
        Lane::F64 => map_floats::<f64, _>(Canonical, registers, a, out),
        lane => unreachable!("canonical {lane}"),
    }
}

fn map_floats<T: Value, O>(operation: O, registers: &mut Registers, a: Register, out: Register)
where
    O: Operation<T, (), Out = T>,
{
    registers.write(out, |registers, out| {
        let a = registers.vector(a);
        let rows = cheapest(registers, 64 / size_of::<T>());
        map(operation, a.values::<T>(), Same(()), rows, out.values_mut());
        out.validity.copy_from(&a.validity);
    });
}
