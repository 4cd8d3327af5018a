//! Rows of a table by an index: ids from ranges of keys, and the rows' values, a vector at a time. Where the entries of the index have all
//! values that are wanted, in their keys or beside them, the rows themselves are not fetched: an entry counts for a snapshot exactly if
//! its row does.

use std::sync::Arc;
use std::task::{Context, Poll};

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use weft_index::{Direction, EntryBytes, IndexError, KeyEncoder, Keys, after_prefix};
use weft_rt::cancel::CancelToken;
use weft_rt::sync::channel::{Receiver, Sender, bounded};
use weft_rt::{JoinHandle, Share};

use crate::error::{Result, StoreError};
use crate::fetch::fetch;
use crate::index::definition::Covering;
use crate::index::overlay::{Layer, LayerEntry};
use crate::index::version::IndexVersion;
use crate::scan_options::ROW_ID;
use crate::table::Table;

/// Batches that wait for their consumer, at most.
const QUEUE_BATCHES: usize = 2;

/// Keys from the first on, and up to the last: a byte string each, or no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRange {
    /// The least key.
    pub low: Option<Vec<u8>>,
    /// Where it ends: keys are below.
    pub high: Option<Vec<u8>>,
}

impl KeyRange {
    /// The keys that begin so.
    pub fn beginning_with(prefix: Vec<u8>) -> KeyRange {
        KeyRange { high: after_prefix(&prefix), low: Some(prefix) }
    }
}

/// How many rows are wanted of those whose keys are in ranges, which follow each other: so many with the first keys, and so many with
/// the last. A row may be among both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEnds {
    /// Rows with the first keys.
    pub first: usize,
    /// Rows with the last keys.
    pub last: usize,
}

/// What is asked of an index.
#[derive(Clone, Debug)]
pub struct IndexScanOptions {
    /// The ranges of keys, none of which overlaps another.
    pub ranges: Vec<KeyRange>,
    /// All rows of the ranges, or those at their ends.
    pub ends: Option<IndexEnds>,
    /// Columns by number, in the order in which they are to come.
    pub projection: Vec<usize>,
    /// Whether the ids of the rows come as a last column, [`ROW_ID`].
    pub with_row_ids: bool,
    /// Rows of a batch, at most.
    pub batch_rows: usize,
    /// Row groups that are read at a time, at most.
    pub depth: usize,
    /// The part of the worker's time that it gets.
    pub share: Option<Share>,
    /// Ends it early.
    pub cancel: CancelToken,
}

/// The rows of a table whose keys are in ranges of an index: a stream of batches.
#[derive(Debug)]
pub struct IndexScan {
    schema: SchemaRef,
    receiver: Receiver<Result<RecordBatch>>,
    task: Option<JoinHandle<()>>,
}

impl Table {
    pub(crate) fn index(&self, name: &str) -> Result<&IndexVersion> {
        let found = self.version.indexes.iter().find(|of| of.definition().name == name);
        found.ok_or_else(|| StoreError::NoSuchIndex { name: name.to_owned() })
    }

    /// What keys of an index begin with: those of rows that have these values in its first columns, in each of which
    /// there is one value.
    ///
    /// # Errors
    /// [`StoreError::NoSuchIndex`], and [`StoreError::Index`] if the values are not of the columns' types.
    pub fn key_prefix(&self, index: &str, values: &[ArrayRef]) -> Result<Vec<u8>> {
        let definition = self.index(index)?.definition();
        let encoder: KeyEncoder = definition.encoder(self.schema())?;
        let mut keys = Keys::new();
        let encoded = encoder.encode(values, &mut keys);
        encoded.map_err(|source| definition.error(self.schema(), source))?;
        Ok(keys.get(0).to_vec())
    }

    /// Whether the entries of an index have the values of all these columns, by number, so that rows need not be fetched for them.
    ///
    /// # Errors
    /// [`StoreError::NoSuchIndex`].
    pub fn is_covered(&self, index: &str, columns: &[usize]) -> Result<bool> {
        Ok(self.index(index)?.definition().covering(self.schema(), columns).is_some())
    }

