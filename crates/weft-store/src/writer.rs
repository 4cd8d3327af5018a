//! Writing rows that a commit will add to a table.
//!
//! A [`TableWriter`] has partitions, which different threads may fill at once; the order of the rows is that
//! of the partitions, and within one that of the appends. Row groups are encoded and written on the
//! runtime's workers, several at a time. How many, the memory budget decides; when it has nothing to give,
//! row groups become smaller and follow one after the other, so that writing never stands still. A few rows are not written at
//! all: the commit that adds them does that, with those of other commits.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use weft_rt::cancel::CancelToken;
use weft_rt::memory::{Ledger, Reservation};
use weft_rt::progress::Progress;
use weft_rt::{JoinHandle, Runtime, Share};

use crate::array_bytes::logical_bytes;
use crate::error::{Result, StoreError};
use crate::group_writer::{SizeHints, WrittenGroup, no_hints, write_group};
use crate::lock::Lock;
use crate::row_group::ROW_GROUP_ROWS_MAX;
use crate::schema::{Column, TableSchema, scan_type};
use crate::space::Space;
use crate::statistics::{Collector, Statistics};

/// A row group ends when its rows take so many bytes before they are encoded.
const GROUP_BYTES_MAX: u64 = 64 << 20;

/// What a partition may hold although the budget has nothing left.
const GROUP_BYTES_MIN: u64 = 1 << 20;

/// Up to so many rows, of so many bytes, are not written before their commit.
pub(crate) const LOOSE_ROWS_MAX: usize = 256;
pub(crate) const LOOSE_BYTES_MAX: u64 = 64 << 10;

/// How rows are written.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Rows of a row group, 1 to 65,536. A row group whose values are long has fewer.
    pub row_group_rows: usize,
    /// Workers that encode and write, at most; all of the runtime's by default. At least one does.
    pub workers: usize,
    /// The part of each worker's time that encoding and writing get; as much as any other task's by default.
    pub share: Option<Share>,
    /// Ends the writing early.
    pub cancel: CancelToken,
    /// Counts rows and bytes written.
    pub progress: Arc<Progress>,
}

impl Default for WriterOptions {
    fn default() -> WriterOptions {
        WriterOptions {
            row_group_rows: ROW_GROUP_ROWS_MAX,
            workers: usize::MAX,
            share: None,
            cancel: CancelToken::new(),
            progress: Arc::new(Progress::new()),
        }
    }
}

/// Writes rows for one table. Nothing is visible until the result is committed; dropping it, or the
/// result, gives the space back.
#[derive(Debug)]
pub struct TableWriter {
    shared: Arc<Shared>,
}

struct Shared {
    runtime: Arc<Runtime>,
    /// Of the runtime's, those that encode and write.
    workers: usize,
    /// Row groups begun by all partitions: the workers take turns.
    turns: AtomicUsize,
    space: Arc<Space>,
    ledger: Ledger,
    schema: Arc<TableSchema>,
    options: WriterOptions,
    /// Row groups in flight, a budget in row groups.
    slots: Ledger,
    /// One row group at a time may go on without memory of the budget.
    unreserved: Ledger,
    hints: SizeHints,
    collector: Collector,
    /// By partition and order.
    written: Mutex<BTreeMap<(usize, u64), WrittenGroup>>,
    /// All rows of partitions that have few, by partition.
    loose: Mutex<BTreeMap<usize, Vec<RecordBatch>>>,
    /// Numbers of partitions.
    used: Mutex<HashSet<usize>>,
    /// Partitions that have not been finished.
    open: AtomicUsize,
    /// One was dropped before it was finished, or failed.
    incomplete: AtomicBool,
    /// Nobody else writes to the directory while a row group is in flight.
    _lock: Arc<Lock>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "writer for table {}", self.schema.name)
    }
}

