//! Phase one: a worker's groups, on its pages, and the small hash table that finds them (`lookup.rs`).
//!
//! A vector is looked up as a whole: places in the table first, then keys, one column after the other, then what was not the
//! right group goes on from the place after. If a range of the table is full, its groups are forgotten, and get other tuples
//! when they come again. If a page is full, the next one takes its place. If memory has to be awaited for that, the rows
//! found so far are added to their groups first, all groups are forgotten, and the rest is looked up again: no address
//! outlives a wait. If memory is short, the groups of a partition are spilled: they are forgotten, and so is what they kept.

mod lookup;

use std::sync::Arc;

use futures::future::LocalBoxFuture;

use super::clusters::Clusters;
use super::direct::{Coverage, Direct};
use super::found::Found;
use super::memory::Memory;
use super::operator::{Aggregation, Keys, OPERATOR, Part};
use super::state::{Fed, Feed, Narrowed, Tuple};
use super::table::Table;
use crate::error::Result;
use crate::kernels::hash;
use crate::pipeline::{Flow, LocalSink};
use crate::query::Context;
use crate::registers::Registers;
use crate::selection::{Selected, Selection};
use crate::tuple::Materializer;
use crate::tuple::layout::HASH_OFFSET;
use crate::tuple::materializer::{PARTITIONS, Room};
use crate::vector::VECTOR_ROWS_MAX;

/// Entries of the first table, as a power of two: 8 KiB.
const FIRST_BITS: u32 = 10;
/// Entries of the largest table without partitions. It doubles up to this.
const WHOLE_BITS_MAX: u32 = 16;
/// Entries of the first table with partitions.
const PARTITIONED_BITS: u32 = 16;
/// Entries of the largest table, if all groups fit there as it seems.
const PARTITIONED_BITS_MAX: u32 = 18;
/// Entries of a table in which hardly a row finds its group: it fits into a small cache.
const VAIN_BITS: u32 = 14;
/// Tables of more entries than this do not lie in the nearest cache.
const NEAR_BITS: u32 = 12;
/// New groups after which it is asked whether the table is of use.
const GROUPS_PER_TRIAL: u64 = 1 << 16;
/// Rows per new group that make it so.
const ROWS_PER_GROUP_MIN: u64 = 2;
/// The table is a part of the memory that there may be.
const TABLE_SHARE: u64 = 8;
/// So is what groups keep that are not partitioned, which stays in memory until all groups are passed on.
const LOOSE_SHARE: u64 = 4;
/// Units that a worker should have room for when it merges what was spilled: one whose groups are passed on, one that comes back, and
/// as much for what they need beside their tuples.
const UNITS_IN_MEMORY: u64 = 4;

/// A worker's part of an aggregation by keys.
#[derive(Debug)]
pub(super) struct Preaggregation {
    operator: Arc<Aggregation>,
    groups: Materializer,
    memory: Memory,
    /// Bits of the hash that lead to a partition, once there are any.
    partition_bits: u32,
    table: Table,
    clusters: Clusters,
    direct: Direct,
    /// Has the rows that are looked up by their hashes while these are made.
    hashed: Selection,
    narrowed: Narrowed,
    found: Found,
    trial_rows: u64,
    trial_groups: u64,
}

/// A row is left without a group: there is no room for a tuple of this hash with so many bytes of strings, unless somebody
/// waits for it.
#[derive(Clone, Copy, Debug)]
struct Missing {
    hash: u64,
    long_bytes: usize,
}

impl Preaggregation {
    pub(super) fn new(operator: Arc<Aggregation>, context: &Context) -> Preaggregation {
        let layout = operator.states.layout.clone();
        let mut groups =
            Materializer::new(layout, OPERATOR, &context.ledger, context.partition, true);
        if let Some(spills) = operator.spills(context) {
            groups = groups.spilling(spills).retaining();
        }
        let partition_bits = operator.partition_bits(context);
        if groups.partitions() == 1 {
            groups = groups.partitioned_later(partition_bits);
        }
        let mut preaggregation = Preaggregation {
            operator,
            groups,
            memory: Memory::default(),
            partition_bits,
            // Rows may come partition by partition, from a join or another aggregation.
            table: Table::new(FIRST_BITS, 0, PARTITIONS.ilog2()),
            clusters: Clusters::default(),
            direct: Direct::default(),
            hashed: Selection::default(),
            narrowed: Narrowed::default(),
            found: Found::default(),
            trial_rows: 0,
            trial_groups: 0,
        };
        preaggregation.memory.owe(Table::bytes(FIRST_BITS));
        if preaggregation.groups.partitions() > 1 {
            preaggregation.renew_table(PARTITIONED_BITS);
        }
        preaggregation
    }