    /// The rows whose keys are in ranges of an index, read by one worker; they come in the order of their ids within each
    /// batch.
    ///
    /// # Errors
    /// [`StoreError::NoSuchIndex`]; [`StoreError::Request`] if there is no such column.
    pub fn index_scan(
        self: &Arc<Self>,
        index: &str,
        options: IndexScanOptions,
    ) -> Result<IndexScan> {
        self.check_columns(&options.projection)?;
        let covering = self.index(index)?.definition().covering(self.schema(), &options.projection);
        let whole = self.arrow_schema();
        let fields = options.projection.iter().map(|column| whole.field(*column).clone());
        let ids = options.with_row_ids.then(|| Field::new(ROW_ID, DataType::UInt64, false));
        let schema = Arc::new(Schema::new(fields.chain(ids).collect::<Vec<_>>()));
        let (sender, receiver) = bounded(QUEUE_BATCHES);
        let share = options.share;
        let runtime = &self.access.runtime;
        let work = Work {
            table: self.clone(),
            name: index.to_owned(),
            schema: schema.clone(),
            covering: covering.transpose()?,
            options,
            sender,
        };
        let task = runtime.spawn_in(share, runtime.next_of(runtime.workers()), move || work.run());
        Ok(IndexScan { schema, receiver, task: Some(task) })
    }
}

impl IndexScan {
    /// The schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// The next batch; `None` after the last one and after an error. On any executor.
    ///
    /// # Errors
    /// [`StoreError::Cancelled`]; [`StoreError::Index`]; what went wrong with a file.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        if self.task.is_none() {
            return Poll::Ready(None);
        }
        match self.receiver.poll_recv(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(batch))) => Poll::Ready(Some(Ok(batch))),
            Poll::Ready(Some(Err(error))) => {
                self.task = None;
                Poll::Ready(Some(Err(error)))
            }
            Poll::Ready(None) => {
                // It has ended, or panicked.
                let Some(task) = &mut self.task else { return Poll::Ready(None) };
                let ended = std::task::ready!(std::pin::Pin::new(task).poll(context));
                self.task = None;
                Poll::Ready(ended.err().map(|error| Err(error.into())))
            }
        }
    }

    /// The next batch, for a plain thread, which must be no worker.
    ///
    /// # Errors
    /// As [`IndexScan::poll_next`].
    pub fn next_blocking(&mut self) -> Option<Result<RecordBatch>> {
        weft_rt::sync::block_on(std::future::poll_fn(|context| self.poll_next(context)))
    }
}

struct Work {
    table: Arc<Table>,
    name: String,
    schema: SchemaRef,
    /// Tells the values from entries, if these have all that are wanted.
    covering: Option<Covering>,
    options: IndexScanOptions,
    sender: Sender<Result<RecordBatch>>,
}

/// Rows that were found.
#[derive(Default)]
struct FoundRows {
    ids: Vec<u64>,
    /// Their entries, if the values are told from these.
    entries: EntryBytes,
}

impl Work {
    async fn run(self) {
        if let Err(error) = self.send_all().await {
            // The consumer may have gone.
            self.sender.send(Err(error)).await.ok();
        }
    }

