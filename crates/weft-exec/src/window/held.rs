//! What is held of a frame, for each aggregate of ours.
//!
//! Integers and decimals go out of sums as they came in. Sums of floats are not changed back: what goes out next is in
//! a stack of sums, what came in last in one more (two stacks; Tangwongsan, Hirzel, Schneider, "Low-latency
//! sliding-window aggregation in worst-case constant time", 2017). Of the least and greatest values, those are kept that
//! have none better behind them.

use std::collections::VecDeque;
use std::ops::Range;

use futures::FutureExt;
use futures::future::LocalBoxFuture;

use super::aggregates::Held;
use super::column::Column;
use super::functions::Aggregate;
use crate::aggregate::{Number, Ordered, Summand, average, overflow};
use crate::error::Result;
use crate::lane::{Bool, Lane, Value, for_number};
use crate::pace::Pace;
use crate::{for_lane, for_lanes};

/// What holds an aggregate of ours.
pub(super) fn held<'a>(
    aggregate: Aggregate,
    is_from_start: bool,
    argument: Option<&'a Column>,
) -> Box<dyn Held + 'a> {
    let (Some(values), false) = (argument, aggregate == Aggregate::Count) else {
        return Box::new(Count { argument, rows: 0 });
    };
    let digits = match aggregate {
        Aggregate::Average { digits } => Some(digits),
        _ => None,
    };
    match aggregate {
        Aggregate::All | Aggregate::Any => {
            let is_any = aggregate == Aggregate::Any;
            Box::new(Truth { values: values.values(), column: values, is_any, counts: [0; 2] })
        }
        Aggregate::Moment(_) => unreachable!("moments are held in stacks"),
        Aggregate::Min | Aggregate::Max => {
            let is_max = aggregate == Aggregate::Max;
            for_lane!(values.lane(), T => {
                Box::new(Extreme::<T> { values: values.values(), column: values, is_max, is_from_start, best: VecDeque::new() })
            })
        }
        _ => for_lanes!(values.lane(), T => {
            Box::new(FloatSum::<T> { values: values.values(), column: values, digits, first: Vec::new(), last: 0.0, held: 0..0, anew: None, rows: 0 })
        }, [F32: f32, F64: f64], else for_integer_sum(values, digits)),
    }
}

fn for_integer_sum<'a>(values: &'a Column, digits: Option<i8>) -> Box<dyn Held + 'a> {
    for_number!(values.lane(), T => {
        Box::new(Sum::<T> { values: values.values(), column: values, digits, sum: Default::default(), rows: 0 })
    })
}

/// The number of rows that are not null.
struct Count<'a> {
    argument: Option<&'a Column>,
    rows: u64,
}

impl Count<'_> {
    fn known(&self, rows: Range<usize>) -> u64 {
        match self.argument.filter(|argument| argument.has_nulls()) {
            Some(argument) => rows.filter(|row| argument.is_valid(*row)).count() as u64,
            None => rows.len() as u64,
        }
    }
}

impl Held for Count<'_> {
    fn clear(&mut self) -> Result<()> {
        self.rows = 0;
        Ok(())
    }

    fn add(&mut self, rows: Range<usize>) -> Result<()> {
        self.rows += self.known(rows);
        Ok(())
    }

    fn remove(&mut self, rows: Range<usize>) -> Result<()> {
        self.rows -= self.known(rows);
        Ok(())
    }

    fn write(&mut self, out: &mut Column, rows: Range<usize>) -> Result<()> {
        write_integer(out, rows, self.rows.into(), "a count")
    }
}

/// The sum of integers or decimals, or their average.
struct Sum<'a, T: Summand> {
    values: &'a [T],
    column: &'a Column,
    /// Digits that an average has more; `None` for a sum.
    digits: Option<i8>,
    sum: T::Sum,
    /// Those that are not null.
    rows: u64,
}

impl<T: Summand> Sum<'_, T> {
    fn change(
        &mut self,
        rows: Range<usize>,
        change: impl Fn(T::Sum, T::Sum) -> Option<T::Sum>,
    ) -> Result<u64> {
        let mut known = 0;
        for row in rows {
            if self.column.is_valid(row) {
                self.sum = change(self.sum, self.values[row].widen()).ok_or_else(|| {
                    overflow("the sum of a window's frame", <T::Sum as Value>::LANE)
                })?;
                known += 1;
            }
        }
        Ok(known)
    }
}

