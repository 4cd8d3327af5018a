//! The sink of a full sort.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};

use super::gathering::{Gathering, Part};
use super::order::Order;
use super::sorted::Sorted;
use crate::error::Result;
use crate::pipeline::{Flow, LocalSink, Sink};
use crate::profile::Facts;
use crate::program::Register;
use crate::query::Context;
use crate::registers::Registers;
use crate::tuple::Layout;

/// Sorts all tuples.
#[derive(Debug)]
pub struct Sort {
    shared: Arc<Shared>,
    sorted: Arc<OnceLock<Sorted>>,
}

#[derive(Debug)]
struct Shared {
    /// What errors call the operator.
    operator: &'static str,
    order: Arc<Order>,
    fields: Vec<Register>,
    bits: Register,
    /// So many rows are wanted.
    most: usize,
    parts: Mutex<Vec<Part>>,
}

impl Sort {
    /// Sorts tuples that are stored from `fields`. `bits` is a register of [`Lane::U64`](crate::Lane::U64) that no step
    /// uses.
    pub fn new(order: Order, fields: Vec<Register>, bits: Register) -> Sort {
        Sort::of("a sort", order, fields, bits)
    }

    /// The same for the first `most` of the tuples, which are more than a [`TopK`](super::TopK) keeps.
    pub fn first(order: Order, fields: Vec<Register>, bits: Register, most: usize) -> Sort {
        Sort::with("a sort", order, fields, bits, most)
    }

    /// The same on behalf of an operator, which errors name.
    pub fn of(operator: &'static str, order: Order, fields: Vec<Register>, bits: Register) -> Sort {
        Sort::with(operator, order, fields, bits, usize::MAX)
    }

    fn with(
        operator: &'static str,
        order: Order,
        fields: Vec<Register>,
        bits: Register,
        most: usize,
    ) -> Sort {
        let (order, parts) = (Arc::new(order), Mutex::default());
        let shared = Shared { operator, order, fields, bits, most, parts };
        Sort { shared: Arc::new(shared), sorted: Arc::default() }
    }

    /// How tuples lie.
    pub fn layout(&self) -> &Arc<Layout> {
        self.shared.order.layout()
    }

    /// Where the sorted tuples will be.
    pub fn sorted(&self) -> Arc<OnceLock<Sorted>> {
        self.sorted.clone()
    }
}

impl Sink for Sort {
    fn reads(&self) -> Option<Vec<Register>> {
        Some(self.shared.fields.iter().copied().chain([self.shared.bits]).collect())
    }

    fn local(&self, context: &Context, _: usize) -> Result<Box<dyn LocalSink>> {
        let Shared { operator, order, most, .. } = &*self.shared;
        let gathering = Gathering::new(operator, order.clone(), *most, context);
        Ok(Box::new(LocalSort { shared: self.shared.clone(), gathering }))
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
            let Shared { operator, order, most, .. } = &*self.shared;
            // SAFETY: a local sort stores with the order's layout, and the bits in place of hashes.
            let sorted =
                unsafe { Sorted::sort(operator, parts, *most, order.clone(), context).await? };
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

struct LocalSort {
    shared: Arc<Shared>,
    gathering: Gathering,
}

impl LocalSink for LocalSort {
    fn push<'a>(&'a mut self, registers: &'a mut Registers) -> LocalBoxFuture<'a, Result<Flow>> {
        async {
            let Shared { order, fields, bits, .. } = &*self.shared;
            order.prepare(registers, fields, *bits);
            self.gathering.store(registers, *bits, fields).await?;
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
