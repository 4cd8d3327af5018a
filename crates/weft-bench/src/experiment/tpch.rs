//! The 22 queries of TPC-H on a database, cold and hot, with their answers checked.
//!
//! A cold run opens the database anew, so that its cache is empty; reads go past the system's. A hot run
//! follows it in the same database. Loading is measured if tables are missing. At a memory limit, what is resident is compared with
//! what may be.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use weft::arrow::array::RecordBatch;
use weft::{Database, DatabaseOptions, DatabaseStats, QueryResult};
use weft_rt::memory::heap;

use super::memory::allowed_bytes;
use super::spill::by_scheme;
use crate::answer::{Answer, TextRows, limit_of, text_rows};
use crate::args::{Settings, TpchArgs};
use crate::data::progress_bar;
use crate::error::BenchError;
use crate::report::{Machine, OverTime, Point};
use crate::workload::tpch_load::{self, Loaded};
use crate::workload::tpch_queries::Query;
use crate::workload::{WorkloadError, tpch_parquet};
use crate::{resident, sampler};

/// What was measured.
#[derive(Clone, Debug)]
pub struct TpchReport {
    /// The load, if there was one, and two points per query and setting: cold and hot.
    pub points: Vec<Point>,
    /// Bytes of the database on its devices.
    pub bytes_on_disk: u64,
    /// Whether answers were compared with known ones, or only with each other.
    pub is_checked: bool,
}

/// How the database is opened for a point.
#[derive(Clone, Debug)]
struct Setting<'a> {
    threads: u32,
    driver: &'a str,
    settings: Settings<'a>,
}

/// Loads the database if needed and runs the queries.
///
/// # Errors
/// [`BenchError`] if the data cannot be had, a query fails or an answer is wrong.
pub fn run(args: &TpchArgs, machine: &Machine) -> Result<TpchReport, BenchError> {
    let queries = args.queries();
    let mut points = Vec::new();
    let settings = settings(args);
    let (loaded, bytes_on_disk) = load(args, machine, &settings[0])?;
    points.extend(loaded);
    let bar = progress_bar("runs").with_message("TPC-H");
    bar.set_length(
        queries.len() as u64 * settings.len() as u64 * 2 * u64::from(args.database.common.repeat),
    );
    let mut is_checked = true;
    for query in &queries {
        let mut reference =
            query.answer(args.database.scale()).map_err(|source| wrong(query, source))?;
        is_checked &= reference.is_some();
        for setting in &settings {
            let [cold, hot] = measure(args, query, setting, &mut reference, &mut || bar.inc(1))?;
            points.push(cold.point(args, machine, query, setting, 0.0));
            points.push(hot.point(args, machine, query, setting, 1.0));
        }
    }
    bar.finish_and_clear();
    compare_with_blocking(&mut points);
    Ok(TpchReport { points, bytes_on_disk, is_checked })
}

/// All combinations.
fn settings(args: &TpchArgs) -> Vec<Setting<'_>> {
    let mut all = Vec::new();
    for threads in args.database.threads() {
        for settings in args.database.settings() {
            let with = |driver| Setting { threads, driver, settings: settings.clone() };
            all.extend(args.io_driver.iter().map(String::as_str).map(with));
        }
    }
    all
}

/// Opens the database, loads what is missing; the point of the load and the size on disk.
fn load(
    args: &TpchArgs,
    machine: &Machine,
    setting: &Setting<'_>,
) -> Result<(Option<Point>, u64), BenchError> {
    let files = tpch_load::parquet_directory(&args.database.common.data, args.database.scale());
    let threads = setting.threads as usize;
    if !args.database.database().exists() {
        // Before memory is counted: making rows takes more of it than loading them.
        tpch_load::generate(&files, args.database.scale(), threads)?;
    }
    heap::trim(0, 0);
    resident::reset_peak();
    let database = open(args, setting)?;
    let loaded = tpch_load::load(&database, &files, args.database.scale(), threads)?;
    let stats = database.stats();
    let point = (!loaded.tables.is_empty())
        .then(|| load_point(args, machine, setting, &loaded, &stats, &files));
    Ok((point, stats.bytes_on_disk))
}

