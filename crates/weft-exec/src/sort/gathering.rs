//! What a worker gathers to be sorted: tuples in memory, and when they outgrow what it may have, they are sorted and go to
//! disk as a run.

use std::sync::Arc;

use weft_rt::memory::Reservation;

use super::entries::Entry;
use super::order::Order;
use super::run::{RUN_BYTES_MAX, RUN_TUPLES_MAX, RunWriter};
use crate::error::Result;
use crate::pace::Pace;
use crate::program::Register;
use crate::query::{Context, PartitionMode};
use crate::registers::Registers;
use crate::spill::Settled;
use crate::spill::writer::Spills;
use crate::tuple::allowed::{Allowance, Sharing};
use crate::tuple::{Materialized, Materializer, Page};

/// What a worker has left.
#[derive(Debug)]
pub(crate) struct Part {
    /// In memory; the reservation is for an entry of each tuple, too.
    pub(super) stored: Materialized,
    /// What runs were written by; it has memory to write another.
    pub(super) runs: Option<RunWriter>,
    /// As long as others still gather.
    pub(super) settled: Option<Settled>,
}

/// A worker's tuples.
#[derive(Debug)]
pub(super) struct Gathering {
    /// Of each run, so many are enough.
    most: usize,
    spills: Option<Spills>,
    pub(super) allowance: Allowance,
    pub(super) materializer: Materializer,
    runs: Option<RunWriter>,
}

impl Gathering {
    pub(super) fn new(
        operator: &'static str,
        order: Arc<Order>,
        most: usize,
        context: &Context,
    ) -> Gathering {
        let spills = Spills::new(context);
        let (sharing, bytes_per_tuple) = (spills.as_ref().map(Sharing::new), size_of::<Entry>());
        let allowance = Allowance { sharing, bytes_per_tuple, held_bytes: 0 };
        let materializer = Gathering::materializer_of(operator, &order, context);
        let writer = |spills: &Spills| RunWriter::new(operator, spills.clone(), order);
        let runs = spills.as_ref().map(writer);
        Gathering { most, spills, allowance, materializer, runs }
    }

    /// What tuples are stored by: in one partition, as they are sorted, not hashed.
    pub(super) fn materializer_of(
        operator: &'static str,
        order: &Order,
        context: &Context,
    ) -> Materializer {
        let (layout, never) = (order.layout().clone(), PartitionMode::Never);
        Materializer::new(layout, operator, &context.ledger, never, false)
    }

    /// True if tuples can go to disk.
    pub(super) fn can_spill(&self) -> bool {
        self.spills.is_some()
    }

    /// Stores the selected tuples, whose bits are in a register. True if those from before went to disk.
    ///
    /// # Errors
    /// [`ExecError::Memory`](crate::ExecError::Memory); what went wrong with spilling.
    pub(super) async fn store(
        &mut self,
        registers: &Registers,
        bits: Register,
        fields: &[Register],
    ) -> Result<bool> {
        let count = registers.selection.count();
        let (mut done, mut has_spilled) = (0, false);
        if let (Some(runs), Some(sharing)) = (&mut self.runs, &self.allowance.sharing)
            && sharing.has_turn()
        {
            runs.keep_spare();
        }
        loop {
            let allowance = &mut self.allowance;
            done = self.materializer.store_some(registers, bits, fields, done, allowance)?;
            if done == count {
                return Ok(has_spilled);
            }
            if let Some(sharing) = self.allowance.sharing.as_mut().filter(|of| !of.has_turn()) {
                sharing.turn().await;
            } else if self.can_spill() && self.materializer.unpartitioned() > 0 {
                self.spill().await?;
                has_spilled = true;
            } else {
                let long_bytes = self.materializer.long_bytes_of(done);
                self.materializer.wait_for_room(long_bytes, &self.allowance).await?;
            }
        }
    }

    /// Sorts tuples in memory into a run: all, or those that came first if there are many.
    async fn spill(&mut self) -> Result<()> {
        let pages = self.materializer.take_pages(RUN_BYTES_MAX, RUN_TUPLES_MAX);
        let layout = self.materializer.layout().clone();
        let bytes_of = |page: &Page| self.allowance.bytes_of(page.bytes(), &layout);
        let bytes: u64 = pages.iter().map(bytes_of).sum();
        let runs = self.runs.as_mut().expect("there is a place to spill to");
        let lent = self.materializer.lend(runs.lacks_bytes().min(bytes));
        let lent_bytes = lent.bytes();
        runs.lend(lent);
        // SAFETY: they were stored with the order's layout, and the bits in place of hashes.
        unsafe { runs.sort(&pages, self.most).await? };
        // Memory goes back to the system.
        Pace::default().drop_all(pages).await;
        let has_more = self.materializer.pages().next().is_some();
        // A page is kept: others may take all that is given back.
        let kept_bytes = if has_more { 0 } else { self.materializer.restart(&self.allowance) };
        self.materializer.release(bytes.saturating_sub(kept_bytes + lent_bytes));
        Ok(())
    }

    /// What there is.
    ///
    /// # Errors
    /// What went wrong with spilling.
    pub(super) async fn end(mut self) -> Result<Part> {
        if let Some(runs) = &mut self.runs {
            runs.settle().await?;
        }
        let stored = self.materializer.finish();
        let held_bytes = stored.reservation.bytes();
        let settled = self.spills.map(|spills| Settled::new(&spills.spilling, held_bytes));
        Ok(Part { stored, runs: self.runs, settled })
    }
}

impl Part {
    /// True if some tuples are on disk.
    pub(super) fn has_spilled(&self) -> bool {
        self.runs.as_ref().is_some_and(RunWriter::has_runs)
    }

    /// The memory of entries, which are another's to make.
    pub(super) fn memory_of_entries(&mut self) -> Reservation {
        let pages: usize = self.pages().map(Page::bytes).sum();
        let reservation = &mut self.stored.reservation;
        reservation.split(reservation.bytes() - pages as u64)
    }

    /// The pages in memory.
    pub(super) fn pages(&self) -> impl Iterator<Item = &Page> + Clone {
        self.stored.pages.iter().map(|stored| &stored.page)
    }
}
