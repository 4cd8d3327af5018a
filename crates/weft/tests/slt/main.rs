//! The SQL logic tests under `tests/slt/`, each file in databases of its own: with ample memory, with little, and on a
//! simulated disk where every request suspends, each by DataFusion's operators and by Weft's pipelines; and with the least
//! memory that a database works with, with `partition = always`, and with vectors of one row and of seven, by Weft's
//! pipelines.
//!
//! `cargo test -p weft --test slt -- join` runs those with `join` in their names.

#![forbid(unsafe_code)]

mod database;

use std::fs;
use std::path::{Path, PathBuf};

use sqllogictest::harness::{Arguments, Failed, Trial, run};
use sqllogictest::{Runner, parse_file};

use database::{Engine, Setup, TestDatabase, same_types};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/slt");
    let mut files = Vec::new();
    find(&root, &mut files);
    assert!(!files.is_empty(), "no tests under {}", root.display());
    files.sort();
    let mut trials = Vec::new();
    for path in &files {
        for setup in Setup::ALL.into_iter().filter(|setup| setup.takes(&topic(&root, path))) {
            let engines = setup.engines().iter();
            trials.extend(engines.map(|engine| trial(&root, path, setup, *engine)));
        }
    }
    run(&Arguments::from_args(), trials).exit();
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

/// What a file of tests is about.
fn topic(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).with_extension("").display().to_string()
}

fn trial(root: &Path, path: &Path, setup: Setup, engine: Engine) -> Trial {
    let name = format!("{}::{}::{}", topic(root, path), setup.name(), engine.name());
    let path = path.to_owned();
    Trial::test(name, move || {
        let (database, seed) = setup.open(engine)?;
        let mut runner = Runner::new(|| async { TestDatabase::new(&database) });
        runner.add_label(setup.name());
        runner.add_label(engine.name());
        runner.with_column_validator(|actual, expected| same_types(actual, expected));
        // On to the end after a failure: one mistake often shows better beside the others.
        let records = parse_file(&path).map_err(|error| Failed::from(error.to_string()))?;
        let failures: Vec<String> = records
            .into_iter()
            .filter_map(|record| runner.run(record).err())
            .map(|error| error.to_string())
            .collect();
        if failures.is_empty() {
            return Ok(());
        }
        let count = failures.len();
        Err(Failed::from(format!("{}\n{count} failures, seed {seed}", failures.join("\n"))))
    })
}
