//! A Markdown table, row by row and therefore not padded.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::{Renderer, Style, text};
use crate::error::ShellError;

/// Writes Markdown.
pub struct Markdown {
    schema: SchemaRef,
    header_due: bool,
    null: String,
}

impl Markdown {
    /// For a result with columns as in `schema`.
    pub fn new(schema: SchemaRef, style: &Style) -> Markdown {
        Markdown { schema, header_due: true, null: style.null_or("NULL") }
    }

    fn header(&mut self, out: &mut dyn Write) -> Result<(), ShellError> {
        if !std::mem::take(&mut self.header_due) || self.schema.fields().is_empty() {
            return Ok(());
        }
        let mut names = String::from("|");
        let mut rule = String::from("|");
        for field in self.schema.fields() {
            names.push_str(&format!(" {} |", escaped(field.name())));
            let right = text::is_right_aligned(field.data_type());
            rule.push_str(if right { "---:|" } else { "---|" });
        }
        writeln!(out, "{names}\n{rule}")?;
        Ok(())
    }
}

impl Renderer for Markdown {
    fn batch(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<(), ShellError> {
        self.header(out)?;
        let columns = text::columns(batch)?;
        for row in 0..batch.num_rows() {
            let mut line = String::from("|");
            for column in &columns {
                let value = column.get(row)?;
                line.push_str(&format!(" {} |", escaped(value.as_ref().unwrap_or(&self.null))));
            }
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), ShellError> {
        self.header(out)
    }
}

/// `value` as the content of one cell.
fn escaped(value: &str) -> String {
    let lines = value.replace('|', "\\|").replace("\r\n", "\n").replace('\n', "<br>");
    text::one_line(&lines).into_owned()
}
