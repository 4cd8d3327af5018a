//! The files of tests, and how one of them is run.

use std::fs;
use std::path::{Path, PathBuf};

use sqllogictest::{Runner, parse_file};
use weft::Database;

use super::database::{Engine, Setup, TestDatabase, same_types};

/// A file of tests, in a setup, by an engine.
#[derive(Clone, Debug)]
pub struct Run {
    /// The file.
    pub path: PathBuf,
    /// What it runs in.
    pub setup: Setup,
    /// What executes its queries.
    pub engine: Engine,
}

impl Run {
    /// All files in all setups, by the engines that these have.
    ///
    /// # Panics
    /// If there are no files.
    pub fn all() -> Vec<Run> {
        let mut files = Vec::new();
        find(&root(), &mut files);
        assert!(!files.is_empty(), "no tests under {}", root().display());
        files.sort();
        let of_file = |path: PathBuf| {
            let topic = topic(&path);
            let of_setup = move |setup: Setup| {
                let path = path.clone();
                let engines = setup.engines().iter();
                engines.map(move |engine| Run { path: path.clone(), setup, engine: *engine })
            };
            let setups = Setup::ALL.into_iter().filter(move |setup| setup.takes(&topic));
            setups.flat_map(of_setup)
        };
        files.into_iter().flat_map(of_file).collect()
    }

    /// The topic, the setup and the engine.
    pub fn name(&self) -> String {
        format!("{}::{}::{}", topic(&self.path), self.setup.name(), self.engine.name())
    }

    /// Runs the file in a database.
    ///
    /// # Errors
    /// All that has failed: one mistake often shows better beside the others.
    pub fn run(&self, database: &Database) -> Result<(), String> {
        let mut runner = Runner::new(|| async { TestDatabase::new(database) });
        runner.add_label(self.setup.name());
        runner.add_label(self.engine.name());
        runner.with_column_validator(|actual, expected| same_types(actual, expected));
        let records = parse_file(&self.path).map_err(|error| error.to_string())?;
        let failures: Vec<String> = records
            .into_iter()
            .filter_map(|record| runner.run(record).err())
            .map(|error| error.to_string())
            .collect();
        match failures.len() {
            0 => Ok(()),
            count => Err(format!("{}\n{count} failures", failures.join("\n"))),
        }
    }
}

/// Where the files are.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/slt")
}

/// What a file of tests is about.
fn topic(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).with_extension("").display().to_string()
}

/// All test files in a directory and those below.
fn find(directory: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(directory).expect("the directory of tests is readable");
    for path in entries.map(|entry| entry.expect("the directory of tests is readable").path()) {
        if path.is_dir() {
            find(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "slt") {
            files.push(path);
        }
    }
}
