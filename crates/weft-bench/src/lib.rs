//! The experiments: what coroutines buy on this machine.
//!
//! Each experiment takes its options, measures points, checks every answer, and hands the points to
//! the [`report`]. Synchronous and asynchronous runs are interleaved in one process, so that what
//! else the machine does meanwhile hits both.

pub mod allocations;
pub mod answer;
pub mod args;
pub mod data;
pub mod dram;
pub mod error;
pub mod experiment;
pub mod fio;
pub mod harness;
pub mod optimum;
pub mod report;
pub mod resident;
mod sampler;
pub mod scratch;
pub mod size_class;
pub mod tpch;
pub mod workload;

use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

use args::{
    AllArgs, BenchArgs, CommonArgs, DataArgs, Experiment, SpillArgs, SuiteArgs, cores, distinct,
};
pub use error::BenchError;
use experiment::{
    compile, compression, coroutine, htap, inlj, io, lookup, memory, neighbour, prefetch, probe,
    rate, scan, spill, storage, suite, tpcc, ycsb,
};
use report::{Machine, Point, Settings};
pub use size_class::SizeClass;
use weft::{Database, DatabaseOptions};
use workload::{Query, Suite, TPCDS, TPCH, WorkloadError};

/// Runs the experiment that the arguments ask for and prints its points.
///
/// # Errors
/// [`BenchError`] with the reason: bad options or data, a failed device, a wrong answer.
pub fn run(args: &BenchArgs) -> Result<(), BenchError> {
    let common = args.experiment.common();
    args.experiment.check()?;
    let mut machine = Machine::detect(&args.experiment.places());
    machine.date = today();
    // Before minutes of measuring, not after.
    if let Some(directory) = &common.out {
        report::prepare(directory)?;
    }
    let mut summary = None;
    // What is wrong with the points, said when they have been shown.
    let mut verdict = Ok(());
    let points = match &args.experiment {
        Experiment::All(all) => run_all(all, &machine)?,
        Experiment::Io(io) => io::run(io, &machine)?,
        Experiment::Scan(scan) => scan::run(scan, &machine)?,
        Experiment::Lookup(lookup) => lookup::run(lookup, &machine)?,
        Experiment::Prefetch(prefetch) => prefetch::run(prefetch, &machine)?,
        Experiment::Probe(args) => probe::run(args, &machine)?,
        Experiment::Coroutine(args) => coroutine::run(args)?,
        Experiment::Tpcc(args) => tpcc::run(args)?,
        Experiment::Ycsb(args) => ycsb::run(args)?,
        Experiment::Htap(args) => htap::run(args)?,
        Experiment::Memory(memory) => {
            let (points, outcome) = memory::run(memory, &machine)?;
            verdict = outcome.and(memory::check(&points));
            points
        }
        Experiment::Data(data) => {
            let directory = TPCH.directory(&common.data, data.scale);
            let threads = distinct(&common.threads).first().copied().unwrap_or_else(cores);
            TPCH.generate(&directory, data.scale, threads as usize)?;
            if data.load {
                load(data, threads)?;
            }
            return Ok(());
        }
        Experiment::Storage(storage) => {
            let points = storage::run(storage, &machine)?;
            summary = Some(table(&points) + &storage::summary(&points));
            points
        }
        Experiment::Rate(args) => {
            let points = rate::run(args, &machine)?;
            summary = Some(table(&points) + &rate::summary(&points));
            points
        }
        Experiment::Compile(args) => {
            let (points, text) = compile::run(args, &machine)?;
            summary = Some(text);
            points
        }
        Experiment::Agg(args) => spilled(
            args,
            spill::run(&args.at_scales(), &machine, spill::AGGREGATION)?,
            &mut verdict,
        ),
        Experiment::Join(args) => {
            spilled(args, spill::run(&args.at_scales(), &machine, spill::JOINS)?, &mut verdict)
        }
        Experiment::Sort(args) => {
            spilled(args, spill::run(&args.at_scales(), &machine, spill::SORT)?, &mut verdict)
        }
        Experiment::Compression(args) => {
            let points = spilled(args, compression::run(args, &machine)?, &mut verdict);
            summary = Some(table(&points) + &compression::summary(&points));
            points
        }
        Experiment::Inlj(args) => {
            let points = inlj::run(args, &machine)?;
            summary = Some(table(&points) + &inlj::summary(&points));
            points
        }
        Experiment::Tpch(args) => {
            let (points, text) =
                queried(&TPCH, &args.suite, &args.queries(), &machine, &mut verdict)?;
            summary = Some(text);
            points
        }
        Experiment::Tpcds(args) => {
            let (points, text) =
                queried(&TPCDS, &args.suite, &args.queries(), &machine, &mut verdict)?;
            summary = Some(text);
            points
        }
    };
    let text = if common.json {
        report::json::to_lines(&points)?
    } else {
        summary.unwrap_or_else(|| table(&points))
    };
    print(&text)?;
    if let Some(directory) = &common.out {
        let page = write_report(directory, &machine, common, &points)?;
        if !common.json {
            print(&format!("The report is {page}.\n"))?;
        }
    }
    verdict
}

