//! What workers have stored when they have ended: pages in memory and on disk.

use std::sync::Arc;

use weft_codec::Sketch;
use weft_rt::memory::Reservation;

use super::layout::Layout;
use super::page::Page;
use crate::spill::writer::SpilledPage;

/// A page, and the partition that its tuples are of.
#[derive(Debug)]
pub struct StoredPage {
    /// `None` if it was filled before there were partitions.
    pub partition: Option<usize>,
    /// The worker that has written them, whose caches may have them, if one has.
    pub writer: Option<usize>,
    /// The tuples.
    pub page: Page,
}

/// What one or several workers have stored.
#[derive(Debug)]
pub struct Materialized {
    /// How tuples lie.
    pub layout: Arc<Layout>,
    /// Those without a partition first, then those of each partition one after the other.
    pub pages: Vec<StoredPage>,
    /// What lies on disk, in the order in which it was written.
    pub spilled: Vec<SpilledPage>,
    /// The hashes that were seen, if they were counted.
    pub sketch: Option<Sketch>,
    /// The memory of the pages.
    pub reservation: Reservation,
}

impl Materialized {
    /// Number of tuples.
    pub fn tuples(&self) -> usize {
        let spilled: usize = self.spilled.iter().map(|page| page.tuples).sum();
        self.pages.iter().map(|stored| stored.page.tuples()).sum::<usize>() + spilled
    }

    /// True if some of the pages are of a partition.
    pub fn is_partitioned(&self) -> bool {
        self.pages.last().is_some_and(|stored| stored.partition.is_some())
    }

    /// Puts together what several workers have stored; `None` if there was nobody.
    pub fn gather(parts: impl IntoIterator<Item = Materialized>) -> Option<Materialized> {
        let mut whole = parts.into_iter().reduce(|mut whole, part| {
            debug_assert_eq!(whole.layout, part.layout);
            whole.pages.extend(part.pages);
            whole.spilled.extend(part.spilled);
            whole.reservation.merge(part.reservation);
            if let (Some(sketch), Some(other)) = (&mut whole.sketch, &part.sketch) {
                sketch.merge(other);
            }
            whole
        })?;
        whole.pages.sort_by_key(|stored| stored.partition);
        Some(whole)
    }
}
