//! Where rows of files lie that violate a constraint, or do not fit the table that they are loaded into.
//!
//! A load reads files in parallel, and its commit checks keys, where rows have no places any more: a load that succeeds pays nothing for
//! places. After a failure the files are read once more, in the order of their rows, up to the row that the error is about. That is
//! possible where the rows of the load are rows of files, perhaps some of them, with columns computed of each row by itself.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatchOptions, new_null_array};
use arrow::compute::kernels::cmp::eq;
use arrow::compute::{CastOptions, and, cast_with_options, filter_record_batch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::datasource::listing::ListingTable;
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlan, TableScan};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use url::Url;
use weft_files::{FileReader, Pieces, PlacedBatch, ReadPlan};
use weft_store::TableSchema;

use crate::assign::Assignment;
use crate::error::{ErrorKind, Result, SqlError};
use crate::file_scan::FilesTable;
use crate::files::cannot_read;
use crate::keys::Checks;
use crate::optimize::analyzed;
use crate::pushdown::scalar_value;

/// Bytes of a file and rows that are looked at together, about.
const PIECE_BYTES: usize = 1 << 20;
const BATCH_ROWS: usize = 1_024;

/// What a statement was about to write to a table.
pub(crate) struct Load<'a> {
    pub(crate) state: &'a SessionState,
    /// The rows, with a column for each of the table's.
    pub(crate) plan: &'a LogicalPlan,
    pub(crate) schema: &'a TableSchema,
    pub(crate) checks: &'a Checks,
}

/// What rows of one source become.
struct Chain {
    source: Source,
    /// What is done to the rows, one step after the other.
    steps: Vec<Step>,
}

/// Files.
enum Source {
    Reader { reader: Arc<dyn FileReader>, paths: Arc<[PathBuf]>, projection: Vec<usize> },
    Parquet { paths: Vec<PathBuf>, schema: SchemaRef },
}

/// What is done to rows. A column that nothing needs has no expression.
enum Step {
    Project(Vec<Option<Arc<dyn PhysicalExpr>>>, SchemaRef),
    Filter(Arc<dyn PhysicalExpr>),
}

/// Rows of a file with their places: numbers of lines or rows, from 1 on.
struct Placed {
    batch: RecordBatch,
    path: PathBuf,
    unit: &'static str,
    numbers: Vec<u64>,
}

/// The place of a row.
struct Place {
    path: PathBuf,
    unit: &'static str,
    number: u64,
}

impl Place {
    /// The place in words; without the file if that is the one of another place.
    fn in_words(&self, other: Option<&Place>) -> String {
        let Place { path, unit, number } = self;
        match other.is_some_and(|other| other.path == *path) {
            true => format!("{unit} {number}"),
            false => format!("'{}', {unit} {number}", path.display()),
        }
    }
}

