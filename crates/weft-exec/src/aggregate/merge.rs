//! Phase two: tuples of the same group become one, a unit at a time, where they lie.

use std::sync::Arc;

use futures::future::LocalBoxFuture;
use futures::{FutureExt, TryFutureExt};
use weft_rt::memory::{Grant, Ledger, Reservation};

use super::keys;
use super::memory::{Arena, Memory};
use super::operator::{Aggregation, OPERATOR};
use super::outgrown::{Copies, merge_copying};
use super::state::Tuple;
use super::table::Table;
use super::unit::{Source, Sources, Unit, hash_of};
use crate::error::Result;
use crate::pace::Pace;
use crate::spill::writer::Spills;
use crate::spill::{Assured, OfAssured, Settled};
use crate::tuple::budget::patiently;
use crate::tuple::materializer::{PAGE_BYTES_MIN, PARTITIONS};
use crate::vector::VECTOR_ROWS_MAX;

/// Tuples after which a merge lets other coroutines run.
pub(super) const TUPLES_PER_TURN: usize = VECTOR_ROWS_MAX;
const TABLE_BITS_MIN: u32 = 6;
/// What tuples with lists and sets need beside them when they are merged, as a multiple of their bytes: tables, and what
/// results are made by.
const BEHIND_FACTOR: u64 = 2;
/// A unit that takes less is not partitioned anew if there is memory for it: pages would be nearly empty.
const UNSPLIT_BYTES: u64 = (PARTITIONS * PAGE_BYTES_MIN) as u64;

/// What becomes of a unit.
#[derive(Debug)]
pub(super) enum Step {
    /// Its groups.
    Merged(Box<Merged>),
    /// Units instead of it, as its groups outgrow memory.
    Split(Vec<Unit>),
}

/// Pages, and chunks of what lies behind tuples, that are given back at once: that takes less than what a vector does.
const FREED_AT_ONCE: usize = 16;

/// The groups of a unit, and what they lie in.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) groups: Vec<Tuple>,
    /// What lies behind the groups if it did not before.
    pub(super) memory: Memory,
    pub(super) reservation: Reservation,
    /// Bytes of the hash table by which they were found.
    pub(super) table_bytes: u64,
    /// What the groups lie in.
    pub(super) lie_in: LieIn,
    /// Of what was read back, as long as it is passed on.
    pub(super) settled: Option<Settled>,
}

/// What groups lie in.
#[derive(Debug)]
pub(super) enum LieIn {
    /// What they came in, what lies behind that, and memory for both.
    Sources(Vec<Source>, Box<(Vec<Arena>, Reservation, Option<Settled>)>),
    Copies(Option<Copies>),
}

impl Merged {
    /// Gives it back: in turns, if it is much.
    pub(super) fn free(self) -> Option<LocalBoxFuture<'static, ()>> {
        let Merged { memory, reservation, lie_in, settled, .. } = self;
        let (sources, mut arenas, behind, copies) = match lie_in {
            LieIn::Sources(sources, behind) => {
                let (arenas, reservation, settled) = *behind;
                (sources, arenas, Some((reservation, settled)), None)
            }
            LieIn::Copies(copies) => (Vec::new(), Vec::new(), None, copies),
        };
        arenas.extend(memory.into_arenas());
        let count = sources.len() + arenas.iter().map(Arena::chunks).sum::<usize>();
        // After what it is for.
        let memory = (reservation, behind, settled);
        if count <= FREED_AT_ONCE {
            drop((sources, arenas, copies));
            drop(memory);
            return None;
        }
        let freeing = async move {
            let mut pace = Pace::default();
            pace.drop_all(sources).await;
            for arena in arenas {
                pace.drop_all(arena.into_chunks()).await;
            }
            drop(copies);
            drop(memory);
        };
        Some(freeing.boxed_local())
    }
}

/// Merges a unit, which was packed in part if it has been `spilled` to be read by these.
///
/// # Errors
/// [`ExecError::Memory`](crate::ExecError::Memory); [`ExecError::Overflow`](crate::ExecError::Overflow) of a state; what went
/// wrong with spilling.
pub(super) async fn merge(
    operator: &Aggregation,
    mut unit: Unit,
    spilled: Option<(&Spills, &Arc<Assured>)>,
    ledger: &Ledger,
) -> Result<Step> {
    unit.check()?;
    match spilled {
        Some((spills, assured)) => {
            let share = spills.share();
            let bytes = needed_bytes(operator, &unit);
            let allowed_bytes = share.bytes().max(UNSPLIT_BYTES);
            let memory = if bytes <= allowed_bytes { ledger.try_reserve(bytes) } else { None };
            let own_bytes = if memory.is_some() { assured.bytes() } else { 0 };
            match memory.or_else(|| assured.try_reserve(bytes)) {
                Some(memory) => {
                    let settled = Settled::new(&spills.spilling, bytes);
                    drop(share);
                    let assured = assured.of(own_bytes);
                    merge_within(operator, unit, (spills, assured), memory, settled).await
                }
                None => merge_copying(operator, unit, spills, assured, &share).await,
            }
        }
        None => {
            let sources = Sources::new(unit, None, ledger.empty());
            merge_in_place(operator, sources, ledger.empty(), None).await
        }
    }
}

