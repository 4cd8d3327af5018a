//! Comma-separated values as in RFC 4180, in lines that end with a line feed. A NULL is an empty
//! field, an empty string one in quotes.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::{Renderer, Style, text};
use crate::error::ShellError;

/// Writes CSV.
pub struct Csv {
    schema: SchemaRef,
    header_due: bool,
    null: String,
}

impl Csv {
    /// For a result with columns as in `schema`.
    pub fn new(schema: SchemaRef, style: &Style) -> Csv {
        Csv { schema, header_due: style.headers, null: style.null_or("") }
    }

    fn header(&mut self, line: &mut String) {
        if std::mem::take(&mut self.header_due) && !self.schema.fields().is_empty() {
            for (index, field) in self.schema.fields().iter().enumerate() {
                line.push_str(if index == 0 { "" } else { "," });
                append_field(field.name(), &self.null, line);
            }
            line.push('\n');
        }
    }
}

impl Renderer for Csv {
    fn batch(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<(), ShellError> {
        let mut line = String::new();
        let mut value = String::new();
        self.header(&mut line);
        let columns = text::columns(batch)?;
        for row in 0..batch.num_rows() {
            for (index, column) in columns.iter().enumerate() {
                line.push_str(if index == 0 { "" } else { "," });
                value.clear();
                if column.append(row, &mut value)? {
                    append_field(&value, &self.null, &mut line);
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

/// Appends `value`, in quotes if it needs them or could be taken for a NULL.
fn append_field(value: &str, null: &str, line: &mut String) {
    let special = |c: char| matches!(c, ',' | '"' | '\n' | '\r');
    if value == null || value.contains(special) || value.starts_with(' ') || value.ends_with(' ') {
        line.push('"');
        line.push_str(&value.replace('"', "\"\""));
        line.push('"');
    } else {
        line.push_str(value);
    }
}
