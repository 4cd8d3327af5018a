//! The asynchronous index-nested-loop join on TPC-H (von Merzljak et al., ADMS 2022, section 5, figures 9 and 10): queries 4, 5 and
//! 10, whose joins with lineitem, orders and customer look rows up in indexes, while a part of the database fits in memory.
//!
//! The blocking driver runs the same code with one read at a time: the synchronous join. A database of its own has the indexes, so
//! that other experiments do without. What counts as the database is what a query reads of it: a scan of columns leaves most of a
//! table alone, so of the whole database a fifth would hold everything that is asked for. Memory for the part that is to be cached comes
//! beside some for the operators; a run whose time does not count fills it. Drivers take turns. Every answer is checked: against the known one, or the first run's.
//!
//! With `--compile` lookups run as generated coroutines (`weft-jit`'s `probe`), and without; processor times are compared.

use std::path::Path;
use std::time::{Duration, Instant};

use weft::{Database, DatabaseOptions, QueryResult, Session};
use weft_rt::memory::heap;
use weft_rt::process_time;

use super::apart;
use super::measured::Measured;
use crate::answer::{Answer, TextRows, limit_of, text_rows};
use crate::args::{InljArgs, distinct};
use crate::data::progress_bar;
use crate::error::BenchError;
use crate::report::{Machine, Point, units};
use crate::workload::{Query, TPCH, WorkloadError};
use crate::{resident, sampler};

/// The queries that Umbra chooses the join for.
const QUERIES: [usize; 3] = [4, 5, 10];

/// The indexes that they look up in.
const INDEXES: [&str; 3] = [
    "CREATE UNIQUE INDEX IF NOT EXISTS lineitem_key ON lineitem (l_orderkey, l_linenumber)",
    "CREATE UNIQUE INDEX IF NOT EXISTS orders_key ON orders (o_orderkey)",
    "CREATE UNIQUE INDEX IF NOT EXISTS customer_key ON customer (c_custkey)",
];

/// Memory for operators beside what is cached, bytes: about what they need at this scale, and at least.
const OPERATORS_BYTES_PER_SCALE: u64 = 12 << 20;
const OPERATORS_BYTES_MIN: u64 = 64 << 20;

/// A way to run a query.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Way<'a> {
    threads: u32,
    driver: &'a str,
    /// The share of what a query reads that fits in memory.
    cached: f64,
    /// By indexes, or by scanning.
    by_index: bool,
    /// When lookups are compiled.
    compile: &'a str,
}

/// Makes and loads the database if needed, and runs the queries.
///
/// # Errors
/// [`BenchError`] if the data cannot be had, a query fails or an answer is wrong.
pub fn run(args: &InljArgs, machine: &Machine) -> Result<Vec<Point>, BenchError> {
    prepare(args)?;
    let ways = ways(args);
    let repetitions = args.common.repeat as usize;
    let bar = progress_bar("runs").with_message("inlj");
    bar.set_length((QUERIES.len() * ways.len() * (repetitions + 1)) as u64);
    let mut points = Vec::new();
    for number in QUERIES {
        let query = &TPCH.queries[number - 1];
        let mut answer = query.answer(args.scale).map_err(|source| wrong(query, source))?;
        let read = [bytes_read(args, query, true)?, bytes_read(args, query, false)?];
        for way in &ways {
            let database = open(args, way, read[usize::from(!way.by_index)])?;
            let session = database.session().map_err(WorkloadError::statement(query.name()))?;
            set(&session, query, way, args)?;
            let mut runs = Vec::with_capacity(repetitions);
            // The first fills the cache.
            for repetition in 0..=repetitions {
                let (run, rows) = run_once(&database, &session, query)?;
                check(query, &mut answer, rows)?;
                if repetition > 0 {
                    runs.push(run);
                }
                bar.inc(1);
            }
            runs.sort_by(|a, b| a.measured.seconds.total_cmp(&b.measured.seconds));
            points.push(point(&runs, of_way(args, machine, query, way)));
            drop((session, database));
            heap::trim(0, 0);
        }
    }
    bar.finish_and_clear();
    compare_with_blocking(&mut points);
    Ok(points)
}

/// All combinations.
fn ways(args: &InljArgs) -> Vec<Way<'_>> {
    let mut ways = Vec::new();
    let threads = args.common.threads();
    for threads in threads {
        for cached in args.fractions() {
            for driver in &args.driver {
                for compile in &args.compile {
                    let way = Way { threads, driver, cached, by_index: true, compile };
                    ways.push(way);
                    if args.compare_scan {
                        ways.push(Way { by_index: false, ..way });
                    }
                }
            }
        }
    }
    ways
}

