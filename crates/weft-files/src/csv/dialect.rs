//! Tells a file's dialect from its beginning: the one that cuts it into the most even records.
//!
//! Each candidate cuts the text. Those count that have no faults and whose records, from some line on, all have as many
//! fields; among them the one that leaves out the fewest lines at the start, and then the one with the most fields.

use memchr::memchr;

use super::lex::{Dialect, Field, Lexer, LineKind};
use super::options::CsvOptions;

/// Records that are looked at, at most.
const RECORDS_MAX: usize = 2_000;

/// Bytes of the text that are looked at, at most.
const BYTES_MAX: usize = 256 << 10;

/// Lines in front of the first record that are left out, at most.
const PREAMBLE_MAX: usize = 100;

/// Delimiters, the likeliest first.
const DELIMITERS: [u8; 4] = *b",\t;|";

/// A dialect, and how the records of a text are cut by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) dialect: Dialect,
    /// Where the first record begins.
    pub(crate) start: usize,
    /// Fields of a record.
    pub(crate) width: usize,
    /// All records but the first end with a delimiter that has no field behind it.
    pub(crate) ends_with_delimiter: bool,
}

/// Tells the dialect of a text that a file begins with; `is_whole` if it is all of it.
pub(crate) fn find(text: &[u8], is_whole: bool, options: &CsvOptions, default: u8) -> Found {
    let is_whole = is_whole && text.len() <= BYTES_MAX;
    let text = &text[..text.len().min(BYTES_MAX)];
    let mut best: Option<(Score, Found)> = None;
    for dialect in candidates(text, options, default) {
        let rows = Rows::of(text, is_whole, dialect);
        let (score, found) = rows.judge(dialect, options);
        if best.as_ref().is_none_or(|(other, _)| score > *other) {
            best = Some((score, found));
        }
    }
    let dialect = Dialect::of_delimiter(options.delimiter.unwrap_or(default));
    best.map_or(Found { dialect, start: 0, width: 1, ends_with_delimiter: false }, |(_, found)| {
        found
    })
}

/// How far records speak for a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Certainty {
    /// They have other faults, or fields.
    Uneven,
    /// They have one field each.
    Single,
    /// Nearly all have as many fields as the first one.
    Nearly,
    /// All have as many fields, and more than one.
    Even,
}

/// Of the records, the part in thousandths that are nearly all.
const NEARLY_ALL: usize = 666;

/// How good a candidate is, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Score {
    certainty: Certainty,
    /// Even records, in thousandths of all lines.
    even_share: usize,
    width: usize,
    /// Fields in quotes.
    quoted: usize,
}

fn candidates(text: &[u8], options: &CsvOptions, default: u8) -> Vec<Dialect> {
    let delimiters = match options.delimiter {
        Some(delimiter) => vec![delimiter],
        None if options.no_detection => vec![default],
        None => {
            let others = DELIMITERS.into_iter().filter(|delimiter| *delimiter != default);
            std::iter::once(default).chain(others).collect()
        }
    };
    let begins_with_hash = text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'#');
    let comments = match options.comment {
        Some(comment) => vec![comment],
        None if begins_with_hash && !options.no_detection => vec![None, Some(b'#')],
        None => vec![None],
    };
    let mut found = Vec::new();
    for comment in comments {
        for delimiter in &delimiters {
            for (quote, escape) in quotes(text, *delimiter, options) {
                let comments_within = options.comment.is_some();
                let dialect =
                    Dialect { delimiter: *delimiter, quote, escape, comment, comments_within };
                if !found.contains(&dialect) {
                    found.push(dialect);
                }
            }
        }
    }
    found
}

/// Quotes and escapes that occur in a text.
fn quotes(text: &[u8], delimiter: u8, options: &CsvOptions) -> Vec<(Option<u8>, Option<u8>)> {
    let quotes = match options.quote {
        Some(quote) => vec![quote],
        None if options.no_detection => vec![Some(b'"')],
        None => {
            let mut quotes = vec![Some(b'"')];
            let opens =
                |pair: &[u8]| pair[1] == b'\'' && (pair[0] == delimiter || pair[0] == b'\n');
            if text.windows(2).any(opens) || text.first() == Some(&b'\'') {
                quotes.push(Some(b'\''));
            }
            if memchr(b'"', text).is_some() {
                quotes.push(None);
            }
            quotes
        }
    };
    let mut found = Vec::new();
    for quote in quotes {
        let Some(byte) = quote else {
            found.push((None, None));
            continue;
        };
        match options.escape {
            Some(escape) => found.push((quote, escape)),
            None => {
                found.push((quote, quote));
                if !options.no_detection && text.windows(2).any(|pair| pair == [b'\\', byte]) {
                    found.push((quote, Some(b'\\')));
                }
            }
        }
    }
    found
}

/// The lines of a text in one dialect.
struct Rows {
    /// Where each record begins, how many fields it has, and whether the last one has no characters.
    records: Vec<(usize, usize, bool)>,
    /// Records with faults.
    faults: Vec<bool>,
    quoted: usize,
    comments: usize,
}

