//! The grammar of SET, RESET and SHOW of settings.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{ErrorKind, Result, SqlError};
use crate::grammar::{expected, slice};
use crate::statement::Parsed;
use crate::text;

/// The name after SHOW or RESET; `None` for ALL.
pub(crate) fn setting_name(tokens: &[TokenWithSpan]) -> Result<Option<String>> {
    let tokens = text::significant(tokens);
    let mut name = String::new();
    let mut is_whole = false;
    for token in &tokens[1..] {
        match &token.token {
            Token::Period if is_whole => name.push('.'),
            Token::Word(word) if !is_whole || name.eq_ignore_ascii_case("time") => {
                name.push_str(&word.value);
            }
            Token::SingleQuotedString(text) if !is_whole => name.push_str(text),
            _ if is_whole => return expected("the end of the statement", token),
            _ => return expected("the name of a setting", token),
        }
        is_whole = token.token != Token::Period;
    }
    match name.to_ascii_lowercase().as_str() {
        "" => Err(SqlError::new(ErrorKind::Syntax, "syntax error: expected the name of a setting")),
        "all" => Ok(None),
        "timezone" => Ok(Some("timezone".to_owned())),
        name => Ok(Some(name.to_owned())),
    }
}

/// `SET name = value`
pub(crate) fn parse_set(sql: &str, tokens: &[TokenWithSpan]) -> Result<Parsed> {
    let significant = text::significant(tokens);
    let is_assignment = |token: &TokenWithSpan| match &token.token {
        Token::Eq => true,
        Token::Word(word) => word.value.eq_ignore_ascii_case("to"),
        _ => false,
    };
    let Some(equals) = significant.iter().position(|token| is_assignment(token)) else {
        return match significant.last() {
            Some(last) => expected("'=' and the setting's value", last),
            None => Err(SqlError::new(ErrorKind::Syntax, "syntax error: expected a setting")),
        };
    };
    let mut name = String::new();
    for token in &significant[1..equals] {
        match &token.token {
            Token::Word(word) => name.push_str(&word.value),
            Token::Period => name.push('.'),
            _ => return expected("the name of a setting", token),
        }
    }
    let value = rest_as_value(sql, tokens, equals + 1)?;
    Ok(Parsed::Set { name: name.to_ascii_lowercase(), value })
}

/// The text from the `first` significant token on, or the string that it is.
pub(crate) fn rest_as_value(sql: &str, tokens: &[TokenWithSpan], first: usize) -> Result<String> {
    let significant = text::significant(tokens);
    match &significant[first.min(significant.len())..] {
        [] => Err(SqlError::new(ErrorKind::Syntax, "syntax error: expected the setting's value")),
        [one] => Ok(match &one.token {
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => text.clone(),
            _ => slice(sql, one, one),
        }),
        [start, .., end] => Ok(slice(sql, start, end)),
    }
}