/// Sees to it that there is a database with the indexes.
fn prepare(args: &InljArgs) -> Result<(), BenchError> {
    let path = args.database();
    let threads = distinct(&args.common.threads()).into_iter().max().unwrap_or(1);
    let options = || DatabaseOptions { create: true, ..DatabaseOptions::default() };
    let open = || open_at(&path, &options().with("threads", threads));
    let missing = TPCH.missing(&open()?, args.scale)?;
    if !missing.is_empty() {
        apart::make(&args.common, args.scale, threads, Some(&path))?;
    }
    let database = open()?;
    let session = database.session().map_err(WorkloadError::statement("opening a session"))?;
    for index in INDEXES {
        session.execute(index).map_err(WorkloadError::statement("making the indexes"))?;
    }
    Ok(())
}

/// What a query reads of a database of which nothing is in memory and everything fits there, bytes.
fn bytes_read(args: &InljArgs, query: &Query, by_index: bool) -> Result<u64, BenchError> {
    let threads = distinct(&args.common.threads()).into_iter().max().unwrap_or(1);
    let way = Way { threads, driver: "auto", cached: 1.0, by_index, compile: "never" };
    let database = open_at(&args.database(), &options(&way, None))?;
    let session = database.session().map_err(WorkloadError::statement(query.name()))?;
    set(&session, query, &way, args)?;
    let before = database.stats().bytes_read;
    session
        .query(query.sql)
        .and_then(QueryResult::collect)
        .map_err(WorkloadError::statement(query.name()))?;
    Ok(database.stats().bytes_read - before)
}

fn open_at(path: &Path, options: &DatabaseOptions) -> Result<Database, BenchError> {
    let what = format!("opening {}", path.display());
    Ok(Database::open(path, options).map_err(WorkloadError::statement(what))?)
}

/// Options for a way; without a limit all memory that the machine gives.
fn options(way: &Way<'_>, limit_bytes: Option<u64>) -> DatabaseOptions {
    let options =
        DatabaseOptions::default().with("threads", way.threads).with("io_driver", way.driver);
    match limit_bytes {
        Some(limit_bytes) => options.with("memory_limit", limit_bytes),
        None => options,
    }
}

fn open(args: &InljArgs, way: &Way<'_>, read_bytes: u64) -> Result<Database, BenchError> {
    let operators = (OPERATORS_BYTES_PER_SCALE as f64 * args.scale) as u64;
    let limit = operators.max(OPERATORS_BYTES_MIN) + (read_bytes as f64 * way.cached) as u64;
    open_at(&args.database(), &options(way, Some(limit)))
}

/// Has a session look up, or scan.
fn set(
    session: &Session,
    query: &Query,
    way: &Way<'_>,
    args: &InljArgs,
) -> Result<(), WorkloadError> {
    let depth = if way.driver == "blocking" { 1 } else { args.depth };
    let join = if way.by_index { "always" } else { "never" };
    for (name, value) in [
        ("index_join", join.to_owned()),
        ("index_scan", "never".to_owned()),
        ("index_join_tuples", args.tuples_per_coroutine.to_string()),
        ("io_depth", depth.to_string()),
        ("compile", way.compile.to_owned()),
    ] {
        let set = session.execute(&format!("SET {name} = '{value}'"));
        set.map_err(WorkloadError::statement(query.name()))?;
    }
    Ok(())
}

/// A run, and the processor time that the process took for it.
struct Run {
    measured: Measured,
    processor: Duration,
}

fn run_once(
    database: &Database,
    session: &Session,
    query: &Query,
) -> Result<(Run, TextRows), BenchError> {
    resident::reset_peak();
    let (before, processor_before) = (database.stats(), process_time());
    let timed = || {
        let start = Instant::now();
        let batches = session.query(query.sql).and_then(QueryResult::collect);
        (batches, start.elapsed().as_secs_f64())
    };
    let ((batches, seconds), over_time) = sampler::watch(database, timed);
    let processor = process_time() - processor_before;
    let batches = batches.map_err(WorkloadError::statement(query.name()))?;
    let measured = Measured::new(seconds, &before, &database.stats(), over_time);
    let rows =
        text_rows(&batches).map_err(|source| WorkloadError::Text { what: query.name(), source })?;
    Ok((Run { measured, processor }, rows))
}

