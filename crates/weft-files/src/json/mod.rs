//! JSON files: one value a line, one array of all values, or values one after the other, over as many lines as they like.
//!
//! The types come from a sample of the values, or from all of them: a first pass (`look.rs`) widens a [`Shape`] value by value. Where it
//! was a sample, a later value with another shape is [`FilesError::Misfit`]. The second pass cuts the files into pieces between values (`cut.rs`), which are decoded on any thread (`piece.rs`). A piece is in memory as a whole,
//! and one value is, however large it is; so a value has a greatest size.

mod cut;
mod look;
mod piece;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use weft_json::{JsonError, Shape, ShapeMembers as Members, json_field};

use crate::error::{FilesError, Result};
use crate::input::Input;
use crate::names::distinct;
use crate::source::{FileReader, Pieces, ReadPlan, TypesFrom};

pub use cut::Layout;

use cut::Cut;
use look::look;
use piece::{JsonPieces, Rows};

/// The column of values that are no objects.
pub const VALUE_COLUMN: &str = "json";

/// Keys that are columns, at most: objects with more are values.
const COLUMNS_MAX: usize = 20_000;

/// Bytes of a value, at most, where no option says it.
pub const VALUE_BYTES_MAX: usize = 256 << 20;

/// How JSON files are read.
#[derive(Clone, Debug)]
pub struct JsonOptions {
    /// How values lie in the files; found out if `None`.
    pub layout: Option<Layout>,
    /// The columns, where they are said. A key that is none of them is left out.
    pub columns: Option<SchemaRef>,
    /// Each value is a row with one column, of its text.
    pub as_values: bool,
    /// The keys of objects are columns; if all values are objects, where it is not said.
    pub records: Option<bool>,
    /// What does not fit its column's type is NULL, and so is what is no JSON, if values lie one a line.
    pub ignore_errors: bool,
    /// Bytes of a value, at most.
    pub value_bytes_max: usize,
    /// Values at the beginning of each file that are looked at for the types, or `None` within for all values. If it is not said,
    /// of a large file a sample is.
    pub sample_rows: Option<Option<usize>>,
}

impl Default for JsonOptions {
    fn default() -> JsonOptions {
        JsonOptions {
            layout: None,
            columns: None,
            as_values: false,
            records: None,
            ignore_errors: false,
            value_bytes_max: VALUE_BYTES_MAX,
            sample_rows: None,
        }
    }
}

/// JSON files as one table.
#[derive(Debug)]
pub struct JsonFiles {
    files: Arc<[JsonFile]>,
    options: JsonOptions,
    schema: SchemaRef,
    /// The columns by their keys, which may differ in the case of letters alone.
    keys: SchemaRef,
    /// The rows' keys are columns; else a row is one value.
    has_keys: bool,
    /// The shape of the values, where it comes from a sample.
    sample: Option<Arc<Shape>>,
}

/// A file, and how values lie in it where that is known.
#[derive(Clone, Debug)]
struct JsonFile {
    input: Input,
    layout: Option<Layout>,
}

