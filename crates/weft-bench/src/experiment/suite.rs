//! The queries of TPC-H or TPC-DS on a database, cold and hot, with their answers checked.
//!
//! A cold run opens the database anew, so that its cache is empty; reads go past the system's. A hot run
//! follows it in the same database. Loading is measured if tables are missing. At a memory limit, what is resident is compared with
//! what may be. A query that fails is a point that says why, and the others run nevertheless.
//!
//! Where no answer is known, that of a query's first run is what the others are compared with; and if memory was limited, it is
//! compared itself with that of a run without the limit. These runs come last: what they leave in the process is nobody's.

use std::path::{Path, PathBuf};
use std::time::Instant;

use weft::arrow::array::RecordBatch;
use weft::{Database, DatabaseOptions, DatabaseStats, QueryResult};
use weft_rt::memory::heap;

use super::measured::Measured;
use super::memory::allowed_bytes;
use crate::answer::{Answer, AnswerError, PackedRows, TextRows, limit_of, text_rows};
use crate::args::{Settings, SuiteArgs};
use crate::data::progress_bar;
use crate::error::BenchError;
use crate::report::{Machine, Point};
use crate::workload::{Loaded, Query, Suite, WorkloadError};
use crate::{resident, sampler};

/// What was measured.
#[derive(Clone, Debug)]
pub struct SuiteReport {
    /// The benchmark.
    pub suite: &'static Suite,
    /// The load, if there was one, and two points per query and setting: cold and hot. One that failed cold has no hot one.
    pub points: Vec<Point>,
    /// Bytes of the database on its devices.
    pub bytes_on_disk: u64,
    /// What the answers were compared with.
    pub compared: Compared,
}

/// What answers were compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// The answers that are known.
    Known,
    /// Those of runs with as much memory as a database takes by itself.
    Unlimited,
    /// Those of the first runs.
    EachOther,
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
/// [`BenchError`] if the data cannot be had or the database cannot be opened. Queries that fail are points.
pub fn run(
    suite: &'static Suite,
    args: &SuiteArgs,
    queries: &[&Query],
    machine: &Machine,
) -> Result<SuiteReport, BenchError> {
    let runner = Runner { suite, args, machine };
    let settings = settings(args);
    let mut points = Vec::new();
    let (loaded, bytes_on_disk) = runner.load(&settings[0])?;
    points.extend(loaded);
    let bar = progress_bar("runs").with_message(suite.title);
    let repetitions = u64::from(args.database.common.repeat);
    bar.set_length(queries.len() as u64 * settings.len() as u64 * 2 * repetitions);
    let is_limited = !args.database.memory_limit.is_empty();
    let mut firsts = Vec::new();
    for &query in queries {
        let known = query.answer(args.database.scale()).map_err(|source| wrong(query, source))?;
        let mut reference = Reference { is_known: known.is_some(), answer: known, first: None };
        for setting in &settings {
            points.extend(runner.measure(query, setting, &mut reference, &mut || bar.inc(1))?);
        }
        if is_limited {
            firsts.extend(reference.first.map(|rows| (query, rows)));
        }
    }
    bar.finish_and_clear();
    let compared = match points.iter().any(|point| point.answer.as_deref() == Some(SAME)) {
        true if is_limited => Compared::Unlimited,
        true => Compared::EachOther,
        false => Compared::Known,
    };
    runner.compare_with_unlimited(&firsts, &settings[0], &mut points)?;
    compare_with_blocking(&mut points);
    Ok(SuiteReport { suite, points, bytes_on_disk, compared })
}

/// Checks that all queries of a run have answers.
///
/// # Errors
/// [`BenchError::Queries`] with those that have not, and why.
pub fn check(points: &[Point]) -> Result<(), BenchError> {
    let failed: Vec<String> = points.iter().filter_map(Point::failure).collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(BenchError::Queries { failed: failed.join("\n") }),
    }
}

/// The answer of a point that is as a known one.
const CORRECT: &str = "correct";
/// That of one which is as those of the other runs.
const SAME: &str = "the same in all runs";

/// What a query has to answer.
struct Reference {
    is_known: bool,
    /// The known answer, or that of the first run.
    answer: Option<Answer>,
    /// What the first run returned, if the answer is not known.
    first: Option<PackedRows>,
}

impl Reference {
    /// Checks an answer, or makes it the one that later ones are compared with.
    fn check(&mut self, query: &Query, rows: TextRows) -> Result<(), WorkloadError> {
        if let Some(answer) = &self.answer {
            return answer.check(&rows).map_err(|source| wrong(query, source));
        }
        self.first = Some(PackedRows::of(&rows));
        self.answer = Some(answer_of_run(query, rows)?);
        Ok(())
    }
}

