//! Tuples that several pipelines will read, in no order: [`StoredTuples`](crate::source::StoredTuples) is the source.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};

use crate::error::Result;
use crate::pipeline::{Flow, LocalSink, Sink};
use crate::profile::{Fact, Facts};
use crate::program::Register;
use crate::query::{Context, PartitionMode};
use crate::registers::Registers;
use crate::tuple::{Layout, Materialized, Materializer};

/// Stores all tuples.
#[derive(Debug)]
pub struct Store {
    shared: Arc<Shared>,
    stored: Arc<OnceLock<Materialized>>,
}

#[derive(Debug)]
struct Shared {
    layout: Arc<Layout>,
    fields: Vec<Register>,
    hash: Register,
    parts: Mutex<Vec<Materialized>>,
}

impl Store {
    /// Stores `fields` in the order of the layout. `hash` is a register of [`Lane::U64`](crate::Lane::U64), of whatever.
    pub fn new(layout: Arc<Layout>, fields: Vec<Register>, hash: Register) -> Store {
        let shared = Shared { layout, fields, hash, parts: Mutex::default() };
        Store { shared: Arc::new(shared), stored: Arc::default() }
    }

    /// Where the tuples will be.
    pub fn stored(&self) -> Arc<OnceLock<Materialized>> {
        self.stored.clone()
    }
}

impl Sink for Store {
    fn local(&self, context: &Context, _: usize) -> Result<Box<dyn LocalSink>> {
        let layout = self.shared.layout.clone();
        // Nobody looks for them.
        let never = PartitionMode::Never;
        let materializer = Materializer::new(layout, "shared rows", &context.ledger, never, false);
        Ok(Box::new(LocalStore { shared: self.shared.clone(), materializer }))
    }

    fn facts(&self) -> Facts {
        let Some(stored) = self.stored.get() else { return Facts::new() };
        vec![
            Fact::count("tuples in memory", stored.tuples() as u64),
            Fact::bytes("memory", stored.reservation.bytes()),
        ]
    }

    fn finish<'a>(&'a self, _: &'a Context) -> BoxFuture<'a, Result<()>> {
        let parts = &self.shared.parts;
        let parts = std::mem::take(&mut *parts.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(stored) = Materialized::gather(parts) {
            self.stored.set(stored).expect("a sink is finished once");
        }
        async { Ok(()) }.boxed()
    }
}

struct LocalStore {
    shared: Arc<Shared>,
    materializer: Materializer,
}

impl LocalSink for LocalStore {
    fn push<'a>(&'a mut self, registers: &'a mut Registers) -> LocalBoxFuture<'a, Result<Flow>> {
        async {
            let Shared { fields, hash, .. } = &*self.shared;
            self.materializer.store(registers, *hash, fields).await?;
            Ok(Flow::More)
        }
        .boxed_local()
    }

    fn end(self: Box<Self>) -> LocalBoxFuture<'static, Result<()>> {
        let mut parts = self.shared.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.push(self.materializer.finish());
        async { Ok(()) }.boxed_local()
    }
}