impl Load<'_> {
    /// The error of the load with the place of the row that it is about; `error` itself if that has a place already, or no row of a
    /// file is found.
    pub(crate) async fn explain(&self, error: SqlError) -> SqlError {
        let is_of_key = match error.kind() {
            ErrorKind::UniqueViolation | ErrorKind::ForeignKeyViolation => true,
            ErrorKind::Data | ErrorKind::CheckViolation => false,
            _ => return error,
        };
        if error.message().starts_with('\'') {
            return error;
        }
        let found = match is_of_key {
            true => self.key(&error).await,
            false => self.misfit(&error).await,
        };
        match found {
            Ok(found) => found.unwrap_or(error),
            Err(reason) => {
                log::debug!("the row that an error is about is not found: {reason}");
                error
            }
        }
    }

    /// The error of a key that occurs twice, or that another table lacks.
    async fn key(&self, error: &SqlError) -> Result<Option<SqlError>> {
        let Some(violated) = error.key().filter(|key| key.table == self.schema.name) else {
            return Ok(None);
        };
        let mut sought: Vec<(usize, ScalarValue)> = Vec::new();
        let arrow = self.schema.arrow_schema();
        for (name, value) in &violated.columns {
            let Some(number) = self.schema.index_of(name) else { return Ok(None) };
            match scalar_value(value, arrow.field(number).data_type()) {
                Some(value) if !value.is_null() => sought.push((number, value)),
                _ => return Ok(None),
            }
        }
        let needed = sought.iter().map(|(number, _)| *number).collect();
        let Some((chains, assignment)) = self.chains(&needed)? else { return Ok(None) };
        let wanted = if error.kind() == ErrorKind::UniqueViolation { 2 } else { 1 };
        let mut places: Vec<Place> = Vec::new();
        'all: for chain in &chains {
            let mut rows = chain.source.rows()?;
            while let Some(placed) = rows.next()? {
                let (batch, kept) = chain.evaluate(&placed.batch)?;
                let mut is_it: Option<BooleanArray> = None;
                for (number, value) in &sought {
                    let column = assignment.column(*number, &batch)?;
                    let equal = eq(&column, &value.to_scalar()?)?;
                    is_it = Some(match is_it {
                        None => equal,
                        Some(before) => and(&before, &equal)?,
                    });
                }
                let is_it = is_it.iter().flatten().map(|found| found == Some(true));
                for (row, _) in kept.iter().zip(is_it).filter(|(_, is_it)| *is_it) {
                    places.push(placed.place(*row));
                    if places.len() == wanted {
                        break 'all;
                    }
                }
                tokio::task::yield_now().await;
            }
        }
        let message = match places.as_slice() {
            [] => return Ok(None),
            [only] => format!("{}: {}", only.in_words(None), error.message()),
            [first, .., last] => {
                let first = first.in_words(Some(last));
                format!("{}: {}; it is in {first}, too", last.in_words(None), error.message())
            }
        };
        Ok(Some(worded(error, message)))
    }

    /// The error of the first row that does not fit.
    async fn misfit(&self, error: &SqlError) -> Result<Option<SqlError>> {
        let needed = (0..self.schema.columns.len()).collect();
        let Some((chains, assignment)) = self.chains(&needed)? else { return Ok(None) };
        for chain in &chains {
            let mut rows = chain.source.rows()?;
            while let Some(placed) = rows.next()? {
                let fails = |first: usize, rows: usize| {
                    let evaluated = chain.evaluate(&placed.batch.slice(first, rows));
                    evaluated.and_then(|(batch, _)| assignment.convert(&batch)).err()
                };
                let (mut first, mut rows) = (0, placed.batch.num_rows());
                if fails(first, rows).is_some() {
                    while rows > 1 {
                        let half = rows / 2;
                        match fails(first, half) {
                            Some(_) => rows = half,
                            None => (first, rows) = (first + half, rows - half),
                        }
                    }
                    let Some(found) = fails(first, 1) else { return Ok(None) };
                    if !matches!(found.kind(), ErrorKind::Data | ErrorKind::CheckViolation) {
                        return Ok(None);
                    }
                    let place = placed.place(first).in_words(None);
                    let message = format!("{place}: {}", found.message());
                    return Ok(Some(worded(&found, message)));
                }
                tokio::task::yield_now().await;
            }
        }
        log::debug!("no row of the files fails by itself: {error}");
        Ok(None)
    }

    /// The sources of the rows, and the assignment of what becomes of them; `None` if the rows are no rows of files.
    fn chains(&self, needed: &HashSet<usize>) -> Result<Option<(Vec<Chain>, Assignment)>> {
        let plan = analyzed(self.state, self.plan.clone(), || {})?;
        let Some(chains) = self.chains_of(&plan, needed)? else { return Ok(None) };
        let source = plan.schema().as_arrow();
        let assignment = Assignment::new(self.state, self.schema, source)?;
        Ok(Some((chains, assignment.with_checks(self.checks.clone()))))
    }

    fn chains_of(&self, plan: &LogicalPlan, needed: &HashSet<usize>) -> Result<Option<Vec<Chain>>> {
        let chains = match plan {
            LogicalPlan::Projection(projection) => {
                let input = projection.input.schema();
                let mut exprs = Vec::with_capacity(projection.expr.len());
                let mut below = HashSet::new();
                for (number, expr) in projection.expr.iter().enumerate() {
                    if !needed.contains(&number) {
                        exprs.push(None);
                        continue;
                    }
                    // Its value would be another one now.
                    if expr.is_volatile() {
                        return Ok(None);
                    }
                    let expr = self.state.create_physical_expr(expr.clone(), input)?;
                    below.extend(collect_columns(&expr).iter().map(Column::index));
                    exprs.push(Some(expr));
                }
                let schema = Arc::clone(projection.schema.inner());
                let step = || Step::Project(exprs.clone(), Arc::clone(&schema));
                self.chains_of(&projection.input, &below)?.map(|chains| with_step(chains, step))
            }
            LogicalPlan::Filter(filter) if !filter.predicate.is_volatile() => {
                let input = filter.input.schema();
                let expr = self.state.create_physical_expr(filter.predicate.clone(), input)?;
                let mut below = needed.clone();
                below.extend(collect_columns(&expr).iter().map(Column::index));
                let step = || Step::Filter(Arc::clone(&expr));
                self.chains_of(&filter.input, &below)?.map(|chains| with_step(chains, step))
            }
            LogicalPlan::SubqueryAlias(alias) => self.chains_of(&alias.input, needed)?,
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
                self.chains_of(&sort.input, needed)?
            }
            LogicalPlan::Union(union) => {
                let mut chains = Vec::new();
                for input in &union.inputs {
                    let Some(of_input) = self.chains_of(input, needed)? else { return Ok(None) };
                    chains.extend(of_input);
                }
                Some(chains)
            }
            LogicalPlan::TableScan(scan) => {
                source_of(scan)?.map(|source| vec![Chain { source, steps: Vec::new() }])
            }
            _ => None,
        };
        Ok(chains)
    }
}