fn answer_of_run(query: &Query, rows: TextRows) -> Result<Answer, WorkloadError> {
    let keys = query.order_keys().map_err(|source| wrong(query, source))?;
    Ok(Answer::of_run(rows, &keys, limit_of(query.sql)))
}

fn wrong(query: &Query, source: AnswerError) -> WorkloadError {
    WorkloadError::WrongAnswer { query: query.name(), source }
}

/// All combinations.
fn settings(args: &SuiteArgs) -> Vec<Setting<'_>> {
    let mut all = Vec::new();
    for threads in args.database.threads() {
        for settings in args.database.settings() {
            let with = |driver| Setting { threads, driver, settings: settings.clone() };
            all.extend(args.io_driver.iter().map(String::as_str).map(with));
        }
    }
    all
}

/// What is the same for all queries and settings.
struct Runner<'a> {
    suite: &'static Suite,
    args: &'a SuiteArgs,
    machine: &'a Machine,
}

impl Runner<'_> {
    /// Opens the database, loads what is missing; the point of the load and the size on disk.
    fn load(&self, setting: &Setting<'_>) -> Result<(Option<Point>, u64), BenchError> {
        let (suite, database) = (self.suite, &self.args.database);
        let files = suite.directory(&database.common.data, database.scale());
        let threads = setting.threads as usize;
        if !database.database(suite).exists() {
            // Before memory is counted: making rows takes more of it than loading them.
            suite.generate(&files, database.scale(), threads)?;
        }
        heap::trim(0, 0);
        resident::reset_peak();
        let opened = self.open(setting)?;
        let loaded = suite.load(&opened, &files, database.scale(), threads)?;
        let stats = opened.stats();
        let point =
            (!loaded.tables.is_empty()).then(|| self.load_point(setting, &loaded, &stats, &files));
        Ok((point, stats.bytes_on_disk))
    }

    fn load_point(
        &self,
        setting: &Setting<'_>,
        loaded: &Loaded,
        stats: &DatabaseStats,
        files: &Path,
    ) -> Point {
        let seconds = loaded.time.as_secs_f64();
        let file_bytes = self.suite.file_bytes(files, self.args.database.scale());
        Point {
            pattern: Some("load".to_owned()),
            repetitions: 1,
            seconds,
            gb_per_s: (seconds > 0.0).then(|| file_bytes as f64 / 1e9 / seconds),
            bytes_read: Some(file_bytes),
            bytes_written: Some(stats.bytes_written),
            bytes_on_disk: Some(stats.bytes_on_disk),
            resident_bytes_peak: resident::peak_bytes(),
            memory_limit: Some(stats.memory_limit),
            resident_bytes_allowed: Some(allowed_bytes(stats.memory_limit)),
            answer: None,
            ..self.point(setting)
        }
    }

    fn open(&self, setting: &Setting<'_>) -> Result<Database, BenchError> {
        let mut options = DatabaseOptions::default()
            .with("threads", setting.threads)
            .with("io_driver", setting.driver);
        for (name, value) in &setting.settings {
            options = options.with(*name, *value);
        }
        options.devices = self.args.device.clone();
        let path: PathBuf = self.args.database.database(self.suite);
        let opened = Database::open(&path, &options);
        let what = format!("opening {}", path.display());
        Ok(opened.map_err(WorkloadError::statement(what))?)
    }

    /// The points of a query: of its cold runs, and of its hot ones if none of the cold ones has failed.
    fn measure(
        &self,
        query: &Query,
        setting: &Setting<'_>,
        reference: &mut Reference,
        done: &mut dyn FnMut(),
    ) -> Result<Vec<Point>, BenchError> {
        let repetitions = self.args.database.common.repeat as usize;
        let (mut cold, mut hot) = (Runs::default(), Runs::default());
        while cold.runs.len() < repetitions && !cold.has_failed() {
            // What an earlier database has left of its memory is not this one's.
            heap::trim(0, 0);
            let database = self.open(setting)?;
            cold.runs.push(run_once(&database, query, reference));
            done();
            let is_last = cold.runs.len() == repetitions;
            while is_last && !cold.has_failed() && hot.runs.len() < repetitions && !hot.has_failed()
            {
                hot.runs.push(run_once(&database, query, reference));
                done();
            }
        }
        let answer = if reference.is_known { CORRECT } else { SAME };
        let measured =
            [(cold, 0.0), (hot, 1.0)].into_iter().filter(|(runs, _)| !runs.runs.is_empty());
        let points = measured.map(|(runs, cached)| Point {
            pattern: Some(query.name()),
            cached: Some(cached),
            ..runs.point(answer, self.point(setting))
        });
        Ok(points.collect())
    }

    /// What all points of a setting share.
    fn point(&self, setting: &Setting<'_>) -> Point {
        Point {
            experiment: self.suite.name.to_owned(),
            driver: setting.driver.to_owned(),
            device: self.machine.device.clone(),
            threads: setting.threads,
            scale: Some(self.args.database.scale()),
            ..Point::default().with_settings(&setting.settings)
        }
    }

    /// Runs queries with the memory that a database takes by itself, and compares what their first runs have returned: the points
    /// say whether it was right.
    fn compare_with_unlimited(
        &self,
        firsts: &[(&Query, PackedRows)],
        setting: &Setting<'_>,
        points: &mut [Point],
    ) -> Result<(), BenchError> {
        if firsts.is_empty() {
            return Ok(());
        }
        heap::trim(0, 0);
        let database = self.open(&Setting { settings: Settings::new(), ..setting.clone() })?;
        let bar = progress_bar("queries").with_message("comparing with runs without a limit");
        bar.set_length(firsts.len() as u64);
        for (query, first) in firsts {
            let compared = rows(&database, query).and_then(|rows| {
                let answer = answer_of_run(query, rows)?;
                answer.check(&first.unpack()).map_err(|source| wrong(query, source))
            });
            let answer = match compared {
                Ok(()) => CORRECT.to_owned(),
                Err(error) => Point::failed(&format!("without a limit on memory, {error}")),
            };
            let name = query.name();
            let is_its =
                |point: &&mut Point| point.pattern.as_deref() == Some(&name) && !point.has_failed();
            points.iter_mut().filter(is_its).for_each(|point| point.answer = Some(answer.clone()));
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(())
    }
}

