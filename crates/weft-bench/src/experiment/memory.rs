//! Resident memory during an import, scans, groupings, sorts and joins of data ten times larger than the
//! memory limit.
//!
//! The kernel counts: the largest resident memory of the process, its code included, may exceed the
//! limit by 5 % and 64 MiB. The data is made by a process of its own, which leaves nothing behind in
//! this one's memory.

use std::fs;
use std::path::Path;
use std::time::Instant;

use weft::{Database, DatabaseOptions};

use super::apart;
use crate::args::{MemoryArgs, cores, distinct};
use crate::error::BenchError;
use crate::report::{Machine, Point};
use crate::resident;
use crate::workload::tpch_rows::TpchTable;
use crate::workload::{TPCH, WorkloadError, tpch_parquet};

/// Resident memory beside the limit that is allowed, in bytes.
const ALLOWANCE_BYTES: u64 = 64 << 20;

/// How many times larger than the limit the data is.
const DATA_TO_LIMIT: u64 = 10;

/// What is run after the import, each twice: with nothing in the cache, and with what fits.
const QUERIES: [(&str, &str); 6] = [
    (
        "scan of all columns",
        "SELECT count(l_orderkey), count(l_partkey), count(l_suppkey), count(l_linenumber), \
         sum(l_quantity), sum(l_extendedprice), sum(l_discount), sum(l_tax), max(l_returnflag), \
         max(l_linestatus), max(l_shipdate), max(l_commitdate), max(l_receiptdate), \
         max(l_shipinstruct), max(l_shipmode), max(l_comment) FROM lineitem",
    ),
    (
        "grouping",
        "SELECT l_shipdate, count(*), sum(l_extendedprice) FROM lineitem GROUP BY l_shipdate",
    ),
    (
        "large grouping",
        "SELECT count(*) FROM (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey)",
    ),
    (
        "sort",
        "SELECT l_orderkey, l_extendedprice, l_comment FROM lineitem ORDER BY l_comment, l_orderkey",
    ),
    (
        "window function",
        "SELECT l_orderkey, row_number() OVER (PARTITION BY l_partkey ORDER BY l_shipdate) \
         FROM lineitem",
    ),
    (
        "join",
        "SELECT count(*), min(a.l_comment), max(b.l_comment) FROM lineitem a JOIN lineitem b \
         ON a.l_orderkey = b.l_orderkey AND a.l_linenumber = b.l_linenumber",
    ),
];

/// Runs the import and the queries in a database of their own, which is removed afterwards. Also tells how
/// the first query failed that did; the others run nevertheless.
///
/// # Errors
/// [`BenchError`] if the data cannot be had or the import fails.
pub fn run(
    args: &MemoryArgs,
    machine: &Machine,
) -> Result<(Vec<Point>, Result<(), BenchError>), BenchError> {
    let files = TPCH.directory(&args.common.data, args.scale);
    let threads = distinct(&args.common.threads).first().copied().unwrap_or_else(cores);
    if !tpch_parquet::is_complete(&files) {
        apart::make(&args.common, args.scale, threads, None)?;
    }
    let bytes = fs::metadata(tpch_parquet::path_of(&files, TpchTable::Lineitem.name()))
        .map_or(0, |found| found.len());
    let default = || (bytes / DATA_TO_LIMIT).to_string();
    let limit = args.memory_limit.clone().unwrap_or_else(default);
    let path = args.common.data.join(format!("memory-{}.weft", std::process::id()));
    let phases = Phases { args, machine, threads, limit, files: &files };
    let outcome = phases.run(&path);
    // The error that matters is that of the phases.
    fs::remove_dir_all(&path).ok();
    outcome
}

