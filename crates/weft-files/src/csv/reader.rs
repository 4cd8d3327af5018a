//! Reads a CSV file: blocks of its text, cut into pieces of whole records, decoded each by itself.

use std::io::Read;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use memchr::memchr_iter;

use super::columns::{ColumnFormat, Skip, Texts};
use super::lex::{Dialect, Fault, Field, Lexer, LineKind};
use crate::error::{FilesError, Result, shortened};
use crate::input::{Compression, Input};
use crate::source::{FileReader, Piece, Pieces, PlacedBatch, ReadPlan, TypesFrom};

/// Bytes of a piece, at least.
const PIECE_BYTES_MIN: usize = 16 << 10;

/// What is known of a CSV file that is going to be read.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) input: Input,
    pub(crate) dialect: Dialect,
    /// The byte that ends lines: `\r` in files without `\n`.
    pub(crate) newline: u8,
    /// Bytes of the text in front of the first record with values.
    pub(crate) start: u64,
    /// The number of the line there, from 1 on.
    pub(crate) start_line: u64,
    pub(crate) schema: SchemaRef,
    pub(crate) formats: Vec<ColumnFormat>,
    /// For each column, whether its type was told from a sample.
    pub(crate) sampled: Vec<bool>,
    /// A last field without characters, behind the last column, does not count.
    pub(crate) ends_with_delimiter: bool,
    pub(crate) nulls: Vec<String>,
    /// Texts in quotes that are among `nulls` are NULL, too.
    pub(crate) quoted_is_null: bool,
    pub(crate) null_padding: bool,
    pub(crate) ignore_errors: bool,
    pub(crate) lenient: bool,
    pub(crate) record_bytes_max: usize,
}

/// A CSV file as a table.
#[derive(Clone, Debug)]
pub struct CsvFile {
    pub(crate) layout: Arc<Layout>,
}

impl FileReader for CsvFile {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.layout.schema)
    }

    fn types_from(&self) -> TypesFrom {
        match self.layout.sampled.contains(&true) {
            true => TypesFrom::Sample,
            false => TypesFrom::Certain,
        }
    }

    fn bytes(&self) -> u64 {
        self.layout.input.bytes()
    }

    fn open(&self, plan: &ReadPlan) -> Result<Box<dyn Pieces>> {
        Ok(Box::new(CsvPieces { cuts: self.cuts(plan.piece_bytes)?, plan: Arc::new(plan.clone()) }))
    }
}

impl CsvFile {
    /// Cuts the file's text from the first record on.
    pub(crate) fn cuts(&self, piece_bytes: usize) -> Result<Cuts> {
        Cuts::new(Arc::clone(&self.layout), piece_bytes)
    }
}

/// Cuts a file into texts of whole records.
pub(crate) struct Cuts {
    layout: Arc<Layout>,
    lexer: Lexer,
    source: Box<dyn Read + Send>,
    piece_bytes: usize,
    /// What was read behind the last whole record.
    rest: Vec<u8>,
    line: u64,
    is_over: bool,
}

/// Whole records.
pub(crate) struct Cut {
    pub(crate) text: Vec<u8>,
    /// The number of its first line.
    pub(crate) line: u64,
}

impl Cuts {
    fn new(layout: Arc<Layout>, piece_bytes: usize) -> Result<Cuts> {
        let mut source = layout.input.open_text()?;
        let skipped = std::io::copy(&mut source.by_ref().take(layout.start), &mut std::io::sink());
        skipped.map_err(|error| FilesError::read(layout.input.path(), error))?;
        Ok(Cuts::of_source(layout, source, piece_bytes))
    }

    /// Cuts what a source gives.
    pub(crate) fn of_source(
        layout: Arc<Layout>,
        source: Box<dyn Read + Send>,
        piece_bytes: usize,
    ) -> Cuts {
        let lexer = Lexer::new(layout.dialect);
        let line = layout.start_line;
        let piece_bytes = piece_bytes.max(PIECE_BYTES_MIN);
        Cuts { layout, lexer, source, piece_bytes, rest: Vec::new(), line, is_over: false }
    }

