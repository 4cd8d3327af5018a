//! Files that a statement names: which they are, of what format, and how DataFusion reads them.
//!
//! A name is a path, a pattern (`dir/*.parquet`) or a directory, or the address of one in a store (`s3://bucket/…`), or that of a page
//! (`https://…`). The format follows from the extension, where the statement does not say it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::catalog::view::ViewTable;
use datafusion::common::parsers::CompressionTypeVariant;
use datafusion::common::{Column, ScalarValue};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, lit};
use datafusion::object_store::ObjectMeta;
use url::Url;
use weft_remote::{Found, Place, RemoteFile, RemoteFiles, STORE_URL, is_remote};

use crate::error::{ErrorKind, Result, SqlError, internal};
use crate::parquet_files::{ElsewhereFiles, ParquetFiles};

/// The name under which one of several files is scanned.
const FILE: &str = "file";

/// Extensions and what they mean, as error messages list them.
const KNOWN: &str = ".parquet, .csv, .tsv, .psv, .txt, .dat, .json, .ndjson, .jsonl, .arrow, .feather, .ipc, .xlsx (CSV and \
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
    /// A workbook of Excel's.
    Xlsx,
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
            "xlsx" | "xlsm" => FileKind::Xlsx,
            _ => {
                return Err(SqlError::new(
                    ErrorKind::NotSupported,
                    format!(
                        "there is no file format {name}: it is parquet, csv, tsv, json, arrow or xlsx"
                    ),
                ));
            }
        })
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FileKind::Parquet => "parquet",
            FileKind::Csv => "csv",
            FileKind::Tsv => "tsv",
            FileKind::Json => "json",
            FileKind::Arrow => "arrow",
            FileKind::Xlsx => "xlsx",
        }
    }

    fn of_extension(extension: &str) -> Option<FileKind> {
        let kind = match extension.to_ascii_lowercase().as_str() {
            "parquet" | "pq" | "parq" => FileKind::Parquet,
            "csv" | "psv" | "txt" | "dat" | "tbl" => FileKind::Csv,
            "tsv" | "tab" => FileKind::Tsv,
            "json" | "ndjson" | "jsonl" => FileKind::Json,
            "arrow" | "ipc" | "feather" => FileKind::Arrow,
            "xlsx" | "xlsm" => FileKind::Xlsx,
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
    /// What else is said of CSV files.
    pub(crate) csv: weft_files::csv::CsvOptions,
    /// What else is said of JSON files.
    pub(crate) json: weft_files::json::JsonOptions,
    /// What else is said of workbooks.
    pub(crate) xlsx: weft_files::xlsx::XlsxOptions,
    /// The name of a column for the names of files.
    pub(crate) filename: Option<String>,
    /// Whether parts `key=value` of paths are columns; where it is not said, if all files have the same keys.
    pub(crate) hive: Option<bool>,
    /// The values of these columns are texts.
    pub(crate) hive_as_text: bool,
    /// Files need not have the same columns.
    pub(crate) union_by_name: bool,
}

impl ReadOptions {
    /// True if something is said of CSV files.
    pub(crate) fn has_csv_options(&self) -> bool {
        self.header.is_some()
            || self.delimiter.is_some()
            || self.quote.is_some()
            || self.escape.is_some()
    }

    /// True if the table has columns that are the same in all rows of a file, or files with different columns.
    fn has_columns_by_file(&self) -> bool {
        self.filename.is_some() || self.hive == Some(true) || self.union_by_name
    }
}

/// Existing files of one format.
#[derive(Clone, Debug)]
pub(crate) struct FileSet {
    pub(crate) places: Vec<Place>,
    /// As the statement names the files, or patterns match them.
    pub(crate) names: Vec<String>,
    pub(crate) kind: FileKind,
    pub(crate) compression: CompressionTypeVariant,
}

/// True if `name` looks like a file's rather than a table's.
pub(crate) fn looks_like_file(name: &str) -> bool {
    is_name_of_file(name) || Path::new(name).exists()
}

/// True if a name is one of a file by its form, whether there is such a file or not.
pub(crate) fn is_name_of_file(name: &str) -> bool {
    name.contains(['/', '*']) || kind_of(Path::new(name)).is_some()
}

impl FileSet {
    /// Finds the files that `name` stands for.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if there are none or they cannot be listed, [`ErrorKind::NotSupported`] if
    /// their format cannot be told.
    pub(crate) async fn find(
        name: &str,
        options: &ReadOptions,
        remote: &RemoteFiles,
    ) -> Result<FileSet> {
        FileSet::find_all(&[name.to_owned()], options, remote).await
    }

    /// Finds the files that these names stand for, in the order of the names.
    ///
    /// # Errors
    /// As [`FileSet::find`].
    pub(crate) async fn find_all(
        names: &[String],
        options: &ReadOptions,
        remote: &RemoteFiles,
    ) -> Result<FileSet> {
        let mut found = Vec::new();
        for name in names {
            found.extend(places_of(name, options.kind, remote).await?);
        }
        let mut kinds: Vec<_> = found.iter().map(|place| kind_of(place.path())).collect();
        kinds.dedup();
        let told = kinds.first().copied().flatten();
        let are_one_kind =
            kinds.iter().all(|kind| kind.map(|(kind, _)| kind) == told.map(|(kind, _)| kind));
        let name = names.join(", ");
        let kind = match (options.kind, told) {
            // What is between values is told from the file.
            (Some(FileKind::Csv), Some((FileKind::Tsv, _))) => FileKind::Tsv,
            (Some(kind), _) => kind,
            (None, Some((kind, _))) if are_one_kind => kind,
            (None, Some(_)) => {
                return Err(SqlError::new(
                    ErrorKind::NotSupported,
                    format!("'{name}' stands for files of several formats"),
                )
                .with_hint("name those of one format, such as 'dir/*.parquet'"));
            }
            (None, None) => return Err(unknown_kind(&name)),
        };
        let compression = options
            .compression
            .or_else(|| compression_of(found.first()?.path().extension()?.to_str()?))
            .unwrap_or(CompressionTypeVariant::UNCOMPRESSED);
        FileSet::of(found, kind, compression)
    }

    /// Finds the files that these names stand for, whatever their format.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if there are none or they cannot be listed.
    pub(crate) async fn find_any(names: &[String], remote: &RemoteFiles) -> Result<FileSet> {
        let mut found = Vec::new();
        for name in names {
            found.extend(places_of(name, None, remote).await?);
        }
        FileSet::of(found, FileKind::Csv, CompressionTypeVariant::UNCOMPRESSED)
    }

    fn of(
        found: Vec<Place>,
        kind: FileKind,
        compression: CompressionTypeVariant,
    ) -> Result<FileSet> {
        let name = |place: &Place| place.path().to_string_lossy().into_owned();
        let names = found.iter().map(name).collect();
        let places = found.into_iter().map(absolute).collect::<Result<_>>()?;
        Ok(FileSet { places, names, kind, compression })
    }

    /// How the file of this number is compressed.
    pub(crate) fn compression_of(
        &self,
        number: usize,
        options: &ReadOptions,
    ) -> CompressionTypeVariant {
        let told = || {
            let extension = self.places[number].path().extension()?.to_str()?;
            compression_of(extension)
        };
        match self.compression {
            CompressionTypeVariant::UNCOMPRESSED
                if options.compression.is_none() && self.places.len() == 1 =>
            {
                self.compression
            }
            _ => options.compression.or_else(told).unwrap_or(CompressionTypeVariant::UNCOMPRESSED),
        }
    }

    /// Bytes of the files.
    pub(crate) fn bytes(&self) -> u64 {
        self.places.iter().filter_map(|place| place.bytes().ok()).sum()
    }

    /// Parquet files as a table.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] and [`ErrorKind::Data`] for files that cannot be read.
    pub(crate) async fn table(
        &self,
        state: &SessionState,
        options: &ReadOptions,
    ) -> Result<Arc<dyn TableProvider>> {
        let remote: Vec<&RemoteFile> = self
            .places
            .iter()
            .filter_map(|place| match place {
                Place::Remote(file) => Some(file),
                Place::Local(_) => None,
            })
            .collect();
        let are_mixed = !remote.is_empty() && remote.len() < self.places.len();
        if options.has_columns_by_file() || are_mixed {
            return self.by_file(state, options).await;
        }
        let parquet = state.default_table_options().parquet;
        let elsewhere = ElsewhereFiles::new(remote.into_iter());
        let format: Arc<dyn FileFormat> = Arc::new(ParquetFiles::new(parquet, elsewhere));
        let urls = self.places.iter().map(url_of).collect::<Result<Vec<_>>>()?;
        let schema = self.schema(state, format.as_ref(), &urls).await?;
        let listing = ListingOptions::new(format).with_file_extension("");
        let config = ListingTableConfig::new_with_multi_paths(urls)
            .with_listing_options(listing)
            .with_schema(schema);
        let table = ListingTable::try_new(config)?
            .with_cache(state.runtime_env().cache_manager.get_file_statistic_cache());
        Ok(Arc::new(table))
    }

    /// The files as a table of which columns are found by name, with those that are the same in all rows of a file.
    async fn by_file(
        &self,
        state: &SessionState,
        options: &ReadOptions,
    ) -> Result<Arc<dyn TableProvider>> {
        let plain = ReadOptions { compression: options.compression, ..ReadOptions::default() };
        let mut scans = Vec::with_capacity(self.places.len());
        for (number, place) in self.places.iter().enumerate() {
            let alone = FileSet {
                places: vec![place.clone()],
                names: vec![self.names[number].clone()],
                ..self.clone()
            };
            let provider = Box::pin(alone.table(state, &plain)).await?;
            let scan = LogicalPlanBuilder::scan(FILE, provider_as_source(provider), None)?;
            scans.push(scan.build()?);
        }
        let constants = self.constants(options);
        let mut names: Vec<String> = Vec::new();
        for scan in &scans {
            for field in scan.schema().fields() {
                let is_there = |name: &String| name == field.name();
                let is_constant = constants.iter().any(|(name, _)| name == field.name());
                if !is_constant && !names.iter().any(is_there) {
                    names.push(field.name().clone());
                }
            }
        }
        let mut united: Option<LogicalPlanBuilder> = None;
        for (number, scan) in scans.into_iter().enumerate() {
            let mut exprs = Vec::with_capacity(names.len() + constants.len());
            for name in &names {
                exprs.push(match scan.schema().has_column_with_unqualified_name(name) {
                    true => Expr::Column(Column::new(Some(FILE), name)).alias(name),
                    false if options.union_by_name => lit(ScalarValue::Null).alias(name),
                    false => {
                        let message = format!("'{}' has no column {name}", self.names[number]);
                        return Err(SqlError::new(ErrorKind::Data, message).with_hint(
                            "read files with different columns by union_by_name = true",
                        ));
                    }
                });
            }
            for (name, values) in &constants {
                exprs.push(lit(ScalarValue::try_from_array(values, number)?).alias(name));
            }
            let part = LogicalPlanBuilder::from(scan).project(exprs)?;
            united = Some(match united {
                None => part,
                Some(before) => before.union(part.build()?)?,
            });
        }
        let plan = united.ok_or_else(|| internal("a set of files has none"))?.build()?;
        Ok(Arc::new(ViewTable::new(plan, None)))
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
        let objects = self.places.iter().map(object_of).collect::<Result<Vec<_>>>()?;
        let schema = format.infer_schema(state, &store, &objects).await.map_err(|error| {
            let error = SqlError::from(error);
            if error.message().contains("cannot read '") || error.kind() == ErrorKind::Cancelled {
                return error;
            }
            let name = self.places[0].path().display();
            SqlError::new(error.kind(), format!("cannot read '{name}': {error}"))
        })?;
        if schema.fields().is_empty() {
            return Err(SqlError::new(
                ErrorKind::Data,
                format!("file '{}' has no columns: it is empty", self.places[0].path().display()),
            ));
        }
        Ok(schema)
    }
}

/// A file that the system does not let us read.
pub(crate) fn cannot_read(path: &Path, error: &std::io::Error) -> SqlError {
    SqlError::new(ErrorKind::Io, format!("cannot read '{}': {error}", path.display()))
}

fn unknown_kind(name: &str) -> SqlError {
    let lower = name.to_ascii_lowercase();
    if let Some(other) = [".xls", ".xlsb", ".ods"].iter().find(|other| lower.ends_with(*other)) {
        let message =
            format!("cannot read '{name}': of workbooks, .xlsx is read, and {other} is not");
        return SqlError::new(ErrorKind::NotSupported, message)
            .with_hint("save it as .xlsx, or as CSV");
    }
    SqlError::new(
        ErrorKind::NotSupported,
        format!("cannot tell the format of '{name}' from its name"),
    )
    .with_hint(format!("known extensions: {KNOWN}"))
}

/// The files that a name stands for, in order: one, those that match a pattern, or those below a directory.
async fn places_of(name: &str, kind: Option<FileKind>, remote: &RemoteFiles) -> Result<Vec<Place>> {
    if !is_remote(name) {
        return Ok(paths_of(name, kind)?.into_iter().map(Place::Local).collect());
    }
    Ok(match remote.find(name).await? {
        Found::File(file) => vec![Place::Remote(file)],
        Found::Matching(files) => files.into_iter().map(Place::Remote).collect(),
        Found::Below(files) => {
            let is_hidden = |file: &RemoteFile| {
                let name = file.path().file_name().unwrap_or_default().to_string_lossy();
                name.starts_with(['.', '_'])
            };
            let files = files.into_iter().filter(|file| !is_hidden(file));
            let known = files.filter(|file| kind_of(file.path()).is_some()).map(Place::Remote);
            chosen(known.collect(), Path::new(name), kind)?
        }
    })
}

/// The local files that a name stands for, in order.
fn paths_of(name: &str, kind: Option<FileKind>) -> Result<Vec<PathBuf>> {
    let path = Path::new(name.strip_prefix("file://").unwrap_or(name));
    if path.is_dir() {
        files_below(path, kind)
    } else if path.exists() {
        Ok(vec![path.to_owned()])
    } else if name.contains(['*', '?', '[']) {
        matching(name)
    } else {
        Err(SqlError::new(ErrorKind::Io, format!("file '{name}' does not exist")))
    }
}

/// The files below a directory, without hidden ones, in order: those of a known format; of that which is asked for, if there are
/// some; and those with extensions that notes have, too, if there are no others.
fn files_below(directory: &Path, kind: Option<FileKind>) -> Result<Vec<PathBuf>> {
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
    let found = chosen(found.into_iter().map(Place::Local).collect(), directory, kind)?;
    let mut paths: Vec<PathBuf> = found.iter().map(|place| place.path().to_owned()).collect();
    paths.sort();
    Ok(paths)
}

/// Of the files below a directory that have known formats, those that its name stands for.
fn chosen(mut found: Vec<Place>, directory: &Path, kind: Option<FileKind>) -> Result<Vec<Place>> {
    let is_wanted =
        |place: &Place| kind.is_some() && kind_of(place.path()).map(|(kind, _)| kind) == kind;
    let is_no_note = |place: &Place| {
        let name = place.path().to_string_lossy().to_ascii_lowercase();
        ![".txt", ".dat"].iter().any(|part| name.contains(part))
    };
    for is_chosen in [&is_wanted as &dyn Fn(&Place) -> bool, &is_no_note] {
        if found.iter().any(is_chosen) {
            found.retain(is_chosen);
        }
    }
    if found.is_empty() {
        let message = format!("directory '{}' has no file of a known format", directory.display());
        return Err(
            SqlError::new(ErrorKind::Io, message).with_hint(format!("known extensions: {KNOWN}"))
        );
    }
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

fn absolute(place: Place) -> Result<Place> {
    match place {
        Place::Local(path) => {
            let absolute = fs::canonicalize(&path).map_err(|error| cannot_read(&path, &error))?;
            Ok(Place::Local(absolute))
        }
        remote => Ok(remote),
    }
}

fn url_of(place: &Place) -> Result<ListingTableUrl> {
    let none = || {
        let path = place.path().display();
        SqlError::new(ErrorKind::Io, format!("'{path}' is no path of a file"))
    };
    let url = match place {
        Place::Local(path) => Url::from_file_path(path).map_err(|()| none())?,
        Place::Remote(file) => {
            let mut url = Url::parse(STORE_URL).map_err(|_| none())?;
            // What is written as `%` there is meant so.
            url.set_path(&file.object().location.as_ref().replace('%', "%25"));
            url
        }
    };
    Ok(ListingTableUrl::try_new(url, None)?)
}

fn object_of(place: &Place) -> Result<ObjectMeta> {
    let path = match place {
        Place::Remote(file) => return Ok(file.object().clone()),
        Place::Local(path) => path,
    };
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
    use futures::executor::block_on;
    use weft_remote::Remote;
    use weft_rt::cancel::CancelToken;
    use weft_rt::memory::Ledger;

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
        let remote = Remote::new(Ledger::new(1 << 20), std::env::temp_dir());
        let remote = remote.files(&CancelToken::new());
        let find = |name: &str| {
            let options = ReadOptions::default();
            block_on(FileSet::find(name, &options, &remote)).unwrap_err()
        };
        assert_eq!(find("/nowhere/x.csv").message(), "file '/nowhere/x.csv' does not exist");
        assert_eq!(find("/nowhere/*.csv").message(), "no file matches '/nowhere/*.csv'");
        assert!(find("/proc/version").message().contains("format of '/proc/version'"));
    }
}
