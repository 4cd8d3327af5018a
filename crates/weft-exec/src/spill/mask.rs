//! Which partitions of an operator are spilled, for all of its workers: those that somebody has packed for it once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::tuple::materializer::PARTITIONS;

const WORDS: usize = PARTITIONS / u64::BITS as usize;

/// A bit for each partition, changed optimistically: who has chosen by bits that others have changed chooses again.
#[derive(Debug, Default)]
pub(crate) struct SpilledPartitions {
    words: [AtomicU64; WORDS],
    /// Odd while somebody changes a bit.
    version: AtomicU64,
    /// Partitions that were spilled, of all operators.
    total: Arc<AtomicU64>,
}

/// The bits at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    words: [u64; WORDS],
    version: u64,
}

impl Snapshot {
    /// How many partitions are spilled.
    pub(crate) fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// True if a partition is spilled.
    pub(crate) fn has(&self, partition: usize) -> bool {
        self.words[partition / 64] >> (partition % 64) & 1 == 1
    }
}

impl SpilledPartitions {
    /// None yet; those that are added count in `total`, too.
    pub(crate) fn counted(total: Arc<AtomicU64>) -> SpilledPartitions {
        SpilledPartitions { total, ..SpilledPartitions::default() }
    }

    /// The bits now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let words = std::array::from_fn(|word| self.words[word].load(Ordering::Acquire));
            if version.is_multiple_of(2) && self.version.load(Ordering::Acquire) == version {
                return Snapshot { words, version };
            }
            std::hint::spin_loop();
        }
    }

    /// Adds a partition; false if others have added one since the snapshot.
    pub(crate) fn add(&self, partition: usize, since: &Snapshot) -> bool {
        let (before, during) = (since.version, since.version + 1);
        let exchanged =
            self.version.compare_exchange(before, during, Ordering::AcqRel, Ordering::Relaxed);
        if exchanged.is_err() {
            return false;
        }
        let bit = 1 << (partition % 64);
        let had = self.words[partition / 64].fetch_or(bit, Ordering::AcqRel) & bit != 0;
        self.total.fetch_add(u64::from(!had), Ordering::Relaxed);
        self.version.store(during + 1, Ordering::Release);
        true
    }

    /// Adds all of so many partitions.
    pub(crate) fn add_all(&self, partitions: usize) {
        for partition in 0..partitions {
            while !self.add(partition, &self.snapshot()) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_late_chooses_again() {
        let mask = SpilledPartitions::default();
        let (one, two) = (mask.snapshot(), mask.snapshot());
        assert!(mask.add(200, &one) && !mask.add(3, &two));
        let three = mask.snapshot();
        assert!(three.has(200) && !three.has(3) && !two.has(200));
        assert!(mask.add(3, &three) && mask.snapshot().has(3));
        assert_eq!(mask.total.load(Ordering::Relaxed), 2);
        let other = SpilledPartitions::counted(mask.total.clone());
        assert!(other.add(3, &other.snapshot()) && other.add(3, &other.snapshot()));
        assert_eq!(mask.total.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn workers_agree() {
        let mask = SpilledPartitions::default();
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let mask = &mask;
                scope.spawn(move || {
                    for partition in (0..PARTITIONS).skip(worker).step_by(4) {
                        while !mask.add(partition, &mask.snapshot()) {}
                    }
                });
            }
        });
        let all = mask.snapshot();
        assert!((0..PARTITIONS).all(|partition| all.has(partition)));
    }
}
