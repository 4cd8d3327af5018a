//! Looks at all values of a file, to know types that all of them fit.

use std::sync::Arc;

use super::kinds::Candidates;
use super::options::CsvOptions;
use super::reader::{CsvFile, Records};
use super::sniff::{Sniffed, narrow_field};
use super::table::layout;
use crate::error::Result;

/// Bytes that are looked at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Looks at all values.
///
/// # Errors
/// If the file cannot be read, or has lines that are no records.
pub(crate) fn check_all(sniffed: &mut Sniffed, options: &CsvOptions) -> Result<()> {
    let texts =
        CsvOptions { all_text: true, types: Vec::new(), types_are_all: false, ..options.clone() };
    let layout = Arc::new(layout(sniffed, &sniffed.candidates, &texts)?);
    let file = CsvFile { layout: Arc::clone(&layout) };
    let mut cuts = file.cuts(PIECE_BYTES)?;
    let width = sniffed.candidates.len();
    let mut columns = vec![Candidates::ALL; width];
    while let Some(cut) = cuts.next_cut()? {
        let records = Records::of(&layout, &cut)?;
        for record in records.fields.chunks_exact(width) {
            for (column, field) in columns.iter_mut().zip(record) {
                narrow_field(column, records.text.as_bytes(), *field, options);
            }
        }
    }
    sniffed.candidates = columns;
    sniffed.is_whole = true;
    Ok(())
}
