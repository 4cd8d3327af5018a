//! The text of statements: tokens with positions, and where one statement ends.

use datafusion::sql::sqlparser::tokenizer::{
    Location, Token, TokenWithSpan, Tokenizer, TokenizerError,
};

use crate::dialect::WeftDialect;
use crate::error::{ErrorKind, Position, Result, SqlError};

/// The grammar that Weft speaks.
pub(crate) static DIALECT: WeftDialect = WeftDialect;

/// One statement of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Its text, without the semicolon and the white space and comments around it.
    pub text: String,
    /// Where the text starts in the script.
    pub position: Position,
    /// Byte offset of the text's start in the script.
    pub offset: usize,
}

/// Cuts a script into its statements.
///
/// # Errors
/// [`ErrorKind::Syntax`] with a position where a string, quoted name or comment is not closed.
pub fn split_statements(script: &str) -> Result<Vec<Statement>> {
    let tokens = tokenize(script)?;
    let offsets = Offsets::new(script);
    let mut statements = Vec::new();
    let mut span: Option<(Location, Location)> = None;
    for token in &tokens {
        match &token.token {
            Token::Whitespace(_) | Token::EOF => {}
            Token::SemiColon => statements.extend(span.take()),
            _ => {
                let start = span.map_or(token.span.start, |(start, _)| start);
                span = Some((start, token.span.end));
            }
        }
    }
    statements.extend(span);
    Ok(statements
        .into_iter()
        .map(|(start, end)| {
            let (from, to) = (offsets.byte(start), offsets.byte(end));
            let position = Position { line: start.line, column: start.column };
            Statement { text: script[from..to].trim_end().to_owned(), position, offset: from }
        })
        .collect())
}

/// True if the script ends inside a string, a quoted name, a comment or a statement without its
/// semicolon: more lines have to follow.
pub fn is_incomplete(script: &str) -> bool {
    match Tokenizer::new(&DIALECT, script).tokenize_with_location() {
        Err(error) => is_unterminated(&error),
        Ok(tokens) => {
            let last = tokens
                .iter()
                .rev()
                .find(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF));
            last.is_some_and(|token| token.token != Token::SemiColon)
        }
    }
}

fn is_unterminated(error: &TokenizerError) -> bool {
    let message = error.message.to_lowercase();
    message.contains("unterminated")
        || message.contains("expected close delimiter")
        || message.contains("unexpected eof")
}

/// The tokens of a text, white space included.
pub(crate) fn tokenize(text: &str) -> Result<Vec<TokenWithSpan>> {
    let tokens = Tokenizer::new(&DIALECT, text).tokenize_with_location().map_err(|error| {
        let position = Position { line: error.location.line, column: error.location.column };
        let message = error.message.trim_end_matches('.');
        SqlError::new(ErrorKind::Syntax, format!("syntax error: {message}")).with_position(position)
    })?;
    Ok(whole_numbers(tokens))
}

