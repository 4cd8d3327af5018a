//! Pages come back from disk, or from where they stayed in memory, a few of them ahead of their use, as memory allows.

use std::collections::VecDeque;
use std::sync::Arc;

use weft_rt::io::IoBuf;
use weft_rt::memory::Reservation;
use weft_rt::{JoinHandle, spawn_begun};

use super::frozen::{Frozen, Passing, Thawing};
use super::writer::{Location, SpilledPage, Spills};
use crate::error::Result;
use crate::profile::{Measuring, Wait, measured_within, waiting};
use crate::tasks::Counted;
use crate::tuple::budget::patiently;

/// Pages that there is memory left for when one is read ahead.
const LEFT_PAGES: u64 = 2;

/// Reads pages on one worker, in their order.
#[derive(Debug)]
pub(crate) struct Reader {
    operator: &'static str,
    spills: Spills,
    pages: VecDeque<Arc<SpilledPage>>,
    /// Memory of pages that are forgotten, for others: whoever has all other memory must be able to go on.
    spare: Reservation,
    /// Of which so much is kept: for a page, or as much as there was in the beginning.
    spare_bytes_max: u64,
    /// What comes back, and the bytes of each.
    reading: VecDeque<(Coming, u64)>,
    /// Bytes of all of it.
    reading_bytes: u64,
}

impl Reader {
    /// A reader of `pages`. `memory` is for some of them or for none.
    pub(crate) fn new(
        operator: &'static str,
        spills: Spills,
        pages: Vec<Arc<SpilledPage>>,
        memory: Reservation,
    ) -> Reader {
        let pages = pages.into();
        let spare_bytes_max = memory.bytes().max(spills.page_bytes_max() as u64);
        let reading = VecDeque::new();
        Reader {
            operator,
            spills,
            pages,
            spare: memory,
            spare_bytes_max,
            reading,
            reading_bytes: 0,
        }
    }

    /// Takes back the memory of a page that nobody refers to any more.
    pub(crate) fn forget(&mut self, memory: Reservation) {
        if self.spare.bytes() < self.spare_bytes_max {
            self.spare.merge(memory);
        }
    }

    /// Memory of the pages that are forgotten, as far as it was kept.
    pub(crate) fn end(self) -> Reservation {
        self.spare
    }

    /// True if a page may come back beside those that do already, for which so many bytes more are needed. There are few large ones
    /// at once, and they leave some memory for what is made of pages: who reads ahead all that there is room for waits in vain for a
    /// page to put a tuple on.
    fn may_have(&self, page_bytes: u64, missing: u64) -> bool {
        let page_bytes_max = self.spills.page_bytes_max() as u64;
        let bytes_max = self.spills.read_depth() as u64 * page_bytes_max;
        let left_bytes = LEFT_PAGES * page_bytes_max.max(page_bytes);
        let is_left = || self.spills.ledger.try_reserve(missing + left_bytes).is_some();
        self.reading.is_empty()
            || self.reading_bytes + page_bytes <= bytes_max && (missing == 0 || is_left())
    }

    /// Has pages come back that there is memory for.
    pub(crate) fn read_ahead(&mut self) {
        while self.reading.len() < self.spills.read_depth()
            && let Some(page) = self.pages.front()
        {
            let bytes = page.lacks_bytes();
            let missing = bytes.saturating_sub(self.spare.bytes());
            // Where more is taken than there is, not even nothing would be granted.
            let is_granted =
                self.may_have(bytes, missing) && (missing == 0 || self.spare.try_grow(missing));
            if !is_granted {
                return;
            }
            self.begin_first();
        }
    }

    /// Has the next page come back, for which there is memory.
    fn begin_first(&mut self) {
        let Some(page) = self.pages.pop_front() else { return };
        let bytes = page.lacks_bytes();
        let memory = self.spare.split(bytes);
        self.reading_bytes += bytes;
        self.reading.push_back((read(&self.spills, page, memory), bytes));
    }

