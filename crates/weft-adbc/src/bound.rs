//! What is bound to a statement: batches whose rows are parameters, or whose rows a table takes.

use adbc_core::error::Result;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatchReader;
use weft::{BatchReader, BatchesOnce, BoundRows, Relation, Value};

use crate::error::OrAdbc;

/// Bound batches, with the place of the next row.
pub(crate) struct Bound {
    schema: SchemaRef,
    batches: Box<dyn Iterator<Item = std::result::Result<RecordBatch, ArrowError>> + Send>,
    rows: Option<BoundRows>,
    next: usize,
}

/// The values of a row, and what SQL calls their types.
pub(crate) type Row = (Vec<Value>, Vec<Option<String>>);

impl Bound {
    pub(crate) fn of_batch(batch: RecordBatch) -> Bound {
        let schema = batch.schema();
        Bound { schema, batches: Box::new(std::iter::once(Ok(batch))), rows: None, next: 0 }
    }

    pub(crate) fn of_reader(reader: Box<dyn RecordBatchReader + Send>) -> Bound {
        Bound { schema: reader.schema(), batches: Box::new(reader), rows: None, next: 0 }
    }

    /// The next row, as values of parameters.
    pub(crate) fn next_row(&mut self) -> Result<Option<Row>> {
        loop {
            if let Some(rows) = self.rows.as_ref().filter(|rows| self.next < rows.rows()) {
                self.next += 1;
                return Ok(Some((rows.values(self.next - 1), rows.types().to_vec())));
            }
            let Some(batch) = self.batches.next() else { return Ok(None) };
            (self.rows, self.next) = (Some(BoundRows::new(&batch?).or_adbc()?), 0);
        }
    }

    /// All batches as a relation, which is read once.
    pub(crate) fn into_relation(self, is_numbered: bool) -> Result<Relation> {
        let reader: BatchReader = self.batches;
        let source = BatchesOnce::new(self.schema, reader);
        let source = if is_numbered { source.numbered() } else { source };
        Relation::of_source(std::sync::Arc::new(source)).or_adbc()
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }
}

impl std::fmt::Debug for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bound").field("schema", &self.schema).finish_non_exhaustive()
    }
}
