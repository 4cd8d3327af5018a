//! Merging runs, a batch after the other.
//!
//! Of each run the next page is in memory, and of some runs more: those are read ahead whose first tuples come first
//! (forecasting; Knuth, volume 3, section 5.4.6). A batch is what comes before all that was not read yet, cut where so many
//! pages have been gone through that memory is bounded: a batch is with whoever wants it, one waits for that, one is being
//! made, and the pages of two more are read meanwhile. All workers merge the units of a batch.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use weft_rt::memory::Reservation;

use super::order::Order;
use super::rows::{Kept, Piece, Pool, ReadPage, Rows};
use super::run::{Run, RunPage};
use super::units::{Place, Segment, cut, merge_neighbours};
use crate::error::Result;
use crate::pace::Pace;
use crate::profile::{Fact, Facts};
use crate::query::Context;
use crate::spill::reader::{Coming, read};
use crate::spill::writer::Spills;
use crate::tuple::budget::patiently;

/// Rows that are merged at once.
const UNIT: usize = 8 << 10;

/// Units of a batch of rows that were all in memory.
const UNITS: usize = 8;

/// Pages that a batch goes through, at most.
pub(super) const BATCH_PAGES_MAX: u64 = 64;

/// Batches whose pages are in memory, beside a page of each run: see above.
const BATCHES: u64 = 5;

/// Bytes that a merge needs for runs whose largest pages take so much, if batches go through so many of them.
pub(super) fn memory_bytes(page_bytes: &[u64], batch_pages: u64) -> u64 {
    let largest = page_bytes.iter().copied().max().unwrap_or(0);
    page_bytes.iter().sum::<u64>() + BATCHES * batch_pages * largest
}

/// A run that is being merged.
#[derive(Debug)]
struct Input {
    /// Those that are not being read yet.
    pages: VecDeque<RunPage>,
    reading: VecDeque<Coming>,
    /// What is left of those that have been read.
    read: VecDeque<Piece>,
}

/// A merge of runs, and of what did not go to disk. On one worker.
#[derive(Debug)]
pub(super) struct Merge {
    operator: &'static str,
    order: Arc<Order>,
    spills: Spills,
    pool: Arc<Pool>,
    inputs: Vec<Input>,
    kept: Option<Piece>,
    batch_pages: usize,
    /// Pages that are being read or not yet gone through.
    open_pages: usize,
    /// Rows that are still wanted.
    left: usize,
}

impl Merge {
    /// The first `most` of all tuples. `memory` is [`memory_bytes`].
    pub(super) fn new(
        operator: &'static str,
        order: Arc<Order>,
        spills: Spills,
        runs: Vec<Run>,
        kept: Option<Kept>,
        most: usize,
        (batch_pages, memory): (u64, Reservation),
    ) -> Merge {
        let input =
            |Run { pages }| Input { pages, reading: VecDeque::new(), read: VecDeque::new() };
        let kept = kept.map(|kept| {
            let count = kept.entries.len();
            Piece::Kept(Arc::new(kept), 0..count)
        });
        Merge {
            operator,
            order,
            spills,
            pool: Pool::new(memory),
            inputs: runs.into_iter().map(input).collect(),
            kept,
            batch_pages: batch_pages as usize,
            open_pages: 0,
            left: most,
        }
    }

    /// How many rows are still to come.
    pub(super) fn tuples(&self) -> u64 {
        let on_disk = self.inputs.iter().flat_map(|input| &input.pages);
        let on_disk: usize = on_disk.map(|page| page.page.tuples).sum();
        (on_disk + self.kept.as_ref().map_or(0, Segment::count)).min(self.left) as u64
    }

    /// What is merged, before it has begun.
    pub(super) fn facts(&self) -> Facts {
        let pages = self.inputs.iter().map(|input| input.pages.len() as u64).sum();
        vec![
            Fact::count("runs", self.inputs.len() as u64),
            Fact::count("pages on disk", pages),
            Fact::count("tuples in memory", self.kept.as_ref().map_or(0, Segment::count) as u64),
        ]
    }

