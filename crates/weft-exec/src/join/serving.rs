//! Serving what was put aside, unit by unit: the build side of a unit comes back into memory, gets a directory of its own,
//! and the tuples of its probe side go on from the probe as those do that were not put aside. That of a grace join (`grace`)
//! gets its directory where it has been all the time, unless it was spilled.
//!
//! A unit whose build side does not fit is partitioned anew (`split`). Where that does not help, because few keys have most
//! of its tuples, it is joined block by block: each block of the build side meets all tuples of the probe side. Whether a
//! tuple has no match is known after the last block, so all that do not go on as pairs go on in a pass of their own then.

use std::sync::Arc;

use weft_rt::memory::{Holder, Reservation};

use super::aside::Aside;
use super::blocks::{Block, Blocks};
use super::passes::{Known, Loaded, Pass};
use super::probe::Kind;
use super::split::{SKIPPED_BITS_MAX, pays, split};
use super::state::ProbeState;
use super::unit::{Side, Unit};
use super::{PROBE, Table};
use crate::error::Result;
use crate::pace::Pace;
use crate::profile::{Wait, waiting};
use crate::registers::Registers;
use crate::spill::Share;
use crate::spill::fan::bits_anew;
use crate::spill::writer::Spills;
use crate::tasks::Ahead;
use crate::tuple::budget::{grow_in_turns, patiently};
use crate::vector::VECTOR_ROWS_MAX;

/// Pages that [`working_bytes`] are for.
const WORKING_PAGES: u64 = 3;

/// Memory that a worker has to itself, so that it can go on when all other memory is taken: for a page of either side, and
/// for what is needed to look tuples up in one.
pub(super) fn working_bytes(spills: &Spills) -> u64 {
    WORKING_PAGES * spills.page_bytes_max() as u64
}

/// Memory that pages of the probe side are read into, if it is free: at least, and at most where it is but a part of the budget.
const READ_AHEAD_BYTES: (u64, u64) = (256 << 10, 8 << 20);
const READ_AHEAD_PART: u64 = 64;

/// Of a worker's share, and of its part of the budget, what the next unit may take while one is served.
const AHEAD_SHARE: u64 = 2;
const AHEAD_PART: u64 = 16;

/// One worker's part in serving.
#[derive(Debug)]
pub(super) struct Serving {
    aside: Arc<Aside>,
    vector_rows: usize,
    /// Of [`working_bytes`], what no unit has.
    working: Reservation,
    work: Option<Box<Work>>,
    /// The unit after it, whose build side comes back meanwhile.
    ahead: Option<Ahead<Step>>,
}

/// A unit being served.
#[derive(Debug)]
struct Work {
    share: Share,
    /// Who waits for memory waits for this worker, too.
    _holder: Holder,
    blocks: Blocks,
    turn: Turn,
    probe: Side,
    pass: Pass,
    loaded: Option<Loaded>,
    known: Option<Known>,
}

/// What tuples of the probe side meet in a pass.
#[derive(Debug)]
enum Turn {
    /// The whole build side of the unit.
    Single(Block),
    /// What of the build side has never been on disk.
    InMemory,
    /// A partition of a grace join, which has not been on disk either.
    Partition(usize),
    /// A part of the build side.
    Block(Block),
    /// Nothing: all is known.
    Last,
}

impl Serving {
    /// With memory of [`working_bytes`], if there was as much.
    pub(super) fn new(aside: Arc<Aside>, vector_rows: usize, working: Reservation) -> Serving {
        Serving { aside, vector_rows, working, work: None, ahead: None }
    }

