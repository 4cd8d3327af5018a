//! What a scan wants of one row group, decoded, on its way out as batches.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{Schema, SchemaRef};
use weft_codec::mask;
use weft_rt::memory::Reservation;

use crate::error::{Result, StoreError};
use crate::page_io::count;
use crate::pieces::{Picked, Pieces};
use crate::row_group::RowGroup;
use crate::scan::ScanShared;
use crate::sparse_ids::{SparseIds, ids_of};

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
    ids: Option<SparseIds>,
    rows: usize,
    columns: Columns,
    /// What is decoded of picked rows, and the row of it that comes next.
    decoded: Option<(RecordBatch, usize)>,
    /// Of all rows, the one that comes next.
    at: usize,
    /// In flight, decoded (in row groups and in bytes), and in memory.
    _held: [Reservation; 4],
}

/// Which rows are left of a row group.
#[derive(Debug)]
pub(crate) enum Columns {
    None,
    /// All, or all but those that are not selected, in pieces whose ends batches do not cross.
    All(Pieces, Option<BooleanBuffer>),
    /// Some, which are picked.
    Picked(Picked),
}

impl GroupRows {
    /// Of the `number`th row group of the table.
    pub(crate) fn new(
        group: &RowGroup,
        number: usize,
        columns: Columns,
        held: [Reservation; 4],
    ) -> GroupRows {
        let (device, first_row, ids) = (group.extent.device, group.first_row, group.ids.clone());
        let (rows, at, decoded) = (group.rows as usize, 0, None);
        GroupRows { number, device, first_row, ids, rows, columns, decoded, at, _held: held }
    }

    /// The next rows, on a worker.
    pub(crate) async fn next(&mut self, shared: &ScanShared) -> Result<Option<ScanRows>> {
        let rows = match &mut self.columns {
            Columns::None => None,
            Columns::All(..) => self.next_of_all(shared).await?,
            Columns::Picked(_) => self.next_picked(shared).await?,
        };
        if let Some(ScanRows { batch, selected }) = &rows {
            let left = selected.as_ref().map_or(batch.num_rows(), mask::count);
            count(&shared.counters.rows_out, left as u64);
            shared.options.progress.add_rows(left as u64);
        }
        Ok(rows)
    }

    async fn next_of_all(&mut self, shared: &ScanShared) -> Result<Option<ScanRows>> {
        let options = &shared.options;
        while self.at < self.rows
            && let Columns::All(pieces, selection) = &mut self.columns
        {
            let first = self.at;
            let rows = options.batch_rows.min(self.rows - first);
            let (mut arrays, rows) = pieces.from(shared, first, rows).await?;
            self.at += rows;
            let selected = selection.as_ref().map(|selection| selection.slice(first, rows));
            if selected.as_ref().is_some_and(|selected| !selected.has_true()) {
                continue;
            }
            if options.with_row_id {
                let places = first..first + rows;
                arrays.push(Arc::new(ids_of(self.first_row, self.ids.as_ref(), places)));
            }
            let batch = self.batch(shared, arrays, rows)?;
            return Ok(Some(ScanRows {
                batch,
                selected: selected.filter(BooleanBuffer::has_false),
            }));
        }
        Ok(None)
    }

    async fn next_picked(&mut self, shared: &ScanShared) -> Result<Option<ScanRows>> {
        loop {
            if let Some((batch, at)) = &mut self.decoded {
                let rows = shared.options.batch_rows.min(batch.num_rows() - *at);
                if rows > 0 {
                    let batch = batch.slice(*at, rows);
                    *at += rows;
                    return Ok(Some(ScanRows { batch, selected: None }));
                }
                // It goes before its successor comes.
                self.decoded = None;
            }
            let Columns::Picked(picked) = &mut self.columns else { return Ok(None) };
            let Some((columns, rows)) = picked.next(shared).await? else { return Ok(None) };
            self.decoded = Some((self.batch(shared, columns, rows)?, 0));
        }
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
