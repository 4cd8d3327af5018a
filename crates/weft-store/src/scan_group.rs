//! One row group of a scan: zones first, then the columns of predicates and filters, then what is left of the others.
//!
//! Many row groups have their pages read at once, few are decoded: each waits for its turn when its pages are
//! in memory. They are decoded [a piece at a time](crate::pieces), and no page is held while a consumer is waited for.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use arrow_schema::DataType;
use arrow_select::concat::concat;
use arrow_select::filter::filter;
use weft_codec::{Block as Decoder, Predicate, mask};
use weft_rt::memory::Ledger;

use crate::array_bytes::logical_bytes;
use crate::error::{Result, StoreError};
use crate::group_rows::{Columns, GroupRows, ScanRows};
use crate::page_io::{Wanted, count};
use crate::pages::PageKind;
use crate::pieces::{PIECE_ROWS, Picked, Pieces};
use crate::row_group::{Block, Chunk, RowGroup};
use crate::scan::{InFlight, Output, ScanShared};
use crate::scan_options::ColumnFilter;
use crate::segment::Loaded;

/// If one of so many rows is left, or more, it is better not to copy them.
const WHOLE: usize = 2;
/// If one of so many rows is left, or more, a filter is asked about all of a block: that is cheaper than to pick them.
const DENSE: usize = 8;

/// Rows that are picked are decoded at once as long as they are so few bytes: a part of the budget, at least and at most that;
/// but not fewer and not more rows.
const PICKED_PART: u64 = 128;
const PICKED_BYTES: (u64, u64) = (128 << 10, 2 << 20);
const PICKED_ROWS: (usize, usize) = (1024, 16 << 10);

/// A row group being scanned.
pub(crate) struct GroupScan<'a> {
    shared: &'a ScanShared,
    segment: &'a Arc<Loaded>,
    group: &'a RowGroup,
    /// Which of the segment's row groups it is, and which of the table's.
    place: (usize, usize),
    /// The rows that are left; all, if none is excluded.
    selection: Option<BooleanBuffer>,
}

