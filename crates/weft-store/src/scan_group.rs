//! One row group of a scan: zones first, then the filter columns, then what is left of the others.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use arrow_schema::DataType;
use arrow_select::concat::concat;
use weft_codec::{Block as Decoder, Predicate};
use weft_rt::memory::Reservation;
use weft_rt::sync::channel::Sender;
use weft_rt::yield_now;

use crate::array_bytes::logical_bytes;
use crate::error::{Result, StoreError};
use crate::page_io::{BlockBytes, count};
use crate::pages::PageKind;
use crate::row_group::{Block, Chunk, RowGroup};
use crate::scan::{Item, ScanShared};
use crate::schema::scan_type;

/// A row group being scanned.
struct GroupScan<'a> {
    shared: &'a ScanShared,
    group: &'a RowGroup,
    number: usize,
    /// The rows that are left; all, if none is excluded.
    selection: Option<BooleanBuffer>,
    /// Blocks that have been read, by column and number.
    read: Vec<((usize, usize), BlockBytes)>,
    rows_out: u64,
}

/// Scans a row group, on a worker; breaks off if nobody listens any more.
pub(crate) async fn scan_group(
    shared: &ScanShared,
    group: &RowGroup,
    number: usize,
    sender: &Sender<Item>,
) -> Result<ControlFlow<()>> {
    let bytes = in_flight_bytes(shared, group);
    let _turn = shared.in_flight.reserve(bytes.min(shared.in_flight.limit() / 2)).await?;
    let _memory = match shared.table.access.ledger.try_reserve(bytes) {
        Some(memory) => memory,
        None => shared.unreserved.reserve(1).await?,
    };
    count(&shared.counters.rows_in, group.rows.into());
    let mut scan =
        GroupScan { shared, group, number, selection: None, read: Vec::new(), rows_out: 0 };
    scan.exclude_by_zones();
    scan.filter().await?;
    let sent = match scan.selection.as_ref().map(BooleanBuffer::count_set_bits) {
        Some(0) => ControlFlow::Continue(()),
        Some(rows) if rows < group.rows as usize => scan.send_selected(sender).await?,
        _ => scan.send_all(sender).await?,
    };
    shared.options.progress.add_rows(scan.rows_out);
    count(&shared.counters.rows_out, scan.rows_out);
    Ok(sent)
}

/// What a row group takes while it is scanned: its pages, and its columns decoded.
fn in_flight_bytes(shared: &ScanShared, group: &RowGroup) -> u64 {
    let options = &shared.options;
    let filtered = options.predicates.iter().map(|(column, _)| column);
    let mut columns: Vec<usize> = options.projection.iter().chain(filtered).copied().collect();
    columns.sort_unstable();
    columns.dedup();
    let schema = &shared.table.version.schema;
    let column_bytes = |column: usize| {
        let stored = group.chunks[column].bytes();
        let data_type = &schema.columns[column].data_type;
        // Views take 16 bytes a row; that strings shrink by half when they are encoded is a guess.
        let width = data_type.primitive_width().unwrap_or(16) as u64;
        let long = if data_type.primitive_width().is_none() { 2 * stored } else { 0 };
        stored + width * u64::from(group.rows) + long
    };
    columns.into_iter().map(column_bytes).sum::<u64>().max(1)
}

/// The rows of each block.
fn block_ranges(chunk: &Chunk) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
    let block_rows = chunk.block_rows as usize;
    chunk.blocks.iter().enumerate().map(move |(number, block)| {
        let start = number * block_rows;
        (number, start..start + block.rows as usize)
    })
}

fn any(selection: Option<&BooleanBuffer>, rows: &std::ops::Range<usize>) -> bool {
    selection.is_none_or(|selection| {
        selection.slice(rows.start, rows.len()).set_indices().next().is_some()
    })
}

