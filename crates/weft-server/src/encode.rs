//! Record batches as the rows of a result, in the format that the client asked for.

use std::sync::Arc;

use arrow::array::Array;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use bytes::BytesMut;
use futures::{Stream, StreamExt, stream};
use pgwire::api::Type;
use pgwire::api::portal::Format;
use pgwire::api::results::{FieldFormat, FieldInfo};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::data::DataRow;
use weft::QueryResult;

use crate::error::{error, from_weft};
use crate::types::{modifier, width_bytes, wire_type_of};
use crate::{binary, text};

/// Rows that are encoded at a time: others get their turn between two of them.
const ROWS_AT_ONCE: usize = 256;

/// The columns of a result as the client is told of them.
pub(crate) fn fields(schema: &SchemaRef, format: &Format) -> Vec<FieldInfo> {
    let field = |(number, field): (usize, &Arc<arrow::datatypes::Field>)| {
        let wire = wire_type_of(field);
        let width = width_bytes(&wire);
        let format = format_of(format, number);
        FieldInfo::new(field.name().clone(), None, None, wire, format)
            .with_type_size(width)
            .with_type_modifier(modifier(field.data_type()))
    };
    schema.fields().iter().enumerate().map(field).collect()
}

/// The format of a column; text where the client named too few.
fn format_of(format: &Format, number: usize) -> FieldFormat {
    match format {
        Format::Individual(codes) => {
            codes.get(number).copied().map_or(FieldFormat::Text, FieldFormat::from)
        }
        all => all.format_for(number),
    }
}

/// The rows of a result as messages; `script` is the client's text, for the position of an error.
pub(crate) fn rows(
    result: QueryResult,
    fields: Arc<Vec<FieldInfo>>,
    script: Arc<str>,
) -> impl Stream<Item = PgWireResult<DataRow>> + Send {
    result.flat_map(move |batch| {
        let fields = Arc::clone(&fields);
        let batch = batch.map_err(|error| from_weft(&error, &script, None));
        let (batch, failed) = match batch {
            Ok(batch) => (Some(batch), None),
            Err(error) => (None, Some(Err(error))),
        };
        let pieces = batch.into_iter().flat_map(pieces_of);
        let rows = pieces.flat_map(move |piece| rows_of(&piece, &fields));
        stream::iter(failed).chain(stream::iter(rows))
    })
}

fn pieces_of(batch: RecordBatch) -> impl Iterator<Item = RecordBatch> {
    let count = batch.num_rows();
    (0..count)
        .step_by(ROWS_AT_ONCE)
        .map(move |start| batch.slice(start, ROWS_AT_ONCE.min(count - start)))
}

/// The rows of a batch.
fn rows_of(batch: &RecordBatch, fields: &[FieldInfo]) -> Vec<PgWireResult<DataRow>> {
    let mut buffer = Vec::new();
    let mut value = String::new();
    (0..batch.num_rows())
        .map(|row| {
            buffer.clear();
            for (column, field) in batch.columns().iter().zip(fields) {
                write_field(column.as_ref(), row, field, &mut buffer, &mut value)?;
            }
            let count = i16::try_from(fields.len()).map_err(|_| too_many_columns(fields.len()))?;
            Ok(DataRow::new(BytesMut::from(buffer.as_slice()), count))
        })
        .collect()
}

/// Writes the length of a value and the value; `text` is room for its text.
fn write_field(
    column: &dyn Array,
    row: usize,
    field: &FieldInfo,
    out: &mut Vec<u8>,
    text: &mut String,
) -> PgWireResult<()> {
    if field.format() == FieldFormat::Binary {
        return match binary::write_field(column, row, field.datatype(), out) {
            true => Ok(()),
            false => Err(error(
                "22003",
                format!("a value of column {} is out of the range of its type", field.name()),
            )),
        };
    }
    if text::is_null(column, row) {
        out.extend_from_slice(&(-1_i32).to_be_bytes());
        return Ok(());
    }
    text.clear();
    text::write_value(column, row, text);
    if matches!(*field.datatype(), Type::INT2_VECTOR | Type::OID_VECTOR) {
        // Numbers with spaces between, where lists have braces and commas.
        *text = text.trim_matches(['{', '}']).replace(',', " ");
    }
    let length = i32::try_from(text.len()).map_err(|_| {
        error("54000", format!("a value of column {} has more than 2 GiB", field.name()))
    })?;
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

/// The wire protocol counts columns with 16 bits.
pub(crate) fn too_many_columns(count: usize) -> PgWireError {
    error("54011", format!("the result has {count} columns, and the protocol permits 32767"))
}
