//! What EXPLAIN returns, as the lines that it consists of: a plan in a box would be cut.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;

use super::{Renderer, text};
use crate::error::ShellError;

/// Writes plans.
pub struct Plan;

impl Plan {
    /// Whether a result with columns as in `schema` is what EXPLAIN returns.
    pub fn fits(schema: &Schema) -> bool {
        let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        names == ["plan_type", "plan"]
    }
}

impl Renderer for Plan {
    fn batch(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<(), ShellError> {
        let columns = text::columns(batch)?;
        for row in 0..batch.num_rows() {
            let [kind, plan] = [&columns[0], &columns[1]].map(|column| column.get(row));
            writeln!(out, "{}", text::one_line(&kind?.unwrap_or_default()))?;
            for line in plan?.unwrap_or_default().lines() {
                writeln!(out, "  {}", text::one_line(line))?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut dyn Write) -> Result<(), ShellError> {
        Ok(())
    }
}
