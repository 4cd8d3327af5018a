//! Cuts the text of a CSV file into records and fields.
//!
//! The lexer is our own, as readers need what those of crates do not tell: whether a field stands in quotes (`""` is an
//! empty text, nothing is NULL), what is wrong and where, and comments and blank lines by the dialect.

use memchr::{memchr, memchr2, memchr3};

/// How the characters of a file are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dialect {
    /// Between two fields.
    pub(crate) delimiter: u8,
    /// Around a field that has other special characters.
    pub(crate) quote: Option<u8>,
    /// Before a quote that belongs to the text; the quote itself if it is doubled.
    pub(crate) escape: Option<u8>,
    /// Begins a comment.
    pub(crate) comment: Option<u8>,
    /// Comments may begin behind fields, too.
    pub(crate) comments_within: bool,
}

impl Dialect {
    /// Fields between these delimiters, with double quotes that are doubled.
    pub(crate) fn of_delimiter(delimiter: u8) -> Dialect {
        let quote = Some(b'"');
        Dialect { delimiter, quote, escape: quote, comment: None, comments_within: false }
    }
}

/// Where a field's text lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Field {
    /// The first byte's place; the highest bit tells whether it contains escapes.
    start: u32,
    /// The end's place; the highest bit tells whether it stands in quotes.
    end: u32,
}

const FLAG: u32 = 1 << 31;

impl Field {
    fn new(start: usize, end: usize) -> Field {
        Field { start: start as u32, end: end as u32 }
    }

    fn quoted(start: usize, end: usize, is_escaped: bool) -> Field {
        let escaped = if is_escaped { FLAG } else { 0 };
        Field { start: start as u32 | escaped, end: end as u32 | FLAG }
    }

    /// A field that is not there.
    pub(crate) fn missing(at: usize) -> Field {
        Field::new(at, at)
    }

    pub(crate) fn start(self) -> usize {
        (self.start & !FLAG) as usize
    }

    pub(crate) fn end(self) -> usize {
        (self.end & !FLAG) as usize
    }

    /// True if it stands in quotes.
    pub(crate) fn is_quoted(self) -> bool {
        self.end & FLAG != 0
    }

    /// True if its text has escapes, which [`unescaped`] takes out.
    pub(crate) fn is_escaped(self) -> bool {
        self.start & FLAG != 0
    }

    /// Its characters as they lie in the file.
    pub(crate) fn raw(self, text: &str) -> &str {
        text.get(self.start()..self.end()).unwrap_or("")
    }
}

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A quote that is not closed.
    Unclosed,
    /// Something between a closing quote and the delimiter.
    BehindQuote,
}

/// A record that was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Where the next one begins.
    pub(crate) next: usize,
    /// It is no record: a comment, or a line without characters.
    pub(crate) kind: LineKind,
    /// What is wrong, and where.
    pub(crate) fault: Option<(Fault, usize)>,
}

/// What a line of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineKind {
    Record,
    Blank,
    Comment,
}

/// Fields this short are searched byte by byte for their ends.
const SHORT: usize = 24;

/// Cuts text of one dialect.
pub(crate) struct Lexer {
    dialect: Dialect,
    /// Bytes that may end a field without quotes.
    ends: [bool; 256],
}

impl Lexer {
    pub(crate) fn new(dialect: Dialect) -> Lexer {
        let mut ends = [false; 256];
        for byte in [dialect.delimiter, b'\n', b'\r'] {
            ends[byte as usize] = true;
        }
        if let Some(comment) = dialect.comment.filter(|_| dialect.comments_within) {
            ends[comment as usize] = true;
        }
        Lexer { dialect, ends }
    }