    /// The next records; `None` at the end.
    pub(crate) fn next_cut(&mut self) -> Result<Option<Cut>> {
        let mut text = std::mem::take(&mut self.rest);
        loop {
            if !self.is_over {
                let wanted = text.len().max(self.piece_bytes).max(text.len() * 2) - text.len();
                let wanted = wanted.max(PIECE_BYTES_MIN);
                text.reserve_exact(wanted);
                let read = self.source.by_ref().take(wanted as u64).read_to_end(&mut text);
                let read =
                    read.map_err(|error| FilesError::read(self.layout.input.path(), error))?;
                self.is_over = read < wanted;
            }
            if let Some(end) = self.lexer.last_end(&text, self.is_over, self.layout.newline) {
                self.rest = text.split_off(end);
                let line = self.line;
                self.line += memchr_iter(self.layout.newline, &text).count() as u64;
                return Ok(Some(Cut { text, line }));
            }
            if self.is_over {
                return Ok(None);
            }
            if text.len() >= self.layout.record_bytes_max {
                return Err(self.too_long(&text));
            }
        }
    }

    fn too_long(&self, text: &[u8]) -> FilesError {
        let problem = format!("a record has more than {} bytes", self.layout.record_bytes_max);
        let has_quote = self.layout.dialect.quote.is_some_and(|quote| text.contains(&quote));
        let hint = match has_quote {
            true => {
                "a quote may be open: say so with quote = '' if there are none, or allow longer records with \
                     max_line_size = …"
            }
            false => "allow longer records with max_line_size = …",
        };
        FilesError::data(self.layout.input.path(), Some(self.line), problem).with_hint(hint)
    }
}

struct CsvPieces {
    cuts: Cuts,
    plan: Arc<ReadPlan>,
}

impl Pieces for CsvPieces {
    fn next_piece(&mut self) -> Result<Option<Box<dyn Piece>>> {
        let Some(cut) = self.cuts.next_cut()? else { return Ok(None) };
        let (layout, plan) = (Arc::clone(&self.cuts.layout), Arc::clone(&self.plan));
        Ok(Some(Box::new(CsvPiece { layout, plan, cut })))
    }
}

pub(crate) struct CsvPiece {
    pub(crate) layout: Arc<Layout>,
    pub(crate) plan: Arc<ReadPlan>,
    pub(crate) cut: Cut,
}

impl Piece for CsvPiece {
    fn bytes(&self) -> usize {
        match self.layout.input.compression {
            Compression::None => self.cut.text.len(),
            _ => 0,
        }
    }

    fn decode(self: Box<Self>) -> Result<Vec<RecordBatch>> {
        self.decoded(|_, _, batch, _| batch)
    }

    fn decode_placed(self: Box<Self>) -> Result<Vec<PlacedBatch>> {
        self.decoded(|records, fields, batch, kept| {
            let lines = records.lines(fields).into_iter();
            let lines = match kept {
                None => lines.collect(),
                Some(kept) => {
                    let kept = kept.values().iter();
                    lines.zip(kept).filter(|(_, kept)| *kept).map(|(line, _)| line).collect()
                }
            };
            PlacedBatch { batch, file: None, lines: Some(lines) }
        })
    }
}