/// A text whose tokens a test has rewritten, with one space between words.
#[cfg(test)]
pub(crate) fn rewritten(sql: &str, rewrite: impl FnOnce(&mut Vec<TokenWithSpan>)) -> String {
    let mut tokens = tokenize(sql).unwrap();
    rewrite(&mut tokens);
    let texts: Vec<String> = tokens.iter().map(|token| token.token.to_string()).collect();
    texts.concat().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The tokens with numbers such as `1_000_000.5` in one: the tokenizer takes `_000_000` for a word.
fn whole_numbers(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut whole: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut is_grouped = false;
    for token in tokens {
        let last = whole.last_mut();
        if let Some(TokenWithSpan { token: Token::Number(number, false), span }) = last {
            let more = match &token.token {
                Token::Word(word) if word.quote_style.is_none() => grouped_digits(&word.value),
                Token::Number(fraction, false) if is_grouped && fraction.starts_with('.') => {
                    (!number.contains('.')).then(|| fraction.clone())
                }
                _ => None,
            };
            if let Some(more) = more {
                number.push_str(&more);
                span.end = token.span.end;
                is_grouped = true;
                continue;
            }
        }
        is_grouped = false;
        whole.push(token);
    }
    whole
}

/// The digits of `_000_000`, and an exponent behind them.
fn grouped_digits(text: &str) -> Option<String> {
    let (digits, exponent) = text.split_at(text.find(['e', 'E']).unwrap_or(text.len()));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let groups = digits.strip_prefix('_')?.split('_').all(is_digits);
    let is_exponent = exponent.is_empty() || exponent.get(1..).is_some_and(is_digits);
    (groups && is_exponent).then(|| text.replace('_', ""))
}

/// Numbers the placeholders `?` from 1 on, as `$1`, `$2`, …
pub(crate) fn number_placeholders(tokens: &mut [TokenWithSpan]) {
    let mut number = 0;
    for token in tokens {
        let anonymous = match &token.token {
            Token::Placeholder(text) => text == "?",
            Token::Question => true,
            _ => false,
        };
        if anonymous {
            number += 1;
            token.token = Token::Placeholder(format!("${number}"));
        }
    }
}

/// How many parameters a statement has: the `?`, or the largest number of a `$1`.
///
/// # Errors
/// [`ErrorKind::Syntax`] if it is no statement.
pub fn count_parameters(sql: &str) -> Result<usize> {
    crate::statement::parse(sql)?;
    let mut tokens = tokenize(sql)?;
    number_placeholders(&mut tokens);
    Ok(tokens.iter().filter_map(|token| parameter(&token.token)).max().unwrap_or(0))
}

/// The number of a parameter, from 1 on.
fn parameter(token: &Token) -> Option<usize> {
    match token {
        Token::Placeholder(text) => {
            text.strip_prefix('$')?.parse().ok().filter(|number| *number > 0)
        }
        _ => None,
    }
}

/// Puts expressions in place of the parameters. (PREPARE, whose statement gets its values later, keeps
/// them.)
///
/// # Errors
/// [`ErrorKind::Semantic`] if there are more or fewer values than parameters.
pub(crate) fn bind(tokens: Vec<TokenWithSpan>, values: &[String]) -> Result<Vec<TokenWithSpan>> {
    let first = tokens.iter().find(|token| !matches!(token.token, Token::Whitespace(_)));
    let is_prepare = matches!(first.map(|token| &token.token),
        Some(Token::Word(word)) if word.value.eq_ignore_ascii_case("prepare"));
    let wanted = match is_prepare {
        true => 0,
        false => tokens.iter().filter_map(|token| parameter(&token.token)).max().unwrap_or(0),
    };
    if wanted != values.len() {
        let given = values.len();
        let message =
            format!("the statement has {wanted} parameters, but {given} values were given");
        return Err(SqlError::new(ErrorKind::Semantic, message));
    }
    if wanted == 0 {
        return Ok(tokens);
    }
    let values = values.iter().map(|value| tokenize(value)).collect::<Result<Vec<_>>>()?;
    let mut bound = Vec::with_capacity(tokens.len());
    for token in tokens {
        match parameter(&token.token) {
            // Errors are to point at the parameter.
            Some(number) => bound.extend(
                values[number - 1]
                    .iter()
                    .map(|part| TokenWithSpan { token: part.token.clone(), span: token.span }),
            ),
            None => bound.push(token),
        }
    }
    Ok(bound)
}

/// Without white space and comments.
pub(crate) fn significant(tokens: &[TokenWithSpan]) -> Vec<&TokenWithSpan> {
    tokens
        .iter()
        .filter(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF))
        .collect()
}

/// Turns places in a text, in lines and characters, into byte offsets.
pub(crate) struct Offsets<'a> {
    text: &'a str,
    /// Where each line starts.
    lines: Vec<usize>,
}

impl<'a> Offsets<'a> {
    pub(crate) fn new(text: &'a str) -> Offsets<'a> {
        let lines = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(index, _)| index + 1))
            .collect();
        Offsets { text, lines }
    }

    /// The byte offset of a place; the text's end for one behind it.
    pub(crate) fn byte(&self, place: Location) -> usize {
        let line = usize::try_from(place.line.saturating_sub(1)).unwrap_or(usize::MAX);
        let Some(&start) = self.lines.get(line) else { return self.text.len() };
        let column = usize::try_from(place.column.saturating_sub(1)).unwrap_or(usize::MAX);
        let rest = &self.text[start..];
        rest.char_indices().nth(column).map_or(self.text.len(), |(index, _)| start + index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(script: &str) -> Vec<String> {
        split_statements(script).unwrap().into_iter().map(|found| found.text).collect()
    }

    #[test]
    fn splits_at_semicolons_outside_strings_and_comments() {
        let script =
            "select ';' -- a; b\n, 1; /* ; */ ;\n  insert into \"a;b\" values ('ä;')  ; -- x";
        assert_eq!(texts(script), ["select ';' -- a; b\n, 1", "insert into \"a;b\" values ('ä;')"]);
        assert!(texts(" -- nothing\n;;").is_empty());
    }

    #[test]
    fn tells_positions() {
        let found = split_statements("select 1;\n  select 'ü', 2").unwrap();
        assert_eq!(found[1].position, Position { line: 2, column: 3 });
        assert_eq!(found[1].offset, 12);
        let error = split_statements("select 1;\nselect 'abc").unwrap_err();
        assert_eq!(error.position(), Some(Position { line: 2, column: 8 }));
    }

    #[test]
    fn knows_when_more_has_to_follow() {
        for incomplete in
            ["select 1", "select 'a", "select /* x", "select 1; select 2 -- x", "select \"a"]
        {
            assert!(is_incomplete(incomplete), "{incomplete}");
        }
        for complete in ["", "select 1;", "select 1; -- done", " -- only a comment"] {
            assert!(!is_incomplete(complete), "{complete}");
        }
    }

    #[test]
    fn numbers_placeholders() {
        let mut tokens = tokenize("select ?, '?', ? + 1").unwrap();
        number_placeholders(&mut tokens);
        let text: String = tokens.iter().map(|token| token.token.to_string()).collect();
        assert_eq!(text, "select $1, '?', $2 + 1");
    }
}
