//! YCSB of CoroBase (sections 5.4 to 5.7): transactions of some operations on one table, on the transaction engine.
//!
//! Variants are the same transactions in other modes and batches; they take turns, so that what else the machine does meets all of
//! them. Where memory holds the whole table, what is compared is transactions per second of processor time. Where it holds a
//! part (`--cached`), rows and index lie in files, and transactions per second are compared with the best of the blocking
//! driver. At the end of each table the counters of all rows are compared with the updates that have committed.

use std::time::Duration;

use weft_rt::io::DriverKind;
use weft_rt::memory::{Ledger, slab};
use weft_rt::{Runtime, RuntimeOptions};
use weft_txn::Isolation;
use weft_ycsb::{Database, Form, Measured, Place, RunOptions, Variant, Workload, check};

use super::tpcc::{compare_with_naive, isolation};
use crate::args::{YcsbArgs, distinct};
use crate::data::{self, Scratch};
use crate::error::BenchError;
use crate::report::{LatencyUs, Point};
use crate::resident;

/// Bytes of free blocks on huge pages that are kept.
const FREE_BLOCKS_BYTES: usize = 64 << 20;
/// The least memory that a part of a table is given.
const MEMORY_BYTES_MIN: u64 = 16 << 20;
/// Memory that the index of a table is written with.
const PREPARE_BYTES: u64 = 256 << 20;

/// A table, and how what is not in memory is read.
#[derive(Clone, Debug)]
struct Setup {
    form: Form,
    cached: f64,
    driver: String,
}

/// What is run on a table.
#[derive(Clone, Copy, Debug)]
struct Case {
    workload: Workload,
    operations: u32,
    theta: f64,
    isolation: Isolation,
    threads: u32,
    variant: Variant,
    batch: u32,
}

/// Runs the sweep.
///
/// # Errors
/// [`BenchError`] if there is too little memory or room for files, a transaction fails, or an update is lost.
pub fn run(args: &YcsbArgs) -> Result<Vec<Point>, BenchError> {
    let (setups, cases) = (setups(args), cases(args));
    slab::keep_blocks(FREE_BLOCKS_BYTES);
    let runs = setups.len() * cases.len();
    let bar = data::measuring("ycsb", runs, &args.common);
    let mut points = Vec::new();
    for setup in &setups {
        points.extend(of_setup(args, setup, &cases, &bar)?);
    }
    bar.finish_and_clear();
    compare_with_naive(&mut points);
    compare_with_blocking(&mut points);
    Ok(points)
}

/// The runs of one table.
fn of_setup(
    args: &YcsbArgs,
    setup: &Setup,
    cases: &[Case],
    bar: &indicatif::ProgressBar,
) -> Result<Vec<Point>, BenchError> {
    let workers = cases.iter().map(|case| case.threads).max().unwrap_or(1) as usize;
    let driver = match setup.driver.as_str() {
        "memory" | "blocking" => DriverKind::Blocking,
        "uring" => DriverKind::Uring,
        "posix" => DriverKind::Posix,
        _ => DriverKind::Auto,
    };
    let depth = cases.iter().map(|case| case.batch).max().unwrap_or(1) as usize;
    let options =
        RuntimeOptions { workers, driver, io_depth: depth.max(16), ..RuntimeOptions::default() };
    let runtime = Runtime::new(&options)?;
    let (form, mut place) = (setup.form, None);
    let database = if setup.cached < 1.0 {
        let directory = Scratch::new(&args.common.data, "ycsb")?;
        let ledger = Ledger::new(PREPARE_BYTES);
        let files = weft_ycsb::prepare(&runtime, form, directory.path(), ledger)?;
        let memory = (files.bytes() as f64 * setup.cached) as u64;
        let ledger = Ledger::new(memory.max(MEMORY_BYTES_MIN));
        let database = Database::open(&runtime, form, Place::Files(files), ledger)?;
        place = Some(directory);
        database
    } else {
        resident::require(form.memory_bytes() * 5 / 4, "YCSB", "use fewer --rows")?;
        let bytes =
            resident::available_bytes().map_or(form.memory_bytes() * 4, |bytes| bytes / 10 * 9);
        Database::open(&runtime, form, Place::Memory, Ledger::new(bytes))?
    };
    let mut runs: Vec<Vec<Measured>> = cases.iter().map(|_| Vec::new()).collect();
    for round in 0..args.common.repeat {
        for (case, runs) in cases.iter().zip(&mut runs) {
            let options = RunOptions {
                variant: case.variant,
                workload: case.workload,
                operations: case.operations as usize,
                theta: case.theta,
                threads: case.threads as usize,
                batch: case.batch as usize,
                isolation: case.isolation,
                time: Duration::from_secs_f64(args.seconds),
                seed: args.common.seed ^ u64::from(round) << 32,
            };
            runs.push(weft_ycsb::run(&runtime, &database, &options)?);
            bar.inc(1);
        }
    }
    check(&runtime, &database)?;
    drop(database);
    drop(place);
    Ok(cases.iter().zip(runs).map(|(case, runs)| point(setup, case, runs)).collect())
}

