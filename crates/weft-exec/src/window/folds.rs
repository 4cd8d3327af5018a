//! What aggregates keep of rows that come behind each other: states that are merged to those of more rows.

use std::ops::Range;
use std::sync::Arc;

use super::column::Column;
use super::held::{write_integer, write_sum};
use crate::aggregate::{Moment, Number, Ordered, Pairs, Summand, overflow};
use crate::error::Result;
use crate::lane::{Bool, Value};
use crate::text::Str;

/// An aggregate of any rows.
pub(super) trait Fold: Send + 'static {
    /// What is kept of some rows.
    type State: Clone + Default + Send + 'static;

    /// More rows.
    fn add(&self, state: &mut Self::State, argument: Option<&Column>, rows: Range<usize>);

    /// What is kept of the rows behind is added.
    fn merge(&self, state: &mut Self::State, behind: &Self::State);

    /// Writes the result for some rows.
    ///
    /// # Errors
    /// [`crate::ExecError::Overflow`]
    fn write(&self, state: &Self::State, out: &mut Column, rows: Range<usize>) -> Result<()>;

    /// What a state has elsewhere, which those that were cloned from it share.
    fn text(_state: &Self::State) -> Option<&Arc<[u8]>> {
        None
    }
}

/// The number of rows whose argument, if there is one, is not null.
pub(super) struct Count;

impl Fold for Count {
    type State = u64;

    fn add(&self, state: &mut u64, argument: Option<&Column>, rows: Range<usize>) {
        *state += match argument {
            Some(argument) => argument.count_valid(rows) as u64,
            None => rows.len() as u64,
        };
    }

    fn merge(&self, state: &mut u64, behind: &u64) {
        *state += behind;
    }

    fn write(&self, state: &u64, out: &mut Column, rows: Range<usize>) -> Result<()> {
        write_integer(out, rows, (*state).into(), "a count")
    }
}

/// A sum, or an average that has so many digits more.
pub(super) struct Sum<T> {
    digits: Option<i8>,
    of: std::marker::PhantomData<fn(T)>,
}

impl<T> Sum<T> {
    pub(super) fn new(digits: Option<i8>) -> Sum<T> {
        Sum { digits, of: std::marker::PhantomData }
    }
}

/// A sum of so many values. That it overflows is wrong only if somebody asks for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Summed<S> {
    sum: S,
    count: u64,
    overflows: bool,
}

impl<S: Number> Summed<S> {
    fn add(&mut self, more: S, count: u64) {
        match self.sum.plus(more) {
            Some(sum) => self.sum = sum,
            None => self.overflows = true,
        }
        self.count += count;
    }
}

impl<T: Summand> Fold for Sum<T> {
    type State = Summed<T::Sum>;

    fn add(&self, state: &mut Self::State, argument: Option<&Column>, rows: Range<usize>) {
        let argument = argument.expect("sums have an argument");
        let values = argument.values::<T>();
        for row in rows {
            if argument.is_valid(row) {
                state.add(values[row].widen(), 1);
            }
        }
    }

    fn merge(&self, state: &mut Self::State, behind: &Self::State) {
        state.overflows |= behind.overflows;
        state.add(behind.sum, behind.count);
    }

    fn write(&self, state: &Self::State, out: &mut Column, rows: Range<usize>) -> Result<()> {
        if state.overflows {
            return Err(overflow("the sum of a window's frame", <T::Sum as Value>::LANE));
        }
        write_sum(out, rows, state.sum, state.count, self.digits)
    }
}

/// The least value, or the greatest.
pub(super) struct Extreme<T> {
    is_max: bool,
    of: std::marker::PhantomData<fn(T)>,
}

impl<T: Ordered> Extreme<T> {
    pub(super) fn new(is_max: bool) -> Extreme<T> {
        Extreme { is_max, of: std::marker::PhantomData }
    }

    fn is_better(&self, value: T, than: T) -> bool {
        if self.is_max { than.is_before(value) } else { value.is_before(than) }
    }

    fn better(&self, best: Option<T>, value: T) -> T {
        best.filter(|best| !self.is_better(value, *best)).unwrap_or(value)
    }
}

impl<T: Ordered> Fold for Extreme<T> {
    type State = Option<T>;

