//! A build side that was spilled in part, or whose directory has no room, when all of its tuples are there: partitions that
//! somebody has chosen go to disk as a whole, and further ones until there is memory for the directory of the rest. What was
//! spilled before there were partitions comes back, unless its partition is on disk. So does what stays in partitions (`grace`).

use std::sync::Arc;

use weft_rt::memory::Reservation;

use super::build::distinct;
use super::directory::Directory;
use super::fan_out::{probe_bits, probe_bytes, suits_all_partitions};
use super::{BUILD, grace};
use crate::error::Result;
use crate::pace::Pace;
use crate::query::{Context, PartitionMode};
use crate::spill::SpillMode;
use crate::spill::mask::Snapshot;
use crate::spill::reader::Reader;
use crate::spill::writer::{SpilledPage, Spills};
use crate::tuple::budget::patiently;
use crate::tuple::materialized::StoredPage;
use crate::tuple::pack::{Form, long_bytes, pack, retain};
use crate::tuple::{Materialized, Materializer, Page, hash_at};

/// Tuples after which others may run.
const TUPLES_PER_TURN: usize = 512;

/// The partition of a hash, which so many bits lead to.
#[inline(always)]
pub(super) fn partition_of(hash: u64, bits: u32) -> usize {
    (hash >> (u64::BITS - bits)) as usize
}

/// What the probe side is to have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Promised {
    /// Bits of the hash that lead to a partition.
    pub(super) probe_bits: u32,
    /// Bytes for what is put aside, and for what comes back then.
    pub(super) bytes: u64,
}

/// What is left in memory.
#[derive(Debug)]
pub(super) struct Remaining {
    /// Those in memory.
    pub(super) tuples: Materialized,
    /// Everything of the partitions that are on disk.
    pub(super) spilled: Vec<SpilledPage>,
    /// If some of it is on disk.
    pub(super) promised: Promised,
    /// Entries of the directory for what is in memory, and memory for them: for none if each partition has its own.
    pub(super) entries: usize,
    pub(super) partitions: Option<Vec<usize>>,
    pub(super) memory: Reservation,
}

/// Divides a build side into partitions in memory, for which there is a directory, and partitions on disk; `bits` of the hash lead to
/// one. If it is to stay in partitions, as `is_grace` says, each of them has a directory of its own, if there is memory for that.
///
/// # Errors
/// [`ExecError::Memory`](crate::ExecError::Memory); what went wrong with spilling.
pub(super) async fn expel(
    spills: Spills,
    tuples: Materialized,
    bits: u32,
    is_grace: bool,
    context: &Context,
) -> Result<Remaining> {
    let workers = context.workers;
    let is_grace = is_grace && suits_all_partitions(spills.share().bytes(), workers);
    if !is_grace && tuples.spilled.is_empty() && spills.mask.snapshot().count() == 0 {
        let entries = Directory::entries_for(distinct(&tuples));
        if let Some(memory) = spills.ledger.try_reserve(Directory::bytes(entries) as u64) {
            return Ok(Remaining {
                tuples,
                spilled: Vec::new(),
                promised: Promised::default(),
                entries,
                partitions: None,
                memory,
            });
        }
    }
    context.on_a_worker(move || divide(spills, tuples, bits, is_grace, workers)).await
}

async fn divide(
    spills: Spills,
    mut tuples: Materialized,
    bits: u32,
    is_grace: bool,
    workers: usize,
) -> Result<Remaining> {
    // Who else has memory may give it back.
    let _holder = spills.ledger.holder();
    let share = spills.share();
    let (count, distinct) = (tuples.tuples(), distinct(&tuples));
    let mut pace = Pace::default();
    loop {
        pace.keep().await;
        let chosen = spills.mask.snapshot();
        write_out(&spills, &mut tuples, bits, &chosen).await?;
        let is_stray = |page: &SpilledPage| !chosen.has(page.partition);
        let strays = tuples.spilled.iter().filter(|page| is_stray(page));
        let stray_bytes: u64 = strays.clone().map(|page| page.bytes() as u64).sum();
        // They are copied from the page that was read.
        let read_bytes = strays.clone().map(|page| page.bytes() as u64).max().unwrap_or_default();
        let (entries, partitions) = match is_grace {
            true => {
                let mut counts = grace::counts(&tuples.pages);
                strays.for_each(|page| counts[page.partition] += page.tuples);
                (Directory::entries_for(0), Some(grace::entries(&counts, distinct, count)))
            }
            false => {
                let strays: usize = strays.map(|page| page.tuples).sum();
                let in_memory: usize = tuples.pages.iter().map(|stored| stored.page.tuples()).sum();
                let part = distinct as u128 * (in_memory + strays) as u128 / count.max(1) as u128;
                (Directory::entries_for(part as usize), None)
            }
        };
        let all = partitions.iter().flatten().chain([&entries]);
        let bytes: u64 = all.map(|entries| Directory::bytes(*entries) as u64).sum();
        let held_bytes = tuples.reservation.bytes() + bytes + stray_bytes;
        let share_bytes = share.kept_bytes();
        let disk_bytes = disk_bytes(&tuples, bits, &chosen);
        let probe_bits = match is_grace {
            true => bits,
            false => probe_bits(&disk_bytes, share_bytes, workers),
        };
        // The rest is for the probe side.
        let probe_bytes = probe_bytes(&disk_bytes, probe_bits, share_bytes, workers);
        let may_stay = held_bytes <= share_bytes - probe_bytes;
        let memory = may_stay.then(|| spills.ledger.try_reserve(bytes + stray_bytes + read_bytes));
        let mut memory = match memory.flatten() {
            Some(memory) => memory,
            None => match largest(&tuples, bits, &chosen) {
                Some(largest) => {
                    // All workers have ended: nobody else chooses.
                    match spills.spilling.options().mode {
                        SpillMode::Hybrid => {
                            spills.mask.add(largest, &chosen);
                        }
                        SpillMode::All => spills.mask.add_all(1 << bits),
                    }
                    continue;
                }
                None => {
                    let granted = spills.ledger.reserve_or_spill(bytes);
                    patiently(BUILD, &spills.ledger, bytes, granted).await?
                }
            },
        };
        let (strays, spilled) = std::mem::take(&mut tuples.spilled).into_iter().partition(is_stray);
        let mut of_strays = memory.split(memory.bytes() - bytes);
        let of_reader = of_strays.split(read_bytes.min(of_strays.bytes()));
        read_back(&spills, &mut tuples, strays, of_strays, of_reader).await?;
        let promised = Promised { probe_bits, bytes: probe_bytes };
        return Ok(Remaining { tuples, spilled, promised, entries, partitions, memory });
    }
}

