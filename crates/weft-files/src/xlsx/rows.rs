//! The rows of a sheet, as they lie in its part.

use std::fmt;
use std::sync::Arc;

use quick_xml::events::Event;

use super::archive::Xml;
use super::cell::{Cell, Format};
use super::range::{COLUMN_MAX, ROW_MAX, cell_name, cell_of, row_of};
use super::workbook::{Workbook, append, attribute, read_text};
use crate::error::{FilesError, Result, shortened};
use crate::input::Input;

/// A row that a file has: its number, and its cells in the order of their columns.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) number: u32,
    pub(super) cells: Vec<(u32, Cell)>,
}

impl Row {
    /// The cell of a column.
    pub(super) fn cell(&self, column: u32) -> Option<&Cell> {
        let at = self.cells.binary_search_by_key(&column, |(column, _)| *column).ok()?;
        Some(&self.cells[at].1)
    }
}

/// Reads a sheet.
pub(super) struct SheetRows {
    input: Input,
    sheet: String,
    workbook: Arc<Workbook>,
    xml: Xml,
    /// The number of the next row that does not say its own.
    next_row: u32,
    is_over: bool,
}

impl fmt::Debug for SheetRows {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SheetRows({})", self.sheet)
    }
}

/// What an element `c` says of itself.
struct Told {
    row: u32,
    column: u32,
    kind: CellKind,
    format: Format,
}

/// How a cell's value is written.
#[derive(Clone, Copy, Debug)]
enum CellKind {
    Number,
    /// The number of a text that cells share.
    Shared,
    Text,
    Bool,
    Error,
    /// A date of ISO 8601.
    Iso,
}

impl CellKind {
    fn of(name: &[u8]) -> CellKind {
        match name {
            b"s" => CellKind::Shared,
            b"str" | b"inlineStr" => CellKind::Text,
            b"b" => CellKind::Bool,
            b"e" => CellKind::Error,
            b"d" => CellKind::Iso,
            _ => CellKind::Number,
        }
    }
}

