//! Products of floats, whose factors may come in any order: what lies between is neither too large nor too small for a float, so that
//! no overflow meets a zero.

use super::memory::Memory;
use super::state::{Feed, Outcome, Place, State, Tuple};
use crate::error::Result;
use crate::lane::Lane;
use crate::program::Register;
use crate::vector::Vector;

/// The bits by which numbers are scaled.
const STEP: i32 = 256;
const LARGE: f64 = f64::from_bits((1023 + STEP as u64) << 52);
const SMALL: f64 = f64::from_bits((1023 - STEP as u64) << 52);

/// Some numbers multiplied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Product {
    /// How many there are.
    pub count: f64,
    /// Their product by a power of two, near 1 unless it is none, infinite or no number.
    pub scaled: f64,
    /// The exponent of that power.
    pub exponent: f64,
}

impl Default for Product {
    /// Of no numbers.
    fn default() -> Product {
        Product { count: 0.0, scaled: 1.0, exponent: 0.0 }
    }
}

/// A number near 1, and the power of two that is missing.
fn scaled(mut number: f64) -> (f64, f64) {
    let mut exponent = 0.0;
    if number == 0.0 || !number.is_finite() {
        return (number, exponent);
    }
    while number.abs() >= LARGE {
        (number, exponent) = (number * SMALL, exponent + f64::from(STEP));
    }
    while number.abs() <= SMALL {
        (number, exponent) = (number * LARGE, exponent - f64::from(STEP));
    }
    (number, exponent)
}

impl Product {
    /// Multiplies by a number.
    #[inline]
    pub fn add(&mut self, number: f64) {
        let (factor, exponent) = scaled(number);
        self.multiply(factor, exponent);
        self.count += 1.0;
    }

    /// Multiplies by the numbers of another one.
    pub fn merge(&mut self, other: &Product) {
        self.multiply(other.scaled, other.exponent);
        self.count += other.count;
    }

    fn multiply(&mut self, factor: f64, exponent: f64) {
        let (product, more) = scaled(self.scaled * factor);
        self.scaled = product;
        self.exponent += exponent + more;
    }

    /// The product; nothing of no numbers.
    pub fn value(&self) -> Option<f64> {
        let (mut value, mut exponent) = (self.scaled, self.exponent);
        while exponent != 0.0 && value != 0.0 && value.is_finite() {
            let (factor, step) = if exponent > 0.0 { (LARGE, STEP) } else { (SMALL, -STEP) };
            (value, exponent) = (value * factor, exponent - f64::from(step));
        }
        (self.count > 0.0).then_some(value)
    }
}

/// The places of a product.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) count: Place<f64>,
    pub(super) scaled: Place<f64>,
    pub(super) exponent: Place<f64>,
}

impl Places {
    fn get(&self, tuple: Tuple) -> Product {
        Product {
            count: self.count.get(tuple),
            scaled: self.scaled.get(tuple),
            exponent: self.exponent.get(tuple),
        }
    }

    fn set(&self, tuple: Tuple, product: &Product) {
        self.count.set(tuple, product.count);
        self.scaled.set(tuple, product.scaled);
        self.exponent.set(tuple, product.exponent);
    }
}

/// The product of a register of floats.
#[derive(Debug)]
pub(super) struct Products {
    pub(super) argument: Register,
    pub(super) places: Places,
}

impl State for Products {
    fn begin(&self, tuple: Tuple) {
        self.places.set(tuple, &Product::default());
    }

    fn add(&self, tuples: &[Tuple], rows: &[u16], feed: &mut Feed<'_>) -> Result<()> {
        let values = feed.registers.values(self.argument);
        for (tuple, row) in tuples.iter().zip(rows) {
            let mut product = self.places.get(*tuple);
            product.add(values[usize::from(*row)]);
            self.places.set(*tuple, &product);
        }
        Ok(())
    }

    fn merge(&self, into: &[Tuple], from: &[Tuple], _: &mut Memory) -> Result<()> {
        for (into, from) in into.iter().zip(from) {
            let mut product = self.places.get(*into);
            product.merge(&self.places.get(*from));
            self.places.set(*into, &product);
        }
        Ok(())
    }
}

/// The product of a group.
#[derive(Debug)]
pub(super) struct ProductOutcome {
    pub(super) places: Places,
}

impl Outcome for ProductOutcome {
    fn lane(&self) -> Lane {
        Lane::F64
    }

    fn write(&self, tuples: &[Tuple], out: &mut Vector, _: &mut Memory) -> Result<()> {
        out.validity.set_all();
        for (at, tuple) in tuples.iter().enumerate() {
            match self.places.get(*tuple).value() {
                Some(value) => out.values_mut::<f64>()[at] = value,
                None => out.validity.set(at, false),
            }
        }
        Ok(())
    }
}
