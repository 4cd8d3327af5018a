//! Rows as JSON objects, in one array or a line each.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::Renderer;
use super::json_value::{Encoder, append_string};
use crate::error::ShellError;

/// Writes JSON.
pub struct Json {
    /// The columns' names as `"name":`.
    keys: Vec<String>,
    /// Whether the objects stand in an array.
    array: bool,
    rows: u64,
}

impl Json {
    /// One array of objects.
    pub fn array(schema: SchemaRef) -> Json {
        Json { keys: keys(&schema), array: true, rows: 0 }
    }

    /// An object per line.
    pub fn lines(schema: SchemaRef) -> Json {
        Json { keys: keys(&schema), array: false, rows: 0 }
    }
}

fn keys(schema: &SchemaRef) -> Vec<String> {
    schema
        .fields()
        .iter()
        .map(|field| {
            let mut key = String::new();
            append_string(field.name(), &mut key);
            key.push(':');
            key
        })
        .collect()
}

impl Renderer for Json {
    fn batch(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<(), ShellError> {
        let columns = batch
            .columns()
            .iter()
            .map(|array| Encoder::new(array))
            .collect::<Result<Vec<_>, _>>()?;
        let mut line = String::new();
        for row in 0..batch.num_rows() {
            line.clear();
            line.push_str(match (self.array, self.rows) {
                (true, 0) => "[",
                (true, _) => ",\n",
                (false, _) => "",
            });
            self.rows += 1;
            line.push('{');
            for (index, (key, column)) in self.keys.iter().zip(&columns).enumerate() {
                line.push_str(if index == 0 { "" } else { "," });
                line.push_str(key);
                column.append(row, &mut line)?;
            }
            line.push('}');
            line.push_str(if self.array { "" } else { "\n" });
            out.write_all(line.as_bytes())?;
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), ShellError> {
        if self.array {
            writeln!(out, "{}", if self.rows == 0 { "[]" } else { "]" })?;
        }
        Ok(())
    }
}
