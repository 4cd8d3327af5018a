//! Operators whose state outgrows memory, at one memory limit after the other: what spilling costs (Spilly, section 6.3).
//!
//! Every run opens the database anew: tables are read from the device at any limit. The answer of each is compared with the first,
//! and that with DataFusion's operators', to the same query or to one that must have the same. They come last: what an allocator
//! keeps of the memory that they take is not what is to be measured.

use std::time::Instant;

use weft::{Database, DatabaseOptions, QueryResult};
use weft_rt::memory::heap;

use super::memory::allowed_bytes;
use crate::answer::{Answer, AnswerError, TextRows, text_rows};
use crate::args::{SpillArgs, setting};
use crate::data::progress_bar;
use crate::error::BenchError;
use crate::report::{Machine, OverTime, Point};
use crate::workload::{WorkloadError, tpch_load};
use crate::{resident, sampler};

/// A query, and one with the same answer.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    name: &'static str,
    sql: &'static str,
    reference: &'static str,
}

/// The queries of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Cases<'a> {
    pub(super) experiment: &'static str,
    pub(super) cases: &'a [Case],
}

macro_rules! text {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/spill/", $name, ".sql"))
    };
}

const GROUPED: &str = text!("aggregation");
const NUMBERED: &str = text!("row_number");

/// `weft bench agg`: groups of about one row each, whose strings lie behind them.
pub const AGGREGATION: Cases<'static> = Cases {
    experiment: "agg",
    cases: &[Case { name: "aggregation", sql: GROUPED, reference: GROUPED }],
};

/// `weft bench join`: a large build side, and two large sides.
pub const JOINS: Cases<'static> = Cases {
    experiment: "join",
    cases: &[
        Case {
            name: "with partsupp",
            sql: text!("with_partsupp"),
            reference: text!("with_partsupp.reference"),
        },
        Case {
            name: "with itself",
            sql: text!("with_itself"),
            reference: text!("with_itself.reference"),
        },
    ],
};

/// `weft bench sort`: every row has its number.
pub const SORT: Cases<'static> = Cases {
    experiment: "sort",
    cases: &[Case { name: "row_number", sql: NUMBERED, reference: NUMBERED }],
};

/// Loads the database if needed and runs the queries.
///
/// # Errors
/// [`BenchError`] if the data cannot be had, a query fails or an answer is wrong.
pub fn run(
    args: &SpillArgs,
    machine: &Machine,
    cases: Cases<'_>,
) -> Result<Vec<Point>, BenchError> {
    let threads = args.database.threads();
    load(args, threads[0])?;
    let bar = progress_bar("runs").with_message(cases.experiment);
    let (settings, repeat) = (args.settings(), args.database.common.repeat);
    let points = cases.cases.len() * threads.len() * settings.len();
    bar.set_length(points as u64 * u64::from(repeat));
    let mut points = Vec::with_capacity(points);
    for case in cases.cases {
        let mut first = None;
        for &threads in &threads {
            for settings in &settings {
                let mut runs = Vec::new();
                for _ in 0..repeat {
                    let (run, rows) = run_once(args, case, threads, settings)?;
                    let first =
                        &*first.get_or_insert_with(|| Answer::of_run(rows.clone(), &[], None));
                    first.check(&rows).map_err(|source| wrong(case, source))?;
                    runs.push(run);
                    bar.inc(1);
                }
                runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
                let of_case = Point {
                    experiment: cases.experiment.to_owned(),
                    pattern: Some(case.name.to_owned()),
                    driver: "auto".to_owned(),
                    device: machine.device.clone(),
                    threads,
                    scale: Some(args.database.scale()),
                    partition: setting(settings, "partition").map(str::to_owned),
                    spill_mode: setting(settings, "spill_mode").map(str::to_owned),
                    spill_compression: setting(settings, "spill_compression").map(str::to_owned),
                    io_bandwidth_limit: runs[0].bandwidth_bytes,
                    ..Point::default()
                };
                points.push(point(&runs, of_case));
            }
        }
        if let Some(first) = first {
            let database = open(args, threads[0], &[])?;
            let rows = rows(&database, case.name, "datafusion", case.reference)?;
            first.check(&rows).map_err(|source| wrong(case, source))?;
        }
    }
    bar.finish_and_clear();
    Ok(points)
}