/// Bytes of memory in which a unit can be merged where its tuples lie when they have come back.
pub(super) fn needed_bytes(operator: &Aggregation, unit: &Unit) -> u64 {
    unit.lacks_bytes() + bytes_behind(operator, unit)
}

/// Of these, what lies behind the tuples.
fn bytes_behind(operator: &Aggregation, unit: &Unit) -> u64 {
    let tuples = unit.tuples();
    // A list of groups that grows by doubling.
    let bytes = Table::bytes(table_bits(tuples)) + (2 * tuples * size_of::<Tuple>()) as u64;
    match operator.states.layout.behind().is_empty() {
        true => bytes,
        false => bytes + BEHIND_FACTOR * (unit.spilled_bytes() + unit.held_bytes()),
    }
}

/// Merges a unit in memory of [`needed_bytes`], which `settled` counts.
///
/// # Errors
/// As [`merge`].
pub(super) async fn merge_within(
    operator: &Aggregation,
    mut unit: Unit,
    (spills, assured): (&Spills, OfAssured),
    mut memory: Reservation,
    settled: Settled,
) -> Result<Step> {
    unit.check()?;
    let behind = memory.split(bytes_behind(operator, &unit));
    let sources = Sources::new(unit, Some(spills), memory);
    let mut step = merge_in_place(operator, sources, behind, Some(assured)).await?;
    if let Step::Merged(merged) = &mut step {
        merged.settled = Some(settled);
    }
    Ok(step)
}

/// Merges tuples where they lie. `free` is memory for what lies behind them.
pub(super) async fn merge_in_place(
    operator: &Aggregation,
    mut sources: Sources,
    mut free: Reservation,
    mut assured: Option<OfAssured>,
) -> Result<Step> {
    let mut merging = Merging::new(operator, sources.groups, sources.skipped_bits);
    let mut reservation = free.split(0);
    let mut kept = Vec::new();
    let mut turn = Vec::with_capacity(TUPLES_PER_TURN);
    while let Some(mut source) = sources.next().await? {
        source.unpack(&operator.states.layout);
        let mut tuples = source.tuples();
        loop {
            turn.clear();
            turn.extend(tuples.by_ref().take(TUPLES_PER_TURN));
            if turn.is_empty() {
                break;
            }
            merging.add(&mut turn).await?;
            let debt_bytes = merging.memory.take_debt();
            let free_bytes = debt_bytes.min(free.bytes());
            reservation.merge(free.split(free_bytes));
            reserve(&mut reservation, debt_bytes - free_bytes, assured.as_mut()).await?;
            weft_rt::yield_now().await;
        }
        drop(tuples);
        kept.push(source);
    }
    let table_bytes = merging.table_bytes();
    let Merging { groups, memory, .. } = merging;
    let needed_bytes = operator.states.needs(&groups).await;
    let free_bytes = needed_bytes.min(free.bytes());
    reservation.merge(free.split(free_bytes));
    reserve(&mut reservation, needed_bytes - free_bytes, assured.as_mut()).await?;
    let lie_in = LieIn::Sources(kept, Box::new(sources.end()));
    let settled = None;
    let merged = Merged { groups, memory, reservation, table_bytes, lie_in, settled };
    Ok(Step::Merged(Box::new(merged)))
}

/// Waits for memory, but not for long: the worker's sink, which cannot go on meanwhile, may be who has it. What workers are assured
/// of is taken rather than to wait, or at last to fail: they might all wait for each other.
pub(super) async fn reserve(
    reservation: &mut Reservation,
    bytes: u64,
    mut assured: Option<&mut OfAssured>,
) -> Result<()> {
    if bytes == 0 || reservation.try_grow(bytes) {
        return Ok(());
    }
    if let Some(memory) = assured.as_mut().and_then(|own| own.try_reserve_own(bytes)) {
        reservation.merge(memory);
        return Ok(());
    }
    let ledger = &reservation.ledger().clone();
    let granted = ledger.reserve(bytes).map_ok(Grant::Memory);
    let granted = patiently(OPERATOR, ledger, bytes, granted).await;
    let at_last = || assured.and_then(|assured| assured.try_reserve_at_last(bytes));
    reservation.merge(granted.or_else(|error| at_last().ok_or(error))?);
    Ok(())
}

/// Two to the power of this are the entries of a table for so many groups.
pub(super) fn table_bits(groups: usize) -> u32 {
    ((groups.max(1) * 3 / 2).max(1).ilog2() + 1).max(TABLE_BITS_MIN)
}

