//! sum and avg: exact for integers and decimals, or an error.
//!
//! Integers of up to 32 bits are summed in 64 bits, with checks; those of 64 bits in 128, which takes more rows to
//! overflow than there can be; those of 128 bits in 128, with checks. Whether a sum fits into the lane of the result is
//! only asked in the end, so that it does not matter in which order rows come.

use std::marker::PhantomData;

use weft_codec::dispatch::{Kernel, dispatch};

use super::masked::{MASKED_MAX, Masked, are_small, sums};
use super::memory::Memory;
use super::state::{Feed, Outcome, Place, State, Tuple};
use crate::error::{ExecError, Result};
use crate::lane::{Lane, Value};
use crate::program::Register;
use crate::selection::Selected;
use crate::vector::Vector;

/// What sums are of.
pub(crate) trait Summand: Value {
    /// What they are summed in.
    type Sum: Number;

    /// As the sum's type has it.
    fn widen(self) -> Self::Sum;

    /// The sum of a vector's rows; `None` if it overflows.
    fn total(values: &[Self], rows: Selected<'_>) -> Option<Self::Sum>;

    /// The sums of a vector's rows by group; `None` for those that are better summed up by [`Summand::total`].
    fn totals(values: &[Self], masked: Masked<'_>) -> Option<[Self::Sum; MASKED_MAX]>;
}

/// What sums are in, and results.
pub(crate) trait Number: Value {
    /// `None` if it overflows.
    fn plus(self, other: Self) -> Option<Self>;
    /// `None` if it overflows.
    fn minus(self, other: Self) -> Option<Self>;
    /// Nearest float.
    fn to_f64(self) -> f64;
    /// The integer; `None` for floats.
    fn to_i128(self) -> Option<i128>;
    /// `None` if it does not fit. In 128 bits there are decimals, of 38 digits at most.
    fn from_i128(value: i128) -> Option<Self>;
    /// `None` for integers.
    fn from_f64(value: f64) -> Option<Self>;
}

/// Decimals have fewer.
const DECIMAL_END: u128 = 10u128.pow(38);

macro_rules! integers {
    ($($number:ty: $is_in_range:expr),*) => {$(
        impl Number for $number {
            #[inline(always)]
            fn plus(self, other: Self) -> Option<Self> {
                self.checked_add(other)
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Option<Self> {
                self.checked_sub(other)
            }
            fn to_f64(self) -> f64 {
                self as f64
            }
            fn to_i128(self) -> Option<i128> {
                Some(self.into())
            }
            fn from_i128(value: i128) -> Option<Self> {
                value.try_into().ok().filter($is_in_range)
            }
            fn from_f64(_: f64) -> Option<Self> {
                None
            }
        }
    )*};
}
integers!(
    i8: |_| true,
    i16: |_| true,
    i32: |_| true,
    i64: |_| true,
    u8: |_| true,
    u16: |_| true,
    u32: |_| true,
    u64: |_| true,
    i128: |value: &i128| value.unsigned_abs() < DECIMAL_END
);

macro_rules! floats {
    ($($number:ty),*) => {$(
        impl Number for $number {
            #[inline(always)]
            fn plus(self, other: Self) -> Option<Self> {
                Some(self + other)
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Option<Self> {
                Some(self - other)
            }
            fn to_f64(self) -> f64 {
                self.into()
            }
            fn to_i128(self) -> Option<i128> {
                None
            }
            fn from_i128(value: i128) -> Option<Self> {
                Some(value as $number)
            }
            fn from_f64(value: f64) -> Option<Self> {
                Some(value as $number)
            }
        }
    )*};
}
floats!(f32, f64);

/// Sums up the values of rows, in four sums at once.
#[inline(always)]
fn four<T: Value, A: Copy>(
    values: &[T],
    rows: &[u16],
    zero: A,
    add: impl Fn(A, T) -> A,
    join: impl Fn(A, A) -> A,
) -> A {
    let mut sums = [zero; 4];
    let (fours, rest) = rows.as_chunks::<4>();
    for rows in fours {
        for (sum, row) in sums.iter_mut().zip(rows) {
            *sum = add(*sum, values[usize::from(*row)]);
        }
    }
    rest.iter().for_each(|row| sums[0] = add(sums[0], values[usize::from(*row)]));
    join(join(sums[0], sums[1]), join(sums[2], sums[3]))
}

/// Sums up all values, in eight sums at once: as many as a processor adds in one instruction.
struct Eight<'a, T, A, F> {
    values: &'a [T],
    zero: A,
    add: F,
}

impl<T: Value, A: Copy, F: Fn(A, T) -> A> Kernel for Eight<'_, T, A, F> {
    type Output = [A; 8];

    #[inline(always)]
    fn run(self) -> [A; 8] {
        let mut sums = [self.zero; 8];
        let (eights, rest) = self.values.as_chunks::<8>();
        for values in eights {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = (self.add)(*sum, *value);
            }
        }
        for (sum, value) in sums.iter_mut().zip(rest) {
            *sum = (self.add)(*sum, *value);
        }
        sums
    }
}

fn eight<T: Value, A: Copy, F: Fn(A, T) -> A>(values: &[T], zero: A, add: F) -> [A; 8] {
    dispatch(Eight { values, zero, add })
}

macro_rules! small_summands {
    ($($value:ty),*) => {$(
        impl Summand for $value {
            type Sum = i64;
            #[inline(always)]
            fn widen(self) -> i64 {
                self.into()
            }
            fn total(values: &[Self], rows: Selected<'_>) -> Option<i64> {
                let add = |sum: i64, value: Self| sum + i64::from(value);
                Some(match rows {
                    Selected::All(count) => eight(&values[..count], 0, add).iter().sum(),
                    Selected::Some(rows) => four(values, rows, 0, add, |a, b| a + b),
                })
            }
            fn totals(values: &[Self], masked: Masked<'_>) -> Option<[i64; MASKED_MAX]> {
                Some(sums(values, masked, i64::from))
            }
        }
    )*};
}
small_summands!(i8, i16, i32, u8, u16, u32);

/// Of up to [`VECTOR_ROWS_MAX`](crate::VECTOR_ROWS_MAX) numbers, neither the sum of their low halves nor that of their
/// high halves overflows 64 bits: two additions a row, and one of 128 bits in the end.
macro_rules! wide_summands {
    ($($value:ty),*) => {$(
        impl Summand for $value {
            type Sum = i128;
            #[inline(always)]
            fn widen(self) -> i128 {
                self.into()
            }
            fn total(values: &[Self], rows: Selected<'_>) -> Option<i128> {
                let low = |sum: u64, value: Self| sum + u64::from(value as u32);
                let high = |sum: Self, value: Self| sum + (value >> 32);
                let (low, high): (u64, Self) = match rows {
                    Selected::All(count) => {
                        let values = &values[..count];
                        let lows = eight(values, 0, low);
                        (lows.iter().sum(), eight(values, 0, high).iter().sum())
                    }
                    Selected::Some(rows) => four(
                        values,
                        rows,
                        (0, 0),
                        |sums, value| (low(sums.0, value), high(sums.1, value)),
                        |a, b| (a.0 + b.0, a.1 + b.1),
                    ),
                };
                Some((i128::from(high) << 32) + i128::from(low))
            }
            fn totals(values: &[Self], masked: Masked<'_>) -> Option<[i128; MASKED_MAX]> {
                // What does not fit is not small.
                let of = |value: Self| i64::try_from(value).unwrap_or(i64::MAX);
                are_small(&values[..masked.numbers.len()], of)
                    .then(|| sums(values, masked, of).map(i128::from))
            }
        }
    )*};
}
wide_summands!(i64, u64);

impl Summand for i128 {
    type Sum = i128;
    #[inline(always)]
    fn widen(self) -> i128 {
        self
    }
    fn total(values: &[i128], rows: Selected<'_>) -> Option<i128> {
        let add = |(sum, before): (i128, bool), value| {
            let (sum, overflow) = sum.overflowing_add(value);
            (sum, before | overflow)
        };
        let (sum, overflow) = match rows {
            Selected::All(count) => values[..count].iter().copied().fold((0, false), add),
            Selected::Some(rows) => four(values, rows, (0, false), add, |a, b| {
                let (sum, overflow) = a.0.overflowing_add(b.0);
                (sum, a.1 | b.1 | overflow)
            }),
        };
        (!overflow).then_some(sum)
    }
    fn totals(_: &[i128], _: Masked<'_>) -> Option<[i128; MASKED_MAX]> {
        None
    }
}

macro_rules! float_summands {
    ($($value:ty),*) => {$(
        impl Summand for $value {
            type Sum = f64;
            #[inline(always)]
            fn widen(self) -> f64 {
                self.into()
            }
            fn total(values: &[Self], rows: Selected<'_>) -> Option<f64> {
                let add = |sum: f64, value: Self| sum + f64::from(value);
                Some(match rows {
                    Selected::All(count) => eight(&values[..count], 0.0, add).iter().sum(),
                    Selected::Some(rows) => four(values, rows, 0.0, add, |a, b| a + b),
                })
            }
            fn totals(_: &[Self], _: Masked<'_>) -> Option<[f64; MASKED_MAX]> {
                // Their order must be kept in a loop, which makes it a slow one.
                None
            }
        }
    )*};
}
float_summands!(f32, f64);

/// The sum of a register; null as long as there is none.
#[derive(Debug)]
pub(super) struct Sum<T: Summand> {
    pub(super) argument: Register,
    pub(super) sum: Place<T::Sum>,
}

impl<T: Summand> Sum<T> {
    #[cold]
    fn overflow(&self) -> ExecError {
        overflow("the sum of a column", <T::Sum as Value>::LANE)
    }
}

/// The error of a result that has no place in `lane`.
#[cold]
pub(crate) fn overflow(operation: &str, lane: Lane) -> ExecError {
    ExecError::Overflow { operation: operation.into(), into: lane.to_string() }
}

impl<T: Summand> State for Sum<T> {
    fn begin(&self, tuple: Tuple) {
        self.sum.set(tuple, <T::Sum as Default>::default());
    }

