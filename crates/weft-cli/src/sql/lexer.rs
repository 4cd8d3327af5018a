//! Tokens of SQL text, as far as colours, completion and the ends of statements need them. Quoting
//! follows the dialect that the database parses: `''` in strings, `E'\n'`, `"…"` and `` `…` ``
//! identifiers, `$tag$…$tag$`, `--` and nested `/* */` comments.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A keyword or a plain identifier.
    Word,
    /// An identifier in quotes.
    QuotedIdentifier,
    /// A string in any quotes.
    String,
    /// A number.
    Number,
    /// A comment to the end of the line or between `/*` and `*/`.
    Comment,
    /// White space.
    Space,
    /// A semicolon, which ends a statement.
    Semicolon,
    /// Any other single character.
    Symbol,
}

/// A piece of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: TokenKind,
    /// Its first byte.
    pub start: usize,
    /// The byte after its last.
    pub end: usize,
    /// Whether a string, a quoted identifier or a comment has its closing mark.
    pub closed: bool,
}

impl Token {
    /// The token's text in the text that it was found in.
    pub fn text<'t>(&self, text: &'t str) -> &'t str {
        &text[self.start..self.end]
    }

    /// Whether the token is neither white space nor a comment.
    pub fn has_meaning(&self) -> bool {
        !matches!(self.kind, TokenKind::Space | TokenKind::Comment)
    }
}

/// All tokens of `text`, one after the other without gaps.
pub fn tokens(text: &str) -> impl Iterator<Item = Token> + '_ {
    let mut position = 0;
    std::iter::from_fn(move || {
        let token = token_at(text, position)?;
        position = token.end;
        Some(token)
    })
}

/// The token that begins at byte `start` of `text`; none at the end.
pub fn token_at(text: &str, start: usize) -> Option<Token> {
    let rest = &text[start..];
    let first = rest.chars().next()?;
    let (kind, end) = match first {
        ';' => (TokenKind::Semicolon, Some(1)),
        '\'' => (TokenKind::String, quoted(rest, 1, '\'', false)),
        '"' | '`' => (TokenKind::QuotedIdentifier, quoted(rest, 1, first, false)),
        'e' | 'E' if rest[1..].starts_with('\'') => {
            (TokenKind::String, quoted(rest, 2, '\'', true))
        }
        '-' if rest.starts_with("--") => {
            (TokenKind::Comment, Some(rest.find('\n').unwrap_or(rest.len())))
        }
        '/' if rest.starts_with("/*") => (TokenKind::Comment, block_comment(rest)),
        '$' => match dollar_tag(rest) {
            Some(tag) => {
                (TokenKind::String, rest[tag.len()..].find(tag).map(|found| found + 2 * tag.len()))
            }
            None => (TokenKind::Symbol, Some(1)),
        },
        c if c.is_whitespace() => (TokenKind::Space, Some(while_true(rest, char::is_whitespace))),
        c if c.is_ascii_digit() => (TokenKind::Number, Some(number(rest))),
        '.' if rest[1..].starts_with(|c: char| c.is_ascii_digit()) => {
            (TokenKind::Number, Some(number(rest)))
        }
        c if starts_word(c) => (TokenKind::Word, Some(while_true(rest, continues_word))),
        c => (TokenKind::Symbol, Some(c.len_utf8())),
    };
    let end_of_token = start + end.unwrap_or(rest.len());
    Some(Token { kind, start, end: end_of_token, closed: end.is_some() })
}

fn starts_word(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn continues_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Bytes at the start of `text` whose characters satisfy `accept`.
fn while_true(text: &str, accept: impl Fn(char) -> bool) -> usize {
    text.find(|c| !accept(c)).unwrap_or(text.len())
}

/// Length of what begins with an opening mark of `opening` bytes and goes on to an undoubled `quote`.
fn quoted(text: &str, opening: usize, quote: char, backslash_escapes: bool) -> Option<usize> {
    let mut characters = text[opening..].char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        if c == '\\' && backslash_escapes {
            characters.next();
        } else if c == quote && characters.next_if(|(_, next)| *next == quote).is_none() {
            return Some(opening + at + 1);
        }
    }
    None
}

/// Length of the comment at the start of `text`, with the comments nested in it.
fn block_comment(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (2, 1);
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" if depth == 1 => return Some(at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    None
}

/// `$$` or `$tag$` at the start of `text`.
fn dollar_tag(text: &str) -> Option<&str> {
    let name = while_true(&text[1..], |c| c.is_alphanumeric() || c == '_');
    let numeric = text[1..].starts_with(|c: char| c.is_ascii_digit());
    (!numeric && text[1 + name..].starts_with('$')).then(|| &text[..name + 2])
}

/// Length of the number at the start of `text`: digits, a point, an exponent.
fn number(text: &str) -> usize {
    let mut end = while_true(text, |c| c.is_ascii_alphanumeric() || c == '.' || c == '_');
    let exponent = text[..end].ends_with(['e', 'E']) && !text.starts_with("0x");
    if exponent && text[end..].starts_with(['+', '-']) {
        end += 1;
        end += while_true(&text[end..], |c| c.is_ascii_digit());
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tokens of `text` but for white space, an unclosed one with an ellipsis.
    fn check(text: &str, expected: &[&str]) {
        let found: Vec<String> = tokens(text)
            .filter(|token| token.kind != TokenKind::Space)
            .map(|token| format!("{}{}", token.text(text), if token.closed { "" } else { "…" }))
            .collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn words_numbers_and_symbols() {
        check("SELECT a1+1.5e-3, .5 x;", &["SELECT", "a1", "+", "1.5e-3", ",", ".5", "x", ";"]);
        check("größe<=日本", &["größe", "<", "=", "日本"]);
        check("$1 a.b", &["$", "1", "a", ".", "b"]);
    }

    #[test]
    fn quotes() {
        check("'it''s' \"a\"\"b\" `c`", &["'it''s'", "\"a\"\"b\"", "`c`"]);
        check(r"E'\'' e'x'", &[r"E'\''", "e'x'"]);
        check("'open ; --", &["'open ; --…"]);
        check("$$a;b$$ $t$ $$ $t$;", &["$$a;b$$", "$t$ $$ $t$", ";"]);
        check("$t$ open", &["$t$ open…"]);
    }

    #[test]
    fn comments() {
        check("1 -- a ; '\n2", &["1", "-- a ; '", "2"]);
        check("/* a /* b */ c */ d", &["/* a /* b */ c */", "d"]);
        check("/* a /* b */", &["/* a /* b */…"]);
        check("/*/", &["/*/…"]);
    }

    #[test]
    fn every_prefix_of_odd_text_is_cut_without_gaps() {
        let text = "e'é\\'🦀'''\"\"`$a$é$$ /*/**/*/ --x\n1.e+5..$é$;\\";
        for (end, _) in text.char_indices() {
            let mut position = 0;
            for token in tokens(&text[..end]) {
                assert_eq!(token.start, position);
                assert!(token.end > token.start);
                position = token.end;
            }
            assert_eq!(position, end);
        }
    }
}
