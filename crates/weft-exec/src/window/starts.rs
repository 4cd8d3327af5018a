//! Where partitions and peers begin: a bit per sorted row, set if it differs from the one before in some fields.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::column::Fields;
use super::sorted_rows::SortedRows;
use crate::error::Result;
use crate::for_lane;
use crate::pace::Pace;
use crate::query::Context;
use crate::sort::entries::Entry;
use crate::sort::order::Ranked;
use crate::tuple::Layout;
use crate::vector::{VECTOR_ROWS_MAX, Vector};

/// Words that are found at once; a row more than they have bits fits into a vector.
const PIECE_WORDS: usize = VECTOR_ROWS_MAX / 64 - 1;
const PIECE: usize = PIECE_WORDS * 64;

/// The rows that begin something.
#[derive(Debug)]
pub(super) struct Starts {
    words: Vec<AtomicU64>,
    rows: usize,
}

impl Starts {
    fn new(rows: usize) -> Starts {
        let words = (0..rows.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Starts { words, rows }
    }

    /// Bytes that the bits of so many rows take.
    pub(super) fn bytes(rows: usize) -> u64 {
        (rows.div_ceil(64) * size_of::<u64>()) as u64
    }

    /// True if a row begins something.
    pub(super) fn begins(&self, row: usize) -> bool {
        self.words[row / 64].load(Relaxed) >> (row % 64) & 1 == 1
    }

    /// The last row up to `row` that begins something, if there is one from `first` on.
    pub(super) fn last(&self, first: usize, row: usize) -> Option<usize> {
        (first..=row).rev().find(|row| self.begins(*row))
    }

    /// The first row begins nothing.
    pub(super) fn go_on(&self) {
        self.words[0].fetch_and(!1, Relaxed);
    }

    /// Those of the first `count` rows that begin something.
    pub(super) fn count(&self, count: usize) -> usize {
        let words = self.words[..count / 64].iter().map(|word| word.load(Relaxed));
        let rest = (!count.is_multiple_of(64))
            .then(|| self.words[count / 64].load(Relaxed) & ((1 << (count % 64)) - 1));
        words.chain(rest).map(|word| word.count_ones() as usize).sum()
    }

    /// The first row after `row` that begins something, or `end` if that comes first.
    pub(super) fn next(&self, row: usize, end: usize) -> usize {
        debug_assert!(end <= self.rows, "rows up to {end} of {}", self.rows);
        let first = row + 1;
        if first >= end {
            return end;
        }
        let mut number = first / 64;
        let mut word = self.words[number].load(Relaxed) & u64::MAX << (first % 64);
        while word == 0 {
            number += 1;
            if number * 64 >= end {
                return end;
            }
            word = self.words[number].load(Relaxed);
        }
        (number * 64 + word.trailing_zeros() as usize).min(end)
    }

    /// The ranges that rows which begin something cut `rows` into, whose first one begins something.
    pub(super) fn ranges(&self, rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut at = rows.start;
        std::iter::from_fn(move || {
            let start = at;
            (start < rows.end).then(|| {
                at = self.next(start, rows.end);
                start..at
            })
        })
    }
}

/// What the workers share.
struct Shared {
    rows: SortedRows,
    layout: Arc<Layout>,
    sets: Vec<Vec<usize>>,
    starts: Vec<Starts>,
}

/// For each set of fields, where sorted rows begin to differ in one of them.
///
/// # Errors
/// If the query is cancelled.
///
/// # Safety
/// The tuples have the layout.
pub(super) async unsafe fn starts(
    sorted: &SortedRows,
    layout: &Arc<Layout>,
    sets: Vec<Vec<usize>>,
    context: &Context,
) -> Result<Vec<Starts>> {
    let rows = sorted.entries().len();
    let starts = sets.iter().map(|_| Starts::new(rows)).collect();
    let (sorted, layout) = (sorted.clone(), layout.clone());
    let shared = Arc::new(Shared { rows: sorted, layout, sets, starts });
    let for_workers = shared.clone();
    let work = move |_, piece| {
        let shared = for_workers.clone();
        async move {
            // SAFETY: as the caller promises.
            unsafe { shared.find(piece) };
            Ok(())
        }
    };
    context.run_morsels(rows.div_ceil(PIECE), work).await?;
    Ok(Arc::into_inner(shared).expect("all workers have ended").starts)
}

/// The same as [`starts`] for few rows, by this worker alone.
///
/// # Safety
/// The tuples have the layout.
pub(super) async unsafe fn starts_of_few(
    sorted: &[Entry],
    layout: &Layout,
    sets: &[Vec<usize>],
    pace: &mut Pace,
) -> Vec<Starts> {
    let starts: Vec<Starts> = sets.iter().map(|_| Starts::new(sorted.len())).collect();
    for piece in 0..sorted.len().div_ceil(PIECE) {
        // SAFETY: as the caller promises.
        unsafe { find(sorted, layout, sets, &starts, piece) };
        pace.keep().await;
    }
    starts
}

impl Shared {
    /// # Safety
    /// The tuples have the layout.
    unsafe fn find(&self, piece: usize) {
        // SAFETY: as the caller promises.
        unsafe { find(self.rows.entries(), &self.layout, &self.sets, &self.starts, piece) };
    }
}

/// Finds the starts of a piece of sorted rows.
///
/// # Safety
/// The tuples have the layout.
unsafe fn find(
    sorted: &[Entry],
    layout: &Layout,
    sets: &[Vec<usize>],
    starts: &[Starts],
    piece: usize,
) {
    let start = piece * PIECE;
    let rows = PIECE.min(sorted.len() - start);
    // The row before the first is looked at as well, if there is one.
    let before = usize::from(start > 0);
    let mut found = vec![[0u64; PIECE_WORDS]; sets.len()];
    for field in 0..layout.fields().len() {
        if !sets.iter().any(|set| set.contains(&field)) {
            continue;
        }
        let mut bits = [0; PIECE_WORDS];
        let mut fields = Fields::new(layout, field);
        // SAFETY: as the caller promises.
        let vector = unsafe { fields.load(sorted, start - before, rows + before) };
        for_lane!(vector.lane(), T => differences::<T>(vector, before, rows, &mut bits));
        for (set, found) in sets.iter().zip(&mut found) {
            if set.contains(&field) {
                found.iter_mut().zip(&bits).for_each(|(found, bits)| *found |= bits);
            }
        }
    }
    for (starts, mut found) in starts.iter().zip(found) {
        found[0] |= u64::from(start == 0);
        let words = &starts.words[start / 64..];
        words.iter().zip(found).for_each(|(word, bits)| word.store(bits, Relaxed));
    }
}

/// Sets the bits of those of `rows` rows, the first of which has the number `before` in the vector, that differ from the
/// one before them.
fn differences<T: Ranked>(
    vector: &Vector,
    before: usize,
    rows: usize,
    bits: &mut [u64; PIECE_WORDS],
) {
    let values = vector.values::<T>();
    let has_nulls = vector.validity.has_nulls();
    for row in 1 - before..rows {
        let at = row + before;
        let is_other = || values[at - 1].compare(&values[at]) != Ordering::Equal;
        let differs = if has_nulls {
            match (vector.validity.is_valid(at - 1), vector.validity.is_valid(at)) {
                (true, true) => is_other(),
                (a, b) => a != b,
            }
        } else {
            is_other()
        };
        bits[row / 64] |= u64::from(differs) << (row % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_where_others_begin() {
        let starts = Starts::new(300);
        for row in [0usize, 1, 63, 64, 200, 299] {
            starts.words[row / 64].fetch_or(1 << (row % 64), Relaxed);
        }
        let ranges: Vec<Range<usize>> = starts.ranges(0..300).collect();
        assert_eq!(ranges, [0..1, 1..63, 63..64, 64..200, 200..299, 299..300]);
        let ranges: Vec<Range<usize>> = starts.ranges(64..210).collect();
        assert_eq!(ranges, [64..200, 200..210]);
        assert_eq!(starts.ranges(7..7).count(), 0);
    }
}
