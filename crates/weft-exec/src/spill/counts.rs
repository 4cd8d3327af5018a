//! What operators have spilled: bytes before and after compression, what came back, and how pages were compressed, also over time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use weft_store::spill::{Levels, Spilled};

/// The time is cut into so many slices at most, which grow with it.
const SLICES: usize = 16;
const SLICE: Duration = Duration::from_millis(10);

/// What one who spills counts.
#[derive(Debug, Default)]
pub struct SpillCounts {
    raw_bytes: AtomicU64,
    written_bytes: AtomicU64,
    read_bytes: AtomicU64,
    over_time: Mutex<OverTime>,
}

/// Pages in slices of time, from the first page on.
#[derive(Clone, Debug, Default)]
struct OverTime {
    began: Option<Instant>,
    slice: Duration,
    slices: Vec<Levels>,
}

impl SpillCounts {
    /// Bytes of pages that were written, before compression.
    pub fn raw_bytes(&self) -> u64 {
        self.raw_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that these were on disk.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Bytes on disk that came back; more than were written if some came back more than once.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Pages written at each level, slice by slice of the time for which pages were written.
    pub fn levels_over_time(&self) -> Vec<Levels> {
        self.over_time.lock().unwrap_or_else(PoisonError::into_inner).slices.clone()
    }

    /// A page was written.
    pub fn note_written(&self, spilled: &Spilled) {
        self.raw_bytes.fetch_add(spilled.bytes() as u64, Ordering::Relaxed);
        self.written_bytes.fetch_add(spilled.written_bytes() as u64, Ordering::Relaxed);
        let mut over_time = self.over_time.lock().unwrap_or_else(PoisonError::into_inner);
        over_time.add(spilled.scheme().level(), Instant::now());
    }

    /// A page was read back.
    pub fn note_read(&self, spilled: &Spilled) {
        self.read_bytes.fetch_add(spilled.written_bytes() as u64, Ordering::Relaxed);
    }
}

impl OverTime {
    fn add(&mut self, level: usize, now: Instant) {
        if self.slice.is_zero() {
            self.slice = SLICE;
        }
        let elapsed = now.saturating_duration_since(*self.began.get_or_insert(now));
        let mut place = (elapsed.as_nanos() / self.slice.as_nanos()) as usize;
        while place >= SLICES {
            let halved = self.slices.chunks(2).map(|pair| sum(pair.iter())).collect();
            self.slices = halved;
            self.slice *= 2;
            place /= 2;
        }
        if self.slices.len() <= place {
            self.slices.resize(place + 1, Levels::default());
        }
        self.slices[place][level] += 1;
    }
}

/// Pages at each level in all slices.
pub fn sum<'a>(slices: impl Iterator<Item = &'a Levels>) -> Levels {
    slices.fold(Levels::default(), |mut sum, levels| {
        sum.iter_mut().zip(levels).for_each(|(sum, pages)| *sum += pages);
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_grow_with_the_time() {
        let (mut over_time, began) = (OverTime::default(), Instant::now());
        for page in 0..1_000 {
            over_time.add(usize::from(page >= 500), began + Duration::from_millis(page));
        }
        assert!(over_time.slices.len() <= SLICES && over_time.slices.len() >= SLICES / 2);
        assert_eq!(sum(over_time.slices.iter())[..2], [500, 500]);
        assert_eq!(over_time.slices[0][1], 0);
        assert_eq!(over_time.slices.last().unwrap()[0], 0);
    }
}