impl JsonFiles {
    /// Looks at values of the files, unless the columns are said.
    ///
    /// # Errors
    /// For files that cannot be read, or are no JSON.
    pub fn new(inputs: Vec<Input>, options: JsonOptions) -> Result<JsonFiles> {
        let mut files = Vec::with_capacity(inputs.len());
        let said = match (&options.columns, options.as_values) {
            (_, true) => Some((Schema::new(vec![json_field(VALUE_COLUMN, true)]), false)),
            (Some(columns), false) => Some((columns.as_ref().clone(), true)),
            (None, false) => None,
        };
        if let Some((schema, has_keys)) = said {
            let layout = options.layout;
            files.extend(inputs.into_iter().map(|input| JsonFile { input, layout }));
            let schema = Arc::new(schema);
            let keys = Arc::clone(&schema);
            let (files, sample) = (files.into(), None);
            return Ok(JsonFiles { files, options, schema, keys, has_keys, sample });
        }
        let (mut shape, mut are_whole) = (Shape::Nothing, true);
        for input in inputs {
            let looked = look(&input, &options, &mut shape)?;
            are_whole &= looked.is_whole;
            files.push(JsonFile { input, layout: Some(looked.layout) });
        }
        let (fields, has_keys): (Vec<FieldRef>, bool) = match (&shape, options.records) {
            (Shape::Object(members), None | Some(true)) if is_table(members) => {
                (members.fields().iter().cloned().collect(), true)
            }
            (Shape::Nothing | Shape::Object(_), _) | (_, None | Some(false)) => {
                (vec![shape.field(VALUE_COLUMN)], false)
            }
            (_, Some(true)) => {
                return Err(FilesError::option(
                    "records = true is for files whose values are objects",
                )
                .with_hint("leave the option out, or write records = false"));
            }
        };
        let mut names: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
        distinct(&mut names);
        let named = fields.iter().zip(names);
        let named = named.map(|(field, name)| field.as_ref().clone().with_name(name));
        let schema = Arc::new(Schema::new(named.collect::<Vec<_>>()));
        let keys = Arc::new(Schema::new(fields));
        let (files, sample) = (files.into(), (!are_whole).then(|| Arc::new(shape)));
        Ok(JsonFiles { files, options, schema, keys, has_keys, sample })
    }
}

/// True if the keys can be columns.
fn is_table(members: &Members) -> bool {
    (1..=COLUMNS_MAX).contains(&members.iter().count())
}

/// True if a line is neither blank nor JSON.
fn is_broken(line: &str) -> bool {
    !line.trim_ascii().is_empty() && weft_json::check(line).is_err()
}

impl JsonFiles {
    /// Each file as a table of its own, with the columns of all.
    pub fn each(&self) -> Vec<JsonFiles> {
        let alone = |file: &JsonFile| JsonFiles {
            files: Arc::new([file.clone()]),
            options: self.options.clone(),
            schema: Arc::clone(&self.schema),
            keys: Arc::clone(&self.keys),
            has_keys: self.has_keys,
            sample: self.sample.clone(),
        };
        self.files.iter().map(alone).collect()
    }
}

impl FileReader for JsonFiles {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn types_from(&self) -> TypesFrom {
        match self.sample {
            Some(_) => TypesFrom::Sample,
            None => TypesFrom::Certain,
        }
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.input.bytes()).sum()
    }

    fn open(&self, plan: &ReadPlan) -> Result<Box<dyn Pieces>> {
        let chosen = |schema: &Schema| {
            schema.project(&plan.projection).map_err(|error| {
                FilesError::option(format!("a column that the files do not have: {error}"))
            })
        };
        let schema = Arc::new(chosen(&self.schema)?);
        let keys = chosen(&self.keys)?;
        let field = match self.has_keys {
            true => Field::new("row", DataType::Struct(keys.fields().clone()), true),
            false => self.schema.field(0).clone(),
        };
        let rows = Rows {
            schema,
            field: Arc::new(field),
            known: self.has_keys.then(|| Arc::clone(&self.keys)),
            sample: self.sample.clone(),
            is_lenient: self.options.ignore_errors,
            batch_rows: plan.batch_rows.max(1),
        };
        Ok(Box::new(JsonPieces::new(
            Arc::clone(&self.files),
            &self.options,
            rows,
            plan.piece_bytes,
        )))
    }
}

/// An error of a value, with the file and the line.
fn in_file(input: &Input, cut: &Cut, error: JsonError) -> FilesError {
    let newlines = cut.text.as_bytes()[..error.offset.min(cut.text.len())].iter();
    let line = cut.line + newlines.filter(|byte| **byte == b'\n').count() as u64;
    let hint = error.column.is_some().then(|| {
        "say its type, as in read_json('file', columns = {'name': 'VARCHAR'}), or set ignore_errors = true"
            .to_owned()
    });
    FilesError::Data {
        path: input.path().to_owned(),
        line: Some(line),
        column: error.column.filter(|column| !column.is_empty()),
        problem: error.problem,
        hint,
    }
}

#[cfg(test)]
mod tests;
