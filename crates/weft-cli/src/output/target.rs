//! Where results go: standard output, or a file that `.output` or `.once` has named.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::path::{Path, PathBuf};

use crate::error::{OutputInterrupted, ShellError};
use crate::interrupt::Interrupts;

/// The place that results are written to.
pub struct Target {
    stdout: BufWriter<Stdout>,
    file: Option<(PathBuf, BufWriter<File>)>,
    /// Whether `file` is for the next result only.
    once: bool,
    /// Ends what is being written.
    interrupts: Interrupts,
}

impl Target {
    /// Standard output; writing fails once a signal has come.
    pub fn stdout(interrupts: Interrupts) -> Target {
        let stdout = BufWriter::with_capacity(1 << 16, io::stdout());
        Target { stdout, file: None, once: false, interrupts }
    }

    /// Writes to the file at `path` from now on, or for the next result only.
    ///
    /// # Errors
    /// If what was to be written to the file before cannot be, or this one cannot be created.
    pub fn redirect(&mut self, path: &Path, once: bool) -> Result<(), ShellError> {
        self.restore()?;
        let file = File::create(path).map_err(|source| ShellError::File {
            action: "create",
            path: path.to_owned(),
            source,
        })?;
        self.file = Some((path.to_owned(), BufWriter::new(file)));
        self.once = once;
        Ok(())
    }

    /// Writes to standard output from now on.
    ///
    /// # Errors
    /// If what was to be written to a file cannot be.
    pub fn restore(&mut self) -> Result<(), ShellError> {
        self.once = false;
        match self.file.take() {
            Some((path, mut file)) => {
                file.flush().map_err(|source| ShellError::File { action: "write", path, source })
            }
            None => Ok(()),
        }
    }

    /// Ends a result: everything is written, and a file for one result is closed.
    ///
    /// # Errors
    /// If that fails.
    pub fn end_result(&mut self) -> Result<(), ShellError> {
        if self.once { self.restore() } else { self.flush().map_err(ShellError::from) }
    }

    /// Whether results are read on a terminal.
    pub fn is_terminal(&self) -> bool {
        self.file.is_none() && io::stdout().is_terminal()
    }

    /// The name of the place.
    pub fn name(&self) -> String {
        match &self.file {
            Some((path, _)) => path.display().to_string(),
            None => "stdout".to_owned(),
        }
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.interrupts.is_interrupted() {
            return Err(io::Error::other(OutputInterrupted));
        }
        match &mut self.file {
            Some((_, file)) => file.write(bytes),
            None => self.stdout.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.file {
            Some((_, file)) => file.flush(),
            None => self.stdout.flush(),
        }
    }
}
