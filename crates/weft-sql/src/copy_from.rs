//! COPY table FROM files.
//!
//! The columns of a file go to those of the table by name where the file has names (Parquet, Arrow,
//! JSON, CSV whose first line holds the table's names), else by position.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{Column, ScalarValue, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionState;
use datafusion::functions::core::expr_fn::{coalesce, nullif};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::sql::sqlparser::ast;
use futures::FutureExt;
use weft_store::{Change, Table};

use crate::catalog::{StatementCatalog, relation_name};
use crate::control::units_of_files;
use crate::copy_options::CopyOptions;
use crate::csv_diagnosis::{self, first_record};
use crate::error::{ErrorKind, Result, SqlError};
use crate::files::{FileKind, FileSet, ReadOptions, kind_of};
use crate::run::{Run, Started};
use crate::statement::fold;
use crate::suggest;

/// The name under which the file is scanned.
const FILE: &str = "file";

/// A column of the file and the column of the table that it goes to.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    /// The file's columns, with the types in which they are read.
    pub(crate) file: SchemaRef,
    /// For each column of the table, the number of the file's column.
    pub(crate) source: Vec<Option<usize>>,
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
        let table = catalog.stored(&relation_name(&table)?)?;
        let targets = target_columns(&table, columns)?;
        let mut read = options.read.clone();
        let told = kind_of(Path::new(&path)).map(|(kind, _)| kind);
        if !matches!(read.kind.or(told), Some(FileKind::Parquet | FileKind::Arrow)) {
            read.compression = options.text_compression()?;
        }
        let files = FileSet::find(&path, &read).map_err(|error| error.about(path))?;
        let state = catalog.planning_state();
        let mapping = match files.kind {
            FileKind::Csv | FileKind::Tsv => csv_mapping(&files, &mut read, &table, &targets)?,
            _ => named_mapping(&state, &files, &read, &table, &targets).await?,
        };
        let provider = files.table(&state, &read, Some(Arc::clone(&mapping.file))).await?;
        let plan = LogicalPlanBuilder::scan(
            TableReference::bare(FILE),
            provider_as_source(provider),
            None,
        )?;
        let defaults = catalog.defaults(&table)?;
        let null = null_text(&read);
        let plan = project(plan.build()?, &table, &mapping, null, &defaults)?;
        self.control.progress.add_total(units_of_files(files.bytes()));
        let run = self.clone();
        let work = async move {
            let written = run.write(&state, &plan, table.schema()).await;
            let groups = match written {
                Err(error) if is_text(files.kind) && error.kind() == ErrorKind::Data => {
                    return Err(csv_diagnosis::explain(error, &files, &read, &table, &mapping));
                }
                other => other?,
            };
            let rows = groups.rows();
            if rows > 0 {
                let name = table.schema().name.clone();
                let expected = Some(table.id());
                run.commit(vec![Change::Append { table: name, expected, groups }]).await?;
            }
            Ok(Some(rows))
        };
        Ok(Started::Command { tag: "COPY", work: work.boxed() })
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
        let name = fold(column.value, column.quote_style);
        let Some(number) = table.schema().index_of(&name) else {
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

/// The mapping of a CSV file, after a look at its first line.
fn csv_mapping(
    files: &FileSet,
    read: &mut ReadOptions,
    table: &Table,
    targets: &[usize],
) -> Result<Mapping> {
    let schema = table.arrow_schema();
    // The reader knows no text for NULL but the empty one.
    let as_text = null_text(read).is_some();
    let all_by_position = || Mapping {
        file: csv_schema(&schema, as_text, targets.iter().map(|target| Some(*target))),
        source: sources(&schema, targets.iter().map(|target| Some(*target))),
    };
    let Some(first) = first_record(files, read)? else {
        // An empty file: no rows, whatever the columns.
        read.header = Some(false);
        return Ok(all_by_position());
    };
    let named: Vec<Option<usize>> = first
        .iter()
        .map(|name| {
            let of_name =
                |target: &&usize| schema.field(**target).name().eq_ignore_ascii_case(name.trim());
            targets.iter().find(of_name).copied()
        })
        .collect();
    let all_named = named.iter().all(Option::is_some) && distinct(&named);
    if read.header.is_none() {
        read.header = Some(all_named);
    }
    if read.header == Some(true) && all_named {
        return Ok(Mapping {
            file: csv_schema(&schema, as_text, named.iter().copied()),
            source: sources(&schema, named.into_iter()),
        });
    }
    if first.len() != targets.len() {
        let path = files.paths[0].display();
        return Err(SqlError::new(
            ErrorKind::Data,
            format!(
                "'{path}', line 1 has {} values, but {} columns are to be filled",
                first.len(),
                targets.len()
            ),
        )
        .with_hint(
            "name the columns to fill: COPY table (a, b) FROM …; or the separator: \
                    (DELIMITER ';')",
        ));
    }
    Ok(all_by_position())
}

/// What stands for NULL in a CSV file, if it is not the empty text.
fn null_text(read: &ReadOptions) -> Option<&str> {
    read.null.as_deref().filter(|null| !null.is_empty())
}

fn distinct(numbers: &[Option<usize>]) -> bool {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair[0] != pair[1])
}

