//! What can go wrong in the shell.

use std::io;
use std::path::PathBuf;

/// Why the shell did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum ShellError {
    /// The database refused a statement.
    #[error(transparent)]
    Database(#[from] weft::Error),
    /// A value that cannot be shown.
    #[error("a value cannot be shown: {0}; cast it to another type")]
    Value(#[from] arrow::error::ArrowError),
    /// A file could not be used.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    File {
        /// What was to be done with it.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Nobody reads the output any more.
    #[error("the output was closed")]
    OutputClosed,
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Output(io::Error),
    /// The input could not be read.
    #[error("cannot read the input: {0}")]
    Input(io::Error),
    /// The server did not start.
    #[error(transparent)]
    Server(#[from] weft_server::ServerError),
    /// The operating system refused to tell of signals.
    #[error("cannot listen for signals: {0}")]
    Signals(io::Error),
    /// A dot command that cannot be.
    #[error("{0}")]
    Command(String),
    /// A script within a script failed, and has said why.
    #[error("the script has failed")]
    Reported,
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

/// A signal came while something was written.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("interrupted")]
pub struct OutputInterrupted;

impl From<io::Error> for ShellError {
    fn from(error: io::Error) -> ShellError {
        let interrupted = error.get_ref().is_some_and(|inner| inner.is::<OutputInterrupted>());
        match error.kind() {
            io::ErrorKind::BrokenPipe => ShellError::OutputClosed,
            _ if interrupted => ShellError::Interrupted,
            _ => ShellError::Output(error),
        }
    }
}
