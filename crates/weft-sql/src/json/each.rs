//! `json_each(json[, path])` in FROM: a row for each element of an array or member of an object, and one for another value.
//! `json_tree(json[, path])`: a row for the value, followed by those of each element or member, and so on. They are put as
//! UNNEST of lists, one for each of their columns, which functions here make.

use std::sync::{Arc, LazyLock};

use arrow::array::{
    Array, ArrayRef, AsArray, ListArray, StringViewArray, StringViewBuilder, UInt64Builder,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result as DfResult, exec_datafusion_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, TableAlias, TableAliasColumnDef, TableFactor,
};
use weft_json::{
    JsonError, Kind, Path, compact, elements, json_field, kind, members, write_quoted,
};

use super::functions::type_of;
use super::texts::{json_texts, malformed, only_value};
use crate::functions::call;

/// A column, the names of the functions that make its lists for `json_each` and `json_tree`, and the name of the column.
const COLUMNS: [(Column, [&str; 2], &str); 8] = [
    (Column::Key, ["json_each_key", "json_tree_key"], "key"),
    (Column::Value, ["json_each_value", "json_tree_value"], "value"),
    (Column::Type, ["json_each_type", "json_tree_type"], "type"),
    (Column::Atom, ["json_each_atom", "json_tree_atom"], "atom"),
    (Column::Id, ["json_each_id", "json_tree_id"], "id"),
    (Column::Parent, ["json_each_parent", "json_tree_parent"], "parent"),
    (Column::FullKey, ["json_each_fullkey", "json_tree_fullkey"], "fullkey"),
    (Column::Path, ["json_each_path", "json_tree_path"], "path"),
];

/// The functions in FROM, in the order of the names of [`COLUMNS`].
const NAMES: [&str; 2] = ["json_each", "json_tree"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Column {
    /// The member's key, or the element's number as text.
    Key,
    Value,
    Type,
    /// The value, if it is neither an array nor an object.
    Atom,
    /// The value's number among all values and keys of the whole.
    Id,
    Parent,
    FullKey,
    Path,
}

/// Puts `json_each(…)` and `json_tree(…)` in FROM as UNNEST.
pub(crate) fn rewrite(factor: &mut TableFactor) {
    let (name, args, alias) = match &*factor {
        TableFactor::Table { name, alias, args: Some(args), .. } => (name, &args.args, alias),
        TableFactor::Function { name, args, alias, .. } => (name, args, alias),
        _ => return,
    };
    let name = name.to_string();
    let Some(which) = NAMES.iter().position(|known| name.eq_ignore_ascii_case(known)) else {
        return;
    };
    let values: Option<Vec<Expr>> = args
        .iter()
        .map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
            _ => None,
        })
        .collect();
    let Some(values) = values else { return };
    let mut alias = alias.clone().unwrap_or_else(|| TableAlias {
        explicit: true,
        name: Ident::new(NAMES[which]),
        columns: Vec::new(),
        at: None,
    });
    for (_, _, column) in COLUMNS.iter().skip(alias.columns.len()) {
        let name = Ident::with_quote('"', *column);
        alias.columns.push(TableAliasColumnDef { name, data_type: None });
    }
    *factor = TableFactor::UNNEST {
        alias: Some(alias),
        array_exprs: COLUMNS
            .iter()
            .map(|(_, functions, _)| call(functions[which], values.clone()))
            .collect(),
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: false,
    };
}

/// The functions that make the lists.
pub(crate) fn each_functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    COLUMNS.into_iter().flat_map(|(column, [each, tree], _)| {
        [(each, false), (tree, true)]
            .map(|(name, is_tree)| Arc::new(ScalarUDF::from(Each { column, name, is_tree })))
    })
}

/// The lists of a column.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Each {
    column: Column,
    name: &'static str,
    /// True of `json_tree`.
    is_tree: bool,
}

impl Each {
    /// The function in FROM.
    fn source_name(&self) -> &'static str {
        NAMES[usize::from(self.is_tree)]
    }
}

impl Each {
    fn item(&self) -> Field {
        match self.column {
            Column::Value | Column::Atom => json_field("item", true),
            Column::Id | Column::Parent => Field::new("item", DataType::UInt64, true),
            _ => Field::new("item", DataType::Utf8View, true),
        }
    }
}

