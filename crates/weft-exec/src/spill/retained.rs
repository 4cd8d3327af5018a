//! Pages for the disk that stay in memory, where tuples take less on them than elsewhere, until their memory is needed. The last one
//! of each partition has room for more tuples.

use std::collections::VecDeque;

use weft_rt::io::IoBuf;
use weft_rt::memory::Reservation;

use super::frozen::{Freezing, Full};
use super::writer::{Location, SpilledPage};

/// Those of a writer.
#[derive(Debug, Default)]
pub(super) struct Retained {
    /// Full ones, the oldest first.
    full: VecDeque<SpilledPage>,
    /// The last one of each partition, and its memory.
    open: Vec<Option<(Freezing, Reservation)>>,
    /// Bytes of the memory of all of them.
    bytes: u64,
}

impl Retained {
    /// Bytes of their memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that they take when they are read.
    pub(super) fn thawed_bytes(&self) -> u64 {
        let full = self.full.iter().map(|page| page.bytes() as u64);
        let open = self.open.iter().flatten().map(|(page, _)| page.tuples_bytes() as u64);
        full.chain(open).sum()
    }

    /// Adds a full page of a partition.
    pub(super) fn add(&mut self, partition: usize, page: Freezing, mut memory: Reservation) {
        let Full { buffer, tuples, thawing } = page.finish();
        let buffer = without_surplus(buffer, &mut memory);
        self.bytes += memory.bytes();
        let location = Location::InMemory(buffer, memory);
        self.full.push_back(SpilledPage { partition, tuples, location, thawing });
    }

    /// Adds the last page of a partition, of which there is none ([`Retained::take_open`]).
    pub(super) fn leave_open(&mut self, partition: usize, page: Freezing, memory: Reservation) {
        if self.open.len() <= partition {
            self.open.resize_with(partition + 1, || None);
        }
        debug_assert!(self.open[partition].is_none(), "one page of partition {partition}");
        self.bytes += memory.bytes();
        self.open[partition] = Some((page, memory));
    }

    /// Takes the last page of a partition, for more tuples.
    pub(super) fn take_open(&mut self, partition: usize) -> Option<(Freezing, Reservation)> {
        let open = self.open.get_mut(partition)?.take()?;
        self.bytes -= open.1.bytes();
        Some(open)
    }

    /// Takes the oldest page, which has room for more tuples only if all have.
    pub(super) fn take_first(&mut self) -> Option<SpilledPage> {
        if self.full.is_empty() {
            self.close();
        }
        let page = self.full.pop_front()?;
        self.bytes -= page.retained_bytes();
        Some(page)
    }

    /// All pages, in their order.
    pub(super) fn into_pages(mut self) -> impl Iterator<Item = SpilledPage> {
        self.close();
        self.full.into_iter()
    }

    /// No page has room for more tuples.
    fn close(&mut self) {
        for (partition, open) in std::mem::take(&mut self.open).into_iter().enumerate() {
            if let Some((page, memory)) = open {
                self.bytes -= memory.bytes();
                self.add(partition, page, memory);
            }
        }
    }
}

/// The same bytes in a buffer that takes no more memory than they need, whose reservation gives the rest back.
fn without_surplus(buffer: IoBuf, memory: &mut Reservation) -> IoBuf {
    let surplus_bytes = memory.bytes().saturating_sub(IoBuf::memory_bytes(buffer.len()) as u64);
    if surplus_bytes == 0 {
        return buffer;
    }
    let mut smaller = IoBuf::to_be_filled(buffer.len());
    smaller.copy_from_slice(&buffer);
    memory.shrink(surplus_bytes);
    smaller
}
