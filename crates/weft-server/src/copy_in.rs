//! `COPY … FROM STDIN`: what a client sends becomes the rows of a relation, which an INSERT takes.
//!
//! The bytes come through a channel (`copy_channel.rs`) to the thread that reads the relation. The text and the binary format
//! are put as CSV there, which the reader of CSV files makes values of: it knows types, and tells lines where one does not
//! fit.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, AsArray, BinaryViewBuilder, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use pgwire::api::Type;
use weft::{BatchReader, BatchSource, CopyStream, Error, ErrorKind, StreamFormat};
use weft_files::csv::{CsvStream, StreamOptions, is_native};

use crate::copy_channel::{self, Incoming, Sender};
use crate::copy_out::BINARY_HEADER;
use crate::parameters;
use crate::types::{sql_name, wire_type_of};

/// Rows of a batch.
const BATCH_ROWS: usize = 8192;

/// What messages call what the client sends.
const NAME: &str = "STDIN";

/// The rows that a client sends, once.
pub(crate) struct ClientRows {
    options: CopyStream,
    schema: SchemaRef,
    incoming: Mutex<Option<Incoming>>,
}

impl ClientRows {
    /// Rows with these columns, and where their bytes go.
    ///
    /// # Errors
    /// [`ErrorKind::NotSupported`] for columns whose values cannot be sent so.
    pub(crate) fn new(
        options: CopyStream,
        schema: &SchemaRef,
    ) -> weft::Result<(Sender, ClientRows)> {
        for field in schema.fields() {
            if field.data_type().is_nested() {
                let message =
                    format!("COPY of values of column {}, which are nested", field.name());
                return Err(Error::new(ErrorKind::NotSupported, message));
            }
        }
        let (sender, incoming) = copy_channel::channel();
        let rows = ClientRows {
            options,
            schema: Arc::clone(schema),
            incoming: Mutex::new(Some(incoming)),
        };
        Ok((sender, rows))
    }

    /// The type in which a column comes: text to be cast where the reader of CSV does not know it.
    fn given(field: &Field) -> Field {
        let given = match field.data_type() {
            DataType::BinaryView => DataType::BinaryView,
            // The session's time zone counts.
            DataType::Timestamp(_, Some(_)) => DataType::Utf8View,
            known if is_native(known) => known.clone(),
            _ => DataType::Utf8View,
        };
        Field::new(field.name(), given, true)
    }
}

impl BatchSource for ClientRows {
    fn schema(&self) -> SchemaRef {
        let fields: Vec<Field> =
            self.schema.fields().iter().map(|field| ClientRows::given(field)).collect();
        Arc::new(Schema::new(fields))
    }

    fn open(&self, columns: &[usize]) -> weft::Result<BatchReader> {
        let incoming = self.incoming.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(incoming) = incoming else {
            let message = "what the client sent was read already";
            return Err(Error::new(ErrorKind::Internal, message));
        };
        let given = self.schema();
        let options = &self.options;
        let (source, quote, escape, null, delimiter): (Box<dyn Read + Send>, _, _, _, _) =
            match options.format {
                StreamFormat::Csv => {
                    let end = EndOfData::new(incoming);
                    let null = options.null.clone();
                    (Box::new(end), options.quote, options.escape, null, options.delimiter)
                }
                StreamFormat::Text => {
                    (Box::new(TextLines::new(incoming, options)), b'"', b'"', String::new(), b',')
                }
                StreamFormat::Binary => {
                    let wires = self.schema.fields().iter().map(|field| wire_type_of(field));
                    let rows = BinaryRows::new(incoming, wires.collect());
                    (Box::new(rows), b'"', b'"', String::new(), b',')
                }
            };
        let text = |field: &Arc<Field>| match field.data_type() {
            DataType::BinaryView => Field::new(field.name(), DataType::Utf8View, true),
            _ => field.as_ref().clone(),
        };
        let fields: Vec<Field> = given.fields().iter().map(text).collect();
        let stream = CsvStream::new(
            source,
            &StreamOptions {
                name: NAME.to_owned(),
                schema: Arc::new(Schema::new(fields)),
                delimiter,
                quote,
                escape,
                null,
                header: options.header && options.format == StreamFormat::Csv,
                batch_rows: BATCH_ROWS,
            },
        );
        let stream = stream.map_err(|error| Error::new(ErrorKind::Data, error.to_string()))?;
        let columns = columns.to_vec();
        Ok(Box::new(stream.map(move |batch| {
            let batch = batch.map_err(|error| ArrowError::CDataInterface(error.to_string()))?;
            project(&batch, &given, &columns)
        })))
    }
}

