//! The loop of all kernels that make a value of one or two: over all rows or over those that are selected, with
//! registers or constants on either side.
//!
//! What can fail does not stop the loop, which would keep it from being vectorized, but leaves a trace in an *alarm*.
//! Only if it rang, its kernel looks again at each row that counts: the alarm may have been for one that does not.

use weft_codec::dispatch::{Kernel, dispatch};

use crate::lane::Value;
use crate::program::Operand;
use crate::registers::Registers;
use crate::selection::Selected;

use super::alarm::Alarm;

/// The values of an operand.
pub(crate) trait Column<T: Copy>: Copy {
    /// Itself, cut to its first `rows`.
    fn first(self, rows: usize) -> Self;

    /// The value of a row.
    fn at(self, row: usize) -> T;
}

impl<T: Copy> Column<T> for &[T] {
    #[inline(always)]
    fn first(self, rows: usize) -> Self {
        &self[..rows]
    }

    #[inline(always)]
    fn at(self, row: usize) -> T {
        self[row]
    }
}

/// The same value in every row.
#[derive(Clone, Copy)]
pub(crate) struct Same<T>(pub T);

impl<T: Copy> Column<T> for Same<T> {
    #[inline(always)]
    fn first(self, _: usize) -> Self {
        self
    }

    #[inline(always)]
    fn at(self, _: usize) -> T {
        self.0
    }
}

/// What is done to each pair of values.
pub(crate) trait Operation<A, B>: Copy {
    /// What it makes of them.
    type Out: Copy;
    /// What failures leave.
    type Alarm: Alarm;

    /// The value for a row. To be marked `#[inline(always)]`.
    fn apply(self, a: A, b: B, alarm: &mut Self::Alarm) -> Self::Out;
}

/// `out = operation(a, b)` for some rows.
struct Map<'a, A, B, CA, CB, O: Operation<A, B>> {
    a: CA,
    b: CB,
    out: &'a mut [O::Out],
    rows: Selected<'a>,
    operation: O,
    values: std::marker::PhantomData<(A, B)>,
}

impl<A: Copy, B: Copy, CA: Column<A>, CB: Column<B>, O: Operation<A, B>> Kernel
    for Map<'_, A, B, CA, CB, O>
{
    type Output = O::Alarm;

    #[inline(always)]
    fn run(self) -> O::Alarm {
        let mut alarm = O::Alarm::default();
        match self.rows {
            Selected::All(rows) => {
                let (a, b) = (self.a.first(rows), self.b.first(rows));
                for (row, out) in self.out[..rows].iter_mut().enumerate() {
                    *out = self.operation.apply(a.at(row), b.at(row), &mut alarm);
                }
            }
            Selected::Some(rows) => {
                for row in rows {
                    let row = usize::from(*row);
                    self.out[row] =
                        self.operation.apply(self.a.at(row), self.b.at(row), &mut alarm);
                }
            }
        }
        alarm
    }
}

/// Computes `out` from `a` and `b` for `rows`.
pub(crate) fn map<A: Copy, B: Copy, O: Operation<A, B>>(
    operation: O,
    a: impl Column<A>,
    b: impl Column<B>,
    rows: Selected<'_>,
    out: &mut [O::Out],
) -> O::Alarm {
    dispatch(Map { a, b, out, rows, operation, values: std::marker::PhantomData })
}

/// The rows to compute where it does no harm to compute too many: all, unless it takes longer than the rows that are
/// selected, each of which takes as long as `vectorized` rows that follow each other.
pub(crate) fn cheapest(registers: &Registers, vectorized: usize) -> Selected<'_> {
    let selected = registers.selected();
    if selected.count() * vectorized >= registers.rows() {
        Selected::All(registers.rows())
    } else {
        selected
    }
}

/// What a binary kernel reads, at most one of them a constant.
pub(crate) enum Pair<'a, T> {
    /// Two registers.
    Both(&'a [T], &'a [T]),
    /// A constant on the right.
    Right(&'a [T], T),
    /// A constant on the left.
    Left(T, &'a [T]),
    /// Two constants: a register's worth of the first one, and the second.
    Neither(Vec<T>, T),
}

impl<'a, T: Value> Pair<'a, T> {
    /// The values of two operands.
    ///
    /// # Panics
    /// If they are of another lane.
    pub(crate) fn new(registers: &'a Registers, a: &Operand, b: &Operand) -> Pair<'a, T> {
        match (a, b) {
            (Operand::Register(a), Operand::Register(b)) => {
                Pair::Both(registers.values(*a), registers.values(*b))
            }
            (Operand::Register(a), Operand::Constant(b)) => {
                Pair::Right(registers.values(*a), b.value())
            }
            (Operand::Constant(a), Operand::Register(b)) => {
                Pair::Left(a.value(), registers.values(*b))
            }
            (Operand::Constant(a), Operand::Constant(b)) => {
                Pair::Neither(vec![a.value(); registers.rows()], b.value())
            }
        }
    }

    /// The values of a row.
    pub(crate) fn at(&self, row: usize) -> (T, T) {
        match self {
            Pair::Both(a, b) => (a[row], b[row]),
            Pair::Right(a, b) => (a[row], *b),
            Pair::Left(a, b) => (*a, b[row]),
            Pair::Neither(a, b) => (a[row], *b),
        }
    }

    /// Computes `out` for `rows`.
    pub(crate) fn map<O: Operation<T, T>>(
        &self,
        operation: O,
        rows: Selected<'_>,
        out: &mut [O::Out],
    ) -> O::Alarm {
        match self {
            Pair::Both(a, b) => map(operation, *a, *b, rows, out),
            Pair::Right(a, b) => map(operation, *a, Same(*b), rows, out),
            Pair::Left(a, b) => map(operation, Same(*a), *b, rows, out),
            Pair::Neither(a, b) => map(operation, a.as_slice(), Same(*b), rows, out),
        }
    }
}

/// Makes `out` null where one of the operands is.
pub(crate) fn nulls_of(
    registers: &Registers,
    operands: [&Operand; 2],
    out: &mut crate::validity::Validity,
) {
    out.set_all();
    for operand in operands {
        if let Operand::Register(register) = operand {
            out.and(&registers.vector(*register).validity);
        }
    }
}
