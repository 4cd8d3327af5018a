//! first, last and any_value; with an order, the value of the first or last row in that order (min_by, max_by).

use std::cmp::Ordering;

use super::fold::Ordered;
use super::kept::{Keep, Kept};
use super::memory::Memory;
use super::state::{Feed, Place, State, Tuple};
use crate::error::Result;
use crate::lane::Bool;
use crate::program::Register;
use crate::text::Str;

/// The value of one row.
#[derive(Debug)]
pub(super) struct First<T> {
    pub(super) argument: Register,
    /// What rows are ordered by, if not by when they come: bytes that compare as rows do.
    pub(super) order: Option<Register>,
    /// The last row instead.
    pub(super) is_last: bool,
    /// Null if the row has no value.
    pub(super) kept: Kept<T>,
    /// There was a row.
    pub(super) has_row: Place<Bool>,
    pub(super) key: Option<Kept<Str>>,
}

impl<T: Keep> First<T> {
    fn join(&self, tuple: Tuple, value: Option<T>, key: Option<Str>, memory: &mut Memory) {
        if self.has_row.get(tuple).get() {
            let order = match (self.key, key) {
                (Some(place), Some(key)) => key.order(place.value.get(tuple)),
                _ => Ordering::Equal,
            };
            let replaces =
                if self.is_last { order != Ordering::Less } else { order == Ordering::Less };
            if !replaces {
                return;
            }
        }
        self.has_row.set(tuple, true.into());
        match value {
            Some(value) => {
                self.kept.keep(tuple, value, memory);
                self.kept.value.clear_null(tuple);
            }
            None => self.kept.value.set_null(tuple),
        }
        if let (Some(place), Some(key)) = (self.key, key) {
            place.keep(tuple, key, memory);
        }
    }
}

impl<T: Keep> State for First<T> {
    fn begin(&self, tuple: Tuple) {
        self.kept.begin(tuple);
        self.has_row.set(tuple, false.into());
        if let Some(key) = self.key {
            key.begin(tuple);
        }
    }

    fn add(&self, tuples: &[Tuple], rows: &[u16], feed: &mut Feed<'_>) -> Result<()> {
        let vector = feed.registers.vector(self.argument);
        let keys = self.order.map(|order| feed.registers.values::<Str>(order));
        for (tuple, row) in tuples.iter().zip(rows) {
            let row = usize::from(*row);
            self.join(*tuple, vector.value::<T>(row), keys.map(|keys| keys[row]), feed.memory);
        }
        Ok(())
    }

    fn merge(&self, into: &[Tuple], from: &[Tuple], memory: &mut Memory) -> Result<()> {
        for (into, from) in into.iter().zip(from) {
            if self.has_row.get(*from).get() {
                let place = self.kept.value;
                let value = (!place.is_null(*from)).then(|| place.get(*from));
                self.join(*into, value, self.key.map(|key| key.value.get(*from)), memory);
            }
        }
        Ok(())
    }
}
