//! Phase two: tuples of the same group become one. What the workers have gathered falls into units by the high bits of the
//! hash, each of which is merged by itself, whole partitions at a time; tuples from before there were partitions are sorted
//! into units by their addresses. If there are few tuples, there is one unit.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::TryFutureExt;
use weft_rt::memory::{Grant, Ledger, Reservation};

use super::keys;
use super::memory::Memory;
use super::operator::{Aggregation, OPERATOR, Part};
use super::state::Tuple;
use super::table::Table;
use crate::error::Result;
use crate::for_lane;
use crate::program::Constant;
use crate::query::Context;
use crate::text::Str;
use crate::tuple::budget::{Budget, patiently};
use crate::tuple::layout::HASH_OFFSET;
use crate::tuple::materializer::{PARTITIONS, StoredPage};
use crate::tuple::{Layout, Page};
use crate::vector::VECTOR_ROWS_MAX;

/// A unit has about so many tuples at least.
const UNIT_TUPLES_MIN: usize = 16 << 10;
/// Tuples after which a merge lets other coroutines run.
const TUPLES_PER_TURN: usize = VECTOR_ROWS_MAX;
const TABLE_BITS_MIN: u32 = 6;

/// What all workers have left.
#[derive(Debug)]
pub(super) struct Gathered {
    pages: Vec<StoredPage>,
    /// What lies behind the tuples.
    _memories: Vec<Memory>,
    _reservations: Vec<Reservation>,
    units: Vec<Unit>,
    /// About how many groups there are.
    groups: usize,
    next: AtomicUsize,
    /// Two to the power of this is the number of units.
    unit_bits: u32,
}

#[derive(Debug, Default)]
struct Unit {
    /// By their numbers.
    pages: Vec<usize>,
    tuples: Vec<Tuple>,
}

/// The hash of a tuple.
#[inline(always)]
fn hash_of(tuple: Tuple) -> u64 {
    // SAFETY: a tuple begins with it.
    unsafe { tuple.address().add(HASH_OFFSET).cast::<u64>().read() }
}

fn tuples_of(page: &Page) -> impl Iterator<Item = Tuple> {
    // SAFETY: the tuples were written in phase one, and one unit has each.
    (0..page.tuples()).map(|number| unsafe { Tuple::at(page.tuple(number)) })
}

impl Gathered {
    /// Sorts into units what workers have left. On a worker.
    pub(super) async fn new(
        operator: &Aggregation,
        parts: Vec<Part>,
        always: &[Vec<Option<Constant>>],
        context: &Context,
    ) -> Result<Gathered> {
        let mut budget = Budget::new(OPERATOR, &context.ledger);
        let mut memories = Vec::new();
        let groups = parts.into_iter().map(|part| {
            memories.push(part.memory);
            part.groups
        });
        let whole = crate::tuple::Materialized::gather(groups);
        let (mut pages, reservation, sketch) = match whole {
            Some(whole) => (whole.pages, Some(whole.reservation), whole.sketch),
            None => (Vec::new(), None, None),
        };
        if pages.is_empty() && !always.is_empty() {
            let page = page_of(operator, always);
            budget.reserve(page.bytes() as u64).await?;
            pages.push(StoredPage { partition: None, page });
        }
        let tuples: usize = pages.iter().map(|stored| stored.page.tuples()).sum();
        let unit_bits =
            (tuples / UNIT_TUPLES_MIN).checked_ilog2().unwrap_or(0).min(PARTITIONS.ilog2());
        let mut units: Vec<Unit> = Vec::new();
        units.resize_with(1 << unit_bits, Unit::default);
        let mut loose = 0;
        for (number, stored) in pages.iter().enumerate() {
            let partition = if unit_bits == 0 { Some(0) } else { stored.partition };
            if let Some(partition) = partition {
                let partitions_per_unit = PARTITIONS >> unit_bits;
                units[partition / partitions_per_unit].pages.push(number);
                continue;
            }
            for tuple in tuples_of(&stored.page) {
                units[(hash_of(tuple) >> (u64::BITS - unit_bits)) as usize].tuples.push(tuple);
                loose += 1;
            }
        }
        budget.reserve((loose * size_of::<Tuple>()) as u64).await?;
        let estimate = sketch.map_or(tuples, |sketch| sketch.estimate() as usize);
        let reservations = reservation.into_iter().chain([budget.finish()]).collect();
        Ok(Gathered {
            pages,
            _memories: memories,
            _reservations: reservations,
            units,
            groups: estimate.clamp(1, tuples.max(1)),
            next: AtomicUsize::new(0),
            unit_bits,
        })
    }

    /// The number of a unit that nobody has taken yet.
    pub(super) fn take(&self) -> Option<usize> {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let unit = self.units.get(number)?;
            if !unit.pages.is_empty() || !unit.tuples.is_empty() {
                return Some(number);
            }
        }
    }
}

