//! Units that may outgrow memory: their groups are copied to pages of their own while what they come from is read page by page
//! and forgotten. If that does not fit, the unit is partitioned anew by the next bits of the hash, and each partition, of which
//! some may be spilled again, is a unit. Groups with lists are not copied, as a list takes as much memory as its parts do.
//!
//! Several workers do that at once, and nobody waits for another in the end: each is assured of some memory (`spill/assured`), and has
//! at least some from the beginning for a page that is read and one that is written, by which it partitions a unit when others have all
//! else; and those whose unit can only grow take turns.

use std::sync::Arc;

use weft_rt::memory::{Ledger, Reservation};
use weft_rt::sync::latch::ExclusiveGuard;

use super::memory::Memory;
use super::merge::{
    LieIn, Merged, Merging, Step, TUPLES_PER_TURN, merge_in_place, reserve, table_bits,
};
use super::operator::{Aggregation, OPERATOR};
use super::state::Tuple;
use super::table::Table;
use super::unit::{Sources, Unit};
use crate::error::Result;
use crate::pace::Pace;
use crate::profile::{Wait, waiting};
use crate::query::PartitionMode;
use crate::spill::fan::bits_anew;
use crate::spill::frozen::page_bytes;
use crate::spill::writer::Spills;
use crate::spill::{Assured, Settled, Share};
use crate::text::Str;
use crate::tuple::materializer::{PAGE_BYTES_MAX, PAGE_BYTES_MIN};
use crate::tuple::pack::{self, Form};
use crate::tuple::{Layout, Materializer, Page};

/// Units are not split any further when all of their tuples have so many bits in common.
const SKIPPED_BITS_MAX: u32 = 40;

