//! Arrays of arrays, put together from the innermost to the outermost.

use std::sync::Arc;

use adbc_core::error::Result;
use arrow::array::{Array, ArrayRef, ListArray, RecordBatch, StringArray, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, SchemaRef};
use arrow::record_batch::{RecordBatchIterator, RecordBatchReader};

/// Lists of consecutive items, with the number of items of each; `None` is NULL.
pub(crate) fn lists(items: ArrayRef, lengths: &[Option<usize>]) -> Result<ArrayRef> {
    let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths(lengths.iter().map(|length| length.unwrap_or(0)));
    let nulls = NullBuffer::from_iter(lengths.iter().map(Option::is_some));
    let nulls = (nulls.null_count() > 0).then_some(nulls);
    Ok(Arc::new(ListArray::try_new(field, offsets, items, nulls)?))
}

/// Structs of a type of ADBC, whose fields these columns are.
pub(crate) fn structs(data_type: &DataType, columns: Vec<ArrayRef>) -> Result<ArrayRef> {
    let DataType::Struct(fields) = data_type else {
        return crate::error::not_implemented("a struct that is none");
    };
    Ok(Arc::new(StructArray::try_new(fields.clone(), columns, None)?))
}

/// A column of texts.
pub(crate) fn texts<'a>(values: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(values.collect::<StringArray>())
}

/// A reader of one batch.
pub(crate) fn reader(
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
) -> Result<Box<dyn RecordBatchReader + Send + 'static>> {
    let batch = RecordBatch::try_new(SchemaRef::clone(schema), columns)?;
    let batches = (batch.num_rows() > 0).then_some(Ok(batch));
    Ok(Box::new(RecordBatchIterator::new(batches, SchemaRef::clone(schema))))
}
