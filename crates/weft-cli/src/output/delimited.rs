//! Values with a separator between them: `|` as it is, or tabs with `\t`, `\n` and `\\` for what
//! would break a line.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::{Renderer, Style, text};
use crate::error::ShellError;

/// Writes separated values.
pub struct Delimited {
    schema: SchemaRef,
    header_due: bool,
    null: String,
    separator: char,
    escapes: bool,
}

impl Delimited {
    /// Values separated by `|`.
    pub fn list(schema: SchemaRef, style: &Style) -> Delimited {
        let (header_due, null) = (style.headers, style.null_or(""));
        Delimited { schema, header_due, null, separator: '|', escapes: false }
    }

    /// Values separated by tabs.
    pub fn tabs(schema: SchemaRef, style: &Style) -> Delimited {
        let (header_due, null) = (style.headers, style.null_or("\\N"));
        Delimited { schema, header_due, null, separator: '\t', escapes: true }
    }

    fn append(&self, value: &str, line: &mut String) {
        if !self.escapes {
            line.push_str(value);
            return;
        }
        for c in value.chars() {
            match c {
                '\t' => line.push_str("\\t"),
                '\n' => line.push_str("\\n"),
                '\r' => line.push_str("\\r"),
                '\\' => line.push_str("\\\\"),
                c => line.push(c),
            }
        }
    }

    fn header(&mut self, line: &mut String) {
        if std::mem::take(&mut self.header_due) {
            for (index, field) in self.schema.fields().iter().enumerate() {
                if index > 0 {
                    line.push(self.separator);
                }
                self.append(field.name(), line);
            }
            line.push('\n');
        }
    }
}

impl Renderer for Delimited {
    fn batch(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<(), ShellError> {
        let mut line = String::new();
        let mut value = String::new();
        self.header(&mut line);
        let columns = text::columns(batch)?;
        for row in 0..batch.num_rows() {
            for (index, column) in columns.iter().enumerate() {
                if index > 0 {
                    line.push(self.separator);
                }
                value.clear();
                if column.append(row, &mut value)? {
                    self.append(&value, &mut line);
                } else {
                    line.push_str(&self.null);
                }
            }
            line.push('\n');
            out.write_all(line.as_bytes())?;
            line.clear();
        }
        out.write_all(line.as_bytes())?;
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), ShellError> {
        let mut line = String::new();
        self.header(&mut line);
        out.write_all(line.as_bytes())?;
        Ok(())
    }
}
