//! Errors as PostgreSQL's clients expect them: SQLSTATE, message, hint and position.

use pgwire::error::{ErrorInfo, PgWireError};
use weft::{Error, Position};

/// An error of the database about a statement that begins at `start` of the client's text.
pub(crate) fn from_weft(error: &Error, script: &str, start: Option<Position>) -> PgWireError {
    let mut info = info(error.sqlstate(), error.message());
    info.hint = error.hint().map(str::to_owned);
    let start = start.unwrap_or(Position { line: 1, column: 1 });
    info.position = error.position().map(|position| {
        let column = match position.line {
            1 => start.column + position.column - 1,
            _ => position.column,
        };
        let position = Position { line: start.line + position.line - 1, column };
        character(script, position).to_string()
    });
    PgWireError::UserError(Box::new(info))
}

/// An error of the server itself.
pub(crate) fn error(sqlstate: &str, message: impl Into<String>) -> PgWireError {
    PgWireError::UserError(Box::new(info(sqlstate, message)))
}

/// As [`error`], with advice.
pub(crate) fn error_with_hint(
    sqlstate: &str,
    message: impl Into<String>,
    hint: impl Into<String>,
) -> PgWireError {
    let mut info = info(sqlstate, message);
    info.hint = Some(hint.into());
    PgWireError::UserError(Box::new(info))
}

fn info(sqlstate: &str, message: impl Into<String>) -> ErrorInfo {
    let mut info = ErrorInfo::new("ERROR".to_owned(), sqlstate.to_owned(), message.into());
    info.severity_nonlocalized = Some("ERROR".to_owned());
    info
}

/// The number of a character in a text, from 1 on.
fn character(text: &str, position: Position) -> usize {
    let lines = usize::try_from(position.line).unwrap_or(usize::MAX).saturating_sub(1);
    let before: usize =
        text.split_inclusive('\n').take(lines).map(|line| line.chars().count()).sum();
    before + usize::try_from(position.column).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_over_lines() {
        let text = "SELECT 'ä',\n  x FROM t";
        assert_eq!(character(text, Position { line: 1, column: 8 }), 8);
        assert_eq!(character(text, Position { line: 2, column: 3 }), 15);
    }
}
