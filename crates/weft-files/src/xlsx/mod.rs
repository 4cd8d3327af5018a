//! Excel workbooks (`.xlsx`, `.xlsm`): one sheet, or a range of its cells, as a table.
//!
//! A workbook is a zip archive of XML. `archive.rs` finds its parts and unpacks each as a stream, `workbook.rs` reads what cells refer to
//! (names of sheets, shared texts, formats of numbers), `rows.rs` reads the cells of a sheet row by row, `cell.rs` makes values of them. The sheet is
//! gone through twice: for the types of its columns, and for the rows.
//!
//! Whatever the file says, what is in memory is bounded: parts are streams, an element or a text of XML has an end within
//! `archive::EVENT_BYTES_MAX`, shared texts count against the reader's limit, and what unpacks to a multiple of its size
//! that no sheet has is an error.

mod archive;
mod cell;
mod columns;
mod range;
mod rows;
#[cfg(test)]
mod tests;
mod workbook;

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};

use crate::error::{FilesError, Result};
use crate::input::Input;
use crate::names::distinct;
use crate::source::{FileReader, Piece, Pieces, ReadPlan, TypesFrom};

use cell::{Cell, Kind};
use columns::ColumnBuilder;
pub use range::CellRange;
use rows::{Row, SheetRows};
use workbook::Workbook;

/// How a workbook is read, where that is said.
#[derive(Clone, Debug, Default)]
pub struct XlsxOptions {
    /// The sheet's name; the first one.
    pub sheet: Option<String>,
    /// The cells; from the first row with values on, as wide as that is.
    pub range: Option<CellRange>,
    /// Whether the first row has names; if it has nothing but texts.
    pub header: Option<bool>,
    /// All columns are texts.
    pub all_text: bool,
    /// Cells that are errors are NULL.
    pub ignore_errors: bool,
    /// Columns without values are texts, not numbers.
    pub empty_as_text: bool,
    /// A row without values ends the table; so it does unless a range is said.
    pub stop_at_empty: Option<bool>,
}

/// A sheet as a table.
#[derive(Debug)]
pub struct XlsxFile {
    input: Input,
    options: XlsxOptions,
    workbook: Arc<Workbook>,
    /// The number of the sheet.
    sheet: usize,
    extent: Extent,
    kinds: Vec<Kind>,
    schema: SchemaRef,
}

/// Where the table lies in its sheet. Rows and columns count from 0.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// The first row, be it of names or of values.
    first_row: u32,
    /// The last row that may be one of the table.
    last_row: u32,
    first_column: u32,
    last_column: u32,
    has_header: bool,
    stops_at_empty: bool,
}

