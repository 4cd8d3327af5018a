//! COPY table FROM files.
//!
//! The columns of a file go to those of the table by name where the file has names (Parquet, Arrow,
//! JSON, CSV whose first line holds the table's names), else by position.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::{Column, ScalarValue, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::sql::sqlparser::ast;
use futures::FutureExt;
use weft_files::csv::{self, ColumnKey, CsvOptions, FirstRecord};
use weft_files::json::VALUE_COLUMN;
use weft_files::{FileReader, Input, Union};
use weft_json::is_json;
use weft_store::{Change, Table, TableSchema};

use crate::access::{Need, Rights};
use crate::assign::marked_schema;
use crate::catalog::{StatementCatalog, relation_name};
use crate::control::units_of_files;
use crate::copy_options::CopyOptions;
use crate::csv_diagnosis;
use crate::csv_files::csv_options;
use crate::error::{ErrorKind, Result, SqlError};
use crate::file_places::Load;
use crate::files::{FileKind, FileSet, ReadOptions, kind_of};
use crate::json_files::read_as;
use crate::keys::Checks;
use crate::run::{Run, Started};
use crate::statement::fold;
use crate::suggest;
use crate::text_casts::cast_to;

/// The name under which the file is scanned.
const FILE: &str = "file";

/// A column of the file and the column of the table that it goes to.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    /// The file's columns, with the types in which they are read.
    pub(crate) file: SchemaRef,
    /// For each column of the table, the number of the file's column.
    pub(crate) source: Vec<Option<usize>>,
    /// For each CSV file, the columns of the table that its values go to, in order.
    pub(crate) orders: Vec<Vec<usize>>,
}

impl Run {
    /// Starts COPY FROM.
    pub(crate) async fn copy_from(
        &self,
        catalog: &StatementCatalog,
        table: ast::ObjectName,
        columns: Vec<ast::Ident>,
        path: String,
        options: CopyOptions,
    ) -> Result<Started> {
        let need = Need::Rights(Rights::INSERT);
        let table = catalog.stored(&relation_name(&table)?, need)?;
        catalog.access().check_reads_files()?;
        let targets = target_columns(&table, columns)?;
        let mut read = options.read.clone();
        let told = kind_of(Path::new(&path)).map(|(kind, _)| kind);
        if !matches!(read.kind.or(told), Some(FileKind::Parquet | FileKind::Arrow | FileKind::Xlsx))
        {
            read.compression = options.text_compression()?;
        }
        let remote = &catalog.context().remote;
        let files = FileSet::find(&path, &read, remote).await;
        let files = files.map_err(|error| error.about(&path))?;
        let state = catalog.planning_state();
        let (mapping, provider) = match files.kind {
            FileKind::Csv | FileKind::Tsv => {
                csv_load(catalog, &files, &mut read, &table, &targets)?
            }
            FileKind::Json => {
                let found = catalog.plain_files(&path, &files, &read).await?.schema();
                let found = without_values(found, &table);
                let mapping = named_mapping(&files, &found, &table, &targets)?;
                let columns = Some(Arc::clone(&mapping.file));
                // JSON tells an empty text from none.
                read.null.get_or_insert_default();
                let provider = files.json_table(&read, &path, catalog.context(), columns)?;
                (mapping, provider)
            }
            FileKind::Parquet | FileKind::Arrow | FileKind::Xlsx => {
                let provider = catalog.plain_files(&path, &files, &read).await?;
                let mapping = named_mapping(&files, &provider.schema(), &table, &targets)?;
                (mapping, provider)
            }
        };
        let plan = LogicalPlanBuilder::scan(
            TableReference::bare(FILE),
            provider_as_source(provider),
            None,
        )?;
        let defaults = catalog.defaults(&table)?;
        let plan = project(plan.build()?, &table, &mapping, &read, &defaults)?;
        if is_text(files.kind) {
            self.control.progress.add_total(units_of_files(files.bytes()));
        }
        let run = self.clone();
        let checks = Checks::of(catalog, table.schema(), &table.constraints().checks).await?;
        let work = async move {
            let load = Load { state: &state, plan: &plan, schema: table.schema(), checks: &checks };
            let written = run.write(&state, &plan, (table.schema(), checks.clone())).await;
            let groups = match written {
                // What the reader found has its place.
                Err(error)
                    if is_text(files.kind)
                        && error.kind() == ErrorKind::Data
                        && !error.message().starts_with('\'') =>
                {
                    let found = csv_diagnosis::explain(error, &files, &read, &table, &mapping);
                    return Err(load.explain(found).await);
                }
                Err(error) => return Err(load.explain(error).await),
                Ok(groups) => groups,
            };
            let rows = groups.rows();
            if rows > 0 {
                let name = table.schema().name.clone();
                let expected = Some(table.id());
                let change = Change::Append { table: name, expected, groups };
                if let Err(error) = run.commit(vec![change]).await {
                    return Err(load.explain(error).await);
                }
            }
            Ok(Some(rows))
        };
        Ok(Started::Command { tag: "COPY", work: work.boxed() })
    }
}