/// Groups without rows, of these keys.
fn page_of(operator: &Aggregation, always: &[Vec<Option<Constant>>]) -> Page {
    let layout = &operator.states.layout;
    let constants = || always.iter().flatten().flatten();
    let strings: usize = constants()
        .map(|constant| match constant {
            Constant::Str(bytes) => Layout::long_bytes(Str::new(bytes)),
            _ => 0,
        })
        .sum();
    let bytes = layout.bytes() * always.len() + strings;
    let mut page = Page::new(bytes, layout.bytes());
    for keys in always {
        let long = |key: &Option<Constant>| match key {
            Some(Constant::Str(bytes)) => Layout::long_bytes(Str::new(bytes)),
            _ => 0,
        };
        let slot = page.slot(keys.iter().map(long).sum()).expect("as counted");
        // SAFETY: the slot is this tuple's own, with room for its strings.
        unsafe {
            let tuple = operator.states.begin(slot.tuple);
            let mut strings = slot.strings;
            for (field, key) in layout.fields().iter().zip(keys) {
                strings = for_lane!(field.lane, T => {
                    let value: Option<T> = key.as_ref().map(Constant::value::<T>);
                    keys::write(field, tuple, value, strings)
                });
            }
        }
    }
    page
}

/// The groups of a unit, and what lies behind them if it did not before.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) groups: Vec<Tuple>,
    pub(super) memory: Memory,
    pub(super) reservation: Reservation,
}

/// Merges a unit.
///
/// # Errors
/// [`ExecError::Memory`](crate::ExecError::Memory); [`ExecError::Overflow`](crate::ExecError::Overflow) of a state.
pub(super) async fn merge(
    operator: &Aggregation,
    gathered: &Gathered,
    unit: usize,
    ledger: &Ledger,
) -> Result<Merged> {
    let bits = (gathered.groups >> gathered.unit_bits).max(1) * 3 / 2;
    let bits = (bits.ilog2() + 1).max(TABLE_BITS_MIN);
    let mut memory = Memory::default();
    memory.owe(Table::bytes(bits));
    let mut merging = Merging {
        operator,
        table: Table::new(bits, 0, gathered.unit_bits),
        groups: Vec::new(),
        memory,
        into: Vec::new(),
        from: Vec::new(),
        places: Vec::new(),
        candidates: Vec::new(),
        same: Vec::new(),
    };
    let mut reservation = ledger.empty();
    let unit = &gathered.units[unit];
    let pages = unit.pages.iter().flat_map(|page| tuples_of(&gathered.pages[*page].page));
    let mut tuples = pages.chain(unit.tuples.iter().copied());
    let mut turn = Vec::with_capacity(TUPLES_PER_TURN);
    loop {
        turn.clear();
        turn.extend(tuples.by_ref().take(TUPLES_PER_TURN));
        if turn.is_empty() {
            break;
        }
        merging.add(&mut turn)?;
        reserve(&mut reservation, ledger, merging.memory.take_debt()).await?;
        weft_rt::yield_now().await;
    }
    let Merging { groups, memory, .. } = merging;
    Ok(Merged { groups, memory, reservation })
}

/// Waits for memory, but not for long: the worker's sink, which cannot go on meanwhile, may be who has it.
async fn reserve(reservation: &mut Reservation, ledger: &Ledger, bytes: u64) -> Result<()> {
    if reservation.try_grow(bytes) {
        return Ok(());
    }
    let granted = ledger.reserve(bytes).map_ok(Grant::Memory);
    reservation.merge(patiently(OPERATOR, ledger, bytes, granted).await?);
    Ok(())
}

/// A unit being merged.
struct Merging<'a> {
    operator: &'a Aggregation,
    table: Table,
    /// In the order in which they came.
    groups: Vec<Tuple>,
    memory: Memory,
    into: Vec<Tuple>,
    from: Vec<Tuple>,
    places: Vec<u32>,
    /// Places of the table where tuples that are compared were found.
    candidates: Vec<u32>,
    same: Vec<bool>,
}

impl Merging<'_> {
    /// Adds tuples: each becomes a group, or a part of one.
    fn add(&mut self, tuples: &mut Vec<Tuple>) -> Result<()> {
        self.grow(tuples.len());
        self.places.clear();
        for tuple in tuples.iter() {
            let place = self.table.home(hash_of(*tuple));
            self.table.prefetch(place);
            self.places.push(place);
        }
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
                    self.table.put(place, hash, *tuple);
                    self.groups.push(*tuple);
                }
            }
            tuples.clear();
            self.compare(tuples);
            for fed in &self.operator.states.states {
                fed.state.merge(&self.into, &self.from, &mut self.memory)?;
            }
        }
        Ok(())
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
    fn grow(&mut self, more: usize) {
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
        self.groups.iter().for_each(|group| larger.insert(hash_of(*group), *group));
        self.memory.owe(Table::bytes(bits) - Table::bytes(self.table.bits()));
        self.table = larger;
    }
}
