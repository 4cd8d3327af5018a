//! Files that a statement names: which they are, of what format, and how DataFusion reads them.
//!
//! A name is a path, a pattern (`dir/*.parquet`) or a directory. The format follows from the
//! extension, where the statement does not say it.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::config::{CsvOptions, JsonOptions};
use datafusion::common::parsers::CompressionTypeVariant;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::arrow::ArrowFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::execution::SessionState;
use datafusion::object_store::ObjectMeta;
use url::Url;

use crate::error::{ErrorKind, Result, SqlError};
use crate::parquet_files::ParquetFiles;

/// Rows from which the types of CSV and JSON columns are guessed.
const INFER_ROWS: usize = 20_000;

/// Extensions and what they mean, as error messages list them.
const KNOWN: &str = ".parquet, .csv, .tsv, .json, .ndjson, .jsonl, .arrow, .feather, .ipc (CSV and \
                     JSON also with .gz, .bz2, .xz or .zst)";

/// A format of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Parquet,
    Csv,
    /// Values separated by tabs.
    Tsv,
    Json,
    Arrow,
}

impl FileKind {
    /// The format of this name in `FORMAT …`.
    ///
    /// # Errors
    /// [`ErrorKind::NotSupported`] for others.
    pub(crate) fn named(name: &str) -> Result<FileKind> {
        Ok(match name.to_ascii_lowercase().as_str() {
            "parquet" => FileKind::Parquet,
            "csv" | "text" => FileKind::Csv,
            "tsv" => FileKind::Tsv,
            "json" | "ndjson" | "jsonl" => FileKind::Json,
            "arrow" | "ipc" | "feather" => FileKind::Arrow,
            _ => {
                return Err(SqlError::new(
                    ErrorKind::NotSupported,
                    format!(
                        "there is no file format {name}: it is parquet, csv, tsv, json or arrow"
                    ),
                ));
            }
        })
    }

    fn of_extension(extension: &str) -> Option<FileKind> {
        let kind = match extension.to_ascii_lowercase().as_str() {
            "parquet" | "pq" | "parq" => FileKind::Parquet,
            "csv" => FileKind::Csv,
            "tsv" | "tab" => FileKind::Tsv,
            "json" | "ndjson" | "jsonl" => FileKind::Json,
            "arrow" | "ipc" | "feather" => FileKind::Arrow,
            _ => return None,
        };
        Some(kind)
    }
}

/// The format and compression that a file's name tells.
pub(crate) fn kind_of(path: &Path) -> Option<(FileKind, CompressionTypeVariant)> {
    let extension = path.extension()?.to_str()?;
    let Some(compression) = compression_of(extension) else {
        return Some((FileKind::of_extension(extension)?, CompressionTypeVariant::UNCOMPRESSED));
    };
    let inner = Path::new(path.file_stem()?).extension()?.to_str()?;
    Some((FileKind::of_extension(inner)?, compression))
}

fn compression_of(extension: &str) -> Option<CompressionTypeVariant> {
    let compression = match extension.to_ascii_lowercase().as_str() {
        "gz" | "gzip" => CompressionTypeVariant::GZIP,
        "bz2" => CompressionTypeVariant::BZIP2,
        "xz" => CompressionTypeVariant::XZ,
        "zst" | "zstd" => CompressionTypeVariant::ZSTD,
        _ => return None,
    };
    Some(compression)
}

/// How files are to be read, where the statement says it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadOptions {
    pub(crate) kind: Option<FileKind>,
    pub(crate) header: Option<bool>,
    pub(crate) delimiter: Option<u8>,
    pub(crate) quote: Option<u8>,
    pub(crate) escape: Option<u8>,
    pub(crate) null: Option<String>,
    pub(crate) compression: Option<CompressionTypeVariant>,
}

/// Existing files of one format.
#[derive(Clone, Debug)]
pub(crate) struct FileSet {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) kind: FileKind,
    pub(crate) compression: CompressionTypeVariant,
}

/// True if `name` looks like a file's rather than a table's.
pub(crate) fn looks_like_file(name: &str) -> bool {
    name.contains(['/', '*']) || kind_of(Path::new(name)).is_some() || Path::new(name).exists()
}

