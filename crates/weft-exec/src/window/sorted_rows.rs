//! The rows that a window goes through: all of a sort, or those that a merge gives, one part after the other.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use weft_rt::memory::{Ledger, Reservation};

use super::source::OPERATOR;
use crate::error::Result;
use crate::sort::Sorted;
use crate::sort::entries::Entry;
use crate::sort::rows::Rows;
use crate::tuple::budget::Budget;
use crate::tuple::pack::{Form, long_bytes, pack};
use crate::tuple::{Layout, Page};

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
    segments: Vec<Segment>,
}

/// Rows that lie together.
#[derive(Clone, Debug)]
enum Segment {
    /// Of those that a merge has given at once.
    Merged(Arc<Rows>, Range<usize>),
    Copied(Arc<Copied>),
}

impl Segment {
    fn entries(&self) -> &[Entry] {
        match self {
            Segment::Merged(rows, range) => &rows.entries()[range.clone()],
            Segment::Copied(copied) => std::slice::from_ref(&copied.entry),
        }
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
    ) -> Result<Arc<Copied>> {
        let tuple = entry.tuple as *const u8;
        // SAFETY: as the caller promises.
        let long_bytes = unsafe { long_bytes(layout, tuple) };
        let bytes = layout.bytes() + long_bytes;
        let mut budget = Budget::new(OPERATOR, ledger);
        budget.reserve(bytes as u64).await?;
        let mut page = Page::new(bytes, layout.bytes());
        let slot = page.slot(long_bytes).expect("a page for the row");
        // SAFETY: as the caller promises; the slot has room for the tuple.
        unsafe { pack(layout, tuple, Form::Live, slot) };
        let entry = Entry { tuple: page.tuple(0) as u64, ..entry };
        Ok(Arc::new(Copied { entry, _page: page, _memory: budget.finish() }))
    }
}

/// Rows that are at hand, in their order.
#[derive(Debug, Default)]
pub(super) struct Pending {
    segments: VecDeque<Segment>,
    count: usize,
}

impl Pending {
    /// How many.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// More of them, behind the others.
    pub(super) fn push(&mut self, rows: Rows) {
        let range = 0..rows.entries().len();
        self.count += range.len();
        self.segments.push_back(Segment::Merged(Arc::new(rows), range));
    }

    /// The first `count` of them, which stay at hand.
    pub(super) fn chunk(&self, count: usize) -> Chunk {
        let mut chunk = Chunk { entries: Vec::with_capacity(count), segments: Vec::new() };
        for segment in &self.segments {
            let left = count - chunk.entries.len();
            if left == 0 {
                break;
            }
            let entries = segment.entries();
            chunk.entries.extend_from_slice(&entries[..left.min(entries.len())]);
            chunk.segments.push(segment.clone());
        }
        chunk
    }

    /// Forgets the rows before `first`, and has some in place of them.
    pub(super) fn replace(&mut self, some: Vec<Arc<Copied>>, first: usize) {
        self.count = some.len() + (self.count - first);
        let mut segments: VecDeque<Segment> = some.into_iter().map(Segment::Copied).collect();
        let mut start = 0;
        for segment in self.segments.drain(..) {
            let end = start + segment.entries().len();
            match segment {
                segment if start >= first => segments.push_back(segment),
                Segment::Merged(rows, range) if end > first => {
                    let range = range.start + (first - start)..range.end;
                    segments.push_back(Segment::Merged(rows, range));
                }
                _ => {}
            }
            start = end;
        }
        self.segments = segments;
    }
}
