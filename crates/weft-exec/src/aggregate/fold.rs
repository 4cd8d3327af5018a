//! Aggregates whose state is one value of the argument's lane: min and max, bool_and and bool_or, bit_and, bit_or and
//! bit_xor. null as long as there was no value.

use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;

use weft_codec::dispatch::{Kernel, dispatch};

use super::kept::{Keep, Kept};
use super::memory::Memory;
use super::state::{Feed, Outcome, Place, State, Tuple};
use crate::error::Result;
use crate::lane::{Bool, Lane, Value};
use crate::program::Register;
use crate::selection::Selected;
use crate::text::Str;
use crate::vector::Vector;

/// The order of a lane's values, in which `NaN` is larger than any number and -0.0 is 0.0.
pub(crate) trait Ordered: Value {
    /// How two compare.
    fn order(self, other: Self) -> Ordering;

    /// True if this comes before another.
    #[inline(always)]
    fn is_before(self, other: Self) -> bool {
        self.order(other) == Ordering::Less
    }
}

macro_rules! ordered {
    ($($value:ty),*) => {$(
        impl Ordered for $value {
            #[inline(always)]
            fn order(self, other: Self) -> Ordering {
                self.cmp(&other)
            }

            #[inline(always)]
            fn is_before(self, other: Self) -> bool {
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
            fn order(self, other: Self) -> Ordering {
                self.partial_cmp(&other).unwrap_or_else(|| self.is_nan().cmp(&other.is_nan()))
            }

            #[inline(always)]
            fn is_before(self, other: Self) -> bool {
                self < other || (other.is_nan() && !self.is_nan())
            }
        }
    )*};
}
ordered_floats!(f32, f64);

impl Ordered for Str {
    #[inline(always)]
    fn order(self, other: Str) -> Ordering {
        // SAFETY: strings of registers, and those that states have copied, are alive.
        unsafe { self.compare(&other) }
    }
}

/// Two values to one; the order in which values come does not matter.
pub(super) trait Combine<T>: fmt::Debug + Send + Sync + 'static {
    /// The one.
    fn combine(a: T, b: T) -> T;
}

/// The least value.
#[derive(Debug)]
pub(super) struct Least;
/// The greatest value.
#[derive(Debug)]
pub(super) struct Greatest;
/// All bits that every value has.
#[derive(Debug)]
pub(super) struct And;
/// All bits that some value has.
#[derive(Debug)]
pub(super) struct Or;
/// All bits that an odd number of values has.
#[derive(Debug)]
pub(super) struct Xor;

impl<T: Ordered> Combine<T> for Least {
    #[inline(always)]
    fn combine(a: T, b: T) -> T {
        if b.is_before(a) { b } else { a }
    }
}

impl<T: Ordered> Combine<T> for Greatest {
    #[inline(always)]
    fn combine(a: T, b: T) -> T {
        if a.is_before(b) { b } else { a }
    }
}

macro_rules! bits {
    ($($value:ty),*) => {$(
        impl Combine<$value> for And {
            #[inline(always)]
            fn combine(a: $value, b: $value) -> $value {
                a & b
            }
        }
        impl Combine<$value> for Or {
            #[inline(always)]
            fn combine(a: $value, b: $value) -> $value {
                a | b
            }
        }
        impl Combine<$value> for Xor {
            #[inline(always)]
            fn combine(a: $value, b: $value) -> $value {
                a ^ b
            }
        }
    )*};
}
bits!(i8, i16, i32, i64, u8, u16, u32, u64, i128);

impl Combine<Bool> for And {
    fn combine(a: Bool, b: Bool) -> Bool {
        Bool(a.0 & b.0)
    }
}

impl Combine<Bool> for Or {
    fn combine(a: Bool, b: Bool) -> Bool {
        Bool(a.0 | b.0)
    }
}

/// All values combined; there is one at least.
struct All<'a, T, C>(&'a [T], PhantomData<C>);

impl<T: Value, C: Combine<T>> Kernel for All<'_, T, C> {
    type Output = T;

    #[inline(always)]
    fn run(self) -> T {
        self.0[1..].iter().fold(self.0[0], |all, value| C::combine(all, *value))
    }
}

/// What all values combine to. The place must be one that can be null.
#[derive(Debug)]
pub(super) struct Fold<T, C> {
    pub(super) argument: Register,
    pub(super) kept: Kept<T>,
    pub(super) combine: PhantomData<C>,
}

impl<T: Keep, C: Combine<T>> Fold<T, C> {
    #[inline(always)]
    fn join(&self, tuple: Tuple, value: T, memory: &mut Memory) {
        let place = self.kept.value;
        if place.is_null(tuple) {
            self.kept.keep(tuple, value, memory);
            place.clear_null(tuple);
            return;
        }
        let before = place.get(tuple);
        let after = C::combine(before, value);
        if !T::IS_STRING {
            place.set(tuple, after);
        } else if after != before {
            self.kept.keep(tuple, after, memory);
        }
    }
}

impl<T: Keep, C: Combine<T>> State for Fold<T, C> {
    fn begin(&self, tuple: Tuple) {
        self.kept.begin(tuple);
    }

    fn add(&self, tuples: &[Tuple], rows: &[u16], feed: &mut Feed<'_>) -> Result<()> {
        let values = feed.registers.values::<T>(self.argument);
        for (tuple, row) in tuples.iter().zip(rows) {
            self.join(*tuple, values[usize::from(*row)], feed.memory);
        }
        Ok(())
    }

    fn add_to_one(&self, tuple: Tuple, rows: Selected<'_>, feed: &mut Feed<'_>) -> Result<()> {
        let values = feed.registers.values::<T>(self.argument);
        let combine = |all, row: usize| C::combine(all, values[row]);
        let all = match rows {
            Selected::All(0) | Selected::Some([]) => return Ok(()),
            Selected::All(count) => dispatch(All::<T, C>(&values[..count], PhantomData)),
            Selected::Some([first, rest @ ..]) => {
                let rest = rest.iter().map(|row| usize::from(*row));
                rest.fold(values[usize::from(*first)], combine)
            }
        };
        self.join(tuple, all, feed.memory);
        Ok(())
    }

    fn merge(&self, into: &[Tuple], from: &[Tuple], memory: &mut Memory) -> Result<()> {
        for (into, from) in into.iter().zip(from) {
            if !self.kept.value.is_null(*from) {
                self.join(*into, self.kept.value.get(*from), memory);
            }
        }
        Ok(())
    }
}

/// The value of a place, or null.
#[derive(Debug)]
pub(super) struct ValueOutcome<T> {
    pub(super) value: Place<T>,
}

impl<T: Value> Outcome for ValueOutcome<T> {
    fn lane(&self) -> Lane {
        T::LANE
    }

    fn write(&self, tuples: &[Tuple], out: &mut Vector, _: &mut Memory) -> Result<()> {
        for (tuple, value) in tuples.iter().zip(out.values_mut::<T>()) {
            *value = self.value.get(*tuple);
        }
        out.validity.set_all();
        for (at, tuple) in tuples.iter().enumerate() {
            if self.value.is_null(*tuple) {
                out.validity.set(at, false);
            }
        }
        Ok(())
    }
}
