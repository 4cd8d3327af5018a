//! A line per value with the column's name before it, and an empty line between rows.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::{Renderer, Style, text};
use crate::error::ShellError;

/// Writes values one below the other.
pub struct Line {
    /// The columns' names, aligned at the right.
    names: Vec<String>,
    null: String,
    rows: u64,
}

impl Line {
    /// For a result with columns as in `schema`.
    pub fn new(schema: SchemaRef, style: &Style) -> Line {
        let names: Vec<_> =
            schema.fields().iter().map(|field| text::one_line(field.name()).into_owned()).collect();
        let widest = names.iter().map(|name| text::width(name)).max().unwrap_or(0);
        let aligned = names
            .iter()
            .map(|name| format!("{:1$}{name}", "", widest - text::width(name)))
            .collect();
        Line { names: aligned, null: style.null_or("NULL"), rows: 0 }
    }
}

impl Renderer for Line {
    fn batch(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<(), ShellError> {
        let columns = text::columns(batch)?;
        for row in 0..batch.num_rows() {
            if self.rows > 0 {
                writeln!(out)?;
            }
            self.rows += 1;
            for (name, column) in self.names.iter().zip(&columns) {
                match column.get(row)? {
                    Some(value) => writeln!(out, "{name} = {}", text::one_line(&value))?,
                    None => writeln!(out, "{name} = {}", self.null)?,
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut dyn Write) -> Result<(), ShellError> {
        Ok(())
    }
}