/// The columns that are wanted, bytes made of their texts.
fn project(
    batch: &RecordBatch,
    given: &SchemaRef,
    columns: &[usize],
) -> Result<RecordBatch, ArrowError> {
    let arrays = columns.iter().map(|number| match given.field(*number).data_type() {
        DataType::BinaryView => bytes_of(batch.column(*number), given.field(*number).name()),
        _ => Ok(Arc::clone(batch.column(*number))),
    });
    let arrays = arrays.collect::<Result<Vec<_>, _>>()?;
    let schema = Arc::new(given.project(columns)?);
    let options =
        arrow::record_batch::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema, arrays, &options)
}

fn bytes_of(texts: &ArrayRef, column: &str) -> Result<ArrayRef, ArrowError> {
    let mut bytes = BinaryViewBuilder::new();
    for text in texts.as_string_view() {
        match text.map(parameters::bytea) {
            None => bytes.append_null(),
            Some(Some(value)) => bytes.append_value(value),
            Some(None) => {
                let message = format!("a value of column {column} is no bytea");
                return Err(ArrowError::CDataInterface(message));
            }
        }
    }
    Ok(Arc::new(bytes.finish()))
}

/// The columns of the relation as the INSERT takes them: texts that the reader does not know are cast.
pub(crate) fn columns(schema: &SchemaRef) -> String {
    let column = |field: &Arc<Field>| {
        let name = weft::quoted(field.name());
        let is_text = *ClientRows::given(field).data_type() == DataType::Utf8View;
        let is_other = *field.data_type() != DataType::Utf8View;
        match (is_text && is_other).then(|| sql_name(&wire_type_of(field))).flatten() {
            Some(kind) => format!("CAST({name} AS {kind})"),
            None => name,
        }
    };
    schema.fields().iter().map(column).collect::<Vec<_>>().join(", ")
}

/// Bytes of a source that are put in another form, a piece at a time.
struct Pieces<S> {
    source: S,
    /// What was read and not put in the other form.
    raw: Vec<u8>,
    /// What was put in the other form, and is read up to `taken`.
    made: Vec<u8>,
    taken: usize,
    is_over: bool,
}

/// Bytes that are read of a source at a time.
const READ_BYTES: usize = 64 << 10;

impl<S: Read> Pieces<S> {
    fn new(source: S) -> Pieces<S> {
        Pieces { source, raw: Vec::new(), made: Vec::new(), taken: 0, is_over: false }
    }

    /// Reads more of the source; false at its end.
    fn more(&mut self) -> io::Result<bool> {
        let length = self.raw.len();
        self.raw.resize(length + READ_BYTES, 0);
        let read = self.source.read(&mut self.raw[length..]);
        self.raw.truncate(length + *read.as_ref().unwrap_or(&0));
        Ok(read? > 0)
    }

