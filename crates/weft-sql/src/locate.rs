//! Finds the place in a statement's text that an error is about.

use datafusion::sql::sqlparser::tokenizer::Token;

use crate::error::{Position, SqlError};
use crate::text;

/// The error with a position, if it has none and the name that it is about is in the text.
pub(crate) fn locate(error: SqlError, sql: &str) -> SqlError {
    let (None, Some(subject)) = (error.position(), error.subject()) else { return error };
    match find(subject, sql) {
        Some(position) => error.with_position(position),
        None => error,
    }
}

fn find(name: &str, sql: &str) -> Option<Position> {
    let tokens = text::tokenize(sql).ok()?;
    let found = tokens.iter().find(|token| match &token.token {
        Token::Word(word) if word.quote_style.is_none() => word.value.eq_ignore_ascii_case(name),
        Token::Word(word) => word.value == name,
        Token::SingleQuotedString(text) => text == name,
        _ => false,
    })?;
    Some(Position { line: found.span.start.line, column: found.span.start.column })
}
