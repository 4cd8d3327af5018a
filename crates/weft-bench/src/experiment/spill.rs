//! Operators whose state outgrows memory, at one memory limit after the other: what spilling costs (Spilly, section 6.3).
//!
//! Every run opens the database anew: tables are read from the device at any limit. The answer of each is compared with the first,
//! and that with DataFusion's operators', to the same query or to one that must have the same. What an allocator keeps of the memory
//! that others take is not what is to be measured: another process loads the data, and the runs by DataFusion come last of all. Settings
//! take turns, so that a slow minute of the machine is not one's alone, and before each run so much memory is touched as one has had.

use std::time::Instant;

use weft::{Database, DatabaseOptions, QueryResult};
use weft_rt::io::Arena;
use weft_rt::memory::heap;

use super::apart;
use super::measured::Measured;
use super::neighbour::{self, Visit};
use crate::answer::{Answer, AnswerError, TextRows, text_rows};
use crate::args::{SpillArgs, setting};
use crate::data::progress_bar;
use crate::error::BenchError;
use crate::report::{Machine, Point};
use crate::workload::tpch_rows::TpchTable::{self, Lineitem, Partsupp};
use crate::workload::{TPCH, WorkloadError, count};
use crate::{resident, sampler};

/// A query, and one with the same answer.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    name: &'static str,
    sql: &'static str,
    reference: &'static str,
    /// Whose rows go in.
    inputs: &'static [TpchTable],
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

/// `weft-bench agg`: groups of about one row each, whose strings lie behind them.
pub const AGGREGATION: Cases<'static> = Cases {
    experiment: "agg",
    cases: &[Case { name: "aggregation", sql: GROUPED, reference: GROUPED, inputs: &[Lineitem] }],
};

/// `weft-bench join`: a large build side, and two large sides.
pub const JOINS: Cases<'static> = Cases {
    experiment: "join",
    cases: &[
        Case {
            name: "with partsupp",
            sql: text!("with_partsupp"),
            reference: text!("with_partsupp.reference"),
            inputs: &[Lineitem, Partsupp],
        },
        Case {
            name: "with itself",
            sql: text!("with_itself"),
            reference: text!("with_itself.reference"),
            inputs: &[Lineitem, Lineitem],
        },
    ],
};

/// `weft-bench sort`: every row has its number.
pub const SORT: Cases<'static> = Cases {
    experiment: "sort",
    cases: &[Case { name: "row_number", sql: NUMBERED, reference: NUMBERED, inputs: &[Lineitem] }],
};

/// Loads the databases that are missing and runs the queries, with the arguments for each of the scale factors.
///
/// # Errors
/// [`BenchError`] if the data cannot be had, a query fails or an answer is wrong.
pub fn run(
    scales: &[SpillArgs],
    machine: &Machine,
    cases: Cases<'_>,
) -> Result<Vec<Point>, BenchError> {
    scales.iter().try_for_each(load)?;
    let bar = progress_bar("runs").with_message(cases.experiment);
    let runs_of = |args: &SpillArgs| {
        let database = &args.database;
        database.threads().len() * database.settings().len() * database.common.repeat as usize
    };
    let runs: usize = scales.iter().map(runs_of).sum();
    bar.set_length((cases.cases.len() * runs) as u64);
    let mut points = Vec::new();
    let mut answers = Vec::new();
    for args in scales {
        for case in cases.cases {
            let of_case =
                Point { experiment: cases.experiment.to_owned(), ..of_case(args, machine, case)? };
            let (measured, answer) = measure(args, case, &of_case, &mut || bar.inc(1))?;
            points.extend(measured);
            answers.push((args, case, answer));
        }
    }
    for (args, case, answer) in answers {
        let database = open(args, args.database.threads()[0], &[])?;
        let rows = rows(&database, case.name, "datafusion", case.reference)?;
        answer.check(&rows).map_err(|source| wrong(case, source))?;
    }
    bar.finish_and_clear();
    Ok(points)
}

/// What all points of a query have in common.
fn of_case(args: &SpillArgs, machine: &Machine, case: &Case) -> Result<Point, BenchError> {
    let database = open(args, args.database.threads()[0], &[])?;
    let session = database.session().map_err(WorkloadError::statement(case.name))?;
    let mut rows = 0;
    for &table in case.inputs {
        rows += count(&session, table.name())?;
    }
    Ok(Point {
        pattern: Some(case.name.to_owned()),
        driver: "auto".to_owned(),
        device: machine.device.clone(),
        scale: Some(args.database.scale()),
        rows: Some(rows),
        ..Point::default()
    })
}