    fn add(&self, tuples: &[Tuple], rows: &[u16], feed: &mut Feed<'_>) -> Result<()> {
        let values = feed.registers.values::<T>(self.argument);
        for (tuple, row) in tuples.iter().zip(rows) {
            let value = values[usize::from(*row)].widen();
            let sum = self.sum.get(*tuple).plus(value).ok_or_else(|| self.overflow())?;
            self.sum.set(*tuple, sum);
        }
        self.sum.clear_nulls(tuples);
        Ok(())
    }

    fn add_to_one(&self, tuple: Tuple, rows: Selected<'_>, feed: &mut Feed<'_>) -> Result<()> {
        if rows.count() == 0 {
            return Ok(());
        }
        let values = feed.registers.values::<T>(self.argument);
        let sum = T::total(values, rows).and_then(|total| self.sum.get(tuple).plus(total));
        self.sum.set(tuple, sum.ok_or_else(|| self.overflow())?);
        self.sum.clear_null(tuple);
        Ok(())
    }

    fn add_masked(&self, masked: Masked<'_>, feed: &mut Feed<'_>) -> Result<bool> {
        let values = feed.registers.values::<T>(self.argument);
        let Some(totals) = T::totals(values, masked) else { return Ok(false) };
        for ((group, count), total) in masked.groups.iter().zip(masked.counts).zip(totals) {
            if *count > 0 {
                let sum = self.sum.get(*group).plus(total).ok_or_else(|| self.overflow())?;
                self.sum.set(*group, sum);
                self.sum.clear_null(*group);
            }
        }
        Ok(true)
    }

