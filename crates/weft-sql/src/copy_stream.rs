//! `COPY … FROM STDIN` and `COPY … TO STDOUT`: what a server does for its clients by other statements.
//!
//! Rows go to a client by a query, and come from it by an INSERT of the rows of a relation, which the server hands to the
//! statement. What the bytes between them look like is said by the options, those of PostgreSQL.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{ErrorKind, Position, Result, SqlError};
use crate::grammar::{expected, is, slice};
use crate::identifiers::quoted;
use crate::statement::fold;
use crate::text::{significant, tokenize};

/// The name by which the statement of `COPY … FROM STDIN` finds the rows of the client.
pub const CLIENT_ROWS: &str = "stdin";

/// What the bytes between a client and a server look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFormat {
    /// A line per row, with escapes.
    Text,
    /// Comma separated values.
    Csv,
    /// Values in the binary format.
    Binary,
}

/// A COPY between a client and the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyStream {
    /// The client sends the rows.
    pub is_from_client: bool,
    /// The query whose rows the client gets, or one with the columns that it sends.
    pub query: String,
    /// The statement that inserts the rows of the relation [`CLIENT_ROWS`], with `{}` for its columns; empty if the client
    /// gets rows.
    pub insert: String,
    /// What the bytes look like.
    pub format: StreamFormat,
    /// The byte between values.
    pub delimiter: u8,
    /// What stands for NULL.
    pub null: String,
    /// The first line has the names of the columns.
    pub header: bool,
    /// The byte around values of CSV.
    pub quote: u8,
    /// The byte before a quote that belongs to a value.
    pub escape: u8,
    /// All values of CSV are quoted that are not NULL.
    pub force_quote: bool,
}

/// The COPY between a client and the database that a statement is; `None` for any other statement.
///
/// # Errors
/// [`ErrorKind::Syntax`], and [`ErrorKind::NotSupported`] for options that there are not.
pub fn copy_stream(sql: &str) -> Result<Option<CopyStream>> {
    let starts = sql.trim_start().get(..4).is_some_and(|word| word.eq_ignore_ascii_case("copy"));
    if !starts {
        return Ok(None);
    }
    let tokens = tokenize(sql)?;
    let tokens: Vec<&TokenWithSpan> = significant(&tokens)
        .into_iter()
        .filter(|token| !matches!(token.token, Token::SemiColon | Token::EOF))
        .collect();
    let mut rest = Rest { tokens: &tokens, at: 0 };
    if !rest.take("copy") {
        return Ok(None);
    }
    rest.take("binary");
    let binary = rest.at == 2;
    let (query, table, columns) = match rest.peek().map(|token| &token.token) {
        Some(Token::LParen) => {
            let first = rest.at + 1;
            let Some(end) = closing(&tokens, rest.at) else { return Ok(None) };
            rest.at = end + 1;
            let (Some(start), Some(last)) = (tokens.get(first), tokens.get(end - 1)) else {
                return Ok(None);
            };
            (slice(sql, start, last), None, Vec::new())
        }
        _ => {
            let Some(table) = rest.names(Token::Period) else { return Ok(None) };
            let table = table.join(".");
            let columns = match rest.take_token(&Token::LParen) {
                true => {
                    let Some(columns) = rest.names(Token::Comma) else { return Ok(None) };
                    if !rest.take_token(&Token::RParen) {
                        return Ok(None);
                    }
                    columns
                }
                false => Vec::new(),
            };
            let list = if columns.is_empty() { "*".to_owned() } else { columns.join(", ") };
            (format!("SELECT {list} FROM {table}"), Some(table), columns)
        }
    };
    let is_from_client = rest.take("from");
    let is_to_client = !is_from_client && rest.take("to");
    let is_stream = match (is_from_client, is_to_client) {
        (true, _) => rest.take("stdin"),
        (_, true) => rest.take("stdout"),
        _ => false,
    };
    if !is_stream {
        return Ok(None);
    }
    let insert = match (is_from_client, table) {
        (true, None) => return expected("a table", tokens[1]),
        (false, _) => String::new(),
        (true, Some(table)) => {
            let list = match columns.is_empty() {
                true => String::new(),
                false => format!(" ({})", columns.join(", ")),
            };
            format!("INSERT INTO {table}{list} SELECT {{}} FROM {}", quoted(CLIENT_ROWS))
        }
    };
    let mut options = Options { binary, ..Options::default() };
    options.parse(&mut rest)?;
    options.finish(is_from_client, query, insert).map(Some)
}