fn load_point(
    args: &TpchArgs,
    machine: &Machine,
    setting: &Setting<'_>,
    loaded: &Loaded,
    stats: &DatabaseStats,
    files: &Path,
) -> Point {
    let seconds = loaded.time.as_secs_f64();
    let parquet_bytes = tpch_parquet::bytes(files).unwrap_or(0);
    Point {
        pattern: Some("load".to_owned()),
        repetitions: 1,
        seconds,
        gb_per_s: (seconds > 0.0).then(|| parquet_bytes as f64 / 1e9 / seconds),
        bytes_read: Some(parquet_bytes),
        bytes_written: Some(stats.bytes_written),
        bytes_on_disk: Some(stats.bytes_on_disk),
        resident_bytes_peak: resident::peak_bytes(),
        memory_limit: Some(stats.memory_limit),
        resident_bytes_allowed: Some(allowed_bytes(stats.memory_limit)),
        answer: None,
        ..setting.point(args, machine)
    }
}

fn open(args: &TpchArgs, setting: &Setting<'_>) -> Result<Database, BenchError> {
    let mut options = DatabaseOptions::default()
        .with("threads", setting.threads)
        .with("io_driver", setting.driver);
    for (name, value) in &setting.settings {
        options = options.with(*name, *value);
    }
    options.devices = args.device.clone();
    let path: PathBuf = args.database.database();
    let opened = Database::open(&path, &options);
    let what = format!("opening {}", path.display());
    Ok(opened.map_err(WorkloadError::statement(what))?)
}

/// The runs of a query, cold or hot.
#[derive(Clone, Debug, Default)]
struct Runs {
    runs: Vec<Run>,
    is_checked: bool,
}

#[derive(Clone, Debug)]
struct Run {
    seconds: f64,
    bytes_read: u64,
    spilled_bytes: u64,
    spilled_bytes_raw: u64,
    spilled_by_scheme: BTreeMap<String, u64>,
    spilled_partitions: u64,
    limit_bytes: u64,
    bandwidth_bytes: Option<u64>,
    resident_bytes: Option<u64>,
    over_time: OverTime,
}

/// The cold and the hot runs of a query. Without a known answer, the first run's is taken for it.
fn measure(
    args: &TpchArgs,
    query: &Query,
    setting: &Setting<'_>,
    reference: &mut Option<Answer>,
    done: &mut dyn FnMut(),
) -> Result<[Runs; 2], BenchError> {
    let is_checked = query.answer(args.database.scale()).is_ok_and(|answer| answer.is_some());
    let [mut cold, mut hot] = [Runs::default(), Runs::default()];
    for repetition in 0..args.database.common.repeat {
        // What an earlier database has left of its memory is not this one's.
        heap::trim(0, 0);
        let database = open(args, setting)?;
        cold.runs.push(run_once(&database, query, reference)?);
        done();
        if repetition + 1 == args.database.common.repeat {
            for _ in 0..args.database.common.repeat {
                hot.runs.push(run_once(&database, query, reference)?);
                done();
            }
        }
    }
    for runs in [&mut cold, &mut hot] {
        runs.is_checked = is_checked;
        runs.runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    }
    Ok([cold, hot])
}