impl XlsxFile {
    /// Opens a workbook and looks at all cells of the table. What its texts take may be `memory_bytes_max`.
    ///
    /// # Errors
    /// [`FilesError::Data`] for what is no workbook, is damaged, or lacks the sheet.
    pub fn open(input: Input, options: XlsxOptions, memory_bytes_max: u64) -> Result<XlsxFile> {
        let workbook = Arc::new(Workbook::open(&input, memory_bytes_max)?);
        let sheet = workbook.sheet(&input, options.sheet.as_deref())?;
        let mut rows = SheetRows::open(&input, &workbook, sheet)?;
        let mut looked_at =
            LookedAt { options: &options, extent: None, kinds: Vec::new(), next_row: 0 };
        let mut names = Vec::new();
        let mut row = Row::default();
        while rows.next_row(&mut row)? {
            if !looked_at.look(&row, &mut names) {
                break;
            }
        }
        let LookedAt { extent, kinds, .. } = looked_at;
        let Some(extent) = extent else {
            let name = &workbook.sheets[sheet].name;
            let problem = format!("the sheet '{name}' has no values where they are looked for");
            return Err(FilesError::data(input.path(), None, problem));
        };
        distinct(&mut names);
        let kinds: Vec<Kind> = kinds.into_iter().map(|kind| kind.column(&options)).collect();
        let fields = names.iter().zip(&kinds).map(|(name, kind)| {
            // Excel knows no NOT NULL.
            Field::new(name, kind.data_type(), true)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(XlsxFile { input, options, workbook, sheet, extent, kinds, schema })
    }
}

/// What was seen of a table so far.
struct LookedAt<'a> {
    options: &'a XlsxOptions,
    extent: Option<Extent>,
    kinds: Vec<Kind>,
    /// The number of the row that would come next.
    next_row: u32,
}

impl LookedAt<'_> {
    /// Looks at a row; false if the table has ended.
    fn look(&mut self, row: &Row, names: &mut Vec<String>) -> bool {
        let expected = std::mem::replace(&mut self.next_row, row.number + 1);
        let Some(extent) = self.extent else {
            let Some(mut extent) = self.begin(row) else {
                return self.options.range.is_none_or(|range| row.number <= range.last_row);
            };
            let width = (extent.last_column - extent.first_column + 1) as usize;
            self.kinds = vec![Kind::Empty; width];
            let cells = || (extent.first_column..=extent.last_column).map(|at| row.cell(at));
            extent.has_header = self
                .options
                .header
                .unwrap_or_else(|| cells().all(|cell| matches!(cell, Some(Cell::Text(_)))));
            let place = |column: usize| {
                range::cell_name(extent.first_row, extent.first_column + column as u32)
            };
            let named = cells().enumerate().map(|(column, cell)| match cell {
                Some(cell) if extent.has_header && !matches!(cell, Cell::Empty) => cell.text(),
                _ => place(column),
            });
            *names = named.collect();
            if !extent.has_header {
                self.widen(row, extent);
            }
            self.extent = Some(extent);
            return true;
        };
        // Rows that the file does not have are empty.
        let is_empty = row.number > expected || extent.is_empty(row);
        if row.number > extent.last_row || (extent.stops_at_empty && is_empty) {
            return false;
        }
        self.widen(row, extent);
        true
    }

    /// Where a table lies whose first row may be this one.
    fn begin(&self, row: &Row) -> Option<Extent> {
        let stops_at_empty = self.options.stop_at_empty;
        if let Some(range) = self.options.range {
            let is_within = (range.first_row..=range.last_row).contains(&row.number);
            // A range without a last column is as wide as its first row.
            let width = row.cells.last().map_or(range.first_column, |(column, _)| *column);
            let last_column = match range.last_column {
                range::COLUMN_MAX => width.max(range.first_column),
                told => told,
            };
            return is_within.then_some(Extent {
                first_row: row.number,
                last_row: range.last_row,
                first_column: range.first_column,
                last_column,
                has_header: false,
                stops_at_empty: stops_at_empty.unwrap_or(false),
            });
        }
        let has_value = |(_, cell): &&(u32, Cell)| !matches!(cell, Cell::Empty);
        let mut with_values = row.cells.iter().filter(has_value).map(|(column, _)| *column);
        let first_column = with_values.next()?;
        let beside = (first_column + 1..).zip(with_values);
        let last_column = beside.take_while(|(next, column)| next == column).last();
        Some(Extent {
            first_row: row.number,
            last_row: u32::MAX,
            first_column,
            last_column: last_column.map_or(first_column, |(column, _)| column),
            has_header: false,
            stops_at_empty: stops_at_empty.unwrap_or(true),
        })
    }

    fn widen(&mut self, row: &Row, extent: Extent) {
        for (column, cell) in &row.cells {
            if (extent.first_column..=extent.last_column).contains(column) {
                let kind = &mut self.kinds[(column - extent.first_column) as usize];
                *kind = kind.with(cell.kind());
            }
        }
    }
}

impl Extent {
    /// True if a row has no values within the table.
    fn is_empty(&self, row: &Row) -> bool {
        let is_within = |column: u32| (self.first_column..=self.last_column).contains(&column);
        !row.cells.iter().any(|(column, cell)| is_within(*column) && !matches!(cell, Cell::Empty))
    }
}

impl FileReader for XlsxFile {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn types_from(&self) -> TypesFrom {
        TypesFrom::Certain
    }

    fn bytes(&self) -> u64 {
        self.input.bytes()
    }

