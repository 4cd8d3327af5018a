//! The rows that a window goes through: all of a sort, or those that a merge gives, one part after the other.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use weft_rt::memory::{Ledger, Reservation};

use super::source::OPERATOR;
use crate::error::Result;
use crate::pace::Pace;
use crate::sort::Sorted;
use crate::sort::entries::Entry;
use crate::sort::external::MergedRows;
use crate::sort::rows::Rows;
use crate::spill::frozen::Frozen;
use crate::tuple::budget::{Budget, reserved};
use crate::tuple::pack::{Form, long_bytes, pack};
use crate::tuple::{Layout, Page};

/// Rows that are copied between two looks at the clock.
const COPIED_AT_ONCE: usize = 256;

/// Sorted rows. Clones are the same rows.
#[derive(Clone, Debug)]
pub(super) enum SortedRows {
    All(Arc<OnceLock<Sorted>>),
    Some(Arc<Chunk>),
}

impl SortedRows {
    /// In their order.
    pub(super) fn entries(&self) -> &[Entry] {
        match self {
            SortedRows::All(sorted) => sorted.get().and_then(Sorted::entries).unwrap_or_default(),
            SortedRows::Some(chunk) => &chunk.entries,
        }
    }

    /// How many there are.
    pub(super) fn tuples(&self) -> u64 {
        match self {
            SortedRows::All(sorted) => sorted.get().map_or(0, Sorted::tuples),
            SortedRows::Some(chunk) => chunk.entries.len() as u64,
        }
    }

    /// The sort, if its rows are still to be merged.
    pub(super) fn on_disk(&self) -> Option<&Sorted> {
        match self {
            SortedRows::All(sorted) => sorted.get().filter(|sorted| sorted.entries().is_none()),
            SortedRows::Some(_) => None,
        }
    }
}

/// Some rows, and what their tuples lie in.
#[derive(Debug)]
pub(super) struct Chunk {
    entries: Vec<Entry>,
    _segments: Vec<Segment>,
    _pages: Vec<Frozen>,
    _copies: Option<Page>,
    /// For what is only its own, if it was not reserved elsewhere.
    memory: Option<Reservation>,
}

impl Chunk {
    /// The tuples of pages that were read.
    pub(super) fn of_pages(pages: Vec<Frozen>) -> Chunk {
        let tuples = pages.iter().flat_map(|page| (0..page.tuples()).map(|at| page.tuple(at)));
        // SAFETY: the pages have them.
        let entries = tuples.map(|tuple| unsafe { Entry::of(tuple) }).collect();
        Chunk { entries, _segments: Vec::new(), _pages: pages, _copies: None, memory: None }
    }

    /// Copies of the rows, which have this layout, on a page of so many bytes.
    ///
    /// # Safety
    /// They have it, and so many bytes are enough.
    pub(super) async unsafe fn copy(
        &self,
        layout: &Layout,
        bytes: usize,
        pace: &mut Pace,
    ) -> Chunk {
        let mut page = Page::new(bytes, layout.bytes());
        let mut entries = Vec::with_capacity(self.entries.len());
        for some in self.entries.chunks(COPIED_AT_ONCE) {
            for entry in some {
                let tuple = entry.tuple as *const u8;
                // SAFETY: as the caller promises; the slot has room for the tuple.
                unsafe {
                    let slot = page.slot(long_bytes(layout, tuple)).expect("a page for all rows");
                    pack(layout, tuple, Form::Live, slot);
                    entries.push(Entry { tuple: slot.tuple as u64, ..*entry });
                }
            }
            pace.keep().await;
        }
        let (segments, pages, copies) = (Vec::new(), Vec::new(), Some(page));
        Chunk { entries, _segments: segments, _pages: pages, _copies: copies, memory: None }
    }

    /// Has memory for as long as the rows are there.
    pub(super) fn adopt(&mut self, memory: Reservation) {
        self.memory = Some(memory);
    }

    /// The rows behind the first `count` are forgotten.
    pub(super) fn truncate(&mut self, count: usize) {
        self.entries.truncate(count);
    }

    /// The rows in their order.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

/// Rows that a merge has given at once, the part of them that counts, and the bytes that all of them take.
#[derive(Clone, Debug)]
struct Segment {
    rows: Arc<Rows>,
    range: Range<usize>,
    bytes: u64,
}

impl Segment {
    fn entries(&self) -> &[Entry] {
        &self.rows.entries()[self.range.clone()]
    }

