//! CSV: values between delimiters, a record per line.
//!
//! [`open`] looks at files and makes readers of them. `dialect.rs` tells how characters are meant, `sniff.rs` where records
//! begin and what columns there are, `kinds.rs` of which type values are, `check.rs` looks at all of them where a sample will
//! not do. `lex.rs` cuts text into records and fields, `reader.rs` files into pieces of whole records, which `columns.rs`
//! makes arrays of. `stream.rs` reads what is no file.

mod check;
mod columns;
mod dialect;
mod header;
mod kinds;
mod lex;
mod options;
mod reader;
mod sniff;
mod stream;
mod table;
mod times;
mod values;

use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, TimeUnit};

pub use columns::is_native;
pub use options::{ColumnKey, CsvOptions};
pub use reader::CsvFile;
pub use stream::{CsvStream, StreamOptions};
pub use table::{CsvTable, Description, FirstRecord, open};
pub use times::TimeFormat;

/// Texts in the type that says most about them, as values of a CSV column would be read.
pub fn typed(texts: &[Option<&str>]) -> ArrayRef {
    let candidates = texts.iter().flatten().map(|text| kinds::Candidates::of(text, b'.'));
    let told = candidates.fold(kinds::Candidates::ALL, kinds::Candidates::meet).told();
    let strings: ArrayRef = Arc::new(StringViewArray::from(texts.to_vec()));
    // Dates in other orders than ISO's stay texts.
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(&strings, &told.data_type, &options).unwrap_or(strings)
}

/// A type's name in messages.
fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "BOOLEAN".to_owned(),
        DataType::Int8 => "TINYINT".to_owned(),
        DataType::Int16 => "SMALLINT".to_owned(),
        DataType::Int32 => "INTEGER".to_owned(),
        DataType::Int64 => "BIGINT".to_owned(),
        DataType::UInt8 => "TINYINT UNSIGNED".to_owned(),
        DataType::UInt16 => "SMALLINT UNSIGNED".to_owned(),
        DataType::UInt32 => "INTEGER UNSIGNED".to_owned(),
        DataType::UInt64 => "BIGINT UNSIGNED".to_owned(),
        DataType::Float32 => "REAL".to_owned(),
        DataType::Float64 => "DOUBLE".to_owned(),
        DataType::Date32 => "DATE".to_owned(),
        DataType::Time32(_) | DataType::Time64(_) => "TIME".to_owned(),
        DataType::Utf8 | DataType::Utf8View => "VARCHAR".to_owned(),
        DataType::Decimal128(precision, scale) => format!("DECIMAL({precision},{scale})"),
        DataType::Timestamp(unit, zone) => {
            let digits = match unit {
                TimeUnit::Second => "(0)",
                TimeUnit::Millisecond => "(3)",
                TimeUnit::Microsecond => "",
                TimeUnit::Nanosecond => "(9)",
            };
            let zone = if zone.is_some() { " WITH TIME ZONE" } else { "" };
            format!("TIMESTAMP{digits}{zone}")
        }
        other => other.to_string(),
    }
}
