//! COPY query TO file: written under another name, and renamed when it is whole.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use datafusion::common::file_options::file_type::FileType;
use datafusion::datasource::file_format::arrow::ArrowFormatFactory;
use datafusion::datasource::file_format::csv::CsvFormatFactory;
use datafusion::datasource::file_format::json::JsonFormatFactory;
use datafusion::datasource::file_format::parquet::ParquetFormatFactory;
use datafusion::datasource::file_format::{FileFormatFactory, format_as_file_type};
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::dml::CopyTo;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use futures::{FutureExt, StreamExt};

use crate::catalog::StatementCatalog;
use crate::copy_options::CopyOptions;
use crate::error::{ErrorKind, Result, SqlError};
use crate::files::{FileKind, kind_of};
use crate::run::{Run, Started};
use crate::spill_files::task_context;

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Run {
    /// Starts COPY TO.
    pub(crate) async fn copy_to(
        &self,
        catalog: &StatementCatalog,
        query: ast::Query,
        path: String,
        options: CopyOptions,
    ) -> Result<Started> {
        let state = catalog.planning_state();
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
        let partial = Partial::new(target)?;
        let copy = CopyTo::new(
            Arc::new(input),
            partial.path.display().to_string(),
            Vec::new(),
            file_type(kind),
            write_options(kind, &options, told.map(|(_, compression)| compression))?,
        );
        let physical = self.physical(&state, &LogicalPlan::Copy(copy)).await?;
        let run = self.clone();
        let work = async move {
            let rows = write(&state, physical).await?;
            run.control.begin_commit()?;
            partial.finish()?;
            Ok(Some(rows))
        };
        Ok(Started::Command { tag: "COPY", work: work.boxed() })
    }
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
        FileKind::Arrow => Arc::new(ArrowFormatFactory::new()),
    };
    format_as_file_type(factory)
}

/// The options as DataFusion names them.
fn write_options(
    kind: FileKind,
    options: &CopyOptions,
    told: Option<datafusion::common::parsers::CompressionTypeVariant>,
) -> Result<HashMap<String, String>> {
    let mut found = HashMap::new();
    let mut put = |name: &str, value: String| {
        found.insert(format!("format.{name}"), value);
    };
    let read = &options.read;
    match kind {
        FileKind::Parquet => {
            put(
                "compression",
                match options.compression.as_deref() {
                    None | Some("zstd") => "zstd(3)".to_owned(),
                    Some("gzip") => "gzip(6)".to_owned(),
                    Some("brotli") => "brotli(5)".to_owned(),
                    Some("none") => "uncompressed".to_owned(),
                    Some(other) => other.to_owned(),
                },
            );
        }
        FileKind::Arrow => {}
        FileKind::Csv | FileKind::Tsv | FileKind::Json => {
            let compression = options.text_compression()?.or(told);
            if let Some(compression) = compression {
                put("compression", compression.to_string());
            }
        }
    }
    if matches!(kind, FileKind::Csv | FileKind::Tsv) {
        let delimiter = if kind == FileKind::Tsv { b'\t' } else { b',' };
        let text = |byte: u8| char::from(byte).to_string();
        put("has_header", read.header.unwrap_or(true).to_string());
        put("delimiter", text(read.delimiter.unwrap_or(delimiter)));
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

/// A file under a temporary name beside its own. It is removed unless it is finished.
struct Partial {
    path: PathBuf,
    target: PathBuf,
}

impl Partial {
    fn new(target: PathBuf) -> Result<Partial> {
        let cannot = |problem: &str| {
            SqlError::new(ErrorKind::Io, format!("cannot write '{}': {problem}", target.display()))
        };
        let Some(name) = target.file_name() else { return Err(cannot("it is no name of a file")) };
        if target.is_dir() {
            return Err(cannot("it is a directory"));
        }
        let directory = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let directory = fs::canonicalize(directory)
            .map_err(|error| cannot(&format!("its directory: {error}")))?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // With an extension, or it would be taken for a directory.
        let partial =
            format!(".{}-{}-{number}.partial", name.to_string_lossy(), std::process::id());
        let path = directory.join(partial);
        fs::write(&path, b"").map_err(|error| cannot(&error.to_string()))?;
        Ok(Partial { path, target: directory.join(name) })
    }

    /// Makes the file durable and gives it its name.
    fn finish(self) -> Result<()> {
        let renamed = fs::File::open(&self.path)
            .and_then(|file| file.sync_all())
            .and_then(|()| fs::rename(&self.path, &self.target));
        renamed.map_err(|error| {
            let message = format!("cannot write '{}': {error}", self.target.display());
            SqlError::new(ErrorKind::Io, message)
        })
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Gone already if it was finished.
        let _ = fs::remove_file(&self.path);
        // The writer stages its parts beside it, under names that it appends numbers to.
        let (Some(directory), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return;
        };
        let prefix = format!("{}#", name.to_string_lossy());
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                // A part that cannot be removed stays, and keeps nobody from anything.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}
