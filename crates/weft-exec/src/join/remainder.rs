//! The tuples of a join's build side, once the probe side has ended: those that have matched, those that have not, or all.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::{BoxFuture, LocalBoxFuture};

use super::Join;
use super::directory::Link;
use crate::error::Result;
use crate::lane::Bool;
use crate::pipeline::{Morsel, Source, Tuples};
use crate::program::Register;
use crate::query::Context;
use crate::registers::Registers;

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
    /// The first page that has not been handed out.
    next: AtomicUsize,
}

impl Remainder {
    /// Of a join whose probes mark what has matched, all of which end before this is opened.
    pub fn new(join: Arc<Join>, which: Which) -> Remainder {
        Remainder { join, which, next: AtomicUsize::new(0) }
    }

    /// The next pages.
    fn take(&self) -> Option<Range<usize>> {
        let pages = &self.join.table().tuples.pages;
        let end = |start: usize| {
            let mut tuples = 0;
            let is_full = |page: &usize| {
                tuples += pages[*page].page.tuples();
                tuples >= MORSEL_TUPLES
            };
            (start..pages.len()).find(is_full).map_or(pages.len(), |page| page + 1)
        };
        let advance = |start| (start < pages.len()).then(|| end(start));
        let taken = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance);
        taken.ok().map(|start| start..end(start))
    }
}

impl Source for Remainder {
    fn open<'a>(&'a self, _context: &'a Context) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn morsel(&self, _worker: usize) -> Option<Box<dyn Morsel>> {
        let pages = self.take()?;
        Some(Box::new(RemainderMorsel { join: self.join.clone(), which: self.which, pages }))
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
            let page = &self.join.table().tuples.pages[page].page;
            let mut tuples = BuildTuples { addresses: Vec::new(), marks: Vec::new() };
            for number in 0..page.tuples() {
                let address = page.tuple(number) as u64;
                // SAFETY: a tuple of a finished build.
                let is_marked = unsafe { Link::after(address) }.is_marked();
                match self.which {
                    Which::Matched if !is_marked => continue,
                    Which::Unmatched if is_marked => continue,
                    Which::Matched | Which::Unmatched => {}
                    Which::All => tuples.marks.push(is_marked.into()),
                }
                tuples.addresses.push(address);
            }
            Ok(Some(Box::new(tuples) as Box<dyn Tuples>))
        })
    }
}

struct BuildTuples {
    addresses: Vec<u64>,
    marks: Vec<Bool>,
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