    fn open(&self, plan: &ReadPlan) -> Result<Box<dyn Pieces>> {
        let rows = SheetRows::open(&self.input, &self.workbook, self.sheet)?;
        let fields = |column: &usize| self.schema.field(*column).clone();
        let schema = Arc::new(Schema::new(plan.projection.iter().map(fields).collect::<Vec<_>>()));
        Ok(Box::new(XlsxPieces {
            input: self.input.clone(),
            sheet: self.workbook.sheets[self.sheet].name.clone(),
            kinds: plan.projection.iter().map(|column| self.kinds[*column]).collect(),
            columns: plan
                .projection
                .iter()
                .map(|column| self.extent.first_column + *column as u32)
                .collect(),
            extent: self.extent,
            ignores_errors: self.options.ignore_errors,
            all_text: self.options.all_text,
            batch_rows: plan.batch_rows.max(1),
            schema,
            rows,
            next_row: self.extent.first_row + u32::from(self.extent.has_header),
            pending: None,
            is_over: false,
        }))
    }
}

/// The rows of a table as they are read.
struct XlsxPieces {
    input: Input,
    sheet: String,
    schema: SchemaRef,
    /// The columns that are wanted, and what they hold.
    columns: Vec<u32>,
    kinds: Vec<Kind>,
    extent: Extent,
    ignores_errors: bool,
    /// Errors are texts, as all cells are.
    all_text: bool,
    batch_rows: usize,
    rows: SheetRows,
    /// The number of the next row of the table, which the file need not have.
    next_row: u32,
    /// A row that was read, behind rows that the file does not have.
    pending: Option<Row>,
    is_over: bool,
}

impl XlsxPieces {
    /// The next row of the table; `None` at its end.
    fn next_row(&mut self, row: &mut Row) -> Result<bool> {
        loop {
            if self.is_over {
                return Ok(false);
            }
            let found = match self.pending.take() {
                Some(pending) => {
                    *row = pending;
                    true
                }
                None => self.rows.next_row(row)?,
            };
            if !found {
                self.is_over = true;
                return Ok(false);
            }
            if row.number < self.next_row {
                continue;
            }
            if row.number > self.extent.last_row {
                self.is_over = true;
                return Ok(false);
            }
            if row.number > self.next_row {
                // Rows that the file does not have are empty.
                if self.extent.stops_at_empty {
                    self.is_over = true;
                    return Ok(false);
                }
                self.pending = Some(std::mem::take(row));
                row.number = self.next_row;
                self.next_row += 1;
                return Ok(true);
            }
            self.next_row += 1;
            if self.extent.stops_at_empty && self.extent.is_empty(row) {
                self.is_over = true;
                return Ok(false);
            }
            return Ok(true);
        }
    }
}

impl Pieces for XlsxPieces {
    fn next_piece(&mut self) -> Result<Option<Box<dyn Piece>>> {
        let mut builders: Vec<ColumnBuilder> =
            self.kinds.iter().map(|kind| ColumnBuilder::new(*kind)).collect();
        let (mut count, mut row) = (0, Row::default());
        let before = self.rows.read_bytes();
        while count < self.batch_rows && self.next_row(&mut row)? {
            for (builder, column) in builders.iter_mut().zip(&self.columns) {
                let cell = row.cell(*column).unwrap_or(&Cell::Empty);
                let as_text = match cell {
                    Cell::Error(error) if self.all_text => Some(Cell::Text(error.clone())),
                    _ => None,
                };
                let cell = as_text.as_ref().unwrap_or(cell);
                if let Err(problem) = builder.push(cell, self.ignores_errors) {
                    let place = range::cell_name(row.number, *column);
                    let problem = format!("sheet '{}', cell {place}: {problem}", self.sheet);
                    return Err(FilesError::data(self.input.path(), None, problem).with_hint(
                        "read such cells as NULL with ignore_errors = true, or all as texts with all_varchar = true",
                    ));
                }
            }
            count += 1;
        }
        if count == 0 {
            return Ok(None);
        }
        let arrays = builders.into_iter().map(ColumnBuilder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let batch =
            RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
                .map_err(|error| FilesError::data(self.input.path(), None, error.to_string()))?;
        let bytes = self.rows.read_bytes() - before;
        Ok(Some(Box::new(XlsxPiece { batch, bytes: usize::try_from(bytes).unwrap_or(usize::MAX) })))
    }
}

/// Rows that were read.
struct XlsxPiece {
    batch: RecordBatch,
    bytes: usize,
}

impl Piece for XlsxPiece {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn decode(self: Box<Self>) -> Result<Vec<RecordBatch>> {
        Ok(vec![self.batch])
    }
}
