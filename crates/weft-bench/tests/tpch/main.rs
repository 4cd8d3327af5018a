//! The 22 queries of TPC-H at scale 0.01 against DuckDB's answers: with ample memory, with little, with partitions of
//! everything, and over every I/O driver; and the benchmark that runs them.

#![forbid(unsafe_code)]

mod benchmarks;

use std::path::Path;
use std::sync::OnceLock;

use tempfile::TempDir;
use weft::{Database, DatabaseOptions, QueryResult};
use weft_bench::answer::text_rows;
use weft_bench::workload::TPCH;

/// Scale factor of the data and the answers.
const SCALE: f64 = 0.01;

/// The Parquet files, made once.
fn files() -> &'static Path {
    static FILES: OnceLock<TempDir> = OnceLock::new();
    let make = || {
        let directory = tempfile::tempdir().unwrap();
        TPCH.generate(directory.path(), SCALE, 2).unwrap();
        directory
    };
    FILES.get_or_init(make).path()
}

/// Loads a database and runs all queries in it.
fn check_all(options: &DatabaseOptions) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tpch.weft");
    let database = Database::open(&path, options).unwrap();
    let loaded = TPCH.load(&database, files(), SCALE, 2).unwrap();
    assert_eq!(loaded.tables.len(), 8);
    drop(database);
    // What was loaded is there for the next one, who loads nothing.
    let database = Database::open(&path, options).unwrap();
    assert_eq!(TPCH.load(&database, files(), SCALE, 2).unwrap().rows, 0);
    let session = database.session().unwrap();
    let mut wrong = Vec::new();
    for query in TPCH.queries {
        let answer = query.answer(SCALE).unwrap().unwrap();
        let batches = match session.query(query.sql).and_then(QueryResult::collect) {
            Ok(batches) => batches,
            Err(error) => {
                wrong.push(format!("{}: {error}", query.name()));
                continue;
            }
        };
        if let Err(error) = answer.check(&text_rows(&batches).unwrap()) {
            wrong.push(format!("{}: {error}", query.name()));
        }
    }
    assert!(wrong.is_empty(), "{options:?}\n{}", wrong.join("\n"));
    let engine = options.settings.iter().find(|(name, _)| name == "engine");
    if engine.is_some_and(|(_, engine)| engine != "datafusion") {
        let left: Vec<String> =
            TPCH.queries.iter().map(|query| left_to_datafusion(&session, query.sql)).collect();
        assert!(left.iter().all(String::is_empty), "{left:?}");
    }
}

/// The nodes of a query's plan that pipelines do not execute.
fn left_to_datafusion(session: &weft::Session, sql: &str) -> String {
    let plan = session.query(&format!("EXPLAIN {sql}")).and_then(QueryResult::collect).unwrap();
    let rows = text_rows(&plan).unwrap();
    let lines = rows.iter().flatten().flat_map(|text| text.lines());
    lines.filter(|line| line.contains("FallbackExec")).collect()
}

#[test]
fn queries_by_datafusion() {
    let options = DatabaseOptions::default().with("memory_limit", "1GB");
    check_all(&options.with("engine", "datafusion"));
}

#[test]
fn queries_by_pipelines() {
    for engine in ["auto", "weft"] {
        let options = DatabaseOptions::default().with("memory_limit", "1GB").with("engine", engine);
        check_all(&options);
    }
}

#[test]
fn queries_with_little_memory() {
    check_all(&DatabaseOptions::default().with("memory_limit", "48MB").with("threads", 2));
}

#[test]
fn queries_of_which_everything_is_partitioned() {
    let options = DatabaseOptions::default().with("engine", "weft").with("partition", "always");
    for memory_limit in ["1GB", "96MB"] {
        check_all(&options.clone().with("memory_limit", memory_limit).with("threads", 2));
    }
}

#[test]
fn queries_over_blocking_reads() {
    let options = DatabaseOptions::default().with("io_driver", "blocking").with("threads", 1);
    check_all(&options.with("memory_limit", "1GB"));
}

#[test]
fn queries_over_threads() {
    let options = DatabaseOptions::default().with("io_driver", "posix");
    check_all(&options.with("memory_limit", "1GB"));
}

#[test]
fn another_scale_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let options = DatabaseOptions::default().with("memory_limit", "1GB");
    let database = Database::open(directory.path().join("tpch.weft"), &options).unwrap();
    TPCH.load(&database, files(), SCALE, 2).unwrap();
    let error = TPCH.load(&database, files(), 0.02, 2).unwrap_err().to_string();
    assert!(error.contains("--db") && error.contains("0.02"), "{error}");
}
