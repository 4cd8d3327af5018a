//! What a scan wants of one row group, decoded, on its way out as batches.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use weft_rt::memory::Reservation;

use crate::error::{Result, StoreError};
use crate::page_io::count;
use crate::row_group::RowGroup;
use crate::scan::ScanShared;

/// A decoded block, and the row of its row group that it begins with.
pub(crate) type DecodedBlock = (usize, ArrayRef);

/// The rows of a row group that are left, and what has been reserved for them.
#[derive(Debug)]
pub(crate) struct GroupRows {
    number: usize,
    device: u8,
    first_row: u64,
    columns: Columns,
    at: usize,
    rows: usize,
    /// In flight, decoded, and in memory.
    _held: [Reservation; 3],
}

#[derive(Debug)]
enum Columns {
    /// All rows, in blocks whose ends batches do not cross: the blocks to come, and the one that is being cut.
    All(Vec<std::vec::IntoIter<DecodedBlock>>, Vec<Option<DecodedBlock>>),
    /// The selected rows.
    Selected(Vec<ArrayRef>),
}

impl GroupRows {
    /// Of no rows.
    pub(crate) fn none(group: &RowGroup, number: usize, held: [Reservation; 3]) -> GroupRows {
        GroupRows::selected(group, number, Vec::new(), 0, held)
    }

    /// Of all rows, in the blocks of each column.
    pub(crate) fn all(
        group: &RowGroup,
        number: usize,
        blocks: Vec<Vec<DecodedBlock>>,
        held: [Reservation; 3],
    ) -> GroupRows {
        let current = vec![None; blocks.len()];
        let blocks = blocks.into_iter().map(|blocks| blocks.into_iter()).collect();
        GroupRows {
            columns: Columns::All(blocks, current),
            ..GroupRows::selected(group, number, Vec::new(), group.rows as usize, held)
        }
    }

    /// Of `rows` rows, row ids included if they are wanted.
    pub(crate) fn selected(
        group: &RowGroup,
        number: usize,
        columns: Vec<ArrayRef>,
        rows: usize,
        held: [Reservation; 3],
    ) -> GroupRows {
        let (device, first_row) = (group.extent.device, group.first_row);
        let columns = Columns::Selected(columns);
        GroupRows { number, device, first_row, columns, at: 0, rows, _held: held }
    }

    /// The next batch.
    pub(crate) fn next(&mut self, shared: &ScanShared) -> Result<Option<RecordBatch>> {
        if self.at == self.rows {
            return Ok(None);
        }
        let options = &shared.options;
        let mut rows = options.batch_rows.min(self.rows - self.at);
        let mut arrays = Vec::new();
        match &mut self.columns {
            Columns::Selected(columns) => {
                arrays.extend(columns.iter().map(|column| column.slice(self.at, rows)));
            }
            Columns::All(blocks, current) => {
                for (current, blocks) in current.iter_mut().zip(blocks) {
                    let is_behind = |(start, array): &DecodedBlock| start + array.len() <= self.at;
                    if current.as_ref().is_none_or(is_behind) {
                        *current = blocks.next();
                    }
                    let (start, array) = current.as_ref().expect("all rows were decoded");
                    rows = rows.min(start + array.len() - self.at);
                }
                for (start, array) in current.iter().flatten() {
                    arrays.push(array.slice(self.at - start, rows));
                }
                if options.with_row_id {
                    let first = self.first_row + self.at as u64;
                    let ids = UInt64Array::from_iter_values(first..first + rows as u64);
                    arrays.push(Arc::new(ids));
                }
            }
        }
        self.at += rows;
        count(&shared.counters.rows_out, rows as u64);
        options.progress.add_rows(rows as u64);
        self.batch(shared, arrays, rows).map(Some)
    }

    fn batch(
        &self,
        shared: &ScanShared,
        arrays: Vec<ArrayRef>,
        rows: usize,
    ) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(shared.schema.clone(), arrays, &options);
        batch.map_err(|error| {
            // A column without nulls by its definition that has some on disk.
            let table = &shared.table.version.schema.name;
            StoreError::Damaged {
                path: shared.source.path(self.device),
                place: format!("table {table}, row group {}", self.number),
                problem: error.to_string(),
            }
        })
    }
}