/// The runs of a query, cold or hot. Only the last can have failed.
#[derive(Debug, Default)]
struct Runs {
    runs: Vec<Run>,
}

#[derive(Debug)]
struct Run {
    /// Why there is no right answer, if there is none.
    error: Option<WorkloadError>,
    measured: Measured,
}

fn run_once(database: &Database, query: &Query, reference: &mut Reference) -> Run {
    resident::reset_peak();
    let before = database.stats();
    let timed = || {
        let start = Instant::now();
        let batches = batches(database, query);
        (batches, start.elapsed().as_secs_f64())
    };
    let ((batches, seconds), over_time) = sampler::watch(database, timed);
    let measured = Measured::new(seconds, &before, &database.stats(), over_time);
    let checked = batches
        .and_then(|batches| as_text(query, &batches))
        .and_then(|rows| reference.check(query, rows));
    Run { error: checked.err(), measured }
}

fn batches(database: &Database, query: &Query) -> Result<Vec<RecordBatch>, WorkloadError> {
    let session = database.session().map_err(WorkloadError::statement(query.name()))?;
    let batches = session.query(query.sql).and_then(QueryResult::collect);
    batches.map_err(WorkloadError::statement(query.name()))
}

fn as_text(query: &Query, batches: &[RecordBatch]) -> Result<TextRows, WorkloadError> {
    text_rows(batches).map_err(|source| WorkloadError::Text { what: query.name(), source })
}

fn rows(database: &Database, query: &Query) -> Result<TextRows, WorkloadError> {
    as_text(query, &batches(database, query)?)
}

impl Runs {
    fn has_failed(&self) -> bool {
        self.runs.last().is_some_and(|run| run.error.is_some())
    }

    /// The point of the median run, or of the one that has failed.
    fn point(mut self, answer: &str, of_setting: Point) -> Point {
        let resident = self.runs.iter().filter_map(|run| run.measured.resident_bytes);
        let resident_bytes_peak = resident.max();
        let failed = self.runs.pop_if(|run| run.error.is_some());
        self.runs.sort_by(|a, b| a.measured.seconds.total_cmp(&b.measured.seconds));
        let seconds = |run: &Run| run.measured.seconds;
        let run = failed.as_ref().unwrap_or_else(|| &self.runs[self.runs.len() / 2]);
        let error = run.error.as_ref();
        Point {
            repetitions: self.runs.len() as u32 + u32::from(failed.is_some()),
            seconds_min: self.runs.first().map(seconds),
            seconds_max: self.runs.last().map(seconds),
            resident_bytes_peak,
            answer: Some(error.map_or_else(|| answer.to_owned(), |error| Point::failed(error))),
            ..run.measured.point(of_setting)
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
                && !other.has_failed()
                && !point.has_failed()
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