/// Scans a row group, the `within`th of its segment and the `number`th of the table, on a worker; breaks
/// off if nobody listens any more.
pub(crate) async fn scan_group(
    shared: &ScanShared,
    in_flight: &InFlight,
    segment: &Arc<Loaded>,
    place: (usize, usize),
    output: &Output,
) -> Result<ControlFlow<()>> {
    let mut rows = read_group(shared, in_flight, segment, place, &output.decoding).await?;
    while let Some(ScanRows { batch, .. }) = rows.next(shared).await? {
        let bytes = batch.columns().iter().map(logical_bytes).sum::<u64>();
        let memory = shared.table.access.ledger.try_reserve(bytes);
        if output.sender.send(Ok((batch, memory))).await.is_err() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Finds out which rows of a row group are wanted, the `within`th of its segment and the `number`th of the table, and has their
/// pages read, on a worker. `decoding` is a budget in row groups that are decoded and not yet given away.
pub(crate) async fn read_group(
    shared: &ScanShared,
    in_flight: &InFlight,
    segment: &Arc<Loaded>,
    place: (usize, usize),
    decoding: &Ledger,
) -> Result<GroupRows> {
    let mut scan = GroupScan::new(shared, segment, place);
    let group = scan.group;
    let bytes = shared.columns.iter().map(|column| group.chunks[*column].bytes()).sum::<u64>();
    let turn = in_flight.bytes.reserve(bytes.clamp(1, in_flight.bytes.limit() / 2)).await?;
    count(&shared.counters.rows_in, group.rows.into());
    scan.exclude_by_zones();
    scan.filter().await?;
    scan.prefetch().await;
    let decoding = decoding.reserve(1).await?;
    let selection = scan.selection.take().filter(BooleanBuffer::has_false);
    let rows = selection.as_ref().map_or(scan.rows(), mask::count);
    let picked = selection.as_ref().is_some_and(|selection| !scan.is_left_whole(selection, rows));
    let picked_max = picked.then(|| picked_rows_max(shared, group).min(rows));
    let bytes = decoded_bytes(shared, group, picked_max).min(in_flight.decoded.limit());
    let part = in_flight.decoded.reserve(bytes).await?;
    let memory = match shared.table.access.ledger.try_reserve(bytes) {
        Some(memory) => memory,
        None => in_flight.unreserved.reserve(1).await?,
    };
    let columns = match (selection, picked_max) {
        (Some(_), _) if rows == 0 => Columns::None,
        (Some(selection), Some(rows_max)) => {
            Columns::Picked(Picked::new(segment, place, selection, rows_max))
        }
        (selection, _) => Columns::All(scan.pieces(), selection),
    };
    Ok(GroupRows::new(group, place.1, columns, [turn, decoding, part, memory]))
}

/// Rows that are picked at once.
fn picked_rows_max(shared: &ScanShared, group: &RowGroup) -> usize {
    let bytes = shared.columns.iter().map(|column| row_bytes(shared, group, *column)).sum::<u64>();
    let limit = shared.table.access.ledger.limit();
    let bytes_max = (limit / PICKED_PART).clamp(PICKED_BYTES.0, PICKED_BYTES.1);
    ((bytes_max / bytes.max(1)) as usize).clamp(PICKED_ROWS.0, PICKED_ROWS.1)
}

/// About what a value of a column takes when it is decoded.
fn row_bytes(shared: &ScanShared, group: &RowGroup, column: usize) -> u64 {
    match shared.table.version.schema.columns[column].data_type.primitive_width() {
        Some(width) => width as u64,
        // Views take 16 bytes a row; that strings shrink by half when they are encoded is a guess.
        None => 16 + 2 * group.chunks[column].bytes() / u64::from(group.rows.max(1)),
    }
}

/// About what the rows of a row group take that are decoded at a time: so many `picked` ones, or a piece of each column.
fn decoded_bytes(shared: &ScanShared, group: &RowGroup, picked: Option<usize>) -> u64 {
    let column_bytes = |column: &usize| {
        let data_type = &shared.table.version.schema.columns[*column].data_type;
        let rows = picked.unwrap_or(match data_type.primitive_width() {
            Some(_) => PIECE_ROWS.min(group.rows as usize),
            None => group.chunks[*column].block_rows as usize,
        });
        row_bytes(shared, group, *column) * rows as u64
    };
    shared.columns.iter().map(column_bytes).sum::<u64>().max(1)
}

/// The rows of each block.
fn block_ranges(chunk: &Chunk) -> impl Iterator<Item = (usize, Range<usize>)> {
    let block_rows = chunk.block_rows as usize;
    chunk.blocks.iter().enumerate().map(move |(number, block)| {
        let start = number * block_rows;
        (number, start..start + block.rows as usize)
    })
}

/// Those of the predicates that rows of a block may not satisfy.
fn open<'a>(predicates: &[&'a Predicate], block: &Block) -> Vec<&'a Predicate> {
    let may_fail = |predicate: &&&Predicate| !predicate.must_match(&block.zone, block.rows.into());
    predicates.iter().filter(may_fail).copied().collect()
}

/// The bits that lie in `range`, and no others.
fn only(selection: &BooleanBuffer, range: &Range<usize>) -> BooleanBuffer {
    if range.start == 0 && range.end == selection.len() {
        return selection.clone();
    }
    let mut bits = BooleanBufferBuilder::new(selection.len());
    bits.append_n(range.start, false);
    bits.append_buffer(&selection.slice(range.start, range.len()));
    bits.append_n(selection.len() - range.end, false);
    bits.finish()
}

fn any(selection: Option<&BooleanBuffer>, rows: &Range<usize>) -> bool {
    selection.is_none_or(|selection| selection.slice(rows.start, rows.len()).has_true())
}

