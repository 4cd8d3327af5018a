//! How much memory whoever spills may have. There is no other way to be fair: who came first would have all of it, and keep
//! it as long as those who came later could only spill.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use weft_rt::memory::Ledger;
use weft_store::spill::SpillArea;

use super::mask::SpilledPartitions;
use super::mode::SpillMode;
use super::regulator::{Experience, Regulator, SpillCompression};
use super::turn::Turns;
use crate::query::PartitionMode;
use crate::tuple::materializer::{PAGE_BYTES_MIN, PARTITIONS};

/// Of what is usable, the part that is not shared: it is for caches, for what is read, and for who needs little and fails without it.
const REST: u64 = 4;

/// Of a large budget less is enough for that: a part, or so many bytes.
const REST_OF_MUCH: u64 = 8;
const REST_BYTES: u64 = 96 << 20;

/// Of that rest, the part that caches may keep for themselves. What they keep beyond is taken from the others.
const CACHES: u64 = 2;

/// Of the budget, the part that counts as there however much of it is taken by what reserves nothing.
const USABLE_MIN: u64 = 2;

/// What a worker needs to go on well: two small pages for each partition.
pub(super) const WORKER_BYTES: u64 = (2 * PARTITIONS * PAGE_BYTES_MIN) as u64;

/// What one may have at least, if it is free: that, but no more than a part of what is usable, and than its share of another.
const SHARE_MIN: (u64, u64) = (WORKER_BYTES, 16);
const LEAST_SHARED: u64 = 4;

/// Of what is usable, the part that who keeps memory leaves to those who come next, and its most bytes.
const LEFT: u64 = 4;
const LEFT_BYTES_MAX: u64 = 8 << 20;

/// How operators partition what they materialize, and spill it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpillOptions {
    /// When they partition.
    pub partition: PartitionMode,
    /// Which partitions go to disk.
    pub mode: SpillMode,
    /// How they are compressed.
    pub compression: SpillCompression,
}

/// What all operators that spill share, of all queries.
#[derive(Debug)]
pub struct Spilling {
    area: SpillArea,
    turns: Turns,
    options: RwLock<SpillOptions>,
    experience: Experience,
    /// Those who may have a share now.
    sharers: AtomicUsize,
    /// Bytes that nobody can spill any more.
    settled_bytes: AtomicU64,
    /// Bytes that are left for others to come.
    coming_bytes: AtomicU64,
    /// Bytes that caches keep whoever lacks them.
    cached_bytes: AtomicU64,
    /// Partitions that were spilled.
    partitions: Arc<AtomicU64>,
}

impl Spilling {
    /// Operators spill to this area.
    pub fn new(area: SpillArea) -> Arc<Spilling> {
        let (turns, sharers) = (Turns::new(), AtomicUsize::new(0));
        let (options, experience) = (RwLock::default(), Experience::default());
        let [settled_bytes, coming_bytes, cached_bytes] = [0; 3].map(AtomicU64::new);
        let partitions = Arc::default();
        Arc::new(Spilling {
            area,
            turns,
            options,
            experience,
            sharers,
            settled_bytes,
            coming_bytes,
            cached_bytes,
            partitions,
        })
    }

    /// How they do that now.
    pub fn options(&self) -> SpillOptions {
        *self.options.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes that: compression for what is spilled from now on, the rest for what begins.
    pub fn set_options(&self, options: SpillOptions) {
        *self.options.write().unwrap_or_else(PoisonError::into_inner) = options;
    }

    /// Notes how many bytes of the budget caches keep whoever lacks them, from now on.
    pub fn set_cached(&self, bytes: u64) {
        self.cached_bytes.store(bytes, Ordering::Relaxed);
    }

    /// What all who share may have of a budget, of which so much is usable.
    pub(super) fn shared_bytes(&self, limit: u64, usable: u64) -> u64 {
        let rest = (usable / REST).min((limit / REST_OF_MUCH).max(REST_BYTES));
        let cached = self.cached_bytes.load(Ordering::Relaxed);
        (usable - rest).saturating_sub(cached.saturating_sub(rest / CACHES))
    }

    /// Partitions of joins and groupings that were spilled, in whole or in part, so far: those that were packed and stayed in memory are among them.
    pub fn partitions(&self) -> u64 {
        self.partitions.load(Ordering::Relaxed)
    }

    /// Which partitions of an operator go to disk: none yet.
    pub(super) fn mask(&self) -> Arc<SpilledPartitions> {
        Arc::new(SpilledPartitions::counted(self.partitions.clone()))
    }

    /// What decides how one writer's pages are compressed, one of as many writers as there are `workers`, with `depth` pages on
    /// their way at once. It goes on from what others know of pages.
    pub fn regulator(&self, depth: usize, workers: usize) -> Regulator {
        Regulator::new(self.experience.clone(), depth, workers)
    }

    pub(super) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Where they spill to.
    pub fn area(&self) -> &SpillArea {
        &self.area
    }
}

/// The share of one worker's part of an operator that spills, or of its second phase.
#[derive(Debug)]
pub(crate) struct Share {
    spilling: Arc<Spilling>,
    ledger: Ledger,
    /// It is one of the sharers, from when it wants more than a little until this is dropped.
    counts: bool,
}

impl Share {
    /// One more among those who share.
    pub(crate) fn new(spilling: &Arc<Spilling>, ledger: &Ledger) -> Share {
        let mut share = Share::of_little(spilling, ledger);
        share.count();
        share
    }