    /// Bytes of a part of the rows, about.
    fn bytes_of(&self, rows: usize) -> u64 {
        self.bytes * rows as u64 / self.rows.entries().len().max(1) as u64
    }
}

/// A row that is kept for longer than the pages on which it came.
#[derive(Debug)]
pub(super) struct Copied {
    entry: Entry,
    _page: Page,
    _memory: Reservation,
}

impl Copied {
    /// A copy of a row of this layout.
    ///
    /// # Errors
    /// [`ExecError::Memory`](crate::ExecError::Memory)
    ///
    /// # Safety
    /// There is one at the entry's address, and the layout is its own.
    pub(super) async unsafe fn new(
        entry: Entry,
        layout: &Layout,
        ledger: &Ledger,
    ) -> Result<Copied> {
        let tuple = entry.tuple as *const u8;
        // SAFETY: as the caller promises.
        let long_bytes = unsafe { long_bytes(layout, tuple) };
        let bytes = layout.bytes() + long_bytes;
        let memory = reserved(OPERATOR, ledger, bytes as u64).await?;
        let mut page = Page::new(bytes, layout.bytes());
        let slot = page.slot(long_bytes).expect("a page for the row");
        // SAFETY: as the caller promises; the slot has room for the tuple.
        unsafe { pack(layout, tuple, Form::Live, slot) };
        let entry = Entry { tuple: page.tuple(0) as u64, ..entry };
        Ok(Copied { entry, _page: page, _memory: memory })
    }

    /// The copy.
    pub(super) fn entry(&self) -> Entry {
        self.entry
    }
}

/// The rows of a merge, some of which are at hand.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) ledger: Ledger,
    merged: MergedRows,
    /// The merge has no more.
    is_last: bool,
    /// Rows for which there is no memory yet.
    waiting: Option<Rows>,
    at_hand: VecDeque<Segment>,
    rows: usize,
    bytes: u64,
}

impl Input {
    pub(super) fn new(merged: MergedRows, ledger: &Ledger) -> Input {
        let (ledger, at_hand) = (ledger.clone(), VecDeque::new());
        Input { ledger, merged, is_last: false, waiting: None, at_hand, rows: 0, bytes: 0 }
    }

    /// How many rows are at hand.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of memory that they take, about.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if there are no others behind them.
    pub(super) fn is_last(&self) -> bool {
        self.is_last
    }

    /// Gathers until so many rows are at hand, or so many bytes of them.
    ///
    /// # Errors
    /// Those of the merge; [`ExecError::Memory`](crate::ExecError::Memory)
    pub(super) async fn gather(&mut self, rows: usize, bytes: u64) -> Result<()> {
        while let Some(missing_bytes) = self.gather_for_free(rows, bytes).await? {
            let mut budget = Budget::new(OPERATOR, &self.ledger);
            budget.reserve(missing_bytes).await?;
            self.adopt(budget.finish());
        }
        Ok(())
    }

    /// The same as long as memory is free; else the bytes that the next rows need ([`Input::adopt`]).
    ///
    /// # Errors
    /// Those of the merge.
    pub(super) async fn gather_for_free(&mut self, rows: usize, bytes: u64) -> Result<Option<u64>> {
        while !self.is_last && self.rows < rows && (self.rows == 0 || self.bytes < bytes) {
            if self.waiting.is_none() {
                self.waiting = self.merged.next().await?;
            }
            let Some(waiting) = &self.waiting else {
                self.is_last = true;
                break;
            };
            let missing_bytes = waiting.bytes_to_adopt();
            let mut memory = self.ledger.empty();
            if missing_bytes > 0 && !memory.try_grow(missing_bytes) {
                return Ok(Some(missing_bytes));
            }
            self.adopt(memory);
        }
        Ok(None)
    }

    /// The rows for which there was no memory are at hand, with this.
    pub(super) fn adopt(&mut self, memory: Reservation) {
        let rows = self.waiting.take().expect("rows have waited for it");
        let (range, bytes) = (0..rows.entries().len(), memory.bytes());
        rows.adopt(memory);
        self.rows += range.len();
        self.bytes += bytes;
        self.at_hand.push_back(Segment { rows: Arc::new(rows), range, bytes });
    }

    /// The first row at hand.
    pub(super) fn first(&self) -> Option<Entry> {
        self.at_hand.front().and_then(|segment| segment.entries().first().copied())
    }

    /// The first `count` rows at hand, which stay there, and the bytes that they take, about.
    pub(super) async fn chunk(&self, count: usize, pace: &mut Pace) -> (Chunk, u64) {
        let (mut entries, mut segments, mut bytes) = (Vec::with_capacity(count), Vec::new(), 0);
        for segment in &self.at_hand {
            let left = count - entries.len();
            if left == 0 {
                break;
            }
            let some = segment.entries();
            let taken = left.min(some.len());
            entries.extend_from_slice(&some[..taken]);
            bytes += segment.bytes_of(taken);
            segments.push(segment.clone());
            pace.keep().await;
        }
        let pages = Vec::new();
        let chunk =
            Chunk { entries, _segments: segments, _pages: pages, _copies: None, memory: None };
        (chunk, bytes)
    }

    /// Forgets the first `count` rows.
    pub(super) fn forget(&mut self, count: usize) {
        self.rows -= count;
        let mut left = count;
        while left > 0 {
            let segment = self.at_hand.front_mut().expect("there are so many rows");
            let gone = left.min(segment.range.len());
            let before_bytes = segment.bytes_of(segment.range.len());
            segment.range.start += gone;
            left -= gone;
            let after_bytes = segment.bytes_of(segment.range.len());
            self.bytes = self.bytes.saturating_sub(before_bytes - after_bytes);
            if segment.range.is_empty() {
                self.at_hand.pop_front();
            }
        }
    }
}
