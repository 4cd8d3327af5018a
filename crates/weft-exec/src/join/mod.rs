//! The unified hash join (Spilly, sections 4.5 and 5.3): one pipeline materializes the build side, the next looks tuples
//! up in it, and where unmatched tuples of the build side count too, a third goes through those.
//!
//! [`Join`] is what these share. [`Build`] is the first one's sink: it stores tuples as every pipeline breaker does, and
//! when all are there puts them into chains that begin in a directory. [`Probe`] is the second one's step:
//! it takes a vector through, all tuples through one stage before the next stage begins.
//! [`Remainder`] is the third one's source. A [`Filter`] lets pipelines of the probe side leave out what matches nothing, if
//! they ask for it.
//!
//! When memory is short, whole partitions of the build side are on disk (`spilled`). Tuples of the probe side that lead
//! there are put aside (`aside`) by a hybrid of the step (`hybrid`), and served, partition by partition, when all
//! others have been looked up (`serving`). With `partition = always` that is how all partitions are joined, those in memory
//! too (`grace`).

mod aside;
mod blocks;
mod build;
mod chains;
mod check;
mod directory;
mod expel;
mod fan_out;
mod filter;
mod gather;
mod grace;
mod hybrid;
mod key_set;
mod keys;
mod lookup;
mod passes;
mod probe;
mod remainder;
mod serving;
mod spilled;
mod split;
mod state;
mod unit;
mod unknown;
mod wanted;
mod words;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub use build::Build;
pub use filter::Filter;
pub use gather::gather;
pub use probe::{Kind, Probe, Residual};
pub use remainder::{Remainder, Which};
pub use wanted::{Asked, AskedRows, Wanted};
use weft_rt::memory::Reservation;

use crate::late::{drop_late, is_much};
use crate::profile::{Fact, Facts};
use crate::query::Context;
use crate::spill::Settled;
use crate::spill::any_page::AnyPage;
use crate::spill::fan::BITS_MAX;
use crate::spill::writer::Spills;
use crate::tasks::Tasks;
use crate::tuple::{Layout, Materialized};
use directory::{Directory, Link};
use grace::Partitioned;
use spilled::Spilled;

/// What errors call the build side.
pub(crate) const BUILD: &str = "the build side of a hash join";
/// What errors call what is put aside of the probe side.
pub(crate) const PROBE: &str = "the probe side of a hash join";

/// What a null in a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nulls {
    /// It matches nothing, as with `=` in ON.
    Never,
    /// It matches null, as with IS NOT DISTINCT FROM, INTERSECT and EXCEPT.
    Equal,
    /// Whether it matches is unknown, as with IN and NOT IN: a tuple of the probe side for which that is all there is to
    /// say is no result of [`Kind::Anti`], and null for [`Kind::Mark`]. For other kinds as `Never`.
    Unknown,
}

/// A key of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The field of the build side's tuples that has it.
    pub field: usize,
    /// What null means.
    pub nulls: Nulls,
}

/// What the pipelines of a join share.
#[derive(Debug)]
pub struct Join {
    layout: Arc<Layout>,
    keys: Vec<Key>,
    is_preserved: bool,
    filters: Vec<Arc<Wanted>>,
    /// Somebody will go through the build side at the end.
    has_remainder: AtomicBool,
    /// Probes of pipelines that have not come to what they have put aside.
    probes_left: AtomicUsize,
    /// What its workers share to spill, once there is one; nothing if there is no place to spill to.
    spills: OnceLock<Option<Spills>>,
    parts: Mutex<Vec<Materialized>>,
    /// A tuple has a null in a key that makes it unknown whether it matches.
    has_null: AtomicBool,
    table: OnceLock<Table>,
    /// Tasks of the query, when there is a table.
    tasks: OnceLock<Arc<Tasks>>,
    /// What of the finished build side is joined partition by partition, if that is how it is joined; nothing else is in memory
    /// then.
    partitioned: OnceLock<Partitioned>,
    /// What of the finished build side is on disk, if something is or may be met only when it is served.
    spilled: OnceLock<Arc<Spilled>>,
}

impl Drop for Join {
    fn drop(&mut self) {
        // The query does not end before its memory is free.
        if let (Some(table), Some(tasks)) = (self.table.take(), self.tasks.get())
            && is_much(&table.reservation)
        {
            drop_late((self.partitioned.take(), table, tasks.count()));
        }
    }
}

/// Tuples that can be looked up: those of a finished build side that are in memory, or some of those that are on disk.
#[derive(Debug)]
pub(crate) struct Table {
    pub directory: Directory,
    pub pages: Vec<AnyPage>,
    /// The chain of the tuples that a key of makes unknown whether they match.
    pub unknown: Link,
    /// Of the whole build side.
    pub whole: Whole,
    /// The memory of pages, directory and filters.
    pub reservation: Reservation,
    pub _settled: Option<Settled>,
}

/// What is known of a build side as a whole.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Whole {
    /// There are no tuples.
    pub is_empty: bool,
    /// There is one with a null that makes it unknown whether it matches.
    pub has_null: bool,
}