    async fn add(&mut self, registers: &mut Registers, keys: &Keys) -> Result<()> {
        let count = self.found.put_rows(registers.selected());
        self.trial_rows += count as u64;
        let coverage = self.look_up_directly(registers, keys, count);
        if matches!(coverage, Coverage::Full | Coverage::Numbered) {
            self.add_found(registers, count, coverage == Coverage::Numbered)?;
            return self.pay().await;
        }
        match coverage == Coverage::Partial {
            true => self.find_unknown(registers, keys, count).await?,
            false => {
                self.found.pending.clear();
                self.found.pending.extend(0..count as u16);
                hash::run(registers, &keys.registers, keys.hash);
                self.find_all(registers, keys, count, None).await?;
            }
        }
        if self.trial_groups >= GROUPS_PER_TRIAL {
            self.judge();
        }
        Ok(())
    }

    /// Finds the groups of the first `count` rows that are known by the places of their keys.
    fn look_up_directly(&mut self, registers: &Registers, keys: &Keys, count: usize) -> Coverage {
        let Found { rows, tuples, .. } = &mut self.found;
        let (rows, tuples) = (&rows[..count], &mut tuples[..count]);
        let bytes_max = self.groups.share_bytes() / TABLE_SHARE;
        let bytes = self.direct.bytes();
        let clusters = &mut self.clusters;
        let keys = &keys.registers;
        let coverage = self.direct.look_up(registers, keys, rows, tuples, clusters, bytes_max);
        self.memory.owe(self.direct.bytes() - bytes);
        coverage
    }

    /// Adds the rows that have found their groups to them: those that `were_pending` (all of them if not given) and are not
    /// any more.
    fn update(
        &mut self,
        registers: &Registers,
        were_pending: Option<&[u16]>,
        count: usize,
    ) -> Result<()> {
        if were_pending.is_none() && self.found.pending.is_empty() {
            return self.add_found(registers, count, false);
        }
        let found = &mut self.found;
        let mut is_counted = [false; VECTOR_ROWS_MAX];
        match were_pending {
            None => is_counted[..count].fill(true),
            Some(were) => were.iter().for_each(|at| is_counted[usize::from(*at)] = true),
        }
        found.pending.iter().for_each(|at| is_counted[usize::from(*at)] = false);
        let mut number = 0;
        for at in (0..count).filter(|at| is_counted[*at]) {
            found.candidate_rows[number] = found.rows[at];
            found.candidate_tuples[number] = found.tuples[at];
            number += 1;
        }
        let counted = Narrow {
            rows: &found.candidate_rows[..number],
            tuples: &found.candidate_tuples[..number],
        };
        let states = &self.operator.states.states;
        let mut feed = Feed { registers, memory: &mut self.memory };
        add_rows(states, &mut self.clusters, &counted, false, &mut feed, &mut self.narrowed)
    }

    /// Adds the first `count` rows to their groups, which have been found; if there are few, their numbers are in the clusters.
    fn add_found(&mut self, registers: &Registers, count: usize, are_numbered: bool) -> Result<()> {
        let Found { rows, tuples, .. } = &self.found;
        let found = Narrow { rows: &rows[..count], tuples: &tuples[..count] };
        let states = &self.operator.states.states;
        let mut feed = Feed { registers, memory: &mut self.memory };
        add_rows(states, &mut self.clusters, &found, are_numbered, &mut feed, &mut self.narrowed)
    }

    /// Waits for room for a tuple on the page of its partition. Groups whose pages are not there any more are forgotten.
    async fn make_room(&mut self, hash: u64, long_bytes: usize) -> Result<()> {
        self.weigh();
        let room = self.groups.make_room(hash, long_bytes).await?;
        self.forget(room);
        Ok(())
    }

