//! Errors as people read them: what happened, where in the script, and what to do.

use std::fmt::Write as _;

use crate::error::ShellError;
use crate::output::text;
use crate::sql::splitter::Piece;

/// Characters of a line of SQL that are shown around an error.
const EXCERPT: usize = 76;

/// What is known about an error.
pub struct Report<'a> {
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub hint: Option<&'a str>,
    /// Where in the statement: line and character, from 1.
    pub position: Option<(usize, usize)>,
}

impl<'a> Report<'a> {
    /// What is known about `error`.
    pub fn of(error: &'a ShellError) -> Report<'a> {
        match error {
            ShellError::Database(error) => Report {
                message: error.message().to_owned(),
                hint: error.hint(),
                position: error.position().and_then(|position| {
                    Some((position.line.try_into().ok()?, position.column.try_into().ok()?))
                }),
            },
            other => Report { message: other.to_string(), hint: None, position: None },
        }
    }

    /// The error of the dot command `piece` of the script called `source`, if it has a name.
    pub fn of_command(&self, piece: &Piece, source: Option<&str>) -> String {
        let mut text = format!("Error: {}\n", self.message);
        if let Some(source) = source {
            text.push_str(&format!("  at {source}:{}:{}\n", piece.line, piece.column));
        }
        self.end(text)
    }

    /// The error of the statement `piece` of the script called `source`, if it has a name.
    pub fn of_statement(&self, piece: &Piece, source: Option<&str>) -> String {
        let mut text = format!("Error: {}\n", self.message);
        let written = self.place(&mut text, piece, source);
        debug_assert!(written.is_ok(), "writing to a string never fails");
        self.end(text)
    }

    /// The error without a place.
    pub fn plain(&self) -> String {
        self.end(format!("Error: {}\n", self.message))
    }

    fn end(&self, mut text: String) -> String {
        if let Some(hint) = self.hint {
            text.push_str(&format!("  Hint: {hint}\n"));
        }
        text
    }

    fn place(&self, text: &mut String, piece: &Piece, source: Option<&str>) -> std::fmt::Result {
        let Some((line, column)) = self.position else {
            if let Some(source) = source {
                writeln!(text, "  at {source}:{}:{}", piece.line, piece.column)?;
            }
            return Ok(());
        };
        let line_of_script = piece.line + line - 1;
        let column_of_script = if line == 1 { piece.column + column - 1 } else { column };
        match source {
            Some(source) => writeln!(text, "  at {source}:{line_of_script}:{column_of_script}")?,
            None => writeln!(text, "  at line {line_of_script}, column {column_of_script}")?,
        }
        if let Some(content) = piece.text.lines().nth(line - 1) {
            let (excerpt, caret) = excerpt(content, column - 1);
            writeln!(text, "    {excerpt}\n    {:caret$}^", "")?;
        }
        Ok(())
    }
}

/// The part of `line` around its character `at`, and the terminal's columns before that.
fn excerpt(line: &str, at: usize) -> (String, usize) {
    let characters: Vec<char> = line.chars().map(|c| if c == '\t' { ' ' } else { c }).collect();
    let at = at.min(characters.len());
    let first = if characters.len() <= EXCERPT { 0 } else { at.saturating_sub(EXCERPT / 2) };
    let last = characters.len().min(first + EXCERPT);
    let cut = |from: usize, to: usize| {
        text::one_line(&characters[from..to].iter().collect::<String>()).into_owned()
    };
    let before = format!("{}{}", if first > 0 { "…" } else { "" }, cut(first, at));
    let after = format!("{}{}", cut(at, last), if last < characters.len() { "…" } else { "" });
    (format!("{before}{after}"), text::width(&before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::splitter::PieceKind;

    fn check(sql: &str, position: Option<(usize, usize)>, source: Option<&str>, expected: &str) {
        let report = Report { message: "no".to_owned(), hint: Some("yes"), position };
        let kind = PieceKind::Statement;
        let piece = Piece { kind, text: sql.to_owned(), line: 7, column: 3 };
        assert_eq!(report.of_statement(&piece, source), expected);
    }

    #[test]
    fn the_caret_points_at_the_place() {
        check(
            "SELECT 日本, x",
            Some((1, 12)),
            None,
            "Error: no\n  at line 7, column 14\n    SELECT 日本, x\n                 ^\n  Hint: yes\n",
        );
        check(
            "a\n\tb c",
            Some((2, 4)),
            Some("s.sql"),
            "Error: no\n  at s.sql:8:4\n     b c\n       ^\n  Hint: yes\n",
        );
        check(
            "a",
            Some((1, 2)),
            None,
            "Error: no\n  at line 7, column 4\n    a\n     ^\n  Hint: yes\n",
        );
        check("a", None, Some("s.sql"), "Error: no\n  at s.sql:7:3\n  Hint: yes\n");
        check("a", Some((9, 9)), None, "Error: no\n  at line 15, column 9\n  Hint: yes\n");
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let line = format!("{}X{}", "a".repeat(200), "b".repeat(200));
        let (excerpt, caret) = excerpt(&line, 200);
        assert_eq!(excerpt.chars().nth(caret), Some('X'));
        assert!(excerpt.starts_with('…') && excerpt.ends_with('…'));
        assert!(excerpt.chars().count() <= EXCERPT + 2);
    }
}