impl TableWriter {
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        space: Arc<Space>,
        ledger: Ledger,
        lock: Arc<Lock>,
        (schema, options): (Arc<TableSchema>, WriterOptions),
    ) -> TableWriter {
        let workers = runtime.workers().min(options.workers).max(1);
        let slots = Ledger::new(workers as u64 * 2 + 1);
        let hints = no_hints(schema.columns.len());
        let shared = Shared {
            runtime,
            workers,
            turns: AtomicUsize::new(0),
            space,
            ledger,
            schema,
            options,
            slots,
            unreserved: Ledger::new(1),
            hints,
            collector: Collector::default(),
            written: Mutex::default(),
            loose: Mutex::default(),
            used: Mutex::default(),
            open: AtomicUsize::new(0),
            incomplete: AtomicBool::new(false),
            _lock: lock,
        };
        TableWriter { shared: Arc::new(shared) }
    }

    /// A part of the rows: those of partition 0 come before those of partition 1, and so on.
    ///
    /// # Panics
    /// If there was a partition of this number: the rows of one would take the place of the other's.
    pub fn partition(&self, number: usize) -> PartitionWriter {
        let mut used = self.shared.used.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(used.insert(number), "partition {number} of a writer is used twice");
        drop(used);
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        PartitionWriter {
            shared: self.shared.clone(),
            number,
            groups: 0,
            pending: Vec::new(),
            rows: 0,
            bytes: 0,
            memory: None,
            in_flight: VecDeque::new(),
            finished: false,
        }
    }

    /// What the finished partitions have written, in order.
    ///
    /// # Errors
    /// [`StoreError::Incomplete`] if a partition has not been finished, [`StoreError::Cancelled`].
    pub async fn finish(self) -> Result<WrittenGroups> {
        let shared = &self.shared;
        if shared.options.cancel.is_cancelled() {
            return Err(StoreError::Cancelled);
        }
        let open = shared.open.load(Ordering::Acquire) > 0;
        if open || shared.incomplete.load(Ordering::Acquire) {
            return Err(StoreError::Incomplete { table: shared.schema.name.clone() });
        }
        let loose =
            std::mem::take(&mut *shared.loose.lock().unwrap_or_else(PoisonError::into_inner));
        let has_written = !shared.written.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        let batches = || loose.values().flatten();
        let rows: usize = batches().map(RecordBatch::num_rows).sum();
        let loose = if has_written || rows > shared.loose_rows_max() {
            for (number, batches) in loose {
                let writer = self.shared.clone();
                let written =
                    move || async move { write_pending(&writer, batches, (number, 0)).await };
                shared.runtime.spawn_in(shared.options.share, 0, written).await??;
            }
            Vec::new()
        } else {
            shared.options.progress.add_rows(rows as u64);
            batches().map(|batch| batch.columns().to_vec()).collect()
        };
        let written =
            std::mem::take(&mut *shared.written.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(WrittenGroups {
            schema: shared.schema.clone(),
            groups: written.into_values().collect(),
            loose,
            row_group_rows: shared.options.row_group_rows,
            statistics: shared.collector.finish(),
        })
    }
}

impl Shared {
    fn loose_rows_max(&self) -> usize {
        LOOSE_ROWS_MAX.min(self.options.row_group_rows)
    }
}

/// Row groups that are written and wait for their commit, or a few rows that it will write.
#[derive(Debug)]
pub struct WrittenGroups {
    pub(crate) schema: Arc<TableSchema>,
    pub(crate) groups: Vec<WrittenGroup>,
    /// The columns of rows that are not written, in the types of scans; some rows at a time.
    pub(crate) loose: Vec<Vec<ArrayRef>>,
    /// Rows that a row group may have.
    pub(crate) row_group_rows: usize,
    pub(crate) statistics: Option<Statistics>,
}

impl WrittenGroups {
    /// A few rows for a table with this schema, which the commit writes that adds them; `None` if they are too many or too long for
    /// that, or not of the types of scans, or have NULL where the table has none.
    pub fn of_few(schema: &TableSchema, rows: &RecordBatch) -> Option<WrittenGroups> {
        let bytes: u64 = rows.columns().iter().map(logical_bytes).sum();
        let fits = |(array, column): (&ArrayRef, &Column)| {
            *array.data_type() == scan_type(&column.data_type)
                && (column.nullable || array.null_count() == 0)
        };
        let are_few = (1..=LOOSE_ROWS_MAX).contains(&rows.num_rows()) && bytes <= LOOSE_BYTES_MAX;
        let fit = rows.num_columns() == schema.columns.len()
            && rows.columns().iter().zip(&schema.columns).all(fits);
        (are_few && fit).then(|| WrittenGroups {
            schema: Arc::new(schema.clone()),
            groups: Vec::new(),
            loose: vec![rows.columns().to_vec()],
            row_group_rows: ROW_GROUP_ROWS_MAX,
            statistics: None,
        })
    }

