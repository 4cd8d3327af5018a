//! Tuples that several pipelines will read, in no order: [`StoredTuples`](crate::source::StoredTuples) is the source. What outgrows
//! its share of the memory goes to disk, and is read from there by each of them.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};

use crate::error::Result;
use crate::pipeline::{Flow, LocalSink, Sink};
use crate::profile::{Fact, Facts};
use crate::program::Register;
use crate::query::{Context, PartitionMode};
use crate::registers::Registers;
use crate::spill::Settled;
use crate::spill::writer::{SpilledPage, Spills};
use crate::tuple::{Layout, Materialized, Materializer};

const OPERATOR: &str = "shared rows";

/// Stores all tuples.
#[derive(Debug)]
pub struct Store {
    shared: Arc<Shared>,
    stored: Arc<OnceLock<Stored>>,
}

/// Tuples that are there as long as somebody may read them.
#[derive(Debug)]
pub struct Stored {
    /// In memory.
    pub(crate) memory: Materialized,
    /// On disk.
    pub(crate) spilled: Vec<Arc<SpilledPage>>,
    /// What they are read by.
    pub(crate) spills: Option<Spills>,
    _settled: Option<Settled>,
}

impl Stored {
    fn new(mut memory: Materialized, spills: Option<Spills>) -> Stored {
        let spilled = std::mem::take(&mut memory.spilled).into_iter().map(Arc::new).collect();
        let bytes = memory.reservation.bytes();
        let settled = spills.as_ref().map(|spills| Settled::new(&spills.spilling, bytes));
        Stored { memory, spilled, spills, _settled: settled }
    }

    /// Number of tuples.
    pub fn tuples(&self) -> usize {
        let spilled: usize = self.spilled.iter().map(|page| page.tuples).sum();
        self.memory.tuples() + spilled
    }
}

#[derive(Debug)]
struct Shared {
    layout: Arc<Layout>,
    fields: Vec<Register>,
    hash: Register,
    parts: Mutex<Vec<Materialized>>,
    /// What the workers spill by, once one of them has begun.
    spills: OnceLock<Option<Spills>>,
}

impl Store {
    /// Stores `fields` in the order of the layout. `hash` is a register of [`Lane::U64`](crate::Lane::U64), of whatever.
    pub fn new(layout: Arc<Layout>, fields: Vec<Register>, hash: Register) -> Store {
        let shared =
            Shared { layout, fields, hash, parts: Mutex::default(), spills: OnceLock::new() };
        Store { shared: Arc::new(shared), stored: Arc::default() }
    }

    /// Where the tuples will be.
    pub fn stored(&self) -> Arc<OnceLock<Stored>> {
        self.stored.clone()
    }
}

impl Sink for Store {
    fn local(&self, context: &Context, _: usize) -> Result<Box<dyn LocalSink>> {
        let layout = self.shared.layout.clone();
        // Nobody looks for them: there are partitions only to be spilled.
        let never = PartitionMode::Never;
        let spills = self.shared.spills.get_or_init(|| Spills::new(context));
        let mut materializer = Materializer::new(layout, OPERATOR, &context.ledger, never, false);
        if let Some(spills) = spills {
            materializer = materializer.spilling(spills.clone());
        }
        Ok(Box::new(LocalStore { shared: self.shared.clone(), materializer }))
    }

    fn keeps_tuples(&self) -> bool {
        true
    }

    fn facts(&self) -> Facts {
        let Some(stored) = self.stored.get() else { return Facts::new() };
        vec![
            Fact::count("tuples", stored.tuples() as u64),
            Fact::count("tuples in memory", stored.memory.tuples() as u64),
            Fact::bytes("memory", stored.memory.reservation.bytes()),
        ]
    }

    fn finish<'a>(&'a self, _: &'a Context) -> BoxFuture<'a, Result<()>> {
        async {
            let parts = &self.shared.parts;
            let parts = std::mem::take(&mut *parts.lock().unwrap_or_else(PoisonError::into_inner));
            if let Some(stored) = Materialized::gather(parts).await {
                let spills = self.shared.spills.get().cloned().flatten();
                self.stored.set(Stored::new(stored, spills)).expect("a sink is finished once");
            }
            Ok(())
        }
        .boxed()
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

    fn end(mut self: Box<Self>) -> LocalBoxFuture<'static, Result<()>> {
        async move {
            self.materializer.settle().await?;
            let part = self.materializer.finish();
            self.shared.parts.lock().unwrap_or_else(PoisonError::into_inner).push(part);
            Ok(())
        }
        .boxed_local()
    }
}
