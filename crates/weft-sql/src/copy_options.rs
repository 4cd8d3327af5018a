//! The options of COPY.

use datafusion::common::parsers::CompressionTypeVariant;

use crate::error::{ErrorKind, Result, SqlError};
use crate::files::{FileKind, ReadOptions};

/// Names that COPY knows.
const NAMES: [&str; 10] = [
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
];

/// What follows the file's name in COPY.
#[derive(Clone, Debug, Default)]
pub(crate) struct CopyOptions {
    pub(crate) read: ReadOptions,
    /// As written: Parquet and Arrow have names of their own.
    pub(crate) compression: Option<String>,
}

impl CopyOptions {
    /// True for the name of an option, so that a flag can be told from the option after it.
    pub(crate) fn is_name(word: &str) -> bool {
        NAMES.iter().any(|name| word.eq_ignore_ascii_case(name))
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
            _ => {
                return Err(SqlError::new(
                    ErrorKind::NotSupported,
                    format!("there is no COPY option {name}"),
                )
                .with_hint(
                    "options: FORMAT, HEADER, DELIMITER, QUOTE, ESCAPE, NULL, COMPRESSION",
                ));
            }
        }
        Ok(())
    }

    /// How a text file is compressed, where the option says it.
    ///
    /// # Errors
    /// [`ErrorKind::NotSupported`] for unknown names.
    pub(crate) fn text_compression(&self) -> Result<Option<CompressionTypeVariant>> {
        let Some(name) = &self.compression else { return Ok(None) };
        let variant = match name.as_str() {
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
        };
        Ok(Some(variant))
    }
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
