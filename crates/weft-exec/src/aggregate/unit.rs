//! A unit of an aggregation's second phase: all tuples of some groups, packed or not, and how they are gone through.

use std::sync::Arc;

use weft_rt::memory::{Ledger, Reservation};

use super::memory::Arena;
use super::operator::OPERATOR;
use super::state::Tuple;
use crate::error::{ExecError, Result};
use crate::pace::Pace;
use crate::spill::frozen::Frozen;
use crate::spill::reader::Reader;
use crate::spill::writer::{SPARE_BYTES, SpilledPage, Spills, Writer};
use crate::spill::{Settled, Spilling};
use crate::tuple::behind::Sizes;
use crate::tuple::layout::HASH_OFFSET;
use crate::tuple::pack::{Form, unpack};
use crate::tuple::packing::{Packing, measure};
use crate::tuple::{Layout, Page};

/// The hash of a tuple.
#[inline(always)]
pub(super) fn hash_of(tuple: Tuple) -> u64 {
    // SAFETY: a tuple begins with it.
    unsafe { tuple.address().add(HASH_OFFSET).cast::<u64>().read() }
}

/// The tuples of a page of phase one.
pub(super) fn tuples_of(page: &Page) -> impl Iterator<Item = Tuple> {
    // SAFETY: the tuples were written in phase one, and one unit has each.
    (0..page.tuples()).map(|number| unsafe { Tuple::at(page.tuple(number)) })
}

/// All tuples of some groups.
#[derive(Debug)]
pub(super) struct Unit {
    /// Bits of the hash that all of them have in common.
    pub(super) skipped_bits: u32,
    /// About how many groups there are.
    pub(super) groups: usize,
    /// What was packed first. It lies on disk, or was retained.
    pub(super) spilled: Vec<SpilledPage>,
    /// Tuples that lie on the pages of several units.
    pub(super) loose: Vec<Tuple>,
    pub(super) pages: Vec<Page>,
    /// The form of the tuples on the pages.
    pub(super) form: Form,
    /// What the groups on the pages keep.
    pub(super) arenas: Vec<Arena>,
    /// The memory of pages and arenas.
    reservation: Reservation,
    settled: Option<Settled>,
    /// It was written in part, and of that there was no copy.
    has_sent: bool,
    /// What went wrong then: it is not complete.
    failed: Option<ExecError>,
}

impl Unit {
    /// One without tuples.
    pub(super) fn new(skipped_bits: u32, ledger: &Ledger) -> Unit {
        Unit {
            skipped_bits,
            groups: 1,
            spilled: Vec::new(),
            loose: Vec::new(),
            pages: Vec::new(),
            form: Form::Live,
            arenas: Vec::new(),
            reservation: ledger.empty(),
            settled: None,
            has_sent: false,
            failed: None,
        }
    }

    /// True if it is not complete as long as it is not written as a whole.
    pub(super) fn has_sent(&self) -> bool {
        self.has_sent
    }

    /// It was not written as a whole.
    pub(super) fn fail(&mut self, error: ExecError) {
        self.failed = Some(error);
    }

