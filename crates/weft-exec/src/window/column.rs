//! Columns of a range of sorted rows: arguments on their way from tuples to functions, results on their way to vectors.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef};

use crate::apart;
use crate::arrow::{ArrowColumn, ColumnBuilder};
use crate::error::Result;
use crate::for_lane;
use crate::lane::{Lane, Value};
use crate::pace::Pace;
use crate::selection::Selected;
use crate::sort::entries::Entry;
use crate::text::Str;
use crate::tuple::budget::Budget;
use crate::tuple::{Layout, load};
use crate::vector::{VECTOR_ROWS_MAX, Vector};
use crate::zeroed::Zeroed;

/// A value for each row, or null.
#[derive(Debug)]
pub(super) struct Column {
    lane: Lane,
    rows: usize,
    /// The values; 16 bytes are what the most demanding lane is aligned to.
    words: Zeroed<u128>,
    /// A bit per row, set if it is null; nothing as long as none is.
    nulls: Vec<u64>,
    /// They own the long strings that came from arrays.
    arrays: Vec<Arc<ArrowColumn>>,
    /// Long strings that were copied.
    texts: Vec<Arc<[u8]>>,
    /// Bytes of those arrays and strings that no memory was reserved for, about.
    unreserved: usize,
}

impl Column {
    /// A column of zeros.
    pub(super) fn new(lane: Lane, rows: usize) -> Column {
        let words = Zeroed::new((rows * lane.width()).div_ceil(size_of::<u128>()));
        Column {
            lane,
            rows,
            words,
            nulls: Vec::new(),
            arrays: Vec::new(),
            texts: Vec::new(),
            unreserved: 0,
        }
    }

    /// A field of sorted tuples, which have this layout.
    ///
    /// # Safety
    /// They have it.
    pub(super) async unsafe fn gather(
        sorted: &[Entry],
        rows: Range<usize>,
        layout: &Layout,
        field: usize,
        pace: &mut Pace,
    ) -> Column {
        let mut column = Column::new(layout.field(field).lane, rows.len());
        let mut fields = Fields::new(layout, field);
        for start in rows.clone().step_by(VECTOR_ROWS_MAX) {
            let count = VECTOR_ROWS_MAX.min(rows.end - start);
            // SAFETY: as the caller promises.
            let vector = unsafe { fields.load(sorted, start, count) };
            column.set(start - rows.start, count, vector);
            pace.keep().await;
        }
        column
    }

    /// What its values are.
    pub(super) fn lane(&self) -> Lane {
        self.lane
    }

    /// The values. What lies under a null means nothing.
    pub(super) fn values<T: Value>(&self) -> &[T] {
        assert_eq!(T::LANE, self.lane, "values of another lane");
        &bytemuck::cast_slice(&self.words)[..self.rows]
    }

