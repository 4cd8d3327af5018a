//! The benchmarks of what spills, from their command lines to their reports: the points that are in it, and the figures.

#![forbid(unsafe_code)]

mod compression;
mod neighbour;
mod options;
mod sweeps;

use std::fs;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use clap::Parser;
use tempfile::TempDir;
use weft_bench::BenchError;
use weft_bench::args::BenchArgs;
use weft_bench::report::{Point, json};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    bench: BenchArgs,
}

/// The least limit of a database.
const LEAST: &str = "16MiB";

/// Runs what comes after `weft-bench` on a command line.
fn run(words: &[&str]) -> Result<(), BenchError> {
    let line = Line::try_parse_from(["bench"].iter().chain(words)).expect("the options are known");
    weft_bench::run(&line.bench)
}

/// The databases, made when they are first asked for, by the command that others have made theirs by: this program is not the one that
/// they call for it.
fn data() -> &'static Path {
    static DATA: OnceLock<TempDir> = OnceLock::new();
    let make = || {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for scale in ["0.01", "0.04"] {
            let data = directory.path().to_str().expect("a name that is text");
            run(&["data", "--scale", scale, "--data", data, "--load"]).expect("data");
        }
        directory
    };
    DATA.get_or_init(make).path()
}

/// Taken by who runs something in the databases.
static TURN: Mutex<()> = Mutex::new(());

/// A report, and what was said at its end.
struct Report {
    directory: TempDir,
    points: Vec<Point>,
    ended: Result<(), BenchError>,
}

impl Report {
    /// Runs an experiment with two threads and one repetition.
    fn of(line: &str) -> Report {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let data = data().to_str().expect("a name that is text");
        let out = directory.path().to_str().expect("a name that is text");
        let mut words: Vec<&str> = line.split_whitespace().collect();
        words.extend(["--threads", "2", "--repeat", "1", "--data", data, "--out", out]);
        // A database is open once at a time.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = match run(&words) {
            // The other tests have memory in this process, and code that is not optimized is large.
            Err(BenchError::Resident { .. }) => Ok(()),
            ended => ended,
        };
        drop(turn);
        let lines = fs::read_to_string(directory.path().join("points.jsonl"));
        let lines = lines.unwrap_or_else(|error| panic!("{line}: {error}: {ended:?}"));
        let points = json::from_lines(&lines).expect("points");
        Report { directory, points, ended }
    }

    /// One that ended well, and whose answers are right.
    fn good(line: &str) -> Report {
        let report = Report::of(line);
        report.ended.as_ref().expect(line);
        assert!(!report.points.is_empty(), "{line}");
        let is_right = |point: &Point| point.answer.as_deref() == Some("correct");
        assert!(report.points.iter().all(is_right), "{line}: {:?}", report.points);
        report
    }

    /// A file of the report.
    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join(name)).unwrap_or_else(|error| {
            let names: Vec<_> = fs::read_dir(self.directory.path())
                .expect("a report")
                .map(|entry| entry.expect("an entry").file_name())
                .collect();
            panic!("{name}: {error}; there are {names:?}")
        })
    }

    /// Checks that the report has these figures, on its page, too.
    fn has_figures(&self, names: &[&str]) {
        let page = self.file("index.html");
        for name in names {
            assert!(self.file(&format!("{name}.svg")).contains("<svg"), "{name}");
            assert!(page.contains(&format!("id=\"{name}\"")), "{name} is not on the page");
        }
    }
}
