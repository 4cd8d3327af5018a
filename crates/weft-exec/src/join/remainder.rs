//! The tuples of a join's build side, once the probe side has ended: those that have matched, those that have not, or all.
//!
//! Tuples in memory are marked themselves, those on disk by bits that their partitions have (`spilled`).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::LocalBoxFuture;
use weft_rt::memory::Holder;

use super::directory::Link;
use super::spilled::{NumberedPage, Spilled};
use super::{BUILD, Join};
use crate::error::Result;
use crate::lane::Bool;
use crate::pipeline::{Morsel, Source, Tuples};
use crate::program::Register;
use crate::query::Context;
use crate::registers::Registers;
use crate::spill::any_page::AnyPage;
use crate::spill::frozen::Frozen;
use crate::spill::reader::Reader;

/// About so many tuples are a morsel.
const MORSEL_TUPLES: usize = 16 << 10;

/// Which tuples of the build side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those that have matched: a semi join that keeps the build side.
    Matched,
    /// Those that have not: an anti join that keeps the build side, or the rest of an outer one.
    Unmatched,
    /// All, with a second column of [`Lane::Bool`](crate::Lane::Bool) that says whether they have matched.
    All,
}

/// Goes through the build side of a join. Its column is the address of a tuple, in [`Lane::U64`](crate::Lane::U64).
#[derive(Debug)]
pub struct Remainder {
    join: Arc<Join>,
    which: Which,
    /// The first page in memory that has not been handed out.
    next: AtomicUsize,
    /// The first partition that has not been.
    next_partition: AtomicUsize,
}

impl Remainder {
    /// Of a join whose probes mark what has matched, all of which end before this is opened.
    pub fn new(join: Arc<Join>, which: Which) -> Remainder {
        join.has_remainder.store(true, Ordering::Relaxed);
        let count = || AtomicUsize::new(0);
        Remainder { join, which, next: count(), next_partition: count() }
    }

    /// The next pages in memory.
    fn take(&self) -> Option<Range<usize>> {
        let pages = &self.join.table().pages;
        let end = |start: usize| {
            let mut tuples = 0;
            let is_full = |page: &usize| {
                tuples += pages[*page].tuples();
                tuples >= MORSEL_TUPLES
            };
            (start..pages.len()).find(is_full).map_or(pages.len(), |page| page + 1)
        };
        let advance = |start| (start < pages.len()).then(|| end(start));
        let taken = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance);
        taken.ok().map(|start| start..end(start))
    }

    /// The pages of the next partition that is on disk, or joined by itself.
    fn take_partition(&self) -> Option<Box<dyn Morsel>> {
        let spilled = self.join.spilled()?;
        loop {
            let number = self.next_partition.fetch_add(1, Ordering::Relaxed);
            let partition = spilled.partitions().get(number)?;
            if let Some(partitioned) = self.join.partitioned()
                && partitioned.tuples_of(number) > 0
            {
                return Some(Box::new(PartitionMorsel {
                    join: self.join.clone(),
                    which: self.which,
                    partition: number,
                    pages: 0..partitioned.pages_of(number),
                }));
            }
            if !partition.is_on_disk() {
                continue;
            }
            let (pages, spills) = (partition.pages(), spilled.spills.clone());
            let read = pages.iter().map(|page| page.page.clone()).collect();
            let (memory, holder) = (spills.ledger.empty(), spills.ledger.holder());
            return Some(Box::new(SpilledMorsel {
                spilled: spilled.clone(),
                which: self.which,
                partition: number,
                pages: pages.into_iter(),
                reader: Reader::new(BUILD, spills, read, memory),
                _holder: holder,
            }));
        }
    }
}

impl Source for Remainder {
    fn tuples(&self) -> u64 {
        self.join.tuples().unwrap_or_default() as u64
    }

    fn morsel(&self, _worker: usize) -> Option<Box<dyn Morsel>> {
        match self.take() {
            Some(pages) => {
                let (join, which) = (self.join.clone(), self.which);
                Some(Box::new(RemainderMorsel { join, which, pages }))
            }
            None => self.take_partition(),
        }
    }