    fn add(&self, state: &mut Option<T>, argument: Option<&Column>, rows: Range<usize>) {
        let argument = argument.expect("extremes have an argument");
        let values = argument.values::<T>();
        for row in rows.filter(|row| argument.is_valid(*row)) {
            *state = Some(self.better(*state, values[row]));
        }
    }

    fn merge(&self, state: &mut Option<T>, behind: &Option<T>) {
        if let Some(value) = behind {
            *state = Some(self.better(*state, *value));
        }
    }

    fn write(&self, state: &Option<T>, out: &mut Column, rows: Range<usize>) -> Result<()> {
        match state {
            Some(value) => out.values_mut::<T>()[rows].fill(*value),
            None => rows.for_each(|row| out.set_null(row)),
        }
        Ok(())
    }
}

/// The same of strings, which are copied: the rows are gone sooner.
pub(super) struct ExtremeText(pub(super) Extreme<Str>);

impl Fold for ExtremeText {
    type State = Option<Arc<[u8]>>;

    fn add(&self, state: &mut Self::State, argument: Option<&Column>, rows: Range<usize>) {
        let argument = argument.expect("extremes have an argument");
        let values = argument.values::<Str>();
        let mut best = None;
        for row in rows.filter(|row| argument.is_valid(*row)) {
            best = Some(self.0.better(best, values[row]));
        }
        if let Some(best) = best
            && state.as_ref().is_none_or(|state| self.0.is_better(best, Str::new(state)))
        {
            // SAFETY: the column's rows are alive.
            *state = Some(Arc::from(unsafe { best.bytes() }));
        }
    }

    fn merge(&self, state: &mut Self::State, behind: &Self::State) {
        if let Some(value) = behind
            && state.as_ref().is_none_or(|best| self.0.is_better(Str::new(value), Str::new(best)))
        {
            *state = Some(value.clone());
        }
    }

    fn write(&self, state: &Self::State, out: &mut Column, rows: Range<usize>) -> Result<()> {
        match state {
            Some(value) => out.set_text(rows, value),
            None => rows.for_each(|row| out.set_null(row)),
        }
        Ok(())
    }

    fn text(state: &Self::State) -> Option<&Arc<[u8]>> {
        state.as_ref()
    }
}

/// A moment of numbers. Nothing is ever taken out of a state, so that large numbers leave no traces in frames without them.
pub(super) struct Moments(pub(super) Moment);

impl Fold for Moments {
    type State = Pairs;

    fn add(&self, state: &mut Pairs, argument: Option<&Column>, rows: Range<usize>) {
        let argument = argument.expect("moments have an argument");
        let values = argument.values::<f64>();
        for row in rows.filter(|row| argument.is_valid(*row)) {
            state.add(values[row], values[row]);
        }
    }

    fn merge(&self, state: &mut Pairs, behind: &Pairs) {
        state.merge(behind);
    }

    fn write(&self, state: &Pairs, out: &mut Column, rows: Range<usize>) -> Result<()> {
        match self.0.of(state) {
            Some(value) => out.values_mut::<f64>()[rows].fill(value),
            None => rows.for_each(|row| out.set_null(row)),
        }
        Ok(())
    }
}

/// Whether one of the truth values is true, or all are: how many are false, and how many true.
pub(super) struct Truth {
    pub(super) is_any: bool,
}

impl Fold for Truth {
    type State = [u64; 2];

    fn add(&self, state: &mut [u64; 2], argument: Option<&Column>, rows: Range<usize>) {
        let argument = argument.expect("truth values are an argument");
        let values = argument.values::<Bool>();
        for row in rows.filter(|row| argument.is_valid(*row)) {
            state[usize::from(values[row].get())] += 1;
        }
    }

    fn merge(&self, state: &mut [u64; 2], behind: &[u64; 2]) {
        state.iter_mut().zip(behind).for_each(|(count, more)| *count += more);
    }

    fn write(
        &self,
        [falses, trues]: &[u64; 2],
        out: &mut Column,
        rows: Range<usize>,
    ) -> Result<()> {
        if falses + trues == 0 {
            rows.for_each(|row| out.set_null(row));
        } else {
            let is_true = if self.is_any { *trues > 0 } else { *falses == 0 };
            out.values_mut::<Bool>()[rows].fill(is_true.into());
        }
        Ok(())
    }
}
