//! Decimals: digits behind the point added or taken away, and the number of digits checked.

use super::alarm::Alarm;
use super::map::{Operation, Same, cheapest, map};
use super::number::{Number, To};
use crate::error::{ExecError, Result};
use crate::lane::{Lane, Value};
use crate::program::{Overflow, Register};
use crate::registers::Registers;
use crate::vector::Vector;

/// Times a power of ten; `low` to `high` are what has a product.
#[derive(Clone, Copy)]
struct Times<T> {
    power: T,
    low: T,
    high: T,
}

/// Divided by a power of ten, half away from zero.
#[derive(Clone, Copy)]
struct Over<T> {
    power: T,
    half: T,
}

/// Whether numbers are between two others.
#[derive(Clone, Copy)]
struct Within<T> {
    low: T,
    high: T,
}

macro_rules! decimals {
    ($($value:ident),*) => {$(
        impl Operation<$value, ()> for Times<$value> {
            type Out = $value;
            type Alarm = bool;

            #[inline(always)]
            fn apply(self, a: $value, _: (), trace: &mut bool) -> $value {
                *trace |= (a < self.low) | (a > self.high);
                a.wrapping_mul(self.power)
            }
        }

        impl Operation<$value, ()> for Within<$value> {
            type Out = ();
            type Alarm = bool;

            #[inline(always)]
            fn apply(self, a: $value, _: (), trace: &mut bool) {
                *trace |= (a < self.low) | (a > self.high);
            }
        }

        impl Decimal for $value {
            fn times(digits: u32) -> Option<Times<$value>> {
                let power = $value::checked_pow(10, digits)?;
                Some(Times { power, low: $value::MIN / power, high: $value::MAX / power })
            }

            fn over(digits: u32) -> Option<Over<$value>> {
                let power = $value::checked_pow(10, digits)?;
                Some(Over { power, half: power / 2 })
            }

            fn within(digits: u32) -> Option<Within<$value>> {
                let end = $value::checked_pow(10, digits)?;
                Some(Within { low: 1 - end, high: end - 1 })
            }
        }
    )*};
}
decimals!(i64, i128);

impl Operation<i64, ()> for Over<i64> {
    type Out = i64;
    type Alarm = ();

    #[inline(always)]
    fn apply(self, a: i64, _: (), _: &mut ()) -> i64 {
        let rest = a % self.power;
        a / self.power + i64::from(rest >= self.half) - i64::from(rest <= -self.half)
    }
}

impl Operation<i128, ()> for Over<i128> {
    type Out = i128;
    type Alarm = ();

    #[inline(always)]
    fn apply(self, a: i128, _: (), _: &mut ()) -> i128 {
        if let (Ok(a), Ok(power)) = (i64::try_from(a), i64::try_from(self.power)) {
            // Most have 64 bits, for which processors have an instruction.
            return Over { power, half: power / 2 }.apply(a, (), &mut ()).into();
        }
        let rest = a % self.power;
        a / self.power + i128::from(rest >= self.half) - i128::from(rest <= -self.half)
    }
}

/// A lane of decimals.
trait Decimal: Number + To<i128> + To<i64> {
    /// Times 10^digits, if that has a place.
    fn times(digits: u32) -> Option<Times<Self>>;
    /// Divided by 10^digits, if that has a place.
    fn over(digits: u32) -> Option<Over<Self>>;
    /// Whether numbers have at most that many digits; `None` if all have.
    fn within(digits: u32) -> Option<Within<Self>>;
}

/// `out = a · 10^digits`; digits that are taken away are rounded, half away from zero.
pub(crate) fn rescale(
    registers: &mut Registers,
    a: Register,
    digits: i8,
    out: Register,
    overflow: Overflow,
) -> Result<()> {
    registers.write(out, |registers, out| {
        out.validity.copy_from(&registers.vector(a).validity);
        let work = Rescale { registers, digits, overflow };
        match (registers.vector(a).lane(), out.lane()) {
            (Lane::I64, Lane::I64) => work.same_lane::<i64>(a, out),
            (Lane::I128, Lane::I128) => work.same_lane::<i128>(a, out),
            (Lane::I64, Lane::I128) => work.row_by_row::<i64, i128>(a, out),
            (Lane::I128, Lane::I64) => work.row_by_row::<i128, i64>(a, out),
            (from, into) => unreachable!("decimals of {from} and {into}"),
        }
    })
}

