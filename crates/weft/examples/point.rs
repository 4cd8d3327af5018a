//! How long a prepared query for one row takes, by its primary key, on one thread: `point [ROWS [QUERIES]]`.
//!
//! Every answer is checked. The baseline is the same query as a text that names the key, which is planned each time.

use std::time::{Duration, Instant};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use weft::{Database, DatabaseOptions, Error, ErrorKind, QueryResult, Result, Session, Value};

const ROWS: i64 = 1_000_000;
const QUERIES: u32 = 200_000;
/// Queries of the baseline for each thousand of the others.
const BASELINE_PER_THOUSAND: u32 = 5;
const REPETITIONS: usize = 5;

fn main() -> Result<()> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<i64>());
    let mut number = |default: i64| match numbers.next() {
        None => Ok(default),
        Some(Ok(number)) if number > 0 => Ok(number),
        Some(_) => Err(Error::new(ErrorKind::Semantic, "usage: point [ROWS [QUERIES]]")),
    };
    let rows = number(ROWS)?;
    let queries = u32::try_from(number(QUERIES.into())?).unwrap_or(u32::MAX);
    let database = Database::in_memory(&DatabaseOptions::default().with("threads", 1))?;
    let session = database.session()?;
    session.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, amount BIGINT, name VARCHAR)")?;
    // Names that compress badly, as those of people and things do.
    session.execute(&format!(
        "INSERT INTO t SELECT value, value * 7, substr(md5(CAST(value AS VARCHAR)), 1, 12) \
         FROM generate_series(0, {}) AS g(value)",
        rows - 1
    ))?;
    let prepared = session.prepare("SELECT amount, name FROM t WHERE id = $1")?;
    let mut seed = 42_u64;
    let mut key = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((seed >> 33) as i64) % rows
    };
    for _ in 0..1_000 {
        let key = key();
        check(prepared.query(&[Value::Integer(key)])?, key)?;
    }
    let mut kept = Vec::new();
    let mut baseline = Vec::new();
    for _ in 0..REPETITIONS {
        kept.push(time(queries, &mut key, |key| prepared.query(&[Value::Integer(key)]))?);
        let fewer = (queries / 1_000 * BASELINE_PER_THOUSAND).max(1);
        baseline.push(time(fewer, &mut key, |key| by_text(&session, key))?);
    }
    let (kept, baseline) = (median_us(kept), median_us(baseline));
    let ratio = baseline / kept;
    println!("prepared: {kept:.2} µs a query; by text: {baseline:.1} µs, {ratio:.1} times as much");
    Ok(())
}

fn by_text(session: &Session, key: i64) -> Result<QueryResult> {
    session.query(&format!("SELECT amount, name FROM t WHERE id = {key}"))
}

/// The time of one query, of so many.
fn time(
    queries: u32,
    mut key: impl FnMut() -> i64,
    mut query: impl FnMut(i64) -> Result<QueryResult>,
) -> Result<Duration> {
    let started = Instant::now();
    for _ in 0..queries {
        let key = key();
        check(query(key)?, key)?;
    }
    Ok(started.elapsed() / queries)
}

fn check(mut result: QueryResult, key: i64) -> Result<()> {
    let batch = result.next_batch()?;
    let amount = batch.as_ref().map(|batch| batch.column(0).as_primitive::<Int64Type>().value(0));
    let ends = result.next_batch()?.is_none();
    match amount == Some(key * 7) && ends {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Internal, format!("a wrong answer for the key {key}"))),
    }
}

fn median_us(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_nanos() as f64 / 1_000.0
}
