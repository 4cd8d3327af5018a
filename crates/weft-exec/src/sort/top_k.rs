//! The first tuples of an order: each worker keeps its best ones, and all share a bound that most others do not pass.
//!
//! A worker stores what may be among the first `k`, and when it has stored so many more it throws away all but its best
//! `k`. The last of these is a bound for everybody: of what comes behind it nothing is stored.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};

use super::entries::entries_of;
use super::gathering::{Gathering, Part};
use super::order::Order;
use super::sorted::Sorted;
use crate::error::Result;
use crate::pipeline::{Flow, LocalSink, Sink};
use crate::profile::Facts;
use crate::program::Register;
use crate::query::Context;
use crate::registers::Registers;

/// Tuples that a worker stores at least before it looks for its best ones.
const STORED_MIN: usize = 4096;

/// What errors call the operator.
const OPERATOR: &str = "the first rows of a sort";

/// Keeps the first tuples of an order.
#[derive(Debug)]
pub struct TopK {
    shared: Arc<Shared>,
    sorted: Arc<OnceLock<Sorted>>,
}

#[derive(Debug)]
struct Shared {
    order: Arc<Order>,
    fields: Vec<Register>,
    bits: Register,
    most: usize,
    /// Tuples with larger bits are not among the first.
    bound: AtomicU64,
    parts: Mutex<Vec<Part>>,
}

impl TopK {
    /// Keeps the first `most` of the tuples, which are stored from `fields`. `bits` is a register of
    /// [`Lane::U64`](crate::Lane::U64) that no step uses.
    pub fn new(order: Order, fields: Vec<Register>, bits: Register, most: usize) -> TopK {
        let shared = Shared {
            order: Arc::new(order),
            fields,
            bits,
            most,
            bound: AtomicU64::new(u64::MAX),
            parts: Mutex::default(),
        };
        TopK { shared: Arc::new(shared), sorted: Arc::default() }
    }

    /// Where the tuples will be, in their order.
    pub fn sorted(&self) -> Arc<OnceLock<Sorted>> {
        self.sorted.clone()
    }
}

impl Sink for TopK {
    fn reads(&self) -> Option<Vec<Register>> {
        Some(self.shared.fields.iter().copied().chain([self.shared.bits]).collect())
    }

    fn local(&self, context: &Context, _: usize) -> Result<Box<dyn LocalSink>> {
        let shared = self.shared.clone();
        let gathering = Gathering::new(OPERATOR, shared.order.clone(), shared.most, context);
        let thins_at = shared.most.max(STORED_MIN).saturating_mul(2);
        Ok(Box::new(LocalTopK { shared, context: context.clone(), gathering, stored: 0, thins_at }))
    }

    fn keeps_tuples(&self) -> bool {
        true
    }

    fn facts(&self) -> Facts {
        self.sorted.get().map(Sorted::facts).unwrap_or_default()
    }

    fn finish<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<()>> {
        async {
            let parts = std::mem::take(&mut *self.shared.parts());
            let Shared { most, order, .. } = &*self.shared;
            // SAFETY: local parts store with the order's layout, and the bits in place of hashes.
            let sorted =
                unsafe { Sorted::sort(OPERATOR, parts, *most, order.clone(), context).await? };
            self.sorted.set(sorted).expect("a sink is finished once");
            Ok(())
        }
        .boxed()
    }
}

impl Shared {
    /// What workers have stored.
    fn parts(&self) -> MutexGuard<'_, Vec<Part>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct LocalTopK {
    shared: Arc<Shared>,
    context: Context,
    gathering: Gathering,
    /// Tuples in memory.
    stored: usize,
    /// When there are so many, it throws some away.
    thins_at: usize,
}

impl LocalTopK {
    /// Throws away all tuples in memory but the first ones, and tells the others what the last of these is. If there is no
    /// memory for their copies it throws none away.
    async fn thin_out(&mut self) {
        let Shared { order, most, bound, .. } = &*self.shared;
        let (order, most) = (order.clone(), *most);
        let mut entries = entries_of(self.gathering.materializer.pages()).await;
        // SAFETY: the tuples lie on the pages.
        entries.select_nth_unstable_by(most - 1, |a, b| unsafe { a.compare(b, &order) });
        entries.truncate(most);
        let last = entries[most - 1].bits;
        // Where bits say all, equal ones are not among the first either.
        let passes = if order.is_exact() { last.saturating_sub(1) } else { last };
        bound.fetch_min(passes, Ordering::Relaxed);
        let mut copies = Gathering::materializer_of(OPERATOR, &order, &self.context);
        let allowance = &mut self.gathering.allowance;
        allowance.held_bytes = self.gathering.materializer.bytes();
        // SAFETY: as above.
        let is_copied =
            entries.iter().all(|entry| unsafe { copies.copy(entry.tuple as *const u8, allowance) });
        allowance.held_bytes = 0;
        if is_copied {
            self.gathering.materializer = copies;
            self.stored = most;
        }
        self.thins_at = self.stored.saturating_add(most.max(STORED_MIN));
    }
}

impl LocalSink for LocalTopK {
    fn push<'a>(&'a mut self, registers: &'a mut Registers) -> LocalBoxFuture<'a, Result<Flow>> {
        async {
            let Shared { order, fields, bits, most, bound, .. } = &*self.shared;
            if *most == 0 {
                return Ok(Flow::Enough);
            }
            order.prepare(registers, fields, *bits);
            let bound = bound.load(Ordering::Relaxed);
            let ranks = registers.take(*bits);
            let values = ranks.values::<u64>();
            registers.selection.retain(|row| values[row] <= bound);
            registers.put(*bits, ranks);
            let count = registers.selection.count();
            if count == 0 {
                return Ok(Flow::More);
            }
            if self.gathering.store(registers, *bits, fields).await? {
                self.stored = self.gathering.materializer.unpartitioned();
                self.thins_at =
                    self.stored.saturating_add((*most).max(STORED_MIN).saturating_mul(2));
            } else {
                self.stored += count;
            }
            if self.stored >= self.thins_at {
                self.thin_out().await;
            }
            Ok(Flow::More)
        }
        .boxed_local()
    }

    fn end(self: Box<Self>) -> LocalBoxFuture<'static, Result<()>> {
        async move {
            let part = self.gathering.end().await?;
            self.shared.parts().push(part);
            Ok(())
        }
        .boxed_local()
    }
}