#[derive(Clone, Copy)]
struct Rescale<'a> {
    registers: &'a Registers,
    digits: i8,
    overflow: Overflow,
}

impl Rescale<'_> {
    fn same_lane<T: Decimal>(self, a: Register, out: &mut Vector) -> Result<()>
    where
        Times<T>: Operation<T, (), Out = T, Alarm = bool>,
        Over<T>: Operation<T, (), Out = T, Alarm = ()>,
        i128: To<T>,
    {
        let values = self.registers.values::<T>(a);
        let rows = cheapest(self.registers, 32 / size_of::<T>());
        let digits = u32::from(self.digits.unsigned_abs());
        if self.digits < 0 {
            let Some(over) = T::over(digits) else { return self.row_by_row::<T, T>(a, out) };
            map(over, values, Same(()), self.registers.selected(), out.values_mut());
            return Ok(());
        }
        let Some(times) = T::times(digits) else { return self.row_by_row::<T, T>(a, out) };
        if map(times, values, Same(()), rows, out.values_mut()).rang()
            && self.overflow == Overflow::Error
        {
            return self.row_by_row::<T, T>(a, out);
        }
        Ok(())
    }

    /// For lanes that differ, for powers of ten that have no place in the lane, and to find what has none.
    fn row_by_row<A: Decimal, B: Decimal>(self, a: Register, out: &mut Vector) -> Result<()>
    where
        i128: To<B>,
    {
        let values = self.registers.values::<A>(a);
        let digits = u32::from(self.digits.unsigned_abs());
        let (times, over) = (i128::times(digits), i128::over(digits));
        let validity = &self.registers.vector(a).validity;
        let results = out.values_mut::<B>();
        self.registers.selected().try_for_each(|row| {
            let (value, _): (i128, bool) = values[row].to();
            let mut fails = false;
            let scaled = match (self.digits < 0, times, over) {
                (true, _, Some(over)) => over.apply(value, (), &mut ()),
                (false, Some(times), _) => times.apply(value, (), &mut fails),
                // No number has so many digits: none is left, or there is no place for them.
                (true, _, None) => 0,
                (false, None, _) => {
                    fails = value != 0;
                    0
                }
            };
            let (result, is_narrowed): (B, bool) = scaled.to();
            results[row] = result;
            if (fails | is_narrowed) && self.overflow == Overflow::Error && validity.is_valid(row) {
                return Err(ExecError::Overflow {
                    operation: format!("{value} with {} more digits", self.digits),
                    into: <B as Value>::LANE.to_string(),
                });
            }
            Ok(())
        })
    }
}

/// An error if a decimal that counts has more than `digits` digits.
pub(crate) fn check_digits(registers: &Registers, a: Register, digits: u8) -> Result<()> {
    match registers.vector(a).lane() {
        Lane::I64 => check::<i64>(registers, a, digits),
        Lane::I128 => check::<i128>(registers, a, digits),
        lane => unreachable!("decimals of {lane}"),
    }
}

fn check<T: Decimal>(registers: &Registers, a: Register, digits: u8) -> Result<()>
where
    Within<T>: Operation<T, (), Out = (), Alarm = bool>,
{
    let Some(within) = T::within(digits.into()) else { return Ok(()) };
    let vector = registers.vector(a);
    let values = vector.values::<T>();
    let rows = cheapest(registers, 32 / size_of::<T>());
    if !map(within, values, Same(()), rows, &mut [(); crate::VECTOR_ROWS_MAX]).rang() {
        return Ok(());
    }
    registers.selected().try_for_each(|row| {
        let mut fails = false;
        within.apply(values[row], (), &mut fails);
        if fails && vector.validity.is_valid(row) {
            return Err(ExecError::Overflow {
                operation: format!("the decimal with the digits {}", values[row]),
                into: format!("{digits} digits"),
            });
        }
        Ok(())
    })
}
