//! Tables in files that Weft reads by itself, from what names and options say.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringViewArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::TableProvider;
use datafusion::catalog::view::ViewTable;
use datafusion::common::Column;
use datafusion::common::parsers::CompressionTypeVariant;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, TryCast};
use weft_files::csv::{self, ColumnKey, CsvOptions, Description};
use weft_files::{Compression, FileReader, Input, Union};
use weft_remote::Place;

use crate::error::{Result, internal};
use crate::file_scan::FilesTable;
use crate::files::{FileSet, ReadOptions};
use crate::table::ScanContext;
use crate::text_casts::cast_to;

/// The name under which files are scanned below the casts of their columns.
const FILES: &str = "files";

/// The options of the reader of CSV files.
pub(crate) fn csv_options(options: &ReadOptions) -> CsvOptions {
    CsvOptions {
        delimiter: options.delimiter,
        quote: options.quote.map(Some).or(options.csv.quote),
        escape: options.escape.map(Some).or(options.csv.escape),
        header: options.header,
        nulls: options.null.clone().map(|null| vec![null]).or(options.csv.nulls.clone()),
        ..options.csv.clone()
    }
}

/// A file as a text.
fn input(place: &Place, compression: CompressionTypeVariant, csv: &CsvOptions) -> Input {
    let compression = match compression {
        CompressionTypeVariant::UNCOMPRESSED => Compression::None,
        CompressionTypeVariant::GZIP => Compression::Gzip,
        CompressionTypeVariant::BZIP2 => Compression::Bzip2,
        CompressionTypeVariant::XZ => Compression::Xz,
        CompressionTypeVariant::ZSTD => Compression::Zstd,
    };
    Input { place: place.clone(), compression, encoding: csv.encoding }
}

impl FileSet {
    /// The files as texts.
    pub(crate) fn inputs(&self, options: &ReadOptions) -> Vec<Input> {
        let files = self.places.iter().enumerate();
        files
            .map(|(number, place)| input(place, self.compression_of(number, options), &options.csv))
            .collect()
    }

    /// A column for the names of files, and one for each part `key=value` of their paths, if that is wanted.
    pub(crate) fn constants(&self, options: &ReadOptions) -> Vec<(String, ArrayRef)> {
        let mut found: Vec<(String, ArrayRef)> = Vec::new();
        if let Some(column) = &options.filename {
            let names = self.names.iter().map(|name| Some(name.as_str()));
            found.push((column.clone(), Arc::new(names.collect::<StringViewArray>())));
        }
        let parts: Vec<Vec<(String, String)>> =
            self.names.iter().map(|name| hive_parts(name)).collect();
        let keys: Vec<String> =
            parts.first().into_iter().flatten().map(|(key, _)| key.clone()).collect();
        let is_everywhere = parts.iter().all(|parts| parts.iter().map(|(key, _)| key).eq(&keys));
        if options.hive == Some(false) || (options.hive.is_none() && !is_everywhere) {
            return found;
        }
        for key in keys {
            let value = |parts: &Vec<(String, String)>| {
                let (_, value) = parts.iter().find(|(other, _)| *other == key)?;
                (value != "__HIVE_DEFAULT_PARTITION__").then(|| value.clone())
            };
            let values: Vec<Option<String>> = parts.iter().map(value).collect();
            let texts: Vec<Option<&str>> = values.iter().map(Option::as_deref).collect();
            let array: ArrayRef = match options.hive_as_text {
                true => Arc::new(StringViewArray::from(texts)),
                false => csv::typed(&texts),
            };
            found.push((key, array));
        }
        found
    }

    /// CSV files as a table. `key` names them among what the statement knows of files.
    ///
    /// # Errors
    /// If they cannot be read, do not go together, or not with the options.
    pub(crate) fn csv_table(
        &self,
        options: &ReadOptions,
        key: &str,
        context: &ScanContext,
    ) -> Result<(Arc<dyn TableProvider>, Description)> {
        let mut csv = csv_options(options);
        if context.control.files.wants_all(key) {
            csv.sample_rows = Some(None);
        }
        let table = csv::open(&self.inputs(options), &csv)?;
        let files = table.files.into_iter().map(|file| Arc::new(file) as Arc<dyn FileReader>);
        let union = self.union(files.collect(), options)?;
        let provider = self.provider(Arc::new(union), key, context);
        let cast = cast_as_said(provider, csv.ignore_errors, |number, name| {
            foreign_type(&csv.types, number, name)
        });
        Ok((cast?, table.description))
    }

