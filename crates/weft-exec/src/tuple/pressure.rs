//! A materializer under pressure: when it has its share of the memory, or there is no more, it spills all tuples of a chosen
//! partition instead of allocating a page (Spilly, sections 4.2, 4.3 and 5.3).
//!
//! Which partition: one that some worker of the operator has chosen before, if it is worth writing, else the largest, which
//! all workers hear of by a bitmask. What was stored before there were partitions goes first, sorted by partition. Tuples
//! are packed onto pages for the disk, of which a bounded number is on its way.
//!
//! Tuples that take less memory when they are packed may stay there so: whoever has ample memory packs partitions one after the other, as
//! far as that is worth it, and only then sends the oldest of these pages to disk. This is not in the paper: a state of up to about twice
//! the memory does not touch the disk.

use super::materializer::{Filling, Materializer, PAGE_BYTES_MAX, PAGE_BYTES_MIN, Room};
use super::pack::Form;
use crate::error::Result;
use crate::spill::writer::{SPARE_BYTES, SpilledPage, Spills, Writer};
use crate::spill::{Share, SpillMode, WITHOUT_BYTES};

/// Of its share, the part that the pages which a worker fills may take.
const FILLING: u64 = 2;

/// What a materializer spills by.
#[derive(Debug)]
pub(super) struct Pressure {
    pub(super) writer: Writer,
    /// As long as it has tuples or may get some.
    share: Share,
    has_turn: bool,
    pub(super) form: Form,
    /// Pages for the disk stay in memory where that is ample.
    may_retain: bool,
    /// What tuples need later, in 256ths of their bytes.
    expected: u64,
    /// Bytes that it had when there was no memory for more.
    refused_at: Option<u64>,
    /// Pages that were written nearly empty.
    poor_pages: usize,
}

/// A page is written nearly empty if its tuples have fewer bytes.
const POOR_BYTES: usize = 1 << 10;

/// Who has written so many of them rather waits for memory, and fails if nobody frees any: it would go on for very long.
const POOR_PAGES_MAX: usize = 16 << 10;

/// Of its share, the part that is made room for when what was spilled comes back, at most.
const ROOM: (u64, u64) = (5, 8);

/// Pages for the disk stay in memory if there is so much of it for each partition: then there are many of these pages beside the tuples that
/// are on none yet. And so much in all: what comes back needs more memory than it had.
const RETAINING_BYTES: u64 = 8 * PAGE_BYTES_MAX as u64;
const RETAINING_BYTES_MIN: u64 = 32 << 20;

/// And tuples of a partition are packed if they have so many bytes, which fill such a page.
const PACKED_BYTES_MIN: usize = 2 * PAGE_BYTES_MAX;

/// What a part is counted in.
const PARTS: u64 = 256;

impl Pressure {
    pub(super) fn new(operator: &'static str, spills: Spills) -> Pressure {
        let share = Share::of_little(&spills.spilling, &spills.ledger);
        let writer = Writer::new(operator, spills);
        Pressure {
            writer,
            share,
            has_turn: false,
            form: Form::Live,
            may_retain: false,
            expected: 0,
            refused_at: None,
            poor_pages: 0,
        }
    }

    /// Tuples need so many bytes more later.
    pub(super) fn expect(&mut self, bytes: usize, tuple_bytes: usize) {
        self.expected = bytes as u64 * PARTS / tuple_bytes as u64;
    }

    /// Pages for the disk stay in memory from now on, where that is ample.
    pub(super) fn retain(&mut self) {
        self.may_retain = true;
    }

    /// Bytes of those that do.
    pub(super) fn retained_bytes(&self) -> u64 {
        self.writer.retained_bytes()
    }

    /// True if those of so many partitions do.
    pub(super) fn retains(&self, partitions: usize) -> bool {
        self.may_retain
            && !self.spills_all()
            && self.share.bytes() >= RETAINING_BYTES_MIN.max(RETAINING_BYTES * partitions as u64)
    }

    /// True if so many bytes may be in memory now.
    pub(super) fn allows(&mut self, bytes: u64) -> bool {
        self.has_turn(bytes) && self.share.allows(bytes + bytes / PARTS * self.expected)
    }

    /// Notes that there was no memory, and how much it had then: pages become smaller, so that there are some for more
    /// partitions.
    fn note_refusal(&mut self, bytes: u64) {
        self.refused_at = Some(bytes);
    }

    /// True if so many bytes are few, or it is the statement's turn.
    fn has_turn(&mut self, bytes: u64) -> bool {
        if !self.has_turn && bytes > WITHOUT_BYTES && self.writer.spills().try_turn() {
            self.has_turn = true;
            self.writer.keep_spare();
        }
        self.has_turn || bytes <= WITHOUT_BYTES
    }

    /// Bytes that there may be in memory now.
    pub(super) fn share_bytes(&self) -> u64 {
        self.share.bytes()
    }

