//! The shell: takes pieces of SQL and dot commands from the keyboard, scripts and the command line,
//! runs them one after the other, and knows what to do when one fails.

mod actions;
mod catalog_actions;
pub mod commands;
mod init;
pub mod open;
mod report;
mod serve_actions;
mod settings_actions;
mod statement;
mod words;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use weft::Session;
use weft_server::Server;

use crate::args::{Job, ShellArgs};
use crate::editor::plain::PlainInput;
use crate::editor::seat::EditorSeat;
use crate::editor::{Input, SharedCatalog, bare_command};
use crate::error::ShellError;
use crate::interrupt::Interrupts;
use crate::output::Style;
use crate::output::target::Target;
use crate::progress;
use crate::sql::encoding::decoded;
use crate::sql::splitter::{Piece, PieceKind, Splitter};
use init::Init;
use open::{Open, OpenOptions, names_of};
use report::Report;

/// The exit code of a script that has failed.
const FAILED: u8 = 1;
/// The exit code after Ctrl-C.
const INTERRUPTED: u8 = 130;
/// Said after Ctrl-C, over the `^C` that the terminal has written.
const INTERRUPTED_WORDS: &str = "\rInterrupted";
/// How deep scripts may read each other.
const READ_DEPTH: usize = 32;
/// Rows that a table shows unless told otherwise.
const MAX_ROWS: usize = 40;

/// What the shell's own settings say.
#[derive(Clone, Debug)]
struct Settings {
    style: Style,
    /// Most characters in a line of a table; none: what the terminal has.
    max_width: Option<usize>,
    bail: bool,
    changes: bool,
    echo: bool,
    progress: bool,
    timer: bool,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Continue,
    /// Leave; without an exit code, the one that fits what has happened.
    Quit(Option<u8>),
}

/// The shell with an open database.
pub struct Shell {
    /// What serves the open database. It goes before the database.
    server: Option<Server>,
    open: Open,
    options: OpenOptions,
    catalog: Arc<SharedCatalog>,
    settings: Settings,
    target: Target,
    interrupts: Interrupts,
    /// Whether somebody sits at the keyboard.
    interactive: bool,
    /// Whether something has failed that was not typed by somebody.
    failed: bool,
    read_depth: usize,
    /// What runs before anything else.
    init: Init,
}

