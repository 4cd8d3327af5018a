//! The shell as scripts meet it: the binary with pipes for its input and output.

mod commands;
mod errors;
mod init;
mod killed;
mod modes;
mod options;
mod scripts;
mod serve;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A directory of one test's own, in which the shell runs.
struct Workplace {
    directory: TempDir,
}

/// What a run left behind.
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Workplace {
    fn new() -> Workplace {
        Workplace { directory: TempDir::new().expect("a temporary directory") }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).expect("the directory is writable");
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).expect("the file is there")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.args(words).current_dir(self.path()).env("HOME", self.path());
        command.env_remove("WEFT_LOG").env_remove("XDG_STATE_HOME");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs `weft` with `words` and with `input` on standard input.
    fn run_with(&self, words: &[&str], input: &str) -> Ended {
        let mut child = self.command(words).spawn().expect("the binary starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        let input = input.to_owned();
        let writer = std::thread::spawn(move || {
            // The shell may have stopped reading at an error.
            drop(stdin.write_all(input.as_bytes()));
        });
        let output = child.wait_with_output().expect("the binary ends");
        writer.join().expect("the input was written");
        let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
        let ended = Ended {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        };
        assert!(!ended.stderr.contains("panicked"), "{words:?}: {}", ended.stderr);
        ended
    }

    fn run(&self, words: &[&str]) -> Ended {
        self.run_with(words, "")
    }

    /// Runs a script that has to succeed and say nothing on standard error; its output.
    fn script(&self, input: &str) -> String {
        let ended = self.run_with(&[], input);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{input}");
        ended.stdout
    }

    /// Runs a script that has to fail; what it says on standard error.
    fn failing(&self, input: &str) -> String {
        let ended = self.run_with(&[], input);
        assert_eq!(ended.code, Some(1), "{input}: {}", ended.stderr);
        ended.stderr
    }
}

/// Reads until `wanted` bytes have come, or the end.
fn read_some(from: &mut impl Read, wanted: usize) -> Vec<u8> {
    let mut bytes = vec![0; wanted];
    let mut filled = 0;
    while filled < wanted {
        match from.read(&mut bytes[filled..]).expect("the pipe can be read") {
            0 => break,
            more => filled += more,
        }
    }
    bytes.truncate(filled);
    bytes
}