    /// The place of the next byte that may end a field without quotes.
    #[inline]
    fn end_of_plain(&self, text: &[u8], at: usize) -> usize {
        let head = &text[at..text.len().min(at + SHORT)];
        if let Some(found) = head.iter().position(|byte| self.ends[*byte as usize]) {
            return at + found;
        }
        let at = at + head.len();
        let rest = &text[at..];
        let found = match self.dialect.comments_within {
            false => memchr3(self.dialect.delimiter, b'\n', b'\r', rest),
            true => rest.iter().position(|byte| self.ends[*byte as usize]),
        };
        found.map_or(text.len(), |found| at + found)
    }

    /// Cuts off the record that begins at `start`, before the end of the text, and adds its fields.
    #[inline]
    pub(crate) fn record(&self, text: &[u8], start: usize, fields: &mut Vec<Field>) -> Record {
        let mut at = start;
        let mut fault = None;
        match text[at] {
            b'\n' | b'\r' => {
                return Record { next: after_line(text, at), kind: LineKind::Blank, fault };
            }
            byte if Some(byte) == self.dialect.comment => {
                let end = memchr2(b'\n', b'\r', &text[at..]).map_or(text.len(), |found| at + found);
                return Record { next: after_line(text, end), kind: LineKind::Comment, fault };
            }
            _ => {}
        }
        loop {
            let quote = self.opening_quote(text, at);
            if let Some(quote) = quote {
                at = self.quoted(text, quote, fields, &mut fault);
            } else {
                let end = self.end_of_plain(text, at);
                fields.push(Field::new(at, end));
                at = end;
            }
            match text.get(at) {
                Some(byte) if *byte == self.dialect.delimiter => at += 1,
                Some(b'\n' | b'\r') | None => {
                    return Record { next: after_line(text, at), kind: LineKind::Record, fault };
                }
                Some(_) => {
                    // A comment behind fields.
                    let end =
                        memchr2(b'\n', b'\r', &text[at..]).map_or(text.len(), |found| at + found);
                    return Record { next: after_line(text, end), kind: LineKind::Record, fault };
                }
            }
        }
    }

    /// The place of the quote that a field at `at` begins with, behind blanks if it has some.
    #[inline]
    fn opening_quote(&self, text: &[u8], at: usize) -> Option<usize> {
        let quote = self.dialect.quote?;
        match text.get(at) {
            Some(byte) if *byte == quote => Some(at),
            Some(b' ') if self.dialect.delimiter != b' ' => {
                let blanks = text[at..].iter().take_while(|byte| **byte == b' ').count();
                (text.get(at + blanks) == Some(&quote)).then_some(at + blanks)
            }
            _ => None,
        }
    }

    /// Adds the field that this quote opens, and returns where it ends.
    fn quoted(
        &self,
        text: &[u8],
        open: usize,
        fields: &mut Vec<Field>,
        fault: &mut Option<(Fault, usize)>,
    ) -> usize {
        let Some((close, is_escaped)) = self.closing_quote(text, open) else {
            fault.get_or_insert((Fault::Unclosed, open));
            fields.push(Field::quoted(open + 1, text.len(), true));
            return text.len();
        };
        let mut at = close + 1;
        let is_end = |at: usize| text.get(at).is_none_or(|byte| self.ends[*byte as usize]);
        if !is_end(at) {
            let blanks = text[at..].iter().take_while(|byte| **byte == b' ').count();
            if is_end(at + blanks) {
                at += blanks;
            } else {
                fault.get_or_insert((Fault::BehindQuote, at));
                let end = self.end_of_plain(text, at);
                fields.push(Field::new(open, end));
                return end;
            }
        }
        fields.push(Field::quoted(open + 1, close, is_escaped));
        at
    }