/// Checks the points of a run.
///
/// # Errors
/// [`BenchError::Resident`] with the phases that had more memory than allowed.
pub fn check(points: &[Point]) -> Result<(), BenchError> {
    let exceeded = |point: &&Point| point.resident_bytes_peak > point.resident_bytes_allowed;
    let mut phases: Vec<&str> =
        points.iter().filter(exceeded).filter_map(|point| point.pattern.as_deref()).collect();
    phases.dedup();
    match phases.is_empty() {
        true => Ok(()),
        false => Err(BenchError::Resident { phases: phases.join(", ") }),
    }
}

/// Resident memory that a process may have whose database has this limit, in bytes.
pub fn allowed_bytes(limit_bytes: u64) -> u64 {
    limit_bytes + limit_bytes / 20 + ALLOWANCE_BYTES
}

struct Phases<'a> {
    args: &'a MemoryArgs,
    machine: &'a Machine,
    threads: u32,
    limit: String,
    files: &'a Path,
}

impl Phases<'_> {
    fn run(&self, path: &Path) -> Result<(Vec<Point>, Result<(), BenchError>), BenchError> {
        let options = DatabaseOptions::default()
            .with("threads", self.threads)
            .with("memory_limit", &self.limit);
        let opening = || WorkloadError::statement(format!("opening {}", path.display()));
        let mut points = Vec::new();
        resident::reset_peak();
        let start = Instant::now();
        let database = Database::open(path, &options).map_err(opening())?;
        points.push(self.point("open", &database, start));

        let source = tpch_parquet::path_of(self.files, TpchTable::Lineitem.name());
        let source = source.display().to_string().replace('\'', "''");
        let import = format!("CREATE TABLE lineitem AS SELECT * FROM '{source}'");
        points.push(self.measure("import", &database, &import)?);
        drop(database);
        let database = Database::open(path, &options).map_err(opening())?;
        let mut outcome = Ok(());
        for (what, sql) in QUERIES {
            for what in [what.to_owned(), format!("{what}, again")] {
                let start = Instant::now();
                match self.measure(&what, &database, sql) {
                    Ok(point) => points.push(point),
                    Err(error) => {
                        let failed = Some("failed".to_owned());
                        points
                            .push(Point { answer: failed, ..self.point(&what, &database, start) });
                        outcome = outcome.and(Err(error));
                    }
                }
            }
        }
        Ok((points, outcome))
    }

    fn measure(&self, what: &str, database: &Database, sql: &str) -> Result<Point, BenchError> {
        let failed = || WorkloadError::statement(what);
        let session = database.session().map_err(failed())?;
        let before = database.stats();
        resident::reset_peak();
        let start = Instant::now();
        let mut result = session.query(sql).map_err(failed())?;
        // The rows are read and dropped: nobody keeps a large result.
        while result.next_batch().map_err(failed())?.is_some() {}
        let after = database.stats();
        Ok(Point {
            bytes_read: Some(after.bytes_read - before.bytes_read),
            bytes_written: Some(after.bytes_written - before.bytes_written),
            ..self.point(what, database, start)
        })
    }

    fn point(&self, what: &str, database: &Database, start: Instant) -> Point {
        let seconds = start.elapsed().as_secs_f64();
        let peak = resident::peak_bytes();
        let stats = database.stats();
        let allowed = allowed_bytes(stats.memory_limit);
        let verdict = match peak {
            None => "not known".to_owned(),
            Some(peak) if peak <= allowed => "within".to_owned(),
            Some(peak) => format!("{:.1} % too much", (peak as f64 / allowed as f64 - 1.0) * 100.0),
        };
        Point {
            experiment: "memory".to_owned(),
            pattern: Some(what.to_owned()),
            driver: "auto".to_owned(),
            device: self.machine.device.clone(),
            threads: self.threads,
            scale: Some(self.args.scale),
            repetitions: 1,
            seconds,
            bytes_on_disk: Some(stats.bytes_on_disk),
            resident_bytes_peak: peak,
            resident_bytes_allowed: Some(allowed),
            answer: Some(verdict),
            ..Point::default()
        }
    }
}