    /// Gets memory for what states have taken, if need be by spilling groups.
    async fn pay(&mut self) -> Result<()> {
        loop {
            let bytes = self.memory.debt_bytes();
            if bytes == 0 {
                return Ok(());
            }
            if self.groups.try_reserve(bytes) {
                self.memory.pay(bytes);
                return Ok(());
            }
            self.weigh();
            let room = self.groups.relieve(bytes).await?;
            if room == Room::Made {
                self.memory.pay(bytes);
                return Ok(());
            }
            self.forget(room);
        }
    }

    /// Tells what groups keep, as something may have to be spilled.
    fn weigh(&mut self) {
        let Preaggregation { groups, memory, .. } = self;
        groups.weigh(memory.whole_bytes(), memory.partition_bytes(), memory.debt_bytes());
    }

    /// Forgets the groups that are not in memory any more, and what they kept.
    fn forget(&mut self, room: Room) {
        let gone = match room {
            Room::Made => return,
            Room::Partitioned => return self.renew_table(PARTITIONED_BITS),
            Room::LooseSpilled => {
                if self.table.range_bits() == 0 {
                    self.renew_table(VAIN_BITS);
                }
                None
            }
            Room::Spilled(partition) => {
                self.table.clear(partition);
                self.clusters.forget(false);
                Some(partition)
            }
        };
        self.free(gone);
        // A table that takes much of what there may be had better be small.
        if Table::bytes(self.table.bits()) > self.groups.share_bytes() / TABLE_SHARE {
            self.renew_table(VAIN_BITS);
        }
    }

    /// At the end, spills groups with lists or sets that nobody else could spill any more, and all if some have been: it takes more
    /// than their memory to merge them, or so it was asked for. Of others so many are spilled that there is room to merge some units.
    async fn leave_room(&mut self) -> Result<()> {
        let must_spill = self.groups.must_spill_all();
        if self.operator.states.layout.behind().is_empty() && !must_spill {
            if !self.groups.has_spilled() {
                return Ok(());
            }
            // Nobody looks anything up any more.
            if self.table.bits() > VAIN_BITS {
                self.renew_table(VAIN_BITS);
            }
            self.weigh();
            let room_bytes = self.groups.room_for(UNITS_IN_MEMORY);
            while let Some(partition) = self.groups.lacking_room(room_bytes).await? {
                self.groups.spill(partition).await?;
                self.free(Some(partition));
                self.weigh();
            }
            return Ok(());
        }
        let has_spilled = must_spill || self.groups.has_spilled();
        if has_spilled || self.memory.whole_bytes() > self.groups.share_bytes() / LOOSE_SHARE {
            self.weigh();
            if self.groups.spill_unpartitioned().await? == Room::LooseSpilled {
                self.free(None);
            }
        }
        if has_spilled {
            for partition in 0..self.groups.partitions() {
                self.groups.spill(partition).await?;
                self.free(Some(partition));
            }
        }
        Ok(())
    }

    /// Frees what groups kept that are gone.
    fn free(&mut self, partition: Option<usize>) {
        let freed_bytes = self.memory.free(partition);
        self.groups.release(freed_bytes);
    }

    /// Asks whether the table should be of another size: larger if the groups would fit there, small if it is in vain.
    fn judge(&mut self) {
        let is_vain = self.trial_rows < ROWS_PER_GROUP_MIN * self.trial_groups;
        (self.trial_rows, self.trial_groups) = (0, 0);
        if self.table.range_bits() == 0 {
            return;
        }
        let groups = self.groups.estimate().unwrap_or(u64::MAX);
        let bits = u64::BITS - groups.saturating_mul(3).leading_zeros() - 1;
        let bits = match bits {
            bits if bits <= PARTITIONED_BITS_MAX => bits.max(PARTITIONED_BITS),
            _ if is_vain => VAIN_BITS,
            _ => self.table.bits(),
        };
        if bits != self.table.bits() {
            self.renew_table(bits);
        }
    }

