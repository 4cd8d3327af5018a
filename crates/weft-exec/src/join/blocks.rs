//! The build side of a unit comes back: as a whole if there is memory for it, else block by block.

use std::collections::VecDeque;

use weft_rt::memory::{MemoryError, Reservation};

use super::aside::Aside;
use super::chains::Chains;
use super::directory::{Directory, Link};
use super::spilled::{NumberedPage, number_of, number_tuples};
use super::unit::{OnDisk, Side};
use super::{BUILD, Join, Table};
use crate::error::{ExecError, Result};
use crate::pace::Pace;
use crate::spill::Assured;
use crate::spill::any_page::AnyPage;
use crate::spill::frozen::GRAIN_BYTES;
use crate::spill::reader::Reader;
use crate::tuple::Page;
use crate::tuple::budget::{grow_in_turns, patiently};

/// What of a unit's build side has not been in memory yet.
#[derive(Debug)]
pub(super) struct Blocks {
    skipped_bits: u32,
    /// Those in memory, and their memory: a part of the first block.
    stored: Vec<Page>,
    stored_memory: Reservation,
    /// Those on disk, and what they have.
    spilled: VecDeque<NumberedPage>,
    on_disk: Size,
    /// For what is read.
    pub(super) memory: Reservation,
    /// Of which so much is what the worker is assured of.
    assured_bytes: u64,
}

/// Tuples of a build side in memory.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) table: Table,
    /// The numbers that the tuples have in their partitions, if marks are kept.
    numbers: Vec<u64>,
}

/// What a block takes.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    tuples: usize,
    page_bytes: u64,
}

impl Size {
    fn add(self, page: &NumberedPage) -> Size {
        let page_bytes = self.page_bytes + page.bytes();
        Size { tuples: self.tuples + page.page.tuples, page_bytes }
    }

    /// Of pages on disk.
    fn of(OnDisk { tuples, bytes, .. }: OnDisk) -> Size {
        Size { tuples, page_bytes: bytes }
    }

    /// Of the directory, and of numbers if marks are kept.
    fn other_bytes(self, keeps_marks: bool) -> u64 {
        let numbers = if keeps_marks { self.tuples * size_of::<u64>() } else { 0 };
        (Directory::bytes(Directory::entries_for(self.tuples)) + numbers) as u64
    }

    fn bytes(self, keeps_marks: bool) -> u64 {
        self.page_bytes + self.other_bytes(keeps_marks)
    }
}

impl Blocks {
    /// Those of a unit whose tuples have the first `skipped_bits` of their hashes in common. There is `memory` for some of
    /// it.
    pub(super) fn new(side: Side, skipped_bits: u32, memory: Reservation) -> Blocks {
        let Side { pages: stored, spilled, on_disk, reservation: stored_memory, .. } = side;
        let (spilled, on_disk) = (spilled.into(), Size::of(on_disk));
        Blocks { skipped_bits, stored, stored_memory, spilled, on_disk, memory, assured_bytes: 0 }
    }

    /// True if all of it has been in memory.
    pub(super) fn are_done(&self) -> bool {
        self.stored.is_empty() && self.spilled.is_empty()
    }

    /// Bytes that it takes in memory as a whole.
    pub(super) fn bytes(&self, keeps_marks: bool) -> u64 {
        self.size(self.spilled.len()).bytes(keeps_marks) + self.stored_memory.bytes()
    }

    /// Bytes that those of a side would take in memory as a whole, beyond what it has there.
    pub(super) fn bytes_of(side: &Side, keeps_marks: bool) -> u64 {
        let size = Size::of(side.on_disk);
        let stored = side.pages.iter().map(Page::tuples).sum::<usize>();
        Size { tuples: size.tuples + stored, ..size }.bytes(keeps_marks)
    }

