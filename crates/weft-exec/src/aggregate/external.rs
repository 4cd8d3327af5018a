//! Functions that are not ours, over the values of a group as Arrow arrays.

use std::sync::Arc;
use std::time::Instant;

use futures::future::LocalBoxFuture;

use super::functions::{External, Group};
use super::kept::Keep;
use super::list::Chain;
use super::memory::Memory;
use super::state::{Needs, Outcome, Tuple};
use crate::apart::{self, LONG_BYTES};
use crate::arrow::{ArrowColumn, ColumnBuilder};
use crate::error::Result;
use crate::for_lane;
use crate::lane::{Lane, Value};
use crate::pace::{Pace, TURN, at_once};
use crate::selection::Selected;
use crate::text::Str;
use crate::vector::{VECTOR_ROWS_MAX, Vector};

/// Values that a function gets at once: at first, and as soon as it is known how long it takes for them.
const VALUES_FIRST: usize = 1024;
const VALUES_MIN: usize = 64;
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
                let values = self.chain.values_in_turns(*tuple, pace).await;
                let mut left = &values[..];
                while !left.is_empty() {
                    let (some, others) = left.split_at(calling.room().min(left.len()));
                    calling.add(some, &mut *group)?;
                    left = others;
                    pace.keep().await;
                }
                calling.write(group, at, out, pace).await?;
                pace.keep().await;
            }
            Ok(())
        })
    }

    fn write(&self, tuples: &[Tuple], out: &mut Vector, memory: &mut Memory) -> Result<()> {
        at_once(self.write_in_turns(tuples, out, memory, &mut Pace::unbroken()))
    }
}

/// The values of a group on their way to the function.
struct Calling<'a, T> {
    outcome: &'a ExternalOutcome<T>,
    builder: ColumnBuilder,
    /// In the builder, and how many are to be.
    count: usize,
    at_once: usize,
    /// All values of the group, about.
    bytes: usize,
    values: Vector,
    result: Vector,
}

impl<T: Keep> Calling<'_, T> {
    fn of(outcome: &ExternalOutcome<T>) -> Calling<'_, T> {
        let builder = ColumnBuilder::new(outcome.function.input_type(), T::LANE);
        let (values, result) = (Vector::new(T::LANE), Vector::new(outcome.lane));
        Calling { outcome, builder, count: 0, at_once: VALUES_FIRST, bytes: 0, values, result }
    }

    /// How many values can be added.
    fn room(&self) -> usize {
        VECTOR_ROWS_MAX.min(self.at_once - self.count)
    }

    /// Adds some values, for which there is room.
    fn add(&mut self, some: &[Option<T>], group: &mut dyn Group) -> Result<()> {
        self.values.validity.set_all();
        for (row, value) in some.iter().enumerate() {
            self.values.validity.set(row, value.is_some());
            self.values.values_mut::<T>()[row] = value.unwrap_or_default();
        }
        let bytes_before = self.builder.bytes();
        self.builder.append(&self.values, Selected::All(some.len()));
        self.bytes += self.builder.bytes() - bytes_before;
        self.count += some.len();
        if self.count >= self.at_once { self.hand_on(group) } else { Ok(()) }
    }

    /// The group gets the values that were added.
    fn hand_on(&mut self, group: &mut dyn Group) -> Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let fresh = ColumnBuilder::new(self.outcome.function.input_type(), T::LANE);
        let (count, began) = (std::mem::take(&mut self.count), Instant::now());
        let values = std::mem::replace(&mut self.builder, fresh).finish()?;
        group.add(&values)?;
        let took = began.elapsed();
        if took > TURN {
            self.at_once = (count / 2).max(VALUES_MIN);
        } else if took < TURN / 4 {
            self.at_once = (self.at_once * 2).min(VALUES_MAX);
        }
        Ok(())
    }

    /// Writes what the function gives for the values that were added, and begins anew. What is not ours cannot be broken off:
    /// where it takes long it runs apart.
    async fn write(
        &mut self,
        mut group: Box<dyn Group>,
        at: usize,
        out: &mut Vector,
        pace: &Pace,
    ) -> Result<()> {
        self.hand_on(&mut *group)?;
        let is_long = std::mem::take(&mut self.bytes) >= LONG_BYTES;
        let (function, lane) = (self.outcome.function.clone(), self.outcome.lane);
        let mut value = move || {
            let array = group.value()?;
            assert_eq!(array.len(), 1, "{} gives one value per group", function.name());
            ArrowColumn::new(&array, lane)
        };
        let is_apart = is_long && !pace.is_unbroken();
        let column = if is_apart { apart::run(value).await } else { value() }?;
        self.result.reset();
        // Owns what a string refers to.
        column.load(0, 1, &mut self.result)?;
        out.validity.set(at, self.result.validity.is_valid(0));
        for_lane!(lane, R => copy::<R>(&self.result, is_long, at, out));
        if is_long {
            out.arena.keep(column);
        }
        Ok(())
    }
}

/// Copies the value of the first row, and its bytes if it is a string that is not kept.
fn copy<R: Value>(from: &Vector, is_kept: bool, at: usize, to: &mut Vector) {
    let Some(mut value) = from.value::<R>(0) else { return };
    if R::LANE == Lane::Str && !is_kept {
        let string: Str = bytemuck::cast(value);
        // SAFETY: the vector that was just loaded keeps its strings alive.
        let kept = to.arena.add(unsafe { string.bytes() });
        value = bytemuck::cast(kept);
    }
    to.values_mut::<R>()[at] = value;
}
