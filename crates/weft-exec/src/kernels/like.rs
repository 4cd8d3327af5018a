//! LIKE: patterns prepared once, matched against many strings.
//!
//! A pattern is cut at its `%`s into pieces. The piece before the first one stands at the beginning of a text, the one
//! after the last one at its end, and those between are looked for one after the other, each as far to the left as
//! possible: a piece matches a fixed number of characters, so that no later place could leave more for the rest. Pieces
//! without `_` are found by SIMD ([`memchr::memmem`]).

use memchr::memmem::Finder;

use crate::lane::Bool;
use crate::program::Register;
use crate::registers::Registers;
use crate::text::Str;

/// A prepared pattern.
#[derive(Clone, Debug)]
pub struct Pattern(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// Without any wildcard.
    Exact(Vec<u8>),
    /// text%
    Prefix(Prefix),
    /// %text
    Suffix(Vec<u8>),
    /// %text%, and % alone.
    Contains(Box<Finder<'static>>),
    /// Without %.
    Whole(Piece),
    /// Anything with %.
    Pieces { first: Piece, middle: Vec<Piece>, last: Piece },
}

/// A prefix, and its first four bytes as views have them.
#[derive(Clone, Debug)]
struct Prefix {
    bytes: Vec<u8>,
    head: u32,
    mask: u32,
}

/// What stands between two `%`s.
type Piece = Vec<Token>;

#[derive(Clone, Debug)]
enum Token {
    /// These bytes.
    Text(Box<Finder<'static>>),
    /// So many characters, whatever they are.
    Any(usize),
}

impl Pattern {
    /// Prepares `pattern`: `%` stands for any number of characters, `_` for one, and the character after `escape` for
    /// itself. An escape character at the end stands for itself.
    pub fn new(pattern: &str, escape: Option<char>) -> Pattern {
        let mut pieces = pieces(pattern, escape);
        let last = pieces.pop().expect("a piece at least");
        let is_text = |piece: &Piece| matches!(&piece[..], [] | [Token::Text(_)]);
        let text = |piece: &Piece| match &piece[..] {
            [Token::Text(finder)] => finder.needle().to_vec(),
            _ => Vec::new(),
        };
        if pieces.is_empty() {
            return Pattern(if is_text(&last) {
                Kind::Exact(text(&last))
            } else {
                Kind::Whole(last)
            });
        }
        let first = pieces.remove(0);
        pieces.retain(|piece| !piece.is_empty());
        let all_text = is_text(&first) && is_text(&last) && pieces.iter().all(is_text);
        Pattern(match (&first[..], &pieces[..], &last[..]) {
            ([_], [], []) if all_text => Kind::Prefix(Prefix::new(text(&first))),
            ([], [], [_]) if all_text => Kind::Suffix(text(&last)),
            ([], [piece], []) if all_text => Kind::Contains(finder(&text(piece))),
            ([], [], []) => Kind::Contains(finder(b"")),
            _ => Kind::Pieces { first, middle: pieces, last },
        })
    }

    /// True if `text`, in UTF-8, matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        match &self.0 {
            Kind::Exact(bytes) => text == bytes,
            Kind::Prefix(prefix) => text.starts_with(&prefix.bytes),
            Kind::Suffix(bytes) => text.ends_with(bytes),
            Kind::Contains(finder) => finder.find(text).is_some(),
            Kind::Whole(piece) => match_at(piece, text, 0) == Some(text.len()),
            Kind::Pieces { first, middle, last } => {
                let mut at = match_at(first, text, 0);
                for piece in middle {
                    at = at.and_then(|at| find(piece, text, at));
                }
                at.is_some_and(|at| ends_with(last, text, at))
            }
        }
    }
}

impl Prefix {
    fn new(bytes: Vec<u8>) -> Prefix {
        let mut first = [[0u8; 4]; 2];
        for (at, byte) in bytes.iter().take(4).enumerate() {
            (first[0][at], first[1][at]) = (*byte, u8::MAX);
        }
        let [head, mask] = first.map(u32::from_le_bytes);
        Prefix { bytes, head, mask }
    }

    /// True if `text` begins with it.
    ///
    /// # Safety
    /// The text must be alive.
    #[inline(always)]
    unsafe fn begins(&self, text: &Str) -> bool {
        let is_like = ((text.head() >> 32) as u32 & self.mask == self.head)
            & (text.len() >= self.bytes.len());
        // SAFETY: as the caller promises.
        is_like
            && (self.bytes.len() <= 4 || unsafe { text.bytes() }[4..].starts_with(&self.bytes[4..]))
    }
}