/// Merges a unit that may outgrow memory.
///
/// # Errors
/// As [`merge`](super::merge::merge).
pub(super) async fn merge_copying(
    operator: &Aggregation,
    mut unit: Unit,
    spills: &Spills,
    assured: &Arc<Assured>,
    share: &Share,
) -> Result<Step> {
    let ledger = &spills.ledger;
    let states = &operator.states;
    let can_split = unit.skipped_bits < SKIPPED_BITS_MAX;
    // Of lists nothing would become less by being copied, of sets of one group much.
    let may_copy = !states.has_lists;
    let _turn = match can_split {
        true => None,
        false => Some(turn(operator, &mut unit, spills).await?),
    };
    if !can_split && !may_copy {
        let sources = Sources::new(unit, Some(spills), ledger.empty());
        return merge_in_place(operator, sources, ledger.empty(), Some(assured.of(0))).await;
    }
    let page_bytes = (unit.largest_page_bytes() + PAGE_BYTES_MIN) as u64;
    let pages_bytes = page_bytes * if can_split { 2 } else { 1 };
    let mut at_last = assured.of(0);
    let mut pages = assured.reserve_or_none(pages_bytes);
    let assured_bytes = assured.bytes().saturating_sub(pages.bytes());
    let lacks_bytes = pages_bytes - pages.bytes();
    if !pages.try_grow(lacks_bytes) {
        unit.spill(&states.layout, spills).await?;
        reserve(&mut pages, lacks_bytes, Some(&mut at_last)).await?;
    }
    let of_reader = pages.split(page_bytes);
    // What it has in memory is freed as it is copied: that is a part of the worker's share.
    unit.unsettle();
    let held_bytes = unit.held_bytes();
    let skipped_bits = unit.skipped_bits;
    let groups = unit.groups;
    let bytes_per_tuple = unit.spilled_bytes() / unit.tuples() as u64 + 1;
    let result_bytes = groups as u64 * bytes_per_tuple + Table::bytes(table_bits(groups));
    let mut sources = Sources::new(unit, Some(spills), of_reader);
    // What is free may be much less than there may be.
    let most_bytes = share.bytes().saturating_sub(held_bytes).min(2 * result_bytes);
    let free_bytes = free_bytes(ledger, most_bytes, assured_bytes);
    let bits = bits_anew(result_bytes.div_ceil(free_bytes.max(1)), free_bytes);
    let bits = operator.limited_bits(bits);
    let mut split = Split { operator, spills, assured, assured_bytes, skipped_bits, bits, pages };
    if can_split && (!may_copy || result_bytes > free_bytes) {
        let mut parts = split.begin();
        split.add_sources(&mut parts, &mut sources).await?;
        return split.end(parts).await;
    }
    let mut merging = Merging::new(operator, groups, skipped_bits);
    merging.memory.copy_merged();
    let most_bytes = if can_split { free_bytes } else { u64::MAX };
    let mut own = ledger.empty();
    if free_bytes <= assured_bytes {
        own.merge(assured.reserve_or_none(assured_bytes));
        split.assured_bytes -= own.bytes();
    }
    let mut behind = own.split(merging.memory.debt_bytes().min(own.bytes()));
    merging.memory.pay(behind.bytes());
    merging.copies = Some(Copies::new(states.layout.clone(), own, most_bytes));
    let mut turn = Vec::with_capacity(TUPLES_PER_TURN);
    while let Some(mut source) = sources.next().await? {
        source.unpack(&states.layout);
        let mut tuples = source.tuples();
        loop {
            turn.clear();
            turn.extend(tuples.by_ref().take(TUPLES_PER_TURN));
            if turn.is_empty() {
                break;
            }
            merging.add(&mut turn).await?;
            while !can_split && !turn.is_empty() {
                // Of few groups the tuples take little beside what lies behind them.
                merging.make_room(turn[0]).await?;
                merging.add(&mut turn).await?;
            }
            let debt_bytes = merging.memory.debt_bytes();
            let held_bytes =
                held_bytes + behind.bytes() + merging.copies.as_ref().map_or(0, Copies::bytes);
            let is_allowed = turn.is_empty() && held_bytes + debt_bytes <= share.bytes();
            if !can_split {
                // The set of one group: there must be memory for it.
                if !merging.grow_behind(&mut behind, debt_bytes) {
                    reserve(&mut behind, debt_bytes, Some(&mut at_last)).await?;
                }
            } else if !is_allowed || !merging.grow_behind(&mut behind, debt_bytes) {
                split.assured_bytes += merging.copies.as_mut().map_or(0, Copies::give_own_back);
                // A group may be larger than all that it came from.
                let mut missing = split.lacks_bytes(&merging.groups).await;
                for memory in [Some(&mut behind), merging.copies.as_mut().map(Copies::memory)] {
                    let Some(memory) = memory else { continue };
                    let lent = memory.split(missing.min(memory.bytes()));
                    missing -= lent.bytes();
                    split.pages.merge(lent);
                }
                let mut parts = split.begin();
                split.add(&mut parts, merging.groups.iter().copied(), Form::Live).await?;
                drop((merging, behind));
                split.add(&mut parts, turn.into_iter(), Form::Live).await?;
                split.add(&mut parts, tuples, source.form).await?;
                sources.free(source);
                split.add_sources(&mut parts, &mut sources).await?;
                return split.end(parts).await;
            }
            merging.memory.pay(debt_bytes);
            weft_rt::yield_now().await;
        }
        drop(tuples);
        sources.free(source);
    }
    let table_bytes = merging.table_bytes();
    let needed_bytes = states.needs(&merging.groups).await;
    if !merging.grow_behind(&mut behind, needed_bytes) {
        reserve(&mut behind, needed_bytes, Some(&mut at_last)).await?;
    }
    let Merging { groups, memory, mut copies, .. } = merging;
    copies.as_mut().map(Copies::give_own_back);
    let bytes = behind.bytes() + copies.as_ref().map_or(0, Copies::bytes);
    let settled = Some(Settled::new(&spills.spilling, bytes));
    let lie_in = LieIn::Copies(copies);
    let reservation = behind;
    let merged = Merged { groups, memory, reservation, table_bytes, lie_in, settled };
    Ok(Step::Merged(Box::new(merged)))
}

/// The most that is free, of `most_bytes` halved again and again; `least_bytes` if there is not as much.
fn free_bytes(ledger: &Ledger, most_bytes: u64, least_bytes: u64) -> u64 {
    let mut bytes = most_bytes;
    while bytes > least_bytes && ledger.try_reserve(bytes).is_none() {
        bytes /= 2;
    }
    bytes.max(least_bytes)
}

impl Merging<'_> {
    /// Adds free memory to that behind the groups, or memory that copies have not taken; false if there is neither.
    fn grow_behind(&mut self, behind: &mut Reservation, bytes: u64) -> bool {
        let is_grown = behind.try_grow(bytes);
        if !is_grown
            && let Some(own) = self.copies.as_mut().map(|copies| &mut copies.own)
            && own.bytes() >= bytes
        {
            behind.merge(own.split(bytes));
            return true;
        }
        is_grown
    }
}

