//! Functions that are not ours, over the values of a group as an Arrow array.

use std::sync::Arc;

use super::functions::External;
use super::kept::Keep;
use super::list::Chain;
use super::memory::Memory;
use super::state::{Needs, Outcome, Tuple};
use crate::arrow::{ArrowColumn, ColumnBuilder};
use crate::error::Result;
use crate::for_lane;
use crate::lane::{Lane, Value};
use crate::selection::Selected;
use crate::text::Str;
use crate::vector::{VECTOR_ROWS_MAX, Vector};

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

    fn write(&self, tuples: &[Tuple], out: &mut Vector, _: &mut Memory) -> Result<()> {
        out.validity.set_all();
        let mut values = Vector::new(T::LANE);
        let mut result = Vector::new(self.lane);
        for (at, tuple) in tuples.iter().enumerate() {
            let mut builder = ColumnBuilder::new(self.function.input_type(), T::LANE);
            for some in self.chain.values(*tuple).chunks(VECTOR_ROWS_MAX) {
                values.validity.set_all();
                for (row, value) in some.iter().enumerate() {
                    values.validity.set(row, value.is_some());
                    values.values_mut::<T>()[row] = value.unwrap_or_default();
                }
                builder.append(&values, Selected::All(some.len()));
            }
            let array = self.function.call(&builder.finish()?)?;
            assert_eq!(array.len(), 1, "{} gives one value per group", self.function.name());
            result.reset();
            // Owns what a string refers to until it is copied.
            let column = ArrowColumn::new(&array, self.lane)?;
            column.load(0, 1, &mut result)?;
            out.validity.set(at, result.validity.is_valid(0));
            for_lane!(self.lane, R => copy::<R>(&result, at, out));
        }
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