fn finder(text: &[u8]) -> Box<Finder<'static>> {
    Box::new(Finder::new(text).into_owned())
}

/// The pieces between the `%`s of a pattern: one more than those.
fn pieces(pattern: &str, escape: Option<char>) -> Vec<Piece> {
    let mut pieces = vec![Piece::new()];
    let mut text = String::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        let piece = pieces.last_mut().expect("a piece at least");
        if Some(character) == escape {
            text.push(characters.next().unwrap_or(character));
        } else if character == '%' {
            end_text(&mut text, piece);
            pieces.push(Piece::new());
        } else if character == '_' {
            end_text(&mut text, piece);
            match piece.last_mut() {
                Some(Token::Any(count)) => *count += 1,
                _ => piece.push(Token::Any(1)),
            }
        } else {
            text.push(character);
        }
    }
    end_text(&mut text, pieces.last_mut().expect("a piece at least"));
    pieces
}

fn end_text(text: &mut String, piece: &mut Piece) {
    if !text.is_empty() {
        piece.push(Token::Text(finder(text.as_bytes())));
        text.clear();
    }
}

/// The place after `count` characters from `at` on, if there are so many.
fn skip(text: &[u8], mut at: usize, count: usize) -> Option<usize> {
    for _ in 0..count {
        if at == text.len() {
            return None;
        }
        at += 1;
        while at < text.len() && is_continuation(text[at]) {
            at += 1;
        }
    }
    Some(at)
}

/// True for all bytes of a character but its first.
fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// Where the piece ends if it stands at `at`.
fn match_at(piece: &[Token], text: &[u8], mut at: usize) -> Option<usize> {
    for token in piece {
        at = match token {
            Token::Text(finder) if text[at..].starts_with(finder.needle()) => {
                at + finder.needle().len()
            }
            Token::Text(_) => return None,
            Token::Any(count) => skip(text, at, *count)?,
        };
    }
    Some(at)
}

/// Where the piece ends if it is looked for from `at` on.
fn find(piece: &[Token], text: &[u8], mut at: usize) -> Option<usize> {
    match piece {
        [] => Some(at),
        [Token::Any(count), rest @ ..] => find(rest, text, skip(text, at, *count)?),
        [Token::Text(finder), rest @ ..] => loop {
            at += finder.find(&text[at..])?;
            if let Some(end) = match_at(rest, text, at + finder.needle().len()) {
                return Some(end);
            }
            at += 1;
        },
    }
}

/// True if the piece stands at the end of what is left from `at` on.
fn ends_with(piece: &[Token], text: &[u8], at: usize) -> bool {
    match piece {
        [] => true,
        [Token::Text(finder)] => text[at..].ends_with(finder.needle()),
        piece => {
            let mut start = text.len();
            for _ in 0..characters(piece) {
                if start == at {
                    return false;
                }
                start -= 1;
                while start > at && is_continuation(text[start]) {
                    start -= 1;
                }
            }
            match_at(piece, text, start) == Some(text.len())
        }
    }
}

fn characters(piece: &[Token]) -> usize {
    let of = |token: &Token| match token {
        Token::Text(finder) => {
            finder.needle().iter().filter(|byte| !is_continuation(**byte)).count()
        }
        Token::Any(count) => *count,
    };
    piece.iter().map(of).sum()
}

/// `out = a LIKE pattern`, or NOT LIKE.
pub(crate) fn run(
    registers: &mut Registers,
    a: Register,
    pattern: &Pattern,
    negated: bool,
    out: Register,
) {
    let truth = |matches: bool| Bool::from(matches != negated);
    registers.write(out, |registers, out| {
        let vector = registers.vector(a);
        out.validity.copy_from(&vector.validity);
        let (strings, values) = (vector.values::<Str>(), out.values_mut::<Bool>());
        // A loop for each kind, so that what is the same for all rows is decided before.
        match &pattern.0 {
            Kind::Prefix(prefix) => registers.for_each_valid(a, |row| {
                // SAFETY: the string is selected and not null, so that it is alive.
                values[row] = truth(unsafe { prefix.begins(&strings[row]) });
            }),
            Kind::Contains(finder) => registers.for_each_valid(a, |row| {
                // SAFETY: as above.
                let text = unsafe { strings[row].bytes() };
                values[row] = truth(finder.find(text).is_some());
            }),
            _ => registers.for_each_valid(a, |row| {
                // SAFETY: as above.
                values[row] = truth(pattern.matches(unsafe { strings[row].bytes() }));
            }),
        }
    });
}
