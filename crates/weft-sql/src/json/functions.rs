//! The scalar functions of JSON. Their names, and what they mean, are DuckDB's.

use std::sync::{Arc, LazyLock};

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanBuilder, ListBuilder, StringViewArray, StringViewBuilder,
    UInt64Builder,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result as DfResult, ScalarValue, exec_datafusion_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use weft_json::{
    JsonError, Kind, Path, Step, check, compact, contains, elements, json_field, kind, members,
    merge_patch, pretty, structure, text_of, write_quoted,
};

use super::texts::{encoded, json_texts, malformed, only_value};
use super::transform::transforms;

/// What a function returns for each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Returns {
    Json,
    Text,
    Boolean,
    Count,
    Texts,
}

/// What a function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Does {
    /// Looks at the value that a path leads to.
    Part(Part),
    /// Looks at a value.
    Whole(Whole),
    /// Makes a value of others.
    Make(Make),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    Value,
    Text,
    Scalar,
    Exists,
    Type,
    Length,
    Keys,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Whole {
    Valid,
    Compact,
    Checked,
    CheckedOrNull,
    Structure,
    Pretty,
    Contains,
    Merged,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Make {
    Encoded,
    Object,
    Array,
}

/// One function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Named {
    name: &'static str,
    aliases: &'static [&'static str],
    does: Does,
    returns: Returns,
    /// The numbers of arguments, from and to.
    arguments: (usize, usize),
}

const fn named(
    name: &'static str,
    aliases: &'static [&'static str],
    does: Does,
    returns: Returns,
    arguments: (usize, usize),
) -> Named {
    Named { name, aliases, does, returns, arguments }
}

const ANY: usize = usize::MAX;

pub(super) static EXTRACT: Named =
    named("json_extract", &["json_extract_path"], Does::Part(Part::Value), Returns::Json, (2, 2));
pub(super) static EXTRACT_TEXT: Named = named(
    "json_extract_string",
    &["json_extract_path_text"],
    Does::Part(Part::Text),
    Returns::Text,
    (2, 2),
);
/// The cast to JSON.
pub(super) static CHECKED: Named =
    named("json_of", &[], Does::Whole(Whole::Checked), Returns::Json, (1, 1));
/// The cast to JSON that gives NULL for what is none.
pub(super) static CHECKED_OR_NULL: Named =
    named("try_json_of", &[], Does::Whole(Whole::CheckedOrNull), Returns::Json, (1, 1));

/// The JSON of a value.
static TO_JSON: Named =
    named("to_json", &["json_quote"], Does::Make(Make::Encoded), Returns::Json, (1, 1));

static OTHERS: [Named; 15] = [
    named("json_value", &[], Does::Part(Part::Scalar), Returns::Text, (2, 2)),
    named("json_exists", &[], Does::Part(Part::Exists), Returns::Boolean, (2, 2)),
    named("json_type", &[], Does::Part(Part::Type), Returns::Text, (1, 2)),
    named("json_array_length", &[], Does::Part(Part::Length), Returns::Count, (1, 2)),
    named("json_keys", &[], Does::Part(Part::Keys), Returns::Texts, (1, 2)),
    named("json_valid", &[], Does::Whole(Whole::Valid), Returns::Boolean, (1, 1)),
    named("json", &[], Does::Whole(Whole::Compact), Returns::Json, (1, 1)),
    named("json_structure", &[], Does::Whole(Whole::Structure), Returns::Json, (1, 1)),
    named("json_pretty", &[], Does::Whole(Whole::Pretty), Returns::Text, (1, 1)),
    named("json_contains", &[], Does::Whole(Whole::Contains), Returns::Boolean, (2, 2)),
    named("json_merge_patch", &[], Does::Whole(Whole::Merged), Returns::Json, (2, ANY)),
    named("row_to_json", &[], Does::Make(Make::Encoded), Returns::Json, (1, 1)),
    named("array_to_json", &[], Does::Make(Make::Encoded), Returns::Json, (1, 1)),
    named(
        "json_object",
        &["json_build_object", "jsonb_build_object"],
        Does::Make(Make::Object),
        Returns::Json,
        (0, ANY),
    ),
    named(
        "json_array",
        &["json_build_array", "jsonb_build_array"],
        Does::Make(Make::Array),
        Returns::Json,
        (0, ANY),
    ),
];

