//! Runs: sorted tuples on disk, page after page.

use std::collections::VecDeque;
use std::sync::Arc;

use weft_rt::memory::{Ledger, Reservation};

use super::digit::Digit;
use super::entries::{Entry, PIECE, entries_of};
use super::groups::{cut_between_groups, sort_groups};
use super::order::Order;
use super::radix::sort_by_bits;
use crate::error::Result;
use crate::pace::Pace;
use crate::spill::frozen::{FROZEN_BYTES_MAX, Freezing, GRAIN_BYTES, page_bytes_within};
use crate::spill::writer::{SpilledPage, Spills, Writer};
use crate::tuple::pack::{Form, long_bytes};
use crate::tuple::{Layout, Page};
use crate::vector::VECTOR_ROWS_MAX;

/// Of the budget, the part that a page of a run takes at most, so that there is memory for pages of many runs.
const PAGE_PART: u64 = 256;

/// What is sorted into a run at once, at most: more is more runs, of which not all need be written.
pub(super) const RUN_BYTES_MAX: usize = 128 << 20;
pub(super) const RUN_TUPLES_MAX: usize = 1 << 20;

/// Bytes that are needed for each tuple of a page in memory, beside the page: its entry, and room to merge it.
const BYTES_PER_TUPLE: usize = 2 * size_of::<Entry>();

/// A page of a run.
#[derive(Debug)]
pub(super) struct RunPage {
    pub(super) page: SpilledPage,
    /// The bits of its first tuple.
    pub(super) first: u64,
}

impl RunPage {
    /// Bytes that it takes in memory, with what is needed beside it.
    pub(super) fn memory_bytes(&self) -> u64 {
        (self.page.bytes() + self.page.tuples * BYTES_PER_TUPLE) as u64
    }
}

/// Sorted tuples.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) pages: VecDeque<RunPage>,
}

impl Run {
    /// Bytes that it takes on disk.
    pub(super) fn bytes(&self) -> usize {
        self.pages.iter().map(|page| page.page.bytes()).sum()
    }

    /// What the largest of its pages takes in memory.
    pub(super) fn page_memory_bytes(&self) -> u64 {
        self.pages.iter().map(RunPage::memory_bytes).max().unwrap_or(0)
    }
}

/// Writes runs, on one worker.
#[derive(Debug)]
pub(super) struct RunWriter {
    order: Arc<Order>,
    writer: Writer,
    page_bytes_max: usize,
    page: Option<(Freezing, Reservation)>,
    /// Of each page that was sent, the bits of the first tuple; last that of the page that is being filled.
    firsts: Vec<u64>,
    /// Runs that have ended.
    runs: usize,
}

impl RunWriter {
    pub(super) fn new(operator: &'static str, spills: Spills, order: Arc<Order>) -> RunWriter {
        let page_bytes_max = page_bytes_max(&spills.ledger);
        let writer = Writer::new(operator, spills);
        RunWriter { order, writer, page_bytes_max, page: None, firsts: Vec::new(), runs: 0 }
    }

    /// As [`Writer::lacks_bytes`].
    pub(super) fn lacks_bytes(&self) -> u64 {
        self.writer.lacks_bytes()
    }

    /// As [`Writer::lend`].
    pub(super) fn lend(&mut self, memory: Reservation) {
        self.writer.lend(memory);
    }

    /// As [`Writer::keep_spare`].
    pub(super) fn keep_spare(&mut self) {
        self.writer.keep_spare();
    }

    /// Appends a tuple to the run; returns the bytes that it takes. `left_bytes` is what it and those behind it take at most.
    ///
    /// # Errors
    /// What went wrong with writing; [`ExecError::Memory`](crate::ExecError::Memory)
    ///
    /// # Safety
    /// The entry is of a tuple of the order's layout that is alive, and comes behind those of the run.
    async unsafe fn add(
        &mut self,
        entry: Entry,
        layout: &Layout,
        left_bytes: usize,
    ) -> Result<usize> {
        let tuple = entry.tuple as *const u8;
        // SAFETY: as the caller promises.
        let tuple_bytes = layout.bytes() + unsafe { long_bytes(layout, tuple) };
        loop {
            let page = self.page.as_mut();
            // SAFETY: as the caller promises.
            if page.is_some_and(|(page, _)| unsafe { page.add(layout, tuple, Form::Live) }) {
                return Ok(tuple_bytes);
            }
            self.send();
            let bytes = page_bytes_within(self.page_bytes_max, tuple_bytes, left_bytes);
            let memory = self.writer.memory(bytes).await?;
            self.page = Some((Freezing::new(bytes, bytes, layout), memory));
            self.firsts.push(entry.bits);
        }
    }