impl GroupScan<'_> {
    fn rows(&self) -> usize {
        self.group.rows as usize
    }

    fn column_name(&self, column: usize) -> &str {
        &self.shared.table.version.schema.columns[column].name
    }

    fn data_type(&self, column: usize) -> DataType {
        scan_type(&self.shared.table.version.schema.columns[column].data_type)
    }

    /// The error with what was being read when it happened.
    fn at(&self, column: usize, error: StoreError) -> StoreError {
        let table = &self.shared.table.version.schema.name;
        let column = self.column_name(column);
        error.at(format!("table {table}, row group {}, column {column}", self.number))
    }

    fn select(&mut self, satisfied: BooleanBuffer) {
        self.selection = Some(match self.selection.take() {
            Some(selection) => &selection & &satisfied,
            None => satisfied,
        });
    }

    /// Excludes the rows of blocks that cannot satisfy a predicate.
    fn exclude_by_zones(&mut self) {
        let options = &self.shared.options;
        let mut pruned = 0;
        for (column, predicate) in &options.predicates {
            let chunk = &self.group.chunks[*column];
            let may = |block: &Block| predicate.may_match(&block.zone, block.rows.into());
            if chunk.blocks.iter().all(may) {
                continue;
            }
            let mut satisfied = BooleanBufferBuilder::new(self.rows());
            for block in &chunk.blocks {
                let may = may(block);
                pruned += u64::from(!may);
                satisfied.append_n(block.rows as usize, may);
            }
            self.select(satisfied.finish());
        }
        count(&self.shared.counters.blocks_pruned, pruned);
    }

    /// Applies the predicates to the blocks that are left.
    async fn filter(&mut self) -> Result<()> {
        let shared = self.shared;
        for (column, predicate) in &shared.options.predicates {
            let chunk = &self.group.chunks[*column];
            let must = |block: &Block| predicate.must_match(&block.zone, block.rows.into());
            if chunk.blocks.iter().all(must) {
                continue;
            }
            self.read_columns(&[*column], |block| !must(block)).await?;
            let satisfied = self.satisfied(*column, predicate)?;
            self.select(satisfied);
            if self.selection.as_ref().is_some_and(|selection| selection.count_set_bits() == 0) {
                return Ok(());
            }
            yield_now().await;
        }
        Ok(())
    }

    /// The rows that satisfy a predicate, of those that are left.
    fn satisfied(&self, column: usize, predicate: &Predicate) -> Result<BooleanBuffer> {
        let chunk = &self.group.chunks[column];
        let mut satisfied = BooleanBufferBuilder::new(self.rows());
        for (number, rows) in block_ranges(chunk) {
            let block = &chunk.blocks[number];
            if !any(self.selection.as_ref(), &rows) {
                satisfied.append_n(rows.len(), false);
            } else if predicate.must_match(&block.zone, block.rows.into()) {
                satisfied.append_n(rows.len(), true);
            } else {
                let found = self.with_block(column, number, |decoder| decoder.filter(predicate))?;
                satisfied.append_buffer(&found);
            }
        }
        Ok(satisfied.finish())
    }

    /// Reads the blocks of these columns that have rows left, are `wanted` and not read yet.
    async fn read_columns(
        &mut self,
        columns: &[usize],
        wanted: impl Fn(&Block) -> bool,
    ) -> Result<()> {
        let mut keys = Vec::new();
        for &column in columns {
            let chunk = &self.group.chunks[column];
            for (number, rows) in block_ranges(chunk) {
                let key = (column, number);
                if wanted(&chunk.blocks[number])
                    && any(self.selection.as_ref(), &rows)
                    && !keys.contains(&key)
                    && self.find(column, number).is_none()
                {
                    keys.push(key);
                }
            }
        }
        let stored: Vec<_> = keys
            .iter()
            .map(|(column, number)| self.group.chunks[*column].blocks[*number].stored)
            .collect();
        let read = self.shared.source.read(&stored, PageKind::Block).await;
        let read = read.map_err(|(at, error)| self.at(keys[at].0, error))?;
        let bytes = stored.iter().map(|stored| stored.extent().bytes()).sum();
        self.shared.options.progress.add_bytes_read(bytes);
        self.read.extend(keys.into_iter().zip(read));
        Ok(())
    }

    fn find(&self, column: usize, number: usize) -> Option<&BlockBytes> {
        let found = self.read.iter().find(|(key, _)| *key == (column, number));
        found.map(|(_, bytes)| bytes)
    }

    /// Opens a block that has been read, and checks its number of rows.
    fn with_block<T>(
        &self,
        column: usize,
        number: usize,
        work: impl FnOnce(&Decoder<'_>) -> weft_codec::Result<T>,
    ) -> Result<T> {
        let block = &self.group.chunks[column].blocks[number];
        let source = &self.shared.source;
        let bytes = self.find(column, number).expect("read before it is opened");
        let payload = bytes.payload();
        let open = || {
            let decoder = Decoder::open(&payload)
                .map_err(|error| source.undecodable(&block.stored, &error))?;
            source.check_rows(block, decoder.rows())?;
            work(&decoder).map_err(|error| source.undecodable(&block.stored, &error))
        };
        open().map_err(|error| self.at(column, error))
    }

    /// Sends all rows, in batches that do not cross the ends of blocks.
    async fn send_all(&mut self, sender: &Sender<Item>) -> Result<ControlFlow<()>> {
        let options = &self.shared.options;
        self.read_columns(&options.projection, |_| true).await?;
        let chunks = options.projection.iter().map(|column| &self.group.chunks[*column]);
        let shortest = chunks.map(|chunk| chunk.block_rows as usize).min().unwrap_or(usize::MAX);
        let step = options.batch_rows.min(shortest);
        // Of each column the block that is being given out.
        let mut current: Vec<Option<(usize, ArrayRef)>> = vec![None; options.projection.len()];
        let mut at = 0;
        while at < self.rows() {
            let mut rows = step.min(self.rows() - at);
            let mut columns = Vec::with_capacity(current.len() + 1);
            for (current, column) in current.iter_mut().zip(&options.projection) {
                let block_rows = self.group.chunks[*column].block_rows as usize;
                let number = at / block_rows;
                if current.as_ref().is_none_or(|(decoded, _)| *decoded != number) {
                    let data_type = self.data_type(*column);
                    let array =
                        self.with_block(*column, number, |decoder| decoder.decode_as(&data_type))?;
                    *current = Some((number, array));
                }
                rows = rows.min((number + 1) * block_rows - at);
            }
            for (current, column) in current.iter().zip(&options.projection) {
                let (number, array) = current.as_ref().expect("decoded above");
                let start = at - number * self.group.chunks[*column].block_rows as usize;
                columns.push(array.slice(start, rows));
            }
            if options.with_row_id {
                let first = self.group.first_row + at as u64;
                columns.push(Arc::new(UInt64Array::from_iter_values(first..first + rows as u64)));
            }
            at += rows;
            if self.send(columns, rows, sender).await?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Sends the rows that are left.
    async fn send_selected(&mut self, sender: &Sender<Item>) -> Result<ControlFlow<()>> {
        let options = &self.shared.options;
        self.read_columns(&options.projection, |_| true).await?;
        let selection = self.selection.clone().expect("some rows are excluded");
        let rows = selection.count_set_bits();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(options.projection.len() + 1);
        for column in &options.projection {
            columns.push(self.decode_selected(*column, &selection)?);
            yield_now().await;
        }
        if options.with_row_id {
            let ids = selection.set_indices().map(|row| self.group.first_row + row as u64);
            columns.push(Arc::new(UInt64Array::from_iter_values(ids)));
        }
        let mut at = 0;
        while at < rows {
            let step = options.batch_rows.min(rows - at);
            let batch = columns.iter().map(|column| column.slice(at, step)).collect();
            at += step;
            if self.send(batch, step, sender).await?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The selected rows of a column as one array.
    fn decode_selected(&self, column: usize, selection: &BooleanBuffer) -> Result<ArrayRef> {
        let data_type = self.data_type(column);
        let mut arrays = Vec::new();
        for (number, rows) in block_ranges(&self.group.chunks[column]) {
            let within = selection.slice(rows.start, rows.len());
            if within.set_indices().next().is_none() {
                continue;
            }
            arrays.push(self.with_block(column, number, |decoder| {
                decoder.decode_selected(&within, &data_type)
            })?);
        }
        if arrays.len() == 1 {
            return Ok(arrays.remove(0));
        }
        let pieces: Vec<_> = arrays.iter().map(AsRef::as_ref).collect();
        concat(&pieces).map_err(|_| {
            let bytes = arrays.iter().map(|array| logical_bytes(array) as usize).sum();
            let source = weft_codec::Error::TooManyBytes { bytes };
            self.at(column, StoreError::Encode { place: "the selected rows".into(), source })
        })
    }

    async fn send(
        &mut self,
        columns: Vec<ArrayRef>,
        rows: usize,
        sender: &Sender<Item>,
    ) -> Result<ControlFlow<()>> {
        let bytes = columns.iter().map(logical_bytes).sum::<u64>();
        let memory: Option<Reservation> = self.shared.table.access.ledger.try_reserve(bytes);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = self.shared.schema.clone();
        let batch = RecordBatch::try_new_with_options(schema, columns, &options);
        let batch = batch.map_err(|error| {
            // A column without nulls by its definition that has some on disk.
            let table = &self.shared.table.version.schema.name;
            StoreError::Damaged {
                path: self.shared.source.path(self.group.extent.device),
                place: format!("table {table}, row group {}", self.number),
                problem: error.to_string(),
            }
        })?;
        self.rows_out += rows as u64;
        Ok(match sender.send(Ok((batch, memory))).await {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        })
    }
}
