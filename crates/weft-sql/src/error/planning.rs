//! What is wrong with a statement before it runs: its syntax, and the names and types in it.

use datafusion::common::SchemaError;

use super::words::{between, first_paragraph, plain_types, sentence, strip_prefixes};
use super::{ErrorKind, Position, SqlError};
use crate::same_names::TWICE;
use crate::suggest;

/// `sql parser error: Expected: …, found: … at Line: 1, Column: 8`
pub(super) fn translate_syntax(message: &str) -> SqlError {
    let message = message.trim_start_matches("sql parser error: ");
    let (text, position) = split_position(message);
    let text = text.replace("Expected: ", "expected ").replace(", found: ", ", found ");
    let text = if text.ends_with("found EOF") {
        text.replace("found EOF", "found the end of the statement")
    } else {
        text
    };
    let error = SqlError::new(ErrorKind::Syntax, format!("syntax error: {}", sentence(&text)));
    match position {
        Some(position) => error.with_position(position),
        None => error,
    }
}

/// Takes ` at Line: 1, Column: 8` from the end of a message.
fn split_position(message: &str) -> (&str, Option<Position>) {
    let Some(start) = message.rfind("at Line: ") else {
        return (message, None);
    };
    let numbers = &message[start + "at Line: ".len()..];
    let Some((line, column)) = numbers.split_once(", Column: ") else {
        return (message, None);
    };
    match (line.trim().parse(), column.trim().parse()) {
        (Ok(line), Ok(column)) if line > 0 => {
            (message[..start].trim_end(), Some(Position { line, column }))
        }
        _ => (message, None),
    }
}

pub(super) fn translate_plan(message: &str) -> SqlError {
    let message = strip_prefixes(message);
    if let Some(name) = between(&message, "table '", "' not found") {
        return unknown_table(name);
    }
    if let Some(error) = translate_call(&message) {
        return error;
    }
    let (what, hint) = match message.split_once("Did you mean ") {
        Some((what, hint)) => (what, Some(format!("did you mean {}", hint.trim()))),
        None => (message.as_str(), None),
    };
    let kind = if message.contains("not supported") || message.contains("not yet supported") {
        ErrorKind::NotSupported
    } else {
        ErrorKind::Semantic
    };
    let what = first_paragraph(what);
    let error = match between(what, "Invalid function '", "'") {
        Some(name) => SqlError::new(kind, format!("function {name} does not exist")).about(name),
        None => SqlError::new(kind, plain_types(&sentence(what))),
    };
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// Calls with arguments of wrong types, and columns outside of GROUP BY.
pub(super) fn translate_call(message: &str) -> Option<SqlError> {
    if let Some((_, rest)) = message.split_once("given name and argument types '") {
        let call = rest.split('\'').next().unwrap_or(rest);
        let name = call.split('(').next().unwrap_or(call);
        let call = plain_types(call);
        let message = format!("there is no {call}: {name} takes arguments of other types");
        return Some(
            SqlError::new(ErrorKind::Semantic, message)
                .about(name)
                .with_hint("cast the arguments, such as CAST(x AS DOUBLE)"),
        );
    }
    if let Some((_, rest)) =
        message.split_once(" require unique expression names but the expression \"")
    {
        let column = rest.split("\" at position").next().unwrap_or(rest);
        return Some(occurs_twice(column.rsplit('.').next().unwrap_or(column)));
    }
    if let Some((before, _)) = message.split_once(" must appear in the GROUP BY clause") {
        let column = before.rsplit("olumn ").next().unwrap_or(before).trim_matches('"');
        return Some(SqlError::new(
            ErrorKind::Semantic,
            format!("column {column} must be in GROUP BY or in an aggregate function"),
        ));
    }
    None
}

/// No table, view or file of this name.
pub(crate) fn unknown_table(name: &str) -> SqlError {
    let name = name.trim_start_matches("weft.").trim_start_matches("main.");
    SqlError::new(ErrorKind::Semantic, format!("table {name} does not exist")).about(name)
}

pub(super) fn translate_schema(error: &SchemaError) -> SqlError {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let error = SqlError::new(
                ErrorKind::Semantic,
                format!("column {} does not exist", field.flat_name()),
            )
            .about(field.name.as_str());
            let names: Vec<&str> = valid_fields.iter().map(|field| field.name.as_str()).collect();
            match suggest::hint("column", &field.name, &names) {
                Some(hint) => error.with_hint(hint),
                None => error,
            }
        }
        SchemaError::AmbiguousReference { field } => SqlError::new(
            ErrorKind::Semantic,
            format!("column {} is ambiguous: more than one table has it", field.flat_name()),
        )
        .about(field.name.as_str())
        .with_hint("write table.column"),
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => occurs_twice(name),
    }
}

/// Two columns have the same name.
pub(crate) fn occurs_twice(name: &str) -> SqlError {
    SqlError::new(ErrorKind::Semantic, format!("column {name} {TWICE}"))
        .about(name)
        .with_hint("name one of them differently with AS")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_where_the_syntax_is_wrong() {
        let error = translate_syntax(
            "sql parser error: Expected: an expression, found: FROM at Line: 2, Column: 8",
        );
        assert_eq!(error.to_string(), "syntax error: expected an expression, found FROM");
        assert_eq!(error.position(), Some(Position { line: 2, column: 8 }));
    }
}