    /// Puts the next tuples into registers; false if there are none left. The steps after the probe are done with those
    /// before.
    ///
    /// # Errors
    /// [`ExecError::Memory`](crate::ExecError::Memory); what went wrong with spilling.
    pub(super) async fn next(
        &mut self,
        state: &mut ProbeState,
        registers: &mut Registers,
    ) -> Result<bool> {
        let aside = &self.aside;
        loop {
            if let Some(work) = &mut self.work {
                work.note(state, aside.probe.kind);
                let loaded =
                    work.pass.load(aside, &work.probe, self.vector_rows, registers).await?;
                work.loaded = loaded;
                if loaded.is_some() {
                    return Ok(true);
                }
                if !work.next_turn(aside).await? {
                    self.working = work.blocks.memory.split(work.blocks.memory.bytes());
                    let more = self.working.bytes().saturating_sub(working_bytes(&aside.spills));
                    self.working.shrink(more);
                    self.work = None;
                }
                continue;
            }
            let step = match self.ahead.take() {
                Some(ahead) => waiting(Wait::Device, ahead.result()).await?,
                None => {
                    let Some(unit) = aside.take() else { return Ok(false) };
                    let working = self.working.split(self.working.bytes());
                    Work::begin(aside, unit, working).await?
                }
            };
            match step {
                Step::Begun(work) => {
                    self.ahead = begin_ahead(aside, &work.share).await;
                    self.work = Some(work);
                }
                Step::Split(units, working) => {
                    aside.give(units);
                    self.working.merge(working);
                    if self.working.bytes() == 0 {
                        self.working = working_memory(aside).await?;
                    }
                }
            }
        }
    }

    /// Looks up what was put into registers.
    ///
    /// # Errors
    /// What the residual condition gives.
    pub(super) async fn begin(
        &self,
        state: &mut ProbeState,
        registers: &mut Registers,
        pace: &mut Pace,
    ) -> Result<bool> {
        let probe = &self.aside.probe;
        let work = self.work.as_ref().expect("tuples were put into registers");
        let loaded = work.loaded.expect("tuples were put into registers");
        let known = work.known.as_ref();
        let has_matched =
            |row: usize| known.is_some_and(|known| known.has_matched(loaded.first + row as u64));
        match &work.turn {
            Turn::Single(_) | Turn::Partition(_) => {
                return state.begin(probe, self.table(), registers, pace).await;
            }
            Turn::Last => {
                let unknown =
                    known.map_or([0; VECTOR_ROWS_MAX / 64], |known| known.unknown(loaded));
                return state.settle_known(probe, registers, has_matched, unknown, pace).await;
            }
            Turn::InMemory | Turn::Block(_) => {}
        }
        if probe.kind != Kind::Outer && !probe.marks_build {
            registers.selection.retain(|row| !has_matched(row));
        }
        state.begin_block(probe, self.table(), registers, pace).await
    }

    /// What the tuples in registers meet.
    pub(super) fn table(&self) -> &Table {
        match self.work.as_ref().map(|work| &work.turn) {
            Some(Turn::Single(block) | Turn::Block(block)) => &block.table,
            Some(Turn::Partition(partition)) => self.aside.partitioned().table(*partition),
            Some(Turn::InMemory | Turn::Last) | None => self.aside.probe.join.table(),
        }
    }
}

/// Begins with the next unit, by a task of this worker's that goes on while it serves one with this share, so that neither the
/// device nor the worker waits for the other. `None` if there is not memory for all of it, beside that of others.
async fn begin_ahead(aside: &Arc<Aside>, share: &Share) -> Option<Ahead<Step>> {
    let (keeps_marks, working) = (aside.keeps_marks(), working_bytes(&aside.spills));
    let bytes = |unit: &Unit| working + Blocks::bytes_of(&unit.build, keeps_marks);
    let bytes_max = (share.bytes() / AHEAD_SHARE).min(aside.spills.part_bytes(AHEAD_PART));
    // There is nothing to wait for if both sides are in memory, and caches are for one pair.
    let is_read = |unit: &Unit| unit.in_memory.is_none() || !unit.probe.spilled.is_empty();
    let needed = aside.of_next(|unit| is_read(unit).then(|| bytes(unit))).flatten();
    let mut memory = aside.spills.ledger.empty();
    if !grow_in_turns(&mut memory, needed.filter(|needed| *needed <= bytes_max)?).await {
        return None;
    }
    // It may be another one by now.
    let unit = aside.take_if(|unit| is_read(unit) && bytes(unit) <= memory.bytes())?;
    memory.shrink(memory.bytes() - bytes(&unit));
    let (tasks, measuring) = (aside.spills.tasks.clone(), aside.spills.measuring.clone());
    let aside = aside.clone();
    let begun = async move { Work::begin(&aside, unit, memory).await };
    // Nobody waits for it yet.
    Some(tasks.spawn_ahead(measuring, waiting(Wait::Other, begun)))
}

