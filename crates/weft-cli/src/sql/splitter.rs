//! Cuts a script, which may arrive line by line, into statements and dot commands. A statement ends
//! with a semicolon outside quotes and comments; a dot command is a line that begins with a dot where
//! a statement could begin.

use super::lexer::{TokenKind, token_at};

/// What a piece of a script is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceKind {
    /// SQL, without its semicolon.
    Statement,
    /// A line for the shell itself, with its dot.
    DotCommand,
}

/// One thing to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// What it is.
    pub kind: PieceKind,
    /// Its text, from its first token on.
    pub text: String,
    /// The line of the script that it begins on, from 1.
    pub line: usize,
    /// The character of that line that it begins with, from 1.
    pub column: usize,
}

/// A script on its way in.
#[derive(Debug, Default)]
pub struct Splitter {
    /// What has arrived; everything before `start` belongs to finished pieces.
    text: String,
    /// Where the piece in the making begins, or where to look for it.
    start: usize,
    /// Lines before `start`.
    lines_before: usize,
    /// Characters before `start` in its line.
    columns_before: usize,
    /// From `start` to here there are only closed tokens, no semicolon among them.
    scanned: usize,
    /// Whether a token with meaning lies within.
    begun: bool,
    /// The first byte of the mark that closes the token at `scanned`, while it is open.
    awaited: Option<u8>,
}