/// Loads what is missing.
fn load(args: &SpillArgs, threads: u32) -> Result<(), BenchError> {
    let (data, scale) = (&args.database.common.data, args.database.scale());
    let files = tpch_load::parquet_directory(data, scale);
    let database = open(args, threads, &[])?;
    tpch_load::load(&database, &files, scale, threads as usize)?;
    Ok(())
}

fn open(args: &SpillArgs, threads: u32, settings: &[(&str, &str)]) -> Result<Database, BenchError> {
    let options = DatabaseOptions::default().with("threads", threads);
    let options =
        settings.iter().fold(options, |options, (name, value)| options.with(*name, *value));
    let path = args.database.database();
    let what = format!("opening {}", path.display());
    Ok(Database::open(&path, &options).map_err(WorkloadError::statement(what))?)
}

fn rows(database: &Database, name: &str, engine: &str, sql: &str) -> Result<TextRows, BenchError> {
    let failed = || WorkloadError::statement(name);
    let session = database.session().map_err(failed())?;
    session.execute(&format!("SET engine = '{engine}'")).map_err(failed())?;
    let batches = session.query(sql).and_then(QueryResult::collect).map_err(failed())?;
    Ok(text_rows(&batches)
        .map_err(|source| WorkloadError::Text { what: name.to_owned(), source })?)
}

fn wrong(case: &Case, source: AnswerError) -> WorkloadError {
    WorkloadError::WrongAnswer { query: case.name.to_owned(), source }
}

#[derive(Clone, Debug)]
struct Run {
    seconds: f64,
    limit_bytes: u64,
    bytes_read: u64,
    bandwidth_bytes: Option<u64>,
    spilled_bytes: u64,
    spilled_bytes_raw: u64,
    compress_ns: Option<f64>,
    decompress_ns: Option<f64>,
    resident_bytes: Option<u64>,
    over_time: OverTime,
}

fn run_once(
    args: &SpillArgs,
    case: &Case,
    threads: u32,
    settings: &[(&str, &str)],
) -> Result<(Run, TextRows), BenchError> {
    // What an earlier run has left of its memory is not this one's.
    heap::trim(0, 0);
    let database = open(args, threads, settings)?;
    resident::reset_peak();
    let timed = || {
        let start = Instant::now();
        let rows = rows(&database, case.name, "auto", case.sql)?;
        Ok::<_, BenchError>((rows, start.elapsed().as_secs_f64()))
    };
    let (timed, over_time) = sampler::watch(&database, timed);
    let (rows, seconds) = timed?;
    let resident_bytes = resident::peak_bytes();
    let stats = database.stats();
    let run = Run {
        seconds,
        limit_bytes: stats.memory_limit,
        bytes_read: stats.bytes_read,
        bandwidth_bytes: stats.io_bandwidth_limit,
        spilled_bytes: stats.spill_bytes_written,
        spilled_bytes_raw: stats.spill_bytes_raw,
        compress_ns: per_byte(stats.spill_compression_ns, stats.spill_bytes_compressed),
        decompress_ns: per_byte(stats.spill_decompression_ns, stats.spill_bytes_decompressed),
        resident_bytes,
        over_time,
    };
    Ok((run, rows))
}

fn per_byte(ns: u64, bytes: u64) -> Option<f64> {
    (bytes > 0).then(|| ns as f64 / bytes as f64)
}

/// The point of runs in the order of their times.
fn point(runs: &[Run], of_case: Point) -> Point {
    let run = &runs[runs.len() / 2];
    Point {
        memory_limit: Some(run.limit_bytes),
        repetitions: runs.len() as u32,
        seconds: run.seconds,
        seconds_min: runs.first().map(|run| run.seconds),
        seconds_max: runs.last().map(|run| run.seconds),
        bytes_read: Some(run.bytes_read),
        spilled_bytes: Some(run.spilled_bytes),
        spilled_bytes_raw: Some(run.spilled_bytes_raw),
        compress_ns: run.compress_ns,
        decompress_ns: run.decompress_ns,
        over_time: Some(run.over_time.clone()),
        resident_bytes_peak: runs.iter().filter_map(|run| run.resident_bytes).max(),
        resident_bytes_allowed: Some(allowed_bytes(run.limit_bytes)),
        answer: Some("correct".to_owned()),
        ..of_case
    }
}