impl CsvPiece {
    /// What `made` makes of each batch of the piece: it gets the records, the fields of the batch's records, the batch, and which of these
    /// records are in it, if some are left out.
    fn decoded<T>(
        self,
        made: impl Fn(&Records<'_>, &[Field], RecordBatch, Option<BooleanArray>) -> T,
    ) -> Result<Vec<T>> {
        let CsvPiece { layout, plan, cut } = self;
        let records = Records::of(&layout, &cut)?;
        let (width, rows) = (layout.formats.len(), records.rows);
        let batches = rows.div_ceil(plan.batch_rows.max(1));
        let portion = rows.checked_div(batches).unwrap_or(0).max(1);
        let projected = layout.schema.project(&plan.projection);
        let schema = Arc::new(projected.map_err(|error| FilesError::option(error.to_string()))?);
        let mut decoded = Vec::with_capacity(batches);
        let mut first = 0;
        while first < rows {
            let end = if rows - first < 2 * portion { rows } else { first + portion };
            let fields = &records.fields[first * width..end * width];
            let (batch, kept) = records.batch(&layout, &plan, &schema, fields)?;
            decoded.push(made(&records, fields, batch, kept));
            first = end;
        }
        Ok(decoded)
    }
}

/// The records of a cut, each of as many fields as the table has columns.
pub(crate) struct Records<'a> {
    pub(crate) text: &'a str,
    pub(crate) fields: Vec<Field>,
    rows: usize,
    line: u64,
    newline: u8,
    width: usize,
}

impl<'a> Records<'a> {
    pub(crate) fn of(layout: &Layout, cut: &'a Cut) -> Result<Records<'a>> {
        let text = as_text(layout, cut)?;
        let lexer = Lexer::new(layout.dialect);
        let width = layout.formats.len();
        let bytes = text.as_bytes();
        let mut fields: Vec<Field> = Vec::with_capacity(bytes.len() / 8);
        let (mut at, mut rows) = (0, 0);
        while at < bytes.len() {
            let first = fields.len();
            let record = lexer.record(bytes, at, &mut fields);
            match record.kind {
                LineKind::Comment => {}
                // The only column of the record has no characters.
                LineKind::Blank if width == 1 => {
                    fields.push(Field::missing(at));
                    rows += 1;
                }
                LineKind::Blank => {}
                LineKind::Record => {
                    let found = fields.len() - first;
                    let is_good = record.fault.is_none() && found == width;
                    if is_good || repaired(layout, text, record.fault, first, at, &mut fields, cut)?
                    {
                        rows += 1;
                    } else {
                        fields.truncate(first);
                    }
                }
            }
            at = record.next;
        }
        Ok(Records { text, fields, rows, line: cut.line, newline: layout.newline, width })
    }

    /// The numbers of the lines that records of these fields begin in, which follow each other.
    fn lines(&self, fields: &[Field]) -> Vec<u64> {
        let (mut line, mut at) = (self.line, 0);
        let starts = fields.chunks(self.width).filter_map(|record| record.first());
        let line_at = |field: &Field| {
            let start = field.start().max(at);
            let between = &self.text.as_bytes()[at..start];
            line += memchr_iter(self.newline, between).count() as u64;
            at = start;
            line
        };
        starts.map(line_at).collect()
    }

    /// The rows of records, and which of these are among them, if some are left out.
    fn batch(
        &self,
        layout: &Layout,
        plan: &ReadPlan,
        schema: &SchemaRef,
        fields: &[Field],
    ) -> Result<(RecordBatch, Option<BooleanArray>)> {
        let width = layout.formats.len();
        let rows = fields.len() / width;
        let array = |column: usize, skip: &mut Skip<'_>| {
            let texts = Texts {
                text: self.text,
                dialect: &layout.dialect,
                fields,
                width,
                column,
                nulls: &layout.nulls,
                quoted_is_null: layout.quoted_is_null,
            };
            texts
                .array(&layout.formats[column], skip)
                .map_err(|misfit| self.misfit(layout, column, fields[misfit.row * width + column]))
        };
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let made = |arrays| {
            RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)
                .map_err(|error| FilesError::option(error.to_string()))
        };
        if !layout.ignore_errors {
            let arrays = plan.projection.iter().map(|column| array(*column, &mut Skip::Never));
            return Ok((made(arrays.collect::<Result<Vec<ArrayRef>>>()?)?, None));
        }
        // Which records are left out must not depend on the columns that are wanted.
        let mut skipped = vec![false; rows];
        let mut arrays = Vec::with_capacity(width);
        for column in 0..width {
            arrays.push(array(column, &mut Skip::Marked(&mut skipped))?);
        }
        let batch =
            made(plan.projection.iter().map(|column| Arc::clone(&arrays[*column])).collect())?;
        let kept: BooleanArray = skipped.iter().map(|skipped| Some(!skipped)).collect();
        let batch = filter_record_batch(&batch, &kept)
            .map_err(|error| FilesError::option(error.to_string()))?;
        Ok((batch, Some(kept)))
    }

    fn misfit(&self, layout: &Layout, column: usize, field: Field) -> FilesError {
        let line = self.line + line_of(self.text, field.start(), layout.newline);
        let path = layout.input.path().to_owned();
        let name = layout.schema.field(column).name().clone();
        let kind = crate::csv::type_name(&layout.formats[column].data_type);
        let problem = format!("'{}' is no {kind}", shortened(field.raw(self.text)));
        match layout.sampled[column] {
            true => FilesError::Misfit { path, line, column: Some(name), problem },
            false => {
                FilesError::Data { path, line: Some(line), column: Some(name), problem, hint: None }
            }
        }
    }
}

