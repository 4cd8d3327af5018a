//! CSV files as a table: what was found in them and what options say, put together.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};

use super::columns::{ColumnFormat, DateFormat, is_native};
use super::kinds::{Candidates, Told};
use super::options::{ColumnKey, CsvOptions, RECORD_BYTES_MAX};
use super::reader::{CsvFile, Layout};
use super::sniff::{Sniffed, sniff};
use super::times::DateShape;
use crate::error::{FilesError, Result};
use crate::input::Input;

/// What was found in a file, to be shown.
#[derive(Clone, Debug)]
pub struct Description {
    /// The byte between fields.
    pub delimiter: char,
    /// The byte around fields, if there is one.
    pub quote: Option<char>,
    /// The byte in front of quotes in texts, if there is one.
    pub escape: Option<char>,
    /// The byte that begins comments, if there is one.
    pub comment: Option<char>,
    /// What ends lines.
    pub newline: &'static str,
    /// Lines that are left out in front of the header or the first record.
    pub skipped_lines: u64,
    /// Whether the first record has the columns' names.
    pub has_header: bool,
    /// How dates are written, in the first column that has some.
    pub date_format: Option<String>,
    /// How timestamps are written, in the first column that has some.
    pub timestamp_format: Option<String>,
}

/// Files, and how each is read.
#[derive(Clone, Debug)]
pub struct CsvTable {
    /// A reader of each file. Columns of one name have one type.
    pub files: Vec<CsvFile>,
    /// What the first one looks like.
    pub description: Description,
    /// The first record of each.
    pub firsts: Vec<FirstRecord>,
}

/// The first record of a file.
#[derive(Clone, Debug)]
pub struct FirstRecord {
    /// Its values.
    pub record: Vec<String>,
    /// It is taken for names.
    pub is_header: bool,
    /// There are more records.
    pub has_more: bool,
}

impl FirstRecord {
    /// True if it is taken for names, and looks like some: different words, with records below.
    pub fn is_likely_header(&self) -> bool {
        let is_word = |text: &String| {
            let text = text.trim();
            text.chars().next().is_some_and(|first| first.is_alphabetic() || first == '_')
                && text.chars().all(|letter| {
                    letter.is_alphanumeric() || matches!(letter, '_' | ' ' | '-' | '.')
                })
        };
        let mut seen = std::collections::HashSet::new();
        self.is_header
            && self.has_more
            && self.record.iter().all(|text| is_word(text) && seen.insert(text.to_lowercase()))
    }
}

/// Looks at files, and makes readers of them.
///
/// # Errors
/// If a file cannot be read, or options do not go together with it.
pub fn open(inputs: &[Input], options: &CsvOptions) -> Result<CsvTable> {
    let mut sniffed =
        inputs.iter().map(|input| sniff(input, options)).collect::<Result<Vec<_>>>()?;
    for (key, _) in &options.types {
        check_key(key, &sniffed)?;
    }
    unify(&mut sniffed);
    let files = sniffed.iter().map(|found| {
        let layout = layout(found, &found.candidates, options)?;
        Ok(CsvFile { layout: Arc::new(layout) })
    });
    let files = files.collect::<Result<Vec<_>>>()?;
    let Some((first, file)) = sniffed.first().zip(files.first()) else {
        return Err(FilesError::option("there is no file to read"));
    };
    let description = describe(first, file);
    let firsts = sniffed.into_iter().map(|file| file.first).collect();
    Ok(CsvTable { files, description, firsts })
}

/// Gives columns of one name the types that the values of all files can be read as.
fn unify(sniffed: &mut [Sniffed]) {
    let mut common: std::collections::HashMap<String, (Candidates, bool)> =
        std::collections::HashMap::new();
    for file in sniffed.iter() {
        for (name, column) in file.names.iter().zip(&file.candidates) {
            let key = name.to_lowercase();
            let (known, is_whole) = common.get(&key).copied().unwrap_or((Candidates::ALL, true));
            common.insert(key, (known.meet(*column), is_whole && file.is_whole));
        }
    }
    for file in sniffed {
        for (name, column) in file.names.iter().zip(&mut file.candidates) {
            if let Some((candidates, _)) = common.get(&name.to_lowercase()) {
                *column = *candidates;
            }
        }
    }
}