/// The columns of JSON files: none, if they have no keys that could be columns, and the table has no column for whole values.
fn without_values(found: SchemaRef, table: &Table) -> SchemaRef {
    match found.fields().as_ref() {
        [only] if is_json(only) && only.name() == VALUE_COLUMN => {
            let is_wanted = index_of(table.schema(), VALUE_COLUMN, false).is_some();
            if is_wanted { found } else { Arc::new(Schema::empty()) }
        }
        _ => found,
    }
}

fn is_text(kind: FileKind) -> bool {
    matches!(kind, FileKind::Csv | FileKind::Tsv)
}

/// The numbers of the columns that get values.
pub(crate) fn target_columns(table: &Table, columns: Vec<ast::Ident>) -> Result<Vec<usize>> {
    if columns.is_empty() {
        return Ok((0..table.schema().columns.len()).collect());
    }
    let mut numbers = Vec::with_capacity(columns.len());
    for column in columns {
        let name = fold(column.value.clone(), column.quote_style);
        let is_quoted = column.quote_style.is_some();
        let Some(number) = index_of(table.schema(), &name, is_quoted) else {
            return Err(unknown_column(table, &name).about(name));
        };
        if numbers.contains(&number) {
            return Err(SqlError::new(
                ErrorKind::Semantic,
                format!("column {name} is named twice"),
            ));
        }
        numbers.push(number);
    }
    Ok(numbers)
}

/// The number of a column: the one of exactly this name, or without quotes the only one that differs in the case of its letters.
pub(crate) fn index_of(schema: &TableSchema, name: &str, is_quoted: bool) -> Option<usize> {
    let exact = schema.index_of(name);
    if exact.is_some() || is_quoted {
        return exact;
    }
    let columns = schema.columns.iter().enumerate();
    let mut alike = columns.filter(|(_, column)| column.name.to_lowercase() == name.to_lowercase());
    let (number, _) = alike.next()?;
    alike.next().is_none().then_some(number)
}

