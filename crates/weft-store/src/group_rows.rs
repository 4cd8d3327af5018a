//! What a scan wants of one row group, decoded, on its way out as batches.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{Schema, SchemaRef};
use weft_rt::memory::Reservation;

use crate::error::{Result, StoreError};
use crate::page_io::count;
use crate::pieces::Pieces;
use crate::row_group::RowGroup;
use crate::scan::ScanShared;

/// Rows of a scan.
#[derive(Clone, Debug)]
pub struct ScanRows {
    /// Their values.
    pub batch: RecordBatch,
    /// Which of the batch's rows they are; all if nothing is said.
    pub selected: Option<BooleanBuffer>,
}

/// The rows of a row group that are left, and what has been reserved for them.
#[derive(Debug)]
pub(crate) struct GroupRows {
    number: usize,
    device: u8,
    first_row: u64,
    columns: Columns,
    /// Which rows of all are left.
    selected: Option<BooleanBuffer>,
    at: usize,
    rows: usize,
    /// In flight, decoded, and in memory.
    _held: [Reservation; 3],
}

#[derive(Debug)]
enum Columns {
    /// All rows, in pieces whose ends batches do not cross.
    All(Pieces),
    /// The selected rows.
    Selected(Vec<ArrayRef>),
}

impl GroupRows {
    /// Of no rows.
    pub(crate) fn none(group: &RowGroup, number: usize, held: [Reservation; 3]) -> GroupRows {
        GroupRows::selected(group, number, Vec::new(), 0, held)
    }

    /// Of all rows, or of those that are `selected`.
    pub(crate) fn all(
        group: &RowGroup,
        number: usize,
        pieces: Pieces,
        selected: Option<BooleanBuffer>,
        held: [Reservation; 3],
    ) -> GroupRows {
        GroupRows {
            columns: Columns::All(pieces),
            selected,
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
        GroupRows { number, device, first_row, columns, selected: None, at: 0, rows, _held: held }
    }

    /// The next rows, on a worker.
    pub(crate) async fn next(&mut self, shared: &ScanShared) -> Result<Option<ScanRows>> {
        while self.at < self.rows {
            let (first, arrays, rows) = self.cut(shared).await?;
            let selected = self.selected.as_ref().map(|selected| selected.slice(first, rows));
            let left = selected.as_ref().map_or(rows, BooleanBuffer::count_set_bits);
            if left == 0 {
                continue;
            }
            count(&shared.counters.rows_out, left as u64);
            shared.options.progress.add_rows(left as u64);
            let batch = self.batch(shared, arrays, rows)?;
            return Ok(Some(ScanRows { batch, selected: selected.filter(|_| left < rows) }));
        }
        Ok(None)
    }

    /// Cuts the next batch off: its first row, its columns, and how many rows it has.
    async fn cut(&mut self, shared: &ScanShared) -> Result<(usize, Vec<ArrayRef>, usize)> {
        let (options, first) = (&shared.options, self.at);
        let rows = options.batch_rows.min(self.rows - first);
        let (arrays, rows) = match &mut self.columns {
            Columns::Selected(columns) => {
                (columns.iter().map(|column| column.slice(first, rows)).collect(), rows)
            }
            Columns::All(pieces) => {
                let (mut arrays, rows) = pieces.from(shared, first, rows).await?;
                if options.with_row_id {
                    let id = self.first_row + first as u64;
                    arrays.push(Arc::new(UInt64Array::from_iter_values(id..id + rows as u64)));
                }
                (arrays, rows)
            }
        };
        self.at += rows;
        Ok((first, arrays, rows))
    }

    fn batch(
        &self,
        shared: &ScanShared,
        arrays: Vec<ArrayRef>,
        rows: usize,
    ) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = if shared.as_stored {
            as_they_come(&shared.schema, &arrays)
        } else {
            shared.schema.clone()
        };
        let batch = RecordBatch::try_new_with_options(schema, arrays, &options);
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

/// The schema with the types that the columns have.
fn as_they_come(schema: &SchemaRef, columns: &[ArrayRef]) -> SchemaRef {
    let mut of_columns = schema.fields().iter().zip(columns);
    if of_columns.all(|(field, column)| field.data_type() == column.data_type()) {
        return schema.clone();
    }
    let of_columns = schema.fields().iter().zip(columns);
    let fields = of_columns
        .map(|(field, column)| field.as_ref().clone().with_data_type(column.data_type().clone()));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