impl<T: Summand> Held for Sum<'_, T> {
    fn clear(&mut self) -> Result<()> {
        (self.sum, self.rows) = (T::Sum::default(), 0);
        Ok(())
    }

    fn add(&mut self, rows: Range<usize>) -> Result<()> {
        self.rows += self.change(rows, T::Sum::plus)?;
        Ok(())
    }

    fn remove(&mut self, rows: Range<usize>) -> Result<()> {
        self.rows -= self.change(rows, T::Sum::minus)?;
        Ok(())
    }

    fn write(&mut self, out: &mut Column, rows: Range<usize>) -> Result<()> {
        write_sum(out, rows, self.sum, self.rows, self.digits)
    }
}

/// The sum of floats, or their average.
struct FloatSum<'a, T> {
    values: &'a [T],
    column: &'a Column,
    digits: Option<i8>,
    /// For each of the first rows that are held, the last of them first, the sum from it on to the last of them.
    first: Vec<f64>,
    /// The sum of the other rows.
    last: f64,
    held: Range<usize>,
    /// Up to here, what is held is to be summed up anew.
    anew: Option<usize>,
    rows: u64,
}

/// Rows that are summed up anew before others are let run.
const ANEW_AT_ONCE: usize = 8 << 10;

impl<T: Summand<Sum = f64>> FloatSum<'_, T> {
    /// Sums up the first rows anew, the last of them first.
    async fn sum_up(&mut self, end: usize, pace: &mut Pace) {
        let mut sum = 0.0;
        for (number, row) in (self.held.start..end).rev().enumerate() {
            sum += self.value(row);
            self.first.push(sum);
            if number % ANEW_AT_ONCE == 0 {
                pace.keep().await;
            }
        }
        self.anew = None;
    }

    fn value(&self, row: usize) -> f64 {
        if self.column.is_valid(row) { self.values[row].widen() } else { 0.0 }
    }

    fn known(&self, rows: Range<usize>) -> u64 {
        match self.column.has_nulls() {
            true => rows.filter(|row| self.column.is_valid(*row)).count() as u64,
            false => rows.len() as u64,
        }
    }
}

impl<T: Summand<Sum = f64>> Held for FloatSum<'_, T> {
    fn clear(&mut self) -> Result<()> {
        self.first.clear();
        (self.last, self.held, self.anew, self.rows) = (0.0, 0..0, None, 0);
        Ok(())
    }

    fn add(&mut self, rows: Range<usize>) -> Result<()> {
        self.rows += self.known(rows.clone());
        self.held = if self.held.is_empty() { rows.clone() } else { self.held.start..rows.end };
        for row in rows {
            self.last += self.value(row);
        }
        Ok(())
    }

    fn remove(&mut self, rows: Range<usize>) -> Result<()> {
        self.rows -= self.known(rows.clone());
        self.held.start = rows.end;
        if self.anew.is_some_and(|end| rows.end <= end) {
            return Ok(());
        }
        match self.first.len().checked_sub(rows.len()) {
            Some(left) if left > 0 || self.held.is_empty() => self.first.truncate(left),
            _ => {
                self.first.clear();
                (self.last, self.anew) = (0.0, Some(self.held.end));
            }
        }
        Ok(())
    }

    fn make<'a>(
        &'a mut self,
        _: &'a mut Column,
        pace: &'a mut Pace,
    ) -> Option<LocalBoxFuture<'a, Result<()>>> {
        let end = self.anew?;
        Some(self.sum_up(end, pace).map(Ok).boxed_local())
    }

    fn write(&mut self, out: &mut Column, rows: Range<usize>) -> Result<()> {
        let sum = self.first.last().copied().unwrap_or(0.0) + self.last;
        write_sum(out, rows, sum, self.rows, self.digits)
    }
}

/// The least value, or the greatest.
struct Extreme<'a, T> {
    values: &'a [T],
    column: &'a Column,
    is_max: bool,
    /// No row goes out before all do.
    is_from_start: bool,
    /// The rows of the best value, of the best one behind it, and so on.
    best: VecDeque<usize>,
}