/// The number of the parenthesis that closes the one at `open`.
fn closing(tokens: &[&TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (number, token) in tokens.iter().enumerate().skip(open) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.checked_sub(1)?,
            _ => continue,
        }
        if depth == 0 {
            return Some(number);
        }
    }
    None
}

/// The tokens that are left.
struct Rest<'a> {
    tokens: &'a [&'a TokenWithSpan],
    at: usize,
}

impl<'a> Rest<'a> {
    fn peek(&self) -> Option<&'a TokenWithSpan> {
        self.tokens.get(self.at).copied()
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.peek().is_some_and(|token| is(token, word));
        self.at += usize::from(found);
        found
    }

    fn take_token(&mut self, wanted: &Token) -> bool {
        let found = self.peek().is_some_and(|token| token.token == *wanted);
        self.at += usize::from(found);
        found
    }

    fn next(&mut self) -> Option<&'a TokenWithSpan> {
        let token = self.peek()?;
        self.at += 1;
        Some(token)
    }

    /// Names with a token between them, as SQL spells them.
    fn names(&mut self, between: Token) -> Option<Vec<String>> {
        let mut names = Vec::new();
        loop {
            let Token::Word(word) = &self.next()?.token else { return None };
            names.push(quoted(&fold(word.value.clone(), word.quote_style)));
            if !self.take_token(&between) {
                return Some(names);
            }
        }
    }
}

#[derive(Default)]
struct Options {
    csv: bool,
    binary: bool,
    header: bool,
    delimiter: Option<u8>,
    null: Option<String>,
    quote: Option<u8>,
    escape: Option<u8>,
    force_quote: bool,
}

impl Options {
    /// `[WITH] (name value, …)`, or the same without parentheses and commas.
    fn parse(&mut self, rest: &mut Rest<'_>) -> Result<()> {
        rest.take("with");
        let in_parentheses = rest.take_token(&Token::LParen);
        while let Some(name) = rest.next() {
            if in_parentheses && matches!(name.token, Token::RParen | Token::Comma) {
                continue;
            }
            self.set(name, rest)?;
        }
        Ok(())
    }

    fn set(&mut self, name: &TokenWithSpan, rest: &mut Rest<'_>) -> Result<()> {
        let word = match &name.token {
            Token::Word(word) => word.value.to_ascii_lowercase(),
            _ => return expected("an option of COPY", name),
        };
        match word.as_str() {
            "format" => match text_of(name, rest.next())?.to_ascii_lowercase().as_str() {
                "text" => (self.csv, self.binary) = (false, false),
                "csv" => self.csv = true,
                "binary" => self.binary = true,
                other => {
                    let message = format!("the COPY format {other} for a client");
                    return Err(SqlError::not_supported(message)
                        .with_hint("formats for clients are text, csv and binary"));
                }
            },
            "csv" => self.csv = true,
            "binary" => self.binary = true,
            "header" => self.header = flag(rest),
            "freeze" => drop(flag(rest)),
            "delimiter" | "delimiters" => self.delimiter = Some(byte(name, rest)?),
            "quote" => self.quote = Some(byte(name, rest)?),
            "escape" => self.escape = Some(byte(name, rest)?),
            "null" => {
                rest.take("as");
                self.null = Some(text_of(name, rest.next())?);
            }
            "encoding" => {
                let encoding = text_of(name, rest.next())?.to_ascii_lowercase().replace('-', "");
                if !matches!(encoding.as_str(), "utf8" | "unicode") {
                    return Err(SqlError::not_supported(format!("the encoding {encoding}")));
                }
            }
            "force_quote" if rest.take_token(&Token::Mul) => self.force_quote = true,
            other => {
                let start = name.span.start;
                return Err(SqlError::not_supported(format!("the COPY option {other} for a client"))
                    .with_hint("options: FORMAT, HEADER, DELIMITER, NULL, QUOTE, ESCAPE, FREEZE, ENCODING, FORCE_QUOTE *")
                    .with_position(Position { line: start.line, column: start.column }));
            }
        }
        Ok(())
    }