/// The turn of a worker whose unit needs as much memory as its groups have in the end. While it waits the unit is on disk.
async fn turn<'a>(
    operator: &'a Aggregation,
    unit: &mut Unit,
    spills: &Spills,
) -> Result<ExclusiveGuard<'a>> {
    if let Some(turn) = operator.turn.try_exclusive() {
        return Ok(turn);
    }
    unit.spill(&operator.states.layout, spills).await?;
    Ok(waiting(Wait::Memory, operator.turn.exclusive()).await)
}

/// Copies of groups, on pages of their own.
#[derive(Debug)]
pub(super) struct Copies {
    layout: Arc<Layout>,
    pages: Vec<Page>,
    /// The memory of the pages.
    reservation: Reservation,
    /// Memory for more of them when no other is free.
    own: Reservation,
    bytes_max: u64,
}

impl Copies {
    fn new(layout: Arc<Layout>, own: Reservation, bytes_max: u64) -> Copies {
        let reservation = own.ledger().empty();
        Copies { layout, pages: Vec::new(), reservation, own, bytes_max }
    }

    /// Takes memory for a page of what it had from the beginning.
    fn take_own(&mut self, bytes: u64) -> bool {
        let has_all = self.own.bytes() >= bytes;
        if has_all {
            self.reservation.merge(self.own.split(bytes));
        }
        has_all
    }

    /// Gives the memory back that it had from the beginning, as far as no page has it; returns how much that is.
    fn give_own_back(&mut self) -> u64 {
        let bytes = self.own.bytes();
        self.own.shrink(bytes);
        bytes
    }

    fn bytes(&self) -> u64 {
        self.reservation.bytes()
    }

    /// The memory of the pages, which lends some when no more groups come, until they all go.
    fn memory(&mut self) -> &mut Reservation {
        &mut self.reservation
    }

    /// Copies a group, and what it keeps to `memory`; `None` if there is no room for it.
    pub(super) fn copy(&mut self, tuple: Tuple, memory: &mut Memory) -> Option<Tuple> {
        let layout = self.layout.clone();
        // SAFETY: the fields lie in the tuple.
        let string = |tuple: Tuple, offset: usize| unsafe {
            tuple.address().add(offset).cast::<Str>().read_unaligned()
        };
        let long_bytes =
            layout.strings_on_page().map(|offset| Layout::long_bytes(string(tuple, offset))).sum();
        let slot = self.pages.last_mut().and_then(|page| page.slot(long_bytes));
        let slot = match slot {
            Some(slot) => slot,
            None => self.new_page(long_bytes)?.slot(long_bytes)?,
        };
        // SAFETY: both are of the layout's bytes, and the slot is new.
        let copy = unsafe {
            std::ptr::copy_nonoverlapping(tuple.address(), slot.tuple, layout.bytes());
            Tuple::at(slot.tuple)
        };
        let mut place = slot.strings;
        for offset in layout.strings_on_page() {
            let string = string(tuple, offset).unpacked(tuple.address());
            if !string.is_inline() {
                // SAFETY: the string is alive, the slot has room for it, and the field lies in the slot's tuple.
                unsafe {
                    let bytes = string.bytes();
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
                    let distance = place.offset_from(slot.tuple) as u64;
                    let field = slot.tuple.add(offset).cast::<Str>();
                    field.write_unaligned(string.packed(distance));
                    place = place.add(bytes.len());
                }
            }
        }
        for kept in layout.kept() {
            let mut room = 0;
            let string = memory.copy_into(copy, &mut room, string(tuple, kept.offset));
            // SAFETY: the fields lie in the slot's tuple.
            unsafe {
                slot.tuple.add(kept.offset).cast::<Str>().write_unaligned(string);
                slot.tuple.add(kept.room_offset).cast::<u64>().write_unaligned(room);
            }
        }
        Some(copy)
    }

    /// Bytes of the next page, each of which is twice as large as the one before, for a tuple with `long_bytes` at least.
    fn page_bytes(&self, long_bytes: usize) -> usize {
        let tuple_bytes = (self.layout.bytes() + long_bytes).next_multiple_of(PAGE_BYTES_MIN);
        let bytes = self.pages.last().map_or(PAGE_BYTES_MIN, |last| 2 * last.bytes());
        bytes.min(PAGE_BYTES_MAX).max(tuple_bytes)
    }

    /// Waits for room for a tuple.
    pub(super) async fn make_room(&mut self, tuple: Tuple) -> Result<()> {
        // SAFETY: there is a tuple of the layout.
        let long_bytes = unsafe { pack::long_bytes(&self.layout, tuple.address()) };
        let bytes = self.page_bytes(long_bytes);
        if !self.take_own(bytes as u64) {
            reserve(&mut self.reservation, bytes as u64, None).await?;
        }
        self.pages.push(Page::new(bytes, self.layout.bytes()));
        Ok(())
    }

