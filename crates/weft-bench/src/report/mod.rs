//! The report: measured points as terminal tables, CSV, JSON lines, figures in SVG and one HTML page
//! that sets them beside the claims of the papers.
//!
//! An experiment hands over [`Point`]s and nothing else; everything shown is derived from them, so a
//! file of points redraws its report. Simulated devices are labelled wherever they appear.

pub mod claims;
mod columns;
mod courses;
pub mod csv;
pub mod figures;
mod findings;
mod html;
pub mod json;
mod latency;
mod machine;
mod over_time;
mod plan;
mod point;
mod series;
mod spilling;
pub mod suite;
pub mod svg;
#[cfg(test)]
mod synthetic;
pub mod table;
pub mod units;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use machine::Machine;
pub use over_time::OverTime;
pub use point::{FIELD_HELP, LatencyUs, Point};

/// The settings of a run, shown as they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The command line that started the run.
    pub command: String,
    /// Further settings as (name, value), in the order shown.
    pub entries: Vec<(String, String)>,
}

/// Why a report could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The directory for the report could not be created.
    #[error(
        "cannot create the report directory {path}: {source}; choose another directory or make its \
         parent writable"
    )]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file of the report could not be written. An earlier version of it is untouched.
    #[error(
        "cannot write the report file {path}: {source}; check that the directory is writable and has \
         room, or choose another one"
    )]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A point could not be written as JSON.
    #[error("cannot write a point as JSON: {0}")]
    Json(#[source] serde_json::Error),
    /// A line of a file of points is not a point.
    #[error(
        "line {line} is not a measured point: {source}; is this a points.jsonl of `weft-bench`?"
    )]
    JsonLine {
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A point could not be written as CSV.
    #[error("cannot write the points as CSV: {0}")]
    Csv(#[source] ::csv::Error),
}

/// Writes the report into `dir`, which is created if needed: `points.csv`, `points.jsonl`, `over-time.csv` if runs were
/// sampled, a `figure-*.svg` per figure and `index.html`. Returns the paths written, the page last.
///
/// Each file is written beside its final name and renamed, so a reader never sees half of one.
///
/// # Errors
/// [`ReportError::Directory`] or [`ReportError::File`] if `dir` is not writable,
/// [`ReportError::Json`] or [`ReportError::Csv`] if a point cannot be serialized.
pub fn write(
    dir: &Path,
    machine: &Machine,
    settings: &Settings,
    points: &[Point],
) -> Result<Vec<PathBuf>, ReportError> {
    let figures = figures::figures(points);
    let mut files = vec![
        ("points.csv".to_string(), csv::to_csv(points)?),
        ("points.jsonl".to_string(), json::to_lines(points)?),
    ];
    files.extend(over_time::to_csv(points)?.map(|text| ("over-time.csv".to_string(), text)));
    files.extend(figures.iter().map(|figure| (format!("{}.svg", figure.name), figure.svg())));
    files.push(("index.html".to_string(), html::page(machine, settings, points, &figures)));

    fs::create_dir_all(dir)
        .map_err(|source| ReportError::Directory { path: dir.to_path_buf(), source })?;
    files.into_iter().map(|(name, text)| replace(dir, &name, &text)).collect()
}

/// Creates the directory of a report, and checks that files can be written there.
///
/// # Errors
/// [`ReportError::Directory`] or [`ReportError::File`] if not.
pub fn prepare(dir: &Path) -> Result<(), ReportError> {
    fs::create_dir_all(dir)
        .map_err(|source| ReportError::Directory { path: dir.to_path_buf(), source })?;
    let probe = dir.join(format!(".probe.{}.new", std::process::id()));
    fs::write(&probe, "x")
        .and_then(|()| fs::remove_file(&probe))
        .map_err(|source| ReportError::File { path: dir.join("index.html"), source })
}

/// Writes `text` to a hidden file in `dir` and renames it to `name`.
fn replace(dir: &Path, name: &str, text: &str) -> Result<PathBuf, ReportError> {
    let path = dir.join(name);
    let hidden = dir.join(format!(".{name}.{}.new", std::process::id()));
    let written = fs::write(&hidden, text).and_then(|()| fs::rename(&hidden, &path));
    written.map_err(|source| {
        // The hidden file may not even exist; the error that counts is the first one.
        let _ = fs::remove_file(&hidden);
        ReportError::File { path: path.clone(), source }
    })?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of the test's own, removed at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let dir =
                std::env::temp_dir().join(format!("weft-report-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            Scratch(dir)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_report_is_written_twice_over_itself() {
        let scratch = Scratch::new("twice");
        let points = synthetic::paper_points();
        let (machine, settings) = (Machine::default(), Settings::default());
        let first = write(&scratch.0.join("new"), &machine, &settings, &points).unwrap();
        let second = write(&scratch.0.join("new"), &machine, &settings, &points).unwrap();
        assert_eq!(first, second);
        assert!(first.last().unwrap().ends_with("index.html"));
        let mut found: Vec<_> = fs::read_dir(scratch.0.join("new"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        found.sort();
        let mut expected = first.clone();
        expected.sort();
        assert_eq!(found, expected);
        let lines = fs::read_to_string(scratch.0.join("new/points.jsonl")).unwrap();
        assert_eq!(json::from_lines(&lines).unwrap(), points);
    }

    #[test]
    fn degenerate_reports_are_written() {
        let scratch = Scratch::new("degenerate");
        let (machine, settings) = (Machine::default(), Settings::default());
        for points in [vec![], vec![Point::default()], vec![synthetic::complete_point()]] {
            let paths = write(&scratch.0, &machine, &settings, &points).unwrap();
            assert!(paths.iter().all(|path| path.exists()));
        }
    }

    #[test]
    fn a_file_in_the_way_is_a_clear_error() {
        let scratch = Scratch::new("in-the-way");
        fs::create_dir_all(&scratch.0).unwrap();
        let file = scratch.0.join("file");
        fs::write(&file, "x").unwrap();
        let error = write(&file, &Machine::default(), &Settings::default(), &[]).unwrap_err();
        assert!(matches!(error, ReportError::Directory { .. }));
        assert!(error.to_string().contains("choose another directory"), "{error}");
        fs::create_dir_all(scratch.0.join("taken/index.html")).unwrap();
        let taken = scratch.0.join("taken");
        let error = write(&taken, &Machine::default(), &Settings::default(), &[]).unwrap_err();
        assert!(error.to_string().contains("index.html"), "{error}");
        let hidden = fs::read_dir(&taken)
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with('.'));
        assert_eq!(hidden.count(), 0);
    }
}