/// What becomes of a unit.
#[derive(Debug)]
enum Step {
    Begun(Box<Work>),
    /// With memory of [`working_bytes`], or less.
    Split(Vec<Unit>, Reservation),
}

impl Work {
    async fn begin(aside: &Aside, unit: Unit, mut working: Reservation) -> Result<Step> {
        let Unit { skipped_bits, in_memory, is_heavy, mut build, mut probe } = unit;
        build.unsettle();
        probe.unsettle();
        let (share, holder) = (aside.spills.share(), aside.spills.ledger.holder());
        let keeps_marks = aside.keeps_marks();
        let spare = spare(aside, &probe, &mut working).await?;
        if let Some(partition) = in_memory {
            aside.partitioned().chain(partition, &aside.probe.join).await?;
            let blocks = Blocks::new(build, skipped_bits, working);
            let turn = Turn::Partition(partition);
            let pass = Pass::new(aside, &mut probe, true, spare);
            let (loaded, known) = (None, None);
            let work = Work { share, _holder: holder, blocks, turn, probe, pass, loaded, known };
            return Ok(Step::Begun(Box::new(work)));
        }
        let side_bytes = (build.bytes(), probe.bytes());
        let mut blocks = Blocks::new(build, skipped_bits, working);
        let (bytes, bytes_max) = (blocks.bytes(keeps_marks), share.bytes());
        log::debug!(
            "a unit of {side_bytes:?} bytes on disk needs {bytes}, and may have {bytes_max}"
        );
        let fits = !aside.is_whole
            && (bytes <= bytes_max && blocks.try_reserve(keeps_marks).await
                || blocks.try_reserve_assured(keeps_marks, &aside.assured));
        let can_split = !is_heavy && skipped_bits < SKIPPED_BITS_MAX;
        // First, as blocks take what is free.
        let known = if fits { None } else { known(aside, probe.tuples()).await? };
        if !fits && can_split {
            // What is free may be much less than there may be.
            let block_bytes = blocks.reserve_some(keeps_marks, bytes_max);
            let block_bytes = block_bytes.max(aside.assured.bytes()).max(1);
            let count = bytes.div_ceil(block_bytes);
            if pays(side_bytes, count) {
                let bits = bits_anew(count, block_bytes);
                log::debug!("it is split by {bits} bits, as {block_bytes} bytes are free");
                drop((share, holder, known));
                let (build, mut working) = blocks.give_back();
                working.merge(spare);
                working.shrink(working.bytes().saturating_sub(working_bytes(&aside.spills)));
                let unit = Unit { skipped_bits, in_memory, is_heavy, build, probe };
                let units = split(aside, unit, bits, &mut working).await?;
                return Ok(Step::Split(units, working));
            }
        }
        let turn = match aside.is_whole {
            true => Turn::InMemory,
            false => Turn::Block(blocks.next(aside, bytes_max).await?),
        };
        let (turn, known) = match turn {
            Turn::Block(block) if blocks.are_done() => (Turn::Single(block), None),
            turn => (turn, known),
        };
        let is_last = matches!(turn, Turn::Single(_));
        let pass = Pass::new(aside, &mut probe, is_last, spare);
        let loaded = None;
        let work = Work { share, _holder: holder, blocks, turn, probe, pass, loaded, known };
        Ok(Step::Begun(Box::new(work)))
    }

