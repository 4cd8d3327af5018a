//! Where results go: standard output, or a file or a command that `.output` or `.once` has named.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::error::{OutputInterrupted, ShellError};
use crate::interrupt::Interrupts;

/// The place that results are written to.
pub struct Target {
    stdout: BufWriter<Stdout>,
    elsewhere: Option<Elsewhere>,
    /// Whether `elsewhere` is for the next result only.
    once: bool,
    /// Ends what is being written.
    interrupts: Interrupts,
}

/// A place other than standard output.
enum Elsewhere {
    File { path: PathBuf, file: BufWriter<File> },
    Pipe { line: String, child: Child, input: BufWriter<ChildStdin>, closed: bool },
}

impl Target {
    /// Standard output; writing fails once a signal has come.
    pub fn stdout(interrupts: Interrupts) -> Target {
        let stdout = BufWriter::with_capacity(1 << 16, io::stdout());
        Target { stdout, elsewhere: None, once: false, interrupts }
    }

    /// Writes from now on, or the next result only, to the file at `place`, or to the command after its
    /// `|`.
    ///
    /// # Errors
    /// If what was to be written to another place before cannot be, the file cannot be created, or no
    /// command can be started.
    pub fn redirect(&mut self, place: &str, once: bool) -> Result<(), ShellError> {
        self.restore()?;
        self.stdout.flush()?;
        self.elsewhere = Some(match place.trim_start().strip_prefix('|') {
            Some(line) => start(line.trim())?,
            None => create(Path::new(place))?,
        });
        self.once = once;
        Ok(())
    }

    /// Writes to standard output from now on; a command is waited for.
    ///
    /// # Errors
    /// If what was to be written to another place cannot be, or the command fails.
    pub fn restore(&mut self) -> Result<(), ShellError> {
        self.once = false;
        match self.elsewhere.take() {
            None => Ok(()),
            Some(Elsewhere::File { path, mut file }) => {
                file.flush().map_err(|source| ShellError::File { action: "write", path, source })
            }
            Some(Elsewhere::Pipe { line, mut child, mut input, closed }) => {
                let flushed = if closed { Ok(()) } else { input.flush() };
                // The command reads until this is closed; what it did not want is not written.
                drop(input.into_parts());
                let status = child.wait();
                // Ctrl-C went to the command as well.
                self.interrupts.take();
                let cannot = |source| ShellError::File {
                    action: "write to",
                    path: PathBuf::from(format!("|{line}")),
                    source,
                };
                let status = status.map_err(cannot)?;
                match flushed {
                    Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(cannot(error)),
                    _ if status.success() => Ok(()),
                    _ => Err(ShellError::Command(format!("'{line}' ended with {status}"))),
                }
            }
        }
    }

    /// Ends a result: everything is written, and what is for one result is closed.
    ///
    /// # Errors
    /// If that fails.
    pub fn end_result(&mut self) -> Result<(), ShellError> {
        if self.once { self.restore() } else { self.flush().map_err(ShellError::from) }
    }

    /// Whether results are read on a terminal.
    pub fn is_terminal(&self) -> bool {
        self.elsewhere.is_none() && io::stdout().is_terminal()
    }

    /// Whether a command that results go to has read enough of them.
    pub fn is_pipe_closed(&self) -> bool {
        matches!(self.elsewhere, Some(Elsewhere::Pipe { closed: true, .. }))
    }

    /// The name of the place.
    pub fn name(&self) -> String {
        match &self.elsewhere {
            Some(Elsewhere::File { path, .. }) => path.display().to_string(),
            Some(Elsewhere::Pipe { line, .. }) => format!("|{line}"),
            None => "stdout".to_owned(),
        }
    }
}

fn create(path: &Path) -> Result<Elsewhere, ShellError> {
    let path = path.to_owned();
    match File::create(&path) {
        Ok(file) => Ok(Elsewhere::File { path, file: BufWriter::new(file) }),
        Err(source) => Err(ShellError::File { action: "create", path, source }),
    }
}

fn start(line: &str) -> Result<Elsewhere, ShellError> {
    if line.is_empty() {
        return Err(ShellError::Command("write a command after |".to_owned()));
    }
    let cannot = |source| ShellError::File { action: "run", path: "sh".into(), source };
    let mut child =
        Command::new("sh").arg("-c").arg(line).stdin(Stdio::piped()).spawn().map_err(cannot)?;
    let missing = || cannot(io::Error::other("it has no standard input"));
    let input = BufWriter::new(child.stdin.take().ok_or_else(missing)?);
    Ok(Elsewhere::Pipe { line: line.to_owned(), child, input, closed: false })
}

impl Elsewhere {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Elsewhere::File { file, .. } => file.write(bytes),
            Elsewhere::Pipe { input, closed, .. } => {
                noticed(closed, |input| input.write(bytes), input)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Elsewhere::File { file, .. } => file.flush(),
            Elsewhere::Pipe { input, closed, .. } => noticed(closed, Write::flush, input),
        }
    }
}

/// Does something with a command's input, and notices if the command does not read it any more.
fn noticed<T>(
    closed: &mut bool,
    action: impl FnOnce(&mut BufWriter<ChildStdin>) -> io::Result<T>,
    input: &mut BufWriter<ChildStdin>,
) -> io::Result<T> {
    if *closed {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    let result = action(input);
    *closed = matches!(&result, Err(error) if error.kind() == io::ErrorKind::BrokenPipe);
    result
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.interrupts.is_interrupted() {
            return Err(io::Error::other(OutputInterrupted));
        }
        match &mut self.elsewhere {
            Some(elsewhere) => elsewhere.write(bytes),
            None => self.stdout.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.elsewhere {
            Some(elsewhere) => elsewhere.flush(),
            None => self.stdout.flush(),
        }
    }
}
