//! What workers have stored when they have ended: pages in memory and on disk.

use std::iter::Peekable;
use std::sync::Arc;

use weft_codec::Sketch;
use weft_rt::memory::Reservation;

use super::layout::Layout;
use super::page::Page;
use crate::pace::Pace;
use crate::spill::writer::SpilledPage;

/// Pages after which others may run.
const PAGES_PER_TURN: usize = 64;

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
    /// What was packed for the disk: what is there, in the order in which it was written, and what was retained after that.
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
    pub async fn gather(parts: impl IntoIterator<Item = Materialized>) -> Option<Materialized> {
        let (mut pace, mut pages) = (Pace::default(), Vec::new());
        let mut whole: Option<Materialized> = None;
        for mut part in parts {
            pages.push(std::mem::take(&mut part.pages));
            let Some(whole) = &mut whole else {
                whole = Some(part);
                continue;
            };
            debug_assert_eq!(whole.layout, part.layout);
            whole.spilled.append(&mut part.spilled);
            whole.reservation.merge(part.reservation);
            if let (Some(sketch), Some(other)) = (&mut whole.sketch, &part.sketch) {
                sketch.merge(other);
            }
            pace.keep().await;
        }
        whole.as_mut()?.pages = by_partition(pages, &mut pace).await;
        whole
    }
}

/// Pages of several workers, each of which has them by partition, by partition.
async fn by_partition(pages: Vec<Vec<StoredPage>>, pace: &mut Pace) -> Vec<StoredPage> {
    let mut all = Vec::with_capacity(pages.iter().map(Vec::len).sum());
    let mut parts: Vec<_> = pages.into_iter().map(|part| part.into_iter().peekable()).collect();
    loop {
        let next = parts.iter_mut().filter_map(Peekable::peek).map(|page| page.partition).min();
        let Some(partition) = next else { return all };
        for part in &mut parts {
            while let Some(page) = part.next_if(|page| page.partition == partition) {
                all.push(page);
                if all.len().is_multiple_of(PAGES_PER_TURN) {
                    pace.keep().await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuple::Layout;

    #[test]
    fn pages_are_gathered_by_partition() {
        let layout = Layout::new(&[]);
        let page = |partition, writer| {
            let page = Page::new(64, layout.bytes());
            StoredPage { partition, writer: Some(writer), page }
        };
        let of_writer = |writer: usize, partitions: &[Option<usize>]| -> Vec<StoredPage> {
            partitions.iter().map(|partition| page(*partition, writer)).collect()
        };
        let parts = vec![
            of_writer(0, &[None, Some(1), Some(1), Some(255)]),
            of_writer(1, &[]),
            of_writer(2, &[None, None, Some(0), Some(1)]),
        ];
        let mut pace = Pace::default();
        let all = weft_rt::sync::block_on(by_partition(parts, &mut pace));
        let all: Vec<_> = all.iter().map(|page| (page.partition, page.writer.unwrap())).collect();
        let expected = [
            (None, 0),
            (None, 2),
            (None, 2),
            (Some(0), 2),
            (Some(1), 0),
            (Some(1), 0),
            (Some(1), 2),
            (Some(255), 0),
        ];
        assert_eq!(all, expected);
    }
}