fn unknown_column(table: &Table, name: &str) -> SqlError {
    let schema = table.schema();
    let message = format!("table {} has no column {name}", schema.name);
    let known: Vec<&str> = schema.columns.iter().map(|column| column.name.as_str()).collect();
    let error = SqlError::new(ErrorKind::Semantic, message);
    match suggest::hint("column", name, &known) {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// The columns of CSV files, after a look at their first lines, and their reader.
fn csv_load(
    catalog: &StatementCatalog,
    files: &FileSet,
    read: &mut ReadOptions,
    table: &Table,
    targets: &[usize],
) -> Result<(Mapping, Arc<dyn TableProvider>)> {
    let schema = table.arrow_schema();
    let csv = csv_options(read);
    // What is in front of the first record is said, or there is nothing.
    let csv = CsvOptions { skip: Some(csv.skip.unwrap_or(0)), ..csv };
    let inputs = files.inputs(read);
    let probe =
        CsvOptions { all_text: csv.all_text, names: Vec::new(), types: Vec::new(), ..csv.clone() };
    let found = csv::open(&inputs, &probe)?;
    let is_all_text =
        targets.iter().all(|target| *schema.field(*target).data_type() == DataType::Utf8View);
    let mut orders = Vec::with_capacity(inputs.len());
    let mut members = Vec::with_capacity(inputs.len());
    for (input, first) in inputs.iter().zip(&found.firsts) {
        let names = NamedBy::of(&first.record, &schema, targets);
        let has_header = match read.header {
            Some(said) => said,
            None if is_all_text && first.is_likely_header() && !names.are_all() => {
                return Err(unclear_header(input, table));
            }
            None => names.are_all(),
        };
        let order = match has_header && names.are_all() {
            true => names.order(),
            // Without records, columns do not matter.
            false if first.record.is_empty() => targets.to_vec(),
            false => by_position(input, first, targets)?,
        };
        let types = order.iter().enumerate().map(|(number, target)| {
            (ColumnKey::Number(number), csv_type(schema.field(*target).data_type()))
        });
        let options = CsvOptions {
            header: Some(has_header),
            names: order.iter().map(|target| schema.field(*target).name().clone()).collect(),
            types: types.collect(),
            types_are_all: true,
            ..csv.clone()
        };
        let opened = csv::open(std::slice::from_ref(input), &options)?;
        members.extend(opened.files.into_iter().map(|file| Arc::new(file) as Arc<dyn FileReader>));
        orders.push(order);
        read.header = read.header.or(Some(has_header));
    }
    let described = &found.description;
    let byte = |letter: Option<char>| letter.and_then(|letter| u8::try_from(letter).ok());
    read.delimiter = byte(Some(described.delimiter));
    read.quote = byte(described.quote);
    read.escape = byte(described.escape);
    let paths = files.paths().zip(members).collect();
    let union = Union::by_name(paths, read.union_by_name)?;
    let file = union.schema();
    let order = file.fields().iter().map(|field| schema.index_of(field.name()).ok());
    let source = sources(&schema, order);
    let provider = files.provider(Arc::new(union), &table.schema().name, catalog.context());
    Ok((Mapping { file, source, orders }, provider))
}

/// Which columns of a table the values of a first line name.
struct NamedBy {
    targets: Vec<Option<usize>>,
}

impl NamedBy {
    fn of(first: &[String], schema: &Schema, targets: &[usize]) -> NamedBy {
        let target = |name: &String| {
            let is_exact = |target: &&usize| schema.field(**target).name() == name.trim();
            let is_it =
                |target: &&usize| schema.field(**target).name().eq_ignore_ascii_case(name.trim());
            targets.iter().find(is_exact).or_else(|| targets.iter().find(is_it)).copied()
        };
        NamedBy { targets: first.iter().map(target).collect() }
    }

    /// True if all values are names of columns, each of another one.
    fn are_all(&self) -> bool {
        !self.targets.is_empty()
            && self.targets.iter().all(Option::is_some)
            && distinct(&self.targets)
    }

    fn order(&self) -> Vec<usize> {
        self.targets.iter().flatten().copied().collect()
    }
}

/// The columns to be filled, if a first line has as many values.
fn by_position(input: &Input, first: &FirstRecord, targets: &[usize]) -> Result<Vec<usize>> {
    if first.record.len() == targets.len() {
        return Ok(targets.to_vec());
    }
    let message = format!(
        "'{}', line 1 has {} values, but {} columns are to be filled",
        input.path().display(),
        first.record.len(),
        targets.len()
    );
    Err(SqlError::new(ErrorKind::Data, message).with_hint(
        "name the columns to fill: COPY table (a, b) FROM …; or the separator: (DELIMITER ';')",
    ))
}

/// A first line that looks like names, but not those of the table, whose columns hold any text.
fn unclear_header(input: &Input, table: &Table) -> SqlError {
    let message = format!(
        "'{}', line 1 looks like names of columns, but not like those of table {}",
        input.path().display(),
        table.schema().name
    );
    SqlError::new(ErrorKind::Data, message)
        .with_hint("say what it is: (HEADER true) leaves the line out, (HEADER false) loads it")
}

fn distinct(numbers: &[Option<usize>]) -> bool {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair[0] != pair[1])
}

/// The type in which a CSV column is read: its own where the reader knows it, else text to be cast, as is what depends on the
/// session's time zone.
fn csv_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Timestamp(_, Some(_)) => DataType::Utf8View,
        other if csv::is_native(other) => other.clone(),
        _ => DataType::Utf8View,
    }
}