    /// Appends tuples to the run, of which all that come take `left_bytes` at most.
    ///
    /// # Errors
    /// As of one.
    ///
    /// # Safety
    /// As of one.
    pub(super) async unsafe fn add_all(
        &mut self,
        entries: &[Entry],
        left_bytes: &mut usize,
        pace: &mut Pace,
    ) -> Result<()> {
        let layout = self.order.layout().clone();
        for piece in entries.chunks(VECTOR_ROWS_MAX) {
            for entry in piece {
                // SAFETY: as the caller promises.
                let bytes = unsafe { self.add(*entry, &layout, *left_bytes).await? };
                *left_bytes = left_bytes.saturating_sub(bytes);
            }
            pace.keep().await;
        }
        Ok(())
    }

    /// What comes next is another run.
    pub(super) fn end_run(&mut self) {
        self.send();
        self.runs += 1;
    }

    fn send(&mut self) {
        if let Some((page, memory)) = self.page.take() {
            self.writer.write(self.runs, page, memory);
        }
    }

    /// Makes runs of the tuples of pages, which are sorted some pages at a time.
    ///
    /// # Errors
    /// As of one.
    ///
    /// # Safety
    /// As of one.
    pub(super) async unsafe fn sort_all(
        &mut self,
        mut pages: Vec<Page>,
        most: usize,
    ) -> Result<()> {
        while !pages.is_empty() {
            let (mut bytes, mut tuples) = (0, 0);
            let fits = |page: &&Page| {
                bytes += page.bytes();
                tuples += page.tuples();
                bytes <= RUN_BYTES_MAX && tuples <= RUN_TUPLES_MAX
            };
            let count = pages.iter().take_while(fits).count().max(1);
            // SAFETY: as the caller promises.
            unsafe { self.sort(&pages[..count], most).await? };
            Pace::default().drop_all(pages.drain(..count).collect()).await;
        }
        Ok(())
    }

    /// Sorts the tuples of pages, and writes the first `most` of them as a run.
    ///
    /// # Errors
    /// What went wrong with writing; [`ExecError::Memory`](crate::ExecError::Memory)
    ///
    /// # Safety
    /// The tuples have the order's layout, and their bits where hashes are.
    pub(super) async unsafe fn sort(&mut self, pages: &[Page], most: usize) -> Result<()> {
        let mut pace = Pace::default();
        let order = self.order.clone();
        let mut left_bytes: usize = pages.iter().map(Page::used_bytes).sum();
        let mut entries = entries_of(pages.iter()).await;
        sort_by_bits(&mut entries, &mut pace).await;
        let digit = Digit::of_headers(&order);
        let mut left = most;
        for part in cut_between_groups(&entries, PIECE, &mut pace).await {
            let part = &mut entries[part];
            let count = part.len().min(left);
            // SAFETY: the tuples lie on the pages.
            unsafe {
                if !order.is_exact() {
                    sort_groups(part, &digit, &order, &mut pace).await;
                }
                self.add_all(&part[..count], &mut left_bytes, &mut pace).await?;
            }
            left -= count;
            if left == 0 {
                break;
            }
        }
        self.end_run();
        Ok(())
    }

    /// True if a run has ended.
    pub(super) fn has_runs(&self) -> bool {
        self.runs > 0
    }

    /// Waits until all is written.
    ///
    /// # Errors
    /// What went wrong with writing.
    pub(super) async fn settle(&mut self) -> Result<()> {
        debug_assert!(self.page.is_none(), "the last run has ended");
        self.writer.settle().await
    }

    /// The runs.
    ///
    /// # Panics
    /// If writes have not ended ([`RunWriter::settle`]).
    pub(super) fn finish(self) -> Vec<Run> {
        let mut runs: Vec<Run> = (0..self.runs).map(|_| Run { pages: VecDeque::new() }).collect();
        for (page, first) in self.writer.finish().into_iter().zip(self.firsts) {
            runs[page.partition].pages.push_back(RunPage { page, first });
        }
        runs.retain(|run| !run.pages.is_empty());
        runs
    }
}

/// Bytes of the pages of runs, but for tuples that need larger ones.
fn page_bytes_max(ledger: &Ledger) -> usize {
    let bytes = (ledger.limit() / PAGE_PART).clamp(GRAIN_BYTES as u64, FROZEN_BYTES_MAX as u64);
    1 << bytes.ilog2()
}