/// A number of a few digits.
fn number_of(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl SheetRows {
    /// Begins to read a sheet.
    ///
    /// # Errors
    /// If its part is missing.
    pub(super) fn open(input: &Input, workbook: &Arc<Workbook>, sheet: usize) -> Result<SheetRows> {
        let found = &workbook.sheets[sheet];
        Ok(SheetRows {
            input: input.clone(),
            sheet: found.name.clone(),
            xml: workbook.archive.needed_part(&found.part)?,
            workbook: Arc::clone(workbook),
            next_row: 0,
            is_over: false,
        })
    }

    /// Bytes of the sheet that were read, unpacked.
    pub(super) fn read_bytes(&self) -> u64 {
        self.xml.unpacked_bytes()
    }

    /// Reads the next row that the file has; false at the end.
    ///
    /// # Errors
    /// If the part is damaged, or rows or cells do not come in order.
    pub(super) fn next_row(&mut self, row: &mut Row) -> Result<bool> {
        row.cells.clear();
        while !self.is_over {
            match self.xml.next()? {
                Event::Start(element) if element.local_name().as_ref() == b"row" => {
                    let number = match attribute(&element, "r") {
                        Some(text) => row_of(text.as_bytes()),
                        None => Some(self.next_row),
                    };
                    let number = number.filter(|number| (self.next_row..=ROW_MAX).contains(number));
                    let Some(number) = number else {
                        return Err(self.xml.wrong("its rows do not come in order"));
                    };
                    row.number = number;
                    self.next_row = number + 1;
                    self.read_cells(row)?;
                    return Ok(true);
                }
                Event::End(element) if element.local_name().as_ref() == b"sheetData" => {
                    self.is_over = true;
                }
                Event::Eof => return Err(self.xml.wrong("it ends within the cells")),
                _ => {}
            }
        }
        Ok(false)
    }

    fn read_cells(&mut self, row: &mut Row) -> Result<()> {
        let mut next_column = 0;
        loop {
            let told = match self.xml.next()? {
                Event::Start(element) if element.local_name().as_ref() == b"c" => {
                    let (mut place, mut style) = (Some((row.number, next_column)), 0);
                    let mut kind = CellKind::Number;
                    // Once through them, without a copy: a sheet consists of these.
                    for attribute in element.attributes().with_checks(false).flatten() {
                        match attribute.key.as_ref() {
                            b"r" => place = cell_of(&attribute.value),
                            b"s" => style = number_of(&attribute.value).unwrap_or(0),
                            b"t" => kind = CellKind::of(&attribute.value),
                            _ => {}
                        }
                    }
                    let is_in_order = |(at, column): &(u32, u32)| {
                        *at == row.number && (next_column..=COLUMN_MAX).contains(column)
                    };
                    let Some((row, column)) = place.filter(is_in_order) else {
                        return Err(self.xml.wrong("its cells do not come in order"));
                    };
                    let format = self.workbook.formats.get(style).copied().unwrap_or_default();
                    Told { row, column, kind, format }
                }
                Event::End(element) if element.local_name().as_ref() == b"row" => return Ok(()),
                Event::Eof => return Err(self.xml.wrong("it ends within a row")),
                _ => continue,
            };
            next_column = told.column + 1;
            let cell = self.read_cell(&told)?;
            if !matches!(cell, Cell::Empty) {
                row.cells.push((told.column, cell));
            }
        }
    }

    /// Reads what a cell has, up to its end.
    fn read_cell(&mut self, told: &Told) -> Result<Cell> {
        let (mut value, mut has_value, mut is_value) = (String::new(), false, false);
        loop {
            match self.xml.next()? {
                Event::Start(element) => match element.local_name().as_ref() {
                    b"v" => (is_value, has_value) = (true, true),
                    b"is" => {
                        has_value = true;
                        read_text(&mut self.xml, b"is", &mut value)?;
                    }
                    _ => {}
                },
                Event::End(element) => match element.local_name().as_ref() {
                    b"v" => is_value = false,
                    b"c" => break,
                    _ => {}
                },
                Event::Eof => return Err(self.xml.wrong("it ends within a cell")),
                event if is_value => append(&event, &mut value),
                _ => {}
            }
            if value.len() as u64 > super::archive::EVENT_BYTES_MAX {
                return Err(self.wrong(told, "its text is too long"));
            }
        }
        if !has_value {
            return Ok(Cell::Empty);
        }
        self.cell_of(told, value)
    }

    fn cell_of(&self, told: &Told, value: String) -> Result<Cell> {
        let text = |text: String| if text.is_empty() { Cell::Empty } else { Cell::Text(text) };
        Ok(match told.kind {
            CellKind::Shared => {
                let number = value.trim().parse().ok();
                let found = number.and_then(|number| self.workbook.texts.get(number));
                let found = found.ok_or_else(|| self.wrong(told, "its text is missing"))?;
                text(found.to_owned())
            }
            CellKind::Text => text(value),
            CellKind::Bool => match value.trim() {
                "1" | "true" => Cell::Bool(true),
                "0" | "false" => Cell::Bool(false),
                "" => Cell::Empty,
                other => return Err(self.no_value(told, other, "a truth value")),
            },
            CellKind::Error => Cell::Error(value),
            CellKind::Iso => match Cell::of_iso(value.trim()) {
                Some(cell) => cell,
                None => return Err(self.no_value(told, &value, "a date")),
            },
            CellKind::Number if value.trim().is_empty() => Cell::Empty,
            CellKind::Number => match value.trim().parse::<f64>() {
                Ok(number) => Cell::of_number(number, told.format, self.workbook.is_1904),
                Err(_) => return Err(self.no_value(told, &value, "a number")),
            },
        })
    }

    fn no_value(&self, told: &Told, value: &str, wanted: &str) -> FilesError {
        self.wrong(told, &format!("'{}' is not {wanted}", shortened(value)))
    }

    fn wrong(&self, told: &Told, problem: &str) -> FilesError {
        let place = cell_name(told.row, told.column);
        let problem = format!("sheet '{}', cell {place}: {problem}", self.sheet);
        FilesError::data(self.input.path(), None, problem)
    }
}