    async fn send_all(&self) -> Result<()> {
        let version = &self.table.version;
        let index = self.table.index(&self.name)?;
        let failed = |source| index.definition().error(&version.schema, source);
        let layers = index.layers(version, &self.table.access).await?;
        let mut rows = FoundRows::default();
        if let Some(IndexEnds { first, last }) = self.options.ends {
            let mut ends: Vec<OwnedEntry> = Vec::new();
            for (count, direction) in [(first, Direction::Forwards), (last, Direction::Backwards)] {
                ends.extend(self.end(&layers, count, direction).await.map_err(failed)?);
            }
            ends.sort_unstable_by_key(|entry| entry.row);
            ends.dedup_by_key(|entry| entry.row);
            for some in ends.chunks(self.options.batch_rows.max(1)) {
                some.iter().for_each(|of| self.add(&mut rows, &of.key, of.row, &of.included));
                if !self.send(&mut rows).await? {
                    return Ok(());
                }
            }
            return Ok(());
        }
        for KeyRange { low, high } in &self.options.ranges {
            for layer in &layers {
                let (low, high) = (low.as_deref(), high.as_deref());
                let mut range = layer.range(low, high, Direction::Forwards);
                while let Some(entry) = range.next().await.map_err(failed)? {
                    let LayerEntry { key, row, included } = entry;
                    self.add(&mut rows, &key, row, &included);
                    if rows.ids.len() == self.options.batch_rows && !self.send(&mut rows).await? {
                        return Ok(());
                    }
                }
            }
        }
        if !rows.ids.is_empty() {
            self.send(&mut rows).await?;
        }
        Ok(())
    }

    fn add(&self, rows: &mut FoundRows, key: &[u8], row: u64, included: &[u8]) {
        rows.ids.push(row);
        if self.covering.is_some() {
            rows.entries.push(key, included);
        }
    }

    /// The entries with the first or the last keys of the ranges, so many if there are.
    async fn end(
        &self,
        layers: &[Layer<'_>],
        count: usize,
        direction: Direction,
    ) -> std::result::Result<Vec<OwnedEntry>, IndexError> {
        let mut ranges: Vec<&KeyRange> = self.options.ranges.iter().collect();
        if direction == Direction::Backwards {
            ranges.reverse();
        }
        let mut rows = Vec::new();
        for KeyRange { low, high } in ranges {
            let wanted = count - rows.len();
            let mut found: Vec<OwnedEntry> = Vec::new();
            for layer in layers {
                let mut range = layer.range(low.as_deref(), high.as_deref(), direction);
                for _ in 0..wanted {
                    let Some(LayerEntry { key, row, included }) = range.next().await? else {
                        break;
                    };
                    let (key, included) = (key.into_owned(), included.into_owned());
                    found.push(OwnedEntry { key, row, included });
                }
            }
            found.sort_unstable();
            if direction == Direction::Backwards {
                found.reverse();
            }
            rows.extend(found.into_iter().take(wanted));
        }
        Ok(rows)
    }

    /// Sends the rows' values; false if they are not wanted any more.
    async fn send(&self, rows: &mut FoundRows) -> Result<bool> {
        if self.options.cancel.is_cancelled() {
            return Err(StoreError::Cancelled);
        }
        let Table { version, access, .. } = &*self.table;
        let IndexScanOptions { projection, depth, .. } = &self.options;
        let mut order: Vec<usize> = (0..rows.ids.len()).collect();
        order.sort_unstable_by_key(|at| rows.ids[*at]);
        order.dedup_by_key(|at| rows.ids[*at]);
        let ids: Vec<u64> = order.iter().map(|at| rows.ids[*at]).collect();
        let mut columns = match &self.covering {
            None => fetch(version, access, &ids, projection, *depth).await?,
            Some(covering) => covering.decode(&rows.entries, &order).map_err(|source| {
                let definition = self.table.index(&self.name).map(IndexVersion::definition);
                definition.map_or_else(|error| error, |of| of.error(&version.schema, source))
            })?,
        };
        rows.ids.clear();
        rows.entries.clear();
        let options = RecordBatchOptions::new().with_row_count(Some(ids.len()));
        if self.options.with_row_ids {
            columns.push(Arc::new(UInt64Array::from(ids)));
        }
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options);
        let batch = batch.map_err(|error| StoreError::Request {
            table: version.schema.name.clone(),
            problem: error.to_string(),
        })?;
        Ok(self.sender.send(Ok(batch)).await.is_ok())
    }
}

/// An entry that was found, in the order of keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OwnedEntry {
    key: Vec<u8>,
    row: u64,
    included: Vec<u8>,
}