    /// An empty table with a range for each partition.
    fn renew_table(&mut self, bits: u32) {
        let (before, after) = (Table::bytes(self.table.bits()), Table::bytes(bits));
        self.memory.owe(after.saturating_sub(before));
        let freed_bytes = self.memory.refund(before.saturating_sub(after));
        self.groups.release(freed_bytes);
        self.memory.partition(self.partition_bits);
        self.table = Table::new(bits, self.partition_bits, 0);
        self.clusters.forget(false);
    }
}

/// Adds rows to their groups. If these are few and `are_numbered`, their numbers are in the clusters.
fn add_rows(
    states: &[Fed],
    clusters: &mut Clusters,
    Narrow { rows, tuples }: &Narrow<'_>,
    are_numbered: bool,
    feed: &mut Feed<'_>,
    narrowed: &mut Narrowed,
) -> Result<()> {
    if !clusters.is_worthwhile(rows.len()) {
        return states.iter().try_for_each(|fed| fed.add(tuples, rows, feed, narrowed));
    }
    if !are_numbered {
        clusters.find_numbers(tuples);
    }
    add_few(states, clusters, rows, feed, narrowed)
}

/// Adds rows to their groups, whose numbers are in the clusters.
fn add_few(
    states: &[Fed],
    clusters: &mut Clusters,
    rows: &[u16],
    feed: &mut Feed<'_>,
    narrowed: &mut Narrowed,
) -> Result<()> {
    let all = feed.registers.rows();
    if let Some(group) = clusters.single() {
        let rows = if rows.len() == all { Selected::All(all) } else { Selected::Some(rows) };
        return states.iter().try_for_each(|fed| fed.add_to_one(group, rows, feed, narrowed));
    }
    let is_masked = clusters.mask(rows, all);
    let mut is_sorted = false;
    for fed in states {
        if is_masked && fed.add_masked(clusters.masked(all), feed)? {
            continue;
        }
        if !is_sorted {
            clusters.sort(rows);
            is_sorted = true;
        }
        for (group, rows) in clusters.clusters() {
            fed.add_to_one(group, rows, feed, narrowed)?;
        }
    }
    Ok(())
}

/// The free entry for a new group that was looked for in vain up to `place`. If its range is full, the table grows, or
/// forgets the groups of the range.
#[inline(always)]
fn make_place(
    table: &mut Table,
    clusters: &mut Clusters,
    memory: &mut Memory,
    place: u32,
    hash: u64,
) -> u32 {
    if table.is_full(place) { renew_range(table, clusters, memory, place, hash) } else { place }
}

#[cold]
fn renew_range(
    table: &mut Table,
    clusters: &mut Clusters,
    memory: &mut Memory,
    place: u32,
    hash: u64,
) -> u32 {
    if table.range_bits() > 0 || table.bits() == WHOLE_BITS_MAX {
        table.clear(table.range(place));
        // Rows of this vector may have found groups whose numbers would be given again.
        clusters.forget(false);
        return table.home(hash);
    }
    let mut larger = Table::new(table.bits() + 1, 0, table.skipped_bits());
    for tuple in table.tuples() {
        // SAFETY: tuples begin with their hash.
        let hash = unsafe { tuple.address().add(HASH_OFFSET).cast::<u64>().read() };
        larger.insert(hash, tuple);
    }
    memory.owe(Table::bytes(larger.bits()) - Table::bytes(table.bits()));
    *table = larger;
    table.free(hash)
}

/// Rows, and their groups.
struct Narrow<'a> {
    rows: &'a [u16],
    tuples: &'a [Tuple],
}

impl LocalSink for Preaggregation {
    fn push<'a>(&'a mut self, registers: &'a mut Registers) -> LocalBoxFuture<'a, Result<Flow>> {
        Box::pin(async move {
            let operator = self.operator.clone();
            for keys in &operator.sets {
                self.add(registers, keys).await?;
            }
            Ok(Flow::More)
        })
    }

    fn end(self: Box<Self>) -> LocalBoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let mut ended = self;
            ended.pay().await?;
            ended.leave_room().await?;
            let Preaggregation { operator, mut groups, memory, table, direct, .. } = *ended;
            groups.release(Table::bytes(table.bits()) + direct.bytes());
            drop((table, direct));
            groups.settle().await?;
            operator.hand_over(Part { groups: groups.finish(), memory });
            Ok(())
        })
    }
}