/// Checks an answer, or makes it the one that later ones are compared with.
fn check(query: &Query, answer: &mut Option<Answer>, rows: TextRows) -> Result<(), WorkloadError> {
    match answer {
        Some(answer) => answer.check(&rows).map_err(|source| wrong(query, source)),
        None => {
            let keys = query.order_keys().map_err(|source| wrong(query, source))?;
            *answer = Some(Answer::of_run(rows, &keys, limit_of(query.sql)));
            Ok(())
        }
    }
}

fn wrong(query: &Query, source: crate::answer::AnswerError) -> WorkloadError {
    WorkloadError::WrongAnswer { query: query.name(), source }
}

/// What the runs of a way have in common.
fn of_way(args: &InljArgs, machine: &Machine, query: &Query, way: &Way<'_>) -> Point {
    let scanned = if way.by_index { "" } else { ", scan" };
    let compiled = if way.compile == "never" { "" } else { ", compiled" };
    Point {
        experiment: "inlj".to_owned(),
        pattern: Some(format!("{}{scanned}{compiled}", query.name())),
        query: Some(query.number),
        driver: way.driver.to_owned(),
        device: machine.device.clone(),
        threads: way.threads,
        depth: if way.driver == "blocking" { 1 } else { args.depth },
        cached: Some(way.cached),
        scale: Some(args.scale),
        compile: Some(way.compile.to_owned()),
        ..Point::default()
    }
}

/// The point of runs in the order of their times.
fn point(runs: &[Run], of_way: Point) -> Point {
    let mut processor: Vec<Duration> = runs.iter().map(|run| run.processor).collect();
    processor.sort_unstable();
    Point {
        repetitions: runs.len() as u32,
        seconds_min: runs.first().map(|run| run.measured.seconds),
        seconds_max: runs.last().map(|run| run.measured.seconds),
        processor_seconds: Some(processor[processor.len() / 2].as_secs_f64()),
        resident_bytes_peak: runs.iter().filter_map(|run| run.measured.resident_bytes).max(),
        answer: Some("correct".to_owned()),
        ..runs[runs.len() / 2].measured.point(of_way)
    }
}

/// How much processor time compiled lookups take of that of the others, in words.
pub fn summary(points: &[Point]) -> String {
    let mut text = String::new();
    let is_compiled = |point: &&Point| point.compile.as_deref().is_some_and(|mode| mode != "never");
    for point in points.iter().filter(is_compiled) {
        let name = |point: &Point| {
            point.pattern.as_deref().map(|name| name.trim_end_matches(", compiled").to_owned())
        };
        let other = points.iter().find(|other| {
            other.compile.as_deref() == Some("never")
                && name(other) == name(point)
                && other.driver == point.driver
                && other.cached == point.cached
                && other.threads == point.threads
        });
        let Some((other, (of_other, of_point))) = other
            .and_then(|other| Some((other, other.processor_seconds.zip(point.processor_seconds)?)))
        else {
            continue;
        };
        text.push_str(&format!(
            "{}, {}, {} cached: compiled ({}) {} times the processor time, {} times the time\n",
            name(point).unwrap_or_default(),
            point.driver,
            units::percent(point.cached.unwrap_or(0.0)),
            point.compile.as_deref().unwrap_or_default(),
            units::number(of_point / of_other),
            units::number(point.seconds / other.seconds),
        ));
    }
    text
}

/// Fills in how much faster each point is than the blocking driver's.
fn compare_with_blocking(points: &mut [Point]) {
    for index in 0..points.len() {
        let point = &points[index];
        let baseline = points.iter().find(|other| {
            other.is_blocking()
                && !point.is_blocking()
                && other.pattern == point.pattern
                && other.cached == point.cached
                && other.threads == point.threads
        });
        points[index].ratio_to_blocking = baseline.map(|other| other.seconds / point.seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asynchronous_points_are_compared_with_blocking_ones() {
        let point = |driver: &str, cached: f64, seconds: f64| Point {
            driver: driver.to_owned(),
            cached: Some(cached),
            pattern: Some("q04".to_owned()),
            seconds,
            ..Point::default()
        };
        let mut points =
            vec![point("blocking", 0.2, 3.0), point("uring", 0.2, 1.5), point("uring", 0.4, 1.0)];
        compare_with_blocking(&mut points);
        let ratios: Vec<_> = points.iter().map(|point| point.ratio_to_blocking).collect();
        assert_eq!(ratios, [None, Some(2.0), None]);
    }
}
