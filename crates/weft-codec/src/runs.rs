//! Run-length: what a run holds, and the index of its last row.
//!
//! Payload: number of runs (u32), their values as a child, their last rows (u16) as the rest.

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};

use crate::error::{Result, damaged};
use crate::ints;
use crate::reader::{Reader, put, put_child};

/// Runs of up to this many rows are written at once.
const SHORT: usize = 8;

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

    /// The length of every run, in rows; together they are `rows`.
    pub(crate) fn lengths(&self, rows: usize, depth: u8) -> Result<Vec<usize>> {
        let lasts = ints::decode::<u16>(self.lasts, self.len, depth)?;
        let mut end = 0;
        let mut lengths = Vec::with_capacity(lasts.len());
        for last in lasts {
            let next = usize::from(last) + 1;
            if next <= end || next > rows {
                return Err(damaged("run-length", format!("a run that ends at row {last}")));
            }
            lengths.push(next - end);
            end = next;
        }
        if end != rows {
            return Err(damaged("run-length", format!("runs of {end} rows instead of {rows}")));
        }
        Ok(lengths)
    }

    /// A value per row, given one per run. Short runs are written as whole vectors, the rest of which
    /// the next run overwrites.
    pub(crate) fn repeat<T: Copy>(&self, values: &[T], rows: usize, depth: u8) -> Result<Vec<T>> {
        let Some(&first) = values.first() else {
            return Err(damaged("run-length", "no runs"));
        };
        let mut out = vec![first; rows + SHORT];
        let mut start = 0;
        for (&value, len) in values.iter().zip(self.lengths(rows, depth)?) {
            out[start..start + SHORT].fill(value);
            if len > SHORT {
                out[start + SHORT..start + len].fill(value);
            }
            start += len;
        }
        out.truncate(rows);
        Ok(out)
    }

    /// A bit per row, given one per run.
    pub(crate) fn spread(
        &self,
        values: &BooleanBuffer,
        rows: usize,
        depth: u8,
    ) -> Result<BooleanBuffer> {
        let mut out = BooleanBufferBuilder::new(rows);
        for (value, len) in values.iter().zip(self.lengths(rows, depth)?) {
            out.append_n(len, value);
        }
        Ok(out.finish())
    }

    /// The run that holds row `row`. All ends are decoded: they are usually delta-encoded, and a
    /// binary search with point reads would decode a chunk of them at every step.
    pub(crate) fn run(&self, row: usize, depth: u8) -> Result<usize> {
        let lasts = ints::decode::<u16>(self.lasts, self.len, depth)?;
        let run = lasts.partition_point(|&last| usize::from(last) < row);
        Ok(run.min(self.len - 1))
    }
}