impl ScalarUDFImpl for Each {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        static SIGNATURE: LazyLock<Signature> = LazyLock::new(|| {
            let any = vec![TypeSignature::Any(1), TypeSignature::Any(2)];
            Signature::one_of(any, Volatility::Immutable)
        });
        &SIGNATURE
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::List(Arc::new(self.item())))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> DfResult<FieldRef> {
        if let Some(path) = args.arg_fields.get(1)
            && !(path.data_type().is_string() || path.data_type().is_null())
        {
            return plan_err!("{} takes a path that is a text", self.source_name());
        }
        Ok(Arc::new(Field::new(self.name, self.return_type(&[])?, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let arrays =
            args.args.iter().map(|arg| arg.to_array(rows)).collect::<DfResult<Vec<_>>>()?;
        let texts = json_texts(&arrays[0], &args.arg_fields[0])?;
        let paths = arrays.get(1).map(|paths| cast(paths, &DataType::Utf8View)).transpose()?;
        let paths = paths.as_ref().map(|paths| paths.as_string_view());
        let array = self.lists(&texts, paths)?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(only_value(&array)?),
            false => ColumnarValue::Array(array),
        })
    }
}

impl Each {
    fn lists(
        &self,
        texts: &StringViewArray,
        paths: Option<&StringViewArray>,
    ) -> DfResult<ArrayRef> {
        let mut lengths = Vec::with_capacity(texts.len());
        let mut known = Vec::with_capacity(texts.len());
        let (mut words, mut numbers) = (StringViewBuilder::new(), UInt64Builder::new());
        for row in 0..texts.len() {
            let path = match paths {
                Some(paths) => paths.is_valid(row).then(|| paths.value(row)),
                None => Some("$"),
            };
            let (true, Some(path)) = (texts.is_valid(row), path) else {
                lengths.push(0);
                known.push(false);
                continue;
            };
            let of = parts(texts.value(row), path, self.is_tree)?;
            lengths.push(of.len());
            known.push(true);
            for part in of {
                match self.column {
                    Column::Key => words.append_option(part.key.as_deref()),
                    Column::Value => words.append_value(compact(part.value)),
                    Column::Type => words.append_value(type_of(part.value)),
                    Column::Atom => words.append_option(match kind(part.value) {
                        Kind::Array | Kind::Object | Kind::Null => None,
                        _ => Some(compact(part.value)),
                    }),
                    Column::Id => numbers.append_value(part.id),
                    Column::Parent => numbers.append_option(part.parent),
                    Column::FullKey => words.append_value(&part.full_key),
                    Column::Path => words.append_value(&part.path),
                }
            }
        }
        let values: ArrayRef = match self.column {
            Column::Id | Column::Parent => Arc::new(numbers.finish()),
            _ => Arc::new(words.finish()),
        };
        let offsets = OffsetBuffer::from_lengths(lengths);
        let nulls = Some(NullBuffer::from(known));
        Ok(Arc::new(ListArray::try_new(Arc::new(self.item()), offsets, values, nulls)?))
    }
}

/// A row of `json_each` or `json_tree`.
struct Part<'a> {
    key: Option<String>,
    value: &'a str,
    id: u64,
    parent: Option<u64>,
    full_key: String,
    path: String,
}

/// Numbers the values of a text, which come in its order.
struct Numbering<'a> {
    text: &'a str,
    /// Where the last value begins, and how many values and keys begin before it.
    last: (usize, u64),
}

impl Numbering<'_> {
    fn id(&mut self, value: &str) -> u64 {
        let start = value.as_ptr().addr() - self.text.as_ptr().addr();
        let (last, before) = self.last;
        self.last = (start, before + values_before(&self.text[last..start]));
        self.last.1
    }
}

