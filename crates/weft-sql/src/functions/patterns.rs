//! Functions of regular expressions, with DuckDB's options.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Int64Array, ListBuilder, StringViewArray, StringViewBuilder,
};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DfResult, exec_err};
use datafusion::logical_expr::ScalarUDF;
use regex::{Regex, RegexBuilder, escape};

use super::scalar::{Call, Column, Kind, Rows, Scalar, gives, list_of};

/// Most patterns that are kept for the rows of a batch.
const PATTERNS_MAX: usize = 64;

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        Scalar::function(
            &["regexp_matches"],
            |call| gives(call.takes_some(&[Kind::Text; 3], 1), DataType::Boolean),
            |rows| matches(rows, false),
        ),
        Scalar::function(
            &["regexp_full_match"],
            |call| gives(call.takes_some(&[Kind::Text; 3], 1), DataType::Boolean),
            |rows| matches(rows, true),
        ),
        Scalar::function(
            &["regexp_extract"],
            |call| gives(extract_types(call), DataType::Utf8View),
            extract,
        ),
        Scalar::function(
            &["regexp_extract_all"],
            |call| gives(extract_types(call), list_of(DataType::Utf8View)),
            extract_all,
        ),
        Scalar::function(
            &["regexp_split_to_array", "string_split_regex", "str_split_regex"],
            |call| gives(call.takes_some(&[Kind::Text; 3], 1), list_of(DataType::Utf8View)),
            split,
        ),
        Scalar::function(
            &["regexp_escape"],
            |call| gives(call.takes(&[Kind::Text]), DataType::Utf8View),
            |rows| {
                let texts = rows.column::<StringViewArray>(0)?;
                rows.each::<String, StringViewArray>(|row| Ok(texts.get(row).map(escaped)))
            },
        ),
        Scalar::function(
            &["string_split", "str_split", "split"],
            |call| gives(call.takes(&[Kind::Text; 2]), list_of(DataType::Utf8View)),
            split_text,
        ),
    ]
}

/// A text whose characters all stand for themselves in a pattern.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for char in text.chars() {
        if !char.is_alphanumeric() && char != '_' && char.is_ascii() {
            escaped.push('\\');
        }
        escaped.push(char);
    }
    escaped
}

fn extract_types(call: &Call<'_>) -> DfResult<Vec<DataType>> {
    call.takes_some(&[Kind::Text, Kind::Text, Kind::Integer, Kind::Text], 2)
}

/// The patterns of an argument, compiled, with the options of another one.
struct Patterns<'a> {
    name: &'a str,
    patterns: Column<'a, StringViewArray>,
    options: Option<Column<'a, StringViewArray>>,
    is_full: bool,
    compiled: RefCell<HashMap<(String, String), Rc<Regex>>>,
}

impl<'a> Patterns<'a> {
    fn new(rows: &'a Rows<'_>, options: usize, is_full: bool) -> DfResult<Patterns<'a>> {
        Ok(Patterns {
            name: rows.name,
            patterns: rows.column(1)?,
            options: rows.optional(options)?,
            is_full,
            compiled: RefCell::default(),
        })
    }

    /// The pattern of a row, nothing if it or its options are NULL.
    fn get(&self, row: usize) -> DfResult<Option<Rc<Regex>>> {
        let options = match &self.options {
            Some(options) => options.get(row),
            None => Some(""),
        };
        let (Some(pattern), Some(options)) = (self.patterns.get(row), options) else {
            return Ok(None);
        };
        let key = (pattern.to_owned(), options.to_owned());
        if let Some(known) = self.compiled.borrow().get(&key) {
            return Ok(Some(Rc::clone(known)));
        }
        let regex = Rc::new(self.compile(pattern, options)?);
        let mut compiled = self.compiled.borrow_mut();
        if compiled.len() >= PATTERNS_MAX {
            compiled.clear();
        }
        compiled.insert(key, Rc::clone(&regex));
        Ok(Some(regex))
    }

    fn compile(&self, pattern: &str, options: &str) -> DfResult<Regex> {
        let pattern = if options.contains('l') { escape(pattern) } else { pattern.to_owned() };
        let pattern = if self.is_full { format!("^(?:{pattern})$") } else { pattern };
        let mut builder = RegexBuilder::new(&pattern);
        for option in options.chars() {
            match option {
                'i' => builder.case_insensitive(true),
                's' => builder.dot_matches_new_line(true),
                'm' | 'n' | 'p' => builder.dot_matches_new_line(false),
                'c' => builder.case_insensitive(false),
                'g' | 'l' => &mut builder,
                other => {
                    return exec_err!(
                        "{}: there is no option '{other}': write 'i', 'c', 's', 'm', 'l' or 'g'",
                        self.name
                    );
                }
            };
        }
        match builder.build() {
            Ok(regex) => Ok(regex),
            Err(error) => exec_err!("{}: {pattern:?} is not a pattern: {error}", self.name),
        }
    }
}

