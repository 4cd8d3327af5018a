//! `weft-bench` as a user meets it: the binary with small data in a directory of the test's own.

mod data_files;
mod experiments;
mod options;
mod report;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A directory for the data of one test.
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

    /// The binary with the words of `line`, to be run in the directory.
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft-bench"));
        command.args(line.split_whitespace()).current_dir(self.path());
        command.env_remove("WEFT_LOG");
        command
    }

    fn run(&self, line: &str) -> Ended {
        let Output { status, stdout, stderr } =
            self.command(line).output().expect("the binary starts");
        let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
        let ended = Ended { code: status.code(), stdout: text(stdout), stderr: text(stderr) };
        assert!(!ended.stderr.contains("panicked"), "{line}: {}", ended.stderr);
        ended
    }

    /// Runs what has to succeed; its standard output.
    fn succeed(&self, line: &str) -> String {
        let ended = self.run(line);
        assert_eq!(ended.code, Some(0), "{line}: {}", ended.stderr);
        ended.stdout
    }

    /// Runs what has to succeed with `--json`; its points.
    fn points(&self, line: &str) -> Vec<Value> {
        let text = self.succeed(&format!("{line} --json"));
        text.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
    }

    /// Runs what has to fail with exit code `code` and a message that names all of `named`.
    fn fail(&self, line: &str, code: i32, named: &[&str]) {
        let ended = self.run(line);
        assert_eq!(ended.code, Some(code), "{line}: {}{}", ended.stdout, ended.stderr);
        for word in named {
            assert!(ended.stderr.contains(word), "{line}: {word:?} is not in: {}", ended.stderr);
        }
    }

    /// The part table's file, which `lookup` reads while it is measured.
    fn part_file(&self) -> PathBuf {
        self.path().join("bench-data/tpch-sf0.01/part.4k.pages")
    }

    /// The lineitem table's file, which `scan` reads.
    fn lineitem_file(&self) -> PathBuf {
        self.path().join("bench-data/tpch-sf0.01/lineitem_q1.64k.pages")
    }
}

/// A small run of each.
const SCAN: &str = "scan --scale 0.01 --threads 1 --depth 8 --repeat 1";
const LOOKUP: &str = "lookup --scale 0.01 --threads 1 --depth 8 --repeat 1";
