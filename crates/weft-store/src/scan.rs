//! Scans: the rows of a table as Arrow batches.
//!
//! They come in any order, but those of a table that would fit into one row group in theirs: such a table is
//! one morsel, and may consist of the many small row groups of small commits. Else the row groups are the
//! morsels. Workers take them from one queue, a coroutine each, and start the next as
//! soon as one ends; batches leave through a bounded channel for each partition of the scan, whose consumer
//! may run on any executor. A consumer that is slow, or goes away, slows down or stops its own workers'
//! coroutines. Nothing is read before a partition is first polled.

use std::collections::BTreeSet;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use futures::Stream;
use weft_rt::cancel::CancelToken;
use weft_rt::memory::{Ledger, Reservation};
use weft_rt::sync::channel::{Receiver, Sender, bounded};
use weft_rt::{Batch, Boundary, JoinHandle, MorselQueue};

use crate::error::{Result, StoreError};
use crate::page_io::{PageSource, count};
use crate::row_group::{ROW_GROUP_ROWS_MAX, RowGroup};
use crate::scan_group::scan_group;
use crate::scan_options::{ROW_ID, ScanCounters, ScanOptions, ScanStats};
use crate::segment::Loaded;
use crate::table::Table;

/// Batches that wait for their consumer, at most.
const QUEUE_BATCHES: usize = 8;

/// Row groups that a worker has decoded and not yet sent, at most: one is being sent while the next one is
/// decoded. More would only be memory that the caches forget.
pub(crate) const DECODED_GROUPS: u64 = 2;

/// Of the memory budget, the part that all workers of a scan reserve at most for what they have decoded: whoever takes the rows needs some, too, and
/// nothing that is decoded comes free before. What a row group takes beyond is not reserved.
const DECODED_PART: u64 = 4;

/// Bytes that the row groups in flight take, in all: at first, so that the first rows come soon and a
/// consumer that wants only a few does not make much be read, and at most (or an eighth of the memory
/// budget, if that is less).
const IN_FLIGHT_BYTES: (u64, u64) = (4 << 20, 256 << 20);

/// What a channel carries: a batch, and its memory while it waits.
pub(crate) type Item = Result<(RecordBatch, Option<Reservation>)>;

/// What the partitions of a scan share.
#[derive(Debug)]
pub(crate) struct ScanShared {
    pub(crate) table: Arc<Table>,
    pub(crate) options: ScanOptions,
    pub(crate) schema: SchemaRef,
    /// The columns of the projection in their own order, each once.
    pub(crate) projected: Vec<usize>,
    /// The same with those of the predicates.
    pub(crate) columns: Vec<usize>,
    pub(crate) source: PageSource,
    pub(crate) counters: ScanCounters,
    /// Ends this scan, and nothing else.
    pub(crate) cancel: CancelToken,
    /// Whether rows leave as they lie, for whoever works on vectors: strings as dictionaries where they are stored so, and
    /// most rows of a row group as all of them and a selection.
    pub(crate) as_stored: bool,
    planning: Ledger,
    pub(crate) plan: OnceLock<Plan>,
}

/// What one partition may have in flight. Partitions share none of it, so that one whose consumer waits
/// for something else does not hold up the others.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// Bytes of the pages of row groups.
    pub(crate) bytes: Ledger,
    bytes_max: u64,
    /// Bytes that row groups reserve for what is decoded of them.
    pub(crate) decoded: Ledger,
    /// One row group at a time may go on although the memory budget has nothing left.
    pub(crate) unreserved: Ledger,
}

impl InFlight {
    pub(crate) fn new(budget: &Ledger, partitions: usize) -> InFlight {
        let bytes_max = (budget.limit() / 8).min(IN_FLIGHT_BYTES.1) / partitions as u64;
        let bytes = Ledger::new(IN_FLIGHT_BYTES.0.min(bytes_max).max(2));
        let decoded = Ledger::new((budget.limit() / DECODED_PART / partitions as u64).max(1));
        InFlight { bytes, bytes_max, decoded, unreserved: Ledger::new(1) }
    }

    /// Lets more be in flight: somebody wants the rows.
    pub(crate) fn widen(&self) {
        let limit = self.bytes.limit();
        if limit < self.bytes_max {
            self.bytes.set_limit((limit * 2).min(self.bytes_max));
        }
    }
}

