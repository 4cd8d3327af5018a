//! The source of sorted rows with the results of window functions.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};
use weft_rt::MorselQueue;
use weft_rt::memory::{Ledger, MemoryError, Reservation};
use weft_rt::progress::Progress;

use super::column::Column;
use super::functions::Function;
use super::morsel::{Rows, evaluate};
use super::sorted_rows::SortedRows;
use super::starts::{Starts, starts};
use crate::error::{ExecError, Result};
use crate::pace::Pace;
use crate::pipeline::{Morsel, Source, Tuples};
use crate::program::Register;
use crate::query::Context;
use crate::registers::Registers;
use crate::sort::Sort;
use crate::sort::rows::load_addresses;
use crate::tuple::Layout;
use crate::tuple::budget::Budget;

/// What errors call the operator.
pub(crate) const OPERATOR: &str = "a window";

/// Rows of a morsel: whole partitions until there are so many.
const MORSEL_ROWS: usize = 16 << 10;

/// Sorted tuples: a column of addresses, and one for each function. Workers share the partitions, unless somebody
/// wants the order.
#[derive(Debug)]
pub struct WindowRows {
    shared: Arc<Shared>,
    plan: OnceLock<Arc<Plan>>,
    is_ordered: Arc<AtomicBool>,
    /// The worker that gets the morsels if they are to come in their order.
    worker: OnceLock<usize>,
}

#[derive(Debug)]
struct Shared {
    sorted: SortedRows,
    layout: Arc<Layout>,
    functions: Vec<Function>,
    /// The sets of fields whose changes are looked for. The first one is that of partitions.
    sets: Vec<Vec<usize>>,
    /// The set of each function's partition and order.
    peers: Vec<usize>,
}

/// What is known when the rows are sorted.
#[derive(Debug)]
struct Plan {
    morsels: Vec<Range<usize>>,
    queue: MorselQueue,
    /// Of each set.
    starts: Vec<Starts>,
    ledger: Ledger,
    progress: Arc<Progress>,
    _memory: Reservation,
}

impl WindowRows {
    /// Functions over the tuples of `sort`, which has brought together those that agree in the fields `partition`, and
    /// has ordered them as the functions want.
    pub fn new(sort: &Sort, partition: Vec<usize>, functions: Vec<Function>) -> WindowRows {
        let mut sets = vec![sorted_set(partition)];
        let peers = functions
            .iter()
            .map(|function| {
                let fields = sets[0].iter().chain(&function.order).copied().collect();
                let set = sorted_set(fields);
                sets.iter().position(|known| *known == set).unwrap_or_else(|| {
                    sets.push(set);
                    sets.len() - 1
                })
            })
            .collect();
        let (sorted, layout) = (SortedRows::All(sort.sorted()), sort.layout().clone());
        let shared = Shared { sorted, layout, functions, sets, peers };
        WindowRows {
            shared: Arc::new(shared),
            plan: OnceLock::new(),
            is_ordered: Arc::default(),
            worker: OnceLock::new(),
        }
    }

    /// To be set, before the query runs, if one worker is to get all rows in the order of the sort.
    pub fn is_ordered(&self) -> Arc<AtomicBool> {
        self.is_ordered.clone()
    }
}

fn sorted_set(mut fields: Vec<usize>) -> Vec<usize> {
    fields.sort_unstable();
    fields.dedup();
    fields
}