    /// The size of a block with so many pages from disk.
    fn size(&self, pages: usize) -> Size {
        let stored = self.stored.iter().map(Page::tuples).sum::<usize>();
        let size = match pages == self.spilled.len() {
            true => self.on_disk,
            false => self.spilled.iter().take(pages).fold(Size::default(), Size::add),
        };
        Size { tuples: size.tuples + stored, ..size }
    }

    /// Takes memory for all of it, if it is free.
    pub(super) async fn try_reserve(&mut self, keeps_marks: bool) -> bool {
        let bytes = self.size(self.spilled.len()).bytes(keeps_marks);
        let missing = bytes.saturating_sub(self.memory.bytes());
        grow_in_turns(&mut self.memory, missing).await
    }

    /// The same of what the worker is assured of.
    pub(super) fn try_reserve_assured(&mut self, keeps_marks: bool, assured: &Assured) -> bool {
        let bytes = self.size(self.spilled.len()).bytes(keeps_marks);
        self.grow_assured(bytes.saturating_sub(self.memory.bytes()), assured)
    }

    /// Takes `bytes` of what the worker is assured of, if it has not taken them yet.
    fn grow_assured(&mut self, bytes: u64, assured: &Assured) -> bool {
        let is_left = self.assured_bytes + bytes <= assured.bytes();
        let memory = is_left.then(|| assured.try_reserve(bytes)).flatten();
        self.assured_bytes += if memory.is_some() { bytes } else { 0 };
        memory.map(|memory| self.memory.merge(memory)).is_some()
    }

    /// Takes memory that is free, as much as a block needs that takes up to `bytes_max`, or a half of it, and so on; gives how
    /// many bytes a block may take then.
    pub(super) fn reserve_some(&mut self, keeps_marks: bool, bytes_max: u64) -> u64 {
        let wanted = self.size(self.spilled.len()).bytes(keeps_marks).min(bytes_max);
        let mut missing = wanted.saturating_sub(self.memory.bytes());
        while missing >= GRAIN_BYTES as u64 && !self.memory.try_grow(missing) {
            missing /= 2;
        }
        self.memory.bytes()
    }

    /// All of it again, and the memory for it, if there has been no block yet.
    pub(super) fn give_back(self) -> (Side, Reservation) {
        (Side::of(self.stored, self.spilled.into(), self.stored_memory), self.memory)
    }

    /// The next block, which takes up to `bytes_max` if a page and its directory do not need more.
    ///
    /// # Errors
    /// Those of reading; [`ExecError::Memory`]
    pub(super) async fn next(&mut self, aside: &Aside, bytes_max: u64) -> Result<Block> {
        let keeps_marks = aside.keeps_marks();
        let mut pages = self.spilled.len();
        let mut size = self.size(pages);
        while pages > 1 && size.bytes(keeps_marks) > bytes_max.max(self.memory.bytes()) {
            // Pages are of about one size.
            let part = bytes_max as u128 * pages as u128 / u128::from(size.bytes(keeps_marks));
            pages = (part as usize).clamp(1, pages - 1);
            size = self.size(pages);
        }
        loop {
            let missing = size.bytes(keeps_marks).saturating_sub(self.memory.bytes());
            if self.memory.try_grow(missing) || self.grow_assured(missing, &aside.assured) {
                break;
            }
            if pages <= 1 {
                let ledger = self.memory.ledger().clone();
                let granted = ledger.reserve_or_spill(missing);
                self.memory.merge(patiently(BUILD, &ledger, missing, granted).await?);
                break;
            }
            pages /= 2;
            size = self.size(pages);
        }
        log::debug!(
            "a block of {pages} pages, {} of which are left, takes {} bytes, and may take {bytes_max}",
            self.spilled.len(),
            size.bytes(keeps_marks)
        );
        let mut memory = self.memory.split(size.bytes(keeps_marks));
        let mut own = memory.split(size.other_bytes(keeps_marks));
        own.merge(self.stored_memory.split(self.stored_memory.bytes()));
        let pages = self.read(aside, pages, memory).await?;
        let mut numbers = Vec::new();
        if keeps_marks {
            let all = pages.iter().flat_map(|page| (0..page.tuples()).map(|at| page.tuple(at)));
            // SAFETY: they were numbered when they were first read.
            numbers.extend(all.map(|tuple| unsafe { number_of(tuple) }));
        }
        let entries = Directory::entries_for(size.tuples);
        let table = chained(&aside.probe.join, pages, entries, self.skipped_bits, own).await?;
        Ok(Block { table, numbers })
    }

