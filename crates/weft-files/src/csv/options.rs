//! What may be said of CSV files; what is not said is told from the file.

use arrow::datatypes::DataType;

use super::times::TimeFormat;
use crate::input::{Compression, Encoding};

/// Bytes of a record, at most, where nothing else is said.
pub(crate) const RECORD_BYTES_MAX: usize = 32 << 20;

/// How CSV files are to be read.
#[derive(Clone, Debug, Default)]
pub struct CsvOptions {
    /// The byte between fields.
    pub delimiter: Option<u8>,
    /// The byte around fields; `Some(None)` if there is none.
    pub quote: Option<Option<u8>>,
    /// The byte before a quote that belongs to the text; `Some(None)` if there is none.
    pub escape: Option<Option<u8>>,
    /// The byte that begins comments; `Some(None)` if there are none.
    pub comment: Option<Option<u8>>,
    /// Whether the first record has the columns' names.
    pub header: Option<bool>,
    /// Lines before the first record.
    pub skip: Option<usize>,
    /// Texts that stand for NULL.
    pub nulls: Option<Vec<String>>,
    /// Names for the columns, from the first on.
    pub names: Vec<String>,
    /// Types of columns.
    pub types: Vec<(ColumnKey, DataType)>,
    /// The types are those of all columns, in order, and name them.
    pub types_are_all: bool,
    /// All columns that have no other type are texts.
    pub all_text: bool,
    /// How dates are written.
    pub date_format: Option<TimeFormat>,
    /// How timestamps are written.
    pub timestamp_format: Option<TimeFormat>,
    /// The byte between a number and its fraction.
    pub decimal_separator: Option<u8>,
    /// How characters are encoded.
    pub encoding: Option<Encoding>,
    /// How the file is compressed.
    pub compression: Compression,
    /// Records with fewer fields than others get NULL for the missing ones.
    pub null_padding: bool,
    /// Records that cannot be read are left out.
    pub ignore_errors: bool,
    /// False if anything behind a closing quote, quotes that are not closed, and fields too many are taken as they are.
    pub lenient: bool,
    /// Records from which types are told; `Some(None)` for all of them.
    pub sample_rows: Option<Option<usize>>,
    /// Names get lower case and no special characters.
    pub normalize_names: bool,
    /// Nothing is told from the file but its header.
    pub no_detection: bool,
    /// Bytes of a record, at most.
    pub record_bytes_max: Option<usize>,
    /// Zone of timestamps that have none where a type with zone is asked for.
    pub zone: Option<String>,
}

/// Which column an option speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnKey {
    /// By its name, whatever the case of its letters.
    Name(String),
    /// By its number, from 0 on.
    Number(usize),
}
