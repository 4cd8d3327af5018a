//! JSON files as tables.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use weft_files::json::{JsonFiles, JsonOptions};
use weft_files::{FileReader, TypesFrom};
use weft_json::{Decoder, is_json};

use crate::csv_files::cast_as_said;
use crate::error::Result;
use crate::files::{FileSet, ReadOptions};
use crate::table::ScanContext;
use crate::uuids::is_uuid;

/// Of the memory limit, the part that one value may have.
const VALUE_PART: u64 = 8;

impl FileSet {
    /// JSON files as a table, of these columns where they are given. `key` names the files among what the statement knows of
    /// files.
    ///
    /// # Errors
    /// If they cannot be read, or are no JSON.
    pub(crate) fn json_table(
        &self,
        options: &ReadOptions,
        key: &str,
        context: &ScanContext,
        columns: Option<SchemaRef>,
    ) -> Result<Arc<dyn TableProvider>> {
        let said = columns.or_else(|| options.json.columns.clone());
        let limit = context.control.memory_limit().unwrap_or(u64::MAX);
        let part = usize::try_from(limit / VALUE_PART).unwrap_or(usize::MAX);
        let types = &context.control.files;
        let sample_rows = if types.wants_all(key) { Some(None) } else { options.json.sample_rows };
        let json = JsonOptions {
            sample_rows,
            columns: said.as_deref().map(as_read),
            ignore_errors: options.csv.ignore_errors,
            value_bytes_max: options.json.value_bytes_max.min(part),
            ..options.json.clone()
        };
        let is_lenient = json.ignore_errors;
        let all = JsonFiles::new(self.inputs(options), json)?;
        if all.types_from() == TypesFrom::Sample {
            types.note_sampled(key);
        }
        let reader: Arc<dyn FileReader> = match self.constants(options).is_empty() {
            true => Arc::new(all),
            false => {
                let files = all.each().into_iter();
                let files = files.map(|file| Arc::new(file) as Arc<dyn FileReader>);
                Arc::new(self.union(files.collect(), options)?)
            }
        };
        let provider = self.provider(reader, key, context);
        let Some(said) = &said else { return Ok(provider) };
        cast_as_said(provider, is_lenient, |_, name| {
            let field = said.field_with_name(name).ok()?;
            is_cast(field).then(|| field.data_type())
        })
    }
}

/// True if the column is read as texts and cast.
fn is_cast(field: &Field) -> bool {
    !is_json(field) && !Decoder::is_native(field)
}

/// The columns with the types in which they are read.
fn as_read(columns: &Schema) -> SchemaRef {
    let fields = columns.fields().iter().map(|field| match is_cast(field) {
        true => Arc::new(Field::new(field.name(), DataType::Utf8View, true)),
        false => Arc::clone(field),
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The field as which a JSON column is read that goes to the table's column `wanted`, and looks like `found`.
pub(crate) fn read_as(wanted: &Field, found: &Field) -> Field {
    let field = match wanted.data_type() {
        _ if is_json(wanted) => wanted.clone(),
        _ if is_uuid(wanted) => Field::new(found.name(), DataType::Utf8View, true),
        DataType::List(_) | DataType::Struct(_) | DataType::FixedSizeList(..) => found.clone(),
        _ if Decoder::is_native(wanted) => wanted.clone(),
        _ => Field::new(found.name(), DataType::Utf8View, true),
    };
    field.with_name(found.name()).with_nullable(true)
}