/// A unit being merged.
pub(super) struct Merging<'a> {
    operator: &'a Aggregation,
    table: Table,
    /// In the order in which they came.
    pub(super) groups: Vec<Tuple>,
    pub(super) memory: Memory,
    /// Groups are copied to these if they are not to stay where they are.
    pub(super) copies: Option<Copies>,
    into: Vec<Tuple>,
    from: Vec<Tuple>,
    places: Vec<u32>,
    /// Places of the table where tuples that are compared were found.
    candidates: Vec<u32>,
    same: Vec<bool>,
}

impl<'a> Merging<'a> {
    /// No groups yet, of about so many whose hashes have the first `skipped_bits` in common.
    pub(super) fn new(operator: &'a Aggregation, groups: usize, skipped_bits: u32) -> Merging<'a> {
        let bits = table_bits(groups);
        let mut memory = Memory::default();
        memory.owe(Table::bytes(bits));
        Merging {
            operator,
            table: Table::new(bits, 0, skipped_bits),
            groups: Vec::new(),
            memory,
            copies: None,
            into: Vec::new(),
            from: Vec::new(),
            places: Vec::new(),
            candidates: Vec::new(),
            same: Vec::new(),
        }
    }

    /// Bytes of the hash table.
    pub(super) fn table_bytes(&self) -> u64 {
        Table::bytes(self.table.bits())
    }

    /// Adds tuples: each becomes a group, or a part of one. Those stay for which there is no room.
    pub(super) async fn add(&mut self, tuples: &mut Vec<Tuple>) -> Result<()> {
        self.grow(tuples.len()).await;
        self.add_grown(tuples)
    }

    /// As [`Merging::add`], if the table is large enough.
    fn add_grown(&mut self, tuples: &mut Vec<Tuple>) -> Result<()> {
        self.places.clear();
        for tuple in tuples.iter() {
            let place = self.table.home(hash_of(*tuple));
            self.table.prefetch(place);
            self.places.push(place);
        }
        let mut without_room = Vec::new();
        while !tuples.is_empty() {
            self.into.clear();
            self.from.clear();
            self.candidates.clear();
            for (tuple, place) in tuples.iter().zip(&self.places) {
                let hash = hash_of(*tuple);
                let (place, found) = self.table.look(hash, *place);
                if let Some(group) = found {
                    weft_rt::prefetch_line(group.address());
                    self.into.push(group);
                    self.from.push(*tuple);
                    self.candidates.push(place);
                } else {
                    let group = match &mut self.copies {
                        None => Some(*tuple),
                        Some(copies) => copies.copy(*tuple, &mut self.memory),
                    };
                    if let Some(copy) = group.filter(|group| group != tuple) {
                        self.operator.states.copy_sets(copy, *tuple, &mut self.memory)?;
                    }
                    let Some(group) = group else {
                        without_room.push(*tuple);
                        continue;
                    };
                    self.table.put(place, hash, group);
                    self.groups.push(group);
                }
            }
            tuples.clear();
            self.compare(tuples);
            for fed in &self.operator.states.states {
                fed.state.merge(&self.into, &self.from, &mut self.memory)?;
            }
        }
        *tuples = without_room;
        Ok(())
    }

    /// Waits for room for a copy of a tuple, if groups are copied.
    pub(super) async fn make_room(&mut self, tuple: Tuple) -> Result<()> {
        match &mut self.copies {
            Some(copies) => copies.make_room(tuple).await,
            None => Ok(()),
        }
    }

    /// Those of `from` that are not of the group that they were found for go on from the place after.
    fn compare(&mut self, others: &mut Vec<Tuple>) {
        self.same.clear();
        self.same.extend(
            self.into.iter().zip(&self.from).map(|(into, from)| hash_of(*into) == hash_of(*from)),
        );
        let layout = &self.operator.states.layout;
        let keys = self.operator.keys;
        keys::compare_tuples(layout, keys, &self.into, &self.from, &mut self.same);
        self.places.clear();
        let mut kept = 0;
        for (number, same) in self.same.iter().enumerate() {
            if *same {
                (self.into[kept], self.from[kept]) = (self.into[number], self.from[number]);
                kept += 1;
            } else {
                others.push(self.from[number]);
                self.places.push(self.table.after(self.candidates[number]));
            }
        }
        self.into.truncate(kept);
        self.from.truncate(kept);
    }

    /// Makes room for `more` groups.
    async fn grow(&mut self, more: usize) {
        let mut bits = self.table.bits();
        while (self.groups.len() + more) * 4 > 3 << bits {
            bits += 1;
        }
        let before = self.groups.capacity();
        self.groups.reserve(more);
        self.memory.owe(((self.groups.capacity() - before) * size_of::<Tuple>()) as u64);
        if bits == self.table.bits() {
            return;
        }
        let mut larger = Table::new(bits, 0, self.table.skipped_bits());
        let mut pace = Pace::default();
        for groups in self.groups.chunks(VECTOR_ROWS_MAX) {
            groups.iter().for_each(|group| larger.insert(hash_of(*group), *group));
            pace.keep().await;
        }
        self.memory.owe(Table::bytes(bits) - Table::bytes(self.table.bits()));
        self.table = larger;
    }
}