/// Where a worker's row groups go.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) sender: Sender<Item>,
    /// Row groups that may be decoded and not yet sent, a budget in row groups.
    pub(crate) decoding: Ledger,
}

/// The row groups that are left after their zones were looked at.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) directory: Vec<Arc<Loaded>>,
    /// Segment, number in it, number in the table.
    pub(crate) groups: Vec<(usize, usize, usize)>,
    pub(crate) queue: MorselQueue,
    /// Rows that are only counted, for which nothing is read.
    pub(crate) counted: MorselQueue,
}

impl Table {
    /// The rows as one stream, read by all workers that the scan may have.
    ///
    /// # Errors
    /// [`StoreError::Request`] if there is no such column, batches are to have no rows, or nobody is to read.
    pub fn scan(self: &Arc<Self>, options: ScanOptions) -> Result<Scan> {
        let workers = self.access.runtime.workers().min(options.workers);
        let shared = ScanShared::new(self, options, false)?;
        Ok(Scan::new(shared, (0..workers).collect(), 1))
    }

    /// The rows as `partitions` streams that share the row groups among them: whoever is ready takes the
    /// next one.
    ///
    /// # Errors
    /// As [`Table::scan`].
    pub fn scan_partitions(
        self: &Arc<Self>,
        partitions: usize,
        options: ScanOptions,
    ) -> Result<Vec<Scan>> {
        let workers = self.access.runtime.workers().min(options.workers);
        let partitions = partitions.max(1);
        let shared = ScanShared::new(self, options, false)?;
        let of = |partition: usize| -> Vec<usize> {
            if partitions >= workers {
                return vec![partition % workers];
            }
            (0..workers).filter(|worker| worker % partitions == partition).collect()
        };
        let scan = |partition| Scan::new(shared.clone(), of(partition), partitions);
        Ok((0..partitions).map(scan).collect())
    }
}

impl ScanShared {
    pub(crate) fn new(
        table: &Arc<Table>,
        options: ScanOptions,
        as_stored: bool,
    ) -> Result<Arc<ScanShared>> {
        let filtered = options.predicates.iter().chain(&options.zone_predicates);
        let filtered = filtered.map(|(column, _)| column);
        let filtered = filtered.chain(options.filters.iter().map(|(column, _)| column));
        table.check_columns(options.projection.iter().chain(filtered))?;
        if options.batch_rows == 0 || options.io_depth == 0 || options.workers == 0 {
            return Err(StoreError::Request {
                table: table.schema().name.clone(),
                problem: "batches of 0 rows, 0 row groups in flight, or no worker".into(),
            });
        }
        let whole = table.arrow_schema();
        let columns = options.projection.iter().map(|column| {
            let field = whole.field(*column).clone();
            let data_type = options.data_type(field.data_type());
            field.with_data_type(data_type)
        });
        let row_id = options.with_row_id.then(|| Field::new(ROW_ID, DataType::UInt64, false));
        let schema = Schema::new(columns.chain(row_id).collect::<Vec<_>>());
        let distinct = |columns: &mut dyn Iterator<Item = &usize>| -> Vec<usize> {
            columns.copied().collect::<BTreeSet<_>>().into_iter().collect()
        };
        let filtered = options.predicates.iter().map(|(column, _)| column);
        let filtered = filtered.chain(options.filters.iter().map(|(column, _)| column));
        Ok(Arc::new(ScanShared {
            source: table.access.source.counted(),
            cancel: options.cancel.child(),
            schema: Arc::new(schema),
            projected: distinct(&mut options.projection.iter()),
            columns: distinct(&mut options.projection.iter().chain(filtered)),
            counters: ScanCounters::default(),
            as_stored,
            planning: Ledger::new(1),
            plan: OnceLock::new(),
            table: table.clone(),
            options,
        }))
    }