fn table(points: &[Point]) -> String {
    report::table::render(points, report::table::Layout::of_stdout())
}

/// Loads a database of TPC-H where it lacks tables.
fn load(args: &DataArgs, threads: u32) -> Result<(), BenchError> {
    let (path, files) = (args.database(), TPCH.directory(&args.common.data, args.scale));
    let what = format!("opening {}", path.display());
    let options = DatabaseOptions::default().with("threads", threads);
    let database = Database::open(&path, &options).map_err(WorkloadError::statement(what))?;
    TPCH.load(&database, &files, args.scale, threads as usize)?;
    Ok(())
}

/// The points of queries that spill; the verdict on them is that of their memory, and that the neighbour came, if there is one.
fn spilled(
    args: &SpillArgs,
    points: Vec<Point>,
    verdict: &mut Result<(), BenchError>,
) -> Vec<Point> {
    let came = if args.neighbour.is_some() { neighbour::check(&points) } else { Ok(()) };
    *verdict = memory::check(&points).and(came);
    points
}

/// The points of the queries of a benchmark, and what is said of them; the verdict is that all have right answers, and that
/// of their memory, if it was limited.
fn queried(
    suite: &'static Suite,
    args: &SuiteArgs,
    queries: &[&Query],
    machine: &Machine,
    verdict: &mut Result<(), BenchError>,
) -> Result<(Vec<Point>, String), BenchError> {
    let (mut points, mut text) = (Vec::new(), String::new());
    for args in args.at_scales() {
        let report = suite::run(suite, &args, queries, machine)?;
        text.push_str(&report::suite::render(&report));
        points.extend(report.points);
    }
    let is_limited = !args.database.memory_limit.is_empty();
    let memory = if is_limited { memory::check(&points) } else { Ok(()) };
    *verdict = match (suite::check(&points), memory) {
        (Err(failed), Err(memory)) => Err(BenchError::Both(Box::new(failed), Box::new(memory))),
        (failed, memory) => failed.and(memory),
    };
    Ok((points, text))
}

/// Every experiment, at sizes that take a few minutes.
fn run_all(all: &AllArgs, machine: &Machine) -> Result<Vec<Point>, BenchError> {
    let mut points = Vec::new();
    for command in all.commands() {
        match command {
            Experiment::Io(io) => points.extend(io::run(&io, machine)?),
            Experiment::Scan(scan) => points.extend(scan::run(&scan, machine)?),
            Experiment::Lookup(lookup) => points.extend(lookup::run(&lookup, machine)?),
            Experiment::Prefetch(prefetch) => points.extend(prefetch::run(&prefetch, machine)?),
            _ => unreachable!("all consists of the four above"),
        }
    }
    Ok(points)
}

fn print(text: &str) -> Result<(), BenchError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(source) => {
            Err(BenchError::Io { action: "write to", path: "standard output".into(), source })
        }
        Ok(()) => Ok(()),
    }
}

/// Writes the report; the path of its page.
fn write_report(
    directory: &Path,
    machine: &Machine,
    common: &CommonArgs,
    points: &[Point],
) -> Result<String, BenchError> {
    let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let entries = vec![
        ("repetitions".to_owned(), common.repeat.to_string()),
        ("seed".to_owned(), common.seed.to_string()),
        ("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let settings = Settings { command: format!("weft-bench {command}"), entries };
    let files = report::write(directory, machine, &settings, points)?;
    Ok(files.last().map(|page| page.display().to_string()).unwrap_or_default())
}

/// Today's date, UTC, as year-month-day.
fn today() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let day = (since.as_secs() / 86_400) as i64;
    // Days since 1 March of year 0: leap days come last in a year that starts in March.
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
