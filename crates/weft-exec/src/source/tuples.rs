//! Materialized tuples: a register of their addresses, from which the program loads the fields that it needs.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};
use weft_rt::memory::Holder;

use super::locality::Preferred;
use crate::error::Result;
use crate::pipeline::{Morsel, Source, Tuples};
use crate::program::Register;
use crate::query::Context;
use crate::registers::Registers;
use crate::sink::Stored;
use crate::spill::frozen::Frozen;
use crate::spill::reader::Reader;

/// Pages of a morsel hold together so many tuples, or the last one more.
const MORSEL_TUPLES: usize = 64 << 10;
/// So many pages on disk are a morsel.
const MORSEL_PAGES: usize = 16;

/// Tuples that another pipeline has stored: one column, of addresses.
#[derive(Debug)]
pub struct StoredTuples {
    stored: Arc<OnceLock<Stored>>,
    /// The pages of each morsel: those in memory, and those on disk.
    plan: OnceLock<Preferred<Pages>>,
}

#[derive(Clone, Debug)]
enum Pages {
    InMemory(Range<usize>),
    OnDisk(Range<usize>),
}

impl StoredTuples {
    /// What is in `stored` when the source is opened; if there is nothing, there are no tuples.
    pub fn new(stored: Arc<OnceLock<Stored>>) -> StoredTuples {
        StoredTuples { stored, plan: OnceLock::new() }
    }
}

impl Source for StoredTuples {
    fn tuples(&self) -> u64 {
        self.stored.get().map_or(0, Stored::tuples) as u64
    }

    fn open<'a>(&'a self, _: &'a Context) -> BoxFuture<'a, Result<()>> {
        let pages = self.stored.get().map_or(&[][..], |stored| &stored.memory.pages);
        let mut morsels = Vec::new();
        let (mut start, mut tuples) = (0, 0);
        for (number, stored) in pages.iter().enumerate() {
            tuples += stored.page.tuples();
            let is_last = pages.get(number + 1).is_none_or(|next| next.writer != stored.writer);
            if tuples >= MORSEL_TUPLES || is_last {
                morsels.push((stored.writer, Pages::InMemory(start..number + 1)));
                (start, tuples) = (number + 1, 0);
            }
        }
        let on_disk = self.stored.get().map_or(0, |stored| stored.spilled.len());
        let starts = (0..on_disk).step_by(MORSEL_PAGES);
        // They are in nobody's caches.
        morsels.extend(
            starts.map(|start| (None, Pages::OnDisk(start..on_disk.min(start + MORSEL_PAGES)))),
        );
        self.plan.get_or_init(|| Preferred::new(morsels));
        async { Ok(()) }.boxed()
    }

    fn morsel(&self, worker: usize) -> Option<Box<dyn Morsel>> {
        let pages = self.plan.get().expect("the source was opened").take(worker)?;
        let stored = self.stored.clone();
        match pages {
            Pages::InMemory(pages) => Some(Box::new(PageMorsel { stored, pages })),
            Pages::OnDisk(pages) => {
                let stored = stored.get()?;
                let spills = stored.spills.clone()?;
                let (memory, holder) = (spills.ledger.empty(), spills.ledger.holder());
                let pages = stored.spilled[pages].to_vec();
                let reader = Reader::new("shared rows", spills, pages, memory);
                Some(Box::new(SpilledMorsel { reader, _holder: holder }))
            }
        }
    }
}

struct PageMorsel {
    stored: Arc<OnceLock<Stored>>,
    pages: Range<usize>,
}

impl Morsel for PageMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        let tuples = self.pages.next().map(|page| {
            let stored = self.stored.clone();
            Box::new(PageTuples { stored, page }) as Box<dyn Tuples>
        });
        async { Ok(tuples) }.boxed_local()
    }
}

/// Pages that come back from disk.
struct SpilledMorsel {
    reader: Reader,
    /// What it has read comes free again: who waits for memory may wait for this.
    _holder: Holder,
}

impl Morsel for SpilledMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        async {
            let page = self.reader.next().await?;
            Ok(page.map(|page| Box::new(SpilledTuples { page }) as Box<dyn Tuples>))
        }
        .boxed_local()
    }
}

struct SpilledTuples {
    page: Frozen,
}

impl Tuples for SpilledTuples {
    fn rows(&self) -> usize {
        self.page.tuples()
    }

    fn load(
        &self,
        start: usize,
        rows: usize,
        inputs: &[Register],
        registers: &mut Registers,
    ) -> Result<()> {
        let tuples = start..start + rows;
        load(tuples.map(|number| self.page.tuple(number) as u64), inputs[0], registers);
        Ok(())
    }
}

struct PageTuples {
    stored: Arc<OnceLock<Stored>>,
    page: usize,
}

impl Tuples for PageTuples {
    fn rows(&self) -> usize {
        self.stored.get().map_or(0, |stored| stored.memory.pages[self.page].page.tuples())
    }

    fn load(
        &self,
        start: usize,
        rows: usize,
        inputs: &[Register],
        registers: &mut Registers,
    ) -> Result<()> {
        let stored = self.stored.get().expect("there are tuples");
        let page = &stored.memory.pages[self.page].page;
        let tuples = start..start + rows;
        load(tuples.map(|number| page.tuple(number) as u64), inputs[0], registers);
        Ok(())
    }
}

/// Puts addresses into a register.
fn load(addresses: impl ExactSizeIterator<Item = u64>, input: Register, registers: &mut Registers) {
    let vector = registers.vector_mut(input);
    vector.validity.set_all();
    let places = &mut vector.values_mut::<u64>()[..addresses.len()];
    places.iter_mut().zip(addresses).for_each(|(place, address)| *place = address);
}