impl Shell {
    /// Opens the database that the command line names.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn new(args: &ShellArgs, interrupts: Interrupts) -> Result<Shell, ShellError> {
        let interactive = args.jobs.is_empty() && io::stdin().is_terminal();
        let options = OpenOptions::of(args);
        let open = Open::new(args.directory.as_deref(), &options)?;
        let colors = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let settings = Settings {
            style: Style {
                mode: args.mode,
                headers: !args.no_header,
                null: args.null_value.clone(),
                max_rows: MAX_ROWS,
                max_width: None,
                column_widths: Vec::new(),
                colors: colors && !is_dumb(),
            },
            max_width: None,
            bail: args.bail,
            changes: interactive,
            echo: args.echo,
            progress: !args.no_progress && progress::is_visible(),
            timer: false,
        };
        let catalog = Arc::new(SharedCatalog::default());
        catalog.set(names_of(&open.session));
        let target = Target::stdout(interrupts.clone());
        let (failed, read_depth) = (false, 0);
        let mut shell = Shell {
            server: None,
            open,
            options,
            catalog,
            settings,
            target,
            interrupts,
            interactive,
            failed,
            read_depth,
            init: Init::of(args),
        };
        shell.tell_created();
        Ok(shell)
    }

    /// Runs what the command line or standard input says, and returns the exit code.
    pub fn run(mut self, jobs: &[Job]) -> u8 {
        let ended = match self.run_init() {
            Ok(Flow::Continue) if self.interactive => self.run_keyboard(),
            Ok(Flow::Continue) if jobs.is_empty() => self.run_standard_input(),
            Ok(Flow::Continue) => self.run_jobs(jobs),
            other => other,
        };
        let flushed = self.target.restore().and_then(|()| Ok(self.target.flush()?));
        let code = self.exit_code(ended.and_then(|flow| flushed.map(|()| flow)));
        self.interrupts.exit_code().unwrap_or(code)
    }

    fn exit_code(&self, ended: Result<Flow, ShellError>) -> u8 {
        match ended {
            Ok(Flow::Quit(Some(code))) => code,
            Ok(_) if self.failed => FAILED,
            // Whoever has closed the output has read enough.
            Ok(_) | Err(ShellError::OutputClosed) => 0,
            Err(ShellError::Interrupted) => {
                self.say(INTERRUPTED_WORDS);
                INTERRUPTED
            }
            Err(ShellError::Reported) => FAILED,
            Err(error) => {
                self.say(explain(&error).trim_end());
                FAILED
            }
        }
    }

    fn run_jobs(&mut self, jobs: &[Job]) -> Result<Flow, ShellError> {
        for job in jobs {
            let flow = match job {
                Job::Command(text) => self.run_text(text, None)?,
                Job::File(path) if path.as_os_str() == "-" => self.run_standard_input()?,
                Job::File(path) => match self.run_file(path) {
                    Err(error @ ShellError::File { .. }) => {
                        self.failed = true;
                        self.say(explain(&error).trim_end());
                        if self.settings.bail {
                            return Err(ShellError::Reported);
                        }
                        Flow::Continue
                    }
                    flow => flow?,
                },
            };
            if flow != Flow::Continue {
                return Ok(flow);
            }
        }
        Ok(Flow::Continue)
    }

    /// Runs the script at `path`.
    fn run_file(&mut self, path: &Path) -> Result<Flow, ShellError> {
        if self.read_depth == READ_DEPTH {
            let words =
                format!("{READ_DEPTH} scripts already read each other; does one read itself?");
            return Err(ShellError::Command(words));
        }
        let bytes = fs::read(path).map_err(|source| ShellError::File {
            action: "read",
            path: path.to_owned(),
            source,
        })?;
        self.read_depth += 1;
        let ended = self.run_text(&decoded(bytes), Some(&path.display().to_string()));
        self.read_depth -= 1;
        ended
    }

    /// Runs a whole script; `source` is its name.
    fn run_text(&mut self, text: &str, source: Option<&str>) -> Result<Flow, ShellError> {
        let mut splitter = Splitter::default();
        splitter.push(text);
        self.run_script(&mut splitter, true, source)
    }

    /// Runs a script from standard input, each statement as soon as it is complete.
    fn run_standard_input(&mut self) -> Result<Flow, ShellError> {
        let mut input = PlainInput::new(&self.interrupts, false)?;
        let mut splitter = Splitter::default();
        loop {
            match input.read(splitter.is_within(), self.session().transaction_status())? {
                Input::Text(text) => splitter.push(&text),
                Input::Interrupt => return Err(ShellError::Interrupted),
                Input::End => return self.run_script(&mut splitter, true, Some("stdin")),
            }
            let flow = self.run_script(&mut splitter, false, Some("stdin"))?;
            if flow != Flow::Continue {
                return Ok(flow);
            }
        }
    }

    /// Runs the pieces of a script that are complete; `to_end`, the last one as well.
    fn run_script(
        &mut self,
        splitter: &mut Splitter,
        to_end: bool,
        source: Option<&str>,
    ) -> Result<Flow, ShellError> {
        loop {
            let piece = splitter.next_piece();
            let piece = piece.or_else(|| if to_end { splitter.last_piece() } else { None });
            let Some(piece) = piece else { return Ok(Flow::Continue) };
            if self.settings.echo {
                let end = if piece.kind == PieceKind::Statement { ";" } else { "" };
                writeln!(self.target, "{}{end}", piece.text)?;
            }
            match self.run_piece(&piece, source) {
                Ok(Flow::Continue) => {}
                Ok(quit) => return Ok(quit),
                Err(ShellError::Reported) if self.settings.bail => {
                    self.failed = true;
                    return Err(ShellError::Reported);
                }
                Err(ShellError::Reported) => self.failed = true,
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs one piece. An error is printed, unless it ends everything.
    fn run_piece(&mut self, piece: &Piece, source: Option<&str>) -> Result<Flow, ShellError> {
        if self.interrupts.is_interrupted() {
            return Err(ShellError::Interrupted);
        }
        let ran = match piece.kind {
            PieceKind::Statement => self.run_statement(&piece.text).map(|()| Flow::Continue),
            PieceKind::DotCommand => self.run_command(&piece.text),
        };
        match ran {
            Ok(flow) => Ok(flow),
            // Whoever reads the results has had enough of them.
            Err(ShellError::OutputClosed) if self.target.is_pipe_closed() => Ok(Flow::Continue),
            Err(
                end @ (ShellError::Reported | ShellError::Interrupted | ShellError::OutputClosed),
            ) => Err(end),
            Err(error) => {
                self.target.flush()?;
                let report = Report::of(&error);
                let words = match piece.kind {
                    PieceKind::Statement => report.of_statement(piece, source),
                    PieceKind::DotCommand => report.of_command(piece, source),
                };
                self.say(words.trim_end());
                Err(ShellError::Reported)
            }
        }
    }

    /// Talks with somebody at the keyboard until they leave.
    fn run_keyboard(&mut self) -> Result<Flow, ShellError> {
        self.greet();
        let mut keyboard = self.keyboard()?;
        let mut splitter = Splitter::default();
        loop {
            let status = self.session().transaction_status();
            let input = match &mut keyboard {
                Keyboard::Editor(editor) => editor.read(status, |words| self.say(words))?,
                Keyboard::Plain(plain) => plain.read(splitter.is_within(), status)?,
            };
            match input {
                Input::Text(text) => splitter.push(match bare_command(&text) {
                    Some(command) if !splitter.is_within() => command,
                    _ => &text,
                }),
                Input::Interrupt => {
                    splitter = Splitter::default();
                    self.interrupts.take();
                    if let Keyboard::Plain(_) = keyboard {
                        self.say("");
                    }
                    continue;
                }
                Input::End => return Ok(Flow::Quit(Some(0))),
            }
            self.interrupts.take();
            match self.run_script(&mut splitter, false, None) {
                Ok(Flow::Continue) => {}
                Ok(Flow::Quit(code)) => return Ok(Flow::Quit(Some(code.unwrap_or(0)))),
                Err(ShellError::Reported) => splitter.clear(),
                Err(ShellError::Interrupted) if self.interrupts.exit_code().is_none() => {
                    splitter.clear();
                    self.interrupts.take();
                    self.say(INTERRUPTED_WORDS);
                }
                Err(error) => return Err(error),
            }
            self.interrupts.take();
            self.target.flush()?;
            if !splitter.is_within() {
                splitter = Splitter::default();
            }
        }
    }

    fn keyboard(&mut self) -> Result<Keyboard, ShellError> {
        if is_dumb() || !io::stdout().is_terminal() {
            return Ok(Keyboard::Plain(PlainInput::new(&self.interrupts, true)?));
        }
        let colors = self.settings.style.colors;
        let seat = EditorSeat::new(Arc::clone(&self.catalog), &self.interrupts, colors)?;
        Ok(Keyboard::Editor(seat))
    }

    fn greet(&mut self) {
        let version = env!("CARGO_PKG_VERSION");
        let read_only = if self.open.read_only { ", read-only" } else { "" };
        self.say(&format!("Weft {version}, {}{read_only}; .help explains", self.open.name()));
        if self.open.directory.is_none() {
            self.say("Nothing is kept when you leave: weft DIRECTORY opens a database that stays.");
        }
    }

    /// Says so if the open database was made just now.
    fn tell_created(&mut self) {
        if self.open.created {
            self.say(&format!("Created the database {}", self.open.name()));
        }
    }

    /// Puts another database in place of the open one.
    fn replace(&mut self, open: Open) {
        if let Some(server) = self.server.take() {
            self.say(&format!("Weft listens on {} no more", server.address()));
        }
        self.catalog.set(names_of(&open.session));
        self.open = open;
        self.tell_created();
    }

    fn session(&self) -> &Session {
        &self.open.session
    }

    /// How wide a table may be; none: as wide as it gets.
    fn table_width(&self) -> Option<usize> {
        self.settings.max_width.or_else(|| {
            let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
            size.map(|size| usize::from(size.ws_col))
                .filter(|columns| *columns > 0 && self.target.is_terminal())
        })
    }

    /// Prints a line for people rather than for programs, to standard error.
    fn say(&self, line: &str) {
        // If nobody hears it, there is nobody to be told so.
        drop(writeln!(io::stderr(), "{line}"));
    }
}

/// An error and what to do about it, for standard error.
pub fn explain(error: &ShellError) -> String {
    Report::of(error).plain()
}

/// Where somebody types.
enum Keyboard {
    Editor(EditorSeat),
    Plain(PlainInput),
}

fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term == "dumb")
}