fn run_once(
    database: &Database,
    query: &Query,
    reference: &mut Option<Answer>,
) -> Result<Run, BenchError> {
    let failed = || WorkloadError::statement(query.name());
    let session = database.session().map_err(failed())?;
    resident::reset_peak();
    let before = database.stats();
    let timed = || {
        let start = Instant::now();
        let batches = session.query(query.sql).and_then(QueryResult::collect)?;
        Ok::<_, weft::Error>((batches, start.elapsed().as_secs_f64()))
    };
    let (timed, over_time) = sampler::watch(database, timed);
    let (batches, seconds): (Vec<RecordBatch>, f64) = timed.map_err(failed())?;
    let after = database.stats();
    let resident_bytes = resident::peak_bytes();
    let rows =
        text_rows(&batches).map_err(|source| WorkloadError::Text { what: query.name(), source })?;
    check(query, rows, reference)?;
    Ok(Run {
        seconds,
        bytes_read: after.bytes_read - before.bytes_read,
        spilled_bytes: after.spill_bytes_written - before.spill_bytes_written,
        spilled_bytes_raw: after.spill_bytes_raw - before.spill_bytes_raw,
        spilled_by_scheme: by_scheme(std::array::from_fn(|level| {
            after.spill_bytes_by_level[level] - before.spill_bytes_by_level[level]
        })),
        spilled_partitions: after.spill_partitions - before.spill_partitions,
        bandwidth_bytes: after.io_bandwidth_limit,
        limit_bytes: after.memory_limit,
        resident_bytes,
        over_time,
    })
}

/// Checks an answer against the reference, or makes it one.
fn check(query: &Query, rows: TextRows, reference: &mut Option<Answer>) -> Result<(), BenchError> {
    match reference {
        Some(answer) => Ok(answer.check(&rows).map_err(|source| wrong(query, source))?),
        None => {
            let keys = query.order_keys().map_err(|source| wrong(query, source))?;
            *reference = Some(Answer::of_run(rows, &keys, limit_of(query.sql)));
            Ok(())
        }
    }
}

fn wrong(query: &Query, source: crate::answer::AnswerError) -> WorkloadError {
    WorkloadError::WrongAnswer { query: query.name(), source }
}

impl Setting<'_> {
    /// What all points of the setting share.
    fn point(&self, args: &TpchArgs, machine: &Machine) -> Point {
        Point {
            experiment: "tpch".to_owned(),
            driver: self.driver.to_owned(),
            device: machine.device.clone(),
            threads: self.threads,
            scale: Some(args.database.scale()),
            ..Point::default().with_settings(&self.settings)
        }
    }
}

impl Runs {
    fn point(
        &self,
        args: &TpchArgs,
        machine: &Machine,
        query: &Query,
        setting: &Setting<'_>,
        cached: f64,
    ) -> Point {
        let run = &self.runs[self.runs.len() / 2];
        let answer = if self.is_checked { "correct" } else { "the same in all runs" };
        Point {
            pattern: Some(query.name()),
            cached: Some(cached),
            repetitions: self.runs.len() as u32,
            seconds: run.seconds,
            seconds_min: self.runs.first().map(|run| run.seconds),
            seconds_max: self.runs.last().map(|run| run.seconds),
            memory_limit: Some(run.limit_bytes),
            bytes_read: Some(run.bytes_read),
            spilled_bytes: Some(run.spilled_bytes),
            spilled_bytes_raw: Some(run.spilled_bytes_raw),
            spilled_by_scheme: Some(run.spilled_by_scheme.clone()),
            spilled_partitions: Some(run.spilled_partitions),
            io_bandwidth_limit: run.bandwidth_bytes,
            over_time: Some(run.over_time.clone()),
            resident_bytes_peak: self.runs.iter().filter_map(|run| run.resident_bytes).max(),
            resident_bytes_allowed: Some(allowed_bytes(run.limit_bytes)),
            answer: Some(answer.to_owned()),
            ..setting.point(args, machine)
        }
    }
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
                && other.memory_limit == point.memory_limit
                && other.partition == point.partition
                && other.spill_mode == point.spill_mode
                && other.spill_compression == point.spill_compression
                && other.io_bandwidth_limit == point.io_bandwidth_limit
        });
        let ratio = baseline.map(|other| other.seconds / point.seconds);
        points[index].ratio_to_blocking = ratio;
    }
}
