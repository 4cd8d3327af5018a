//! A unit of what is served later: all tuples of either side that have some first bits of their hashes in common, wherever
//! they are.

use std::sync::Arc;

use weft_rt::memory::{Ledger, Reservation};

use super::spilled::NumberedPage;
use crate::pace::Pace;
use crate::spill::{Settled, Spilling};
use crate::tuple::{Materialized, Page};

/// Tuples that are to be joined with each other.
#[derive(Debug)]
pub(super) struct Unit {
    /// Bits of the hash that all of them have in common.
    pub(super) skipped_bits: u32,
    /// The partition of a grace join that has the build side's tuples in memory.
    pub(super) in_memory: Option<usize>,
    /// Further bits do not divide the build side: few keys have most of its tuples.
    pub(super) is_heavy: bool,
    pub(super) build: Side,
    pub(super) probe: Side,
}

/// The tuples of one side.
#[derive(Debug)]
pub(super) struct Side {
    /// Those in memory.
    pub(super) pages: Vec<Page>,
    /// Those on disk.
    pub(super) spilled: Vec<NumberedPage>,
    /// What those have, when nobody has begun with them.
    pub(super) on_disk: OnDisk,
    /// The memory of the pages.
    pub(super) reservation: Reservation,
    settled: Vec<Settled>,
}

/// What pages on disk have. There are many, here and there in memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OnDisk {
    pub(super) tuples: usize,
    /// On disk, and of memory when they are read.
    pub(super) bytes: u64,
    /// Of the largest page.
    pub(super) page_bytes: u64,
}

impl OnDisk {
    /// What some pages have.
    pub(super) fn of<'a>(pages: impl IntoIterator<Item = &'a NumberedPage>) -> OnDisk {
        pages.into_iter().fold(OnDisk::default(), |mut all, page| {
            all.add(page);
            all
        })
    }

    pub(super) fn add(&mut self, page: &NumberedPage) {
        let (tuples, bytes) = (page.page.tuples, page.bytes());
        self.merge(OnDisk { tuples, bytes, page_bytes: bytes });
    }

    pub(super) fn merge(&mut self, other: OnDisk) {
        self.tuples += other.tuples;
        self.bytes += other.bytes;
        self.page_bytes = self.page_bytes.max(other.page_bytes);
    }
}

impl Side {
    /// Without tuples.
    pub(super) fn new(ledger: &Ledger) -> Side {
        Side::of(Vec::new(), Vec::new(), ledger.empty())
    }

    /// Tuples in memory, which lie in `reservation`, and on disk.
    pub(super) fn of(
        pages: Vec<Page>,
        spilled: Vec<NumberedPage>,
        reservation: Reservation,
    ) -> Side {
        let on_disk = OnDisk::of(&spilled);
        Side { pages, spilled, on_disk, reservation, settled: Vec::new() }
    }

    /// What was stored, by partition, of which there are 2 to the power of `bits`. If it was stored to be spilled, nobody can do that any more.
    ///
    /// # Panics
    /// If tuples were not partitioned from the beginning.
    pub(super) async fn by_partition(
        mut stored: Materialized,
        bits: u32,
        spilling: &Arc<Spilling>,
    ) -> Vec<Side> {
        let (ledger, mut pace) = (stored.reservation.ledger().clone(), Pace::default());
        let mut sides: Vec<Side> = (0..1 << bits).map(|_| Side::new(&ledger)).collect();
        for page in stored.pages {
            let side = &mut sides[page.partition.expect("partitioned from the beginning")];
            side.reservation.merge(stored.reservation.split(page.page.bytes() as u64));
            side.pages.push(page.page);
            pace.keep().await;
        }
        for page in stored.spilled {
            let side = &mut sides[page.partition];
            let page = NumberedPage { page: Arc::new(page), first: None };
            side.on_disk.add(&page);
            side.spilled.push(page);
            pace.keep().await;
        }
        for side in &mut sides {
            side.settled.push(Settled::new(spilling, side.reservation.bytes()));
        }
        sides
    }

    /// Adds the tuples of another one.
    pub(super) fn merge(&mut self, other: Side) {
        self.pages.extend(other.pages);
        self.spilled.extend(other.spilled);
        self.on_disk.merge(other.on_disk);
        self.reservation.merge(other.reservation);
        self.settled.extend(other.settled);
    }

    /// It is being worked on: what it has in memory is a part of the worker's share.
    pub(super) fn unsettle(&mut self) {
        self.settled.clear();
    }

    /// Number of tuples.
    pub(super) fn tuples(&self) -> usize {
        self.pages.iter().map(Page::tuples).sum::<usize>() + self.on_disk.tuples
    }

    /// Bytes in memory and on disk.
    pub(super) fn bytes(&self) -> u64 {
        self.reservation.bytes() + self.on_disk.bytes
    }
}

impl NumberedPage {
    /// Bytes on disk, and of memory when it is read.
    pub(super) fn bytes(&self) -> u64 {
        self.page.bytes() as u64
    }
}