fn matches(rows: &Rows<'_>, is_full: bool) -> DfResult<ArrayRef> {
    let texts = rows.column::<StringViewArray>(0)?;
    let patterns = Patterns::new(rows, 2, is_full)?;
    rows.each::<bool, BooleanArray>(|row| {
        let (Some(text), Some(regex)) = (texts.get(row), patterns.get(row)?) else {
            return Ok(None);
        };
        Ok(Some(regex.is_match(text)))
    })
}

/// The group of a row that is asked for, 0 for all that matches; nothing for a group that cannot be.
fn group(groups: Option<&Column<'_, Int64Array>>, row: usize) -> Option<usize> {
    match groups {
        Some(groups) => usize::try_from(groups.get(row)?).ok(),
        None => Some(0),
    }
}

/// What the first match, or a group of it, is; an empty text if there is none.
fn extract(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let texts = rows.column::<StringViewArray>(0)?;
    let groups = rows.optional::<Int64Array>(2)?;
    let patterns = Patterns::new(rows, 3, false)?;
    rows.each::<String, StringViewArray>(|row| {
        let (Some(text), Some(regex)) = (texts.get(row), patterns.get(row)?) else {
            return Ok(None);
        };
        let captures = regex.captures(text);
        let group = group(groups.as_ref(), row);
        let found = captures.as_ref().zip(group).and_then(|(captures, group)| captures.get(group));
        Ok(Some(found.map(|found| found.as_str().to_owned()).unwrap_or_default()))
    })
}

/// All matches, or one group of each.
fn extract_all(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let texts = rows.column::<StringViewArray>(0)?;
    let groups = rows.optional::<Int64Array>(2)?;
    let patterns = Patterns::new(rows, 3, false)?;
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    for row in 0..rows.count {
        let (Some(text), Some(regex)) = (texts.get(row), patterns.get(row)?) else {
            lists.append(false);
            continue;
        };
        match group(groups.as_ref(), row).filter(|group| *group < regex.captures_len()) {
            Some(group) => {
                for captures in regex.captures_iter(text) {
                    lists.values().append_option(captures.get(group).map(|found| found.as_str()));
                }
            }
            None => return exec_err!("{}: the pattern has no such group", rows.name),
        }
        lists.append(true);
    }
    Ok(Arc::new(lists.finish()))
}

/// What lies between the matches.
fn split(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let texts = rows.column::<StringViewArray>(0)?;
    let patterns = Patterns::new(rows, 2, false)?;
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    for row in 0..rows.count {
        let (Some(text), Some(regex)) = (texts.get(row), patterns.get(row)?) else {
            lists.append(false);
            continue;
        };
        if regex.as_str().is_empty() {
            characters(text).for_each(|part| lists.values().append_value(part));
        } else {
            regex.split(text).for_each(|part| lists.values().append_value(part));
        }
        lists.append(true);
    }
    Ok(Arc::new(lists.finish()))
}

/// The characters of a text, each as a text.
fn characters(text: &str) -> impl Iterator<Item = &str> {
    text.char_indices().map(|(at, char)| &text[at..at + char.len_utf8()])
}

/// What lies between separators; all of the text if the separator is NULL.
fn split_text(rows: &Rows<'_>) -> DfResult<ArrayRef> {
    let texts = rows.column::<StringViewArray>(0)?;
    let separators = rows.column::<StringViewArray>(1)?;
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    for row in 0..rows.count {
        let Some(text) = texts.get(row) else {
            lists.append(false);
            continue;
        };
        match separators.get(row) {
            None => lists.values().append_value(text),
            Some("") => characters(text).for_each(|part| lists.values().append_value(part)),
            Some(separator) => {
                text.split(separator).for_each(|part| lists.values().append_value(part));
            }
        }
        lists.append(true);
    }
    Ok(Arc::new(lists.finish()))
}