/// All functions.
pub(crate) fn json_functions() -> Vec<Arc<ScalarUDF>> {
    let own = [&EXTRACT, &EXTRACT_TEXT, &TO_JSON].into_iter().chain(&OTHERS).map(function);
    own.chain(transforms()).collect()
}

/// The JSON of a value that is none.
pub(crate) fn json_value(value: Expr) -> Expr {
    function(&TO_JSON).call(vec![value])
}

/// The function of this description.
pub(super) fn function(named: &'static Named) -> Arc<ScalarUDF> {
    let aliases = named.aliases.iter().map(|alias| (*alias).to_owned()).collect();
    Arc::new(ScalarUDF::from(JsonFunction { named, aliases }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct JsonFunction {
    named: &'static Named,
    aliases: Vec<String>,
}

impl ScalarUDFImpl for JsonFunction {
    fn name(&self) -> &str {
        self.named.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        static SIGNATURE: LazyLock<Signature> = LazyLock::new(|| {
            let any = vec![
                datafusion::logical_expr::TypeSignature::Nullary,
                datafusion::logical_expr::TypeSignature::VariadicAny,
            ];
            Signature::one_of(any, Volatility::Immutable)
        });
        &SIGNATURE
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(match self.named.returns {
            Returns::Json | Returns::Text => DataType::Utf8View,
            Returns::Boolean => DataType::Boolean,
            Returns::Count => DataType::UInt64,
            Returns::Texts => list_of(Field::new("item", DataType::Utf8View, true)),
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let Named { name, arguments: (min, max), .. } = *self.named;
        let count = args.arg_fields.len();
        if count < min || count > max {
            return plan_err!("{name} has {}", argument_count(min, max));
        }
        if self.named.does == Does::Make(Make::Object) && !count.is_multiple_of(2) {
            return plan_err!("json_object has a value for each key: an even number of arguments");
        }
        let item = match self.named.returns {
            Returns::Json => json_field("item", true),
            _ => Field::new("item", self.return_type(&[])?, true),
        };
        let path = args.scalar_arguments.get(1).copied().flatten();
        let is_many = matches!(self.named.does, Does::Part(_))
            && match args.arg_fields.get(1).map(|field| field.data_type()) {
                Some(DataType::List(_) | DataType::FixedSizeList(..)) => true,
                _ => path.is_some_and(is_many),
            };
        Ok(Arc::new(match is_many {
            true => Field::new(name, list_of(item), true),
            false => item.with_name(name),
        }))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let arrays =
            args.args.iter().map(|arg| arg.to_array(rows)).collect::<DfResult<Vec<_>>>()?;
        let array = match self.named.does {
            Does::Part(part) => self.part(part, &arrays, &args)?,
            Does::Whole(whole) => self.whole(whole, &arrays, &args.arg_fields)?,
            Does::Make(make) => made(make, &arrays, &args.arg_fields, rows)?,
        };
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(only_value(&array)?),
            false => ColumnarValue::Array(array),
        })
    }
}

fn list_of(item: Field) -> DataType {
    DataType::List(Arc::new(item))
}

fn argument_count(min: usize, max: usize) -> String {
    match (min, max) {
        (1, 1) => "one argument".to_owned(),
        (min, max) if min == max => format!("{min} arguments"),
        (min, ANY) => format!("{min} arguments or more"),
        (min, max) => format!("{min} or {max} arguments"),
    }
}

/// True for the text of a path that may lead to several values.
fn is_many(path: &ScalarValue) -> bool {
    let text = path.try_as_str().flatten();
    text.and_then(|text| Path::parse(text).ok()).is_some_and(|path| path.is_many())
}

/// The paths of an argument, one for each row: texts are paths, numbers are those of elements.
struct Paths {
    texts: Option<StringViewArray>,
    numbers: Option<arrow::array::Int64Array>,
    /// The last text and its path: most often, it is the same in all rows.
    last: Option<(String, Path)>,
}

impl Paths {
    fn new(array: &ArrayRef) -> DfResult<Paths> {
        let data_type = array.data_type();
        Ok(match data_type.is_integer() {
            true => {
                let numbers = cast(array, &DataType::Int64)?.as_primitive::<Int64Type>().clone();
                Paths { texts: None, numbers: Some(numbers), last: None }
            }
            false if data_type.is_string() || data_type.is_null() => {
                let texts = cast(array, &DataType::Utf8View)?.as_string_view().clone();
                Paths { texts: Some(texts), numbers: None, last: None }
            }
            false => return plan_err!("a path in JSON is a text or a whole number"),
        })
    }

    /// The path of this row, if it is not NULL.
    fn get(&mut self, row: usize) -> DfResult<Option<Path>> {
        if let Some(numbers) = &self.numbers {
            return Ok(numbers.is_valid(row).then(|| Path::of(Step::Index(numbers.value(row)))));
        }
        let Some(texts) = self.texts.as_ref().filter(|texts| texts.is_valid(row)) else {
            return Ok(None);
        };
        let text = texts.value(row);
        if let Some((known, path)) = &self.last
            && known == text
        {
            return Ok(Some(path.clone()));
        }
        let path = Path::parse(text).map_err(|problem| exec_datafusion_err!("{problem}"))?;
        self.last = Some((text.to_owned(), path.clone()));
        Ok(Some(path))
    }
}

impl JsonFunction {
    /// The function of the value that a path leads to, or of those that several lead to.
    fn part(
        &self,
        part: Part,
        arrays: &[ArrayRef],
        args: &ScalarFunctionArgs,
    ) -> DfResult<ArrayRef> {
        let texts = json_texts(&arrays[0], &args.arg_fields[0])?;
        let mut found = Found::new(part, &args.return_field);
        let lists = arrays.get(1).filter(|array| array.data_type().is_list());
        if let Some(lists) = lists {
            let DataType::List(item) = args.return_field.data_type() else {
                return plan_err!("{} returns a list for a list of paths", self.named.name);
            };
            let lists = cast(lists, &list_of(Field::new("item", DataType::Utf8View, true)))?;
            let lists = lists.as_list::<i32>();
            let mut items = Found::new(part, item);
            let mut builder = Lists::default();
            for row in 0..texts.len() {
                if lists.is_null(row) || texts.is_null(row) {
                    builder.push(None);
                    continue;
                }
                let mut paths = Paths::new(&lists.value(row))?;
                let count = lists.value(row).len();
                for number in 0..count {
                    let path = paths.get(number)?;
                    let value = self.one(&texts, row, path.as_ref())?;
                    items.push(value.as_deref())?;
                }
                builder.push(Some(count));
            }
            return builder.finish(Arc::clone(item), items.finish()?);
        }
        if let DataType::List(item) = args.return_field.data_type()
            && part != Part::Keys
        {
            return self.all_parts(part, &texts, &arrays[1], item);
        }
        let mut paths = arrays.get(1).map(Paths::new).transpose()?;
        for row in 0..texts.len() {
            let path = paths.as_mut().map(|paths| paths.get(row)).transpose()?;
            let value = match path {
                Some(None) => None,
                Some(path) => self.one(&texts, row, path.as_ref())?,
                None => self.one(
                    &texts,
                    row,
                    Some(&Path::parse("$").unwrap_or(Path::of(Step::Within))),
                )?,
            };
            let is_null = texts.is_null(row);
            match (value, part) {
                (None, Part::Exists) if !is_null => found.push_missing(),
                (value, _) => found.push(value.as_deref())?,
            }
        }
        found.finish()
    }

    fn one(
        &self,
        texts: &StringViewArray,
        row: usize,
        path: Option<&Path>,
    ) -> DfResult<Option<String>> {
        let (true, Some(path)) = (texts.is_valid(row), path) else { return Ok(None) };
        let text = texts.value(row);
        let found = path.find(text).map_err(|error| malformed(&error, text))?;
        Ok(found.map(str::to_owned))
    }

    /// All values that a path with wildcards leads to.
    fn all_parts(
        &self,
        part: Part,
        texts: &StringViewArray,
        paths: &ArrayRef,
        item: &FieldRef,
    ) -> DfResult<ArrayRef> {
        let mut paths = Paths::new(paths)?;
        let mut items = Found::new(part, item);
        let mut builder = Lists::default();
        for row in 0..texts.len() {
            let (true, Some(path)) = (texts.is_valid(row), paths.get(row)?) else {
                builder.push(None);
                continue;
            };
            let text = texts.value(row);
            let values = path.find_all(text).map_err(|error| malformed(&error, text))?;
            for value in &values {
                items.push(Some(value))?;
            }
            builder.push(Some(values.len()));
        }
        builder.finish(Arc::clone(item), items.finish()?)
    }

    /// The function of whole values.
    fn whole(&self, whole: Whole, arrays: &[ArrayRef], fields: &[FieldRef]) -> DfResult<ArrayRef> {
        let texts = json_texts(&arrays[0], &fields[0])?;
        let other = arrays.get(1).map(|array| json_texts(array, &fields[1])).transpose()?;
        let mut truths = BooleanBuilder::new();
        let mut values = StringViewBuilder::new();
        for row in 0..texts.len() {
            let text = texts.is_valid(row).then(|| texts.value(row));
            let fail = |error: JsonError| malformed(&error, text.unwrap_or_default());
            let second = other.as_ref().filter(|other| other.is_valid(row));
            let second = second.map(|other| other.value(row));
            match (whole, text) {
                (Whole::Valid, text) => truths.append_option(text.map(|text| check(text).is_ok())),
                (Whole::Contains, text) => truths.append_option(match text.zip(second) {
                    Some((text, needle)) => Some(contains(text, needle).map_err(fail)?),
                    None => None,
                }),
                (_, None) => values.append_null(),
                (Whole::CheckedOrNull, Some(text)) => {
                    values.append_option(check(text).is_ok().then_some(text));
                }
                (Whole::Checked, Some(text)) => {
                    check(text).map_err(fail)?;
                    values.append_value(text);
                }
                (Whole::Compact, Some(text)) => {
                    check(text).map_err(fail)?;
                    values.append_value(compact(text));
                }
                (Whole::Structure, Some(text)) => {
                    values.append_value(structure(text).map_err(fail)?)
                }
                (Whole::Pretty, Some(text)) => values.append_value(pretty(text).map_err(fail)?),
                (Whole::Merged, Some(text)) => {
                    let mut merged = Some(text.to_owned());
                    for (array, field) in arrays.iter().zip(fields).skip(1) {
                        let patches = json_texts(array, field)?;
                        let patch = patches.is_valid(row).then(|| patches.value(row));
                        merged = match merged.zip(patch) {
                            Some((merged, patch)) => {
                                Some(merge_patch(&merged, patch).map_err(fail)?)
                            }
                            None => None,
                        };
                    }
                    values.append_option(merged);
                }
            }
        }
        Ok(match self.named.returns {
            Returns::Boolean => Arc::new(truths.finish()),
            _ => Arc::new(values.finish()),
        })
    }
}

/// JSON of the arguments' values.
fn made(make: Make, arrays: &[ArrayRef], fields: &[FieldRef], rows: usize) -> DfResult<ArrayRef> {
    if make == Make::Encoded {
        return Ok(Arc::new(encoded(&arrays[0], &fields[0], true)?));
    }
    let is_object = make == Make::Object;
    let mut columns = Vec::with_capacity(arrays.len());
    for (number, (array, field)) in arrays.iter().zip(fields).enumerate() {
        columns.push(match is_object && number.is_multiple_of(2) {
            true => cast(array, &DataType::Utf8View)?.as_string_view().clone(),
            false => encoded(array, field, false)?,
        });
    }
    let mut values = StringViewBuilder::with_capacity(rows);
    let mut text = String::new();
    for row in 0..rows {
        text.clear();
        text.push(if is_object { '{' } else { '[' });
        for (number, column) in columns.iter().enumerate() {
            let is_key = is_object && number.is_multiple_of(2);
            if number > 0 && (is_key || !is_object) {
                text.push(',');
            }
            match is_key {
                true if column.is_null(row) => {
                    return Err(exec_datafusion_err!("a key of json_object is NULL"));
                }
                true => {
                    write_quoted(column.value(row), &mut text);
                    text.push(':');
                }
                false => text.push_str(column.value(row)),
            }
        }
        text.push(if is_object { '}' } else { ']' });
        values.append_value(&text);
    }
    Ok(Arc::new(values.finish()))
}

/// What a function says of the values that paths lead to.
enum Found {
    Texts(Part, StringViewBuilder),
    Truths(BooleanBuilder),
    Counts(UInt64Builder),
    Keys(ListBuilder<StringViewBuilder>),
}

impl Found {
    fn new(part: Part, _: &Field) -> Found {
        match part {
            Part::Exists => Found::Truths(BooleanBuilder::new()),
            Part::Length => Found::Counts(UInt64Builder::new()),
            Part::Keys => Found::Keys(ListBuilder::new(StringViewBuilder::new())),
            other => Found::Texts(other, StringViewBuilder::new()),
        }
    }

    fn push_missing(&mut self) {
        if let Found::Truths(builder) = self {
            builder.append_value(false);
        }
    }

    fn push(&mut self, value: Option<&str>) -> DfResult<()> {
        let fail = |error: JsonError| malformed(&error, value.unwrap_or_default());
        match self {
            Found::Truths(builder) => builder.append_option(value.map(|_| true)),
            Found::Counts(builder) => builder.append_option(match value {
                Some(value) => {
                    Some(elements(value).map_err(fail)?.map_or(0, |found| found.len() as u64))
                }
                None => None,
            }),
            Found::Keys(builder) => {
                for (key, _) in
                    value.map(members).transpose().map_err(fail)?.flatten().unwrap_or_default()
                {
                    builder.values().append_value(key);
                }
                builder.append(value.is_some());
            }
            Found::Texts(part, builder) => match (part, value) {
                (_, None) => builder.append_null(),
                (Part::Value, Some(value)) => builder.append_value(compact(value)),
                (Part::Type, Some(value)) => builder.append_value(type_of(value)),
                (Part::Scalar, Some(value))
                    if matches!(kind(value), Kind::Array | Kind::Object) =>
                {
                    builder.append_null();
                }
                (_, Some(value)) => builder.append_option(text_of(value).map_err(fail)?),
            },
        }
        Ok(())
    }

    fn finish(self) -> DfResult<ArrayRef> {
        Ok(match self {
            Found::Texts(_, mut builder) => Arc::new(builder.finish()),
            Found::Truths(mut builder) => Arc::new(builder.finish()),
            Found::Counts(mut builder) => Arc::new(builder.finish()),
            Found::Keys(mut builder) => Arc::new(builder.finish()),
        })
    }
}

/// The name of a value's type.
pub(super) fn type_of(value: &str) -> &'static str {
    match kind(value) {
        Kind::Null => "NULL",
        Kind::Boolean => "BOOLEAN",
        Kind::Integer if value.trim().parse::<u64>().is_ok() => "UBIGINT",
        Kind::Integer if value.trim().parse::<i64>().is_ok() => "BIGINT",
        Kind::Integer | Kind::Float => "DOUBLE",
        Kind::Text => "VARCHAR",
        Kind::Array => "ARRAY",
        Kind::Object => "OBJECT",
    }
}

/// The lengths of lists.
#[derive(Default)]
struct Lists {
    lengths: Vec<usize>,
    valid: Vec<bool>,
}

impl Lists {
    fn push(&mut self, length: Option<usize>) {
        self.lengths.push(length.unwrap_or(0));
        self.valid.push(length.is_some());
    }

    fn finish(self, item: FieldRef, values: ArrayRef) -> DfResult<ArrayRef> {
        let offsets = arrow::buffer::OffsetBuffer::from_lengths(self.lengths);
        let nulls = Some(arrow::buffer::NullBuffer::from(self.valid));
        Ok(Arc::new(arrow::array::ListArray::try_new(item, offsets, values, nulls)?))
    }
}
