//! Storing without waiting: an operator that can do something about a lack of memory is told how far its tuples have come,
//! and decides itself.

use weft_rt::memory::Reservation;

use super::layout::Layout;
use super::materializer::{Materializer, PAGE_BYTES_MAX, PAGE_BYTES_MIN, PARTITIONS};
use super::page::Page;
use crate::program::Register;
use crate::registers::Registers;
use crate::spill::writer::Spills;
use crate::spill::{Share, WITHOUT_BYTES};

/// Of what there may be, the part that one page takes at most.
const PAGE_PART: u64 = 16;

/// What an operator may have in memory.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// Nothing if it is all that is free.
    pub(crate) sharing: Option<Sharing>,
    /// Bytes that the operator needs for each tuple beside it. They are taken for as many tuples as a page may get.
    pub(crate) bytes_per_tuple: usize,
    /// Bytes that it has beside the materializer.
    pub(crate) held_bytes: u64,
}

/// What an operator that spills may have: a little, and its share once it is its statement's turn.
#[derive(Debug)]
pub(crate) struct Sharing {
    share: Share,
    spills: Spills,
    has_turn: bool,
}

impl Sharing {
    pub(crate) fn new(spills: &Spills) -> Sharing {
        let share = Share::of_little(&spills.spilling, &spills.ledger);
        Sharing { share, spills: spills.clone(), has_turn: false }
    }

    pub(crate) fn has_turn(&self) -> bool {
        self.has_turn
    }

    /// Waits for the statement's turn.
    pub(crate) async fn turn(&mut self) {
        self.spills.turn().await;
        self.has_turn = true;
    }

    /// True if there may be so many bytes now.
    fn allows(&mut self, bytes: u64) -> bool {
        let is_little = bytes <= WITHOUT_BYTES;
        self.has_turn = self.has_turn || !is_little && self.spills.try_turn();
        (self.has_turn || is_little) && self.share.allows(bytes)
    }
}

impl Allowance {
    /// Bytes of the largest pages.
    fn page_bytes_max(&self) -> usize {
        let share_bytes = self.sharing.as_ref().map_or(u64::MAX, |sharing| sharing.share.bytes());
        let most = PARTITIONS * PAGE_BYTES_MIN;
        let bytes = (share_bytes / PAGE_PART).min(most as u64) as usize;
        (1 << bytes.max(1).ilog2()).max(PAGE_BYTES_MIN)
    }

    /// Bytes that a page takes with what is needed beside its tuples.
    pub(crate) fn bytes_of(&self, page_bytes: usize, layout: &Layout) -> u64 {
        (page_bytes + page_bytes / layout.bytes() * self.bytes_per_tuple) as u64
    }
}

impl Materializer {
    /// Stores tuples as [`Materializer::store`] does, of those that are selected the ones from the `done`th on, as long as
    /// there is memory that is free and allowed. Returns how many are done then. Tuples are not partitioned.
    ///
    /// # Errors
    /// [`ExecError::TooLong`](crate::ExecError::TooLong)
    pub(crate) fn store_some(
        &mut self,
        registers: &Registers,
        hash: Register,
        fields: &[Register],
        mut done: usize,
        allowance: &mut Allowance,
    ) -> crate::Result<usize> {
        let rows = registers.selected();
        let hashes = registers.values::<u64>(hash);
        let first = done;
        self.measure_strings(registers, rows, fields)?;
        loop {
            done += self.place(rows, hashes, done);
            let is_done = done == rows.count();
            if is_done || !self.has_room(self.long_bytes[done] as usize, allowance) {
                break;
            }
        }
        if first == 0 && done == rows.count() {
            self.write(registers, rows, hashes, fields, 0, None);
        } else {
            self.write_some(registers, rows, hashes, fields, first..done);
        }
        Ok(done)
    }

    /// Has a new page filled; false if its memory is not free, or not allowed.
    pub(crate) fn has_room(&mut self, long_bytes: usize, allowance: &mut Allowance) -> bool {
        let bytes = self.next_page_bytes(long_bytes, allowance);
        let more = allowance.bytes_of(bytes, self.layout());
        let bytes_then = allowance.held_bytes + self.bytes() + more;
        let is_allowed =
            allowance.sharing.as_mut().is_none_or(|sharing| sharing.allows(bytes_then));
        let is_granted = is_allowed && self.budget.try_reserve(more);
        if is_granted {
            self.replace_page(0, bytes);
        }
        is_granted
    }

    /// Waits for memory, whether it is allowed or not, and has a new page filled.
    ///
    /// # Errors
    /// [`ExecError::Memory`](crate::ExecError::Memory)
    pub(crate) async fn wait_for_room(
        &mut self,
        long_bytes: usize,
        allowance: &Allowance,
    ) -> crate::Result<()> {
        let bytes = self.next_page_bytes(long_bytes, allowance);
        self.budget.reserve(allowance.bytes_of(bytes, self.layout())).await?;
        self.replace_page(0, bytes);
        Ok(())
    }

    /// Bytes of the next page, for a tuple with `long_bytes` at least.
    fn next_page_bytes(&self, long_bytes: usize, allowance: &Allowance) -> usize {
        let tuple_bytes = (self.layout().bytes() + long_bytes).next_multiple_of(PAGE_BYTES_MIN);
        let bytes = self.page_bytes(0, long_bytes);
        bytes.min(allowance.page_bytes_max()).max(tuple_bytes)
    }

    /// The pages of tuples that were not partitioned.
    pub(crate) fn pages(&self) -> impl Iterator<Item = &Page> + Clone {
        self.filling[0].full.iter().chain(&self.filling[0].page)
    }

    /// Number of tuples that were not partitioned.
    pub(crate) fn unpartitioned(&self) -> usize {
        self.pages().map(Page::tuples).sum()
    }

    /// Bytes that a selected row's long strings take; of the last call of [`Materializer::store_some`].
    pub(crate) fn long_bytes_of(&self, number: usize) -> usize {
        self.long_bytes[number] as usize
    }

    /// The first pages of tuples that were not partitioned, of not many more than so many bytes and tuples. Their memory stays
    /// with the materializer until it is released.
    pub(crate) fn take_pages(&mut self, most_bytes: usize, most_tuples: usize) -> Vec<Page> {
        let filling = &mut self.filling[0];
        filling.full.extend(filling.page.take());
        let (mut bytes, mut tuples) = (0, 0);
        let fits = |page: &&Page| {
            let is_first = bytes == 0;
            bytes += page.bytes();
            tuples += page.tuples();
            is_first || bytes <= most_bytes && tuples <= most_tuples
        };
        let count = filling.full.iter().take_while(fits).count();
        filling.full.drain(..count).collect()
    }

    /// Lends some of its memory, `bytes` at most, which others will use before its pages are gone.
    pub(crate) fn lend(&mut self, bytes: u64) -> Reservation {
        self.budget.lend(bytes)
    }

    /// Has an empty page filled in place of all others, whose memory it has; returns the bytes that are taken then.
    pub(crate) fn restart(&mut self, allowance: &Allowance) -> u64 {
        let bytes = self.next_page_bytes(0, allowance).min(PAGE_BYTES_MAX);
        let bytes = bytes.max(self.layout().bytes().next_multiple_of(PAGE_BYTES_MIN));
        let kept_bytes = allowance.bytes_of(bytes, self.layout());
        if kept_bytes <= self.bytes() {
            self.replace_page(0, bytes);
            kept_bytes
        } else {
            0
        }
    }
}
