//! Resident memory while TPC-H and TPC-DS are queried with little memory, and while the SQL logic tests run with little: the process
//! has no more than the limit, 5 % and 64 MiB, and every answer is right.
//!
//! It is a process of its own, whose allocator counts, and runs one query at a time, or one file of tests. The kernel keeps the peak. Of a
//! debug build only answers are compared, as its code is several times as large.

#![forbid(unsafe_code)]

#[path = "../../../weft/tests/slt/corpus.rs"]
mod corpus;
#[path = "../../../weft/tests/slt/database.rs"]
mod database;
mod watch;

use std::alloc::System;
use std::env;
use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Failed, Trial, run};
use tempfile::TempDir;
use weft::{CountingAllocator, Database, DatabaseOptions, KeepingAllocator, QueryResult};
use weft_bench::answer::text_rows;
use weft_bench::workload::{Query, TPCDS, TPCH};

use corpus::Run;
use database::{Engine, Setup};
use watch::watch;

#[global_allocator]
static ALLOCATOR: CountingAllocator<KeepingAllocator<System>> =
    CountingAllocator::new(KeepingAllocator::new(System));

/// Scale factor of the data and the answers.
const SCALE: f64 = 0.01;

/// A memory limit below which some queries of TPC-DS take long.
const MEMORY_LIMIT: &str = "32MiB";

/// The variable that tells the process where to make the databases, and to do no more.
const LOAD: &str = "WEFT_RESIDENT_LOAD";

/// The databases, made when they are first asked for.
type Loaded = Arc<OnceLock<Result<TempDir, String>>>;

fn main() {
    weft::give_back_promptly();
    if let Some(directory) = env::var_os(LOAD) {
        return load(Path::new(&directory)).expect("the databases can be made");
    }
    let loaded = Loaded::default();
    let mut trials = Vec::new();
    for suite in [&TPCH, &TPCDS] {
        for query in suite.queries {
            let loaded = Arc::clone(&loaded);
            trials.push(Trial::test(format!("{}::{}", suite.name, query.name()), move || {
                check(&open(&loaded, suite.name)?, query)
            }));
        }
    }
    // As a database is by default, and with the least memory.
    let is_meant = |file: &Run| {
        matches!((file.setup, file.engine), (Setup::Tiny, Engine::Auto) | (Setup::Least, _))
    };
    for file in Run::all().into_iter().filter(is_meant) {
        trials.push(Trial::test(format!("slt::{}", file.name()), move || check_file(&file)));
    }
    // Whatever was given: what others have in memory is not to be counted.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let conclusion = run(&arguments, trials);
    // The process ends without dropping anything.
    drop(loaded);
    conclusion.exit();
}

/// Runs a query, compares its answer, and the memory that the process has had with what it may have.
fn check(database: &Database, query: &Query) -> Result<(), Failed> {
    let answer = query.answer(SCALE)?.ok_or("no answer is known")?;
    let session = database.session()?;
    watch(database.stats().memory_limit, || {
        let batches = session.query(query.sql).and_then(QueryResult::collect)?;
        Ok(answer.check(&text_rows(&batches)?)?)
    })
}

/// Runs a file of SQL logic tests in a database of its own.
fn check_file(file: &Run) -> Result<(), Failed> {
    let (database, seed) = file.setup.open(file.engine)?;
    watch(database.stats().memory_limit, || {
        file.run(&database).map_err(|failures| format!("{failures}, seed {seed}").into())
    })
}

/// Makes both databases in a directory.
fn load(directory: &Path) -> Result<(), Box<dyn Error>> {
    let options = DatabaseOptions::default().with("threads", 2).with("memory_limit", "1GiB");
    let files = tempfile::tempdir()?;
    for suite in [&TPCH, &TPCDS] {
        let database = Database::open(directory.join(suite.name), &options)?;
        suite.load(&database, &suite.directory(files.path(), SCALE), SCALE, 2)?;
    }
    Ok(())
}

/// Has another process make the databases: what loading takes is not to be counted here.
fn load_apart() -> Result<TempDir, Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let status = Command::new(env::current_exe()?).env(LOAD, directory.path()).status()?;
    if status.success() { Ok(directory) } else { Err(format!("loading: {status}").into()) }
}

/// One of the databases, with little memory.
fn open(loaded: &Loaded, name: &str) -> Result<Database, Failed> {
    let loaded = loaded.get_or_init(|| load_apart().map_err(|error| error.to_string()));
    let path = loaded.as_ref()?.path().join(name);
    let options = DatabaseOptions { create: false, ..DatabaseOptions::default() };
    Ok(Database::open(path, &options.with("memory_limit", MEMORY_LIMIT).with("threads", 2))?)
}