impl Shared {
    /// Finds partitions and peers, and cuts the rows into morsels. On a worker.
    async fn plan(&self, context: Context) -> Result<Plan> {
        if self.sorted.is_on_disk() {
            let (requested_bytes, limit_bytes) =
                (context.ledger.limit() + 1, context.ledger.limit());
            let source = MemoryError::TooLarge { requested_bytes, limit_bytes };
            return Err(ExecError::Memory { operator: OPERATOR.into(), source });
        }
        let rows = self.sorted.entries().len();
        let mut budget = Budget::new(OPERATOR, &context.ledger);
        budget.reserve(Starts::bytes(rows) * self.sets.len() as u64).await?;
        // SAFETY: the tuples are those of the sort, as the layout is.
        let starts =
            unsafe { starts(&self.sorted, &self.layout, self.sets.clone(), &context).await? };
        let mut pace = Pace::default();
        let (mut morsels, mut start) = (Vec::new(), 0);
        for partition in starts[0].ranges(0..rows) {
            if partition.end - start >= MORSEL_ROWS || partition.end == rows {
                morsels.push(start..partition.end);
                start = partition.end;
                pace.keep().await;
            }
        }
        context.progress.add_total(morsels.len() as u64);
        let queue = MorselQueue::new(morsels.len() as u64, 1);
        let Context { ledger, progress, .. } = context;
        Ok(Plan { morsels, queue, starts, ledger, progress, _memory: budget.finish() })
    }
}

impl Source for WindowRows {
    fn open<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<()>> {
        async {
            let (shared, for_worker) = (self.shared.clone(), context.clone());
            let plan = context.on_a_worker(move || async move { shared.plan(for_worker).await });
            self.plan.set(Arc::new(plan.await?)).expect("a source is opened once");
            Ok(())
        }
        .boxed()
    }

    fn morsel(&self, worker: usize) -> Option<Box<dyn Morsel>> {
        let is_ordered = self.is_ordered.load(Ordering::Relaxed);
        if is_ordered && *self.worker.get_or_init(|| worker) != worker {
            return None;
        }
        let plan = self.plan.get().expect("the source was opened");
        let rows = plan.morsels[plan.queue.next()?.start as usize].clone();
        let (shared, plan) = (self.shared.clone(), plan.clone());
        Some(Box::new(WindowMorsel { shared, plan, rows: Some(rows) }))
    }
}

struct WindowMorsel {
    shared: Arc<Shared>,
    plan: Arc<Plan>,
    /// Until they are evaluated.
    rows: Option<Range<usize>>,
}

impl Morsel for WindowMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        async {
            let Some(range) = self.rows.take() else {
                self.plan.progress.add_done(1);
                return Ok(None);
            };
            let evaluated = Evaluated::new(self.shared.clone(), &self.plan, range).await?;
            Ok(Some(Box::new(evaluated) as Box<dyn Tuples>))
        }
        .boxed_local()
    }
}

/// Rows of whole partitions, and the results of the functions.
struct Evaluated {
    shared: Arc<Shared>,
    range: Range<usize>,
    results: Vec<Column>,
    _memory: Reservation,
}

impl Evaluated {
    async fn new(shared: Arc<Shared>, plan: &Plan, range: Range<usize>) -> Result<Evaluated> {
        let sorted = shared.sorted.entries();
        let mut budget = Budget::new(OPERATOR, &plan.ledger);
        let mut pace = Pace::default();
        let mut results = Vec::with_capacity(shared.functions.len());
        for (function, peers) in shared.functions.iter().zip(&shared.peers) {
            let rows = Rows {
                sorted,
                layout: &shared.layout,
                range: range.clone(),
                partitions: &plan.starts[0],
                peers: &plan.starts[*peers],
            };
            // SAFETY: the tuples are those of the sort, as the layout is.
            results.push(unsafe { evaluate(function, &rows, &mut budget, &mut pace).await? });
        }
        Ok(Evaluated { shared, range, results, _memory: budget.finish() })
    }
}

impl Tuples for Evaluated {
    fn rows(&self) -> usize {
        self.range.len()
    }

    fn load(
        &self,
        start: usize,
        rows: usize,
        inputs: &[Register],
        registers: &mut Registers,
    ) -> Result<()> {
        let entries = &self.shared.sorted.entries()[self.range.start + start..][..rows];
        load_addresses(entries, inputs, registers);
        for (result, input) in self.results.iter().zip(&inputs[1..]) {
            result.load(start, rows, registers.vector_mut(*input));
        }
        Ok(())
    }
}
