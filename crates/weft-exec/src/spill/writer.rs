//! A worker's writes: so many pages on their way to disk at most, whose memory comes back as writes end. Pages whose tuples take
//! less than in memory may stay there instead, until their memory is needed (`retained`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_rt::JoinHandle;
use weft_rt::io::IoBuf;
use weft_rt::memory::{Ledger, Reservation};
use weft_rt::progress::Progress;
use weft_store::spill::{Scheme, Spilled, Written};

use super::fan::bits_first;
use super::frozen::{FROZEN_BYTES_MAX, Freezing, Full, THAWED_BYTES_MAX, Thawing, page_bytes};
use super::mask::SpilledPartitions;
use super::regulator::{PageCosts, Regulator};
use super::retained::Retained;
use super::{Share, Spilling, Turn};
use crate::error::Result;
use crate::profile::{Measuring, Wait, waiting};
use crate::query::Context;
use crate::tasks::{Counted, Tasks};
use crate::tuple::budget::patiently;

/// Pages that a worker has on their way to disk at once: as many as keep a device busy, unless they would take more than a part of the
/// budget.
const DEPTHS: (usize, usize) = (8, 32);
const DEPTH_PART: u64 = 64;

/// The most that come back at once: who has many of them need not wait when others keep the device busy for a while.
const READ_DEPTH_MAX: usize = 64;

/// Memory for a page, which is kept as long as there may be another: whoever has all other memory must be able to spill.
pub(crate) const SPARE_BYTES: u64 = FROZEN_BYTES_MAX as u64;

/// Pages are large in memory if that is a part of a worker's part of the budget.
const LARGE_PART: u64 = 1024;

/// What the workers of an operator share to spill.
#[derive(Clone, Debug)]
pub struct Spills {
    pub(crate) spilling: Arc<Spilling>,
    pub(crate) ledger: Ledger,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) mask: Arc<SpilledPartitions>,
    /// Counts what is written and read.
    pub(super) progress: Arc<Progress>,
    pub(crate) measuring: Option<Measuring>,
    turn: Arc<Turn>,
    workers: usize,
    /// Bits of the hash that lead to a partition, for who fits them to the memory.
    partition_bits: u32,
}

/// What a worker may have of the budget for pages that it fills, as a part of its part.
const FILLED_PART: u64 = 8;

impl Spills {
    /// For one operator of a query; `None` if the query has no place to spill to.
    pub(crate) fn new(context: &Context) -> Option<Spills> {
        let spilling = context.spilling.clone()?;
        let (ledger, tasks) = (context.ledger.clone(), context.tasks.clone());
        let (progress, measuring) = (context.progress.clone(), context.measuring.clone());
        let (turn, workers) = (context.turn.clone(), context.workers);
        let mask = spilling.mask();
        let partition_bits = bits_first(ledger.limit() / FILLED_PART / workers as u64, workers);
        Some(Spills {
            spilling,
            ledger,
            tasks,
            mask,
            progress,
            measuring,
            turn,
            workers,
            partition_bits,
        })
    }

    /// The same for tuples that are partitioned anew, by a worker alone.
    pub(crate) fn anew(&self) -> Spills {
        Spills { mask: self.spilling.mask(), ..self.clone() }
    }

    /// Bits of the hash that lead to a partition, the same for all workers: as many as there is memory for, at the limit that
    /// there was in the beginning.
    pub(crate) fn partition_bits(&self) -> u32 {
        self.partition_bits
    }

    /// Workers that share what is spilled.
    pub(crate) fn workers(&self) -> usize {
        self.workers
    }

    /// A part of the budget for each worker.
    pub(crate) fn part_bytes(&self, part: u64) -> u64 {
        self.ledger.limit() / part / self.workers as u64
    }

    /// Pages that a worker has on their way to disk at once.
    pub(crate) fn depth(&self) -> usize {
        self.depth_within(DEPTHS.1)
    }

    /// Pages that come back to one reader at once.
    pub(crate) fn read_depth(&self) -> usize {
        self.depth_within(READ_DEPTH_MAX)
    }

    fn depth_within(&self, most: usize) -> usize {
        let pages = self.part_bytes(DEPTH_PART) / self.page_bytes_max() as u64;
        (pages as usize).clamp(DEPTHS.0, most)
    }

    /// Bytes of a page in memory when it was read, unless its only tuple needs more.
    pub(crate) fn page_bytes_max(&self) -> usize {
        let is_ample = self.part_bytes(LARGE_PART) >= THAWED_BYTES_MAX as u64;
        if is_ample { THAWED_BYTES_MAX } else { FROZEN_BYTES_MAX }
    }

