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
use super::pieces::{Evaluating, LARGE_ROWS, PieceMorsel, Pieces};
use super::sorted_rows::SortedRows;
use super::starts::{Starts, starts};
use super::stream::{Piece, Stream};
use crate::error::Result;
use crate::pace::Pace;
use crate::pipeline::{Morsel, Source, Tuples};
use crate::program::Register;
use crate::query::Context;
use crate::registers::Registers;
use crate::sort::rows::load_addresses;
use crate::sort::{Sort, Sorted};
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
    /// Of large morsels.
    pieces: Arc<Pieces>,
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
        let (pieces, ledger, memory) = (Arc::default(), context.ledger, budget.finish());
        Ok(Plan { morsels, queue, starts, pieces, ledger, _memory: memory })
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

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        let WindowRows { shared, plan, .. } = *self;
        drop(plan);
        match Arc::into_inner(shared).map(|shared| shared.sorted) {
            Some(SortedRows::All(sorted)) => Sorted::close(sorted).boxed(),
            _ => std::future::ready(()).boxed(),
        }
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
        if let Some(piece) = plan.pieces.take() {
            return Some(Box::new(Once(Some(piece))));
        }
        let of_others = || {
            let pieces = plan.pieces.clone();
            pieces.has_some().then(|| Box::new(PieceMorsel { pieces }) as Box<dyn Morsel>)
        };
        if plan.queue.left() == 0 {
            return of_others();
        }
        // Before anybody finds the queue empty: somebody evaluates the last morsel, maybe.
        let evaluating = plan.pieces.begin();
        let Some(morsel) = plan.queue.next() else {
            drop(evaluating);
            return of_others();
        };
        let rows = plan.morsels[morsel.start as usize].clone();
        let is_shared = !is_ordered && rows.len() >= LARGE_ROWS;
        let evaluating = is_shared.then_some(evaluating);
        let (shared, plan) = (self.shared.clone(), plan.clone());
        Some(Box::new(WindowMorsel { shared, plan, rows: Some(rows), evaluating }))
    }
}

struct WindowMorsel {
    shared: Arc<Shared>,
    plan: Arc<Plan>,
    /// Until they are evaluated.
    rows: Option<Range<usize>>,
    /// If others take pieces of them.
    evaluating: Option<Evaluating>,
}

impl Morsel for WindowMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        async {
            let Some(range) = self.rows.take() else { return Ok(None) };
            let (rows, starts) = (self.shared.sorted.clone(), &self.plan.starts);
            let budget = Budget::new(OPERATOR, &self.plan.ledger);
            let results = Results::new(&self.shared, rows, range, starts, budget).await?;
            let evaluated = if let Some(evaluating) = self.evaluating.take() {
                evaluating.done(results);
                self.plan.pieces.take()
            } else {
                Some(Evaluated::from(results))
            };
            Ok(evaluated.map(|evaluated| Box::new(evaluated) as Box<dyn Tuples>))
        }
        .boxed_local()
    }
}

/// Rows that are evaluated.
struct Once(Option<Evaluated>);

impl Morsel for Once {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        let evaluated = self.0.take().map(|evaluated| Box::new(evaluated) as Box<dyn Tuples>);
        std::future::ready(Ok(evaluated)).boxed_local()
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
            let results = match results {
                Some(columns) => {
                    Results { rows, range, columns, first: 0, _memory: (memory, None) }
                }
                None => {
                    let budget = Budget::new(OPERATOR, memory.ledger());
                    let mut results =
                        Results::new(&self.shared, rows, range, &starts, budget).await?;
                    results._memory.1 = Some(memory);
                    results
                }
            };
            Ok(Some(Box::new(Evaluated::from(results)) as Box<dyn Tuples>))
        }
        .boxed_local()
    }
}

/// Rows, and the results of the functions.
#[derive(Debug)]
pub(super) struct Results {
    rows: SortedRows,
    pub(super) range: Range<usize>,
    columns: Vec<Column>,
    /// The row that the first of the results are of.
    first: usize,
    _memory: (Reservation, Option<Reservation>),
}

impl Results {
    /// Evaluates whole partitions.
    async fn new(
        shared: &Shared,
        rows: SortedRows,
        range: Range<usize>,
        starts: &[Starts],
        mut budget: Budget,
    ) -> Result<Results> {
        let mut pace = Pace::default();
        let mut columns = Vec::with_capacity(shared.functions.len());
        for (function, peers) in shared.functions.iter().zip(&shared.peers) {
            let rows = Rows {
                sorted: rows.entries(),
                layout: &shared.layout,
                range: range.clone(),
                partitions: &starts[0],
                peers: &starts[*peers],
            };
            // SAFETY: the tuples are those of the sort, as the layout is.
            columns.push(unsafe { evaluate(function, &rows, &mut budget, &mut pace).await? });
        }
        let first = range.start;
        Ok(Results { rows, range, columns, first, _memory: (budget.finish(), None) })
    }
}

/// A range of rows that are evaluated.
pub(super) struct Evaluated {
    pub(super) results: Arc<Results>,
    pub(super) range: Range<usize>,
}

impl From<Results> for Evaluated {
    fn from(results: Results) -> Evaluated {
        let range = results.range.clone();
        Evaluated { results: Arc::new(results), range }
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
        let (first, results) = (self.range.start + start, &*self.results);
        load_addresses(&results.rows.entries()[first..][..rows], inputs, registers);
        for (column, input) in results.columns.iter().zip(&inputs[1..]) {
            column.load(first - results.first, rows, registers.vector_mut(*input));
        }
        Ok(())
    }
}
