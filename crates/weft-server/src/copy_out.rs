//! `COPY … TO STDOUT`: rows in the text, csv or binary format, a message for each.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use pgwire::api::Type;
use pgwire::error::PgWireResult;
use pgwire::messages::copy::CopyData;
use weft::{CopyStream, QueryResult, StreamFormat};

use crate::error::{error, from_weft};
use crate::types::wire_type_of;
use crate::{binary, text};

/// What binary data begins with: flags and the length of what follows the header, which are 0, are part of it.
pub(crate) const BINARY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// What binary data ends with.
pub(crate) const BINARY_TRAILER: [u8; 2] = [0xff, 0xff];

/// What is sent before the rows.
pub(crate) fn header(options: &CopyStream, schema: &SchemaRef) -> Option<CopyData> {
    match options.format {
        StreamFormat::Binary => Some(CopyData::new(Bytes::from_static(BINARY_HEADER))),
        _ if options.header => {
            let mut line = Vec::new();
            for (number, field) in schema.fields().iter().enumerate() {
                if number > 0 {
                    line.push(options.delimiter);
                }
                write_text(options, field.name(), &mut line);
            }
            line.push(b'\n');
            Some(CopyData::new(line.into()))
        }
        _ => None,
    }
}

/// A message with another one in front.
pub(crate) fn joined(first: Option<CopyData>, second: CopyData) -> CopyData {
    match first {
        Some(first) => CopyData::new([first.data, second.data].concat().into()),
        None => second,
    }
}

/// What is sent after the rows.
pub(crate) fn trailer(options: &CopyStream) -> Option<CopyData> {
    (options.format == StreamFormat::Binary)
        .then(|| CopyData::new(Bytes::from_static(&BINARY_TRAILER)))
}

/// The rows of a result.
pub(crate) fn rows(
    result: QueryResult,
    options: Arc<CopyStream>,
) -> impl Stream<Item = PgWireResult<CopyData>> + Send {
    let wires: Arc<[Type]> =
        result.schema().fields().iter().map(|field| wire_type_of(field)).collect();
    result.flat_map(move |batch| {
        let (options, wires) = (Arc::clone(&options), Arc::clone(&wires));
        let (batch, failed) = match batch {
            Ok(batch) => (Some(batch), None),
            Err(error) => (None, Some(Err(from_weft(&error, "", None)))),
        };
        let rows = batch.into_iter().flat_map(move |batch| {
            let (options, wires) = (Arc::clone(&options), Arc::clone(&wires));
            (0..batch.num_rows())
                .map(move |row| encode(batch.columns(), row, &options, &wires))
                .collect::<Vec<_>>()
        });
        stream::iter(failed).chain(stream::iter(rows))
    })
}

fn encode(
    columns: &[ArrayRef],
    row: usize,
    options: &CopyStream,
    wires: &[Type],
) -> PgWireResult<CopyData> {
    let mut out = Vec::new();
    if options.format == StreamFormat::Binary {
        let count = i16::try_from(columns.len()).unwrap_or(i16::MAX);
        out.extend_from_slice(&count.to_be_bytes());
        for (column, wire) in columns.iter().zip(wires) {
            if !binary::write_field(column.as_ref(), row, wire, &mut out) {
                return Err(error("22003", "a value is out of the range of its type"));
            }
        }
        return Ok(CopyData::new(out.into()));
    }
    let mut value = String::new();
    for (number, column) in columns.iter().enumerate() {
        if number > 0 {
            out.push(options.delimiter);
        }
        if text::is_null(column.as_ref(), row) {
            out.extend_from_slice(options.null.as_bytes());
            continue;
        }
        value.clear();
        text::write_value(column.as_ref(), row, &mut value);
        write_text(options, &value, &mut out);
    }
    out.push(b'\n');
    Ok(CopyData::new(out.into()))
}

/// Writes a value that is not NULL.
fn write_text(options: &CopyStream, value: &str, out: &mut Vec<u8>) {
    if options.format == StreamFormat::Csv {
        let is_special = |byte: u8| {
            byte == options.delimiter || byte == options.quote || matches!(byte, b'\n' | b'\r')
        };
        // A line of `\.` would be taken for the end of the data.
        let is_quoted = options.force_quote
            || value == options.null
            || value == "\\."
            || value.bytes().any(is_special);
        if !is_quoted {
            out.extend_from_slice(value.as_bytes());
            return;
        }
        out.push(options.quote);
        for byte in value.bytes() {
            if byte == options.quote || byte == options.escape {
                out.push(options.escape);
            }
            out.push(byte);
        }
        out.push(options.quote);
        return;
    }
    for byte in value.bytes() {
        let escaped = match byte {
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            8 => b'b',
            11 => b'v',
            12 => b'f',
            b'\\' => b'\\',
            other if other == options.delimiter => other,
            other => {
                out.push(other);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', escaped]);
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, StringArray};

    use super::*;

    fn lines(statement: &str) -> String {
        let options = weft::copy_stream(statement).unwrap().unwrap();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(vec![Some(1), None])),
            Arc::new(StringArray::from(vec!["a,\"b\"\t\\", ""])),
        ];
        let wires = [Type::INT4, Type::TEXT];
        let rows = (0..2).map(|row| encode(&columns, row, &options, &wires).unwrap());
        rows.map(|row| String::from_utf8(row.data.to_vec()).unwrap()).collect()
    }

    // As PostgreSQL 15 writes them.
    #[test]
    fn rows_are_written_as_postgresql_writes_them() {
        assert_eq!(lines("COPY t TO STDOUT"), "1\ta,\"b\"\\t\\\\\n\\N\t\n");
        assert_eq!(lines("COPY t TO STDOUT CSV"), "1,\"a,\"\"b\"\"\t\\\"\n,\"\"\n");
        let options = "COPY t TO STDOUT (FORMAT csv, DELIMITER ';', NULL 'x', ESCAPE '\\')";
        assert_eq!(lines(options), "1;\"a,\\\"b\\\"\t\\\\\"\nx;\n");
    }
}