    /// True if it is the statement's turn, or nobody else's.
    pub(crate) fn try_turn(&self) -> bool {
        self.turn.is_taken() || self.turn.try_take(&self.spilling, &self.ledger, self.workers)
    }

    /// Waits for the statement's turn.
    pub(crate) async fn turn(&self) {
        self.turn.take(&self.spilling, &self.ledger, self.workers).await;
    }

    /// One more that shares the memory.
    pub(crate) fn share(&self) -> Share {
        Share::new(&self.spilling, &self.ledger)
    }
}

/// A page as it lies on disk, where it is, unless it stayed in memory.
#[derive(Debug)]
pub struct SpilledPage {
    /// The partition that its tuples are of.
    pub partition: usize,
    /// How many.
    pub tuples: usize,
    pub(super) location: Location,
    pub(super) thawing: Thawing,
}

/// Where a page lies.
#[derive(Debug)]
pub(super) enum Location {
    OnDisk(Spilled),
    /// And the memory of the buffer.
    InMemory(IoBuf, Reservation),
}

impl SpilledPage {
    /// Bytes that it takes in memory when it is read.
    pub(crate) fn bytes(&self) -> usize {
        self.thawing.bytes
    }

    /// The same, beside the memory that it has, which it takes along.
    pub(crate) fn lacks_bytes(&self) -> u64 {
        (self.bytes() as u64).saturating_sub(self.retained_bytes())
    }

    /// True if it stayed in memory.
    pub(crate) fn is_retained(&self) -> bool {
        matches!(self.location, Location::InMemory(..))
    }

    /// Bytes of the memory that it has; 0 if it is on disk.
    pub(crate) fn retained_bytes(&self) -> u64 {
        match &self.location {
            Location::OnDisk(_) => 0,
            Location::InMemory(_, memory) => memory.bytes(),
        }
    }
}

/// Held while a page is written.
#[derive(Debug)]
struct Held {
    memory: Option<Reservation>,
    spare: Arc<Spare>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.spare.refill(memory);
        }
    }
}

/// Memory that a writer keeps for pages. What a page had comes back to it when it is written, unless there is as much as is kept
/// already: then others get it, whether the writer looks after its pages or waits for something itself.
#[derive(Debug)]
struct Spare {
    memory: Mutex<Reservation>,
    kept_bytes: AtomicU64,
}

impl Spare {
    fn new(memory: Reservation) -> Spare {
        Spare { memory: Mutex::new(memory), kept_bytes: AtomicU64::new(SPARE_BYTES) }
    }

    fn memory(&self) -> MutexGuard<'_, Reservation> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes(&self) -> u64 {
        self.memory().bytes()
    }

    fn merge(&self, more: Reservation) {
        self.memory().merge(more);
    }

    fn refill(&self, more: Reservation) {
        let mut memory = self.memory();
        if memory.bytes() < self.kept_bytes.load(Ordering::Relaxed) {
            memory.merge(more);
        }
    }

    /// Keeps all that there is, and this.
    fn keep(&self, more: Reservation) {
        let mut memory = self.memory();
        memory.merge(more);
        self.kept_bytes.fetch_max(memory.bytes(), Ordering::Relaxed);
    }

    /// Takes `bytes` of it, if they are there and it has `left_bytes` then.
    fn take(&self, bytes: u64, left_bytes: u64) -> Option<Reservation> {
        let mut memory = self.memory();
        let has_all = memory.bytes() >= bytes.saturating_add(left_bytes);
        has_all.then(|| memory.split(bytes))
    }
}

#[derive(Debug)]
struct Writing {
    partition: usize,
    tuples: usize,
    thawing: Thawing,
    scheme: Scheme,
    write: JoinHandle<Written<Counted>>,
}

/// One worker's writes.
#[derive(Debug)]
pub(crate) struct Writer {
    operator: &'static str,
    spills: Spills,
    spare: Arc<Spare>,
    /// Pages stay in memory until they are to be sent.
    retains: bool,
    retained: Retained,
    writing: VecDeque<Writing>,
    written: Vec<SpilledPage>,
    regulator: Regulator,
}

impl Writer {
    /// One without memory for pages ([`Writer::keep_spare`]).
    pub(crate) fn new(operator: &'static str, spills: Spills) -> Writer {
        let spare = spills.ledger.empty();
        Writer::with_spare(operator, spills, spare)
    }

