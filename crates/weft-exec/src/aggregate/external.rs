//! Functions that are not ours, over the values of a group as Arrow arrays.

use std::sync::Arc;

use futures::future::LocalBoxFuture;

use super::functions::{External, Group};
use super::kept::Keep;
use super::list::Chain;
use super::memory::Memory;
use super::state::{Needs, Outcome, Tuple};
use super::turns;
use crate::arrow::{ArrowColumn, ColumnBuilder};
use crate::error::Result;
use crate::for_lane;
use crate::lane::{Lane, Value};
use crate::pace::Pace;
use crate::selection::Selected;
use crate::text::Str;
use crate::vector::{VECTOR_ROWS_MAX, Vector};

/// Values that a function gets at once.
const VALUES_MAX: usize = 4 * VECTOR_ROWS_MAX;

/// What a function gives for all values of a group.
#[derive(Debug)]
pub(super) struct ExternalOutcome<T> {
    pub(super) chain: Chain<T>,
    pub(super) function: Arc<dyn External>,
    pub(super) lane: Lane,
}

impl<T: Keep> Outcome for ExternalOutcome<T> {
    fn lane(&self) -> Lane {
        self.lane
    }

    fn needs(&self, tuple: Tuple) -> Needs {
        self.chain.needs(tuple)
    }

    fn needs_in_turns<'a>(&'a self, tuple: Tuple, pace: &'a mut Pace) -> LocalBoxFuture<'a, Needs> {
        Box::pin(self.chain.needs_in_turns(tuple, pace))
    }

    fn values(&self, tuple: Tuple) -> u64 {
        self.chain.count.get(tuple)
    }

    fn write_in_turns<'a>(
        &'a self,
        tuples: &'a [Tuple],
        out: &'a mut Vector,
        _: &'a mut Memory,
        pace: &'a mut Pace,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            out.validity.set_all();
            let mut calling = Calling::of(self);
            for (at, tuple) in tuples.iter().enumerate() {
                let mut group = self.function.begin()?;
                for some in self.chain.values_in_turns(*tuple, pace).await.chunks(VECTOR_ROWS_MAX) {
                    calling.add(some, &mut *group)?;
                    pace.keep().await;
                }
                // What is not ours cannot be broken off.
                calling.write(&mut *group, at, out)?;
                pace.keep().await;
            }
            Ok(())
        })
    }

    fn write(&self, tuples: &[Tuple], out: &mut Vector, memory: &mut Memory) -> Result<()> {
        turns::at_once(self.write_in_turns(tuples, out, memory, &mut Pace::unbroken()))
    }
}

/// The values of a group on their way to the function.
struct Calling<'a, T> {
    outcome: &'a ExternalOutcome<T>,
    builder: ColumnBuilder,
    /// In the builder.
    count: usize,
    values: Vector,
    result: Vector,
}

impl<T: Keep> Calling<'_, T> {
    fn of(outcome: &ExternalOutcome<T>) -> Calling<'_, T> {
        let builder = ColumnBuilder::new(outcome.function.input_type(), T::LANE);
        let (values, result) = (Vector::new(T::LANE), Vector::new(outcome.lane));
        Calling { outcome, builder, count: 0, values, result }
    }

    /// Adds some values, of a vector at most.
    fn add(&mut self, some: &[Option<T>], group: &mut dyn Group) -> Result<()> {
        self.values.validity.set_all();
        for (row, value) in some.iter().enumerate() {
            self.values.validity.set(row, value.is_some());
            self.values.values_mut::<T>()[row] = value.unwrap_or_default();
        }
        self.builder.append(&self.values, Selected::All(some.len()));
        self.count += some.len();
        if self.count >= VALUES_MAX { self.hand_on(group) } else { Ok(()) }
    }

    /// The group gets the values that were added.
    fn hand_on(&mut self, group: &mut dyn Group) -> Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let fresh = ColumnBuilder::new(self.outcome.function.input_type(), T::LANE);
        let values = std::mem::replace(&mut self.builder, fresh).finish()?;
        self.count = 0;
        group.add(&values)
    }

    /// Writes what the function gives for the values that were added, and begins anew.
    fn write(&mut self, group: &mut dyn Group, at: usize, out: &mut Vector) -> Result<()> {
        self.hand_on(group)?;
        let ExternalOutcome { function, lane, .. } = self.outcome;
        let array = group.value()?;
        assert_eq!(array.len(), 1, "{} gives one value per group", function.name());
        self.result.reset();
        // Owns what a string refers to until it is copied.
        let column = ArrowColumn::new(&array, *lane)?;
        column.load(0, 1, &mut self.result)?;
        out.validity.set(at, self.result.validity.is_valid(0));
        for_lane!(*lane, R => copy::<R>(&self.result, at, out));
        Ok(())
    }
}

/// Copies the value of the first row, and its bytes if it is a string.
fn copy<R: Value>(from: &Vector, at: usize, to: &mut Vector) {
    let Some(mut value) = from.value::<R>(0) else { return };
    if R::LANE == Lane::Str {
        let string: Str = bytemuck::cast(value);
        // SAFETY: the vector that was just loaded keeps its strings alive.
        let kept = to.arena.add(unsafe { string.bytes() });
        value = bytemuck::cast(kept);
    }
    to.values_mut::<R>()[at] = value;
}