impl Join {
    /// A join whose build side has tuples of `layout`. All of them are kept if it `is_preserved` (the build side is the
    /// outer one, or unmatched tuples of it are wanted), else tuples whose keys can match nothing are not. Those of the
    /// `filters` are made that somebody asks.
    ///
    /// # Panics
    /// If a key is no field of the layout, or one that is coded, or a filter is about a key that there is not.
    pub fn new(
        layout: Arc<Layout>,
        keys: Vec<Key>,
        is_preserved: bool,
        filters: Vec<Arc<Wanted>>,
    ) -> Join {
        let is_key = |key: &Key| !layout.field(key.field).is_coded();
        assert!(keys.iter().all(is_key), "keys are fields, and there as they are or as integers");
        let is_known = |wanted: &Arc<Wanted>| wanted.keys().iter().all(|key| *key < keys.len());
        assert!(filters.iter().all(is_known), "filters are about keys");
        Join {
            layout,
            keys,
            is_preserved,
            filters,
            has_remainder: AtomicBool::new(false),
            probes_left: AtomicUsize::new(0),
            spills: OnceLock::new(),
            parts: Mutex::default(),
            has_null: AtomicBool::new(false),
            table: OnceLock::new(),
            tasks: OnceLock::new(),
            partitioned: OnceLock::new(),
            spilled: OnceLock::new(),
        }
    }

    /// How tuples of the build side lie.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The keys.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Number of tuples on the build side; `None` while it is not finished.
    pub fn tuples(&self) -> Option<usize> {
        let spilled = self.spilled.get().map_or(0, |spilled| spilled.tuples());
        self.table.get().map(|table| self.tuples_in_memory(table) + spilled)
    }

    fn tuples_in_memory(&self, table: &Table) -> usize {
        let partitioned = self.partitioned.get().map_or(0, Partitioned::tuples);
        table.pages.iter().map(AnyPage::tuples).sum::<usize>() + partitioned
    }

    /// Number of entries of the directory, or of all partitions' ones; `None` while the build side is not finished.
    pub fn entries(&self) -> Option<usize> {
        let of_whole = |table: &Table| table.directory.entries().count();
        let entries = |table| self.partitioned.get().map_or(of_whole(table), Partitioned::entries);
        self.table.get().map(entries)
    }

    /// True if each partition of the build side is joined by itself; false while that is not finished.
    pub fn is_partitioned(&self) -> bool {
        self.partitioned.get().is_some()
    }

    /// Bytes of memory of the build side's tuples, directory and filters; `None` while it is not finished.
    pub fn bytes(&self) -> Option<u64> {
        self.table.get().map(|table| table.reservation.bytes())
    }

    /// What there is of the build side when it is finished.
    fn facts(&self) -> Facts {
        let Some(table) = self.table.get() else { return Facts::new() };
        let pages = table.pages.len() + self.partitioned.get().map_or(0, Partitioned::pages);
        let entries = self.entries().unwrap_or_default();
        let mut facts = vec![
            Fact::count("tuples in memory", self.tuples_in_memory(table) as u64),
            Fact::count("pages", pages as u64),
            Fact::bytes("memory", table.reservation.bytes()),
            Fact::count("directory entries", entries as u64),
            Fact::bytes("directory", Directory::bytes(entries) as u64),
        ];
        if let Some(spilled) = self.spilled.get() {
            let partitions = spilled.partitions();
            let on_disk = partitions.iter().filter(|partition| partition.is_on_disk()).count();
            if on_disk > 0 {
                facts.push(Fact::count("tuples on disk", spilled.tuples() as u64));
            }
            facts.push(Fact::count("partitions", partitions.len() as u64));
            if on_disk > 0 {
                facts.push(Fact::count("partitions on disk", on_disk as u64));
            }
        }
        facts
    }

    /// What of the finished build side is in memory.
    ///
    /// # Panics
    /// If it is not finished.
    pub(crate) fn table(&self) -> &Table {
        self.table.get().expect("the pipeline of the build side ended first")
    }

    /// What of the finished build side is joined partition by partition.
    pub(crate) fn partitioned(&self) -> Option<&Partitioned> {
        self.partitioned.get()
    }

    /// What of the finished build side is on disk, perhaps nothing.
    pub(crate) fn spilled(&self) -> Option<&Arc<Spilled>> {
        self.spilled.get()
    }

    /// What its workers share to spill; nothing if the query has no place to spill to.
    fn spills(&self, context: &Context) -> Option<Spills> {
        self.spills.get_or_init(|| Spills::new(context)).clone()
    }

    /// Bits of the hash that lead to a partition of the build side, once it has any: as many as there is memory for, unless
    /// partitions are joined one by one.
    fn partition_bits(&self, context: &Context) -> u32 {
        match self.spills(context) {
            Some(spills) if !grace::is_wanted(self, context) => spills.partition_bits(),
            _ => BITS_MAX,
        }
    }

    /// True if marks of tuples are looked at when all probes have ended.
    fn keeps_marks(&self) -> bool {
        self.has_remainder.load(Ordering::Relaxed)
    }

    /// A pipeline will look tuples up.
    fn announce_probe(&self) {
        self.probes_left.fetch_add(1, Ordering::Relaxed);
    }

    /// True if only one pipeline is left that has not come to what it has put aside, and nobody needs afterwards what is on disk.
    fn is_last_probe(&self) -> bool {
        self.probes_left.load(Ordering::Acquire) == 1 && !self.has_remainder.load(Ordering::Relaxed)
    }

    /// One of these pipelines has all that it needs of what is on disk.
    fn end_probe(&self) {
        let one_less = |left: usize| left.checked_sub(1);
        // Of a pipeline that nobody has announced there is nothing to be counted.
        self.probes_left.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).ok();
    }

    fn add(&self, part: Materialized) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).push(part);
    }

    fn take_parts(&self) -> Vec<Materialized> {
        std::mem::take(&mut self.parts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn has_unknown(&self) -> bool {
        self.keys.iter().any(|key| key.nulls == Nulls::Unknown)
    }
}
