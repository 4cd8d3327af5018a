//! Options of files by their names, as functions, names of files and COPY have them.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use weft_files::csv::{ColumnKey, TimeFormat};
use weft_files::json::Layout;
use weft_files::xlsx::CellRange;
use weft_files::{Encoding, FilesError};
use weft_remote::{Failure, RemoteError};

use crate::copy_options::text_compression;
use crate::error::{ErrorKind, Result, SqlError};
use crate::files::{FileKind, ReadOptions};
use crate::types::field_named;

/// Options of files of any format.
const OF_FILES: [&str; 4] =
    ["filename", "hive_partitioning", "hive_types_autocast", "union_by_name"];

/// Options of JSON files.
const OF_JSON: [&str; 8] = [
    "columns",
    "compression",
    "encoding",
    "format",
    "ignore_errors",
    "maximum_object_size",
    "records",
    "sample_size",
];

/// Options of CSV files, those that mean one thing beside each other.
const OF_CSV: [&str; 33] = [
    "all_varchar",
    "allow_quoted_nulls",
    "auto_detect",
    "buffer_size",
    "columns",
    "comment",
    "compression",
    "dateformat",
    "decimal_separator",
    "delim",
    "dtypes",
    "encoding",
    "escape",
    "header",
    "ignore_errors",
    "max_line_size",
    "maximum_line_size",
    "names",
    "new_line",
    "normalize_names",
    "null_padding",
    "nullstr",
    "parallel",
    "quote",
    "sample_size",
    "sep",
    "skip",
    "strict",
    "strict_mode",
    "timestampformat",
    "types",
    "delimiter",
    "null",
];

/// Options of workbooks.
const OF_XLSX: [&str; 7] = [
    "all_varchar",
    "empty_as_varchar",
    "header",
    "ignore_errors",
    "range",
    "sheet",
    "stop_at_empty",
];

/// The value of an option.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OptionValue {
    /// A text or a word.
    Text(String),
    /// A number, as it is written.
    Number(String),
    Flag(bool),
    Null,
    List(Vec<OptionValue>),
    /// Values by name.
    Fields(Vec<(String, OptionValue)>),
}

/// True for the name of an option of files.
pub(crate) fn is_name(name: &str) -> bool {
    let mut known = OF_FILES.iter().chain(&OF_CSV).chain(&OF_JSON).chain(&OF_XLSX);
    known.any(|known| name.eq_ignore_ascii_case(known))
}

/// True for the name of an option that no files but workbooks have.
pub(crate) fn is_of_workbooks(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    OF_XLSX.contains(&lower.as_str()) && !OF_CSV.contains(&lower.as_str())
}

/// Sets an option of files; false if there is none of this name.
///
/// # Errors
/// [`ErrorKind::Semantic`] for values that it cannot have.
pub(crate) fn set(options: &mut ReadOptions, name: &str, value: &OptionValue) -> Result<bool> {
    let lower = name.to_ascii_lowercase();
    match lower.as_str() {
        "filename" => {
            options.filename = match value {
                OptionValue::Text(text) if flag_of(text).is_none() => Some(text.clone()),
                _ => flag(name, value)?.then(|| "filename".to_owned()),
            };
        }
        "hive_partitioning" => options.hive = Some(flag(name, value)?),
        "hive_types_autocast" => options.hive_as_text = !flag(name, value)?,
        "union_by_name" => options.union_by_name = flag(name, value)?,
        other
            if is_of_workbooks(other)
                && options.kind.is_some_and(|kind| kind != FileKind::Xlsx) =>
        {
            return Ok(false);
        }
        "sheet" => options.xlsx.sheet = Some(text(name, value)?),
        "range" => options.xlsx.range = Some(CellRange::parse(&text(name, value)?)?),
        "stop_at_empty" => options.xlsx.stop_at_empty = Some(flag(name, value)?),
        "empty_as_varchar" => options.xlsx.empty_as_text = flag(name, value)?,
        _ if options.kind == Some(FileKind::Xlsx) && !OF_XLSX.contains(&lower.as_str()) => {
            return Ok(false);
        }
        _ if options.kind == Some(FileKind::Json) => return set_json(options, &lower, value),
        "maximum_object_size" | "records" => return set_json(options, &lower, value),
        "columns" => {
            options.json.columns = columns(name, value)?;
            return set_csv(options, &lower, value);
        }
        _ => return set_csv(options, &lower, value),
    }
    Ok(true)
}

