//! How much of a pipeline is done, for the statement's progress: in units of about as many tuples as a row group has. All pipelines of
//! a query are in the total from its beginning on, with what they are expected to do; what they really have to takes its place
//! when they are open.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_rt::progress::Progress;

/// Tuples of a unit.
const UNIT_TUPLES: u64 = 64 << 10;

/// How much a pipeline will have to do, as far as that is known before it is begun. The statement's total has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// Until its source is open, which announces what there is.
    pub(crate) units: u64,
    /// After the last of its tuples.
    pub(crate) units_at_end: u64,
}

/// Tuples that are to be gone through, counted as they are.
#[derive(Debug)]
pub(crate) struct Work {
    progress: Arc<Progress>,
    announced: AtomicU64,
    done: AtomicU64,
    /// Units that are done.
    counted: AtomicU64,
}

impl Work {
    /// None yet.
    pub(crate) fn new(progress: &Arc<Progress>) -> Work {
        let [announced, done, counted] = [(); 3].map(|()| AtomicU64::new(0));
        Work { progress: progress.clone(), announced, done, counted }
    }

    /// So many more are to be gone through.
    pub(crate) fn announce(&self, tuples: u64) {
        let before = self.announced.fetch_add(tuples, Ordering::Relaxed);
        let units = (before + tuples).div_ceil(UNIT_TUPLES) - before.div_ceil(UNIT_TUPLES);
        self.progress.add_total(units);
    }

    /// Tuples that were announced and have not been gone through.
    pub(crate) fn left(&self) -> u64 {
        let done = self.done.load(Ordering::Relaxed);
        self.announced.load(Ordering::Relaxed).saturating_sub(done)
    }

    /// Some have been. Those that were not announced, or come again, do not count.
    pub(crate) fn advance(&self, tuples: u64) {
        let announced = self.announced.load(Ordering::Relaxed);
        let done = self.done.fetch_add(tuples, Ordering::Relaxed) + tuples;
        let units = done.min(announced) / UNIT_TUPLES;
        let before = self.counted.fetch_max(units, Ordering::Relaxed);
        self.progress.add_done(units.saturating_sub(before));
    }
}

impl Drop for Work {
    /// The rest is not to be done any more.
    fn drop(&mut self) {
        let (announced, counted) = (*self.announced.get_mut(), *self.counted.get_mut());
        self.progress.add_done(announced.div_ceil(UNIT_TUPLES) - counted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_units_are_done_in_the_end() {
        let progress = Arc::new(Progress::new());
        let work = Work::new(&progress);
        work.announce(3 * UNIT_TUPLES + 1);
        assert_eq!(progress.snapshot().units_total, 4);
        work.advance(UNIT_TUPLES / 2);
        assert_eq!(progress.snapshot().units_done, 0);
        work.advance(UNIT_TUPLES / 2 + 5);
        assert_eq!(progress.snapshot().units_done, 1);
        work.announce(10);
        work.advance(100 * UNIT_TUPLES);
        assert_eq!((progress.snapshot().units_total, progress.snapshot().units_done), (4, 3));
        drop(work);
        assert_eq!(progress.fraction(), 1.0);
        drop(Work::new(&progress));
        assert_eq!(progress.snapshot().units_total, 4);
    }
}
