//! Gathering statistics while row groups are written.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use arrow_array::{Array, ArrayRef, UInt32Array};

use super::{Statistics, pick, sample_rows_max, sketch};

/// Gathers statistics of the row groups that a load writes, on any threads.
#[derive(Debug)]
pub(crate) struct Collector {
    seed: u64,
    /// Rows that have got their keys.
    rows: AtomicU64,
    /// Rows with greater keys are not among the least any more.
    key_max: AtomicU64,
    gathered: Mutex<Option<Statistics>>,
}

impl Default for Collector {
    fn default() -> Collector {
        Collector {
            seed: RandomState::new().build_hasher().finish(),
            rows: AtomicU64::new(0),
            key_max: AtomicU64::new(u64::MAX),
            gathered: Mutex::default(),
        }
    }
}

impl Collector {
    /// Adds the rows of a row group.
    ///
    /// # Errors
    /// If long values cannot be put together.
    pub(crate) fn add(&self, columns: &[ArrayRef]) -> weft_codec::Result<()> {
        let rows = columns.first().map_or(0, |column| column.len());
        let sketches = columns.iter().map(sketch).collect();
        let (keys, drawn) = self.draw(rows, sample_rows_max(columns.len()));
        let drawn = UInt32Array::from(drawn);
        let sample: weft_codec::Result<Vec<ArrayRef>> =
            columns.iter().map(|values| pick(values, &drawn)).collect();
        let group = Statistics { rows: rows as u64, sketches, keys, sample: sample? };
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *gathered {
            Some(whole) => {
                whole.merge(group)?;
                let rows_max = whole.sample_rows_max();
                if whole.keys.len() >= rows_max {
                    let mut keys = whole.keys.clone();
                    let (_, key, _) = keys.select_nth_unstable(rows_max - 1);
                    self.key_max.store(*key, Ordering::Relaxed);
                }
            }
            None => *gathered = Some(group),
        }
        Ok(())
    }

    /// The rows of a row group that may be among the `rows_max` with the least keys of all, and their keys.
    fn draw(&self, rows: usize, rows_max: usize) -> (Vec<u64>, Vec<u32>) {
        let first = self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        let key_max = self.key_max.load(Ordering::Relaxed);
        let key = |row: u64| mix(self.seed.wrapping_add(row.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let mut drawn: Vec<(u64, u32)> = (0..rows as u32)
            .map(|row| (key(first + u64::from(row)), row))
            .filter(|(key, _)| *key <= key_max)
            .collect();
        if drawn.len() > rows_max {
            drawn.select_nth_unstable(rows_max - 1);
            drawn.truncate(rows_max);
        }
        drawn.into_iter().unzip()
    }

    /// What was gathered; `None` if there were no rows.
    pub(crate) fn finish(&self) -> Option<Statistics> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// SplitMix64's output function (Steele, Lea and Flood, 2014).
fn mix(mut state: u64) -> u64 {
    state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ state >> 31
}