impl Splitter {
    /// Adds text; whole lines, except for the script's last.
    pub fn push(&mut self, text: &str) {
        if self.awaited.is_some_and(|mark| text.as_bytes().contains(&mark)) {
            self.awaited = None;
        }
        if self.start > self.text.len() / 2 {
            self.text.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
        // Some editors begin files with a mark of their encoding.
        let is_start = self.text.is_empty() && self.lines_before == 0 && self.columns_before == 0;
        let text = text.strip_prefix('\u{feff}').filter(|_| is_start).unwrap_or(text);
        self.text.push_str(text);
    }

    /// The next finished piece; none if more text is needed.
    pub fn next_piece(&mut self) -> Option<Piece> {
        while self.awaited.is_none() {
            let token = token_at(&self.text, self.scanned)?;
            let first = self.text.as_bytes()[token.start];
            if !self.begun && first == b'.' && self.opens_line(token.start) {
                self.go_to(token.start);
                let end = self.text[token.start..].find('\n').map(|at| token.start + at);
                let end = end.unwrap_or(self.text.len());
                return Some(self.take(PieceKind::DotCommand, end, end));
            }
            if token.kind == TokenKind::Semicolon {
                if self.begun {
                    return Some(self.take(PieceKind::Statement, token.start, token.end));
                }
                self.go_to(token.end);
                continue;
            }
            if token.has_meaning() && !self.begun {
                self.go_to(token.start);
                self.begun = true;
            }
            if !token.closed {
                self.awaited = Some(closing_mark(first));
                return None;
            }
            self.scanned = token.end;
        }
        None
    }

    /// The statement that the script's end has left without a semicolon.
    pub fn last_piece(&mut self) -> Option<Piece> {
        let end = self.text.len();
        let piece = self.begun.then(|| self.take(PieceKind::Statement, end, end));
        self.clear();
        piece
    }

    /// Whether a statement or a comment has begun that has not ended.
    pub fn is_within(&self) -> bool {
        self.begun || self.awaited.is_some()
    }

    /// Forgets what has begun, as Ctrl-C does.
    pub fn clear(&mut self) {
        self.go_to(self.text.len());
        self.awaited = None;
    }

    /// Whether only white space lies before byte `at` in its line.
    fn opens_line(&self, at: usize) -> bool {
        let line = self.text[self.start..at].rfind('\n');
        let line_start = line.map_or(self.start, |newline| self.start + newline + 1);
        let from_its_start = line.is_some() || self.columns_before == 0;
        from_its_start && self.text[line_start..at].chars().all(char::is_whitespace)
    }

    /// The piece that begins at `start` and ends at `end`; goes on at `next`.
    fn take(&mut self, kind: PieceKind, end: usize, next: usize) -> Piece {
        let text = self.text[self.start..end].trim_end().to_owned();
        let (line, column) = (self.lines_before + 1, self.columns_before + 1);
        self.go_to(next);
        Piece { kind, text, line, column }
    }

    /// Begins anew at byte `position`.
    fn go_to(&mut self, position: usize) {
        let passed = &self.text[self.start..position];
        self.lines_before += passed.matches('\n').count();
        match passed.rfind('\n') {
            Some(newline) => self.columns_before = passed[newline + 1..].chars().count(),
            None => self.columns_before += passed.chars().count(),
        }
        self.start = position;
        self.scanned = position;
        self.begun = false;
    }
}

/// The first byte of the mark that closes a token that begins with `first` and is not closed.
fn closing_mark(first: u8) -> u8 {
    match first {
        b'/' => b'*',
        b'e' | b'E' => b'\'',
        mark => mark,
    }
}

/// Whether `text` typed at the prompt is complete: nothing in it waits for a semicolon.
pub fn is_complete(text: &str) -> bool {
    let mut splitter = Splitter::default();
    splitter.push(text);
    while splitter.next_piece().is_some() {}
    !splitter.is_within()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(splitter: &mut Splitter) -> Vec<(String, usize, usize)> {
        std::iter::from_fn(|| splitter.next_piece())
            .map(|piece| (piece.text, piece.line, piece.column))
            .collect()
    }

    /// `script` in pieces, at once, line by line and character by character.
    fn check(script: &str, expected: &[(&str, usize, usize)]) {
        let lines = script.split_inclusive('\n').map(str::to_owned).collect();
        for parts in [vec![script.to_owned()], lines] {
            let mut splitter = Splitter::default();
            let mut found = Vec::new();
            for part in parts {
                splitter.push(&part);
                found.extend(pieces(&mut splitter));
            }
            let last = splitter.last_piece().map(|piece| (piece.text, piece.line, piece.column));
            found.extend(last);
            let found: Vec<_> = found.iter().map(|(text, l, c)| (text.as_str(), *l, *c)).collect();
            assert_eq!(found, expected, "{script}");
        }
    }

    #[test]
    fn statements() {
        check("SELECT 1;SELECT 2", &[("SELECT 1", 1, 1), ("SELECT 2", 1, 10)]);
        check("\n  a\n b;\n;; c ;", &[("a\n b", 2, 3), ("c", 4, 4)]);
        check("a ';' \";\" -- ;\n/* ; */ b;", &[("a ';' \";\" -- ;\n/* ; */ b", 1, 1)]);
        check("a 'x\ny\n;z' b; c;", &[("a 'x\ny\n;z' b", 1, 1), ("c", 3, 8)]);
        check("é; 'ü' x;", &[("é", 1, 1), ("'ü' x", 1, 4)]);
        check("'open\nfor ever;", &[("'open\nfor ever;", 1, 1)]);
        check("  -- only a comment", &[]);
        check("\u{feff}a; b", &[("a", 1, 1), ("b", 1, 4)]);
        check("/* only\n a ; comment", &[]);
        check("$$ a;\n b$$;", &[("$$ a;\n b$$", 1, 1)]);
    }

    #[test]
    fn dot_commands() {
        check(".a 'b;c'\n d;", &[(".a 'b;c'", 1, 1), ("d", 2, 2)]);
        check("-- x\n  .a\n/* y */\n.b", &[(".a", 2, 3), (".b", 4, 1)]);
        check("a\n.b;", &[("a\n.b", 1, 1)]);
        check("a; .5;", &[("a", 1, 1), (".5", 1, 4)]);
    }

    #[test]
    fn completeness() {
        for text in ["", "  ", "a;", "a; -- b", ".tables", "a; /* b */ ", "-- a"] {
            assert!(is_complete(text), "{text}");
        }
        for text in ["a", "a; b", "a ';", "a; /* b", "'", "a -- ;"] {
            assert!(!is_complete(text), "{text}");
        }
    }
}