    /// # Errors
    /// What went wrong when it was written.
    pub(super) fn check(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Takes the memory of a page or arena over.
    pub(super) fn hold(&mut self, memory: Reservation) {
        self.reservation.merge(memory);
    }

    /// It is being worked on: what it has in memory can be freed again.
    pub(super) fn unsettle(&mut self) {
        self.settled = None;
    }

    /// Bytes that it has in memory.
    pub(super) fn held_bytes(&self) -> u64 {
        self.reservation.bytes() + self.retained_bytes()
    }

    /// Of these, the ones of packed tuples.
    fn retained_bytes(&self) -> u64 {
        self.spilled.iter().map(SpilledPage::retained_bytes).sum()
    }

    /// Expects its part of `groups` that all units have with their `tuples`.
    pub(super) fn expect(&mut self, groups: usize, tuples: usize) {
        let own_tuples = self.tuples();
        let part = (groups as u128 * own_tuples as u128 / tuples.max(1) as u128) as usize;
        self.groups = part.clamp(1, own_tuples.max(1));
    }

    /// Nobody can spill what it has in memory any more.
    pub(super) fn settle(&mut self, spilling: &Arc<Spilling>) {
        self.settled = Some(Settled::new(spilling, self.held_bytes()));
    }

    /// True if it has tuples in memory that nobody else has.
    pub(super) fn holds_pages(&self) -> bool {
        !self.pages.is_empty() || self.spilled.iter().any(SpilledPage::is_retained)
    }

    /// True if some of it is on disk.
    pub(super) fn is_on_disk(&self) -> bool {
        self.spilled.iter().any(|page| !page.is_retained())
    }

    /// Bytes of its largest page, in memory or when it comes back.
    pub(super) fn largest_page_bytes(&self) -> usize {
        let spilled = self.spilled.iter().map(SpilledPage::bytes);
        self.pages.iter().map(Page::bytes).chain(spilled).max().unwrap_or(0)
    }

    /// Writes what it has on pages in memory to disk, if there is any.
    ///
    /// # Errors
    /// What went wrong with writing it.
    pub(super) async fn spill(&mut self, layout: &Layout, spills: &Spills) -> Result<()> {
        if !self.holds_pages() {
            return Ok(());
        }
        let mut writer = Writer::with_spare(OPERATOR, spills.clone(), self.lend(SPARE_BYTES));
        self.write(layout, &mut writer, 0).await?;
        writer.settle().await?;
        self.be_spilled(writer.finish());
        Ok(())
    }

    /// Lends memory that its pages have, `bytes` at most.
    pub(super) fn lend(&mut self, bytes: u64) -> Reservation {
        self.reservation.split(self.reservation.bytes().min(bytes))
    }

    /// Writes what was retained, and copies of the pages, as those of a partition. If the writer lacks memory for them it is lent what the
    /// pages have.
    ///
    /// # Errors
    /// What went wrong with writing them.
    pub(super) async fn write(
        &mut self,
        layout: &Layout,
        writer: &mut Writer,
        partition: usize,
    ) -> Result<()> {
        let mut pace = Pace::default();
        let (retained, on_disk): (Vec<SpilledPage>, Vec<SpilledPage>) =
            std::mem::take(&mut self.spilled).into_iter().partition(SpilledPage::is_retained);
        self.spilled = on_disk;
        self.has_sent = !retained.is_empty();
        for page in retained {
            writer.send_page(partition, page).await?;
        }
        let mut sizes = Sizes::default();
        for page in &self.pages {
            // SAFETY: the pages are ours, and their tuples complete.
            unsafe { measure(layout, page, self.form, &mut sizes, &mut pace).await };
        }
        let lacks_bytes = writer.lacks_bytes_for(sizes.largest_bytes);
        writer.lend(self.lend(lacks_bytes));
        let mut packing = Packing::new(layout, writer, self.form, partition, sizes.bytes);
        for page in &self.pages {
            // SAFETY: as above.
            unsafe { packing.add(page.addresses()).await? };
            pace.keep().await;
        }
        packing.close();
        Ok(())
    }

    /// The pages were written, and need no memory any more.
    pub(super) fn be_spilled(&mut self, spilled: Vec<SpilledPage>) {
        self.spilled.extend(spilled);
        self.pages.clear();
        self.arenas.clear();
        self.settled = None;
        self.has_sent = false;
        let held_bytes = self.reservation.bytes();
        self.reservation.shrink(held_bytes);
    }

    /// True if there are no tuples.
    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.loose.is_empty() && self.spilled.is_empty()
    }

    /// Number of tuples.
    pub(super) fn tuples(&self) -> usize {
        let spilled: usize = self.spilled.iter().map(|page| page.tuples).sum();
        self.pages.iter().map(Page::tuples).sum::<usize>() + self.loose.len() + spilled
    }

    /// Bytes that what was packed takes when it has come back.
    pub(super) fn spilled_bytes(&self) -> u64 {
        self.spilled.iter().map(|page| page.bytes() as u64).sum()
    }

    /// The same, beside the memory that it has.
    pub(super) fn lacks_bytes(&self) -> u64 {
        self.spilled.iter().map(SpilledPage::lacks_bytes).sum()
    }
}

