//! COPY query TO file: written under another name, and renamed when it is whole (`copy_target.rs`).

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, FieldRef, TimeUnit, UInt64Type};
use datafusion::common::Column;
use datafusion::common::config::ConfigNonZeroUsize;
use datafusion::common::file_options::file_type::FileType;
use datafusion::common::parsers::CompressionTypeVariant;
use datafusion::datasource::file_format::arrow::ArrowFormatFactory;
use datafusion::datasource::file_format::csv::CsvFormatFactory;
use datafusion::datasource::file_format::json::JsonFormatFactory;
use datafusion::datasource::file_format::parquet::ParquetFormatFactory;
use datafusion::datasource::file_format::{FileFormatFactory, format_as_file_type};
use datafusion::execution::SessionState;
use datafusion::logical_expr::dml::CopyTo;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use futures::{FutureExt, StreamExt};
use weft_remote::{Uploads, is_remote};

use crate::catalog::StatementCatalog;
use crate::copy_options::{Before, CopyOptions};
use crate::copy_target::{CopyTarget, FileNames, NOT_EMPTY};
use crate::csv_values::CsvForm;
use crate::error::{ErrorKind, Result, SqlError};
use crate::files::{FileKind, kind_of};
use crate::run::{Run, Started};
use crate::sized_files::with_size;
use crate::spill_files::task_context;
use crate::text_casts::{cast_to, has_text_of_its_own};

/// How files of a size are called, as DuckDB calls them.
const SIZED_NAMES: &str = "data_{i}";

impl Run {
    /// Starts COPY TO.
    pub(crate) async fn copy_to(
        &self,
        catalog: &StatementCatalog,
        query: ast::Query,
        path: String,
        options: CopyOptions,
    ) -> Result<Started> {
        catalog.access().check_writes_files()?;
        let mut state = catalog.planning_state();
        let statement = DfStatement::Statement(Box::new(ast::Statement::Query(Box::new(query))));
        let input = catalog.plan(&state, statement).await?;
        let target = PathBuf::from(path.strip_prefix("file://").unwrap_or(&path));
        let told = kind_of(&target);
        let kind = match (options.read.kind, told) {
            (Some(kind), _) => kind,
            (None, Some((kind, _))) => kind,
            (None, None) => {
                return Err(SqlError::new(
                    ErrorKind::NotSupported,
                    format!("cannot tell the format of '{path}' from its name"),
                )
                .with_hint("write TO 'file' (FORMAT parquet), csv, tsv, json or arrow")
                .about(path));
            }
        };
        if kind == FileKind::Xlsx {
            let message = format!("cannot write '{path}': workbooks are read, and not written");
            return Err(SqlError::new(ErrorKind::NotSupported, message)
                .with_hint("write CSV, which spreadsheets open: TO 'file.csv'"));
        }
        let input = match kind {
            FileKind::Parquet => with_types(input, logical_type)?,
            FileKind::Csv | FileKind::Tsv => {
                with_types(input, |column| text_of(column, has_text_of_its_own))?
            }
            FileKind::Json => with_types(input, |column| text_of(column, DataType::is_binary))?,
            _ => input,
        };
        let partition_by = partition_columns(&input, &options)?;
        let form = csv_form(kind, &options).filter(CsvForm::fits_all_types);
        let input = match &form {
            Some(form) => form.quoted(input, &partition_by)?,
            None => input,
        };
        if options.file_bytes.is_some() && kind == FileKind::Arrow {
            let message = "the COPY option FILE_SIZE_BYTES is for Parquet, CSV and JSON";
            return Err(SqlError::new(ErrorKind::NotSupported, message));
        }
        let is_sized = options.file_bytes.is_some();
        let is_directory = !partition_by.is_empty() || options.per_thread || is_sized;
        let target = match is_remote(&path) {
            true => {
                let uploads = catalog.context().remote.upload(&path, is_directory)?;
                Target::Remote(Box::new(RemoteTarget::new(uploads, is_directory, &options).await?))
            }
            false => Target::Local(CopyTarget::new(target, is_directory, options.before)?),
        };
        let execution = &mut state.config_mut().options_mut().execution;
        execution.keep_partition_by_columns = options.keeps_partition_columns;
        if options.per_thread {
            let files = execution.target_partitions.max(1);
            execution.minimum_parallel_output_files = ConfigNonZeroUsize::try_new(files)?;
        } else if is_sized {
            execution.minimum_parallel_output_files = ConfigNonZeroUsize::try_new(1)?;
        }
        if is_sized {
            execution.soft_max_rows_per_output_file = ConfigNonZeroUsize::try_new(usize::MAX)?;
        }
        let limit = self.session.engine().ledger().limit();
        execution.objectstore_writer_buffer_size = match target {
            Target::Remote(_) => part_bytes(limit),
            Target::Local(_) => buffer_bytes(limit),
        };
        let mut written =
            write_options(kind, &options, told.map(|(_, compression)| compression), form)?;
        if is_directory {
            written.insert("single_file_output".to_owned(), "false".to_owned());
        }
        let names = options.filename_pattern.as_deref().or(is_sized.then_some(SIZED_NAMES));
        let names = names.filter(|_| is_directory);
        let extension = extension(kind, &options)?;
        let names = names.map(|pattern| FileNames::new(pattern, extension, target.taken()));
        let names = names.map(Arc::new);
        if let (Target::Remote(remote), Some(names)) = (&target, &names) {
            remote.name_files(names);
        }
        let url = target.url()?;
        let copy = CopyTo::new(Arc::new(input), url, partition_by, file_type(kind), written);
        let mut physical = self.physical(&state, &LogicalPlan::Copy(copy)).await?;
        if let Some(bytes) = options.file_bytes {
            physical = with_size(physical, bytes)?;
        }
        let run = self.clone();
        let work = async move {
            let rows = write(&state, physical).await?;
            run.control.begin_commit()?;
            match target {
                Target::Local(target) => {
                    if let Some(names) = &names {
                        target.name_files(names)?;
                    }
                    target.finish().await?;
                }
                Target::Remote(target) => target.finish().await?,
            }
            Ok(Some(rows))
        };
        Ok(Started::Command { tag: "COPY", work: work.boxed() })
    }
}