    /// Bytes of the largest pages of so many partitions, so that a page for each is but a part of the share, or of what it is assured
    /// of.
    pub(super) fn page_bytes_max(&self, partitions: usize, assured_bytes: u64) -> usize {
        let bytes = self.share.bytes().min(self.refused_at.unwrap_or(u64::MAX)).max(assured_bytes);
        let bytes = (bytes / FILLING) as usize / partitions;
        (1 << bytes.max(1).ilog2()).clamp(PAGE_BYTES_MIN, PAGE_BYTES_MAX)
    }

    /// True if all partitions are to be spilled once one is.
    fn spills_all(&self) -> bool {
        self.writer.spills().spilling.options().mode == SpillMode::All
    }

    /// What was spilled.
    pub(super) fn finish(self) -> Vec<SpilledPage> {
        self.writer.finish()
    }

    /// True if something was spilled.
    pub(super) fn has_spilled(&self) -> bool {
        self.writer.has_written()
    }

    /// The partition to spill, if any has tuples.
    fn choose(&self, filling: &[Filling], assured_bytes: u64) -> Option<usize> {
        let mask = &self.writer.spills().mask;
        let worthwhile = match self.retains(filling.len()) {
            true => PACKED_BYTES_MIN,
            false => self.page_bytes_max(filling.len(), assured_bytes) / 2,
        };
        loop {
            let chosen = mask.snapshot();
            let bytes = |partition: &usize| filling[*partition].held_bytes();
            let (known, others): (Vec<usize>, Vec<usize>) =
                (0..filling.len()).partition(|partition| chosen.has(*partition));
            let known = known.into_iter().max_by_key(bytes).filter(|at| bytes(at) > 0);
            if known.is_some_and(|partition| bytes(&partition) >= worthwhile) {
                return known;
            }
            let other = others.into_iter().max_by_key(bytes).filter(|at| bytes(at) > 0);
            let Some(other) =
                other.filter(|at| known.is_none_or(|known| bytes(at) > bytes(&known)))
            else {
                return known;
            };
            if mask.add(other, &chosen) {
                if self.spills_all() {
                    mask.add_all(filling.len());
                }
                return Some(other);
            }
        }
    }
}

impl Materializer {
    /// Takes `bytes` of memory, or spills something, so that there is some when it is asked for again.
    ///
    /// # Errors
    /// [`ExecError::Memory`](crate::ExecError::Memory) if there is nothing to spill; what went wrong with spilling.
    pub(crate) async fn relieve(&mut self, bytes: u64) -> Result<Room> {
        if self.try_reserve(bytes) {
            return Ok(Room::Made);
        }
        let held_bytes = self.held_bytes();
        if let Some(pressure) = &mut self.pressure {
            if !pressure.has_turn(held_bytes + bytes) {
                pressure.writer.spills().turn().await;
                if self.try_reserve(bytes) {
                    return Ok(Room::Made);
                }
            }
            let is_unpartitioned = self.filling.len() == 1 && self.filling[0].used_bytes() > 0;
            if is_unpartitioned || !self.loose.is_empty() {
                return self.spill_unpartitioned().await;
            }
            while self.send_instead().await? {
                if self.try_reserve(bytes) {
                    return Ok(Room::Made);
                }
            }
            if let Some(partition) = self.choose()
                && self.is_worth_spilling(partition)
            {
                let held_bytes = self.held_bytes();
                self.pressure.iter_mut().for_each(|pressure| pressure.note_refusal(held_bytes));
                self.spill(partition).await?;
                self.open_through(partition).await?;
                return Ok(Room::Spilled(partition));
            }
        }
        self.close_through().await?;
        // What is on its way to disk will give its memory back. Where there are no pages that the rest of it is needed for, the page
        // gets all.
        let left_bytes = if self.budget.bytes() == 0 { 0 } else { SPARE_BYTES };
        if let Some(pressure) = &mut self.pressure
            && let Some(memory) = pressure.writer.own_memory(bytes as usize, left_bytes).await?
        {
            self.budget.take(memory);
            return Ok(Room::Made);
        }
        self.budget.reserve(bytes).await?;
        Ok(Room::Made)
    }

    /// True unless pages would go on to be written nearly empty.
    fn is_worth_spilling(&mut self, partition: usize) -> bool {
        let is_poor = self.filling[partition].held_bytes() < POOR_BYTES;
        self.pressure.as_mut().is_none_or(|pressure| {
            pressure.poor_pages += usize::from(is_poor);
            !is_poor || pressure.poor_pages <= POOR_PAGES_MAX
        })
    }

    /// Waits until all that was to be spilled is on disk.
    ///
    /// # Errors
    /// The first that a write has.
    pub async fn settle(&mut self) -> Result<()> {
        self.send_through();
        match &mut self.pressure {
            Some(pressure) => pressure.writer.settle().await,
            None => Ok(()),
        }
    }

    /// Spills what is more than its share, which may have become smaller.
    ///
    /// # Errors
    /// What went wrong with spilling.
    pub(crate) async fn spill_excess(&mut self) -> Result<()> {
        loop {
            let held_bytes = self.held_bytes();
            let Some(pressure) = &mut self.pressure else { return Ok(()) };
            if pressure.allows(held_bytes) {
                return Ok(());
            }
            if self.send_instead().await? {
                continue;
            }
            match self.choose() {
                Some(partition) => self.spill(partition).await?,
                None => return self.close_through().await,
            }
        }
    }