fn worded(error: &SqlError, message: String) -> SqlError {
    let worded = SqlError::new(error.kind(), message);
    match error.hint() {
        Some(hint) => worded.with_hint(hint),
        None => worded,
    }
}

fn with_step(mut chains: Vec<Chain>, step: impl Fn() -> Step) -> Vec<Chain> {
    chains.iter_mut().for_each(|chain| chain.steps.push(step()));
    chains
}

fn source_of(scan: &TableScan) -> Result<Option<Source>> {
    if !scan.filters.is_empty() || scan.fetch.is_some() {
        return Ok(None);
    }
    let provider = source_as_provider(&scan.source)?;
    if let Some(table) = provider.downcast_ref::<FilesTable>() {
        let (reader, paths) = table.reader();
        let columns = reader.schema().fields().len();
        let projection = scan.projection.clone().unwrap_or_else(|| (0..columns).collect());
        let (reader, paths) = (Arc::clone(reader), Arc::clone(paths));
        return Ok(Some(Source::Reader { reader, paths, projection }));
    }
    let Some(table) = provider.downcast_ref::<ListingTable>() else { return Ok(None) };
    let path = |text: &str| Url::parse(text).ok()?.to_file_path().ok();
    let paths = table.table_paths().iter().map(|of| path(of.as_str()));
    let schema = Arc::clone(scan.projected_schema.inner());
    Ok(paths.collect::<Option<_>>().map(|paths| Source::Parquet { paths, schema }))
}

impl Chain {
    /// What becomes of rows, and which of them are left.
    fn evaluate(&self, batch: &RecordBatch) -> Result<(RecordBatch, Vec<usize>)> {
        let mut batch = batch.clone();
        let mut kept: Vec<usize> = (0..batch.num_rows()).collect();
        for step in &self.steps {
            match step {
                Step::Project(exprs, schema) => {
                    let rows = batch.num_rows();
                    let column = |(expr, field): (&Option<Arc<dyn PhysicalExpr>>, &Arc<Field>)| {
                        Ok(match expr {
                            Some(expr) => expr.evaluate(&batch)?.into_array(rows)?,
                            None => new_null_array(field.data_type(), rows),
                        })
                    };
                    let columns = exprs.iter().zip(schema.fields()).map(column);
                    let columns: Vec<ArrayRef> = columns.collect::<Result<_>>()?;
                    batch = batch_of(schema, columns, rows)?;
                }
                Step::Filter(predicate) => {
                    let passed = predicate.evaluate(&batch)?.into_array(batch.num_rows())?;
                    let passed = passed.as_boolean();
                    batch = filter_record_batch(&batch, passed)?;
                    let mut passed = passed.iter();
                    kept.retain(|_| passed.next().flatten() == Some(true));
                }
            }
        }
        Ok((batch, kept))
    }
}

