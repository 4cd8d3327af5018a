//! The 99 queries of TPC-DS at scale 0.01 against DuckDB's answers, a test per query and engine, and how many
//! of them pipelines do not execute as a whole; and the benchmark that runs them. The data is made and loaded once.

#![forbid(unsafe_code)]

mod benchmark;

use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Failed, Trial, run};
use weft::{Database, DatabaseOptions, QueryResult, Session};
use weft_bench::answer::text_rows;
use weft_bench::workload::{Query, TPCDS};

/// Scale factor of the data and the answers.
const SCALE: f64 = 0.01;
/// So many queries may keep a node that DataFusion executes.
const FALLBACKS_MAX: usize = 5;

fn main() {
    assert_eq!(TPCDS.queries.len(), 99);
    let database = Arc::new(OnceLock::new());
    let mut trials = benchmark::trials();
    for query in TPCDS.queries {
        for engine in ["datafusion", "weft", "auto"] {
            let database = Arc::clone(&database);
            trials.push(Trial::test(format!("{}::{engine}", query.name()), move || {
                check(query, &database, engine)
            }));
        }
    }
    for engine in ["weft", "auto"] {
        let database = Arc::clone(&database);
        trials.push(Trial::test(format!("fallbacks::{engine}"), move || {
            check_fallbacks(&database, engine)
        }));
    }
    run(&Arguments::from_args(), trials).exit();
}

type Loaded = OnceLock<Result<Database, String>>;

/// Has an engine run one query and compares its answer.
fn check(query: &Query, database: &Loaded, engine: &str) -> Result<(), Failed> {
    let answer = query.answer(SCALE)?.ok_or("no answer is known")?;
    let batches = session(database, engine)?.query(query.sql).and_then(QueryResult::collect)?;
    Ok(answer.check(&text_rows(&batches)?)?)
}

/// Counts the queries with nodes that pipelines do not execute.
fn check_fallbacks(database: &Loaded, engine: &str) -> Result<(), Failed> {
    let session = session(database, engine)?;
    let mut left = Vec::new();
    for query in TPCDS.queries {
        let explain = format!("EXPLAIN {}", query.sql);
        let plan = session.query(&explain).and_then(QueryResult::collect)?;
        let rows = text_rows(&plan)?;
        let lines = rows.iter().flatten().flat_map(|text| text.lines());
        let nodes: String = lines.filter(|line| line.contains("FallbackExec")).collect();
        if !nodes.is_empty() {
            left.push(format!("{}: {nodes}", query.name()));
        }
    }
    if left.len() > FALLBACKS_MAX {
        return Err(format!("{} queries: {}", left.len(), left.join("; ")).into());
    }
    Ok(())
}

/// A session of the database with the tables, with an engine.
fn session(database: &Loaded, engine: &str) -> Result<Session, Failed> {
    let session = database.get_or_init(load).as_ref()?.session()?;
    session.execute(&format!("SET engine = '{engine}'"))?;
    Ok(session)
}

/// A database with the tables.
fn load() -> Result<Database, String> {
    let fill = || {
        let directory = tempfile::tempdir()?;
        let options = DatabaseOptions::default().with("memory_limit", "2GB");
        let database = Database::in_memory(&options)?;
        TPCDS.load(&database, directory.path(), SCALE, 2)?;
        Ok::<Database, Box<dyn std::error::Error>>(database)
    };
    fill().map_err(|error| format!("loading: {error}"))
}