    /// The plan; the first to ask makes it.
    pub(crate) async fn plan(&self) -> Result<&Plan> {
        let _turn = self.planning.reserve(1).await?;
        if let Some(plan) = self.plan.get() {
            return Ok(plan);
        }
        if self.only_counts() {
            let counted = MorselQueue::new(self.table.rows(), self.options.batch_rows as u64);
            let (directory, groups, queue) = (Vec::new(), Vec::new(), MorselQueue::new(0, 1));
            return Ok(self.plan.get_or_init(|| Plan { directory, groups, queue, counted }));
        }
        let directory = self.table.version.load(&self.table.access).await?;
        let mut groups = Vec::new();
        let mut number = 0;
        for (segment, loaded) in directory.iter().enumerate() {
            for (within, group) in loaded.groups.iter().enumerate() {
                if self.options.row_groups.as_ref().is_none_or(|range| range.contains(&number)) {
                    count(&self.counters.row_groups, 1);
                    if self.may_match(group) {
                        groups.push((segment, within, number));
                    } else {
                        count(&self.counters.row_groups_pruned, 1);
                    }
                }
                number += 1;
            }
        }
        self.options.progress.add_total(groups.len() as u64);
        let rows = |(segment, within, _): &(usize, usize, usize)| -> usize {
            directory[*segment].groups[*within].rows as usize
        };
        let is_small = groups.iter().map(rows).sum::<usize>() <= ROW_GROUP_ROWS_MAX;
        let morsel = if is_small { groups.len().max(1) } else { 1 };
        let queue = MorselQueue::new(groups.len() as u64, morsel as u64);
        let counted = MorselQueue::new(0, 1);
        Ok(self.plan.get_or_init(|| Plan { directory, groups, queue, counted }))
    }

    pub(crate) fn stats(&self) -> ScanStats {
        self.counters.stats(self.source.stats())
    }

    /// True if all that is wanted is how many rows there are, which the manifest says.
    fn only_counts(&self) -> bool {
        let ScanOptions { projection, predicates, row_groups, with_row_id, .. } = &self.options;
        projection.is_empty() && predicates.is_empty() && row_groups.is_none() && !with_row_id
    }

    fn may_match(&self, group: &RowGroup) -> bool {
        let ScanOptions { predicates, zone_predicates, .. } = &self.options;
        predicates.iter().chain(zone_predicates).all(|(column, predicate)| {
            predicate.may_match(group.chunks[*column].zone(), group.rows.into())
        })
    }
}

/// One partition of a scan: a stream of batches.
#[derive(Debug)]
pub struct Scan {
    shared: Arc<ScanShared>,
    /// The workers that read for it.
    workers: Vec<usize>,
    in_flight: Arc<InFlight>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Not polled yet.
    New,
    Running {
        receiver: Receiver<Item>,
        tasks: Vec<JoinHandle<()>>,
    },
    Ended,
}

impl Scan {
    fn new(shared: Arc<ScanShared>, workers: Vec<usize>, partitions: usize) -> Scan {
        let in_flight = Arc::new(InFlight::new(&shared.table.access.ledger, partitions));
        Scan { shared, workers, in_flight, state: State::New }
    }

    /// The schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.shared.schema.clone()
    }

    /// What all partitions of the scan have done so far.
    pub fn stats(&self) -> ScanStats {
        self.shared.stats()
    }

    /// The next batch, for a plain thread, which must be no worker.
    ///
    /// # Errors
    /// As [`Scan::poll_next`].
    pub fn next_blocking(&mut self) -> Option<Result<RecordBatch>> {
        weft_rt::sync::block_on(std::future::poll_fn(|context| self.poll_next(context)))
    }

    /// The next batch; `None` after the last one and after an error. On any executor.
    ///
    /// # Errors
    /// [`StoreError::Cancelled`]; what went wrong with a file, naming table, row group and column.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        if let State::New = self.state {
            self.state = start(&self.shared, &self.in_flight, &self.workers);
        }
        let State::Running { receiver, tasks } = &mut self.state else {
            return Poll::Ready(None);
        };
        match receiver.poll_recv(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok((batch, memory)))) => {
                drop(memory);
                return Poll::Ready(Some(Ok(batch)));
            }
            Poll::Ready(Some(Err(error))) => {
                self.state = State::Ended;
                self.shared.cancel.cancel();
                return Poll::Ready(Some(Err(error)));
            }
            Poll::Ready(None) => {}
        }
        // The channel is closed: whoever fed it has ended, or panicked.
        while let Some(task) = tasks.last_mut() {
            match Pin::new(task).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(ended) => {
                    tasks.pop();
                    if let Err(error) = ended {
                        self.state = State::Ended;
                        return Poll::Ready(Some(Err(error.into())));
                    }
                }
            }
        }
        self.state = State::Ended;
        if self.shared.options.cancel.is_cancelled() {
            return Poll::Ready(Some(Err(StoreError::Cancelled)));
        }
        Poll::Ready(None)
    }
}

