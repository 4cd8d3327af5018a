//! The rows of a row group, decoded a piece at a time: what a piece takes is little, and stays in the caches until it is used.
//!
//! Of all rows, numbers and strings are decoded in pieces of [`PIECE_ROWS`]; of what cannot be decoded so, a block is one piece.
//! Of some rows, a piece is so many of them. The pages are visited again for each piece, and not held between: a consumer may let
//! the next one wait for long.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_buffer::BooleanBuffer;
use arrow_schema::DataType;
use weft_codec::mask;

use crate::error::Result;
use crate::scan::ScanShared;
use crate::scan_group::GroupScan;
use crate::segment::Loaded;

/// Rows of numbers or strings that are decoded at once.
pub(crate) const PIECE_ROWS: usize = 16 * weft_codec::RANGE_ROWS;

/// All rows of a row group, of whose columns each is decoded as far as it is wanted.
#[derive(Debug)]
pub(crate) struct Pieces {
    segment: Arc<Loaded>,
    /// Which of the segment's row groups it is, and which of the table's.
    place: (usize, usize),
    /// Those of the projection, each once.
    columns: Vec<Column>,
}

#[derive(Debug)]
struct Column {
    number: usize,
    /// In which its values leave.
    data_type: DataType,
    /// Its first row, and its values.
    piece: Option<(usize, ArrayRef)>,
}

/// A piece to be decoded: its place among the columns, the block's first row, and the first row in the block.
struct Missing {
    at: usize,
    block_start: usize,
    offset: usize,
}

impl Column {
    /// The rows that are decoded.
    fn rows(&self) -> Range<usize> {
        self.piece.as_ref().map_or(0..0, |(start, values)| *start..start + values.len())
    }
}

impl Pieces {
    /// Of columns, given their numbers and types, of the row group at `place`: its number in the segment, and in the table.
    pub(crate) fn new(
        segment: &Arc<Loaded>,
        place: (usize, usize),
        columns: impl Iterator<Item = (usize, DataType)>,
    ) -> Pieces {
        let column = |(number, data_type)| Column { number, data_type, piece: None };
        Pieces { segment: segment.clone(), place, columns: columns.map(column).collect() }
    }

    /// The rows from `row` on, at most `rows_max` of them, of the columns of the projection, on a worker.
    pub(crate) async fn from(
        &mut self,
        shared: &ScanShared,
        row: usize,
        rows_max: usize,
    ) -> Result<(Vec<ArrayRef>, usize)> {
        self.decode(shared, row).await?;
        let ends = self.columns.iter().map(|column| column.rows().end - row);
        let rows = ends.fold(rows_max, usize::min);
        let values = |number: &usize| {
            let mut columns = self.columns.iter();
            let column = columns.find(|column| column.number == *number).expect("projected");
            let (start, values) = column.piece.as_ref().expect("it was decoded");
            values.slice(row - start, rows)
        };
        Ok((shared.options.projection.iter().map(values).collect(), rows))
    }

    /// Decodes the pieces with `row` that are missing.
    async fn decode(&mut self, shared: &ScanShared, row: usize) -> Result<()> {
        let scan = GroupScan::new(shared, &self.segment, self.place);
        let mut keys = Vec::with_capacity(self.columns.len());
        let mut missing = Vec::with_capacity(self.columns.len());
        for (at, column) in self.columns.iter_mut().enumerate() {
            if !column.rows().contains(&row) {
                // It goes before its successor comes.
                column.piece = None;
                let block_rows = scan.block_rows(column.number);
                let offset = row % block_rows / PIECE_ROWS * PIECE_ROWS;
                keys.push((column.number, row / block_rows));
                missing.push(Missing { at, block_start: row - row % block_rows, offset });
            }
        }
        if keys.is_empty() {
            return Ok(());
        }
        let is_new = |(_, missing): &(_, &Missing)| missing.offset == 0;
        scan.count_read(keys.iter().zip(&missing).filter(is_new).map(|(key, _)| key));
        let columns = &mut self.columns;
        scan.visit(&keys, |number, block| {
            let Missing { at, block_start, offset } = missing[number];
            let column = &mut columns[at];
            column.piece = Some(if block.is_divisible()? {
                let end = (offset + PIECE_ROWS).min(block.rows());
                let values = block.decode_range(offset..end, &column.data_type)?;
                (block_start + offset, values)
            } else {
                (block_start, block.decode_as(&column.data_type)?)
            });
            Ok(())
        })
        .await
    }
}

/// Some rows of a row group.
#[derive(Debug)]
pub(crate) struct Picked {
    segment: Arc<Loaded>,
    /// Which of the segment's row groups it is, and which of the table's.
    place: (usize, usize),
    selection: BooleanBuffer,
    /// Rows of a piece, at most, but for those of a step.
    rows_max: usize,
    /// Where the next piece begins.
    at: usize,
}

/// Rows of which all that are picked come in one piece.
const STEP: usize = 1024;

impl Picked {
    /// Those that are selected, in pieces of about `rows_max`, of the row group at `place`.
    pub(crate) fn new(
        segment: &Arc<Loaded>,
        place: (usize, usize),
        selection: BooleanBuffer,
        rows_max: usize,
    ) -> Picked {
        Picked { segment: segment.clone(), place, selection, rows_max, at: 0 }
    }

    /// The columns of the next piece, and how many rows it has; `None` after the last. On a worker.
    pub(crate) async fn next(
        &mut self,
        shared: &ScanShared,
    ) -> Result<Option<(Vec<ArrayRef>, usize)>> {
        let (start, mut rows) = (self.at, 0);
        while self.at < self.selection.len() {
            let step = STEP.min(self.selection.len() - self.at);
            let more = mask::count(&self.selection.slice(self.at, step));
            if rows > 0 && rows + more > self.rows_max {
                break;
            }
            rows += more;
            self.at += step;
        }
        if rows == 0 {
            return Ok(None);
        }
        let scan = GroupScan::new(shared, &self.segment, self.place);
        let columns = scan.picked(&self.selection, start..self.at).await?;
        Ok(Some((columns, rows)))
    }
}