    /// Lends memory for pages, which lies elsewhere for the moment.
    pub(crate) fn lend(&mut self, memory: Reservation) {
        self.spare.merge(memory);
    }

    /// Has memory for pages, and keeps it as long as it may write any.
    pub(crate) fn keep(&mut self, memory: Reservation) {
        self.spare.keep(memory);
    }

    /// Bytes that it lacks to be sure that it can write a page.
    pub(crate) fn lacks_bytes(&self) -> u64 {
        SPARE_BYTES.saturating_sub(self.spare.bytes())
    }

    /// The same for a page with a tuple of so many bytes. What it has for that it keeps from now on.
    pub(crate) fn lacks_bytes_for(&mut self, tuple_bytes: usize) -> u64 {
        let bytes = SPARE_BYTES.max(page_bytes(tuple_bytes, tuple_bytes) as u64);
        self.spare.kept_bytes.fetch_max(bytes, Ordering::Relaxed);
        bytes.saturating_sub(self.spare.bytes())
    }

    /// Takes memory for a page, so that it can write when there is no other. If it is not free now, it is lent
    /// or waited for when it is needed.
    pub(crate) fn keep_spare(&mut self) {
        let lacks_bytes = self.lacks_bytes();
        if let Some(memory) = self.spills.ledger.try_reserve(lacks_bytes) {
            self.spare.merge(memory);
        }
    }

    /// One that has memory for pages, best [`SPARE_BYTES`].
    pub(crate) fn with_spare(operator: &'static str, spills: Spills, spare: Reservation) -> Writer {
        let regulator = spills.spilling.regulator(spills.depth(), spills.workers);
        let spare = Arc::new(Spare::new(spare));
        Writer {
            operator,
            spills,
            spare,
            retains: false,
            retained: Retained::default(),
            writing: VecDeque::new(),
            written: Vec::new(),
            regulator,
        }
    }

    pub(crate) fn spills(&self) -> &Spills {
        &self.spills
    }

    /// Waits for memory for a page, which is what pages before it give back if there is no other.
    ///
    /// # Errors
    /// Those of earlier writes; [`ExecError::Memory`](crate::ExecError::Memory) if nobody gives any back.
    pub(crate) async fn memory(&mut self, bytes: usize) -> Result<Reservation> {
        let bytes = bytes as u64;
        loop {
            if self.writing.len() < self.spills.depth() {
                if let Some(memory) = self.spare.take(bytes, 0) {
                    return Ok(memory);
                }
                if let Some(memory) = self.spills.ledger.try_reserve(bytes) {
                    return Ok(memory);
                }
            }
            if !self.end_first().await? && !self.send_retained().await? {
                let missing = bytes.saturating_sub(self.spare.bytes());
                let ledger = &self.spills.ledger;
                let granted = ledger.reserve_or_spill(missing);
                self.spare.merge(patiently(self.operator, ledger, missing, granted).await?);
            }
        }
    }

    /// Memory for a page, which is what pages before it give back if there is no other, and leaves `left_bytes` of what it has to
    /// write others; `None` if none are on their way.
    ///
    /// # Errors
    /// Those of earlier writes.
    pub(crate) async fn own_memory(
        &mut self,
        bytes: usize,
        left_bytes: u64,
    ) -> Result<Option<Reservation>> {
        let bytes = bytes as u64;
        loop {
            if self.writing.len() < self.spills.depth() {
                if let Some(memory) = self.spare.take(bytes, left_bytes) {
                    return Ok(Some(memory));
                }
                if let Some(memory) = self.spills.ledger.try_reserve(bytes) {
                    return Ok(Some(memory));
                }
            }
            if !self.end_first().await? && !self.send_retained().await? {
                return Ok(None);
            }
        }
    }

    /// True if there was a page to write.
    pub(crate) fn has_written(&self) -> bool {
        !self.writing.is_empty() || !self.written.is_empty() || self.retained_bytes() > 0
    }

    /// From now on pages stay in memory until they are to be sent, or they do not.
    pub(crate) fn retain(&mut self, retains: bool) {
        self.retains = retains;
    }

    /// True if they do.
    pub(crate) fn retains(&self) -> bool {
        self.retains
    }

    /// Bytes of the memory of those that do.
    pub(crate) fn retained_bytes(&self) -> u64 {
        self.retained.bytes()
    }