    /// Spills what was stored before there are partitions, which nobody can spill any more when this has finished.
    ///
    /// # Errors
    /// What went wrong with spilling.
    pub(crate) async fn spill_unpartitioned(&mut self) -> Result<Room> {
        if self.filling.len() == 1 {
            self.partition();
        }
        if self.pressure.is_none() || self.loose.is_empty() {
            return Ok(Room::Partitioned);
        }
        self.spill_loose().await?;
        Ok(Room::LooseSpilled)
    }

    /// True if some tuples were spilled.
    pub(crate) fn has_spilled(&self) -> bool {
        self.pressure.as_ref().is_some_and(Pressure::has_spilled)
    }

    /// True if all tuples are to be spilled because some of the operator's were.
    pub(crate) fn must_spill_all(&self) -> bool {
        self.pressure.as_ref().is_some_and(|pressure| {
            pressure.spills_all() && pressure.writer.spills().mask.snapshot().count() > 0
        })
    }

    /// Spills one partition after the other, until they are on disk each time, while that is asked for and there are tuples.
    ///
    /// # Errors
    /// What went wrong with spilling.
    pub(crate) async fn spill_while(&mut self, is_asked_for: impl Fn() -> bool) -> Result<()> {
        while is_asked_for()
            && let Some(partition) = self.choose()
        {
            self.spill(partition).await?;
            self.settle().await?;
        }
        Ok(())
    }

    /// Spills all tuples, behind which there is nothing, or nothing that is counted.
    ///
    /// # Errors
    /// What went wrong with spilling.
    ///
    /// # Panics
    /// If it is none that spills, or tuples are not partitioned.
    pub(crate) async fn spill_all(&mut self) -> Result<()> {
        assert!(self.filling.len() > 1 && self.loose.is_empty(), "partitioned from the beginning");
        for partition in 0..self.filling.len() {
            self.spill(partition).await?;
        }
        Ok(())
    }

    /// Bytes that so many partitions take when they come back, with what all workers have of them, as far as this one can tell; 0 if
    /// most partitions are in memory, as those can be worked on first, and are gone then.
    pub(crate) fn room_for(&self, partitions: u64) -> u64 {
        let Some(pressure) = &self.pressure else { return 0 };
        let spills = pressure.writer.spills();
        if spills.mask.snapshot().count() < self.filling.len() / 2 {
            return 0;
        }
        let workers = spills.workers() as u64;
        let bytes = (pressure.writer.written_bytes() + self.budget.bytes()) * workers;
        partitions * (bytes / self.filling.len() as u64)
    }

    /// Spills partitions so that there are so many bytes free of its share, or [`ROOM`] of that.
    ///
    /// # Errors
    /// What went wrong with spilling.
    pub(crate) async fn make_room_for(&mut self, bytes: u64) -> Result<()> {
        while let Some(partition) = self.lacking_room(bytes).await? {
            self.spill(partition).await?;
        }
        Ok(())
    }

    /// A partition to be spilled, which all workers hear of, so that there are so many bytes free of its share, or [`ROOM`] of that;
    /// `None` if there are, or it cannot spill.
    ///
    /// # Errors
    /// What went wrong with spilling before.
    pub(crate) async fn lacking_room(&mut self, bytes: u64) -> Result<Option<usize>> {
        loop {
            let Some(pressure) = self.pressure.as_ref().filter(|_| bytes > 0) else {
                return Ok(None);
            };
            let share_bytes = pressure.share.bytes();
            let room_bytes = bytes.min(share_bytes / ROOM.1 * ROOM.0);
            if self.held_bytes() + room_bytes <= share_bytes {
                return Ok(None);
            }
            if !self.send_instead().await? {
                return Ok(self.choose());
            }
        }
    }

    /// Sends a page to disk that was retained, if there is one, instead of packing tuples: no partition has enough of them, or pages do not
    /// stay in memory any more. True if it did.
    ///
    /// # Errors
    /// Those of earlier writes.
    async fn send_instead(&mut self) -> Result<bool> {
        let Some(pressure) = &mut self.pressure else { return Ok(false) };
        if pressure.writer.retained_bytes() == 0 {
            return Ok(false);
        }
        let is_worth_packing = |filling: &Filling| filling.held_bytes() >= PACKED_BYTES_MIN;
        if pressure.retains(self.filling.len()) && self.filling.iter().any(is_worth_packing) {
            return Ok(false);
        }
        pressure.writer.send_retained().await
    }

    /// The partition to spill, if it can spill and any has tuples.
    fn choose(&self) -> Option<usize> {
        let assured_bytes = self.budget.assured_bytes();
        self.pressure.as_ref()?.choose(&self.filling, assured_bytes)
    }
}

#[cfg(test)]
mod tests;