fn set_json(options: &mut ReadOptions, name: &str, value: &OptionValue) -> Result<bool> {
    let json = &mut options.json;
    match name {
        "maximum_object_size" => json.value_bytes_max = count(name, value)?.clamp(1, 1 << 30),
        "format" => {
            json.layout = match text(name, value)?.to_ascii_lowercase().as_str() {
                "auto" => None,
                "newline_delimited" | "nd" => Some(Layout::Lines),
                "array" => Some(Layout::Array),
                "unstructured" => Some(Layout::Values),
                _ => return Err(wrong(name, "auto, newline_delimited, array or unstructured")),
            };
        }
        "records" => {
            json.records = match value {
                OptionValue::Text(text) if text.eq_ignore_ascii_case("auto") => None,
                value => Some(flag(name, value)?),
            };
        }
        "columns" => {
            json.columns = columns(name, value)?;
            if json.columns.is_none() {
                return Err(wrong(name, "types by column, such as {'a': 'INTEGER', 'b': 'JSON'}"));
            }
        }
        "sample_size" => json.sample_rows = Some(sample_rows(name, value)?),
        "compression" | "encoding" | "ignore_errors" => return set_csv(options, name, value),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Records of a sample; `None` for all.
fn sample_rows(name: &str, value: &OptionValue) -> Result<Option<usize>> {
    match value {
        OptionValue::Number(number) if number == "-1" => Ok(None),
        _ => count(name, value).map(Some),
    }
}

fn set_csv(options: &mut ReadOptions, name: &str, value: &OptionValue) -> Result<bool> {
    let csv = &mut options.csv;
    match name {
        "delim" | "sep" | "delimiter" => options.delimiter = Some(byte(name, &text(name, value)?)?),
        "quote" => csv.quote = Some(optional_byte(name, value)?),
        "escape" => csv.escape = Some(optional_byte(name, value)?),
        "comment" => csv.comment = Some(optional_byte(name, value)?),
        "header" => options.header = Some(flag(name, value)?),
        "skip" => csv.skip = Some(count(name, value)?),
        "null" | "nullstr" => csv.nulls = Some(texts(name, value)?),
        "names" => csv.names = texts(name, value)?,
        "columns" => {
            csv.types = data_types(name, value)?;
            csv.types_are_all = true;
            let named = csv.types.iter().filter_map(|(key, _)| match key {
                ColumnKey::Name(name) => Some(name.clone()),
                ColumnKey::Number(_) => None,
            });
            csv.names = named.collect();
        }
        "types" | "dtypes" => csv.types = data_types(name, value)?,
        "dateformat" => csv.date_format = Some(format(name, &text(name, value)?)?),
        "timestampformat" => csv.timestamp_format = Some(format(name, &text(name, value)?)?),
        "decimal_separator" => csv.decimal_separator = Some(byte(name, &text(name, value)?)?),
        "encoding" => csv.encoding = Some(Encoding::named(&text(name, value)?)?),
        "null_padding" => csv.null_padding = flag(name, value)?,
        "ignore_errors" => csv.ignore_errors = flag(name, value)?,
        "strict" | "strict_mode" => csv.lenient = !flag(name, value)?,
        "all_varchar" => csv.all_text = flag(name, value)?,
        "sample_size" => csv.sample_rows = Some(sample_rows(name, value)?),
        "normalize_names" => csv.normalize_names = flag(name, value)?,
        "max_line_size" | "maximum_line_size" => {
            csv.record_bytes_max = Some(count(name, value)?.clamp(1, 1 << 30));
        }
        "auto_detect" => csv.no_detection = !flag(name, value)?,
        "compression" => {
            let name = text(name, value)?.to_ascii_lowercase();
            options.compression = match name.as_str() {
                "auto" => None,
                _ => Some(text_compression(&name)?),
            };
        }
        // How the work is divided changes no rows, and NULL may stand in quotes in any case.
        "parallel" | "allow_quoted_nulls" => {
            flag(name, value)?;
        }
        "buffer_size" => {
            count(name, value)?;
        }
        "new_line" => {
            text(name, value)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// There is no option of this name.
pub(crate) fn unknown(name: &str, function: &str, kind: Option<FileKind>) -> SqlError {
    let mut known: Vec<&str> = OF_FILES.to_vec();
    if matches!(kind, Some(FileKind::Csv | FileKind::Tsv) | None) {
        known.extend(OF_CSV);
    }
    if kind == Some(FileKind::Json) {
        known.extend(OF_JSON);
    }
    if kind == Some(FileKind::Xlsx) {
        known.extend(OF_XLSX);
    }
    known.sort_unstable();
    SqlError::new(ErrorKind::NotSupported, format!("{function} has no option {name}"))
        .with_hint(format!("options: {}", known.join(", ")))
}

fn wrong(name: &str, what: &str) -> SqlError {
    SqlError::new(ErrorKind::Semantic, format!("the option {name} must be {what}"))
}

fn text(name: &str, value: &OptionValue) -> Result<String> {
    match value {
        OptionValue::Text(text) | OptionValue::Number(text) => Ok(text.clone()),
        _ => Err(wrong(name, "a text in single quotes")),
    }
}

fn texts(name: &str, value: &OptionValue) -> Result<Vec<String>> {
    match value {
        OptionValue::List(values) => values.iter().map(|value| text(name, value)).collect(),
        value => Ok(vec![text(name, value)?]),
    }
}

fn flag_of(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" | "1" | "yes" => Some(true),
        "false" | "off" | "0" | "no" => Some(false),
        _ => None,
    }
}

fn flag(name: &str, value: &OptionValue) -> Result<bool> {
    let found = match value {
        OptionValue::Flag(flag) => Some(*flag),
        OptionValue::Text(text) | OptionValue::Number(text) => flag_of(text),
        _ => None,
    };
    found.ok_or_else(|| wrong(name, "true or false"))
}

fn count(name: &str, value: &OptionValue) -> Result<usize> {
    let found = match value {
        OptionValue::Number(number) | OptionValue::Text(number) => number.parse().ok(),
        _ => None,
    };
    found.ok_or_else(|| wrong(name, "a number, 0 or more"))
}

fn byte(name: &str, value: &str) -> Result<u8> {
    match (value, value.as_bytes()) {
        ("\\t", _) => Ok(b'\t'),
        (_, [byte]) if byte.is_ascii() && !matches!(byte, b'\n' | b'\r') => Ok(*byte),
        _ => Err(wrong(name, "a single ASCII character")),
    }
}

/// A character, or none for the empty text.
fn optional_byte(name: &str, value: &OptionValue) -> Result<Option<u8>> {
    match value {
        OptionValue::Null => Ok(None),
        value => match text(name, value)?.as_str() {
            "" => Ok(None),
            text => byte(name, text).map(Some),
        },
    }
}

fn format(name: &str, value: &str) -> Result<TimeFormat> {
    TimeFormat::new(value)
        .ok_or_else(|| wrong(name, "a format such as '%d.%m.%Y' or '%Y-%m-%d %H:%M:%S'"))
}

/// Types by columns.
fn types(name: &str, value: &OptionValue) -> Result<Vec<(ColumnKey, Field)>> {
    let typed = |key: ColumnKey, value: &OptionValue| {
        let column = match &key {
            ColumnKey::Name(name) => name.clone(),
            ColumnKey::Number(number) => number.to_string(),
        };
        Ok((key, field_named(&column, &text(name, value)?)?))
    };
    match value {
        OptionValue::Fields(fields) => fields
            .iter()
            .map(|(column, value)| typed(ColumnKey::Name(column.clone()), value))
            .collect(),
        OptionValue::List(values) => {
            let numbered = values.iter().enumerate();
            numbered.map(|(number, value)| typed(ColumnKey::Number(number), value)).collect()
        }
        _ => Err(wrong(
            name,
            "types by column, such as {'a': 'INTEGER', 'b': 'DATE'}, or a list of types",
        )),
    }
}

fn data_types(name: &str, value: &OptionValue) -> Result<Vec<(ColumnKey, DataType)>> {
    let typed = types(name, value)?.into_iter();
    Ok(typed.map(|(key, field)| (key, field.data_type().clone())).collect())
}

/// Columns with names and types; `None` if names are not said.
fn columns(name: &str, value: &OptionValue) -> Result<Option<SchemaRef>> {
    if !matches!(value, OptionValue::Fields(_)) {
        return Ok(None);
    }
    let fields = types(name, value)?.into_iter().map(|(_, field)| field);
    Ok(Some(Arc::new(Schema::new(fields.collect::<Vec<_>>()))))
}

impl From<FilesError> for SqlError {
    fn from(error: FilesError) -> SqlError {
        let remote = match &error {
            FilesError::Read { error, .. } => RemoteError::within(error),
            _ => None,
        };
        if remote.is_some_and(|remote| remote.failure() == Failure::Cancelled) {
            return SqlError::cancelled();
        }
        let kind = match &error {
            FilesError::Read { .. } => ErrorKind::Io,
            FilesError::Data { .. } | FilesError::Misfit { .. } => ErrorKind::Data,
            FilesError::Option { .. } => ErrorKind::Semantic,
        };
        let found = SqlError::new(kind, error.to_string());
        match error.hint() {
            Some(hint) => found.with_hint(hint),
            None => found,
        }
    }
}