impl Stream for Scan {
    type Item = Result<RecordBatch>;

    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<RecordBatch>>> {
        Scan::poll_next(self.get_mut(), context)
    }
}

/// Starts the workers of a partition.
fn start(shared: &Arc<ScanShared>, in_flight: &Arc<InFlight>, workers: &[usize]) -> State {
    let (sender, receiver) = bounded(QUEUE_BATCHES);
    let spawn = |worker: &usize| {
        let (shared, in_flight, sender) = (shared.clone(), in_flight.clone(), sender.clone());
        let runtime = shared.table.access.runtime.clone();
        let share = shared.options.share;
        let readers = workers.len();
        runtime.spawn_in(share, *worker, move || produce(shared, in_flight, readers, sender))
    };
    State::Running { tasks: workers.iter().map(spawn).collect(), receiver }
}

/// Reads row groups for a partition until there are no more, on a worker, one of so many.
async fn produce(
    shared: Arc<ScanShared>,
    in_flight: Arc<InFlight>,
    readers: usize,
    sender: Sender<Item>,
) {
    let plan = match shared.plan().await {
        Ok(plan) => plan,
        Err(error) => {
            // Nobody listens any more if it cannot be sent.
            sender.send(Err(error)).await.ok();
            return;
        }
    };
    send_counted(&shared, plan, &sender).await;
    let depth = shared.options.io_depth.min(weft_rt::BATCH_DEPTH_MAX);
    let output = Rc::new(Output { sender, decoding: Ledger::new(DECODED_GROUPS) });
    let batch = Batch::new(depth, Boundary::Weak, || {
        if shared.cancel.is_cancelled() || output.sender.is_closed() {
            return None;
        }
        let morsel = plan.queue.next()?;
        let (shared, in_flight, output) = (&shared, &in_flight, output.clone());
        Some(async move {
            for place in &plan.groups[morsel.start as usize..morsel.end as usize] {
                let (segment, within, number) = *place;
                let segment = &plan.directory[segment];
                match scan_group(shared, in_flight, segment, (within, number), &output).await {
                    Ok(ControlFlow::Continue(())) => {
                        in_flight.widen();
                        shared.options.progress.add_done(1);
                    }
                    Ok(ControlFlow::Break(())) => return Err(None),
                    Err(error) => return Err(Some(error)),
                }
            }
            Ok(())
        })
    });
    let batch = batch.at_most(|| plan.queue.share(readers));
    let ended = until_cancelled(batch, &shared.cancel).await;
    if let Some(Err(Some(error))) = ended {
        output.sender.send(Err(error)).await.ok();
    }
}

/// Sends batches without columns for the rows that are only counted.
async fn send_counted(shared: &ScanShared, plan: &Plan, sender: &Sender<Item>) {
    while let Some(rows) = plan.counted.next().filter(|_| !shared.cancel.is_cancelled()) {
        let rows = (rows.end - rows.start) as usize;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(shared.schema.clone(), Vec::new(), &options);
        let item = Ok((batch.expect("no columns, of any length"), None));
        if sender.send(item).await.is_err() {
            return;
        }
        count(&shared.counters.rows_out, rows as u64);
        shared.options.progress.add_rows(rows as u64);
    }
}

/// Runs `future` to its end, or drops it when `cancel` is set.
async fn until_cancelled<T>(future: impl Future<Output = T>, cancel: &CancelToken) -> Option<T> {
    use futures::future::{Either, select};
    let (future, cancelled) = (std::pin::pin!(future), std::pin::pin!(cancel.cancelled()));
    match select(cancelled, future).await {
        Either::Left(_) => None,
        Either::Right((output, _)) => Some(output),
    }
}