    fn depth(&self, _context: &Context) -> usize {
        1
    }
}

struct RemainderMorsel {
    join: Arc<Join>,
    which: Which,
    pages: Range<usize>,
}

impl Morsel for RemainderMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        Box::pin(async move {
            let Some(page) = self.pages.next() else { return Ok(None) };
            let page = &self.join.table().pages[page];
            // SAFETY: a tuple of a finished build.
            let is_marked = |number| unsafe { Link::after(page.tuple(number) as u64) }.is_marked();
            let tuples = BuildTuples::new(page, self.which, is_marked);
            Ok(Some(Box::new(tuples) as Box<dyn Tuples>))
        })
    }
}

/// A partition of a grace join.
struct PartitionMorsel {
    join: Arc<Join>,
    which: Which,
    partition: usize,
    pages: Range<usize>,
}

impl Morsel for PartitionMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        Box::pin(async move {
            let Some(partitioned) = self.join.partitioned() else { return Ok(None) };
            let Some(page) = self.pages.next() else { return Ok(None) };
            let tuples = partitioned.remainder(self.partition, page, self.which).await;
            Ok(Some(Box::new(tuples) as Box<dyn Tuples>))
        })
    }
}

/// A partition that is on disk.
struct SpilledMorsel {
    spilled: Arc<Spilled>,
    which: Which,
    partition: usize,
    pages: std::vec::IntoIter<NumberedPage>,
    reader: Reader,
    /// What it has read comes free again: who waits for memory may wait for this.
    _holder: Holder,
}

impl Morsel for SpilledMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        Box::pin(async move {
            let (Some(page), Some(read)) = (self.pages.next(), self.reader.next().await?) else {
                return Ok(None);
            };
            let first = page.first.unwrap_or_default();
            let is_marked =
                |number: usize| self.spilled.is_marked(self.partition, first + number as u64);
            let page = AnyPage::Read(read);
            let mut tuples = BuildTuples::new(&page, self.which, is_marked);
            if let AnyPage::Read(read) = page {
                tuples._lie_in = Some(read);
            }
            Ok(Some(Box::new(tuples) as Box<dyn Tuples>))
        })
    }
}

/// Tuples of a page, as a morsel gives them.
pub(super) struct BuildTuples {
    addresses: Vec<u64>,
    marks: Vec<Bool>,
    /// What they lie in, if the build side does not have it.
    _lie_in: Option<Frozen>,
}

impl BuildTuples {
    /// Those tuples of a page that are wanted.
    pub(super) fn new(
        page: &AnyPage,
        which: Which,
        is_marked: impl Fn(usize) -> bool,
    ) -> BuildTuples {
        let mut tuples = BuildTuples { addresses: Vec::new(), marks: Vec::new(), _lie_in: None };
        for number in 0..page.tuples() {
            let is_marked = is_marked(number);
            match which {
                Which::Matched if !is_marked => continue,
                Which::Unmatched if is_marked => continue,
                Which::Matched | Which::Unmatched => {}
                Which::All => tuples.marks.push(is_marked.into()),
            }
            tuples.addresses.push(page.tuple(number) as u64);
        }
        tuples
    }
}

impl Tuples for BuildTuples {
    fn rows(&self) -> usize {
        self.addresses.len()
    }

    fn load(
        &self,
        start: usize,
        rows: usize,
        inputs: &[Register],
        registers: &mut Registers,
    ) -> Result<()> {
        for (column, register) in inputs.iter().enumerate() {
            let vector = registers.vector_mut(*register);
            vector.validity.set_all();
            if column == 0 {
                vector.values_mut()[..rows].copy_from_slice(&self.addresses[start..start + rows]);
            } else {
                vector.values_mut()[..rows].copy_from_slice(&self.marks[start..start + rows]);
            }
        }
        Ok(())
    }
}