    /// The values, to be written.
    pub(super) fn values_mut<T: Value>(&mut self) -> &mut [T] {
        assert_eq!(T::LANE, self.lane, "values of another lane");
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.rows]
    }

    /// True if some row may be null.
    pub(super) fn has_nulls(&self) -> bool {
        !self.nulls.is_empty()
    }

    /// True if the row has a value.
    pub(super) fn is_valid(&self, row: usize) -> bool {
        self.nulls.is_empty() || self.nulls[row / 64] >> (row % 64) & 1 == 0
    }

    /// How many of some rows have a value.
    pub(super) fn count_valid(&self, rows: Range<usize>) -> usize {
        if self.has_nulls() { rows.filter(|row| self.is_valid(*row)).count() } else { rows.len() }
    }

    /// Rows become a string, of which the column keeps a part if it is long.
    pub(super) fn set_text(&mut self, rows: Range<usize>, text: &Arc<[u8]>) {
        let string = Str::new(text);
        self.values_mut::<Str>()[rows].fill(string);
        let is_kept =
            string.is_inline() || self.texts.last().is_some_and(|last| Arc::ptr_eq(last, text));
        if !is_kept {
            self.unreserved += text.len();
            self.texts.push(text.clone());
        }
    }

    /// Makes a row null.
    pub(super) fn set_null(&mut self, row: usize) {
        if self.nulls.is_empty() {
            self.nulls = vec![0; self.rows.div_ceil(64)];
        }
        self.nulls[row / 64] |= 1 << (row % 64);
    }

    /// Rows from `start` on become the first `rows` of a vector.
    fn set(&mut self, start: usize, rows: usize, vector: &Vector) {
        for_lane!(self.lane, T => {
            let values = &vector.values::<T>()[..rows];
            self.values_mut::<T>()[start..start + rows].copy_from_slice(values);
        });
        if vector.validity.has_nulls() {
            let nulls = (0..rows).filter(|row| !vector.validity.is_valid(*row));
            nulls.for_each(|row| self.set_null(start + row));
        }
    }

    /// Rows from `start` on become what a function has given for them.
    ///
    /// # Errors
    /// If a value is none of the lane.
    pub(super) async fn set_all(
        &mut self,
        start: usize,
        made: &Arc<ArrowColumn>,
        pace: &mut Pace,
    ) -> Result<()> {
        let mut vector = Vector::new(self.lane);
        for at in (0..made.rows()).step_by(VECTOR_ROWS_MAX) {
            let rows = VECTOR_ROWS_MAX.min(made.rows() - at);
            self.load_made(made, at, rows, &mut vector)?;
            self.set(start + at, rows, &vector);
            pace.keep().await;
        }
        Ok(())
    }

    /// All rows of each range become the value that was given for it.
    ///
    /// # Errors
    /// If a value is none of the lane.
    pub(super) fn set_runs(
        &mut self,
        made: &Arc<ArrowColumn>,
        runs: &[Range<usize>],
    ) -> Result<()> {
        debug_assert_eq!(made.rows(), runs.len(), "a value for each");
        let mut vector = Vector::new(self.lane);
        for (number, some) in runs.chunks(VECTOR_ROWS_MAX).enumerate() {
            self.load_made(made, number * VECTOR_ROWS_MAX, some.len(), &mut vector)?;
            for (row, run) in some.iter().enumerate() {
                for_lane!(self.lane, T => match vector.value::<T>(row) {
                    Some(value) => self.values_mut::<T>()[run.clone()].fill(value),
                    None => run.clone().for_each(|row| self.set_null(row)),
                });
            }
        }
        Ok(())
    }

    /// Loads some values into a vector, and keeps the long strings among them.
    fn load_made(
        &mut self,
        made: &Arc<ArrowColumn>,
        start: usize,
        rows: usize,
        vector: &mut Vector,
    ) -> Result<()> {
        made.load(start, rows, vector)?;
        let is_kept = self.arrays.last().is_some_and(|last| Arc::ptr_eq(last, made));
        let is_long = |row| vector.value::<Str>(row).is_some_and(|string| !string.is_inline());
        if self.lane == Lane::Str && !is_kept && (0..rows).any(is_long) {
            self.unreserved += made.string_bytes();
            self.arrays.push(made.clone());
        }
        Ok(())
    }

    /// Bytes of strings that the column owns, for which somebody reserves memory now.
    pub(super) fn take_unreserved(&mut self) -> u64 {
        std::mem::take(&mut self.unreserved) as u64
    }

    /// Reserves memory for the strings that the column owns.
    ///
    /// # Errors
    /// [`ExecError::Memory`](crate::ExecError::Memory)
    pub(super) async fn account(&mut self, budget: &mut Budget) -> Result<()> {
        budget.reserve(self.take_unreserved()).await
    }

    /// Puts rows from `start` on into a vector. Its strings are alive as long as the column, and the tuples that it was
    /// made of, are.
    pub(super) fn load(&self, start: usize, rows: usize, vector: &mut Vector) {
        for_lane!(self.lane, T => {
            let values = &self.values::<T>()[start..start + rows];
            vector.values_mut::<T>()[..rows].copy_from_slice(values);
        });
        vector.validity.set_all();
        if self.nulls.is_empty() {
            return;
        }
        for (number, word) in vector.validity.words_mut().iter_mut().enumerate() {
            if number * 64 < rows {
                *word = !bits(&self.nulls, start + number * 64);
            }
        }
    }
}

/// Bytes of an array, each part of which counts once: that of a list of strings may have the same one for each of them.
pub(super) fn bytes_of(array: &ArrayRef) -> usize {
    let (mut bytes, mut known) = (0, HashSet::new());
    let mut left = vec![array.to_data()];
    while let Some(data) = left.pop() {
        let fresh = data.buffers().iter().filter(|buffer| known.insert(buffer.data_ptr()));
        bytes += fresh.map(|buffer| buffer.capacity()).sum::<usize>();
        left.extend_from_slice(data.child_data());
    }
    bytes
}