    fn new_page(&mut self, long_bytes: usize) -> Option<&mut Page> {
        let bytes = self.page_bytes(long_bytes);
        let may_grow = self.bytes() + bytes as u64 <= self.bytes_max;
        if !may_grow {
            return None;
        }
        if !self.reservation.try_grow(bytes as u64) && !self.take_own(bytes as u64) {
            return None;
        }
        self.pages.push(Page::new(bytes, self.layout.bytes()));
        self.pages.last_mut()
    }
}

/// A unit being partitioned anew.
struct Split<'a> {
    operator: &'a Aggregation,
    spills: &'a Spills,
    assured: &'a Arc<Assured>,
    /// Of what its worker is assured of, what the parts may have.
    assured_bytes: u64,
    skipped_bits: u32,
    /// Those that lead to a partition.
    bits: u32,
    /// Memory for a page.
    pages: Reservation,
}

impl Split<'_> {
    /// Bytes that it lacks for a page with the largest of these live groups.
    async fn lacks_bytes(&self, groups: &[Tuple]) -> u64 {
        let layout = &self.operator.states.layout;
        let (mut pace, mut bytes) = (Pace::default(), 0);
        for groups in groups.chunks(TUPLES_PER_TURN) {
            // SAFETY: the groups are there, and of the layout.
            let long_bytes = |group: &Tuple| unsafe { pack::long_bytes(layout, group.address()) };
            bytes = groups.iter().map(long_bytes).fold(bytes, usize::max);
            pace.keep().await;
        }
        bytes += layout.bytes();
        (page_bytes(bytes, bytes) as u64).saturating_sub(self.pages.bytes())
    }

    fn begin(&mut self) -> Materializer {
        let layout = self.operator.states.layout.clone();
        let always = PartitionMode::Always;
        Materializer::new(layout, OPERATOR, &self.spills.ledger, always, true)
            .spilling(self.spills.anew())
            .packed(self.skipped_bits)
            .keeping(self.pages.split(self.pages.bytes()))
            .assured(self.assured.clone(), self.assured_bytes)
            .partitioned(self.bits)
    }

    async fn add(
        &mut self,
        parts: &mut Materializer,
        tuples: impl Iterator<Item = Tuple>,
        form: Form,
    ) -> Result<()> {
        let mut pace = Pace::default();
        for (number, tuple) in tuples.enumerate() {
            // SAFETY: the tuples are there, in that form, and nobody writes to them.
            unsafe { parts.store_packed(tuple.address(), form).await? };
            if number % TUPLES_PER_TURN == 0 {
                pace.keep().await;
            }
        }
        Ok(())
    }

    async fn add_sources(&mut self, parts: &mut Materializer, sources: &mut Sources) -> Result<()> {
        while let Some(source) = sources.next().await? {
            self.add(parts, source.tuples(), source.form).await?;
            sources.free(source);
            weft_rt::yield_now().await;
        }
        Ok(())
    }

    async fn end(&self, mut parts: Materializer) -> Result<Step> {
        if !self.operator.states.layout.behind().is_empty() || parts.needs_assured() {
            // Merging some takes memory that others would have, and nobody else can spill them.
            parts.spill_all().await?;
        }
        parts.settle().await?;
        let mut parts = parts.finish();
        let mut skipped_bits = self.skipped_bits + self.bits;
        let tuples = parts.tuples();
        let groups = parts.sketch.as_ref().map_or(tuples, |sketch| sketch.estimate() as usize);
        if groups <= 1 {
            skipped_bits = SKIPPED_BITS_MAX;
        }
        let ledger = &self.spills.ledger;
        let mut units: Vec<Unit> =
            (0..1 << self.bits).map(|_| Unit::new(skipped_bits, ledger)).collect();
        for stored in parts.pages {
            let unit = &mut units[stored.partition.expect("partitioned from the beginning")];
            unit.hold(parts.reservation.split(stored.page.bytes() as u64));
            unit.pages.push(stored.page);
        }
        for spilled in parts.spilled {
            units[spilled.partition].spilled.push(spilled);
        }
        for unit in &mut units {
            unit.form = Form::Packed;
            unit.settle(&self.spills.spilling);
            unit.expect(groups, tuples);
        }
        units.retain(|unit| !unit.is_empty());
        // Those in memory are merged first.
        units.sort_by_key(|unit| !unit.spilled.is_empty());
        Ok(Step::Split(units))
    }
}
