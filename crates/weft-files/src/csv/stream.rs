//! CSV that comes as a stream of bytes rather than as a file: nothing is told from it, all is said.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use memchr::memchr_iter;

use super::columns::{ColumnFormat, DateFormat, is_native};
use super::lex::{Dialect, Lexer};
use super::options::RECORD_BYTES_MAX;
use super::reader::{CsvPiece, Cut, Cuts, Layout};
use super::times::DateShape;
use crate::error::Result;
use crate::input::{Compression, Input};
use crate::source::{Piece, ReadPlan};

/// Bytes of a piece, about.
const PIECE_BYTES: usize = 1 << 20;

/// How the stream is to be read.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// What messages call the stream.
    pub name: String,
    /// The columns, all of them of types that the reader knows ([`is_native`]).
    pub schema: SchemaRef,
    /// The byte between fields.
    pub delimiter: u8,
    /// The byte around fields.
    pub quote: u8,
    /// The byte before a quote that belongs to the text.
    pub escape: u8,
    /// The text without quotes that stands for NULL.
    pub null: String,
    /// The first record has names, and is left out.
    pub header: bool,
    /// Rows of a batch, at most.
    pub batch_rows: usize,
}

/// The rows of a stream.
pub struct CsvStream {
    cuts: Cuts,
    layout: Arc<Layout>,
    plan: Arc<ReadPlan>,
    header: bool,
    ready: std::vec::IntoIter<RecordBatch>,
}

impl CsvStream {
    /// Reads `source`, which may block.
    ///
    /// # Errors
    /// None that are known.
    pub fn new(source: Box<dyn Read + Send>, options: &StreamOptions) -> Result<CsvStream> {
        let formats = options.schema.fields().iter().map(|field| ColumnFormat {
            data_type: match is_native(field.data_type()) {
                true => field.data_type().clone(),
                false => DataType::Utf8View,
            },
            dates: DateFormat::Shape(DateShape::ISO),
            decimal_separator: b'.',
        });
        let formats: Vec<ColumnFormat> = formats.collect();
        let fields = options.schema.fields().iter().zip(&formats);
        let fields = fields
            .map(|(field, format)| field.as_ref().clone().with_data_type(format.data_type.clone()));
        let layout = Arc::new(Layout {
            input: Input {
                place: PathBuf::from(&options.name).into(),
                compression: Compression::None,
                encoding: None,
            },
            dialect: Dialect {
                delimiter: options.delimiter,
                quote: Some(options.quote),
                escape: Some(options.escape),
                comment: None,
                comments_within: false,
            },
            newline: b'\n',
            start: 0,
            start_line: 1,
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            sampled: vec![false; formats.len()],
            formats,
            ends_with_delimiter: false,
            nulls: vec![options.null.clone()],
            quoted_is_null: false,
            null_padding: false,
            ignore_errors: false,
            lenient: false,
            record_bytes_max: RECORD_BYTES_MAX,
        });
        let projection = (0..options.schema.fields().len()).collect();
        let plan =
            ReadPlan { projection, piece_bytes: PIECE_BYTES, batch_rows: options.batch_rows };
        Ok(CsvStream {
            cuts: Cuts::of_source(Arc::clone(&layout), source, PIECE_BYTES),
            layout,
            plan: Arc::new(plan),
            header: options.header,
            ready: Vec::new().into_iter(),
        })
    }

    /// The columns of its batches.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.layout.schema)
    }

    /// Decodes the next piece; false at the end.
    fn refill(&mut self) -> Result<bool> {
        let Some(mut cut) = self.cuts.next_cut()? else { return Ok(false) };
        if std::mem::take(&mut self.header) {
            cut = without_first_record(cut, self.layout.dialect);
        }
        let (layout, plan) = (Arc::clone(&self.layout), Arc::clone(&self.plan));
        self.ready = Box::new(CsvPiece { layout, plan, cut }).decode()?.into_iter();
        Ok(true)
    }
}

fn without_first_record(cut: Cut, dialect: Dialect) -> Cut {
    let end = Lexer::new(dialect).record(&cut.text, 0, &mut Vec::new()).next;
    let lines = memchr_iter(b'\n', &cut.text[..end]).count() as u64;
    Cut { text: cut.text[end..].to_vec(), line: cut.line + lines }
}

impl Iterator for CsvStream {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        loop {
            if let Some(batch) = self.ready.next() {
                return Some(Ok(batch));
            }
            match self.refill() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::{Field, Int32Type};

    use super::*;

    fn read(text: &'static str, header: bool) -> Result<Vec<RecordBatch>> {
        let fields =
            vec![Field::new("i", DataType::Int32, true), Field::new("s", DataType::Utf8View, true)];
        let options = StreamOptions {
            name: "STDIN".to_owned(),
            schema: Arc::new(Schema::new(fields)),
            delimiter: b',',
            quote: b'"',
            escape: b'"',
            null: "x".to_owned(),
            header,
            batch_rows: 100,
        };
        CsvStream::new(Box::new(text.as_bytes()), &options)?.collect()
    }

    #[test]
    fn rows_come_with_their_types_and_null_without_quotes() {
        let batches = read("i,s\n1,\"x\"\n2,x\n", true).unwrap();
        let [batch] = batches.as_slice() else { panic!("{batches:?}") };
        assert_eq!(batch.column(0).as_primitive::<Int32Type>().values(), &[1, 2]);
        let texts: Vec<_> = batch.column(1).as_string_view().iter().collect();
        assert_eq!(texts, [Some("x"), None]);
        assert!(read("", true).unwrap().is_empty());
    }

    #[test]
    fn errors_tell_the_line() {
        let error = read("1,a\n\"2\",b\nz,c\n", false).unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("'z'"), "{error}");
        let error = read("1,a\n2\n", false).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