/// How many lines end in front of a place.
fn line_of(text: &str, at: usize, newline: u8) -> u64 {
    memchr_iter(newline, &text.as_bytes()[..at]).count() as u64
}

fn as_text<'a>(layout: &Layout, cut: &'a Cut) -> Result<&'a str> {
    std::str::from_utf8(&cut.text).map_err(|error| {
        let lines = memchr_iter(layout.newline, &cut.text[..error.valid_up_to()]).count();
        FilesError::data(
            layout.input.path(),
            Some(cut.line + lines as u64),
            "it has characters that are not UTF-8",
        )
        .with_hint("name the file's encoding, such as encoding = 'latin-1'")
    })
}

/// Makes a record of as many fields as there are columns, if options allow that; false if it is left out.
fn repaired(
    layout: &Layout,
    text: &str,
    fault: Option<(Fault, usize)>,
    first: usize,
    at: usize,
    fields: &mut Vec<Field>,
    cut: &Cut,
) -> Result<bool> {
    let width = layout.formats.len();
    let mut found = fields.len() - first;
    if found == width + 1
        && layout.ends_with_delimiter
        && fields[first + width].raw(text).is_empty()
    {
        fields.pop();
        found = width;
    }
    if layout.lenient && found > width {
        fields.truncate(first + width);
        found = width;
    }
    if layout.null_padding && found < width {
        let missing = Field::missing(text.len());
        fields.resize(first + width, missing);
        found = width;
    }
    let fault = fault.filter(|_| !layout.lenient);
    if found == width && fault.is_none() {
        return Ok(true);
    }
    if layout.ignore_errors {
        return Ok(false);
    }
    let line = |at| Some(cut.line + line_of(text, at, layout.newline));
    let path = layout.input.path();
    Err(match fault {
        Some((Fault::Unclosed, at)) => FilesError::data(path, line(at), "a quote is not closed")
            .with_hint("if quotes are parts of the texts, say so with quote = ''"),
        Some((Fault::BehindQuote, at)) => {
            FilesError::data(path, line(at), "there is more behind a closing quote than the delimiter").with_hint(
                "say how quotes in texts are written, such as escape = '\\', or take the value as it is with \
                 strict_mode = false",
            )
        }
        None => {
            let hint = match found < width {
                true => "fill missing values with NULL: null_padding = true; or leave such lines out: ignore_errors = true",
                false => "leave such lines out with ignore_errors = true, or the values with strict_mode = false",
            };
            let problem = format!("has {found} values instead of {width}");
            FilesError::data(path, line(at), problem).with_hint(hint)
        }
    })
}