    /// Rows.
    pub fn rows(&self) -> u64 {
        let written = self.groups.iter().map(|written| u64::from(written.group.rows));
        written.chain(self.loose.iter().map(|columns| columns[0].len() as u64)).sum()
    }

    /// Bytes of the encoded blocks, and of values that are not encoded yet.
    pub fn bytes(&self) -> u64 {
        let written = self.groups.iter().map(|written| written.group.bytes());
        written.chain(self.loose.iter().flatten().map(logical_bytes)).sum()
    }

    /// Row groups that there will be, at most.
    pub fn row_groups(&self) -> usize {
        self.groups.len() + usize::from(!self.loose.is_empty())
    }
}

/// Appends rows to one partition; its futures may be awaited on any executor.
#[derive(Debug)]
pub struct PartitionWriter {
    shared: Arc<Shared>,
    number: usize,
    /// Row groups begun.
    groups: u64,
    pending: Vec<RecordBatch>,
    rows: usize,
    /// Of the pending rows.
    bytes: u64,
    memory: Option<Reservation>,
    in_flight: VecDeque<JoinHandle<Result<()>>>,
    finished: bool,
}

impl PartitionWriter {
    /// Appends rows. Waits while as many row groups are in flight as there may be.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] if the rows do not fit the table; [`StoreError::Cancelled`]; what went
    /// wrong with an earlier row group. The partition cannot be finished after an error.
    pub async fn append(&mut self, batch: RecordBatch) -> Result<()> {
        let appended = self.try_append(batch).await;
        self.note(appended)
    }