/// The parts of the value in a text that a path leads to; with `is_tree` also the value, and the parts of parts.
fn parts<'a>(text: &'a str, path: &str, is_tree: bool) -> DfResult<Vec<Part<'a>>> {
    let fail = |error: JsonError| malformed(&error, text);
    let found = Path::parse(path).map_err(|problem| exec_datafusion_err!("{problem}"))?;
    if found.is_many() {
        let name = NAMES[usize::from(is_tree)];
        return Err(exec_datafusion_err!("{name} takes a path without wildcards, not {path}"));
    }
    let Some(of) = found.find(text).map_err(fail)? else { return Ok(Vec::new()) };
    let base = path_text(path);
    let mut ids = Numbering { text, last: (0, 0) };
    let id = ids.id(of);
    let root = Part { key: None, value: of, id, parent: None, full_key: base.clone(), path: base };
    // What is to come, in the opposite order; a part of `json_each` has no parts.
    let mut pending = match is_tree {
        true => vec![root],
        false => children(&root).map_err(fail)?.unwrap_or_else(|| vec![root]),
    };
    pending.reverse();
    let mut parts = Vec::new();
    while let Some(mut part) = pending.pop() {
        part.id = ids.id(part.value);
        if is_tree {
            let inner = children(&part).map_err(fail)?.into_iter().flatten().rev();
            let parent = Some(part.id);
            pending.extend(inner.map(|inner| Part { parent, ..inner }));
        }
        parts.push(part);
    }
    Ok(parts)
}

/// The elements or members of a value, not numbered yet; `None` if it is neither an array nor an object.
fn children<'a>(of: &Part<'a>) -> Result<Option<Vec<Part<'a>>>, JsonError> {
    let base = &of.full_key;
    let part = |key: String, value: &'a str, full_key: String| Part {
        key: Some(key),
        value,
        id: 0,
        parent: None,
        full_key,
        path: base.clone(),
    };
    if let Some(members) = members(of.value)? {
        let member = |(key, value): (std::borrow::Cow<'a, str>, &'a str)| {
            let is_plain = !key.is_empty()
                && key.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
            let mut full_key = format!("{base}.");
            match is_plain {
                true => full_key.push_str(&key),
                false => write_quoted(&key, &mut full_key),
            }
            part(key.into_owned(), value, full_key)
        };
        return Ok(Some(members.into_iter().map(member).collect()));
    }
    let Some(elements) = elements(of.value)? else { return Ok(None) };
    let element = |(number, value): (usize, &'a str)| {
        part(number.to_string(), value, format!("{base}[{number}]"))
    };
    Ok(Some(elements.into_iter().enumerate().map(element).collect()))
}

/// A path as it begins with `$`.
fn path_text(path: &str) -> String {
    match path.strip_prefix('/') {
        _ if path.starts_with('$') => path.to_owned(),
        None => format!("$.{path}"),
        Some(steps) => steps.split('/').fold("$".to_owned(), |text, step| {
            match step.bytes().all(|byte| byte.is_ascii_digit()) {
                true => format!("{text}[{step}]"),
                false => format!("{text}.{step}"),
            }
        }),
    }
}

/// How many values and keys begin in the first part of a JSON text.
fn values_before(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let (mut count, mut at) = (0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                count += 1;
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'{' | b'[' => {
                count += 1;
                at += 1;
            }
            byte if byte.is_ascii_alphanumeric() || byte == b'-' => {
                count += 1;
                let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
                at += bytes[at..].iter().take_while(|byte| is_part(byte)).count();
            }
            _ => at += 1,
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_numbered_in_the_order_of_the_text() {
        let text = r#"{"a b":1,"x":{"y":[1,2.5,-3]},"z":true}"#;
        let ids = |path: &str| -> Vec<u64> {
            parts(text, path, false).unwrap().iter().map(|part| part.id).collect()
        };
        assert_eq!(ids("$"), [2, 4, 11]);
        assert_eq!(ids("$.x.y"), [7, 8, 9]);
        assert_eq!(parts(text, "$", false).unwrap()[0].full_key, r#"$."a b""#);
        let tree = parts(text, "$", true).unwrap();
        let numbered: Vec<_> = tree.iter().map(|part| (part.id, part.parent)).collect();
        let below = |id, parent| (id, Some(parent));
        let root = [(0, None), below(2, 0), below(4, 0), below(6, 4)];
        assert_eq!(numbered[..4], root);
        assert_eq!(numbered[4..], [below(7, 6), below(8, 6), below(9, 6), below(11, 0)]);
        assert_eq!(path_text("/a/0"), "$.a[0]");
    }
}
