//! Aligned columns in a box. Of a result with more rows than a table shows, only the first and the
//! last ones are kept, so that its size does not matter.

use std::collections::VecDeque;
use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::table_layout::{Borders, Place, fit};
use super::{Renderer, Style, text, units};
use crate::error::ShellError;

/// The values of a row; none: NULL.
type Row = Vec<Option<String>>;

/// Draws a table.
pub struct Table {
    schema: SchemaRef,
    style: Style,
    borders: Borders,
    /// The first rows, at most `head_rows`.
    head: Vec<Row>,
    head_rows: usize,
    /// The last rows after those, at most `tail_rows`.
    tail: VecDeque<Row>,
    tail_rows: usize,
    rows: u64,
}

impl Table {
    /// For a result with columns as in `schema`.
    pub fn new(schema: SchemaRef, style: &Style, borders: Borders) -> Table {
        let (head_rows, tail_rows) = match style.max_rows {
            0 => (usize::MAX, 0),
            most => (most.div_ceil(2), most / 2),
        };
        let (head, tail) = (Vec::new(), VecDeque::new());
        Table { schema, style: style.clone(), borders, head, head_rows, tail, tail_rows, rows: 0 }
    }

    fn null(&self) -> String {
        self.style.null_or("NULL")
    }

    fn shown_rows(&self) -> impl Iterator<Item = &Row> {
        self.head.iter().chain(&self.tail)
    }

    fn places(&self) -> Vec<Place> {
        let null = text::width(&self.null());
        let cell = |cell: &Option<String>| cell.as_ref().map_or(null, |value| text::width(value));
        let wanted: Vec<usize> = (0..self.schema.fields().len())
            .map(|index| {
                let name = text::width(&text::one_line(self.schema.field(index).name()));
                let widest = self.shown_rows().map(|row| cell(&row[index])).fold(name, usize::max);
                match self.style.column_widths.get(index) {
                    Some(&limit) if limit > 0 => widest.min(limit),
                    _ => widest.max(1),
                }
            })
            .collect();
        fit(&wanted, self.style.max_width)
    }

    fn rule(&self, places: &[Place], [left, between, right]: [char; 3]) -> String {
        let mut line = String::from(left);
        for (index, place) in places.iter().enumerate() {
            if index > 0 {
                line.push(between);
            }
            line.extend(std::iter::repeat_n(self.borders.horizontal, place.width() + 2));
        }
        line.push(right);
        line
    }

    /// One line of the table; `cell` tells what stands in a column and how it is coloured.
    fn line(
        &self,
        places: &[Place],
        cell: impl Fn(usize) -> (String, Option<&'static str>),
    ) -> String {
        let mut line = String::from(self.borders.vertical);
        for place in places {
            let (shown, color, right) = match *place {
                Place::Gap => ("…".to_owned(), None, false),
                Place::Column { index, width } => {
                    let (value, color) = cell(index);
                    let right = text::is_right_aligned(self.schema.field(index).data_type());
                    (text::shortened(&value, width).into_owned(), color, right)
                }
            };
            let padding = " ".repeat(place.width().saturating_sub(text::width(&shown)));
            let (before, after) =
                if right { (padding.as_str(), "") } else { ("", padding.as_str()) };
            line.push_str(&match color.filter(|_| self.style.colors) {
                Some(color) => format!(" {before}\x1b[{color}m{shown}\x1b[0m{after} "),
                None => format!(" {before}{shown}{after} "),
            });
            line.push(self.borders.vertical);
        }
        line
    }

    fn footer(&self, places: &[Place]) -> String {
        let rows = units::counted(self.rows, "row");
        let shown_rows = self.head.len() + self.tail.len();
        let mut words = if (shown_rows as u64) < self.rows {
            format!("{rows}, {shown_rows} shown")
        } else {
            rows
        };
        let columns = self.schema.fields().len();
        let shown_columns = places.iter().filter(|place| **place != Place::Gap).count();
        if shown_columns < columns {
            words.push_str(&format!("; {columns} columns, {shown_columns} shown"));
        }
        words
    }
}

impl Renderer for Table {
    fn batch(&mut self, batch: &RecordBatch, _: &mut dyn Write) -> Result<(), ShellError> {
        let columns = text::columns(batch)?;
        let rows = batch.num_rows();
        let row = |index| -> Result<Row, ShellError> {
            let cell = |value: String| text::one_line(&value).into_owned();
            columns.iter().map(|column| Ok(column.get(index)?.map(cell))).collect()
        };
        let to_head = rows.min(self.head_rows - self.head.len());
        for index in 0..to_head {
            self.head.push(row(index)?);
        }
        for index in to_head.max(rows.saturating_sub(self.tail_rows))..rows {
            if self.tail.len() == self.tail_rows {
                self.tail.pop_front();
            }
            self.tail.push_back(row(index)?);
        }
        self.rows += rows as u64;
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), ShellError> {
        if self.schema.fields().is_empty() {
            writeln!(out, "{}", units::counted(self.rows, "row"))?;
            return Ok(());
        }
        let places = self.places();
        let name = |index: usize| text::one_line(self.schema.field(index).name()).into_owned();
        let null = self.null();
        writeln!(out, "{}", self.rule(&places, self.borders.top))?;
        if self.style.headers {
            writeln!(out, "{}", self.line(&places, |index| (name(index), Some("1"))))?;
            writeln!(out, "{}", self.rule(&places, self.borders.middle))?;
        }
        let all = self.head.len() as u64 + self.tail.len() as u64 == self.rows;
        for (index, row) in self.shown_rows().enumerate() {
            if index == self.head.len() && !all {
                let omitted = |_| (self.borders.rows_omitted.to_owned(), Some("2"));
                writeln!(out, "{}", self.line(&places, omitted))?;
            }
            let cell = |index: usize| match &row[index] {
                Some(value) => (value.clone(), None),
                None => (null.clone(), Some("2")),
            };
            writeln!(out, "{}", self.line(&places, cell))?;
        }
        writeln!(out, "{}", self.rule(&places, self.borders.bottom))?;
        writeln!(out, "{}", self.footer(&places))?;
        Ok(())
    }

    fn streams(&self) -> bool {
        false
    }
}