/// For each column of the table, the number of the file's column that goes there.
fn sources(schema: &Schema, targets: impl Iterator<Item = Option<usize>>) -> Vec<Option<usize>> {
    let mut sources = vec![None; schema.fields().len()];
    for (number, target) in targets.enumerate() {
        if let Some(target) = target {
            sources[target] = Some(number);
        }
    }
    sources
}

/// The mapping of a file that has names.
fn named_mapping(
    files: &FileSet,
    file: &Schema,
    table: &Table,
    targets: &[usize],
) -> Result<Mapping> {
    let schema = marked_schema(table.schema());
    let mut source = vec![None; schema.fields().len()];
    let mut fields = Vec::with_capacity(file.fields().len());
    for (number, field) in file.fields().iter().enumerate() {
        let is_exact = |target: &&usize| schema.field(**target).name() == field.name();
        let of_name =
            |target: &&usize| schema.field(**target).name().eq_ignore_ascii_case(field.name());
        let exact = targets.iter().find(is_exact);
        let Some(target) = exact.or_else(|| targets.iter().find(of_name)) else {
            let name = field.name();
            let error = unknown_column(table, name);
            let message =
                format!("'{}' has a column {name}, but {error}", files.places[0].path().display());
            return Err(SqlError::new(ErrorKind::Semantic, message)
                .with_hint("choose columns: INSERT INTO table SELECT a, b FROM 'file'"));
        };
        source[*target] = Some(number);
        fields.push(match files.kind {
            FileKind::Json => read_as(schema.field(*target), field),
            _ => Field::new(field.name(), field.data_type().clone(), true),
        });
    }
    Ok(Mapping { file: Arc::new(Schema::new(fields)), source, orders: Vec::new() })
}

/// The file's columns as the table's: cast, and with defaults for those that are missing.
fn project(
    plan: LogicalPlan,
    table: &Table,
    mapping: &Mapping,
    read: &ReadOptions,
    defaults: &std::collections::HashMap<String, Expr>,
) -> Result<LogicalPlan> {
    let schema = table.arrow_schema();
    let mut exprs = Vec::with_capacity(schema.fields().len());
    for (field, source) in schema.fields().iter().zip(&mapping.source) {
        let expr = match source {
            Some(number) => {
                let name = mapping.file.field(*number).name();
                let column = Expr::Column(Column::new(Some(FILE), name));
                let read_as = mapping.file.field(*number).data_type();
                let empty = lit(ScalarValue::Utf8View(Some(String::new())));
                // Others than Weft write empty texts without quotes.
                let is_empty_text = read.null.is_none()
                    && *read_as == DataType::Utf8View
                    && !field.is_nullable()
                    && field.data_type() == read_as;
                match is_empty_text {
                    true => coalesce(vec![column, empty]),
                    false => column,
                }
            }
            None => match defaults.get(field.name()) {
                Some(default) => default.clone(),
                None => lit(ScalarValue::Null),
            },
        };
        exprs.push(cast_to(expr, field.data_type(), plan.schema())?.alias(field.name()));
    }
    Ok(LogicalPlanBuilder::from(plan).project(exprs)?.build()?)
}