impl FileSet {
    /// Finds the files that `name` stands for.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if there are none or they cannot be listed, [`ErrorKind::NotSupported`] if
    /// their format cannot be told.
    pub(crate) fn find(name: &str, options: &ReadOptions) -> Result<FileSet> {
        let path = Path::new(name.strip_prefix("file://").unwrap_or(name));
        let paths = if path.is_dir() {
            files_below(path)?
        } else if path.exists() {
            vec![path.to_owned()]
        } else if name.contains(['*', '?', '[']) {
            matching(name)?
        } else {
            return Err(SqlError::new(ErrorKind::Io, format!("file '{name}' does not exist")));
        };
        let mut kinds: Vec<_> = paths.iter().map(|path| kind_of(path)).collect();
        kinds.dedup();
        let told = kinds.first().copied().flatten();
        let kind = match (options.kind, told) {
            (Some(kind), _) => kind,
            (None, Some((kind, _))) if kinds.len() == 1 => kind,
            (None, Some(_)) => {
                return Err(SqlError::new(
                    ErrorKind::NotSupported,
                    format!("'{name}' stands for files of several formats"),
                )
                .with_hint("name those of one format, such as 'dir/*.parquet'"));
            }
            (None, None) => return Err(unknown_kind(name)),
        };
        let compression = options
            .compression
            .or(told.map(|(_, compression)| compression))
            .unwrap_or(CompressionTypeVariant::UNCOMPRESSED);
        let paths = paths.iter().map(|path| absolute(path)).collect::<Result<_>>()?;
        Ok(FileSet { paths, kind, compression })
    }

    /// Bytes of the files.
    pub(crate) fn bytes(&self) -> u64 {
        self.paths.iter().filter_map(|path| fs::metadata(path).ok()).map(|found| found.len()).sum()
    }

    /// The files as a table. Without `schema`, theirs is read or guessed.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] and [`ErrorKind::Data`] for files that cannot be read.
    pub(crate) async fn table(
        &self,
        state: &SessionState,
        options: &ReadOptions,
        schema: Option<SchemaRef>,
    ) -> Result<Arc<dyn TableProvider>> {
        let format = self.format(state, options)?;
        let urls = self.paths.iter().map(|path| url_of(path)).collect::<Result<Vec<_>>>()?;
        let schema = match schema {
            Some(schema) => schema,
            None => self.schema(state, format.as_ref(), &urls).await?,
        };
        let listing = ListingOptions::new(format).with_file_extension("");
        let config = ListingTableConfig::new_with_multi_paths(urls)
            .with_listing_options(listing)
            .with_schema(schema);
        let table = ListingTable::try_new(config)?
            .with_cache(state.runtime_env().cache_manager.get_file_statistic_cache());
        Ok(Arc::new(table))
    }

    /// The files' common schema.
    async fn schema(
        &self,
        state: &SessionState,
        format: &dyn FileFormat,
        urls: &[ListingTableUrl],
    ) -> Result<SchemaRef> {
        let Some(first) = urls.first() else {
            return Ok(Arc::new(Schema::empty()));
        };
        let store = state.runtime_env().object_store(first)?;
        let objects = self.paths.iter().map(|path| object_of(path)).collect::<Result<Vec<_>>>()?;
        let schema = format.infer_schema(state, &store, &objects).await.map_err(|error| {
            let error = SqlError::from(error);
            if error.message().contains("cannot read '") {
                return error;
            }
            let name = self.paths[0].display();
            SqlError::new(error.kind(), format!("cannot read '{name}': {error}"))
        })?;
        if schema.fields().is_empty() {
            return Err(SqlError::new(
                ErrorKind::Data,
                format!("file '{}' has no columns: it is empty", self.paths[0].display()),
            ));
        }
        Ok(schema)
    }

    fn format(&self, state: &SessionState, options: &ReadOptions) -> Result<Arc<dyn FileFormat>> {
        Ok(match self.kind {
            FileKind::Parquet => {
                let parquet = state.default_table_options().parquet;
                Arc::new(ParquetFiles::new(parquet))
            }
            FileKind::Arrow => Arc::new(ArrowFormat),
            FileKind::Csv | FileKind::Tsv => {
                let csv = self.csv_options(options)?;
                let compression = FileCompressionType::from(self.compression);
                Arc::new(
                    CsvFormat::default().with_options(csv).with_file_compression_type(compression),
                )
            }
            FileKind::Json => {
                let json = JsonOptions {
                    schema_infer_max_rec: Some(INFER_ROWS),
                    newline_delimited: !self.is_json_array()?,
                    ..JsonOptions::default()
                };
                let compression = FileCompressionType::from(self.compression);
                Arc::new(
                    JsonFormat::default()
                        .with_options(json)
                        .with_file_compression_type(compression),
                )
            }
        })
    }

    fn csv_options(&self, options: &ReadOptions) -> Result<CsvOptions> {
        let delimiter = if self.kind == FileKind::Tsv { b'\t' } else { b',' };
        let quote = options.quote.unwrap_or(b'"');
        let mut csv = CsvOptions::default()
            .with_has_header(options.header.unwrap_or(true))
            .with_delimiter(options.delimiter.unwrap_or(delimiter))
            .with_quote(quote)
            .with_escape(options.escape.filter(|escape| *escape != quote));
        csv.schema_infer_max_rec = Some(INFER_ROWS);
        csv.newlines_in_values = Some(self.contains(quote)?);
        Ok(csv)
    }

