//! count(*) and count(x).

use super::masked::Masked;
use super::memory::Memory;
use super::state::{Feed, Outcome, Place, State, Tuple};
use super::sum::Number;
use crate::error::Result;
use crate::lane::{Lane, Value};
use crate::selection::Selected;
use crate::vector::Vector;

/// How many rows.
#[derive(Debug)]
pub(super) struct Count {
    pub(super) rows: Place<u64>,
}

impl State for Count {
    fn begin(&self, tuple: Tuple) {
        self.rows.set(tuple, 0);
    }

    fn add(&self, tuples: &[Tuple], _: &[u16], _: &mut Feed<'_>) -> Result<()> {
        for tuple in tuples {
            self.rows.set(*tuple, self.rows.get(*tuple) + 1);
        }
        Ok(())
    }

    fn add_to_one(&self, tuple: Tuple, rows: Selected<'_>, _: &mut Feed<'_>) -> Result<()> {
        self.rows.set(tuple, self.rows.get(tuple) + rows.count() as u64);
        Ok(())
    }

    fn add_masked(&self, masked: Masked<'_>, _: &mut Feed<'_>) -> Result<bool> {
        for (group, count) in masked.groups.iter().zip(masked.counts) {
            self.rows.set(*group, self.rows.get(*group) + u64::from(*count));
        }
        Ok(true)
    }

    fn merge(&self, into: &[Tuple], from: &[Tuple], _: &mut Memory) -> Result<()> {
        for (into, from) in into.iter().zip(from) {
            self.rows.set(*into, self.rows.get(*into) + self.rows.get(*from));
        }
        Ok(())
    }
}

/// The number as it is; never null.
#[derive(Debug)]
pub(super) struct CountOutcome<T> {
    pub(super) rows: Place<u64>,
    pub(super) out: std::marker::PhantomData<T>,
}

impl<T: Value + Number> Outcome for CountOutcome<T> {
    fn lane(&self) -> Lane {
        T::LANE
    }

    fn write(&self, tuples: &[Tuple], out: &mut Vector, _: &mut Memory) -> Result<()> {
        for (tuple, value) in tuples.iter().zip(out.values_mut::<T>()) {
            let rows = self.rows.get(*tuple);
            *value = T::from_i128(rows.into()).expect("fewer rows than 2^63");
        }
        out.validity.set_all();
        Ok(())
    }
}