    /// The next rows in their order, of which all parts are merged by all workers; `None` after the last.
    ///
    /// # Errors
    /// What went wrong with reading; [`ExecError::Memory`](crate::ExecError::Memory)
    pub(super) async fn next(&mut self, context: &Context) -> Result<Option<Vec<Rows>>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.read_ahead().await?;
        let mut pace = Pace::default();
        for input in &mut self.inputs {
            while let Some(page) = input.reading.pop_front() {
                let page = ReadPage::new(page.page().await?, self.pool.clone());
                let tuples = page.tuples();
                input.read.push_back(Piece::Page(Arc::new(page), 0..tuples));
                pace.keep().await;
            }
        }
        // SAFETY: the tuples are those of the order's layout, and lie on pages that the pieces keep.
        let pieces = unsafe { self.batch() };
        if pieces.is_empty() {
            return Ok(None);
        }
        self.read_ahead().await?;
        let mut batch = merged(pieces, &self.order, context).await?;
        for rows in &mut batch {
            rows.entries.truncate(self.left);
            self.left -= rows.entries.len();
        }
        batch.retain(|rows| !rows.entries.is_empty());
        Ok(Some(batch))
    }

    /// Begins to read pages: one of each run that has none, and some of those that come first.
    async fn read_ahead(&mut self) -> Result<()> {
        loop {
            let has_ahead = self.open_pages >= self.inputs.len() + 2 * self.batch_pages;
            let next = self.inputs.iter_mut().filter(|input| !input.pages.is_empty());
            let Some(input) = next.min_by_key(|input| {
                let ahead = input.read.len() + input.reading.len();
                (ahead > 0, input.pages[0].first, ahead)
            }) else {
                return Ok(());
            };
            let is_needed = input.read.is_empty() && input.reading.is_empty();
            let bytes = input.pages[0].memory_bytes();
            if !is_needed && has_ahead {
                return Ok(());
            }
            let memory = match self.pool.take(bytes) {
                Some(memory) => memory,
                None if is_needed => {
                    let ledger = &self.spills.ledger;
                    let granted = ledger.reserve_or_spill(bytes);
                    patiently(self.operator, ledger, bytes, granted).await?
                }
                None => return Ok(()),
            };
            let page = input.pages.pop_front().expect("there is one").page;
            input.reading.push_back(read(&self.spills, page.into(), memory));
            self.open_pages += 1;
        }
    }

    /// Takes out what comes before all that was not read yet, and is not more than a batch.
    ///
    /// # Safety
    /// The tuples are those of the order's layout.
    unsafe fn batch(&mut self) -> Vec<Piece> {
        let order = &*self.order;
        // SAFETY: as the caller promises.
        let compare = |a: &Place, b: &Place| unsafe { a.compare(b, order) };
        let mut ends: Vec<Place> = Vec::new();
        let mut limit: Option<Place> = None;
        for (segment, input) in self.inputs.iter().enumerate() {
            for (number, piece) in input.read.iter().enumerate() {
                ends.push(Place { entry: piece.entry(piece.count() - 1), segment, number });
            }
            if !input.pages.is_empty() {
                let last = ends.last().copied().expect("a page of each run was read");
                limit = Some(match limit {
                    Some(limit) if compare(&limit, &last).is_le() => limit,
                    _ => last,
                });
            }
        }
        if let Some(limit) = &limit {
            ends.retain(|end| compare(end, limit).is_le());
        }
        let end = if ends.len() > self.batch_pages {
            Some(*ends.select_nth_unstable_by(self.batch_pages - 1, compare).1)
        } else {
            limit
        };
        // SAFETY: as the caller promises.
        unsafe { self.take_until(end) }
    }

    /// Takes out what comes before the end of a piece, and that piece; all if there is none, but of what did not go to
    /// disk not more than a batch if there is nothing else.
    ///
    /// # Safety
    /// As [`Merge::batch`].
    unsafe fn take_until(&mut self, end: Option<Place>) -> Vec<Piece> {
        let mut taken = Vec::new();
        for (number, input) in self.inputs.iter_mut().enumerate() {
            let mut passed = 0;
            while let Some(piece) = input.read.front() {
                let count = match &end {
                    Some(end) if end.segment == number => {
                        if passed <= end.number {
                            piece.count()
                        } else {
                            0
                        }
                    }
                    // SAFETY: as the caller promises.
                    Some(end) => unsafe { end.before(piece, number, &self.order) },
                    None => piece.count(),
                };
                passed += 1;
                if count < piece.count() {
                    if count > 0 {
                        taken.push(piece.part(0..count));
                        input.read[0] = piece.part(count..piece.count());
                    }
                    break;
                }
                taken.extend(input.read.pop_front());
                self.open_pages -= 1;
            }
        }
        if let Some(kept) = &self.kept {
            let count = match &end {
                // SAFETY: as the caller promises.
                Some(end) => unsafe { end.before(kept, self.inputs.len(), &self.order) },
                None if taken.is_empty() => kept.count().min(UNITS * UNIT),
                None => kept.count(),
            };
            if count > 0 {
                taken.push(kept.part(0..count));
                self.kept = Some(kept.part(count..kept.count()));
            }
        }
        taken
    }
}

/// Merges sorted pieces, a unit after the other, on all workers.
async fn merged(pieces: Vec<Piece>, order: &Arc<Order>, context: &Context) -> Result<Vec<Rows>> {
    // SAFETY: the tuples are those of the order's layout, and lie on pages that the pieces keep.
    let ranges = unsafe { cut(&pieces, UNIT, order) };
    let mut units = ranges.into_iter().map(|ranges| {
        let parts = pieces.iter().zip(ranges).filter(|(_, range)| !range.is_empty());
        parts.map(|(piece, range)| piece.part(range)).collect::<Vec<Piece>>()
    });
    if units.len() == 1 {
        let unit = units.next().expect("there is one");
        return Ok(vec![merged_unit(unit, order).await]);
    }
    let places: Vec<_> = units.map(|unit| (Mutex::new(unit), OnceLock::<Rows>::new())).collect();
    let (count, places) = (places.len(), Arc::new(places));
    drop(pieces);
    let (for_workers, order) = (places.clone(), order.clone());
    let work = move |_, number: usize| {
        let (places, order) = (for_workers.clone(), order.clone());
        async move {
            let (unit, place) = &places[number];
            let unit = std::mem::take(&mut *unit.lock().unwrap_or_else(PoisonError::into_inner));
            place.set(merged_unit(unit, &order).await).expect("a unit is merged once");
            Ok(())
        }
    };
    context.run_morsels(count, work).await?;
    let places = Arc::into_inner(places).expect("all workers have ended");
    Ok(places.into_iter().filter_map(|(_, place)| place.into_inner()).collect())
}

async fn merged_unit(pieces: Vec<Piece>, order: &Order) -> Rows {
    let mut entries = Vec::with_capacity(pieces.iter().map(Segment::count).sum());
    for piece in &pieces {
        entries.extend((0..piece.count()).map(|number| piece.entry(number)));
    }
    // SAFETY: the tuples are those of the order's layout, and lie on pages that the pieces keep.
    unsafe { merge_neighbours(&mut entries, order).await };
    Rows { entries, pieces }
}
