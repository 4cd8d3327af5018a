//! What all workers have left, in units that are merged one by one: by the high bits of the hash, whole partitions at a time;
//! tuples from before there were partitions are sorted into units by their addresses. If there are few tuples, there is one
//! unit, unless partitions are to be merged by themselves. A unit's memory is free when its groups have been passed on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use weft_rt::memory::{Ledger, Reservation};

use super::keys;
use super::memory::Memory;
use super::operator::{Aggregation, OPERATOR, Part};
use super::state::Tuple;
use super::unit::{Unit, hash_of, tuples_of};
use super::units::Units;
use crate::error::Result;
use crate::for_lane;
use crate::pace::Pace;
use crate::profile::{Fact, Facts};
use crate::program::Constant;
use crate::query::{Context, PartitionMode};
use crate::spill::Settled;
use crate::spill::writer::{SpilledPage, Spills};
use crate::text::Str;
use crate::tuple::budget::Budget;
use crate::tuple::materialized::StoredPage;
use crate::tuple::{Layout, Materialized, Page};

/// A unit has about so many tuples at least, if there is memory for that.
const UNIT_TUPLES_MIN: usize = 16 << 10;
/// If all take more than this part of the budget, each partition is a unit: those not begun can go to disk for what the first need to be
/// merged, and for whoever works on their groups.
const SCARCE_PART: u64 = 4;

/// What all workers have left.
#[derive(Debug)]
pub(super) struct Gathered {
    units: Arc<Units>,
    /// How many nobody has asked for yet.
    left: AtomicUsize,
    loose: Arc<Loose>,
    spills: Option<Spills>,
    has_spilled: bool,
    /// About how many groups there will be.
    groups: u64,
    facts: Facts,
    /// Units that were partitioned anew, and the bytes of the largest hash table, so far.
    splits: AtomicU64,
    table_bytes: AtomicU64,
}

