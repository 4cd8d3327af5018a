//! What somebody types at the prompt, line by line.

pub mod plain;
mod prompt;

/// What came from the keyboard or from a pipe.
pub enum Input {
    /// Whole lines.
    Text(String),
    /// Ctrl-C: what was typed is to be forgotten.
    Interrupt,
    /// Ctrl-D, or the end of a pipe.
    End,
}

/// The dot command that a word alone stands for at the prompt: `exit`, `quit` or `help`.
pub fn bare_command(text: &str) -> Option<&'static str> {
    match text.trim().trim_end_matches(';').to_ascii_lowercase().as_str() {
        "exit" | "quit" => Some(".quit\n"),
        "help" => Some(".help\n"),
        _ => None,
    }
}