    async fn try_append(&mut self, batch: RecordBatch) -> Result<()> {
        self.check(&batch)?;
        if let Some(pending) = self.pending.last()
            && pending
                .columns()
                .iter()
                .zip(batch.columns())
                .any(|(a, b)| a.data_type() != b.data_type())
        {
            self.flush().await?;
        }
        let batch_bytes: u64 = batch.columns().iter().map(logical_bytes).sum();
        let row_bytes = (batch_bytes / batch.num_rows().max(1) as u64).max(1);
        let mut at = 0;
        while at < batch.num_rows() {
            if self.shared.options.cancel.is_cancelled() {
                return Err(StoreError::Cancelled);
            }
            let room = (self.group_bytes_max().saturating_sub(self.bytes) / row_bytes).max(1);
            let rows = (self.shared.options.row_group_rows - self.rows)
                .min(batch.num_rows() - at)
                .min(usize::try_from(room).unwrap_or(usize::MAX));
            let bytes = row_bytes * rows as u64;
            self.pending.push(batch.slice(at, rows));
            (at, self.rows, self.bytes) = (at + rows, self.rows + rows, self.bytes + bytes);
            let reserved = self.reserve(bytes);
            let full = self.rows == self.shared.options.row_group_rows
                || self.bytes >= self.group_bytes_max();
            if full || !reserved && self.bytes >= GROUP_BYTES_MIN {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Writes what is left, and waits until everything is written.
    ///
    /// # Errors
    /// As for [`PartitionWriter::append`].
    pub async fn finish(mut self) -> Result<()> {
        let finished = self.try_finish().await;
        self.note(finished)?;
        self.finished = true;
        self.shared.open.fetch_sub(1, Ordering::Release);
        Ok(())
    }

    async fn try_finish(&mut self) -> Result<()> {
        if self.rows > 0 && self.is_loose() {
            self.memory = None;
            let pending = std::mem::take(&mut self.pending);
            let mut loose = self.shared.loose.lock().unwrap_or_else(PoisonError::into_inner);
            loose.insert(self.number, pending);
        } else if self.rows > 0 {
            self.flush().await?;
        }
        while let Some(handle) = self.in_flight.pop_front() {
            handle.await??;
        }
        Ok(())
    }

    /// Whether the pending rows are all that there are, and few.
    fn is_loose(&self) -> bool {
        let is_as_scanned = |batch: &RecordBatch| {
            let columns = batch.columns().iter().zip(&self.shared.schema.columns);
            batch.num_columns() > 0
                && columns
                    .into_iter()
                    .all(|(array, column)| *array.data_type() == scan_type(&column.data_type))
        };
        self.groups == 0
            && self.rows <= self.shared.loose_rows_max()
            && self.bytes <= LOOSE_BYTES_MAX
            && self.pending.iter().all(is_as_scanned)
    }

    fn note(&self, result: Result<()>) -> Result<()> {
        if result.is_err() {
            self.shared.incomplete.store(true, Ordering::Release);
        }
        result
    }

    fn group_bytes_max(&self) -> u64 {
        (self.shared.ledger.limit() / 16).clamp(GROUP_BYTES_MIN, GROUP_BYTES_MAX)
    }

    /// Accounts for pending rows; false if the budget has nothing left.
    fn reserve(&mut self, bytes: u64) -> bool {
        match &mut self.memory {
            Some(memory) => memory.try_grow(bytes),
            None => {
                self.memory = self.shared.ledger.try_reserve(bytes);
                self.memory.is_some()
            }
        }
    }

    /// Checks that rows fit the table.
    fn check(&self, batch: &RecordBatch) -> Result<()> {
        let schema = &self.shared.schema;
        let mismatch = |problem| StoreError::Mismatch { table: schema.name.clone(), problem };
        if batch.num_columns() != schema.columns.len() {
            let (got, wanted) = (batch.num_columns(), schema.columns.len());
            return Err(mismatch(format!("{got} columns instead of {wanted}")));
        }
        for (array, column) in batch.columns().iter().zip(&schema.columns) {
            let found: &DataType = array.data_type();
            if !scan_type(found).equals_datatype(&scan_type(&column.data_type)) {
                let (name, wanted) = (&column.name, &column.data_type);
                return Err(mismatch(format!("column {name} is {found} instead of {wanted}")));
            }
            if !column.nullable && array.null_count() > 0 {
                return Err(mismatch(format!("NULL in column {}, which is NOT NULL", column.name)));
            }
        }
        Ok(())
    }

    /// Sends the pending rows off as a row group.
    async fn flush(&mut self) -> Result<()> {
        let shared = self.shared.clone();
        while self.in_flight.len() > shared.workers {
            let handle = self.in_flight.pop_front().expect("not empty");
            handle.await??;
        }
        let slot = shared.slots.reserve(1).await?;
        // The columns joined, and the encoded pages.
        let work = match shared.ledger.try_reserve(self.bytes * 3 / 2) {
            Some(memory) => memory,
            None => shared.unreserved.reserve(1).await?,
        };
        let pending = std::mem::take(&mut self.pending);
        let memory = (self.memory.take(), work, slot);
        let key = (self.number, self.groups);
        (self.rows, self.bytes, self.groups) = (0, 0, self.groups + 1);
        let runtime = shared.runtime.clone();
        let worker = shared.turns.fetch_add(1, Ordering::Relaxed) % shared.workers;
        let share = shared.options.share;
        self.in_flight.push_back(runtime.spawn_in(share, worker, move || async move {
            let written = write_pending(&shared, pending, key).await;
            drop(memory);
            written
        }));
        Ok(())
    }
}

impl Drop for PartitionWriter {
    fn drop(&mut self) {
        if !self.finished {
            self.shared.incomplete.store(true, Ordering::Release);
        }
    }
}

async fn write_pending(
    shared: &Arc<Shared>,
    pending: Vec<RecordBatch>,
    key: (usize, u64),
) -> Result<()> {
    if shared.options.cancel.is_cancelled() {
        return Err(StoreError::Cancelled);
    }
    let columns = (0..shared.schema.columns.len())
        .map(|column| pending.iter().map(|batch| batch.column(column).clone()).collect())
        .collect();
    drop(pending);
    let collector = Some(&shared.collector);
    let written =
        write_group(&shared.space, &shared.schema, columns, &shared.hints, collector).await?;
    shared.options.progress.add_rows(written.group.rows.into());
    shared.options.progress.add_bytes_written(written.allocation.extent().bytes());
    shared.written.lock().unwrap_or_else(PoisonError::into_inner).insert(key, written);
    Ok(())
}