impl<T: Ordered> Extreme<'_, T> {
    fn is_better(&self, row: usize, than: usize) -> bool {
        let (value, other) = (self.values[row], self.values[than]);
        if self.is_max { other.is_before(value) } else { value.is_before(other) }
    }
}

impl<T: Ordered> Held for Extreme<'_, T> {
    fn clear(&mut self) -> Result<()> {
        self.best.clear();
        Ok(())
    }

    fn add(&mut self, rows: Range<usize>) -> Result<()> {
        for row in rows {
            if !self.column.is_valid(row) {
                continue;
            }
            while self.best.back().is_some_and(|than| self.is_better(row, *than)) {
                self.best.pop_back();
            }
            if self.best.is_empty() || !self.is_from_start {
                self.best.push_back(row);
            }
        }
        Ok(())
    }

    fn remove(&mut self, rows: Range<usize>) -> Result<()> {
        while self.best.front().is_some_and(|row| *row < rows.end) {
            self.best.pop_front();
        }
        Ok(())
    }

    fn write(&mut self, out: &mut Column, rows: Range<usize>) -> Result<()> {
        match self.best.front() {
            Some(best) => out.values_mut::<T>()[rows].fill(self.values[*best]),
            None => rows.for_each(|row| out.set_null(row)),
        }
        Ok(())
    }
}

/// Whether truth values are true.
struct Truth<'a> {
    values: &'a [Bool],
    column: &'a Column,
    /// Whether one is, rather than all.
    is_any: bool,
    /// How many are false, and how many are true.
    counts: [usize; 2],
}

impl Truth<'_> {
    fn count(&self, rows: Range<usize>) -> [usize; 2] {
        let mut counts = [0; 2];
        for row in rows.filter(|row| self.column.is_valid(*row)) {
            counts[usize::from(self.values[row].get())] += 1;
        }
        counts
    }
}

impl Held for Truth<'_> {
    fn clear(&mut self) -> Result<()> {
        self.counts = [0; 2];
        Ok(())
    }

    fn add(&mut self, rows: Range<usize>) -> Result<()> {
        let more = self.count(rows);
        self.counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
        Ok(())
    }

    fn remove(&mut self, rows: Range<usize>) -> Result<()> {
        let fewer = self.count(rows);
        self.counts.iter_mut().zip(fewer).for_each(|(count, fewer)| *count -= fewer);
        Ok(())
    }

    fn write(&mut self, out: &mut Column, rows: Range<usize>) -> Result<()> {
        let [falses, trues] = self.counts;
        if falses + trues == 0 {
            rows.for_each(|row| out.set_null(row));
        } else {
            let is_true = if self.is_any { trues > 0 } else { falses == 0 };
            out.values_mut::<Bool>()[rows].fill(is_true.into());
        }
        Ok(())
    }
}

/// Writes a sum of so many rows, or their average if it has `digits` more.
pub(super) fn write_sum<S: Number>(
    out: &mut Column,
    rows: Range<usize>,
    sum: S,
    count: u64,
    digits: Option<i8>,
) -> Result<()> {
    if count == 0 {
        rows.for_each(|row| out.set_null(row));
        return Ok(());
    }
    let of = if digits.is_some() { "an average" } else { "a sum" };
    if out.lane() == Lane::F64 || out.lane() == Lane::F32 {
        let float = match digits {
            Some(digits) => average::<S, f64>(sum, count, digits).unwrap_or_default(),
            None => sum.to_f64(),
        };
        match out.lane() {
            Lane::F64 => out.values_mut::<f64>()[rows].fill(float),
            _ => out.values_mut::<f32>()[rows].fill(float as f32),
        }
        return Ok(());
    }
    let integer = match digits {
        Some(digits) => average::<S, i128>(sum, count, digits),
        None => sum.to_i128(),
    };
    write_integer(out, rows, integer.ok_or_else(|| overflow(of, out.lane()))?, of)
}

/// Writes an integer.
pub(super) fn write_integer(
    out: &mut Column,
    rows: Range<usize>,
    integer: i128,
    of: &'static str,
) -> Result<()> {
    let lane = out.lane();
    for_number!(lane, T => {
        let value = T::from_i128(integer).ok_or_else(|| overflow(of, lane))?;
        out.values_mut::<T>()[rows].fill(value);
    });
    Ok(())
}