fn check_key(key: &ColumnKey, sniffed: &[Sniffed]) -> Result<()> {
    let is_there = sniffed.iter().any(|file| match key {
        ColumnKey::Name(wanted) => file.names.iter().any(|name| name.eq_ignore_ascii_case(wanted)),
        ColumnKey::Number(number) => *number < file.names.len(),
    });
    let Some(first) = sniffed.first().filter(|_| !is_there) else { return Ok(()) };
    let wanted = match key {
        ColumnKey::Name(name) => name.clone(),
        ColumnKey::Number(number) => format!("number {}", number + 1),
    };
    let message = format!("'{}' has no column {wanted}", first.input.path().display());
    Err(FilesError::option(message).with_hint(format!("it has {}", first.names.join(", "))))
}

/// The type that options give a column.
fn said<'a>(options: &'a CsvOptions, number: usize, name: &str) -> Option<&'a DataType> {
    let is_it = |key: &ColumnKey| match key {
        ColumnKey::Name(wanted) => wanted.eq_ignore_ascii_case(name),
        ColumnKey::Number(wanted) => *wanted == number,
    };
    options.types.iter().find(|(key, _)| is_it(key)).map(|(_, data_type)| data_type)
}

/// All that has to be known to read a file.
pub(crate) fn layout(
    found: &Sniffed,
    columns: &[Candidates],
    options: &CsvOptions,
) -> Result<Layout> {
    let mut fields = Vec::with_capacity(columns.len());
    let mut formats = Vec::with_capacity(columns.len());
    let mut sampled = Vec::with_capacity(columns.len());
    for (number, (name, candidates)) in found.names.iter().zip(columns).enumerate() {
        let text = Told { data_type: DataType::Utf8View, shape: None };
        let (told, is_said) = match said(options, number, name) {
            Some(wanted) if is_native(wanted) => {
                let shape = candidates.told().shape;
                (Told { data_type: wanted.clone(), shape }, true)
            }
            // The caller casts texts.
            Some(_) => (text, true),
            None if options.all_text || options.no_detection => (text, true),
            None => (candidates.told(), false),
        };
        let named = match &told.data_type {
            DataType::Date32 => options.date_format.clone(),
            DataType::Timestamp(..) => options.timestamp_format.clone(),
            _ => None,
        };
        let dates = match named {
            Some(named) => DateFormat::Named(named),
            None => DateFormat::Shape(told.shape.unwrap_or(DateShape::ISO)),
        };
        sampled.push(!is_said && !found.is_whole && told.data_type != DataType::Utf8View);
        fields.push(Field::new(name, told.data_type.clone(), true));
        let decimal_separator = options.decimal_separator.unwrap_or(b'.');
        formats.push(ColumnFormat { data_type: told.data_type, dates, decimal_separator });
    }
    Ok(Layout {
        input: found.input.clone(),
        dialect: found.found.dialect,
        newline: found.newline,
        start: found.start as u64,
        start_line: found.start_line,
        schema: Arc::new(Schema::new(fields)),
        formats,
        sampled,
        ends_with_delimiter: found.found.ends_with_delimiter,
        nulls: options.nulls.clone().unwrap_or_else(|| vec![String::new()]),
        quoted_is_null: true,
        null_padding: options.null_padding,
        ignore_errors: options.ignore_errors,
        lenient: options.lenient,
        record_bytes_max: options.record_bytes_max.unwrap_or(RECORD_BYTES_MAX),
    })
}

fn describe(found: &Sniffed, file: &CsvFile) -> Description {
    let dialect = found.found.dialect;
    let format_of = |wanted: fn(&DataType) -> bool| {
        let format = file.layout.formats.iter().find(|format| wanted(&format.data_type))?;
        Some(match &format.dates {
            DateFormat::Shape(shape) => shape.format(),
            DateFormat::Named(named) => named.text().to_owned(),
        })
    };
    Description {
        delimiter: char::from(dialect.delimiter),
        quote: dialect.quote.map(char::from),
        escape: dialect.escape.map(char::from),
        comment: dialect.comment.map(char::from),
        newline: if found.newline == b'\r' { "\\r" } else { "\\n" },
        skipped_lines: found.skipped_lines,
        has_header: found.has_header,
        date_format: format_of(|data_type| matches!(data_type, DataType::Date32)),
        timestamp_format: format_of(|data_type| matches!(data_type, DataType::Timestamp(..))),
    }
}