    /// The paths and addresses of the files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.places.iter().map(|place| place.path().to_owned())
    }

    /// Readers of the files as one, with the columns that are the same in all rows of a file.
    ///
    /// # Errors
    /// If the files have different columns, and may not.
    pub(crate) fn union(
        &self,
        readers: Vec<Arc<dyn FileReader>>,
        options: &ReadOptions,
    ) -> Result<Union> {
        let files = self.paths().zip(readers).collect();
        let mut union = Union::by_name(files, options.union_by_name)?;
        for (name, values) in self.constants(options) {
            union = union.with_constant(&name, &values);
        }
        Ok(union)
    }

    /// A table of what `reader` reads.
    pub(crate) fn provider(
        &self,
        reader: Arc<dyn FileReader>,
        key: &str,
        context: &ScanContext,
    ) -> Arc<dyn TableProvider> {
        let label = match self.places.as_slice() {
            [place] => place.path().file_name().unwrap_or_default().to_string_lossy().into_owned(),
            places => format!("{} {} files", places.len(), self.kind.name()),
        };
        let paths = self.paths().collect();
        Arc::new(FilesTable::new(reader, (label, paths), key, context.clone()))
    }
}

/// The parts `key=value` of a path.
fn hive_parts(name: &str) -> Vec<(String, String)> {
    let directories = Path::new(name).parent().into_iter().flat_map(Path::components);
    let part = |directory: std::path::Component<'_>| {
        let text = directory.as_os_str().to_str()?;
        let (key, value) = text.split_once('=')?;
        (!key.is_empty()).then(|| (key.to_owned(), value.to_owned()))
    };
    directories.filter_map(part).collect()
}

/// The types that are said of columns, by number and name, where the reader of CSV does not know them.
fn foreign_type<'a>(
    types: &'a [(ColumnKey, DataType)],
    number: usize,
    name: &str,
) -> Option<&'a DataType> {
    let is_it = |key: &ColumnKey| match key {
        ColumnKey::Name(wanted) => wanted.eq_ignore_ascii_case(name),
        ColumnKey::Number(wanted) => *wanted == number,
    };
    let found = types.iter().find(|(key, _)| is_it(key))?;
    (!csv::is_native(&found.1)).then_some(&found.1)
}

/// The table with columns cast from texts to the types that `said` has for their numbers and names.
pub(crate) fn cast_as_said<'a>(
    provider: Arc<dyn TableProvider>,
    is_lenient: bool,
    said: impl Fn(usize, &str) -> Option<&'a DataType>,
) -> Result<Arc<dyn TableProvider>> {
    let schema = provider.schema();
    let fields = schema.fields().iter().enumerate();
    if fields.clone().all(|(number, field)| said(number, field.name()).is_none()) {
        return Ok(provider);
    }
    let scan = LogicalPlanBuilder::scan(FILES, provider_as_source(Arc::clone(&provider)), None)?;
    let scan = scan.build()?;
    let mut exprs = Vec::with_capacity(schema.fields().len());
    for (number, field) in fields {
        let column = Expr::Column(Column::new(Some(FILES), field.name()));
        exprs.push(match said(number, field.name()) {
            Some(data_type) if is_lenient => {
                Expr::TryCast(TryCast::new(Box::new(column), data_type.clone())).alias(field.name())
            }
            Some(data_type) => cast_to(column, data_type, scan.schema())?.alias(field.name()),
            None => column.alias(field.name()),
        });
    }
    let plan = LogicalPlanBuilder::from(scan).project(exprs)?.build()?;
    if plan.schema().fields().len() != schema.fields().len() {
        return Err(internal("casts have changed the columns of files"));
    }
    Ok(Arc::new(ViewTable::new(plan, None)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_paths() {
        let parts = hive_parts("d/year=2024/month=01/a=b.csv");
        let expected = [("year", "2024"), ("month", "01")];
        assert!(parts.iter().map(|(key, value)| (key.as_str(), value.as_str())).eq(expected));
        assert!(hive_parts("x.csv").is_empty());
    }
}
