//! Functions of paths of files: their parts, names and directories.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, ListBuilder, StringViewArray, StringViewBuilder,
};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DfResult, exec_err};
use datafusion::logical_expr::ScalarUDF;

use super::scalar::{Call, Kind, Rows, Scalar, Types, gives, list_of};

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let path: fn(&Call<'_>) -> DfResult<Types> =
        |call| gives(call.takes_some(&[Kind::Text; 2], 1), DataType::Utf8View);
    vec![
        Scalar::function(
            &["parse_path"],
            |call| gives(call.takes_some(&[Kind::Text; 2], 1), list_of(DataType::Utf8View)),
            parse,
        ),
        Scalar::function(&["parse_dirname"], path, |rows| {
            each(rows, 1, |_, path, separators| {
                let first = path.find(separators);
                Ok(match first {
                    Some(0) => path[..1].to_owned(),
                    Some(end) => path[..end].to_owned(),
                    None => String::new(),
                })
            })
        }),
        Scalar::function(&["parse_dirpath"], path, |rows| {
            each(rows, 1, |_, path, separators| {
                Ok(match path.rfind(separators) {
                    Some(0) => path[..1].to_owned(),
                    Some(end) => path[..end].to_owned(),
                    None => String::new(),
                })
            })
        }),
        Scalar::function(&["parse_filename"], file_name_types, file_name),
        Scalar::function(
            &["path_join"],
            |call| gives(call.takes_any(Kind::Text, 1), DataType::Utf8View),
            join,
        ),
    ]
}

/// The characters between parts of paths, by the name of the rule.
fn separators(rule: &str) -> DfResult<&'static [char]> {
    match rule {
        "system" | "forward_slash" => Ok(&['/']),
        "both_slash" => Ok(&['/', '\\']),
        "backslash" => Ok(&['\\']),
        other => exec_err!(
            "'{other}' is no rule for paths: write 'system', 'forward_slash', 'backslash' or 'both_slash'"
        ),
    }
}

/// A text for each path, with the rule that the argument at `rule` names.
fn each(
    rows: &Rows<'_>,
    rule: usize,
    result: impl Fn(usize, &str, &[char]) -> DfResult<String>,
) -> DfResult<ArrayRef> {
    let paths = rows.column::<StringViewArray>(0)?;
    let rules = rows.optional::<StringViewArray>(rule)?;
    rows.each::<String, StringViewArray>(|row| {
        let rule = rules.as_ref().and_then(|rules| rules.get(row)).unwrap_or("both_slash");
        let separators = separators(rule)?;
        paths.get(row).map(|path| result(row, path, separators)).transpose()
    })
}

fn parse(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let paths = rows.column::<StringViewArray>(0)?;
    let rules = rows.optional::<StringViewArray>(1)?;
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    for row in 0..rows.count {
        let rule = rules.as_ref().and_then(|rules| rules.get(row)).unwrap_or("both_slash");
        let separators = separators(rule)?;
        let path = paths.get(row);
        if let Some(path) = path {
            if path.starts_with(separators) {
                lists.values().append_value(&path[..1]);
            }
            let parts = path.split(separators).filter(|part| !part.is_empty());
            parts.for_each(|part| lists.values().append_value(part));
        }
        lists.append(path.is_some());
    }
    Ok(Arc::new(lists.finish()))
}

fn file_name_types(call: &Call<'_>) -> DfResult<Types> {
    let arguments = match call.types.get(1) {
        Some(text) if text.is_string() => call.takes(&[Kind::Text; 2]),
        _ => call.takes_some(&[Kind::Text, Kind::Boolean, Kind::Text], 2),
    };
    gives(arguments, DataType::Utf8View)
}

/// The last part of a path, without its extension if the second argument is true.
fn file_name(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let has_flag =
        rows.arguments.len() > 1 && *rows.arguments[1].values.data_type() == DataType::Boolean;
    let flags = if has_flag { rows.optional::<BooleanArray>(1)? } else { None };
    each(rows, 1 + usize::from(has_flag), |row, path, separators| {
        let name = path.rsplit(separators).next().unwrap_or_default();
        let trims = flags.as_ref().and_then(|flags| flags.get(row)).unwrap_or_default();
        let end = name.rfind('.').filter(|_| trims).unwrap_or(name.len());
        Ok(name[..end].to_owned())
    })
}

fn join(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let parts: Vec<_> = (0..rows.arguments.len())
        .map(|at| rows.column::<StringViewArray>(at))
        .collect::<DfResult<_>>()?;
    rows.each::<String, StringViewArray>(|row| {
        let mut path = String::new();
        for part in &parts {
            let Some(part) = part.get(row) else { return Ok(None) };
            if part.starts_with('/') {
                path.clear();
            } else if !path.is_empty() && !path.ends_with('/') {
                path.push('/');
            }
            path.push_str(part);
        }
        Ok(Some(path))
    })
}