    /// Gives what was made, after `make` has made some of what was read; it tells how much of that it took.
    fn give(
        &mut self,
        into: &mut [u8],
        mut make: impl FnMut(&[u8], &mut Vec<u8>, bool) -> io::Result<(usize, bool)>,
    ) -> io::Result<usize> {
        while self.taken == self.made.len() && !self.is_over {
            let is_last = !self.more()?;
            self.made.clear();
            self.taken = 0;
            let (used, ended) = make(&self.raw, &mut self.made, is_last)?;
            self.raw.drain(..used);
            self.is_over = is_last || ended;
        }
        let count = into.len().min(self.made.len() - self.taken);
        into[..count].copy_from_slice(&self.made[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

/// CSV up to a line of `\.`, with which old clients end it.
struct EndOfData(Pieces<Incoming>);

impl EndOfData {
    fn new(incoming: Incoming) -> EndOfData {
        EndOfData(Pieces::new(incoming))
    }
}

impl Read for EndOfData {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.give(into, |raw, made, is_last| {
            if is_last {
                let line = [&b"\n\\.\n"[..], b"\n\\.\r\n", b"\n\\."];
                let whole = line.iter().find_map(|end| raw.strip_suffix(*end));
                let is_alone = matches!(raw, b"\\.\n" | b"\\.\r\n" | b"\\.");
                match (whole, is_alone) {
                    (Some(whole), _) => {
                        made.extend_from_slice(whole);
                        made.push(b'\n');
                    }
                    (None, true) => {}
                    (None, false) => made.extend_from_slice(raw),
                }
                return Ok((raw.len(), true));
            }
            // The last bytes may be the beginning of that line.
            let used = raw.len().saturating_sub(5);
            made.extend_from_slice(&raw[..used]);
            Ok((used, false))
        })
    }
}

/// Lines of the text format as CSV: values in quotes, NULL without.
struct TextLines {
    pieces: Pieces<Incoming>,
    delimiter: u8,
    null: Vec<u8>,
    skips_line: bool,
}

impl TextLines {
    fn new(incoming: Incoming, options: &CopyStream) -> TextLines {
        TextLines {
            pieces: Pieces::new(incoming),
            delimiter: options.delimiter,
            null: options.null.clone().into_bytes(),
            skips_line: options.header,
        }
    }
}

impl Read for TextLines {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let TextLines { pieces, delimiter, null, skips_line } = self;
        pieces.give(into, |raw, made, is_last| {
            let mut used = 0;
            while used < raw.len() {
                let (line, next) = match end_of_line(&raw[used..]) {
                    Some(length) => (&raw[used..used + length], used + length + 1),
                    None if is_last => (&raw[used..], raw.len()),
                    None => break,
                };
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                used = next;
                if line == b"\\." {
                    return Ok((raw.len(), true));
                }
                if !std::mem::take(skips_line) {
                    write_line(line, *delimiter, null, made);
                }
            }
            Ok((used, false))
        })
    }
}

/// The length of a line; an end of a line behind a backslash belongs to a value.
fn end_of_line(raw: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < raw.len() {
        match raw[at] {
            b'\\' => at += 2,
            b'\n' => return Some(at),
            _ => at += 1,
        }
    }
    None
}

fn write_line(line: &[u8], delimiter: u8, null: &[u8], out: &mut Vec<u8>) {
    let mut rest = Some(line);
    let mut is_first = true;
    while let Some(field) = rest {
        let mut end = 0;
        while end < field.len() && field[end] != delimiter {
            end += if field[end] == b'\\' { 2 } else { 1 };
        }
        let end = end.min(field.len());
        rest = field.get(end + 1..).filter(|_| end < field.len());
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        if field[..end] == *null {
            continue;
        }
        out.push(b'"');
        write_unescaped(&field[..end], out);
        out.push(b'"');
    }
    out.push(b'\n');
}

/// A value without its backslashes, with its quotes doubled.
fn write_unescaped(mut field: &[u8], out: &mut Vec<u8>) {
    let mut push = |byte: u8| {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    };
    while let Some((first, rest)) = field.split_first() {
        field = rest;
        let escaped = match (first, rest.split_first()) {
            (b'\\', Some((escaped, rest))) => {
                field = rest;
                *escaped
            }
            _ => {
                push(*first);
                continue;
            }
        };
        let digits = |radix: u32, most: usize, from: &[u8]| {
            from.iter().take(most).take_while(|byte| char::from(**byte).is_digit(radix)).count()
        };
        let number = |text: &[u8], radix| {
            std::str::from_utf8(text).ok().and_then(|text| u32::from_str_radix(text, radix).ok())
        };
        match escaped {
            b'b' => push(8),
            b'f' => push(12),
            b'n' => push(b'\n'),
            b'r' => push(b'\r'),
            b't' => push(b'\t'),
            b'v' => push(11),
            b'x' if digits(16, 2, field) > 0 => {
                let (text, rest) = field.split_at(digits(16, 2, field));
                field = rest;
                push(number(text, 16).unwrap_or_default() as u8);
            }
            first @ b'0'..=b'7' => {
                let (text, rest) = field.split_at(digits(8, 2, field));
                field = rest;
                let value = number(&[&[first], text].concat(), 8).unwrap_or_default();
                push((value & 0xff) as u8);
            }
            other => push(other),
        }
    }
}

/// Rows of the binary format as CSV.
struct BinaryRows {
    pieces: Pieces<Incoming>,
    wires: Vec<Type>,
    has_header: bool,
}

impl BinaryRows {
    fn new(incoming: Incoming, wires: Vec<Type>) -> BinaryRows {
        BinaryRows { pieces: Pieces::new(incoming), wires, has_header: false }
    }
}

impl Read for BinaryRows {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let BinaryRows { pieces, wires, has_header } = self;
        pieces.give(into, |raw, made, is_last| {
            let mut used = 0;
            if !*has_header {
                match header_length(raw)? {
                    Some(length) => used = length,
                    None if is_last => return Err(bad("it ends within its header")),
                    None => return Ok((0, false)),
                }
                *has_header = true;
            }
            loop {
                match row(&raw[used..], wires, made)? {
                    Row::Whole(length) => used += length,
                    Row::End => return Ok((raw.len(), true)),
                    Row::Cut if is_last && used == raw.len() => return Ok((used, true)),
                    Row::Cut if is_last => return Err(bad("it ends within a row")),
                    Row::Cut => return Ok((used, false)),
                }
            }
        })
    }
}

fn bad(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the binary data is damaged: {problem}"))
}

/// Bytes of the header; `None` if they are not all there.
fn header_length(raw: &[u8]) -> io::Result<Option<usize>> {
    let (signature, fixed) = (&BINARY_HEADER[..11], BINARY_HEADER.len());
    if raw.len() < fixed {
        return Ok(None);
    }
    if raw[..11] != *signature {
        return Err(bad("it does not begin as it should"));
    }
    let extension: [u8; 4] = raw[15..fixed].try_into().unwrap_or_default();
    let extension = usize::try_from(i32::from_be_bytes(extension))
        .map_err(|_| bad("its header has a negative length"))?;
    Ok((raw.len() >= fixed + extension).then_some(fixed + extension))
}

enum Row {
    /// A row of so many bytes.
    Whole(usize),
    /// The mark after the last row.
    End,
    /// A part of a row.
    Cut,
}

fn row(raw: &[u8], wires: &[Type], out: &mut Vec<u8>) -> io::Result<Row> {
    let Some(count) = raw.get(..2) else { return Ok(Row::Cut) };
    let count = i16::from_be_bytes([count[0], count[1]]);
    if count == -1 {
        return Ok(Row::End);
    }
    if usize::try_from(count) != Ok(wires.len()) {
        return Err(bad(&format!("a row has {count} values instead of {}", wires.len())));
    }
    let start = out.len();
    let mut at = 2;
    for (number, wire) in wires.iter().enumerate() {
        let Some(length) = raw.get(at..at + 4) else {
            out.truncate(start);
            return Ok(Row::Cut);
        };
        at += 4;
        let length = i32::from_be_bytes(length.try_into().unwrap_or_default());
        if number > 0 {
            out.push(b',');
        }
        let Ok(length) = usize::try_from(length) else { continue };
        let Some(value) = raw.get(at..at + length) else {
            out.truncate(start);
            return Ok(Row::Cut);
        };
        at += length;
        let text = parameters::binary_text(wire, value)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        out.push(b'"');
        write_doubled(&text, out);
        out.push(b'"');
    }
    out.push(b'\n');
    Ok(Row::Whole(at))
}

fn write_doubled(text: &str, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(line: &[u8]) -> String {
        let mut out = Vec::new();
        write_line(line, b'\t', b"\\N", &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_of_text_become_csv() {
        assert_eq!(csv(b"1\t\\N\t"), "\"1\",,\"\"\n");
        assert_eq!(csv(b"a\\tb\\\\\"c\\x41\\101"), "\"a\tb\\\"\"cAA\"\n");
        assert_eq!(csv(b"a\\\tb"), "\"a\tb\"\n");
        assert_eq!(end_of_line(b"a\\\nb\nc"), Some(4));
        assert_eq!(end_of_line(b"a"), None);
    }

    #[test]
    fn rows_may_come_in_pieces() {
        let wires = [Type::INT4, Type::TEXT];
        let bytes = [0, 2, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 2, b'"', b'b'];
        let mut out = Vec::new();
        for length in 0..bytes.len() {
            assert!(matches!(row(&bytes[..length], &wires, &mut out).unwrap(), Row::Cut));
            assert!(out.is_empty());
        }
        assert!(matches!(row(&bytes, &wires, &mut out).unwrap(), Row::Whole(16)));
        assert_eq!(out, b"\"7\",\"\"\"b\"\n");
        assert!(row(&[0, 3], &wires, &mut out).is_err());
        assert!(matches!(row(&[0xff, 0xff], &wires, &mut out).unwrap(), Row::End));
    }
}