/// Tuples that come together.
#[derive(Debug)]
pub(super) struct Source {
    from: From,
    /// The form of the tuples.
    pub(super) form: Form,
}

#[derive(Debug)]
enum From {
    Packed(Frozen),
    Loose(Vec<Tuple>),
    Page(Page),
}

impl Source {
    /// The tuples, as long as this is.
    pub(super) fn tuples(&self) -> impl Iterator<Item = Tuple> {
        let count = match &self.from {
            From::Packed(page) => page.tuples(),
            From::Loose(tuples) => tuples.len(),
            From::Page(page) => page.tuples(),
        };
        (0..count).map(|number| match &self.from {
            // SAFETY: tuples were written to the page in phase one, and it is ours alone.
            From::Packed(page) => unsafe { Tuple::at(page.tuple(number)) },
            From::Loose(tuples) => tuples[number],
            // SAFETY: as above.
            From::Page(page) => unsafe { Tuple::at(page.tuple(number)) },
        })
    }

    /// Makes the tuples live.
    pub(super) fn unpack(&mut self, layout: &Layout) {
        if self.form == Form::Packed && layout.keeps() {
            // SAFETY: they are packed tuples of the layout, which are ours alone.
            self.tuples().for_each(|tuple| unsafe { unpack(layout, tuple.address()) });
        }
        self.form = Form::Live;
    }
}

/// The tuples of a unit in their order, what was packed read ahead.
#[derive(Debug)]
pub(super) struct Sources {
    /// As of the unit.
    pub(super) skipped_bits: u32,
    pub(super) groups: usize,
    reader: Option<Reader>,
    loose: Vec<Tuple>,
    pages: std::vec::IntoIter<Page>,
    form: Form,
    arenas: Vec<Arena>,
    reservation: Reservation,
    settled: Option<Settled>,
}

impl Sources {
    /// Those of a unit; `memory` is for what is read.
    ///
    /// # Panics
    /// If it was spilled, and there are no `spills`.
    pub(super) fn new(unit: Unit, spills: Option<&Spills>, memory: Reservation) -> Sources {
        let Unit { skipped_bits, groups, .. } = unit;
        let Unit { spilled, loose, pages, form, arenas, reservation, settled, .. } = unit;
        let reader = (!spilled.is_empty()).then(|| {
            let spills = spills.expect("what was spilled can be read").clone();
            let spilled = spilled.into_iter().map(Arc::new).collect();
            Reader::new(OPERATOR, spills, spilled, memory)
        });
        let pages = pages.into_iter();
        Sources { skipped_bits, groups, reader, loose, pages, form, arenas, reservation, settled }
    }

    /// The next tuples; `None` after the last.
    ///
    /// # Errors
    /// Those of reading them.
    pub(super) async fn next(&mut self) -> Result<Option<Source>> {
        if let Some(reader) = &mut self.reader {
            if let Some(page) = reader.next().await? {
                return Ok(Some(Source { from: From::Packed(page), form: Form::Packed }));
            }
            self.reader = None;
        }
        if !self.loose.is_empty() {
            let from = From::Loose(std::mem::take(&mut self.loose));
            return Ok(Some(Source { from, form: Form::Live }));
        }
        let page = self.pages.next();
        Ok(page.map(|page| Source { from: From::Page(page), form: self.form }))
    }

    /// Frees tuples that nobody refers to any more.
    pub(super) fn free(&mut self, source: Source) {
        match (source.from, &mut self.reader) {
            (From::Packed(page), Some(reader)) => reader.forget(page.into_memory()),
            (From::Page(page), _) => {
                let bytes = page.bytes() as u64;
                drop(page);
                // If it could not be written, what it lent for that is missing.
                self.reservation.shrink(bytes.min(self.reservation.bytes()));
            }
            (From::Packed(_) | From::Loose(_), _) => {}
        }
    }

    /// What has to stay with the tuples, when all were given.
    pub(super) fn end(self) -> (Vec<Arena>, Reservation, Option<Settled>) {
        (self.arenas, self.reservation, self.settled)
    }
}