/// The points of a query, and its answer, the same in all runs.
fn measure(
    args: &SpillArgs,
    case: &Case,
    of_case: &Point,
    done: &mut dyn FnMut(),
) -> Result<(Vec<Point>, Answer), BenchError> {
    let (mut points, mut first) = (Vec::new(), None);
    let settings = args.database.settings();
    let of_threads = |threads| settings.iter().map(move |settings| (threads, settings));
    let points_of: Vec<_> = args.database.threads().into_iter().flat_map(of_threads).collect();
    let mut runs: Vec<Vec<Run>> = points_of.iter().map(|_| Vec::new()).collect();
    let mut most_bytes = 0;
    for _ in 0..args.database.common.repeat {
        for ((threads, settings), runs) in points_of.iter().zip(&mut runs) {
            touch(most_bytes);
            let (run, rows) = run_once(args, case, *threads, settings)?;
            let first = &*first.get_or_insert_with(|| Answer::of_run(rows.clone(), &[], None));
            first.check(&rows).map_err(|source| wrong(case, source))?;
            most_bytes = most_bytes.max(run.measured.resident_bytes.unwrap_or(0));
            runs.push(run);
            done();
        }
    }
    for ((threads, settings), mut runs) in points_of.into_iter().zip(runs) {
        runs.sort_by(|a, b| a.measured.seconds.total_cmp(&b.measured.seconds));
        let of_setting = Point { threads, ..of_case.clone().with_settings(settings) };
        points.push(point(&runs, of_setting));
    }
    Ok((points, first.expect("arguments have a number of threads, and of repetitions")))
}

/// Touches and frees so many bytes: below a virtual machine memory that nobody has used for a while comes late, which some runs would
/// pay for, and others not.
fn touch(bytes: u64) {
    if bytes > 0
        && let Ok(memory) = Arena::new(bytes as usize)
    {
        memory.populate(memory.as_ptr(), memory.len());
    }
}

/// Has another process load what is missing.
fn load(args: &SpillArgs) -> Result<(), BenchError> {
    let database = &args.database;
    let (threads, scale) = (database.threads()[0], database.scale());
    let missing = TPCH.missing(&open(args, threads, &[])?, scale)?;
    match missing.is_empty() {
        true => Ok(()),
        false => apart::make(&database.common, scale, threads, Some(&database.database(&TPCH))),
    }
}

fn open(args: &SpillArgs, threads: u32, settings: &[(&str, &str)]) -> Result<Database, BenchError> {
    let options = DatabaseOptions::default().with("threads", threads);
    let options =
        settings.iter().fold(options, |options, (name, value)| options.with(*name, *value));
    let path = args.database.database(&TPCH);
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
    measured: Measured,
    visit: Visit,
    compress_ns: Option<f64>,
    decompress_ns: Option<f64>,
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
    let before = database.stats();
    let timed = || {
        let start = Instant::now();
        let rows = rows(&database, case.name, "auto", case.sql)?;
        Ok::<_, BenchError>((rows, start.elapsed().as_secs_f64()))
    };
    let usual = setting(settings, "io_bandwidth_limit").unwrap_or("unlimited");
    let watched = || sampler::watch(&database, timed);
    let ((timed, over_time), visit) =
        neighbour::beside(&database, args.neighbour.as_ref(), usual, watched)?;
    let (rows, seconds) = timed?;
    let stats = database.stats();
    let run = Run {
        measured: Measured::new(seconds, &before, &stats, over_time),
        visit,
        compress_ns: per_byte(stats.spill_compression_ns, stats.spill_bytes_compressed),
        decompress_ns: per_byte(stats.spill_decompression_ns, stats.spill_bytes_decompressed),
    };
    Ok((run, rows))
}

fn per_byte(ns: u64, bytes: u64) -> Option<f64> {
    (bytes > 0).then(|| ns as f64 / bytes as f64)
}

/// The point of runs in the order of their times.
fn point(runs: &[Run], of_case: Point) -> Point {
    let run = &runs[runs.len() / 2];
    let measured = || runs.iter().map(|run| &run.measured);
    Point {
        repetitions: runs.len() as u32,
        seconds_min: measured().next().map(|run| run.seconds),
        seconds_max: measured().next_back().map(|run| run.seconds),
        neighbour_bytes_per_s: run.visit.bytes_per_s,
        neighbour_from_s: run.visit.came_s,
        neighbour_to_s: run.visit.left_s,
        compress_ns: run.compress_ns,
        decompress_ns: run.decompress_ns,
        resident_bytes_peak: measured().filter_map(|run| run.resident_bytes).max(),
        answer: Some("correct".to_owned()),
        ..run.measured.point(of_case)
    }
}
