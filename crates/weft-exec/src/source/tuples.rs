//! Materialized tuples: a register of their addresses, from which the program loads the fields that it needs.

use std::sync::{Arc, OnceLock};

use super::locality::Preferred;
use crate::error::Result;
use crate::pipeline::{Morsel, Source, Tuples};
use crate::program::Register;
use crate::query::Context;
use crate::registers::Registers;
use crate::tuple::Materialized;
use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};

/// Pages of a morsel hold together so many tuples, or the last one more.
const MORSEL_TUPLES: usize = 64 << 10;

/// Tuples that another pipeline has stored: one column, of addresses.
#[derive(Debug)]
pub struct StoredTuples {
    stored: Arc<OnceLock<Materialized>>,
    /// The pages of each morsel.
    plan: OnceLock<Preferred>,
}

impl StoredTuples {
    /// What is in `stored` when the source is opened; if there is nothing, there are no tuples.
    pub fn new(stored: Arc<OnceLock<Materialized>>) -> StoredTuples {
        StoredTuples { stored, plan: OnceLock::new() }
    }
}

impl Source for StoredTuples {
    fn tuples(&self) -> u64 {
        self.stored.get().map_or(0, Materialized::tuples) as u64
    }

    fn open<'a>(&'a self, _: &'a Context) -> BoxFuture<'a, Result<()>> {
        let pages = self.stored.get().map_or(&[][..], |stored| &stored.pages);
        let mut morsels = Vec::new();
        let (mut start, mut tuples) = (0, 0);
        for (number, stored) in pages.iter().enumerate() {
            tuples += stored.page.tuples();
            let is_last = pages.get(number + 1).is_none_or(|next| next.writer != stored.writer);
            if tuples >= MORSEL_TUPLES || is_last {
                morsels.push((stored.writer, start..number + 1));
                (start, tuples) = (number + 1, 0);
            }
        }
        self.plan.get_or_init(|| Preferred::new(morsels));
        async { Ok(()) }.boxed()
    }

    fn morsel(&self, worker: usize) -> Option<Box<dyn Morsel>> {
        let pages = self.plan.get().expect("the source was opened").take(worker)?;
        Some(Box::new(PageMorsel { stored: self.stored.clone(), pages }))
    }
}

struct PageMorsel {
    stored: Arc<OnceLock<Materialized>>,
    pages: std::ops::Range<usize>,
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

struct PageTuples {
    stored: Arc<OnceLock<Materialized>>,
    page: usize,
}

impl Tuples for PageTuples {
    fn rows(&self) -> usize {
        self.stored.get().map_or(0, |stored| stored.pages[self.page].page.tuples())
    }

    fn load(
        &self,
        start: usize,
        rows: usize,
        inputs: &[Register],
        registers: &mut Registers,
    ) -> Result<()> {
        let stored = self.stored.get().expect("there are tuples");
        let page = &stored.pages[self.page].page;
        let vector = registers.vector_mut(inputs[0]);
        vector.validity.set_all();
        let addresses = &mut vector.values_mut::<u64>()[..rows];
        for (row, address) in addresses.iter_mut().enumerate() {
            *address = page.tuple(start + row) as u64;
        }
        Ok(())
    }
}