/// Where the rows go.
enum Target {
    Local(CopyTarget),
    Remote(Box<RemoteTarget>),
}

impl Target {
    /// Where the writer writes to.
    fn url(&self) -> Result<String> {
        match self {
            Target::Local(target) => target.url(),
            Target::Remote(target) => Ok(target.uploads.store_url()),
        }
    }

    /// Names of files that new ones may not have.
    fn taken(&self) -> HashSet<String> {
        match self {
            Target::Local(_) => HashSet::new(),
            Target::Remote(target) => target.taken.clone(),
        }
    }
}

/// Objects of a store, which appear when all of them are whole.
struct RemoteTarget {
    uploads: Uploads,
    /// Keys of objects that go then.
    removed: Vec<String>,
    /// Names within the directory that new objects may not have.
    taken: HashSet<String>,
}

impl RemoteTarget {
    /// # Errors
    /// [`ErrorKind::Io`] if there are objects in a directory that are not to be replaced, or the store does not tell.
    async fn new(
        uploads: Uploads,
        is_directory: bool,
        options: &CopyOptions,
    ) -> Result<RemoteTarget> {
        let existing = match is_directory && options.before != Before::Replace {
            true => uploads.existing().await?,
            false => Vec::new(),
        };
        let (mut removed, mut taken) = (Vec::new(), HashSet::new());
        match options.before {
            Before::Refuse if !existing.is_empty() => {
                let name = uploads.name();
                let message = format!("cannot write '{name}': the directory is not empty");
                return Err(SqlError::new(ErrorKind::Io, message).with_hint(NOT_EMPTY));
            }
            Before::Remove => removed = existing,
            Before::Keep => {
                let directory = uploads.key();
                let within = |key: String| {
                    let rest = key.strip_prefix(directory)?;
                    Some(rest.trim_start_matches('/').to_owned())
                };
                taken = existing.into_iter().filter_map(within).collect();
            }
            Before::Refuse | Before::Replace => {}
        }
        Ok(RemoteTarget { uploads, removed, taken })
    }