    /// The pages of a block.
    async fn read(
        &mut self,
        aside: &Aside,
        count: usize,
        memory: Reservation,
    ) -> Result<Vec<AnyPage>> {
        let mut pages: Vec<AnyPage> = self.stored.drain(..).map(AnyPage::Stored).collect();
        let spilled: Vec<NumberedPage> = self.spilled.drain(..count).collect();
        let gone = spilled.iter().fold(Size::default(), Size::add);
        self.on_disk.tuples -= gone.tuples;
        self.on_disk.page_bytes -= gone.page_bytes;
        let firsts: Vec<Option<u64>> = spilled.iter().map(|page| page.first).collect();
        let spilled = spilled.into_iter().map(|page| page.page).collect();
        let mut reader = Reader::new(BUILD, aside.spilled.spills.clone(), spilled, memory);
        let mut pace = Pace::default();
        for first in firsts {
            let Some(page) = reader.next().await? else { break };
            let page = AnyPage::Read(page);
            if let Some(first) = first.filter(|_| aside.keeps_marks()) {
                // SAFETY: the page was just read.
                unsafe { number_tuples(&page, first) };
            }
            pages.push(page);
            pace.keep().await;
        }
        Ok(pages)
    }
}

/// Puts all tuples of these pages, which are the caller's own, into the chains of a directory with so many `entries`, for
/// which there is memory. They have the first `skipped_bits` of their hashes in common.
///
/// # Errors
/// [`ExecError::Memory`] if the system has none.
pub(super) async fn chained(
    join: &Join,
    pages: Vec<AnyPage>,
    entries: usize,
    skipped_bits: u32,
    reservation: Reservation,
) -> Result<Table> {
    let directory = Directory::new(entries, skipped_bits).map_err(|_| {
        let requested_bytes = Directory::bytes(entries) as u64;
        let limit_bytes = reservation.ledger().limit();
        let source = MemoryError::TooLarge { requested_bytes, limit_bytes };
        ExecError::Memory { operator: BUILD.into(), source }
    })?;
    let chains = Chains::new(join, directory);
    let mut pace = Pace::default();
    for page in 0..chains.words().huge_pages() {
        chains.words().touch(page);
        pace.keep().await;
    }
    for page in &pages {
        // SAFETY: the pages are this worker's own.
        unsafe { chains.add::<true>(page.tuples(), |number| page.tuple(number)) };
        pace.keep().await;
    }
    let (directory, unknown) = chains.finish();
    let whole = join.table().whole;
    Ok(Table { directory, pages, unknown, whole, reservation, _settled: None })
}

impl Block {
    /// Notes which of the tuples have matched; gives the memory that the block has taken.
    pub(super) async fn finish(self, aside: &Aside) -> Reservation {
        let mut numbers = self.numbers.iter();
        let mut pace = Pace::default();
        for page in &self.table.pages {
            for (at, number) in (0..page.tuples()).zip(&mut numbers) {
                // SAFETY: a tuple of a table that is finished.
                if unsafe { Link::after(page.tuple(at) as u64) }.is_marked() {
                    aside.spilled.mark(aside.spilled.partition_of(page.hash(at)), *number);
                }
            }
            pace.keep().await;
        }
        let Table { pages, directory, mut reservation, .. } = self.table;
        drop(directory);
        for page in pages {
            if let AnyPage::Read(page) = page {
                reservation.merge(page.into_memory());
            }
            pace.keep().await;
        }
        reservation
    }
}