    fn merge(&self, into: &[Tuple], from: &[Tuple], _: &mut Memory) -> Result<()> {
        for (into, from) in into.iter().zip(from) {
            if !self.sum.is_null(*from) {
                let sum = self.sum.get(*into).plus(self.sum.get(*from));
                self.sum.set(*into, sum.ok_or_else(|| self.overflow())?);
                self.sum.clear_null(*into);
            }
        }
        Ok(())
    }
}

/// A sum in the lane of the result.
#[derive(Debug)]
pub(super) struct SumOutcome<S, T> {
    pub(super) sum: Place<S>,
    pub(super) out: PhantomData<T>,
}

impl<S: Number, T: Number> Outcome for SumOutcome<S, T> {
    fn lane(&self) -> Lane {
        T::LANE
    }

    fn write(&self, tuples: &[Tuple], out: &mut Vector, _: &mut Memory) -> Result<()> {
        out.validity.set_all();
        for (at, tuple) in tuples.iter().enumerate() {
            if self.sum.is_null(*tuple) {
                out.validity.set(at, false);
                continue;
            }
            let sum = self.sum.get(*tuple);
            let value = match sum.to_i128() {
                Some(sum) => T::from_i128(sum),
                None => T::from_f64(sum.to_f64()),
            };
            out.values_mut::<T>()[at] = value.ok_or_else(|| overflow("a sum", T::LANE))?;
        }
        Ok(())
    }
}

/// A sum divided by a count: null for no rows.
#[derive(Debug)]
pub(super) struct AverageOutcome<S, T> {
    pub(super) sum: Place<S>,
    pub(super) rows: Place<u64>,
    /// Digits that the result has behind the point beyond those of the sum, or fewer of them, if it is an integer;
    /// if it is a float, that of an integer, the digits behind the point of the sum.
    pub(super) digits: i8,
    pub(super) out: PhantomData<T>,
}

/// A sum divided by the number of rows, with `digits` as in [`AverageOutcome`], the last of which is rounded; `None` if it overflows.
pub(crate) fn average<S: Number, T: Number>(sum: S, rows: u64, digits: i8) -> Option<T> {
    let power = 10i128.pow(digits.unsigned_abs().into());
    if matches!(T::LANE, Lane::F32 | Lane::F64) {
        return T::from_f64(sum.to_f64() / rows as f64 / power as f64);
    }
    let (sum, rows) = (sum.to_i128()?, i128::from(rows));
    if digits < 0 {
        return T::from_i128(sum / power / rows);
    }
    let sum = sum.checked_mul(power)?;
    let rounds = (sum % rows).abs() * 2 >= rows;
    T::from_i128(sum / rows + if rounds { sum.signum() } else { 0 })
}

impl<S: Number, T: Number> Outcome for AverageOutcome<S, T> {
    fn lane(&self) -> Lane {
        T::LANE
    }

    fn write(&self, tuples: &[Tuple], out: &mut Vector, _: &mut Memory) -> Result<()> {
        out.validity.set_all();
        for (at, tuple) in tuples.iter().enumerate() {
            let rows = self.rows.get(*tuple);
            if rows == 0 {
                out.validity.set(at, false);
                continue;
            }
            let average = average::<S, T>(self.sum.get(*tuple), rows, self.digits);
            out.values_mut::<T>()[at] = average.ok_or_else(|| overflow("an average", T::LANE))?;
        }
        Ok(())
    }
}