impl Rows {
    fn of(text: &[u8], is_whole: bool, dialect: Dialect) -> Rows {
        let lexer = Lexer::new(dialect);
        let mut rows = Rows { records: Vec::new(), faults: Vec::new(), quoted: 0, comments: 0 };
        let mut fields: Vec<Field> = Vec::new();
        let mut at = 0;
        while at < text.len() && rows.records.len() < RECORDS_MAX {
            fields.clear();
            let record = lexer.record(text, at, &mut fields);
            // The last one may go on.
            if record.next == text.len() && !is_whole && !rows.records.is_empty() {
                break;
            }
            match record.kind {
                LineKind::Record => {
                    let last = fields
                        .last()
                        .is_some_and(|last| last.start() == last.end() && !last.is_quoted());
                    rows.records.push((at, fields.len(), last));
                    rows.faults.push(record.fault.is_some());
                    rows.quoted += fields.iter().filter(|field| field.is_quoted()).count();
                }
                LineKind::Comment => rows.comments += 1,
                LineKind::Blank => {}
            }
            at = record.next;
        }
        rows
    }

    fn judge(&self, dialect: Dialect, options: &CsvOptions) -> (Score, Found) {
        let records = &self.records;
        let mut width = self.usual_width();
        // Records before the first even one, if the next one is even, too, are no records.
        let is_even = |at: usize| records.get(at).is_none_or(|(_, count, _)| *count == width);
        let is_start = |at: &usize| is_even(*at) && is_even(*at + 1);
        let may_skip = !options.null_padding && options.skip.is_none() && !options.no_detection;
        let mut first = match may_skip {
            true => (0..records.len().min(PREAMBLE_MAX)).find(is_start).unwrap_or(0),
            false => 0,
        };
        if options.null_padding {
            width = records.iter().map(|(_, count, _)| *count).max().unwrap_or(1);
        }
        let mut ends_with_delimiter = false;
        if first == 1
            && records[0].1 + 1 == width
            && records[1..].iter().all(|(_, count, last)| *last && *count == width)
        {
            (first, width, ends_with_delimiter) = (0, width - 1, true);
        }
        let is_even = |(_, count, last): &(usize, usize, bool)| {
            *count == width
                || options.null_padding
                || (ends_with_delimiter && *last && *count == width + 1)
        };
        let kept = records[first.min(records.len())..]
            .iter()
            .zip(&self.faults[first.min(records.len())..]);
        let even = kept.filter(|(record, fault)| is_even(record) && !**fault).count();
        let is_nearly = records.first().is_some_and(is_even)
            && !self.faults[0]
            && even * 1_000 >= records.len() * NEARLY_ALL;
        let score = Score {
            certainty: match even == records.len() - first && even > 0 {
                true if width > 1 => Certainty::Even,
                _ if width > 1 && is_nearly => Certainty::Nearly,
                true => Certainty::Single,
                false => Certainty::Uneven,
            },
            even_share: even * 1_000 / (records.len() + self.comments / 2).max(1),
            width,
            quoted: self.quoted,
        };
        let start = records.get(first).map_or(0, |(at, ..)| *at);
        (score, Found { dialect, start, width, ends_with_delimiter })
    }

    /// The number of fields that most records have; of several such numbers, the largest.
    fn usual_width(&self) -> usize {
        let mut counts: Vec<usize> = self.records.iter().map(|(_, count, _)| *count).collect();
        counts.sort_unstable();
        let runs = counts.chunk_by(|left, right| left == right);
        runs.max_by_key(|run| (run.len(), run[0])).map_or(1, |run| run[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Found {
        find(text.as_bytes(), true, &CsvOptions::default(), b',')
    }

    fn check(text: &str, delimiter: u8, quote: Option<u8>, width: usize) -> Found {
        let found = found(text);
        assert_eq!(char::from(found.dialect.delimiter), char::from(delimiter), "{text:?}");
        assert_eq!((found.dialect.quote, found.width), (quote, width), "{text:?}");
        found
    }

    #[test]
    fn delimiters() {
        let quote = Some(b'"');
        check("a,b\n1,2\n", b',', quote, 2);
        check("a;b\n1,5;2\n3,5;4\n", b';', quote, 2);
        check("a\tb\n1\t2\n", b'\t', quote, 2);
        check("a|b|c\n1|2|3\n", b'|', quote, 3);
        check("a b\n1 2\n", b',', quote, 1);
        check("", b',', quote, 1);
        check("a,b\n1,x\n2\n3,z\n", b',', quote, 2);
        check("a,b\n\"x;y;z\",1\n\"u;v;w\",2\n", b',', quote, 2);
    }

    #[test]
    fn quotes_and_escapes() {
        check("a,b\n'x,1',2\n'y',3\n", b',', Some(b'\''), 2);
        assert_eq!(check("a,b\n\"x\\\"y\",1\n", b',', Some(b'"'), 2).dialect.escape, Some(b'\\'));
        assert_eq!(check("a,b\n\"x\"\"y\",1\n", b',', Some(b'"'), 2).dialect.escape, Some(b'"'));
        check("a,b\n5\" disk,1\n\"6 disk,2\n", b',', None, 2);
        check("a,b\nx,\"y\nz,1\"\n", b',', Some(b'"'), 2);
    }

    #[test]
    fn lines_that_are_no_records() {
        assert_eq!(check("title\n\na,b\n1,2\n3,4\n", b',', Some(b'"'), 2).start, 7);
        assert_eq!(check("# c\na,b\n1,2\n", b',', Some(b'"'), 2).dialect.comment, Some(b'#'));
        assert!(check("a,b\n1,2,\n3,4,\n", b',', Some(b'"'), 2).ends_with_delimiter);
    }
}