    /// Retains the last page of a partition, whose next tuples are to go there.
    pub(crate) fn leave_open(&mut self, partition: usize, page: Freezing, memory: Reservation) {
        self.retained.leave_open(partition, page, memory);
    }

    /// The page that was retained for more tuples of a partition, if there is one.
    pub(crate) fn take_open(&mut self, partition: usize) -> Option<(Freezing, Reservation)> {
        self.retained.take_open(partition)
    }

    /// Sends a page to disk, or retains it.
    pub(crate) fn write(&mut self, partition: usize, page: Freezing, memory: Reservation) {
        if self.retains {
            return self.retained.add(partition, page, memory);
        }
        let Full { buffer, tuples, thawing } = page.finish();
        self.send(partition, tuples, thawing, buffer, memory);
    }

    /// Sends the oldest page that it retains to disk, when another may be on its way there; false if it retains none.
    ///
    /// # Errors
    /// Those of earlier writes.
    pub(crate) async fn send_retained(&mut self) -> Result<bool> {
        let Some(page) = self.retained.take_first() else { return Ok(false) };
        self.send_page(page.partition, page).await?;
        Ok(true)
    }

    /// Sends a page to disk that somebody has retained, as one of a partition, when another may be on its way there. One that is there
    /// counts as written.
    ///
    /// # Errors
    /// Those of earlier writes.
    pub(crate) async fn send_page(&mut self, partition: usize, page: SpilledPage) -> Result<()> {
        while self.writing.len() >= self.spills.depth() && self.end_first().await? {}
        let SpilledPage { tuples, location, thawing, .. } = page;
        match location {
            Location::InMemory(buffer, memory) => {
                self.send(partition, tuples, thawing, buffer, memory)
            }
            location => self.written.push(SpilledPage { partition, tuples, location, thawing }),
        }
        Ok(())
    }

    fn send(
        &mut self,
        partition: usize,
        tuples: usize,
        thawing: Thawing,
        buffer: IoBuf,
        memory: Reservation,
    ) {
        let (memory, spare) = (Some(memory), self.spare.clone());
        let held = Held { memory, spare };
        let task = self.spills.tasks.count();
        let spilling = &self.spills.spilling;
        let scheme = self.regulator.scheme(spilling.options().compression);
        let write = spilling.area().write_keeping(buffer, scheme, held, task);
        self.writing.push_back(Writing { partition, tuples, thawing, scheme, write });
    }

    /// Waits for the oldest write; false if there is none.
    async fn end_first(&mut self) -> Result<bool> {
        let Some(first) = self.writing.pop_front() else { return Ok(false) };
        let Writing { partition, tuples, thawing, scheme, write } = first;
        let area = self.spills.spilling.area();
        let written = waiting(Wait::Device, write).await?;
        let Written { spilled, compressing, kept: _task } = written;
        let spilled = spilled?;
        let (raw_bytes, written_bytes) = (spilled.bytes(), spilled.written_bytes());
        let costs = PageCosts { scheme, raw_bytes, written_bytes, compressing };
        self.regulator.note_written(costs, || area.rates());
        self.spills.progress.add_spilled(raw_bytes as u64, written_bytes as u64);
        if let Some(measuring) = &self.spills.measuring {
            // By a task of the area's.
            measuring.note_run(compressing, compressing);
            measuring.profile.spilled().note_written(&spilled);
        }
        let location = Location::OnDisk(spilled);
        self.written.push(SpilledPage { partition, tuples, location, thawing });
        Ok(true)
    }

    /// Bytes that the pages whose writes have ended, and those that are retained, take when they are read.
    pub(crate) fn written_bytes(&self) -> u64 {
        let written: u64 = self.written.iter().map(|page| page.bytes() as u64).sum();
        written + self.retained.thawed_bytes()
    }

    /// True if pages may be on their way.
    pub(crate) fn is_writing(&self) -> bool {
        !self.writing.is_empty()
    }

    /// Waits for all writes.
    ///
    /// # Errors
    /// The first that one has.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        while self.end_first().await? {}
        Ok(())
    }

    /// What was written since this was asked for last.
    pub(crate) fn take_written(&mut self) -> Vec<SpilledPage> {
        std::mem::take(&mut self.written)
    }

    /// What was written, and then what was retained.
    ///
    /// # Panics
    /// If writes have not ended ([`Writer::settle`]).
    pub(crate) fn finish(mut self) -> Vec<SpilledPage> {
        assert!(self.writing.is_empty(), "writes have ended");
        self.written.extend(self.retained.into_pages());
        self.written
    }
}
