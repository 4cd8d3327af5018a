//! Run-length: what a run holds, and the index of its last row.
//!
//! Payload: number of runs (u32), their values as a child, their last rows (u16) as the rest.

use std::mem::MaybeUninit;

use arrow_buffer::{BooleanBuffer, Buffer};

use crate::dispatch::{Kernel, dispatch};
use crate::error::{Result, damaged};
use crate::ints;
use crate::lane::{CHUNK, Lane};
use crate::reader::{Reader, put, put_child};
use crate::rows::Rows;

/// Runs of up to this many rows are written at once.
const SHORT: usize = 8;

/// Runs that are looked at one by one before the one that holds a row is searched for.
const NEAR: usize = 8;

/// The value and the last row of every run.
pub(crate) fn find<T: Copy + Eq>(values: &[T]) -> (Vec<T>, Vec<u16>) {
    let mut runs = Vec::new();
    let mut lasts = Vec::new();
    for (row, value) in values.iter().enumerate() {
        if values.get(row + 1) != Some(value) {
            runs.push(*value);
            lasts.push(row as u16);
        }
    }
    (runs, lasts)
}

/// Number of runs.
pub(crate) fn count<T: Copy + Eq>(values: &[T]) -> usize {
    let changes = values.windows(2).map(|pair| usize::from(pair[0] != pair[1])).sum::<usize>();
    changes + usize::from(!values.is_empty())
}

/// Appends the payload, given the encoded values of the runs.
pub(crate) fn write(values: &[u8], lasts: &[u16], level: u8, out: &mut Vec<u8>) {
    put(out, lasts.len() as u32);
    put_child(out, values);
    ints::encode(lasts, false, level, out);
}

/// A run-length payload: the number of runs, the nodes of their values and of their last rows.
pub(crate) struct Runs<'a> {
    pub(crate) len: usize,
    pub(crate) values: &'a [u8],
    pub(crate) lasts: &'a [u8],
}

impl<'a> Runs<'a> {
    pub(crate) fn open(mut reader: Reader<'a>, rows: usize) -> Result<Self> {
        let len = reader.length()?;
        if len == 0 || len > rows {
            return Err(damaged("run-length", format!("{len} runs in {rows} rows")));
        }
        let values = reader.child()?;
        Ok(Self { len, values, lasts: reader.rest() })
    }

    /// The last row of every run; the last of all is that of `rows`.
    pub(crate) fn ends(&self, rows: usize, depth: u8) -> Result<Vec<u16>> {
        let lasts = ints::decode::<u16>(self.lasts, self.len, depth)?;
        let ascends = dispatch(Ascends { lasts: &lasts });
        if !ascends || lasts.last().is_none_or(|last| usize::from(*last) + 1 != rows) {
            let what = format!("{} runs that do not end one after the other", lasts.len());
            return Err(damaged("run-length", format!("{what} at the last of {rows} rows")));
        }
        Ok(lasts)
    }

    /// The values of rows, given one per run.
    pub(crate) fn pick<T: Copy>(&self, values: &[T], rows: Rows, depth: u8) -> Result<Vec<T>> {
        if values.is_empty() || values.len() != self.len {
            return Err(damaged("run-length", format!("{} values of runs", values.len())));
        }
        let lasts = self.ends(rows.of(), depth)?;
        Ok(match rows {
            Rows::All(rows) => dispatch(Repeat { values, lasts: &lasts, rows }),
            Rows::Range { of, start, len } => {
                dispatch(Repeat { values, lasts: &lasts, rows: of })[start..start + len].to_vec()
            }
            Rows::Picked { rows, .. } => {
                let mut run = 0;
                let at = |row: &u32| {
                    run += ahead(&lasts[run..], *row);
                    values[run]
                };
                rows.iter().map(at).collect()
            }
        })
    }

    /// The values of `len` rows from row `start` on: of the runs, those are read whose chunks hold these rows.
    pub(crate) fn range<T: Lane>(&self, start: usize, len: usize, depth: u8) -> Result<Vec<T>> {
        if len == 0 {
            return Ok(Vec::new());
        }
        let end = start + len - 1;
        let first = self.chunk_before(start, depth)? * CHUNK;
        // The run that holds the last row may be the one behind its chunk.
        let past = ((self.chunk_before(end, depth)? + 1) * CHUNK + 1).min(self.len);
        let runs = Rows::range(self.len, first, past - first);
        let lasts = ints::read::<u16>(self.lasts, runs, depth)?;
        let values = ints::read::<T>(self.values, runs, depth)?;
        let place = |row: usize| lasts.partition_point(|last| usize::from(*last) < row);
        let (from, to) = (place(start), place(end));
        if !dispatch(Ascends { lasts: &lasts }) || to >= lasts.len() || values.len() != lasts.len()
        {
            let what = format!("runs that do not hold rows {start} to {end}");
            return Err(damaged("run-length", what));
        }
        let within = |last: &u16| (usize::from(*last).min(end) - start) as u16;
        let lasts: Vec<u16> = lasts[from..=to].iter().map(within).collect();
        Ok(dispatch(Repeat { values: &values[from..=to], lasts: &lasts, rows: len }))
    }