impl<'a> GroupScan<'a> {
    /// Of the row group at `place`: its number in the segment, and in the table.
    pub(crate) fn new(
        shared: &'a ScanShared,
        segment: &'a Arc<Loaded>,
        place: (usize, usize),
    ) -> GroupScan<'a> {
        let group = &segment.groups[place.0];
        let selection = group.deleted.as_ref().map(|deleted| deleted.live().clone());
        GroupScan { shared, segment, group, place, selection }
    }

    /// Rows of the blocks of a column, but for the last.
    pub(crate) fn block_rows(&self, column: usize) -> usize {
        self.group.chunks[column].block_rows as usize
    }

    fn rows(&self) -> usize {
        self.group.rows as usize
    }

    fn data_type(&self, column: usize) -> DataType {
        self.shared.options.data_type(&self.shared.table.version.schema.columns[column].data_type)
    }

    /// The error with what was being read when it happened.
    fn at(&self, column: usize, error: StoreError) -> StoreError {
        let schema = &self.shared.table.version.schema;
        let (table, column) = (&schema.name, &schema.columns[column].name);
        error.at(format!("table {table}, row group {}, column {column}", self.place.1))
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
        for (column, predicate) in options.predicates.iter().chain(&options.zone_predicates) {
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

    /// Applies the predicates to the blocks that are left, then asks the filters.
    async fn filter(&mut self) -> Result<()> {
        let shared = self.shared;
        let predicates = &shared.options.predicates;
        for (at, (column, _)) in predicates.iter().enumerate() {
            if predicates[..at].iter().any(|(earlier, _)| earlier == column) {
                continue;
            }
            let of_column = predicates[at..].iter().filter(|(other, _)| other == column);
            let of_column: Vec<&Predicate> = of_column.map(|(_, predicate)| predicate).collect();
            if self.group.chunks[*column]
                .blocks
                .iter()
                .all(|block| open(&of_column, block).is_empty())
            {
                continue;
            }
            let satisfied = self.satisfied(*column, &of_column).await?;
            self.select(satisfied);
            if self.is_empty() {
                return Ok(());
            }
        }
        for (column, filter) in &shared.options.filters {
            if filter.is_worth_it() && !self.is_empty() {
                let wanted = self.wanted(*column, filter.as_ref()).await?;
                self.select(wanted);
            }
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.selection.as_ref().is_some_and(|selection| !selection.has_true())
    }

    /// The rows that a filter wants, of those that are left: nothing can be said of others.
    async fn wanted(&self, column: usize, filter: &dyn ColumnFilter) -> Result<BooleanBuffer> {
        let is_left = |(_, rows): &(usize, Range<usize>)| any(self.selection.as_ref(), rows);
        let chunk = &self.group.chunks[column];
        let left: Vec<(usize, Range<usize>)> = block_ranges(chunk).filter(is_left).collect();
        let keys: Vec<_> = left.iter().map(|(number, _)| (column, *number)).collect();
        let data_type = self.data_type(column);
        let mut wanted = BooleanBufferBuilder::new(self.rows());
        self.count_read(keys.iter());
        self.visit(&keys, |at, decoder| {
            let rows = &left[at].1;
            wanted.append_n(rows.start - wanted.len(), false);
            let selection = self.selection.as_ref();
            let selection = selection.map(|selection| selection.slice(rows.start, rows.len()));
            let few = |selection: &BooleanBuffer| mask::count(selection) * DENSE < rows.len();
            let ask_all = |decoder: &Decoder<'_>| match decoder.decode_runs(&data_type)? {
                Some(runs) => {
                    let bits = filter.wanted(&runs.values, rows.len());
                    Ok(bits.map(|bits| runs.spread(&bits)))
                }
                None => Ok(filter.wanted(&decoder.decode_as(&data_type)?, rows.len())),
            };
            match selection {
                Some(selection) if few(&selection) => {
                    let values = decoder.decode_selected(&selection, &data_type)?;
                    match filter.wanted(&values, values.len()) {
                        Some(bits) => {
                            wanted.append_n(rows.len(), false);
                            let asked = selection.set_indices().zip(&bits);
                            asked.for_each(|(row, bit)| wanted.set_bit(rows.start + row, bit));
                        }
                        None => wanted.append_buffer(&selection),
                    }
                }
                selection => match (ask_all(decoder)?, selection) {
                    (Some(bits), Some(selection)) => wanted.append_buffer(&(&bits & &selection)),
                    (Some(bits), None) => wanted.append_buffer(&bits),
                    (None, Some(selection)) => wanted.append_buffer(&selection),
                    (None, None) => wanted.append_n(rows.len(), true),
                },
            }
            Ok(())
        })
        .await?;
        wanted.append_n(self.rows() - wanted.len(), false);
        Ok(wanted.finish())
    }

    /// The rows that satisfy all predicates on a column, of those that are left.
    async fn satisfied(&self, column: usize, predicates: &[&Predicate]) -> Result<BooleanBuffer> {
        let chunk = &self.group.chunks[column];
        let open_of = |number: usize| open(predicates, &chunk.blocks[number]);
        let is_open = |(number, rows): &(usize, Range<usize>)| {
            any(self.selection.as_ref(), rows) && !open_of(*number).is_empty()
        };
        let open: Vec<(usize, Range<usize>)> = block_ranges(chunk).filter(is_open).collect();
        // What is not open is true: it must match, or is excluded already.
        let mut satisfied = BooleanBufferBuilder::new(self.rows());
        let keys: Vec<_> = open.iter().map(|(number, _)| (column, *number)).collect();
        self.count_read(keys.iter());
        self.visit(&keys, |at, decoder| {
            let (number, rows) = &open[at];
            satisfied.append_n(rows.start - satisfied.len(), true);
            satisfied.append_buffer(&decoder.filter_all(&open_of(*number))?);
            Ok(())
        })
        .await?;
        satisfied.append_n(self.rows() - satisfied.len(), true);
        Ok(satisfied.finish())
    }

    fn block(&self, (column, number): (usize, usize)) -> &'a Block {
        &self.group.chunks[column].blocks[number]
    }

    /// Counts blocks, by column and number, that are read for the first time.
    pub(crate) fn count_read<'k>(&self, keys: impl Iterator<Item = &'k (usize, usize)>) {
        let bytes = keys.map(|key| self.block(*key).stored.extent().bytes()).sum();
        self.shared.options.progress.add_bytes_read(bytes);
    }

    /// Reads blocks, by column and number, and opens each for `work`.
    pub(crate) async fn visit(
        &self,
        keys: &[(usize, usize)],
        mut work: impl FnMut(usize, &Decoder<'_>) -> weft_codec::Result<()>,
    ) -> Result<()> {
        let blocks: Vec<&Block> = keys.iter().map(|key| self.block(*key)).collect();
        let (source, pages) = (&self.shared.source, &self.group.pages);
        let read = source.visit(pages, &blocks, PageKind::Block, Wanted::ByScan, |at, bytes| {
            let undecodable = |error| source.undecodable(&blocks[at].stored, error);
            let decoder = Decoder::open(bytes).map_err(undecodable)?;
            source.check_rows(blocks[at], decoder.rows())?;
            work(at, &decoder).map_err(undecodable)
        });
        read.await.map_err(|(at, error)| self.at(keys[at].0, error))
    }

    /// Has the pages read that are going to be decoded.
    async fn prefetch(&self) {
        let mut blocks = Vec::new();
        for column in &self.shared.projected {
            let chunk = &self.group.chunks[*column];
            let left = block_ranges(chunk).filter(|(_, rows)| any(self.selection.as_ref(), rows));
            blocks.extend(left.map(|(number, _)| &chunk.blocks[number]));
        }
        self.shared.source.prefetch(&self.group.pages, &blocks).await;
    }

    /// The decoded blocks of all projected columns that have rows left, by column: the first row of each,
    /// and what `decode` makes of it, given the column's one of `types`. Those whose rows are new are read for the first
    /// time.
    async fn decode(
        &self,
        selection: &BooleanBuffer,
        is_new: impl Fn(&Range<usize>) -> bool,
        types: Vec<DataType>,
        decode: impl Fn(&Decoder<'_>, &Range<usize>, &DataType) -> weft_codec::Result<ArrayRef>,
    ) -> Result<Vec<Vec<(usize, ArrayRef)>>> {
        let columns = &self.shared.projected;
        let mut keys = Vec::new();
        let mut ranges = Vec::new();
        for (position, column) in columns.iter().enumerate() {
            for (number, rows) in block_ranges(&self.group.chunks[*column]) {
                if any(Some(selection), &rows) {
                    keys.push((*column, number));
                    ranges.push((position, rows));
                }
            }
        }
        let mut decoded: Vec<Vec<(usize, ArrayRef)>> = vec![Vec::new(); columns.len()];
        let new = keys.iter().zip(&ranges).filter(|(_, (_, rows))| is_new(rows));
        self.count_read(new.map(|(key, _)| key));
        self.visit(&keys, |at, decoder| {
            let (position, rows) = &ranges[at];
            let array = decode(decoder, rows, &types[*position])?;
            decoded[*position].push((rows.start, array));
            Ok(())
        })
        .await?;
        let position = |column| columns.iter().position(|other| *other == column);
        let projected = self.shared.options.projection.iter();
        Ok(projected.map(|column| decoded[position(*column).expect("projected")].clone()).collect())
    }

    /// True if the `rows` rows of a selection had better leave as all rows and the selection.
    fn is_left_whole(&self, selection: &BooleanBuffer, rows: usize) -> bool {
        let has_rows_left = |column: &usize| {
            block_ranges(&self.group.chunks[*column]).all(|(_, rows)| any(Some(selection), &rows))
        };
        self.shared.as_stored
            && rows >= self.rows() / WHOLE
            && self.shared.projected.iter().all(has_rows_left)
    }

    /// All rows, to be decoded piece by piece.
    fn pieces(&self) -> Pieces {
        let types = self.types(|_| self.shared.as_stored);
        let columns = self.shared.projected.iter().copied().zip(types);
        Pieces::new(self.segment, self.place, columns)
    }

    /// The types in which projected columns leave, those for which `as_stored` is true as they are stored.
    fn types(&self, as_stored: impl Fn(&Chunk) -> bool) -> Vec<DataType> {
        let of = |column: &usize| match self.data_type(*column) {
            strings @ (DataType::Utf8View | DataType::BinaryView)
                if as_stored(&self.group.chunks[*column]) =>
            {
                DataType::Dictionary(Box::new(DataType::UInt16), Box::new(strings))
            }
            data_type => data_type,
        };
        self.shared.projected.iter().map(of).collect()
    }

    /// The rows of `range` that are selected, a column after the other, row ids included if they are wanted.
    pub(crate) async fn picked(
        &self,
        selection: &BooleanBuffer,
        range: Range<usize>,
    ) -> Result<Vec<ArrayRef>> {
        let options = &self.shared.options;
        let picked = only(selection, &range);
        let decode = |decoder: &Decoder<'_>, rows: &Range<usize>, data_type: &DataType| {
            decoder.decode_selected(&picked.slice(rows.start, rows.len()), data_type)
        };
        // Blocks are joined to one array, of one type.
        let is_one = |chunk: &Chunk| {
            block_ranges(chunk).filter(|(_, rows)| any(Some(&picked), rows)).count() == 1
        };
        let types = self.types(|chunk| self.shared.as_stored && is_one(chunk));
        let is_new = |rows: &Range<usize>| {
            rows.start >= range.start || !any(Some(selection), &(rows.start..range.start))
        };
        let decoded = self.decode(&picked, is_new, types, decode).await?;
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(decoded.len() + 1);
        for (blocks, column) in decoded.into_iter().zip(&options.projection) {
            columns.push(self.join(blocks, *column)?);
        }
        if options.with_row_id {
            let selected = selection.slice(range.start, range.len());
            let ids = filter(&self.group.ids_of(range), &BooleanArray::new(selected, None));
            columns.push(ids.expect("a bit for each row"));
        }
        Ok(columns)
    }

    /// The selected rows of a column as one array.
    fn join(&self, mut blocks: Vec<(usize, ArrayRef)>, column: usize) -> Result<ArrayRef> {
        if blocks.len() == 1 {
            return Ok(blocks.remove(0).1);
        }
        let pieces: Vec<_> = blocks.iter().map(|(_, array)| array.as_ref()).collect();
        concat(&pieces).map_err(|_| {
            let bytes = blocks.iter().map(|(_, array)| logical_bytes(array) as usize).sum();
            let source = weft_codec::Error::TooManyBytes { bytes };
            self.at(column, StoreError::Encode { place: "the selected rows".into(), source })
        })
    }
}
