//! Looks at a CSV file: its dialect, its header, and the types of its columns.
//!
//! Small files are looked at as a whole. Of others a sample is: their beginning, and, where their text can be read from any
//! place on, some records from places all over the file.

use std::io::{Read, Seek, SeekFrom};

use super::dialect::{self, Found};
use super::header;
use super::kinds::Candidates;
use super::lex::{Field, Lexer, LineKind, unescaped};
use super::options::CsvOptions;
use super::table::FirstRecord;
use crate::error::{FilesError, Result};
use crate::input::Input;

/// Bytes at the beginning that are looked at. A text that is not longer is looked at as a whole.
const HEAD_BYTES: usize = 4 << 20;

/// Places in a larger file that are looked at, and how many bytes there.
const PLACES: u64 = 32;
const PLACE_BYTES: usize = 64 << 10;

/// Even records that tell where a record begins.
const EVEN_RECORDS: usize = 4;

/// What a file looks like.
#[derive(Clone, Debug)]
pub struct Sniffed {
    pub(crate) input: Input,
    pub(crate) found: Found,
    pub(crate) newline: u8,
    /// Bytes and lines in front of the first record with values.
    pub(crate) start: usize,
    pub(crate) start_line: u64,
    /// Lines in front of the header, or the first record.
    pub(crate) skipped_lines: u64,
    pub(crate) has_header: bool,
    pub(crate) names: Vec<String>,
    pub(crate) candidates: Vec<Candidates>,
    /// All values were looked at.
    pub(crate) is_whole: bool,
    pub(crate) first: FirstRecord,
}

/// Looks at a file.
///
/// # Errors
/// If it cannot be read.
pub fn sniff(input: &Input, options: &CsvOptions) -> Result<Sniffed> {
    let mut source = input.open_text()?;
    let mut head = Vec::new();
    let read = source.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head);
    read.map_err(|error| FilesError::read(input.path(), error))?;
    let is_whole = head.len() < HEAD_BYTES;
    if !is_whole {
        // Not in the middle of a character.
        let end =
            head.len() - head.iter().rev().take(4).take_while(|byte| **byte & 0xC0 == 0x80).count();
        head.truncate(end.saturating_sub(1));
    }
    let newline = match memchr::memchr(b'\n', &head) {
        None if memchr::memchr(b'\r', &head).is_some() => b'\r',
        _ => b'\n',
    };
    let skipped = skip_lines(&head, options.skip.unwrap_or(0), newline);
    let default = default_delimiter(input);
    let mut found = dialect::find(&head[skipped..], is_whole, options, default);
    found.start += skipped;
    if options.types_are_all {
        found.width = options.types.len().max(1);
    }
    let mut look = Look { input, options, found, head: &head, newline, is_whole };
    look.sniffed()
}

/// The delimiter of files with this name.
fn default_delimiter(input: &Input) -> u8 {
    let name = input.path().to_string_lossy().to_ascii_lowercase();
    let is_tsv = [".tsv", ".tab"]
        .iter()
        .any(|part| name.ends_with(part) || name.contains(&format!("{part}.")));
    if is_tsv { b'\t' } else { b',' }
}

/// The place behind so many lines.
fn skip_lines(text: &[u8], lines: usize, newline: u8) -> usize {
    match lines.checked_sub(1) {
        None => 0,
        Some(last) => memchr::memchr_iter(newline, text).nth(last).map_or(text.len(), |at| at + 1),
    }
}

struct Look<'a> {
    input: &'a Input,
    options: &'a CsvOptions,
    found: Found,
    head: &'a [u8],
    newline: u8,
    is_whole: bool,
}