/// A batch of columns of any types, with the names of a schema.
fn batch_of(names: &Schema, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let fields = names.fields().iter().zip(&columns);
    let fields = fields.map(|(field, column)| {
        Field::new(field.name(), column.data_type().clone(), true)
            .with_metadata(field.metadata().clone())
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
}

impl Placed {
    fn place(&self, row: usize) -> Place {
        Place { path: self.path.clone(), unit: self.unit, number: self.numbers[row] }
    }
}

impl Source {
    /// The rows, in the order of the files.
    fn rows(&self) -> Result<Rows<'_>> {
        Ok(match self {
            Source::Reader { reader, paths, projection } => {
                let (piece_bytes, batch_rows) = (PIECE_BYTES, BATCH_ROWS);
                let plan = ReadPlan { projection: projection.clone(), piece_bytes, batch_rows };
                let pieces = reader.open(&plan)?;
                let (decoded, counts) = (VecDeque::new(), HashMap::new());
                Rows::Reader { pieces, paths, decoded, counts }
            }
            Source::Parquet { paths, schema } => {
                Rows::Parquet { paths: paths.iter(), schema, current: None }
            }
        })
    }
}

/// Rows of files, as they come.
enum Rows<'a> {
    Reader {
        pieces: Box<dyn Pieces>,
        paths: &'a [PathBuf],
        decoded: VecDeque<PlacedBatch>,
        /// Rows of each file that have come.
        counts: HashMap<usize, u64>,
    },
    Parquet {
        paths: std::slice::Iter<'a, PathBuf>,
        schema: &'a SchemaRef,
        /// The file that is read, and its rows that have come.
        current: Option<(&'a Path, ParquetRecordBatchReader, u64)>,
    },
}

impl Rows<'_> {
    /// Some rows more; `None` at the end.
    fn next(&mut self) -> Result<Option<Placed>> {
        match self {
            Rows::Reader { pieces, paths, decoded, counts } => loop {
                let Some(PlacedBatch { batch, file, lines }) = decoded.pop_front() else {
                    let Some(piece) = pieces.next_piece()? else { return Ok(None) };
                    decoded.extend(piece.decode_placed()?);
                    continue;
                };
                // Without its number, the file is known if it is the only one.
                let file = file.or_else(|| (paths.len() == 1).then_some(0));
                let Some((file, path)) = file.and_then(|file| Some((file, paths.get(file)?)))
                else {
                    return Ok(None);
                };
                let count = counts.entry(file).or_insert(0);
                let first = *count + 1;
                *count += batch.num_rows() as u64;
                let (unit, numbers) = match lines {
                    Some(lines) => ("line", lines),
                    None => ("row", (first..=*count).collect()),
                };
                return Ok(Some(Placed { batch, path: path.clone(), unit, numbers }));
            },
            Rows::Parquet { paths, schema, current } => loop {
                if let Some((path, reader, rows)) = current {
                    if let Some(batch) = reader.next() {
                        let batch = fitted(&batch?, schema)?;
                        let first = *rows + 1;
                        *rows += batch.num_rows() as u64;
                        let (path, numbers) = (path.to_owned(), (first..=*rows).collect());
                        return Ok(Some(Placed { batch, path, unit: "row", numbers }));
                    }
                    *current = None;
                }
                let Some(path) = paths.next() else { return Ok(None) };
                let file = File::open(path).map_err(|error| cannot_read(path, &error))?;
                let unreadable = |error: parquet::errors::ParquetError| {
                    let message = format!("cannot read '{}': {error}", path.display());
                    SqlError::new(ErrorKind::Data, message)
                };
                let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(unreadable)?;
                let reader = builder.with_batch_size(BATCH_ROWS).build().map_err(unreadable)?;
                *current = Some((path.as_path(), reader, 0));
            },
        }
    }
}

/// The columns of a file as a table of several has them.
fn fitted(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let columns = schema.fields().iter().map(|field| match batch.column_by_name(field.name()) {
        Some(column) => cast_with_options(column, field.data_type(), &options),
        None => Ok(new_null_array(field.data_type(), batch.num_rows())),
    });
    let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
    batch_of(schema, columns, batch.num_rows())
}