    fn name_files(&self, names: &Arc<FileNames>) {
        let names = Arc::clone(names);
        self.uploads.set_naming(Box::new(move |given| names.name_of(given)));
    }

    /// # Errors
    /// [`ErrorKind::Io`] if the store refuses.
    async fn finish(self) -> Result<()> {
        if !self.removed.is_empty() {
            self.uploads.remove(self.removed).await?;
        }
        Ok(self.uploads.finish().await?)
    }
}

/// Bytes of a part of an object, with this memory limit: stores take no smaller ones, and some parts are on their way at once.
fn part_bytes(limit_bytes: u64) -> usize {
    (limit_bytes / 64).clamp(5 << 20, 10 << 20) as usize
}

/// Bytes that are gathered before they are written to a file of this machine: there may be many files at once.
fn buffer_bytes(limit_bytes: u64) -> usize {
    (limit_bytes / 256).clamp(64 << 10, 1 << 20) as usize
}

/// The extension of files in directories.
fn extension(kind: FileKind, options: &CopyOptions) -> Result<String> {
    let of_compression = match kind {
        FileKind::Parquet | FileKind::Arrow | FileKind::Xlsx => "",
        _ => match options.text_compression()? {
            None | Some(CompressionTypeVariant::UNCOMPRESSED) => "",
            Some(CompressionTypeVariant::GZIP) => ".gz",
            Some(CompressionTypeVariant::BZIP2) => ".bz2",
            Some(CompressionTypeVariant::XZ) => ".xz",
            Some(CompressionTypeVariant::ZSTD) => ".zst",
        },
    };
    Ok(format!(".{}{of_compression}", kind.name()))
}

/// Writes the file and counts its rows.
async fn write(state: &SessionState, plan: Arc<dyn ExecutionPlan>) -> Result<u64> {
    let mut stream = execute_stream(plan, task_context(state))?;
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        if let Some(counts) = batch.column(0).as_primitive_opt::<UInt64Type>() {
            rows += counts.values().iter().sum::<u64>();
        }
    }
    Ok(rows)
}

fn file_type(kind: FileKind) -> Arc<dyn FileType> {
    let factory: Arc<dyn FileFormatFactory> = match kind {
        FileKind::Parquet => Arc::new(ParquetFormatFactory::new()),
        FileKind::Csv | FileKind::Tsv => Arc::new(CsvFormatFactory::new()),
        FileKind::Json => Arc::new(JsonFormatFactory::new()),
        // Workbooks are refused before.
        FileKind::Arrow | FileKind::Xlsx => Arc::new(ArrowFormatFactory::new()),
    };
    format_as_file_type(factory)
}

/// The form of a file of CSV.
fn csv_form(kind: FileKind, options: &CopyOptions) -> Option<CsvForm> {
    let delimiter = match kind {
        FileKind::Csv => b',',
        FileKind::Tsv => b'\t',
        FileKind::Parquet | FileKind::Json | FileKind::Arrow | FileKind::Xlsx => return None,
    };
    let read = &options.read;
    let quote = read.quote.unwrap_or(b'"');
    Some(CsvForm {
        delimiter: read.delimiter.unwrap_or(delimiter),
        quote,
        escape: read.escape.unwrap_or(quote),
        null: read.null.clone().unwrap_or_default(),
    })
}

