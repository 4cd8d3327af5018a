//! Whether Enter runs what was typed, or begins another line of it.

use reedline::{ValidationResult, Validator};

use crate::sql::splitter;

/// Text is complete when every statement in it has its semicolon.
pub struct StatementValidator;

impl Validator for StatementValidator {
    fn validate(&self, text: &str) -> ValidationResult {
        if splitter::is_complete(text) || bare_command(text).is_some() {
            ValidationResult::Complete
        } else {
            ValidationResult::Incomplete
        }
    }
}

/// The dot command that a word alone stands for at the prompt: `exit`, `quit` or `help`.
pub fn bare_command(text: &str) -> Option<&'static str> {
    match text.trim().trim_end_matches(';').to_ascii_lowercase().as_str() {
        "exit" | "quit" => Some(".quit\n"),
        "help" => Some(".help\n"),
        _ => None,
    }
}
