//! What can be wrong with a file.

use std::path::{Path, PathBuf};

use weft_remote::RemoteError;

/// Result of this crate.
pub type Result<T, E = FilesError> = std::result::Result<T, E>;

/// Longest value that a message repeats, in characters.
const SHOWN_MAX: usize = 60;

/// Why a file cannot be read. Messages name the file, and the line and column where there are some.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The operating system, or a decompressor, refused.
    #[error("cannot read '{}': {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What it said.
        error: std::io::Error,
    },
    /// The file's content is not what it should be.
    #[error("{}", place(path, *line, column.as_deref(), problem))]
    Data {
        /// The file.
        path: PathBuf,
        /// The line, from 1 on.
        line: Option<u64>,
        /// The column's name.
        column: Option<String>,
        /// What is wrong there.
        problem: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A value does not fit the type that a sample of the file suggested: reading the file again, with types that
    /// all of it was looked at for, will do.
    #[error("{}", place(path, Some(*line), column.as_deref(), problem))]
    Misfit {
        /// The file.
        path: PathBuf,
        /// The line, from 1 on.
        line: u64,
        /// The column's name; `None` if the text is another one than the sample suggested.
        column: Option<String>,
        /// What is wrong there.
        problem: String,
    },
    /// An option cannot have its value, or does not go together with the file.
    #[error("{message}")]
    Option {
        /// What is wrong.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
}

impl FilesError {
    /// Something is wrong in a file.
    pub fn data(path: &Path, line: Option<u64>, problem: impl Into<String>) -> FilesError {
        let (path, problem) = (path.to_owned(), problem.into());
        FilesError::Data { path, line, column: None, problem, hint: None }
    }

    /// An option that cannot be.
    pub fn option(message: impl Into<String>) -> FilesError {
        FilesError::Option { message: message.into(), hint: None }
    }

    /// A file that cannot be read.
    pub fn read(path: &Path, error: std::io::Error) -> FilesError {
        FilesError::Read { path: path.to_owned(), error }
    }

    /// The same with advice.
    #[must_use]
    pub fn with_hint(mut self, advice: impl Into<String>) -> FilesError {
        if let FilesError::Data { hint, .. } | FilesError::Option { hint, .. } = &mut self {
            *hint = Some(advice.into());
        }
        self
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            FilesError::Data { hint, .. } | FilesError::Option { hint, .. } => hint.as_deref(),
            FilesError::Misfit { column: Some(_), .. } => Some(
                "its type was told from a sample of the file: look at all of it with sample_size = -1, or name the \
                 type, as in read_csv('file', types = {'column': 'VARCHAR'}) or read_json('file', columns = {…})",
            ),
            FilesError::Misfit { column: None, .. } => None,
            FilesError::Read { error, .. } => RemoteError::within(error)?.hint(),
        }
    }
}

fn place(path: &Path, line: Option<u64>, column: Option<&str>, problem: &str) -> String {
    let mut text = format!("'{}'", path.display());
    if let Some(line) = line {
        text.push_str(&format!(", line {line}"));
    }
    if let Some(column) = column {
        text.push_str(&format!(", column {column}"));
    }
    // "line 3 has 2 values" reads as a sentence.
    match problem.starts_with("has ") {
        true => format!("{text} {problem}"),
        false => format!("{text}: {problem}"),
    }
}

/// A value as a message repeats it.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
