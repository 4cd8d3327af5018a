//! Results as text.

use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use weft_sql::Result;

/// The rows of batches, each value as text; NULL as `NULL`.
///
/// # Errors
/// If a value cannot be shown, such as a date beyond the calendar.
pub fn to_text(batches: &[RecordBatch]) -> Result<Vec<Vec<String>>> {
    let options = FormatOptions::default().with_null("NULL").with_display_error(false);
    let mut rows = Vec::new();
    for batch in batches {
        let formatters = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
            .collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            let values = formatters
                .iter()
                .map(|formatter| formatter.value(row).try_to_string())
                .collect::<Result<Vec<_>, _>>()?;
            rows.push(values);
        }
    }
    Ok(rows)
}