    /// The same for one that may not want more than a little.
    pub(crate) fn of_little(spilling: &Arc<Spilling>, ledger: &Ledger) -> Share {
        Share { spilling: spilling.clone(), ledger: ledger.clone(), counts: false }
    }

    fn count(&mut self) {
        if !self.counts {
            self.counts = true;
            self.spilling.sharers.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What everybody may have.
    fn least(&self) -> u64 {
        let usable = self.usable();
        SHARE_MIN.0.min(usable / SHARE_MIN.1).min(usable / LEAST_SHARED / self.sharers())
    }

    fn usable(&self) -> u64 {
        let limit = self.ledger.limit();
        limit.saturating_sub(self.ledger.unreserved()).max(limit / USABLE_MIN)
    }

    /// How many share, this one among them.
    fn sharers(&self) -> u64 {
        let sharers = self.spilling.sharers.load(Ordering::Relaxed);
        (sharers + usize::from(!self.counts)).max(1) as u64
    }

    /// True if so many bytes are not more than it may have.
    pub(crate) fn allows(&mut self, bytes: u64) -> bool {
        if bytes <= self.least() {
            return true;
        }
        self.count();
        bytes <= self.bytes()
    }

    /// Bytes that it may have now.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes_beside(self.spilling.coming_bytes.load(Ordering::Relaxed))
    }

    /// Bytes that it may keep when it cannot spill any more: some are left for those who come next.
    pub(crate) fn kept_bytes(&self) -> u64 {
        let left = (self.usable() / LEFT).min(LEFT_BYTES_MAX);
        let coming = self.spilling.coming_bytes.load(Ordering::Relaxed);
        self.bytes_beside(left.max(coming))
    }

    /// Bytes that it may have if so many are left.
    fn bytes_beside(&self, left_bytes: u64) -> u64 {
        let settled = self.spilling.settled_bytes.load(Ordering::Relaxed);
        let shared = self.spilling.shared_bytes(self.ledger.limit(), self.usable());
        let taken = settled.saturating_add(left_bytes);
        (shared.saturating_sub(taken) / self.sharers()).max(self.least())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if !self.counts {
            return;
        }
        self.spilling.sharers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes that are not shared, as long as this is.
#[derive(Debug)]
pub(crate) struct Settled {
    spilling: Arc<Spilling>,
    bytes: u64,
    /// Where they count.
    count: fn(&Spilling) -> &AtomicU64,
}

impl Settled {
    /// Those of somebody who cannot spill them any more.
    pub(crate) fn new(spilling: &Arc<Spilling>, bytes: u64) -> Settled {
        Settled::counted(spilling, bytes, |spilling| &spilling.settled_bytes)
    }

    /// Those that are left for somebody who comes later.
    pub(crate) fn for_later(spilling: &Arc<Spilling>, bytes: u64) -> Settled {
        Settled::counted(spilling, bytes, |spilling| &spilling.coming_bytes)
    }

    fn counted(
        spilling: &Arc<Spilling>,
        bytes: u64,
        count: fn(&Spilling) -> &AtomicU64,
    ) -> Settled {
        count(spilling).fetch_add(bytes, Ordering::Relaxed);
        Settled { spilling: spilling.clone(), bytes, count }
    }
}

impl Drop for Settled {
    fn drop(&mut self) {
        (self.count)(&self.spilling).fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use weft_store::Directory;

    use super::*;

    #[test]
    fn what_can_be_spilled_is_shared() {
        let spilling = Spilling::new(SpillArea::new(vec![Directory::Os("none".into())], 0));
        let ledger = Ledger::new(320 << 20);
        let one = Share::new(&spilling, &ledger);
        assert_eq!(one.bytes(), 240 << 20);
        let settled = Settled::new(&spilling, 100 << 20);
        let two = Share::new(&spilling, &ledger);
        assert_eq!((one.bytes(), two.bytes()), (70 << 20, 70 << 20));
        drop((one, settled));
        assert_eq!(two.bytes(), 240 << 20);
        for (kept, shared) in [(40 << 20, 240 << 20), (140 << 20, 140 << 20), (0, 240 << 20)] {
            spilling.set_cached(kept);
            assert_eq!(two.bytes(), shared);
        }
        let mut little = Share::of_little(&spilling, &ledger);
        assert!(little.allows(SHARE_MIN.0) && two.bytes() == 240 << 20);
        assert!(little.allows(120 << 20) && !little.allows(121 << 20) && two.bytes() == 120 << 20);
        drop(little);
        let settled = Settled::new(&spilling, 1 << 30);
        assert_eq!(two.bytes(), SHARE_MIN.0);
        drop(settled);
        // What cannot be spilled leaves room for others.
        assert_eq!((two.bytes(), two.kept_bytes()), (240 << 20, (240 << 20) - LEFT_BYTES_MAX));
        let coming = Settled::for_later(&spilling, 20 << 20);
        assert_eq!((two.bytes(), two.kept_bytes()), (220 << 20, 220 << 20));
        drop(coming);
        for (limit, shared) in [(512 << 20, (512 << 20) - REST_BYTES), (8 << 30, 7 << 30)] {
            ledger.set_limit(limit);
            assert_eq!(two.bytes(), shared);
        }
    }
}