/// The schema in which a CSV file is read whose columns go to these of the table.
fn csv_schema(
    schema: &Schema,
    as_text: bool,
    targets: impl Iterator<Item = Option<usize>>,
) -> SchemaRef {
    let fields: Vec<Field> = targets
        .flatten()
        .map(|target| {
            let field = schema.field(target);
            let data_type = if as_text { DataType::Utf8View } else { csv_type(field.data_type()) };
            Field::new(field.name(), data_type, true)
        })
        .collect();
    Arc::new(Schema::new(fields))
}

/// The type in which a CSV column is read: its own where the reader knows it, else text to be cast.
fn csv_type(data_type: &DataType) -> DataType {
    let known = data_type.is_integer()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Float32
                | DataType::Float64
                | DataType::Date32
                | DataType::Decimal128(..)
                | DataType::Timestamp(_, None)
                | DataType::Time64(_)
        );
    if known { data_type.clone() } else { DataType::Utf8View }
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
async fn named_mapping(
    state: &SessionState,
    files: &FileSet,
    read: &ReadOptions,
    table: &Table,
    targets: &[usize],
) -> Result<Mapping> {
    let file = files.table(state, read, None).await?.schema();
    let schema = table.arrow_schema();
    let mut source = vec![None; schema.fields().len()];
    let mut fields = Vec::with_capacity(file.fields().len());
    for (number, field) in file.fields().iter().enumerate() {
        let of_name =
            |target: &&usize| schema.field(**target).name().eq_ignore_ascii_case(field.name());
        let Some(target) = targets.iter().find(of_name) else {
            let name = field.name();
            let error = unknown_column(table, name);
            let message =
                format!("'{}' has a column {name}, but {error}", files.paths[0].display());
            return Err(SqlError::new(ErrorKind::Semantic, message)
                .with_hint("choose columns: INSERT INTO table SELECT a, b FROM 'file'"));
        };
        source[*target] = Some(number);
        let read_as = match files.kind {
            FileKind::Json => json_type(schema.field(*target).data_type(), field.data_type()),
            _ => field.data_type().clone(),
        };
        fields.push(Field::new(field.name(), read_as, true));
    }
    Ok(Mapping { file: Arc::new(Schema::new(fields)), source })
}

/// The type in which a JSON column is read: the table's where the reader knows it, else what it looks
/// like.
fn json_type(wanted: &DataType, found: &DataType) -> DataType {
    match wanted {
        DataType::Interval(_) | DataType::BinaryView => DataType::Utf8,
        DataType::Utf8View => match found {
            DataType::Utf8 | DataType::Utf8View => DataType::Utf8,
            other => other.clone(),
        },
        DataType::List(_) | DataType::Struct(_) | DataType::FixedSizeList(..) => found.clone(),
        other => other.clone(),
    }
}

/// The file's columns as the table's: cast, and with defaults for those that are missing.
fn project(
    plan: LogicalPlan,
    table: &Table,
    mapping: &Mapping,
    null: Option<&str>,
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
                let is_text = *read_as == DataType::Utf8View;
                let empty = lit(ScalarValue::Utf8View(Some(String::new())));
                match null {
                    Some(null) if is_text => nullif(coalesce(vec![column, empty]), lit(null)),
                    // CSV has no way to tell an empty text from none, unless there may be none.
                    _ if is_text && !field.is_nullable() && field.data_type() == read_as => {
                        coalesce(vec![column, empty])
                    }
                    _ => column,
                }
            }
            None => match defaults.get(field.name()) {
                Some(default) => default.clone(),
                None => lit(ScalarValue::Null),
            },
        };
        exprs.push(expr.cast_to(field.data_type(), plan.schema())?.alias(field.name()));
    }
    Ok(LogicalPlanBuilder::from(plan).project(exprs)?.build()?)
}
