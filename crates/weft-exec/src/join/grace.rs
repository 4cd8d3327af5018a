//! A build side that stays in partitions, each of which is joined by itself: the grace join (Spilly, sections 4.1 and 4.5),
//! which there is to measure others against. It has no directory of all tuples. The whole probe side is put aside (`aside`)
//! into partitions of its own, in memory as far as that goes; when the pipeline's source has no more, workers take one pair of
//! partitions after the other (`serving`). The first who does chains the tuples of the build side's, in a directory that is
//! theirs alone and lies in the worker's cache then.
//!
//! Partitions that were spilled come back as those of any other build side do. Not partitioned are joins without keys, joins where a
//! null may match a tuple of any partition, and those with too little memory for pages of all partitions.

use std::sync::OnceLock;

use futures::lock::Mutex;
use weft_rt::memory::Ledger;

use super::blocks::chained;
use super::directory::{Directory, Link};
use super::remainder::{BuildTuples, Which};
use super::{Join, Table};
use crate::error::Result;
use crate::query::{Context, PartitionMode};
use crate::spill::any_page::AnyPage;
use crate::tuple::Page;
use crate::tuple::materialized::StoredPage;
use crate::tuple::materializer::PARTITIONS;

/// The partitions of a finished build side, those aside that are on disk.
#[derive(Debug)]
pub(crate) struct Partitioned {
    partitions: Vec<Partition>,
    ledger: Ledger,
}

/// A partition in memory.
#[derive(Debug)]
struct Partition {
    pages: usize,
    tuples: usize,
    /// Those of its directory.
    entries: usize,
    /// Its tuples, as long as nobody has looked any of them up.
    unchained: Mutex<Vec<AnyPage>>,
    table: OnceLock<Table>,
}

/// True if a query is to have a grace join where it can, and this is one that can be.
pub(super) fn is_wanted(join: &Join, context: &Context) -> bool {
    let has_keys = !join.keys.is_empty();
    context.partition == PartitionMode::Always && has_keys && !join.has_unknown()
}

/// Entries of the directories of partitions, of which there are so many tuples each; `distinct` hashes of `count` tuples are
/// different ones.
pub(super) fn entries(tuples: &[usize], distinct: usize, count: usize) -> Vec<usize> {
    let part = |tuples: usize| distinct as u128 * tuples as u128 / count.max(1) as u128;
    tuples.iter().map(|tuples| Directory::entries_for_part(part(*tuples) as usize)).collect()
}

/// Number of tuples of each partition, of those that are stored on pages.
///
/// # Panics
/// If one is of no partition.
pub(super) fn counts(pages: &[StoredPage]) -> [usize; PARTITIONS] {
    let mut counts = [0; PARTITIONS];
    pages.iter().for_each(|stored| counts[partition_of(stored)] += stored.page.tuples());
    counts
}

fn partition_of(stored: &StoredPage) -> usize {
    stored.partition.expect("partitioned from the first tuple on")
}

impl Partitioned {
    /// Of these pages. Somebody else has the memory of theirs, and that of directories with so many `entries`.
    pub(super) fn new(pages: Vec<StoredPage>, entries: Vec<usize>, ledger: Ledger) -> Partitioned {
        let mut of_partitions: Vec<Vec<Page>> = entries.iter().map(|_| Vec::new()).collect();
        for stored in pages {
            of_partitions[partition_of(&stored)].push(stored.page);
        }
        let partition = |(pages, entries): (Vec<Page>, usize)| Partition {
            pages: pages.len(),
            tuples: pages.iter().map(Page::tuples).sum(),
            entries,
            unchained: Mutex::new(pages.into_iter().map(AnyPage::Stored).collect()),
            table: OnceLock::new(),
        };
        let partitions = of_partitions.into_iter().zip(entries).map(partition).collect();
        Partitioned { partitions, ledger }
    }

    /// Number of tuples.
    pub(super) fn tuples(&self) -> usize {
        self.partitions.iter().map(|partition| partition.tuples).sum()
    }

    /// Number of pages.
    pub(super) fn pages(&self) -> usize {
        self.partitions.iter().map(|partition| partition.pages).sum()
    }

    /// Number of the entries of all directories.
    pub(super) fn entries(&self) -> usize {
        self.partitions.iter().map(|partition| partition.entries).sum()
    }

    /// Number of tuples of a partition.
    pub(super) fn tuples_of(&self, partition: usize) -> usize {
        self.partitions[partition].tuples
    }

    /// Number of pages of a partition.
    pub(super) fn pages_of(&self, partition: usize) -> usize {
        self.partitions[partition].pages
    }

    /// Sees to it that the tuples of a partition are in chains.
    ///
    /// # Errors
    /// [`ExecError::Memory`](crate::ExecError::Memory) if the system has none for the directory.
    pub(super) async fn chain(&self, partition: usize, join: &Join) -> Result<()> {
        let Partition { unchained, table, entries, .. } = &self.partitions[partition];
        if table.get().is_some() {
            return Ok(());
        }
        // Several pipelines may look tuples up.
        let mut unchained = unchained.lock().await;
        if table.get().is_none() {
            let pages = std::mem::take(&mut *unchained);
            let made = chained(join, pages, *entries, PARTITIONS.ilog2(), self.ledger.empty());
            assert!(table.set(made.await?).is_ok(), "a partition is chained once");
        }
        Ok(())
    }

    /// The tuples of a partition that are in chains.
    ///
    /// # Panics
    /// If they are not.
    pub(super) fn table(&self, partition: usize) -> &Table {
        self.partitions[partition].table.get().expect("chained before anything is looked up")
    }

    /// The tuples of a page of a partition, when all probes have ended.
    pub(super) async fn remainder(
        &self,
        partition: usize,
        page: usize,
        which: Which,
    ) -> BuildTuples {
        let Partition { unchained, table, .. } = &self.partitions[partition];
        let Some(table) = table.get() else {
            // No tuple of the probe side has led here.
            return BuildTuples::new(&unchained.lock().await[page], which, |_| false);
        };
        let page = &table.pages[page];
        // SAFETY: a tuple of a table that is finished.
        let is_marked = |number| unsafe { Link::after(page.tuple(number) as u64) }.is_marked();
        BuildTuples::new(page, which, is_marked)
    }
}