    /// Notes what was found out of the tuples that were loaded.
    fn note(&mut self, state: &mut ProbeState, kind: Kind) {
        let (Some(loaded), Some(known)) = (self.loaded.take(), &mut self.known) else { return };
        if matches!(self.turn, Turn::Last) {
            return;
        }
        for row in (0..loaded.rows).filter(|row| state.has_matched(*row)) {
            known.match_tuple(loaded.first + row as u64);
        }
        if matches!(kind, Kind::Anti | Kind::Mark { .. })
            && let Some(rows) = state.take_unknown()
        {
            known.add_unknown(loaded, &rows);
        }
    }

    /// Goes on with the next block, or with what is known after the last; false if nothing is left to be done.
    async fn next_turn(&mut self, aside: &Aside) -> Result<bool> {
        let is_last = matches!(self.turn, Turn::Single(_) | Turn::Partition(_) | Turn::Last);
        match std::mem::replace(&mut self.turn, Turn::Last) {
            Turn::Single(block) | Turn::Block(block) => {
                self.blocks.memory.merge(block.finish(aside).await);
            }
            Turn::InMemory | Turn::Partition(_) | Turn::Last => {}
        }
        self.blocks.memory.merge(self.pass.take_spare());
        let is_done = self.blocks.are_done();
        if is_last || is_done && self.known.is_none() {
            return Ok(false);
        }
        let spare = spare(aside, &self.probe, &mut self.blocks.memory).await?;
        if !is_done {
            self.turn = Turn::Block(self.blocks.next(aside, self.share.bytes()).await?);
        }
        let is_last = self.blocks.are_done() && (is_done || self.known.is_none());
        self.pass = Pass::new(aside, &mut self.probe, is_last, spare);
        Ok(true)
    }
}

/// What is known of so many tuples; nothing if none of it is needed.
async fn known(aside: &Aside, tuples: usize) -> Result<Option<Known>> {
    if matches!(aside.probe.kind, Kind::Inner | Kind::Nothing) {
        return Ok(None);
    }
    let has_unknown = aside.probe.join.has_unknown();
    let bytes = Known::bytes(tuples, has_unknown);
    let ledger = &aside.spills.ledger;
    let memory = patiently(PROBE, ledger, bytes, ledger.reserve_or_spill(bytes)).await?;
    Ok(Some(Known::new(tuples, has_unknown, memory)))
}

/// Memory for a page of the probe side, of what there is already if that suffices; if there is more, pages are read ahead.
async fn spare(aside: &Aside, probe: &Side, working: &mut Reservation) -> Result<Reservation> {
    if probe.spilled.is_empty() {
        return Ok(aside.spills.ledger.empty());
    }
    let bytes = probe.on_disk.page_bytes;
    let mut spare = working.split(bytes.min(working.bytes()));
    let missing = bytes - spare.bytes();
    if !spare.try_grow(missing) {
        let ledger = &aside.spills.ledger;
        let granted = ledger.reserve_or_spill(missing);
        spare.merge(patiently(PROBE, ledger, missing, granted).await?);
    }
    let (least, most) = READ_AHEAD_BYTES;
    let read_ahead = aside.spills.part_bytes(READ_AHEAD_PART).clamp(least, most);
    let mut pace = Pace::default();
    while spare.bytes() < read_ahead
        && spare
            .try_grow(least.saturating_sub(spare.bytes()).max(aside.spills.page_bytes_max() as u64))
    {
        pace.keep().await;
    }
    Ok(spare)
}

/// Memory of [`working_bytes`], if it is free.
pub(super) fn try_working_memory(spills: &Spills) -> Option<Reservation> {
    spills.ledger.try_reserve(working_bytes(spills))
}

/// Memory of [`working_bytes`].
///
/// # Errors
/// [`ExecError::Memory`](crate::ExecError::Memory)
pub(super) async fn working_memory(aside: &Aside) -> Result<Reservation> {
    let (ledger, bytes) = (&aside.spills.ledger, working_bytes(&aside.spills));
    patiently(PROBE, ledger, bytes, ledger.reserve_or_spill(bytes)).await
}
