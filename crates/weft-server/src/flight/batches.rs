//! Record batches on their way out: in types that all clients of Arrow know.

use std::pin::Pin;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::{FlightData, IpcMessage, SchemaAsIpc};
use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use tonic::Status;

use super::error::OrStatus;

/// What DoGet answers with.
pub(super) type DataStream = Pin<Box<dyn Stream<Item = Result<FlightData, Status>> + Send>>;

/// The columns as they are sent.
pub(super) fn sent_schema(schema: &Schema) -> SchemaRef {
    let fields: Vec<FieldRef> = schema.fields().iter().map(sent_field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn sent_field(field: &FieldRef) -> FieldRef {
    let sent = sent_type(field.data_type());
    match sent == *field.data_type() {
        true => Arc::clone(field),
        false => Arc::new(Field::clone(field).with_data_type(sent)),
    }
}

/// Views and dictionaries are what Weft reckons with; clients get the values themselves.
fn sent_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Dictionary(_, values) => sent_type(values),
        DataType::List(item) | DataType::ListView(item) => DataType::List(sent_field(item)),
        DataType::LargeList(item) | DataType::LargeListView(item) => {
            DataType::LargeList(sent_field(item))
        }
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(sent_field(item), *length),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(sent_field).collect()),
        DataType::Map(entries, is_sorted) => DataType::Map(sent_field(entries), *is_sorted),
        other => other.clone(),
    }
}

/// A batch with the columns of a schema that [`sent_schema`] has made.
pub(super) fn sent(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Status> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| match column.data_type() == field.data_type() {
        true => Ok(Arc::clone(column)),
        false => cast(column, field.data_type()),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>().or_status()?;
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).or_status()
}

/// The messages of a result, each made when the one before it has gone.
pub(super) fn messages(
    schema: SchemaRef,
    batches: impl Stream<Item = Result<RecordBatch, Status>> + Send + 'static,
) -> DataStream {
    let batches = batches.map_err(FlightError::from);
    let encoded = FlightDataEncoderBuilder::new().with_schema(schema).build(batches);
    Box::pin(encoded.map_err(Status::from))
}

/// The messages of one batch.
pub(super) fn message_of(batch: RecordBatch) -> DataStream {
    messages(batch.schema(), futures::stream::iter([Ok(batch)]))
}

/// A schema as bytes.
pub(super) fn schema_bytes(schema: &Schema) -> Result<Bytes, Status> {
    let options = arrow::ipc::writer::IpcWriteOptions::default();
    let message = IpcMessage::try_from(SchemaAsIpc::new(schema, &options)).or_status()?;
    Ok(message.0)
}
