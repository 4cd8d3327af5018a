//! Where a CSV file is wrong: file, line and column.
//!
//! Files are read in parallel pieces, whose errors know no lines. A failed load reads the file once more
//! from its start, until the first value that does not fit.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray, StringViewArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::parsers::CompressionTypeVariant;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use weft_remote::Place;
use weft_store::Table;

use crate::copy_from::Mapping;
use crate::error::{ErrorKind, Result, SqlError};
use crate::files::{FileKind, FileSet, ReadOptions, cannot_read};
use crate::types::type_name;

/// Lines that are checked at a time.
const LINES: usize = 4_096;

/// Longest value that a message repeats, in characters.
const SHOWN_MAX: usize = 60;

/// Says where the files do not fit the table; the `error` itself if no such place is found.
pub(crate) fn explain(
    error: SqlError,
    files: &FileSet,
    read: &ReadOptions,
    table: &Table,
    mapping: &Mapping,
) -> SqlError {
    if read.csv.skip.is_some() || read.csv.comment.is_some() || read.csv.encoding.is_some() {
        return error;
    }
    for (place, order) in files.places.iter().zip(&mapping.orders) {
        match explain_file(place, order, files, read, table, mapping) {
            Ok(None) => {}
            Ok(Some(found)) | Err(found) => return found,
        }
    }
    error
}

fn explain_file(
    place: &Place,
    order: &[usize],
    files: &FileSet,
    read: &ReadOptions,
    table: &Table,
    mapping: &Mapping,
) -> Result<Option<SqlError>> {
    let path = place.path();
    let mut reader = open(place, files, read, read.header.unwrap_or(false))?;
    let mut lines = Lines::new(order.len());
    let mut record = csv::ByteRecord::new();
    loop {
        let more = reader.read_byte_record(&mut record).map_err(|error| bad_csv(path, &error))?;
        if more {
            let line = record.position().map_or(0, csv::Position::line);
            if let Err(error) = lines.push(path, line, &record) {
                // What comes before it may be wrong, too.
                return Ok(lines.check(path, order, read, table, mapping)?.or(Some(error)));
            }
        }
        if (!more || lines.numbers.len() == LINES)
            && let Some(error) = lines.check(path, order, read, table, mapping)?
        {
            return Ok(Some(error));
        }
        if !more {
            return Ok(None);
        }
    }
}

/// Some lines, by columns.
struct Lines {
    numbers: Vec<u64>,
    columns: Vec<Vec<String>>,
}

impl Lines {
    fn new(columns: usize) -> Lines {
        Lines { numbers: Vec::new(), columns: vec![Vec::new(); columns] }
    }

    fn push(&mut self, path: &Path, line: u64, record: &csv::ByteRecord) -> Result<()> {
        if record.len() != self.columns.len() {
            return Err(SqlError::new(
                ErrorKind::Data,
                format!(
                    "'{}', line {line} has {} values instead of {}",
                    path.display(),
                    record.len(),
                    self.columns.len()
                ),
            ));
        }
        let values: Vec<String> = record
            .iter()
            .enumerate()
            .map(|(column, value)| {
                std::str::from_utf8(value).map(str::to_owned).map_err(|_| {
                    SqlError::new(
                        ErrorKind::Data,
                        format!(
                            "'{}', line {line}, value {} is not UTF-8",
                            path.display(),
                            column + 1
                        ),
                    )
                })
            })
            .collect::<Result<_>>()?;
        self.numbers.push(line);
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.push(value);
        }
        Ok(())
    }

    /// The first value that does not fit; forgets the lines if there is none.
    fn check(
        &mut self,
        path: &Path,
        order: &[usize],
        read: &ReadOptions,
        table: &Table,
        mapping: &Mapping,
    ) -> Result<Option<SqlError>> {
        let schema = table.arrow_schema();
        let null = read.null.as_deref().unwrap_or("");
        let mut first: Option<(usize, SqlError)> = None;
        for (source, target) in order.iter().enumerate() {
            let field = schema.field(*target);
            let values = &self.columns[source];
            let max_length = table.schema().columns[*target].max_length;
            let read_as = mapping.file.field_with_name(field.name())?.data_type();
            let may_be_empty = *field.data_type() == DataType::Utf8View;
            for (row, value) in values.iter().enumerate() {
                if first.as_ref().is_some_and(|(earlier, _)| *earlier <= row) {
                    break;
                }
                let is_null = value == null;
                let too_long = longer_than(value, max_length);
                let problem = match is_null {
                    true if field.is_nullable() || may_be_empty => continue,
                    true => "has no value, but the column is NOT NULL".to_owned(),
                    false if !fits(value, field, read_as) => {
                        let name = type_name(field.data_type());
                        format!("'{}' is no {name}", shortened(value))
                    }
                    false => match too_long {
                        Some(problem) => problem,
                        None => continue,
                    },
                };
                let message = format!(
                    "'{}', line {}, column {}: {problem}",
                    path.display(),
                    self.numbers[row],
                    field.name(),
                );
                first = Some((row, SqlError::new(ErrorKind::Data, message)));
            }
        }
        self.numbers.clear();
        self.columns.iter_mut().for_each(Vec::clear);
        Ok(first.map(|(_, error)| error))
    }
}

/// Whether the text can be read as `read_as`, as the load reads it, and becomes a value of the field.
fn fits(text: &str, field: &Field, read_as: &DataType) -> bool {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    if *read_as == DataType::Utf8View {
        let array: ArrayRef = Arc::new(StringViewArray::from(vec![text]));
        return cast_with_options(&array, field.data_type(), &options).is_ok();
    }
    // Read by the same reader as the load.
    let schema = Arc::new(Schema::new(vec![Field::new("value", read_as.clone(), true)]));
    let quoted = format!("\"{}\"\n", text.replace('"', "\"\""));
    let reader = arrow::csv::ReaderBuilder::new(schema).build(quoted.as_bytes());
    let read = reader.map(|reader| reader.collect::<Result<Vec<_>, _>>());
    let array: ArrayRef = Arc::new(StringArray::from(vec![text]));
    matches!(read, Ok(Ok(_))) || cast_with_options(&array, read_as, &options).is_ok()
}

/// What is wrong with a text that is longer than its column allows.
fn longer_than(text: &str, max: Option<u32>) -> Option<String> {
    let max = usize::try_from(max?).ok()?;
    let length = text.chars().count();
    (length > max).then(|| {
        format!("'{}' has {length} characters, but the column holds at most {max}", shortened(text))
    })
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn open(
    place: &Place,
    files: &FileSet,
    read: &ReadOptions,
    header: bool,
) -> Result<csv::Reader<Box<dyn Read + Send>>> {
    let file = place.open().map_err(|error| cannot_read(place.path(), &error))?;
    let compression = FileCompressionType::from(files.compression);
    let input: Box<dyn Read + Send> = match files.compression {
        CompressionTypeVariant::UNCOMPRESSED => Box::new(file),
        _ => compression.convert_read(file)?,
    };
    let delimiter = if files.kind == FileKind::Tsv { b'\t' } else { b',' };
    let quote = read.quote.unwrap_or(b'"');
    let escape = read.escape.filter(|escape| *escape != quote);
    Ok(csv::ReaderBuilder::new()
        .has_headers(header)
        .flexible(true)
        .delimiter(read.delimiter.unwrap_or(delimiter))
        .quote(quote)
        .escape(escape)
        .double_quote(escape.is_none())
        .from_reader(input))
}

fn bad_csv(path: &Path, error: &csv::Error) -> SqlError {
    SqlError::new(ErrorKind::Data, format!("'{}': {error}", path.display()))
}
