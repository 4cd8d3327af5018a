//! Results on their way to people and programs: one file per output mode, each a [`Renderer`] that
//! takes the batches as they come. All but the table keep nothing of what they have written.

mod csv;
mod delimited;
mod json;
mod json_value;
mod line;
mod markdown;
mod mode;
mod plan;
mod table;
mod table_layout;
pub mod target;
pub mod text;
pub mod units;

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use crate::error::ShellError;

pub use mode::Mode;
pub use table_layout::Borders;

/// How results look.
#[derive(Clone, Debug)]
pub struct Style {
    /// The form of the output.
    pub mode: Mode,
    /// Whether csv, list and tabs begin with a line of column names.
    pub headers: bool,
    /// What stands for NULL; none: what is usual in the mode.
    pub null: Option<String>,
    /// Most rows that a table shows; 0: all.
    pub max_rows: usize,
    /// Characters that a table may be wide; none: as wide as it gets.
    pub max_width: Option<usize>,
    /// Characters that single columns of a table may be wide, from the left; 0: no limit of its own.
    pub column_widths: Vec<usize>,
    /// Whether a table marks its header and NULLs by colour.
    pub colors: bool,
}

impl Style {
    /// What stands for NULL: what the user chose, or else `usual`.
    fn null_or(&self, usual: &str) -> String {
        self.null.clone().unwrap_or_else(|| usual.to_owned())
    }
}

/// Writes one result.
pub trait Renderer {
    /// Takes the next rows, in order.
    ///
    /// # Errors
    /// If they cannot be written, or a value cannot be shown.
    fn batch(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<(), ShellError>;

    /// Writes what comes after the last row.
    ///
    /// # Errors
    /// If it cannot be written.
    fn finish(&mut self, out: &mut dyn Write) -> Result<(), ShellError>;

    /// Whether rows are written as they come; else only at the end.
    fn streams(&self) -> bool {
        true
    }
}

/// The renderer for a result with columns as in `schema`.
pub fn renderer(schema: SchemaRef, style: &Style) -> Box<dyn Renderer> {
    match style.mode {
        Mode::Table | Mode::Ascii if plan::Plan::fits(&schema) => Box::new(plan::Plan),
        Mode::Table => Box::new(table::Table::new(schema, style, Borders::BOX)),
        Mode::Ascii => Box::new(table::Table::new(schema, style, Borders::ASCII)),
        Mode::Csv => Box::new(csv::Csv::new(schema, style)),
        Mode::Json => Box::new(json::Json::array(schema)),
        Mode::JsonLines => Box::new(json::Json::lines(schema)),
        Mode::Markdown => Box::new(markdown::Markdown::new(schema, style)),
        Mode::Line => Box::new(line::Line::new(schema, style)),
        Mode::List => Box::new(delimited::Delimited::list(schema, style)),
        Mode::Tabs => Box::new(delimited::Delimited::tabs(schema, style)),
    }
}