    /// The last chunk of runs whose first run ends before `row`; the first chunk, if none does.
    fn chunk_before(&self, row: usize, depth: u8) -> Result<usize> {
        let (mut low, mut high) = (0, (self.len - 1) / CHUNK);
        while low < high {
            let middle = (low + high).div_ceil(2);
            let last = ints::first_of_chunk::<u16>(self.lasts, middle, self.len, depth)?;
            if usize::from(last) < row {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        Ok(low)
    }

    /// A bit per row, given one per run.
    pub(crate) fn spread(
        &self,
        values: &BooleanBuffer,
        rows: usize,
        depth: u8,
    ) -> Result<BooleanBuffer> {
        Ok(spread(values, &self.ends(rows, depth)?))
    }

    /// The run that holds row `row`. All ends are decoded: they are usually delta-encoded, and a
    /// binary search with point reads would decode a chunk of them at every step.
    pub(crate) fn run(&self, row: usize, depth: u8) -> Result<usize> {
        let lasts = ints::decode::<u16>(self.lasts, self.len, depth)?;
        let run = lasts.partition_point(|&last| usize::from(last) < row);
        Ok(run.min(self.len - 1))
    }
}

/// A bit per row, given one per run and the last row of every run.
///
/// # Panics
/// If there are fewer runs than bits.
pub(crate) fn spread(values: &BooleanBuffer, lasts: &[u16]) -> BooleanBuffer {
    const BITS: usize = u64::BITS as usize;
    let rows = lasts.last().map_or(0, |last| usize::from(*last) + 1);
    let mut words = vec![0_u64; rows.div_ceil(BITS)];
    for run in values.set_indices() {
        let first = run.checked_sub(1).map_or(0, |before| usize::from(lasts[before]) + 1);
        let last = usize::from(lasts[run]);
        let (from, to) = (!0 << (first % BITS), !0 >> (BITS - 1 - last % BITS));
        match (first / BITS, last / BITS) {
            (word, same) if word == same => words[word] |= from & to,
            (word, end) => {
                words[word] |= from;
                words[word + 1..end].fill(!0);
                words[end] |= to;
            }
        }
    }
    BooleanBuffer::new(Buffer::from(words), 0, rows)
}

/// How many runs end before a row that is not behind the last.
fn ahead(lasts: &[u16], row: u32) -> usize {
    let is_before = |last: &u16| u32::from(*last) < row;
    match lasts.iter().take(NEAR).position(|last| !is_before(last)) {
        Some(near) => near,
        None => NEAR + lasts[NEAR..].partition_point(is_before),
    }
}

/// Whether each run ends after the one before.
struct Ascends<'a> {
    lasts: &'a [u16],
}

impl Kernel for Ascends<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let pairs = self.lasts.iter().zip(self.lasts.iter().skip(1));
        !pairs.fold(false, |falls, (last, next)| falls | (next <= last))
    }
}

/// A value per row, given one per run. Short runs are written as whole vectors, the rest of which the next run overwrites.
struct Repeat<'a, T> {
    values: &'a [T],
    /// Ascending; the last is that of `rows`.
    lasts: &'a [u16],
    rows: usize,
}

impl<T: Copy> Kernel for Repeat<'_, T> {
    type Output = Vec<T>;

    #[inline(always)]
    fn run(self) -> Vec<T> {
        let mut all: Vec<T> = Vec::with_capacity(self.rows + SHORT);
        let out = all.spare_capacity_mut();
        let mut start = 0;
        for (value, last) in self.values.iter().zip(self.lasts) {
            let (value, end) = (MaybeUninit::new(*value), usize::from(*last) + 1);
            out[start..start + SHORT].fill(value);
            if end > start + SHORT {
                out[start + SHORT..end].fill(value);
            }
            start = end;
        }
        assert_eq!(start, self.rows, "the last run ends at the last row");
        // SAFETY: every row before `start` was written, as runs follow each other from the first row on.
        unsafe { all.set_len(self.rows) };
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values with runs of random lengths, most of them short.
    fn random(rng: &mut fastrand::Rng, rows: usize) -> Vec<u64> {
        let mut values = Vec::with_capacity(rows);
        while values.len() < rows {
            let longest = [1, 3, 7, 9, 200][rng.usize(..5)];
            let len = rng.usize(1..=longest).min(rows - values.len());
            values.extend(std::iter::repeat_n(rng.u64(..5), len));
        }
        values
    }

    #[test]
    fn rows_have_the_values_of_their_runs() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..300 {
            let rows = rng.usize(1..3_000);
            let values = random(&mut rng, rows);
            let (of_runs, lasts) = find(&values);
            let mut node = Vec::new();
            write(&[], &lasts, 1, &mut node);
            let runs = Runs::open(Reader::new(&node, "runs"), rows).unwrap();
            assert_eq!(runs.pick(&of_runs, Rows::All(rows), 0).unwrap(), values);
            let share = rng.usize(1..200);
            let picked: Vec<u32> = (0..rows as u32).filter(|_| rng.usize(..share) == 0).collect();
            let expected: Vec<u64> = picked.iter().map(|row| values[*row as usize]).collect();
            assert_eq!(runs.pick(&of_runs, Rows::picked(rows, &picked), 0).unwrap(), expected);
            let bits: BooleanBuffer = of_runs.iter().map(|value| *value < 2).collect();
            let expected: BooleanBuffer = values.iter().map(|value| *value < 2).collect();
            assert_eq!(runs.spread(&bits, rows, 0).unwrap(), expected);
            let row = rng.usize(..rows);
            assert_eq!(of_runs[runs.run(row, 0).unwrap()], values[row]);
        }
    }

    #[test]
    fn runs_end_one_after_the_other() {
        for lasts in [&[3_u16, 3, 9][..], &[5, 2, 9], &[1, 2, 8], &[1, 2, 10]] {
            let mut node = Vec::new();
            write(&[], lasts, 1, &mut node);
            let runs = Runs::open(Reader::new(&node, "runs"), 10).unwrap();
            assert!(runs.ends(10, 0).is_err(), "{lasts:?}");
        }
    }
}