/// Bytes that are on disk of each of the chosen partitions.
fn disk_bytes(tuples: &Materialized, bits: u32, chosen: &Snapshot) -> Vec<u64> {
    let mut bytes = vec![0; 1 << bits];
    for page in tuples.spilled.iter().filter(|page| chosen.has(page.partition)) {
        bytes[page.partition] += page.bytes() as u64;
    }
    bytes
}

/// The partition that has the most tuples, of those that are not chosen.
fn largest(tuples: &Materialized, bits: u32, chosen: &Snapshot) -> Option<usize> {
    let mut counts = vec![0; 1 << bits];
    for StoredPage { partition, page, .. } in &tuples.pages {
        match partition {
            Some(partition) => counts[*partition] += page.tuples(),
            None => (0..page.tuples()).for_each(|number| {
                // SAFETY: tuples of a page are complete.
                counts[partition_of(unsafe { hash_at(page.tuple(number)) }, bits)] += 1;
            }),
        }
    }
    tuples.spilled.iter().for_each(|page| counts[page.partition] += page.tuples);
    let others = (0..counts.len()).filter(|partition| !chosen.has(*partition));
    let largest = others.max_by_key(|partition| counts[*partition])?;
    (counts[largest] > 0).then_some(largest)
}

/// Reads pages, to which their tuples are added; `memory` is for them, `of_reader` for one of them on its way.
async fn read_back(
    spills: &Spills,
    tuples: &mut Materialized,
    pages: Vec<SpilledPage>,
    memory: Reservation,
    of_reader: Reservation,
) -> Result<()> {
    let partitions: Vec<(usize, usize)> =
        pages.iter().map(|page| (page.partition, page.bytes())).collect();
    let pages = pages.into_iter().map(Arc::new).collect();
    tuples.reservation.merge(memory);
    let mut reader = Reader::new(BUILD, spills.clone(), pages, of_reader);
    let layout = tuples.layout.clone();
    let mut pace = Pace::default();
    for (partition, bytes) in partitions {
        let Some(read) = reader.next().await? else { break };
        let mut page = Page::new(bytes, layout.bytes());
        for number in 0..read.tuples() {
            let tuple = read.tuple(number);
            // SAFETY: tuples of a page that was written are complete, and the slot has room for this one.
            unsafe {
                let slot = page.slot(long_bytes(&layout, tuple)).expect("as on the page on disk");
                pack(&layout, tuple, Form::Packed, slot);
            }
        }
        tuples.pages.push(StoredPage { partition: Some(partition), writer: None, page });
        reader.forget(read.into_memory());
        pace.keep().await;
    }
    tuples.pages.sort_by_key(|stored| stored.partition);
    Ok(())
}

/// Writes what is in memory of the chosen partitions.
async fn write_out(
    spills: &Spills,
    tuples: &mut Materialized,
    bits: u32,
    chosen: &Snapshot,
) -> Result<()> {
    if chosen.count() == 0 {
        return Ok(());
    }
    let layout = tuples.layout.clone();
    let mut writing =
        Materializer::new(layout.clone(), BUILD, &spills.ledger, PartitionMode::Always, false)
            .spilling(spills.clone())
            .packed(0)
            .partitioned(bits);
    let mut pace = Pace::default();
    let mut kept = Vec::new();
    for StoredPage { partition, writer, mut page } in std::mem::take(&mut tuples.pages) {
        let is_chosen = |hash: u64| chosen.has(partition_of(hash, bits));
        if partition.is_some_and(|partition| !chosen.has(partition)) {
            kept.push(StoredPage { partition, writer, page });
            continue;
        }
        for number in 0..page.tuples() {
            let tuple = page.tuple(number);
            // SAFETY: tuples of a page are complete, and nobody writes to them.
            unsafe {
                if is_chosen(hash_at(tuple)) {
                    writing.store_packed(tuple, Form::Packed).await?;
                }
            }
            if number % TUPLES_PER_TURN == 0 {
                pace.keep().await;
            }
        }
        // SAFETY: nobody refers to tuples of a build side that is not finished.
        unsafe { retain(&layout, &mut page, |hash| !is_chosen(hash)) };
        if page.tuples() > 0 {
            kept.push(StoredPage { partition, writer, page });
        } else {
            tuples.reservation.shrink(page.bytes() as u64);
        }
    }
    tuples.pages = kept;
    writing.spill_all().await?;
    writing.settle().await?;
    tuples.spilled.extend(writing.finish().spilled);
    Ok(())
}