/// 64 bits from `at` on; zeros follow the last.
fn bits(words: &[u64], at: usize) -> u64 {
    let (word, shift) = (at / 64, at % 64);
    let next = words.get(word + 1).copied().unwrap_or(0);
    let high = if shift == 0 { 0 } else { next << (64 - shift) };
    words[word] >> shift | high
}

/// Loads a field of sorted tuples, a vector at a time.
pub(super) struct Fields<'a> {
    layout: &'a Layout,
    field: usize,
    addresses: Vec<u64>,
    vector: Vector,
}

impl Fields<'_> {
    pub(super) fn new(layout: &Layout, field: usize) -> Fields<'_> {
        let vector = Vector::new(layout.field(field).lane);
        Fields { layout, field, addresses: vec![0; VECTOR_ROWS_MAX], vector }
    }

    /// The field of `rows` tuples from the number `start` on.
    ///
    /// # Safety
    /// The tuples have the layout.
    ///
    /// # Panics
    /// If there are not so many, or they are more than a vector has.
    pub(super) unsafe fn load(&mut self, sorted: &[Entry], start: usize, rows: usize) -> &Vector {
        let addresses = &mut self.addresses[..rows];
        let entries = &sorted[start..start + rows];
        addresses.iter_mut().zip(entries).for_each(|(address, entry)| *address = entry.tuple);
        self.vector.make_room();
        // SAFETY: as the caller promises; sorted tuples are not written to.
        unsafe {
            load(addresses, Selected::All(rows), self.layout, self.field, &mut self.vector);
        }
        &self.vector
    }
}

/// A field of sorted tuples as an array.
///
/// # Errors
/// If its values are none of the type.
///
/// # Safety
/// The tuples have the layout.
pub(super) async unsafe fn array(
    sorted: &[Entry],
    rows: Range<usize>,
    layout: &Layout,
    field: usize,
    data_type: &arrow_schema::DataType,
    pace: &mut Pace,
) -> Result<ArrayRef> {
    let mut builder = ColumnBuilder::new(data_type, layout.field(field).lane);
    let mut fields = Fields::new(layout, field);
    for start in rows.clone().step_by(VECTOR_ROWS_MAX) {
        let count = VECTOR_ROWS_MAX.min(rows.end - start);
        // SAFETY: as the caller promises.
        let vector = unsafe { fields.load(sorted, start, count) };
        builder.append_in_turns(vector, Selected::All(count), pace).await;
        pace.keep().await;
    }
    if builder.takes_long() { apart::run(|| builder.finish()).await } else { builder.finish() }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int32Array, StringArray};
    use futures::executor::block_on;

    use super::*;

    #[test]
    fn values_come_back() {
        let mut random = fastrand::Rng::with_seed(11);
        let values: Vec<Option<i32>> =
            (0..5000).map(|_| (random.u8(..) < 200).then(|| random.i32(..))).collect();
        let array: ArrayRef = Arc::new(Int32Array::from(values.clone()));
        let mut column = Column::new(Lane::I32, 5003);
        let made = Arc::new(ArrowColumn::new(&array, Lane::I32).unwrap());
        block_on(column.set_all(3, &made, &mut Pace::default())).unwrap();
        column.set_null(0);
        let expected: Vec<Option<i32>> =
            [None, Some(0), Some(0)].into_iter().chain(values).collect();
        let mut vector = Vector::new(Lane::I32);
        for (start, rows) in [(0, 2048), (1, 2048), (63, 1), (64, 64), (101, 777), (5002, 1)] {
            column.load(start, rows, &mut vector);
            for row in 0..rows {
                assert_eq!(vector.value::<i32>(row), expected[start + row], "{start} {row}");
            }
        }
    }

    #[test]
    fn long_strings_are_owned() {
        let text = "a string that has no place in its view";
        let mut column = Column::new(Lane::Str, 2);
        let array: ArrayRef = Arc::new(StringArray::from(vec![Some(text), None]));
        let made = Arc::new(ArrowColumn::new(&array, Lane::Str).unwrap());
        block_on(column.set_all(0, &made, &mut Pace::default())).unwrap();
        drop((array, made));
        // SAFETY: the column has the array.
        assert_eq!(unsafe { column.values::<Str>()[0].bytes() }, text.as_bytes());
        assert!(column.is_valid(0) && !column.is_valid(1) && column.has_nulls());
    }
}
