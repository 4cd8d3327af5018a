//! The shell as a person meets it: the binary on a pseudo-terminal, whose screen is looked at.

mod editing;
mod interrupting;
mod looks;

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pty_process::blocking::{Command, Pty, open};
use tempfile::TempDir;
use vt100::{Callbacks, Parser, Screen};

/// How long to wait for what has to appear on the screen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answers what programs ask a terminal: where the cursor is.
#[derive(Default)]
struct Answers {
    due: Vec<u8>,
}

impl Callbacks for Answers {
    fn unhandled_csi(
        &mut self,
        screen: &mut Screen,
        first: Option<u8>,
        _: Option<u8>,
        parameters: &[&[u16]],
        last: char,
    ) {
        if last == 'n' && first.is_none() && parameters == [[6]] {
            let (row, column) = screen.cursor_position();
            self.due.extend(format!("\x1b[{};{}R", row + 1, column + 1).bytes());
        }
    }
}

/// `weft` on a terminal of its own.
struct Terminal {
    child: Child,
    pty: Arc<Pty>,
    parser: Arc<Mutex<Parser<Answers>>>,
    columns: u16,
    /// Reads what the program writes, until the terminal is given up.
    reader: Option<JoinHandle<()>>,
    given_up: Arc<AtomicBool>,
}

impl Terminal {
    /// Starts `weft` with `words` in `directory` on a terminal of 24 rows and `columns`.
    fn start(directory: &TempDir, words: &[&str], columns: u16) -> Terminal {
        Terminal::start_as("xterm-256color", directory, words, columns)
    }

    /// The same on a terminal that calls itself `kind`.
    fn start_as(kind: &str, directory: &TempDir, words: &[&str], columns: u16) -> Terminal {
        let (pty, terminal) = open().expect("a pseudo-terminal");
        pty.resize(pty_process::Size::new(24, columns)).expect("its size can be set");
        let child = Command::new(env!("CARGO_BIN_EXE_weft"))
            .args(words)
            .current_dir(directory.path())
            .env("TERM", kind)
            .env("HOME", directory.path())
            .env_remove("XDG_STATE_HOME")
            .env_remove("NO_COLOR")
            .env_remove("WEFT_LOG")
            .spawn(terminal)
            .expect("the binary starts");
        let size = |n| NonZeroU16::new(n).expect("a terminal has a size");
        let parser = Parser::new_with_callbacks(size(24), size(columns), 1000, Answers::default());
        let (pty, parser) = (Arc::new(pty), Arc::new(Mutex::new(parser)));
        let given_up = Arc::new(AtomicBool::new(false));
        let (reader, screen, enough) =
            (Arc::clone(&pty), Arc::clone(&parser), Arc::clone(&given_up));
        let reader = Some(thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails when the program has ended.
            while let Ok(read @ 1..) = (&*reader).read(&mut bytes) {
                let answer = {
                    let mut parser = screen.lock().expect("nobody panics with the screen");
                    parser.process(&bytes[..read]);
                    std::mem::take(&mut parser.callbacks_mut().due)
                };
                if (&*reader).write_all(&answer).is_err() || enough.load(Ordering::SeqCst) {
                    break;
                }
            }
        }));
        Terminal { child, pty, parser, columns, reader, given_up }
    }

    /// Presses keys.
    fn keys(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    /// Types a line and Enter.
    fn line(&self, text: &str) {
        self.keys(&format!("{text}\r"));
    }

    /// The text on the screen.
    fn screen(&self) -> String {
        let parser = self.parser.lock().expect("nobody panics with the screen");
        let rows: Vec<String> =
            parser.screen().rows(0, self.columns).map(|row| row.trim_end().to_owned()).collect();
        rows.join("\n").trim_end().to_owned()
    }

    /// Waits until the screen is as `wanted`, and returns it.
    fn wait(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let started = Instant::now();
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            assert!(started.elapsed() < PATIENCE, "{what} does not appear on:\n{screen}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until `text` is on the screen.
    fn wait_for(&self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text))
    }

    /// Waits for the prompt in the screen's last line.
    fn prompt(&self) -> String {
        self.wait("the prompt", |screen| screen.ends_with("weft>"))
    }

    /// Takes the terminal away, as closing its window does.
    fn hang_up(&mut self) {
        self.given_up.store(true, Ordering::SeqCst);
        // What the key shows on the screen wakes the reader.
        self.keys("x");
        self.reader.take().expect("it is taken once").join().expect("the reader ends");
        let (elsewhere, _) = open().expect("a pseudo-terminal");
        drop(std::mem::replace(&mut self.pty, Arc::new(elsewhere)));
    }

    /// Waits until the program has ended; its exit code.
    fn end(&mut self) -> Option<i32> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("the program can be waited for") {
                return status.code();
            }
            assert!(started.elapsed() < PATIENCE, "the program does not end:\n{}", self.screen());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn directory() -> TempDir {
    TempDir::new().expect("a temporary directory")
}
