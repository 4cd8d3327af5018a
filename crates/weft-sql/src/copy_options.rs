//! The options of COPY.

use datafusion::common::parsers::CompressionTypeVariant;

use crate::error::{ErrorKind, Result, SqlError};
use crate::file_options::{self, OptionValue};
use crate::files::{FileKind, ReadOptions};
use crate::sizes::parse_bytes;

/// Names that COPY knows.
const NAMES: [&str; 20] = [
    "format",
    "header",
    "delimiter",
    "delim",
    "sep",
    "quote",
    "escape",
    "null",
    "nullstr",
    "compression",
    "compression_level",
    "row_group_size",
    "partition_by",
    "overwrite",
    "overwrite_or_ignore",
    "append",
    "per_thread_output",
    "file_size_bytes",
    "filename_pattern",
    "write_partition_columns",
];

/// What follows the file's name in COPY.
#[derive(Clone, Debug, Default)]
pub(crate) struct CopyOptions {
    pub(crate) read: ReadOptions,
    /// As written: Parquet and Arrow have names of their own.
    pub(crate) compression: Option<String>,
    /// How hard it is compressed, as its own format counts that.
    pub(crate) compression_level: Option<u32>,
    /// Rows of a row group of Parquet, at most.
    pub(crate) row_group_rows: Option<u64>,
    /// Columns by whose values the rows are divided among directories, `column=value`.
    pub(crate) partition_by: Vec<String>,
    /// What becomes of what is in the directory.
    pub(crate) before: Before,
    /// Each thread writes files of its own, into a directory.
    pub(crate) per_thread: bool,
    /// Bytes after which the rows go on in another file of the directory.
    pub(crate) file_bytes: Option<u64>,
    /// How files in directories are called: `{i}` is a number, `{uuid}` a random identifier.
    pub(crate) filename_pattern: Option<String>,
    /// The columns of `partition_by` are in the files, too.
    pub(crate) keeps_partition_columns: bool,
}

/// What becomes of the files that are in a directory that is written to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Before {
    /// Files that are there are an error.
    #[default]
    Refuse,
    /// Files that are there go.
    Remove,
    /// Files that are there stay, but for files with the names of new ones.
    Replace,
    /// Files that are there stay: new ones get other names.
    Keep,
}

impl CopyOptions {
    /// True for the name of an option, so that a flag can be told from the option after it.
    pub(crate) fn is_name(word: &str) -> bool {
        NAMES.iter().any(|name| word.eq_ignore_ascii_case(name)) || file_options::is_name(word)
    }

    /// Sets one option; a flag has no value.
    ///
    /// # Errors
    /// [`ErrorKind::NotSupported`] for unknown options, [`ErrorKind::Semantic`] for bad values.
    pub(crate) fn set(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        let lower = name.to_ascii_lowercase();
        let lower = lower.strip_prefix("format.").unwrap_or(&lower);
        let needed = || {
            value.ok_or_else(|| {
                SqlError::new(ErrorKind::Semantic, format!("the COPY option {name} needs a value"))
            })
        };
        match lower {
            "format" => self.read.kind = Some(FileKind::named(needed()?)?),
            "csv" | "parquet" | "json" | "arrow" if value.is_none() => {
                self.read.kind = Some(FileKind::named(lower)?);
            }
            "header" | "has_header" => self.read.header = Some(flag(name, value)?),
            "delimiter" | "delim" | "sep" => self.read.delimiter = Some(byte(name, needed()?)?),
            "quote" => self.read.quote = Some(byte(name, needed()?)?),
            "escape" => self.read.escape = Some(byte(name, needed()?)?),
            "null" | "nullstr" => self.read.null = Some(needed()?.to_owned()),
            "compression" => self.compression = Some(needed()?.to_ascii_lowercase()),
            "compression_level" => self.compression_level = Some(number(name, needed()?)?),
            "row_group_size" => self.row_group_rows = Some(number::<u64>(name, needed()?)?.max(1)),
            "partition_by" => {
                let columns = needed()?.split(',').map(|column| column.trim().to_owned());
                self.partition_by = columns.filter(|column| !column.is_empty()).collect();
            }
            "overwrite" => self.set_before(Before::Remove, flag(name, value)?)?,
            "overwrite_or_ignore" => self.set_before(Before::Replace, flag(name, value)?)?,
            "append" => self.set_before(Before::Keep, flag(name, value)?)?,
            "per_thread_output" => self.per_thread = flag(name, value)?,
            "file_size_bytes" => {
                let option = format!("the COPY option {name}");
                let bytes = parse_bytes(&option, needed()?, None);
                let bad = |error: SqlError| SqlError::new(ErrorKind::Semantic, error.message());
                self.file_bytes = Some(bytes.map_err(bad)?);
            }
            "write_partition_columns" => self.keeps_partition_columns = flag(name, value)?,
            "filename_pattern" => {
                let pattern = needed()?;
                if pattern.is_empty() || pattern.contains('/') {
                    let message = format!("the COPY option {name} is a name without '/'");
                    return Err(SqlError::new(ErrorKind::Semantic, message));
                }
                self.filename_pattern = Some(pattern.to_owned());
            }
            _ => {
                let value = match value {
                    Some(text) => OptionValue::Text(text.to_owned()),
                    None => OptionValue::Flag(true),
                };
                if !file_options::set(&mut self.read, lower, &value)? {
                    return Err(SqlError::new(
                        ErrorKind::NotSupported,
                        format!("there is no COPY option {name}"),
                    )
                    .with_hint(
                        "options: FORMAT, HEADER, DELIMITER, QUOTE, ESCAPE, NULL, COMPRESSION, \
                         COMPRESSION_LEVEL, ROW_GROUP_SIZE, PARTITION_BY, WRITE_PARTITION_COLUMNS, OVERWRITE, \
                         OVERWRITE_OR_IGNORE, APPEND, PER_THREAD_OUTPUT, FILE_SIZE_BYTES, FILENAME_PATTERN, \
                         and those of read_csv",
                    ));
                }
            }
        }
        Ok(())
    }