/// The options as DataFusion names them.
fn write_options(
    kind: FileKind,
    options: &CopyOptions,
    told: Option<CompressionTypeVariant>,
    quoted: Option<CsvForm>,
) -> Result<HashMap<String, String>> {
    let mut found = HashMap::new();
    let mut put = |name: &str, value: String| {
        found.insert(format!("format.{name}"), value);
    };
    let read = &options.read;
    match kind {
        FileKind::Parquet => {
            let level = |default: u32| options.compression_level.unwrap_or(default);
            put(
                "compression",
                match options.compression.as_deref() {
                    None | Some("zstd") => format!("zstd({})", level(3)),
                    Some("gzip") => format!("gzip({})", level(6)),
                    Some("brotli") => format!("brotli({})", level(5)),
                    Some("none") => "uncompressed".to_owned(),
                    Some(other) => other.to_owned(),
                },
            );
            if let Some(rows) = options.row_group_rows {
                put("max_row_group_size", rows.to_string());
            }
        }
        FileKind::Arrow | FileKind::Xlsx => {}
        FileKind::Csv | FileKind::Tsv | FileKind::Json => {
            let compression = options.text_compression()?.or(told);
            if let Some(compression) = compression {
                put("compression", compression.to_string());
            }
        }
    }
    if quoted.is_some() {
        put("quote_style", "Never".to_owned());
    }
    if let Some(form) = csv_form(kind, options) {
        let text = |byte: u8| char::from(byte).to_string();
        put("has_header", read.header.unwrap_or(true).to_string());
        put("delimiter", text(form.delimiter));
        if let Some(quote) = read.quote {
            put("quote", text(quote));
        }
        if let Some(escape) =
            read.escape.filter(|escape| Some(*escape) != read.quote.or(Some(b'"')))
        {
            put("escape", text(escape));
            put("double_quote", "false".to_owned());
        }
        if let Some(null) = &read.null {
            put("null_value", null.clone());
        }
    }
    Ok(found)
}

/// The columns by whose values the rows are divided among directories.
fn partition_columns(input: &LogicalPlan, options: &CopyOptions) -> Result<Vec<String>> {
    let fields = input.schema().fields();
    let columns = options.partition_by.iter().map(|name| {
        let found = fields.iter().find(|field| field.name() == name);
        let found = found.or(fields.iter().find(|field| field.name().eq_ignore_ascii_case(name)));
        found.map(|field| field.name().clone()).ok_or_else(|| {
            let message = format!("PARTITION_BY names {name}, which is no column of the result");
            SqlError::new(ErrorKind::Semantic, message).about(name.as_str())
        })
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    if columns.len() == fields.len() {
        let message = "PARTITION_BY names all columns: none is left for the files";
        return Err(SqlError::new(ErrorKind::Semantic, message));
    }
    Ok(columns)
}

/// The plan with its columns cast to the types that `type_of` has for theirs.
fn with_types(input: LogicalPlan, type_of: impl Fn(&DataType) -> DataType) -> Result<LogicalPlan> {
    let schema = Arc::clone(input.schema());
    if schema.fields().iter().all(|field| type_of(field.data_type()) == *field.data_type()) {
        return Ok(input);
    }
    let exprs = schema.iter().map(|(qualifier, field)| {
        let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
        let wanted = type_of(field.data_type());
        let cast = cast_to(column, &wanted, &schema)?;
        Ok(cast.alias_qualified(qualifier.cloned(), field.name()))
    });
    let exprs = exprs.collect::<Result<Vec<_>>>()?;
    Ok(LogicalPlanBuilder::from(input).project(exprs)?.build()?)
}

/// Text for the types that a file of text has no values of.
fn text_of(data_type: &DataType, needs_text: impl Fn(&DataType) -> bool) -> DataType {
    if needs_text(data_type) { DataType::Utf8View } else { data_type.clone() }
}

/// A type that Parquet has a name for: it knows neither timestamps in seconds nor dates in milliseconds, and what is written for
/// them is a number without a meaning.
fn logical_type(data_type: &DataType) -> DataType {
    let within = |field: &FieldRef| -> FieldRef {
        Arc::new(field.as_ref().clone().with_data_type(logical_type(field.data_type())))
    };
    match data_type {
        DataType::Timestamp(TimeUnit::Second, zone) => {
            DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
        }
        DataType::Date64 => DataType::Date32,
        DataType::List(item) => DataType::List(within(item)),
        DataType::LargeList(item) => DataType::LargeList(within(item)),
        DataType::FixedSizeList(item, len) => DataType::FixedSizeList(within(item), *len),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(within).collect()),
        other => other.clone(),
    }
}