    /// The place of the quote that closes the one at `open`, and whether there are escapes between them.
    pub(crate) fn closing_quote(&self, text: &[u8], open: usize) -> Option<(usize, bool)> {
        let quote = self.dialect.quote?;
        let mut is_escaped = false;
        let mut at = open + 1;
        match self.dialect.escape {
            Some(escape) if escape != quote => loop {
                let found = at + memchr2(quote, escape, text.get(at..)?)?;
                if text[found] == quote {
                    return Some((found, is_escaped));
                }
                let is_escape =
                    text.get(found + 1).is_some_and(|next| *next == quote || *next == escape);
                is_escaped |= is_escape;
                at = found + 1 + usize::from(is_escape);
            },
            escape => loop {
                let found = at + memchr(quote, text.get(at..)?)?;
                if escape.is_none() || text.get(found + 1) != Some(&quote) {
                    return Some((found, is_escaped));
                }
                is_escaped = true;
                at = found + 2;
            },
        }
    }

    /// Where the last whole record of a text ends that begins with a record; nothing if it has no whole one.
    /// `is_whole` tells that the file ends with the text.
    pub(crate) fn last_end(&self, text: &[u8], is_whole: bool, newline: u8) -> Option<usize> {
        if is_whole {
            return Some(text.len()).filter(|end| *end > 0);
        }
        let quote = self.dialect.quote.filter(|quote| memchr(*quote, text).is_some());
        let Some(quote) = quote else {
            return self.line_end(text, newline);
        };
        if self.dialect.comment.is_some() {
            return self.last_end_by_records(text);
        }
        let (mut from, mut last) = (0, None);
        loop {
            let next = memchr(quote, &text[from..]).map(|found| from + found);
            let outside = &text[from..next.unwrap_or(text.len())];
            if let Some(end) = self.line_end(outside, newline) {
                last = Some(from + end);
            }
            let Some(open) = next else { return last };
            let begins = text[..open].iter().rev().find(|byte| **byte != b' ');
            let opens = begins.is_none_or(|byte| {
                *byte == self.dialect.delimiter || *byte == b'\n' || *byte == b'\r'
            });
            // Blanks are fields of their own where they are delimiters.
            let opens = opens || (self.dialect.delimiter == b' ' && text[open - 1] == b' ');
            from = match opens {
                false => open + 1,
                true => match self.closing_quote(text, open) {
                    // The quote may be doubled by the next byte, which is not there.
                    Some((close, _)) if close + 1 < text.len() => close + 1,
                    _ => return last,
                },
            };
        }
    }

    fn line_end(&self, text: &[u8], newline: u8) -> Option<usize> {
        let end = memchr::memrchr(newline, text)? + 1;
        match newline {
            // Whether a line feed follows is not known at the end of the text.
            b'\r' if end == text.len() => self.line_end(&text[..end - 1], newline),
            b'\r' if text.get(end) == Some(&b'\n') => Some(end + 1),
            _ => Some(end),
        }
    }

    fn last_end_by_records(&self, text: &[u8]) -> Option<usize> {
        let mut fields = Vec::new();
        let (mut at, mut last) = (0, None);
        while at < text.len() {
            fields.clear();
            at = self.record(text, at, &mut fields).next;
            // One that ends with the text may go on, or have a second character of its line end.
            if at < text.len() {
                last = Some(at);
            }
        }
        last
    }
}

/// Where the next line begins, if this one ends at `at`.
fn after_line(text: &[u8], at: usize) -> usize {
    match text.get(at) {
        Some(b'\r') if text.get(at + 1) == Some(&b'\n') => at + 2,
        Some(_) => at + 1,
        None => at,
    }
}

/// The text of a field with its escapes taken out.
pub(crate) fn unescaped(raw: &str, dialect: &Dialect) -> String {
    let (Some(quote), Some(escape)) = (dialect.quote, dialect.escape) else {
        return raw.to_owned();
    };
    let (quote, escape) = (char::from(quote), char::from(escape));
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw.chars().peekable();
    while let Some(char) = rest.next() {
        match rest.peek() {
            Some(next) if char == escape && (*next == quote || *next == escape) => {
                text.push(*next);
                rest.next();
            }
            _ => text.push(char),
        }
    }
    text
}