    fn finish(self, is_from_client: bool, query: String, insert: String) -> Result<CopyStream> {
        let format = match (self.csv, self.binary) {
            (_, true) => StreamFormat::Binary,
            (true, _) => StreamFormat::Csv,
            _ => StreamFormat::Text,
        };
        let is_csv = format == StreamFormat::Csv;
        let quote = self.quote.unwrap_or(b'"');
        let stream = CopyStream {
            is_from_client,
            query,
            insert,
            format,
            delimiter: self.delimiter.unwrap_or(if is_csv { b',' } else { b'\t' }),
            null: self.null.unwrap_or_else(|| if is_csv { "" } else { "\\N" }.to_owned()),
            header: self.header,
            quote,
            escape: self.escape.unwrap_or(quote),
            force_quote: self.force_quote,
        };
        let is_line = |byte: u8| matches!(byte, b'\r' | b'\n');
        let bad = if !is_csv && (self.quote.is_some() || self.escape.is_some()) {
            Some("QUOTE and ESCAPE are options of the format csv")
        } else if is_line(stream.delimiter) || stream.null.bytes().any(is_line) {
            Some("DELIMITER and NULL cannot have the end of a line")
        } else if is_csv && stream.delimiter == stream.quote {
            Some("DELIMITER and QUOTE must differ")
        } else {
            None
        };
        match bad {
            Some(message) => Err(SqlError::new(ErrorKind::Semantic, message)),
            None => Ok(stream),
        }
    }
}

/// The value of a flag: true if none is written.
fn flag(rest: &mut Rest<'_>) -> bool {
    let words = [("true", true), ("on", true), ("match", true), ("false", false), ("off", false)];
    for (word, value) in words {
        if rest.take(word) {
            return value;
        }
    }
    match rest.peek().map(|token| &token.token) {
        Some(Token::Number(number, _)) => {
            rest.at += 1;
            number != "0"
        }
        _ => true,
    }
}

fn text_of(name: &TokenWithSpan, token: Option<&TokenWithSpan>) -> Result<String> {
    match token.map(|token| &token.token) {
        Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => {
            Ok(text.clone())
        }
        Some(Token::Word(word)) => Ok(word.value.clone()),
        _ => expected("a value for the option", token.unwrap_or(name)),
    }
}

fn byte(name: &TokenWithSpan, rest: &mut Rest<'_>) -> Result<u8> {
    rest.take("as");
    let text = text_of(name, rest.next())?;
    match text.as_bytes() {
        [byte] if byte.is_ascii() => Ok(*byte),
        b"\\t" => Ok(b'\t'),
        _ => {
            let message = format!("the COPY option {name} cannot be '{text}': it is one character");
            Err(SqlError::new(ErrorKind::Semantic, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_with_clients_are_told_from_others() {
        for other in
            ["SELECT 1", "COPY t FROM 'f.csv'", "COPY t TO 'f.csv' (FORMAT csv)", "copying"]
        {
            assert_eq!(copy_stream(other).unwrap(), None, "{other}");
        }
        let found =
            copy_stream("copy T (a, \"B c\") from stdin with (freeze on)").unwrap().unwrap();
        assert!(found.is_from_client);
        let inserted = "INSERT INTO t (a, \"B c\") SELECT {} FROM stdin";
        assert_eq!(found.insert, inserted);
        assert_eq!(found.query, "SELECT a, \"B c\" FROM t");
        assert_eq!((found.delimiter, found.null.as_str()), (b'\t', "\\N"));
        let found = copy_stream(
            "COPY (SELECT f(1), ')' FROM t) TO STDOUT WITH CSV HEADER DELIMITER ';' NULL AS 'x';",
        );
        let found = found.unwrap().unwrap();
        assert_eq!(found.query, "SELECT f(1), ')' FROM t");
        assert_eq!((found.format, found.header), (StreamFormat::Csv, true));
        assert_eq!((found.delimiter, found.null.as_str()), (b';', "x"));
        let found = copy_stream("COPY s.t TO STDOUT (FORMAT binary)").unwrap().unwrap();
        assert_eq!(found.format, StreamFormat::Binary);
    }

    #[test]
    fn options_that_cannot_be_are_refused() {
        for bad in [
            "COPY t FROM STDIN (FORMAT parquet)",
            "COPY t FROM STDIN (DELIMITER 'ab')",
            "COPY t FROM STDIN (QUOTE 'x')",
            "COPY t FROM STDIN (FORMAT csv, DELIMITER '\"')",
            "COPY t TO STDOUT (FORCE_NULL (a))",
            "COPY (SELECT 1) FROM STDIN",
        ] {
            assert!(copy_stream(bad).is_err(), "{bad}");
        }
    }
}