/// The tables, with each driver that has something to read.
fn setups(args: &YcsbArgs) -> Vec<Setup> {
    let mut setups = Vec::new();
    for rows in distinct(&args.rows) {
        let form =
            Form { rows, key_bytes: args.key_bytes.into(), value_bytes: args.value_bytes.into() };
        let mut fractions = args.cached.clone();
        fractions.sort_by(f64::total_cmp);
        fractions.dedup();
        for cached in fractions {
            let mut drivers: Vec<String> = Vec::new();
            for driver in &args.driver {
                if !drivers.contains(driver) {
                    drivers.push(driver.clone());
                }
            }
            if cached >= 1.0 {
                drivers = vec!["memory".to_owned()];
            }
            setups.extend(drivers.into_iter().map(|driver| Setup { form, cached, driver }));
        }
    }
    setups
}

/// All combinations, the variants innermost, so that they are compared within seconds.
fn cases(args: &YcsbArgs) -> Vec<Case> {
    let mut names: Vec<&String> = Vec::new();
    for name in &args.workload {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let levels: Vec<Isolation> = args.isolation.iter().map(|level| isolation(level)).collect();
    let named: Vec<Variant> = args.variant.iter().filter_map(|name| Variant::named(name)).collect();
    let mut skews = args.theta.clone();
    skews.sort_by(f64::total_cmp);
    skews.dedup();
    let mut cases = Vec::new();
    for workload in names.into_iter().filter_map(|name| Workload::named(name)) {
        for operations in distinct(&args.operations) {
            for &theta in &skews {
                for isolation in distinct(&levels) {
                    for threads in args.common.threads() {
                        for variant in distinct(&named) {
                            let batches = match variant.is_sequential() {
                                true => vec![1],
                                false => distinct(&args.batch),
                            };
                            cases.extend(batches.into_iter().map(|batch| Case {
                                workload,
                                operations,
                                theta,
                                isolation,
                                threads,
                                variant,
                                batch,
                            }));
                        }
                    }
                }
            }
        }
    }
    cases
}

/// The run in the middle of those of a case.
fn point(setup: &Setup, case: &Case, mut runs: Vec<Measured>) -> Point {
    let is_in_memory = setup.cached >= 1.0;
    runs.sort_by(|left, right| match is_in_memory {
        true => left.processor_rate().total_cmp(&right.processor_rate()),
        false => left.rate().total_cmp(&right.rate()),
    });
    let (repetitions, middle) = (runs.len() as u32, runs.len() / 2);
    let run = runs.swap_remove(middle);
    let us = |quantile| run.latency_ns.value_at_quantile(quantile) as f64 / 1000.0;
    let latency =
        LatencyUs { p50: us(0.5), p90: us(0.9), p99: us(0.99), p999: us(0.999), max: us(1.0) };
    let skew = if case.theta > 0.0 { format!(", theta {}", case.theta) } else { String::new() };
    let place = match is_in_memory {
        true => String::new(),
        false => format!(", {} % in memory", setup.cached * 100.0),
    };
    let (rows, operations) = (setup.form.rows, case.operations);
    let name = case.workload.name();
    Point {
        experiment: "ycsb".to_owned(),
        pattern: Some(format!("{name}, {operations} operations{skew}, {rows} rows{place}")),
        workload: Some(name.to_owned()),
        variant: Some(case.variant.name().to_owned()),
        batch: Some(case.batch),
        isolation: Some(
            if case.isolation == Isolation::Serializable { "SSN" } else { "SI" }.into(),
        ),
        driver: setup.driver.clone(),
        device: if is_in_memory { "DRAM" } else { "files" }.to_owned(),
        threads: case.threads,
        depth: case.batch,
        cached: (!is_in_memory).then_some(setup.cached),
        repetitions,
        seconds: run.seconds,
        txn_per_s: Some(run.rate()),
        txn_per_processor_s: Some(run.processor_rate()),
        aborts: Some([(name.to_owned(), run.aborts)].into()),
        latency_us: Some(latency),
        answer: Some("correct".to_owned()),
        ..Point::default()
    }
}

/// Fills in how many times the transactions of the fastest variant with the blocking driver each other point of files has.
fn compare_with_blocking(points: &mut [Point]) {
    for index in 0..points.len() {
        let point = &points[index];
        let of_blocking = points.iter().filter(|other| {
            other.is_blocking()
                && !point.is_blocking()
                && other.pattern == point.pattern
                && other.isolation == point.isolation
                && other.threads == point.threads
        });
        let best = of_blocking.filter_map(|other| other.txn_per_s).reduce(f64::max);
        let rates = best.zip(point.txn_per_s).filter(|(best, _)| *best > 0.0);
        points[index].ratio_to_blocking = rates.map(|(best, own)| own / best);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asynchronous_points_are_compared_with_the_best_of_the_blocking_driver() {
        let point = |driver: &str, variant: &str, rate: f64| Point {
            driver: driver.to_owned(),
            variant: Some(variant.to_owned()),
            pattern: Some("read".to_owned()),
            txn_per_s: Some(rate),
            ..Point::default()
        };
        let mut points = vec![
            point("blocking", "naive", 10.0),
            point("blocking", "corobase", 20.0),
            point("uring", "corobase", 100.0),
        ];
        compare_with_blocking(&mut points);
        let ratios: Vec<_> = points.iter().map(|point| point.ratio_to_blocking).collect();
        assert_eq!(ratios, [None, None, Some(5.0)]);
    }
}
