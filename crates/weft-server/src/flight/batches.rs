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
use tonic::{Code, Status};

use super::error::{OrStatus, with_sqlstate};

/// What DoGet answers with.
pub(super) type DataStream = Pin<Box<dyn Stream<Item = Result<FlightData, Status>> + Send>>;

/// The columns of a table as clients are told of them.
pub(super) fn sent_schema(schema: &Schema) -> SchemaRef {
    let fields: Vec<FieldRef> = schema.fields().iter().map(sent_field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The columns of a result as clients are told of them and get them. All may be NULL: whether one is, a plan knows better than the
/// description of its statement, and the two must be the same.
pub(super) fn result_schema(schema: &Schema) -> SchemaRef {
    let nullable = |field: &FieldRef| Field::clone(&sent_field(field)).with_nullable(true);
    let fields: Vec<Field> = schema.fields().iter().map(nullable).collect();
    Arc::new(Schema::new(fields))
}

fn sent_field(field: &FieldRef) -> FieldRef {
    let sent = sent_type(field.data_type());
    match sent == *field.data_type() {
        true => Arc::clone(field),
        false => Arc::new(Field::clone(field).with_data_type(sent)),
    }
}

/// A field of a nested type, which may be NULL as columns of results may.
fn sent_item(field: &FieldRef) -> FieldRef {
    Arc::new(Field::clone(field).with_data_type(sent_type(field.data_type())).with_nullable(true))
}

/// The type of values that clients get in place of Weft's own: no views and no dictionaries, which many do not know.
fn sent_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Dictionary(_, values) => sent_type(values),
        DataType::List(item) | DataType::ListView(item) => DataType::List(sent_item(item)),
        DataType::LargeList(item) | DataType::LargeListView(item) => {
            DataType::LargeList(sent_item(item))
        }
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(sent_item(item), *length),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(sent_item).collect()),
        DataType::Map(entries, is_sorted) => DataType::Map(sent_entries(entries), *is_sorted),
        other => other.clone(),
    }
}

/// The entries of a map, and their keys, are never NULL.
fn sent_entries(entries: &FieldRef) -> FieldRef {
    let DataType::Struct(fields) = entries.data_type() else { return Arc::clone(entries) };
    let fields = fields.iter().enumerate().map(|(place, field)| match place {
        0 => sent_field(field),
        _ => sent_item(field),
    });
    Arc::new(Field::clone(entries).with_data_type(DataType::Struct(fields.collect())))
}

/// Checks that a result has the columns that its client was told of.
///
/// # Errors
/// `FailedPrecondition` if a table has changed meanwhile.
pub(super) fn check_columns(found: &Schema, told: &Schema) -> Result<(), Status> {
    let types = found.fields().iter().map(|field| sent_type(field.data_type()));
    match types.eq(told.fields().iter().map(|field| field.data_type().clone())) {
        true => Ok(()),
        false => Err(with_sqlstate(
            Code::FailedPrecondition,
            "0A000",
            "the columns of the statement have changed since it was described: prepare it again",
        )),
    }
}

/// A batch in the columns that a client was told of.
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

/// The messages of a statement without rows: an empty schema.
pub(super) fn no_rows() -> DataStream {
    messages(Arc::new(Schema::empty()), futures::stream::empty())
}

/// A schema as bytes.
pub(super) fn schema_bytes(schema: &Schema) -> Result<Bytes, Status> {
    let options = arrow::ipc::writer::IpcWriteOptions::default();
    let message = IpcMessage::try_from(SchemaAsIpc::new(schema, &options)).or_status()?;
    Ok(message.0)
}
