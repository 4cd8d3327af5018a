//! The source of sorted rows with the results of window functions.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};
use weft_rt::MorselQueue;
use weft_rt::memory::{Ledger, Reservation};

use super::column::Column;
use super::functions::Function;
use super::morsel::{Rows, evaluate};
use super::sorted_rows::SortedRows;
use super::starts::{Starts, starts};
use super::stream::{Piece, Stream};
use crate::error::Result;
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
pub(super) const MORSEL_ROWS: usize = 16 << 10;

/// Sorted tuples: a column of addresses, and one for each function. Workers share the partitions, unless somebody
/// wants the order.
#[derive(Debug)]
pub struct WindowRows {
    shared: Arc<Shared>,
    plan: OnceLock<Arc<Plan>>,
    /// In place of a plan, if the rows are not in memory.
    stream: OnceLock<Arc<Stream>>,
    is_ordered: Arc<AtomicBool>,
    /// The worker that gets the morsels if they are to come in their order.
    worker: OnceLock<usize>,
}

#[derive(Debug)]
pub(super) struct Shared {
    sorted: SortedRows,
    pub(super) layout: Arc<Layout>,
    pub(super) functions: Vec<Function>,
    /// The sets of fields whose changes are looked for. The first one is that of partitions.
    pub(super) sets: Vec<Vec<usize>>,
    /// The set of each function's partition and order.
    pub(super) peers: Vec<usize>,
}

/// What is known when the rows are sorted.
#[derive(Debug)]
struct Plan {
    morsels: Vec<Range<usize>>,
    queue: MorselQueue,
    /// Of each set.
    starts: Vec<Starts>,
    ledger: Ledger,
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
            stream: OnceLock::new(),
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
        let queue = MorselQueue::new(morsels.len() as u64, 1);
        Ok(Plan { morsels, queue, starts, ledger: context.ledger, _memory: budget.finish() })
    }
}

impl Source for WindowRows {
    fn tuples(&self) -> u64 {
        self.shared.sorted.tuples()
    }

    fn open<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<()>> {
        async {
            if let Some(sorted) = self.shared.sorted.on_disk() {
                let (merged, functions) = (sorted.merged(context), &self.shared.functions);
                let stream = Arc::new(Stream::new(merged, functions, context));
                self.stream.set(stream).expect("a source is opened once");
                return Ok(());
            }
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
        if let Some(stream) = self.stream.get() {
            if stream.has_ended() {
                return None;
            }
            let (shared, stream) = (self.shared.clone(), stream.clone());
            return Some(Box::new(StreamMorsel { shared, stream }));
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
            let Some(range) = self.rows.take() else { return Ok(None) };
            let (rows, starts) = (self.shared.sorted.clone(), &self.plan.starts);
            let budget = Budget::new(OPERATOR, &self.plan.ledger);
            let evaluated = Evaluated::new(&self.shared, rows, range, starts, budget).await?;
            Ok(Some(Box::new(evaluated) as Box<dyn Tuples>))
        }
        .boxed_local()
    }
}

/// Pieces of a stream, as long as there are any.
struct StreamMorsel {
    shared: Arc<Shared>,
    stream: Arc<Stream>,
}

impl Morsel for StreamMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        async {
            let Some(piece) = self.stream.next(&self.shared).await? else { return Ok(None) };
            let Piece { rows, range, starts, results, memory } = piece;
            let evaluated = match results {
                Some(results) => {
                    Evaluated { rows, range, results, first: 0, _memory: (memory, None) }
                }
                None => {
                    let budget = Budget::new(OPERATOR, memory.ledger());
                    let mut evaluated =
                        Evaluated::new(&self.shared, rows, range, &starts, budget).await?;
                    evaluated._memory.1 = Some(memory);
                    evaluated
                }
            };
            Ok(Some(Box::new(evaluated) as Box<dyn Tuples>))
        }
        .boxed_local()
    }
}

/// Rows, and the results of the functions.
struct Evaluated {
    rows: SortedRows,
    range: Range<usize>,
    results: Vec<Column>,
    /// The row that the first of the results are of.
    first: usize,
    _memory: (Reservation, Option<Reservation>),
}

impl Evaluated {
    /// Evaluates whole partitions.
    async fn new(
        shared: &Shared,
        rows: SortedRows,
        range: Range<usize>,
        starts: &[Starts],
        mut budget: Budget,
    ) -> Result<Evaluated> {
        let mut pace = Pace::default();
        let mut results = Vec::with_capacity(shared.functions.len());
        for (function, peers) in shared.functions.iter().zip(&shared.peers) {
            let rows = Rows {
                sorted: rows.entries(),
                layout: &shared.layout,
                range: range.clone(),
                partitions: &starts[0],
                peers: &starts[*peers],
            };
            // SAFETY: the tuples are those of the sort, as the layout is.
            results.push(unsafe { evaluate(function, &rows, &mut budget, &mut pace).await? });
        }
        let first = range.start;
        Ok(Evaluated { rows, range, results, first, _memory: (budget.finish(), None) })
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
        let first = self.range.start + start;
        load_addresses(&self.rows.entries()[first..][..rows], inputs, registers);
        for (result, input) in self.results.iter().zip(&inputs[1..]) {
            result.load(first - self.first, rows, registers.vector_mut(*input));
        }
        Ok(())
    }
}