    fn set_before(&mut self, before: Before, is_on: bool) -> Result<()> {
        if !is_on {
            return Ok(());
        }
        if self.before != Before::Refuse && self.before != before {
            let message = "OVERWRITE, OVERWRITE_OR_IGNORE and APPEND exclude each other";
            return Err(SqlError::new(ErrorKind::Semantic, message));
        }
        self.before = before;
        Ok(())
    }

    /// How a text file is compressed, where the option says it.
    ///
    /// # Errors
    /// [`ErrorKind::NotSupported`] for unknown names.
    pub(crate) fn text_compression(&self) -> Result<Option<CompressionTypeVariant>> {
        self.compression.as_deref().map(text_compression).transpose()
    }
}

/// How a text file is compressed, by name.
///
/// # Errors
/// [`ErrorKind::NotSupported`] for unknown names.
pub(crate) fn text_compression(name: &str) -> Result<CompressionTypeVariant> {
    Ok(match name {
        "none" | "uncompressed" => CompressionTypeVariant::UNCOMPRESSED,
        "gzip" | "gz" => CompressionTypeVariant::GZIP,
        "bzip2" | "bz2" => CompressionTypeVariant::BZIP2,
        "xz" => CompressionTypeVariant::XZ,
        "zstd" | "zst" => CompressionTypeVariant::ZSTD,
        other => {
            return Err(SqlError::new(
                ErrorKind::NotSupported,
                format!(
                    "text files cannot be compressed with {other}: it is none, gzip, \
                             bzip2, xz or zstd"
                ),
            ));
        }
    })
}

fn flag(name: &str, value: Option<&str>) -> Result<bool> {
    match value.unwrap_or("true").to_ascii_lowercase().as_str() {
        "true" | "on" | "1" | "yes" => Ok(true),
        "false" | "off" | "0" | "no" => Ok(false),
        other => Err(SqlError::new(
            ErrorKind::Semantic,
            format!("the COPY option {name} cannot be '{other}': it is true or false"),
        )),
    }
}

fn number<N: std::str::FromStr>(name: &str, value: &str) -> Result<N> {
    value.replace('_', "").parse().map_err(|_| {
        SqlError::new(
            ErrorKind::Semantic,
            format!("the COPY option {name} cannot be '{value}': it is a whole number"),
        )
    })
}

fn byte(name: &str, value: &str) -> Result<u8> {
    match (value, value.as_bytes()) {
        ("\\t", _) => Ok(b'\t'),
        (_, [byte]) if byte.is_ascii() => Ok(*byte),
        _ => Err(SqlError::new(
            ErrorKind::Semantic,
            format!("the COPY option {name} cannot be '{value}': it is a single ASCII character"),
        )),
    }
}
