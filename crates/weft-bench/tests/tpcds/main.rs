//! The 99 queries of TPC-DS at scale 0.01 against DuckDB's answers, a test per query and engine, and how many
//! of them pipelines do not execute as a whole. The data is made and loaded once.

#![forbid(unsafe_code)]

mod generate;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Failed, Trial, run};
use weft::{Database, DatabaseOptions, QueryResult};
use weft_bench::answer::{Answer, limit_of, parse_order_keys, text_rows};

/// Scale factor of the data and the answers.
const SCALE: f64 = 0.01;
/// So many queries may keep a node that DataFusion executes.
const FALLBACKS_MAX: usize = 5;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tpcds");
    let keys =
        fs::read_to_string(root.join("sf0.01/order_keys.csv")).expect("order keys are there");
    let keys = parse_order_keys(&keys).expect("order keys are valid");
    assert_eq!(keys.len(), 99);
    let database = Arc::new(OnceLock::new());
    let mut trials = Vec::new();
    for (name, keys) in &keys {
        for engine in ["datafusion", "weft", "auto"] {
            let (root, database, name, keys) =
                (root.clone(), Arc::clone(&database), name.clone(), keys.clone());
            trials.push(Trial::test(format!("{name}::{engine}"), move || {
                check(&root, &name, &keys, &database, engine)
            }));
        }
    }
    for engine in ["weft", "auto"] {
        let (root, database) = (root.clone(), Arc::clone(&database));
        let names: Vec<String> = keys.iter().map(|(name, _)| name.clone()).collect();
        trials.push(Trial::test(format!("fallbacks::{engine}"), move || {
            check_fallbacks(&root, &names, &database, engine)
        }));
    }
    run(&Arguments::from_args(), trials).exit();
}

type Loaded = OnceLock<Result<Database, String>>;

/// Has an engine run one query and compares its answer.
fn check(
    root: &Path,
    name: &str,
    keys: &[usize],
    database: &Loaded,
    engine: &str,
) -> Result<(), Failed> {
    let database = database.get_or_init(|| load(root)).as_ref()?;
    let sql = fs::read_to_string(root.join(format!("queries/{name}.sql")))?;
    let csv = fs::read_to_string(root.join(format!("sf0.01/{name}.csv")))?;
    let answer = Answer::parse(&csv, keys, limit_of(&sql))?;
    let session = database.session()?;
    session.execute(&format!("SET engine = '{engine}'"))?;
    let batches = session.query(&sql).and_then(QueryResult::collect)?;
    Ok(answer.check(&text_rows(&batches)?)?)
}

/// Counts the queries with nodes that pipelines do not execute.
fn check_fallbacks(
    root: &Path,
    names: &[String],
    database: &Loaded,
    engine: &str,
) -> Result<(), Failed> {
    let session = database.get_or_init(|| load(root)).as_ref()?.session()?;
    session.execute(&format!("SET engine = '{engine}'"))?;
    let mut left = Vec::new();
    for name in names {
        let sql = fs::read_to_string(root.join(format!("queries/{name}.sql")))?;
        let plan = session.query(&format!("EXPLAIN {sql}")).and_then(QueryResult::collect)?;
        let rows = text_rows(&plan)?;
        let lines = rows.iter().flatten().flat_map(|text| text.lines());
        let nodes: String = lines.filter(|line| line.contains("FallbackExec")).collect();
        if !nodes.is_empty() {
            left.push(format!("{name}: {nodes}"));
        }
    }
    if left.len() > FALLBACKS_MAX {
        return Err(format!("{} queries: {}", left.len(), left.join("; ")).into());
    }
    Ok(())
}

/// A database with the tables.
fn load(root: &Path) -> Result<Database, String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    generate::write_all(directory.path(), SCALE).map_err(|error| error.to_string())?;
    let schema = fs::read_to_string(root.join("schema.sql")).map_err(|error| error.to_string())?;
    let options = DatabaseOptions::default().with("memory_limit", "2GB");
    let fill = || {
        let database = Database::in_memory(&options)?;
        let session = database.session()?;
        session.execute_script(&schema, |_, _| Ok(()))?;
        for table in session.tables() {
            let path: PathBuf = directory.path().join(format!("{table}.csv"));
            let path = path.display();
            session.execute(&format!("COPY {table} FROM '{path}' (FORMAT csv, HEADER true)"))?;
        }
        Ok::<Database, weft::Error>(database)
    };
    fill().map_err(|error| format!("loading: {error}"))
}