    /// True if a file contains this byte. Quotes may enclose line ends, so that only a file without
    /// them can be cut at its lines and read by several threads.
    fn contains(&self, byte: u8) -> Result<bool> {
        if self.compression != CompressionTypeVariant::UNCOMPRESSED {
            return Ok(false);
        }
        let mut buffer = vec![0; 1 << 18];
        for path in &self.paths {
            let mut file = fs::File::open(path).map_err(|error| cannot_read(path, &error))?;
            loop {
                let count = file.read(&mut buffer).map_err(|error| cannot_read(path, &error))?;
                if count == 0 {
                    break;
                }
                if memchr::memchr(byte, &buffer[..count]).is_some() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// True if the first file holds one JSON array rather than an object per line.
    fn is_json_array(&self) -> Result<bool> {
        if self.compression != CompressionTypeVariant::UNCOMPRESSED {
            return Ok(false);
        }
        let Some(path) = self.paths.first() else { return Ok(false) };
        let mut start = Vec::new();
        let file = fs::File::open(path).map_err(|error| cannot_read(path, &error))?;
        file.take(4096).read_to_end(&mut start).map_err(|error| cannot_read(path, &error))?;
        Ok(start.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'['))
    }
}

/// A file that the system does not let us read.
pub(crate) fn cannot_read(path: &Path, error: &std::io::Error) -> SqlError {
    SqlError::new(ErrorKind::Io, format!("cannot read '{}': {error}", path.display()))
}

fn unknown_kind(name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::NotSupported,
        format!("cannot tell the format of '{name}' from its name"),
    )
    .with_hint(format!("known extensions: {KNOWN}"))
}

/// The files below a directory, without hidden ones, in order.
fn files_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(next) = directories.pop() {
        for entry in fs::read_dir(&next).map_err(|error| cannot_read(&next, &error))? {
            let path = entry.map_err(|error| cannot_read(&next, &error))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with(['.', '_']) {
                continue;
            }
            match path.is_dir() {
                true => directories.push(path),
                false if kind_of(&path).is_some() => found.push(path),
                false => {}
            }
        }
    }
    if found.is_empty() {
        let message = format!("directory '{}' has no file of a known format", directory.display());
        return Err(
            SqlError::new(ErrorKind::Io, message).with_hint(format!("known extensions: {KNOWN}"))
        );
    }
    found.sort();
    Ok(found)
}

fn matching(pattern: &str) -> Result<Vec<PathBuf>> {
    let bad = |error: &dyn std::fmt::Display| {
        SqlError::new(ErrorKind::Io, format!("cannot list '{pattern}': {error}"))
    };
    let paths = glob::glob(pattern).map_err(|error| bad(&error))?;
    let mut found: Vec<PathBuf> = paths.collect::<Result<_, _>>().map_err(|error| bad(&error))?;
    found.retain(|path| path.is_file());
    if found.is_empty() {
        return Err(SqlError::new(ErrorKind::Io, format!("no file matches '{pattern}'")));
    }
    Ok(found)
}

fn absolute(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).map_err(|error| cannot_read(path, &error))
}

fn url_of(path: &Path) -> Result<ListingTableUrl> {
    let url = Url::from_file_path(path).map_err(|()| {
        SqlError::new(ErrorKind::Io, format!("'{}' is no path of a file", path.display()))
    })?;
    Ok(ListingTableUrl::try_new(url, None)?)
}

fn object_of(path: &Path) -> Result<ObjectMeta> {
    let metadata = fs::metadata(path).map_err(|error| cannot_read(path, &error))?;
    let modified = metadata.modified().map_err(|error| cannot_read(path, &error))?;
    let location = datafusion::object_store::path::Path::from_absolute_path(path)
        .map_err(|error| SqlError::new(ErrorKind::Io, error.to_string()))?;
    Ok(ObjectMeta {
        location,
        last_modified: modified.into(),
        size: metadata.len(),
        e_tag: None,
        version: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_formats_by_names() {
        let kind = |name: &str| kind_of(Path::new(name)).map(|(kind, _)| kind);
        assert_eq!(kind("a/b.parquet"), Some(FileKind::Parquet));
        assert_eq!(kind("b.CSV"), Some(FileKind::Csv));
        assert_eq!(kind("b.csv.gz"), Some(FileKind::Csv));
        assert_eq!(kind("b.ndjson.zst"), Some(FileKind::Json));
        assert_eq!(kind("b.gz"), None);
        assert_eq!(kind("b"), None);
    }

    #[test]
    fn missing_and_unknown_files_are_named() {
        let find = |name: &str| FileSet::find(name, &ReadOptions::default()).unwrap_err();
        assert_eq!(find("/nowhere/x.csv").message(), "file '/nowhere/x.csv' does not exist");
        assert_eq!(find("/nowhere/*.csv").message(), "no file matches '/nowhere/*.csv'");
        assert!(find("/proc/version").message().contains("format of '/proc/version'"));
    }
}