/// What several units have tuples of: pages from before there were partitions, and what lies behind them.
#[derive(Debug)]
pub(super) struct Loose {
    _pages: Vec<Page>,
    _memories: Vec<Memory>,
    _reservation: Reservation,
    _settled: Option<Settled>,
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
        let whole = Materialized::gather(groups).await;
        let mut whole = whole.unwrap_or_else(|| Materialized {
            layout: operator.states.layout.clone(),
            pages: Vec::new(),
            spilled: Vec::new(),
            sketch: None,
            reservation: context.ledger.empty(),
        });
        if whole.tuples() == 0 && !always.is_empty() {
            let page = page_of(operator, always);
            budget.reserve(page.bytes() as u64).await?;
            whole.pages.push(StoredPage { partition: None, writer: None, page });
        }
        let tuples = whole.tuples();
        let mut reservation = whole.reservation;
        let retained_bytes: u64 = whole.spilled.iter().map(SpilledPage::retained_bytes).sum();
        let held_bytes = reservation.bytes() + retained_bytes;
        // Partitions are merged by themselves if some are on disk, or others may have to be, or if that is to be measured.
        let is_each = !whole.spilled.is_empty()
            || held_bytes > context.ledger.limit() / SCARCE_PART
            || context.partition == PartitionMode::Always;
        let partition_bits = operator.partition_bits(context);
        let unit_bits = match is_each {
            true => partition_bits,
            false => (tuples / UNIT_TUPLES_MIN).checked_ilog2().unwrap_or(0),
        };
        let unit_bits = unit_bits.min(partition_bits);
        let estimate = whole.sketch.as_ref().map_or(tuples, |sketch| sketch.estimate() as usize);
        let estimate = estimate.clamp(1, tuples.max(1));
        let ledger = &context.ledger;
        let mut units: Vec<Unit> =
            (0..1 << unit_bits).map(|_| Unit::new(unit_bits, ledger)).collect();
        let unit_of = |partition: usize| partition >> (partition_bits - unit_bits);
        let mut loose_pages = Vec::new();
        let mut loose = 0;
        let mut pace = Pace::default();
        for StoredPage { partition, page, .. } in whole.pages {
            if let Some(partition) = partition {
                let unit = &mut units[unit_of(partition)];
                unit.hold(reservation.split(page.bytes() as u64));
                unit.pages.push(page);
                pace.keep().await;
                continue;
            }
            for tuple in tuples_of(&page) {
                let unit = hash_of(tuple).checked_shr(u64::BITS - unit_bits).unwrap_or(0);
                units[unit as usize].loose.push(tuple);
                loose += 1;
            }
            loose_pages.push(page);
            pace.keep().await;
        }
        for spilled in whole.spilled {
            units[unit_of(spilled.partition)].spilled.push(spilled);
            pace.keep().await;
        }
        for memory in &mut memories {
            for partition in 0..1 << partition_bits {
                let arena = memory.take(Some(partition));
                if arena.bytes() > 0 {
                    let unit = &mut units[unit_of(partition)];
                    unit.hold(reservation.split(arena.bytes()));
                    unit.arenas.push(arena);
                }
                pace.keep().await;
            }
        }
        budget.reserve((loose * size_of::<Tuple>()) as u64).await?;
        reservation.merge(budget.finish());
        let spills = operator.spills(context);
        if let Some(spills) = &spills {
            units.iter_mut().for_each(|unit| unit.settle(&spills.spilling));
        }
        // Stable: the units in memory give theirs back before others need it.
        units.retain(|unit| !unit.is_empty());
        units.sort_by_key(|unit| (unit.is_on_disk(), !unit.spilled.is_empty()));
        for unit in &mut units {
            unit.expect(estimate, tuples);
            pace.keep().await;
        }
        let packed = units.iter().filter(|unit| !unit.spilled.is_empty()).count();
        let on_disk = units.iter().filter(|unit| unit.is_on_disk()).count();
        let mut facts = vec![
            Fact::count("partial groups", tuples as u64),
            Fact::bytes("memory", held_bytes),
            Fact::count("units", units.len() as u64),
        ];
        if packed > 0 {
            facts.push(Fact::count("partitions", 1 << partition_bits));
            facts.push(Fact::count("partitions packed", packed as u64));
        }
        if on_disk > 0 {
            facts.push(Fact::count("partitions on disk", on_disk as u64));
        }
        let settled =
            spills.as_ref().map(|spills| Settled::new(&spills.spilling, reservation.bytes()));
        let loose = Loose {
            _pages: loose_pages,
            _memories: memories,
            _reservation: reservation,
            _settled: settled,
        };
        Ok(Gathered {
            left: AtomicUsize::new(units.len()),
            units: Units::new(
                units,
                operator.states.layout.clone(),
                spills.clone(),
                &context.cancel,
            ),
            loose: Arc::new(loose),
            spills,
            has_spilled: packed > 0,
            groups: estimate as u64,
            facts,
            splits: AtomicU64::new(0),
            table_bytes: AtomicU64::new(0),
        })
    }

    /// True as often as there are units: then there will be one for whoever has asked.
    pub(super) fn has_another(&self) -> bool {
        let one_less = |left: usize| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }

    /// The next unit, for one of those who have been told that there is another.
    pub(super) async fn take(&self) -> Unit {
        self.units.take().await
    }

    /// The next unit, if there is one for each of so many workers beside it, `needs` gives the bytes that it needs, and these
    /// are free. It is not to be asked for then.
    pub(super) fn take_with(
        &self,
        workers: usize,
        ledger: &Ledger,
        needs: impl FnOnce(&Unit) -> Option<u64>,
    ) -> Option<(Unit, Reservation)> {
        if self.left.load(Ordering::Relaxed) <= workers || !self.has_another() {
            return None;
        }
        let taken = self.units.take_with(ledger, needs);
        if taken.is_none() {
            self.left.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    /// About how many groups there will be.
    pub(super) fn groups(&self) -> u64 {
        self.groups
    }

    /// What was gathered.
    pub(super) fn facts(&self) -> Facts {
        self.facts.clone()
    }

    /// What merging it took.
    pub(super) fn merge_facts(&self) -> Facts {
        let largest = self.table_bytes.load(Ordering::Relaxed);
        let mut facts = vec![Fact::bytes("largest hash table", largest)];
        let splits = self.splits.load(Ordering::Relaxed);
        if splits > 0 {
            facts.push(Fact::count("units partitioned anew", splits));
        }
        facts
    }

    /// A unit was partitioned anew.
    pub(super) fn note_split(&self) {
        self.splits.fetch_add(1, Ordering::Relaxed);
    }

    /// A unit was merged, with a hash table of so many bytes.
    pub(super) fn note_table(&self, bytes: u64) {
        self.table_bytes.fetch_max(bytes, Ordering::Relaxed);
    }

    /// What several units have tuples of.
    pub(super) fn loose(&self) -> &Arc<Loose> {
        &self.loose
    }

    /// True if units were packed, on disk or not, when all were gathered.
    pub(super) fn has_spilled(&self) -> bool {
        self.has_spilled
    }

    /// What units that were spilled are read by.
    pub(super) fn spills(&self) -> Option<&Spills> {
        self.spills.as_ref()
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
