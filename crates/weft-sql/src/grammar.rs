//! What the parsers of statements share: steps over tokens, and what to say where they fail.

use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{ErrorKind, Position, Result, SqlError};
use crate::text::{self, DIALECT, Offsets};

/// How deep expressions and queries may nest.
pub(crate) const RECURSION_MAX: usize = 200;

/// A parser of these tokens.
pub(crate) fn parser(tokens: Vec<TokenWithSpan>) -> Parser<'static> {
    Parser::new(&DIALECT).with_tokens_with_locations(tokens).with_recursion_limit(RECURSION_MAX)
}

/// What the parser says, as an error.
pub(crate) fn syntax(error: datafusion::sql::sqlparser::parser::ParserError) -> SqlError {
    SqlError::from(datafusion::common::DataFusionError::SQL(Box::new(error), None))
}

/// What was expected, and what is there instead.
pub(crate) fn expected<T>(what: &str, found: &TokenWithSpan) -> Result<T> {
    let there = match &found.token {
        Token::EOF => "the end of the statement".to_owned(),
        token => token.to_string(),
    };
    let message = format!("syntax error: expected {what}, found {there}");
    let start = found.span.start;
    let error = SqlError::new(ErrorKind::Syntax, message);
    Err(match start.line {
        0 => error,
        line => error.with_position(Position { line, column: start.column }),
    })
}

/// Checks that nothing follows.
///
/// # Errors
/// [`ErrorKind::Syntax`] with its place.
pub(crate) fn expect_eof(parser: &mut Parser<'_>) -> Result<()> {
    let next = parser.peek_token();
    match next.token {
        Token::EOF | Token::SemiColon => Ok(()),
        _ => expected("the end of the statement", &next),
    }
}

/// Checks that nothing follows the first `count` significant tokens.
///
/// # Errors
/// [`ErrorKind::Syntax`] with its place.
pub(crate) fn expect_end(tokens: &[TokenWithSpan], count: usize) -> Result<()> {
    match text::significant(tokens).get(count) {
        None => Ok(()),
        Some(token) => expected("the end of the statement", token),
    }
}

/// Whether a token is this word, and not the name in quotes.
pub(crate) fn is(token: &TokenWithSpan, word: &str) -> bool {
    matches!(&token.token,
        Token::Word(found) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}

/// Whether the next token is this word.
pub(crate) fn is_word(parser: &Parser<'_>, word: &str) -> bool {
    is(&parser.peek_token(), word)
}

/// Takes the next token if it is this word.
pub(crate) fn take_word(parser: &mut Parser<'_>, word: &str) -> bool {
    let found = is_word(parser, word);
    if found {
        parser.next_token();
    }
    found
}

/// Takes a word that may be left out.
pub(crate) fn skip_word(parser: &mut Parser<'_>, word: &str) {
    if is_word(parser, word) {
        parser.next_token();
    }
}

/// Takes a string in quotes.
///
/// # Errors
/// [`ErrorKind::Syntax`] if there is something else.
pub(crate) fn take_string(parser: &mut Parser<'_>, what: &str) -> Result<String> {
    let next = parser.next_token();
    match next.token {
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => Ok(text),
        _ => expected(what, &next),
    }
}

/// The text from one token to another.
pub(crate) fn slice(sql: &str, start: &TokenWithSpan, end: &TokenWithSpan) -> String {
    let offsets = Offsets::new(sql);
    sql[offsets.byte(start.span.start)..offsets.byte(end.span.end)].to_owned()
}
