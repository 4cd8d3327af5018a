//! The 99 queries of TPC-DS at scale 0.01 against DuckDB's answers, a test per query and engine. The data is
//! made and loaded once.

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