    /// The next page, whose place on disk is free then unless somebody else has it; `None` after the last one.
    ///
    /// # Errors
    /// What went wrong with reading; [`ExecError::Memory`](crate::ExecError::Memory)
    pub(crate) async fn next(&mut self) -> Result<Option<Frozen>> {
        match self.next_coming().await? {
            Some(page) => Ok(Some(page.page().await?)),
            None => Ok(None),
        }
    }

    /// As [`Reader::next`], for whoever goes through the tuples of a page once.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn next_passing(&mut self) -> Result<Option<Passing>> {
        let Some(page) = self.next_coming().await? else { return Ok(None) };
        let Back { read, tuples, thawing, held } = page.back().await?;
        Ok(Some(Passing::new(read, tuples, &thawing, held)))
    }

    /// The next page that comes back.
    async fn next_coming(&mut self) -> Result<Option<Coming>> {
        self.read_ahead();
        if self.reading.is_empty()
            && let Some(page) = self.pages.front()
        {
            let missing = page.lacks_bytes().saturating_sub(self.spare.bytes());
            let ledger = self.spills.ledger.clone();
            let granted = ledger.reserve_or_spill(missing);
            self.spare.merge(patiently(self.operator, &ledger, missing, granted).await?);
            self.begin_first();
            self.read_ahead();
        }
        Ok(self.reading.pop_front().map(|(page, bytes)| {
            self.reading_bytes -= bytes;
            page
        }))
    }
}

/// A page that comes back.
#[derive(Debug)]
pub(crate) enum Coming {
    FromDisk(JoinHandle<Result<Back>>),
    /// It stayed in memory.
    Retained(Back),
}

/// A page that is back, as it lay on disk.
#[derive(Debug)]
pub(crate) struct Back {
    read: IoBuf,
    tuples: usize,
    thawing: Thawing,
    held: (Reservation, Counted),
}

impl Coming {
    /// The page, when it is there. Its tuples are made of it only now, so that caches have them.
    ///
    /// # Errors
    /// What went wrong with reading.
    pub(crate) async fn page(self) -> Result<Frozen> {
        let Back { read, tuples, thawing, held } = self.back().await?;
        Ok(Frozen::new(read, tuples, &thawing, held))
    }

    async fn back(self) -> Result<Back> {
        match self {
            Coming::FromDisk(page) => waiting(Wait::Device, page).await?,
            Coming::Retained(back) => Ok(back),
        }
    }
}

/// Reads a page, whose place on disk is free then unless somebody else has it, by a task of this worker, which goes on if nobody waits for it, so that
/// its memory is held as long as it is used. One that stayed in memory is there at once, with that memory.
///
/// # Panics
/// If that is one that somebody else refers to.
pub(crate) fn read(spills: &Spills, page: Arc<SpilledPage>, mut memory: Reservation) -> Coming {
    let task = spills.tasks.count();
    let (tuples, thawing) = (page.tuples, page.thawing.clone());
    let page = match Arc::try_unwrap(page) {
        Ok(SpilledPage { location: Location::InMemory(read, own), .. }) => {
            memory.merge(own);
            return Coming::Retained(Back { read, tuples, thawing, held: (memory, task) });
        }
        Ok(page) => Arc::new(page),
        Err(page) => page,
    };
    let held = (memory, task);
    let (progress, measuring) = (spills.progress.clone(), spills.measuring.clone());
    let page = spawn_begun(measured_within(measuring.clone(), async move {
        let Location::OnDisk(spilled) = &page.location else {
            panic!("a page in memory has one reader")
        };
        let read = spilled.read_with(IoBuf::to_be_filled).await?;
        progress.add_bytes_read(spilled.written_bytes() as u64);
        if let Some(Measuring { profile, .. }) = measuring {
            profile.spilled().note_read(spilled);
        }
        Ok(Back { read, tuples, thawing, held })
    }));
    Coming::FromDisk(page)
}