impl Look<'_> {
    fn sniffed(&mut self) -> Result<Sniffed> {
        let lexer = Lexer::new(self.found.dialect);
        let mut fields: Vec<Field> = Vec::new();
        let mut at = self.found.start;
        // The first record, which may be a header.
        let mut first = None;
        while at < self.head.len() && first.is_none() {
            fields.clear();
            let record = lexer.record(self.head, at, &mut fields);
            if record.kind == LineKind::Record {
                first = Some(
                    fields.iter().map(|field| self.text(self.head, *field)).collect::<Vec<_>>(),
                );
            }
            at = record.next;
        }
        let first = first.unwrap_or_default();
        let mut columns = vec![Candidates::ALL; self.found.width];
        let rows_max = self.options.sample_rows.flatten();
        let wants_all = self.options.sample_rows == Some(None);
        let rows_max = rows_max.unwrap_or(usize::MAX);
        let (rows, end) = self.narrow(&lexer, self.head, at, rows_max, &mut columns);
        if !self.is_whole {
            self.narrow_elsewhere(&lexer, rows_max, &mut columns)?;
        }
        let is_whole = self.is_whole && end == self.head.len();
        let has_header = self.has_header(&first, &columns, rows);
        if !has_header {
            self.narrow_by(&first, &mut columns);
        }
        let (start, is_header) =
            if has_header { (at, Some(first.as_slice())) } else { (self.found.start, None) };
        let lines = |at: usize| memchr::memchr_iter(self.newline, &self.head[..at]).count() as u64;
        let names = header::names(is_header, self.found.width, self.options);
        let mut sniffed = Sniffed {
            input: self.input.clone(),
            found: self.found,
            newline: self.newline,
            start,
            start_line: lines(start) + 1,
            skipped_lines: lines(self.found.start),
            has_header,
            names,
            candidates: columns,
            is_whole,
            first: FirstRecord { record: first.clone(), is_header: has_header, has_more: rows > 0 },
        };
        if wants_all && !is_whole {
            super::check::check_all(&mut sniffed, self.options)?;
        }
        Ok(sniffed)
    }

    fn text(&self, text: &[u8], field: Field) -> String {
        let raw = String::from_utf8_lossy(&text[field.start()..field.end()]);
        match field.is_escaped() {
            true => unescaped(&raw, &self.found.dialect),
            false => raw.into_owned(),
        }
    }

    /// Leaves the types that the values of records from `at` on can be read as; tells how many there were and where
    /// they end.
    fn narrow(
        &self,
        lexer: &Lexer,
        text: &[u8],
        mut at: usize,
        rows_max: usize,
        columns: &mut [Candidates],
    ) -> (usize, usize) {
        let mut fields: Vec<Field> = Vec::new();
        let mut rows = 0;
        while at < text.len() && rows < rows_max {
            fields.clear();
            let record = lexer.record(text, at, &mut fields);
            if record.next == text.len() && !self.is_whole {
                break;
            }
            at = record.next;
            if record.kind != LineKind::Record {
                continue;
            }
            rows += 1;
            for (column, field) in columns.iter_mut().zip(&fields) {
                narrow_field(column, text, *field, self.options);
            }
        }
        (rows, at)
    }

    fn narrow_by(&self, first: &[String], columns: &mut [Candidates]) {
        for (column, text) in columns.iter_mut().zip(first) {
            if !is_null(text, self.options) {
                *column = column.meet(candidates_of(text, self.options));
            }
        }
    }

    /// Looks at records in other places of a large file.
    fn narrow_elsewhere(
        &self,
        lexer: &Lexer,
        rows_max: usize,
        columns: &mut [Candidates],
    ) -> Result<()> {
        let bytes = self.input.bytes();
        if !self.input.is_seekable_text()? || bytes <= HEAD_BYTES as u64 {
            return Ok(());
        }
        let failed = |error| FilesError::read(self.input.path(), error);
        let mut file = self.input.open_raw()?;
        let rows_max = rows_max.div_ceil(PLACES as usize);
        let mut text = Vec::with_capacity(PLACE_BYTES);
        for place in 1..=PLACES {
            let at = (bytes / PLACES * place).min(bytes).saturating_sub(PLACE_BYTES as u64);
            file.seek(SeekFrom::Start(at)).map_err(failed)?;
            text.clear();
            file.by_ref().take(PLACE_BYTES as u64).read_to_end(&mut text).map_err(failed)?;
            if let Some(start) = self.record_start(lexer, &text) {
                self.narrow(lexer, &text, start, rows_max, columns);
            }
        }
        Ok(())
    }

    /// Where a record begins in a text from the middle of the file, if that can be told.
    fn record_start(&self, lexer: &Lexer, text: &[u8]) -> Option<usize> {
        let mut fields: Vec<Field> = Vec::new();
        let starts = memchr::memchr_iter(self.newline, text).map(|line_end| line_end + 1);
        starts.take(EVEN_RECORDS * 8).find(|start| {
            let mut at = *start;
            for _ in 0..EVEN_RECORDS {
                if at >= text.len() {
                    return false;
                }
                fields.clear();
                let record = lexer.record(text, at, &mut fields);
                let is_even = record.kind != LineKind::Record || fields.len() == self.found.width;
                if !is_even || record.fault.is_some() {
                    return false;
                }
                at = record.next;
            }
            true
        })
    }

    /// True if the first record has the columns' names: it does not look like the values below it.
    fn has_header(&self, first: &[String], columns: &[Candidates], rows: usize) -> bool {
        if let Some(said) = self.options.header {
            return said && !first.is_empty();
        }
        if first.is_empty() {
            return false;
        }
        if self.options.types_are_all {
            let names = self.options.types.iter().map(|(key, _)| key);
            let is_name = |(name, key): (&String, &super::ColumnKey)| matches!(key, super::ColumnKey::Name(known) if known.eq_ignore_ascii_case(name.trim()));
            return first.iter().zip(names).all(is_name);
        }
        if rows == 0 {
            // Names are texts.
            return first.iter().all(|text| candidates_of(text, self.options).is_text());
        }
        let typed = |(_, column): &(&String, &Candidates)| column.has_values() && !column.is_text();
        let mut typed_columns = first.iter().zip(columns).filter(typed).peekable();
        if typed_columns.peek().is_none() {
            return true;
        }
        let is_value = |(text, column): (&String, &Candidates)| {
            is_null(text, self.options) || !column.meet(candidates_of(text, self.options)).is_text()
        };
        !typed_columns.all(is_value)
    }
}

fn is_null(text: &str, options: &CsvOptions) -> bool {
    match &options.nulls {
        Some(nulls) => text.is_empty() || nulls.iter().any(|null| null == text),
        None => text.is_empty(),
    }
}

/// The types that a text can be read as.
fn candidates_of(text: &str, options: &CsvOptions) -> Candidates {
    Candidates::of(text, options.decimal_separator.unwrap_or(b'.'))
}

/// Leaves the types that a field can be read as.
pub(crate) fn narrow_field(
    column: &mut Candidates,
    text: &[u8],
    field: Field,
    options: &CsvOptions,
) {
    if column.is_text() || field.start() == field.end() {
        return;
    }
    let bytes = &text[field.start()..field.end()];
    let Ok(text) = std::str::from_utf8(bytes) else {
        // The reader of the file tells.
        *column = column.meet(candidates_of("?", options));
        return;
    };
    if !is_null(text, options) {
        *column = column.meet(candidates_of(text, options));
    }
}
