//! TPC-C of CoroBase (section 5.8): the standard mix, the read-only mix TPC-CR, and TPC-CH with a query that is as large as there are
//! suppliers for it, on the transaction engine.
//!
//! Variants are the same transactions in other modes and batches; they take turns, so that what else the machine does meets all of
//! them. What is compared is transactions per second of processor time. At the end the twelve consistency conditions of the
//! specification are checked, and with `--durable` again in what is recovered from the log, which is not closed before.

use std::collections::BTreeMap;
use std::time::Duration;

use weft_rt::io::DriverKind;
use weft_rt::memory::{Ledger, slab};
use weft_rt::{Runtime, RuntimeOptions};
use weft_tpcc::{
    Database, Kind, Measured, RunOptions, Scale, Storage, TpccError, Variant, Workload, frame_bytes,
};
use weft_txn::{Durability, Isolation, LogDirectory, LogOptions, TransactionOptions};

use crate::args::{TpccArgs, distinct};
use crate::data::{self, Scratch};
use crate::error::BenchError;
use crate::report::{LatencyUs, Point};
use crate::resident;

/// Bytes of free blocks on huge pages that are kept.
const FREE_BLOCKS_BYTES: usize = 64 << 20;
/// Most time that a change of the load is not durable.
const LOAD_DELAY: Duration = Duration::from_millis(100);

/// What is run, beside the seed.
#[derive(Clone, Copy, Debug)]
struct Case {
    workload: Workload,
    suppliers: u32,
    isolation: Isolation,
    threads: u32,
    variant: Variant,
    batch: u32,
}

/// Where the log lies.
fn logged(scratch: &Scratch) -> Storage {
    Storage::Logged(LogOptions::new(LogDirectory::Os(scratch.path().to_owned())))
}

/// Runs the sweep.
///
/// # Errors
/// [`BenchError`] if there is too little memory, a transaction fails, or a consistency condition does not hold.
pub fn run(args: &TpccArgs) -> Result<Vec<Point>, BenchError> {
    let cases = cases(args);
    let workers = cases.iter().map(|case| case.threads).max().unwrap_or(1) as usize;
    let scale = Scale::of(args.warehouses, args.suppliers.iter().copied().max().unwrap_or(1));
    resident::require(scale.bytes() * 5 / 4, "TPC-C", "use fewer --warehouses")?;
    slab::keep_blocks(FREE_BLOCKS_BYTES);
    let log = args.durable.then(|| Scratch::new(&args.common.data, "tpcc-log")).transpose()?;
    let driver = if args.durable { DriverKind::default() } else { DriverKind::Blocking };
    let options = RuntimeOptions { workers, driver, ..RuntimeOptions::default() };
    let runtime = Runtime::new(&options)?;
    let storage = || log.as_ref().map_or(Storage::Memory, logged);
    let database = open(&runtime, scale, args.common.seed, storage())?;
    let durability = Durability::Relaxed(LOAD_DELAY);
    let options = TransactionOptions { durability, ..TransactionOptions::default() };
    weft_tpcc::load(&runtime, &database, workers, options)?;

    let bar = data::measuring("tpcc", cases.len(), &args.common);
    let mut runs: Vec<Vec<Measured>> = cases.iter().map(|_| Vec::new()).collect();
    for round in 0..args.common.repeat {
        for (case, runs) in cases.iter().zip(&mut runs) {
            let options = RunOptions {
                variant: case.variant,
                workload: case.workload,
                threads: case.threads as usize,
                batch: case.batch as usize,
                isolation: case.isolation,
                durability: Durability::Durable,
                time: Duration::from_secs_f64(args.seconds),
                seed: args.common.seed ^ u64::from(round) << 32,
            };
            let of_case = database.with_suppliers(case.suppliers);
            runs.push(weft_tpcc::run(&runtime, &of_case, &options)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    check(&runtime, &database)?;
    let mut points: Vec<Point> =
        cases.iter().zip(runs).map(|(case, runs)| point(args, case, runs)).collect();
    compare_with_naive(&mut points);
    points.extend(frames(&database)?);
    drop(database);
    if args.durable {
        let recovered = open(&runtime, scale, args.common.seed, storage())?;
        check(&runtime, &recovered)?;
    }
    Ok(points)
}

/// Opens a database that may take what memory there is.
fn open(
    runtime: &Runtime,
    scale: Scale,
    seed: u64,
    storage: Storage,
) -> Result<Database, BenchError> {
    let bytes = resident::available_bytes().map_or(scale.bytes() * 4, |bytes| bytes / 10 * 9);
    let ledger = Ledger::new(bytes);
    let open = move || async move { Database::open(scale, seed, storage, ledger).await };
    Ok(runtime.block_on(open)??)
}

fn check(runtime: &Runtime, database: &Database) -> Result<(), BenchError> {
    let database = database.clone();
    let checked: Result<(), TpccError> =
        runtime.block_on(move || async move { weft_tpcc::check(&database).await })?;
    Ok(checked?)
}

/// All combinations, the variants innermost, so that they are compared within seconds.
fn cases(args: &TpccArgs) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut names: Vec<&String> = Vec::new();
    for name in &args.workload {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let levels: Vec<Isolation> = args.isolation.iter().map(|level| isolation(level)).collect();
    for workload in names.into_iter().filter_map(|name| Workload::named(name)) {
        let suppliers = match workload {
            Workload::Tpcch => distinct(&args.suppliers),
            Workload::Tpcc | Workload::Tpccr => args.suppliers[..1].to_vec(),
        };
        for suppliers in suppliers {
            for isolation in distinct(&levels) {
                for threads in args.common.threads() {
                    let of = Case {
                        workload,
                        suppliers,
                        isolation,
                        threads,
                        variant: Variant::Naive,
                        batch: 1,
                    };
                    cases.extend(variants(args, of));
                }
            }
        }
    }
    cases
}

/// A case with each variant, and with each batch that it can have.
fn variants(args: &TpccArgs, of: Case) -> Vec<Case> {
    let named: Vec<Variant> = args.variant.iter().filter_map(|name| Variant::named(name)).collect();
    let mut cases = Vec::new();
    for variant in distinct(&named) {
        let batches = if variant.is_sequential() { vec![1] } else { distinct(&args.batch) };
        cases.extend(batches.into_iter().map(|batch| Case { variant, batch, ..of }));
    }
    cases
}

pub(super) fn isolation(name: &str) -> Isolation {
    if name == "SSN" { Isolation::Serializable } else { Isolation::Snapshot }
}

/// The run in the middle of those of a case.
fn point(args: &TpccArgs, case: &Case, mut runs: Vec<Measured>) -> Point {
    runs.sort_by(|left, right| left.processor_rate().total_cmp(&right.processor_rate()));
    let (repetitions, middle) = (runs.len() as u32, runs.len() / 2);
    let run = runs.swap_remove(middle);
    let us = |quantile| run.latency_ns.value_at_quantile(quantile) as f64 / 1000.0;
    let latency =
        LatencyUs { p50: us(0.5), p90: us(0.9), p99: us(0.99), p999: us(0.999), max: us(1.0) };
    let kinds = Kind::ALL.into_iter().filter(|kind| run.commits(*kind) > 0);
    let aborts: BTreeMap<String, u64> =
        kinds.map(|kind| (kind.name().to_owned(), run.aborts(kind))).collect();
    let is_tpcch = case.workload == Workload::Tpcch;
    Point {
        experiment: "tpcc".to_owned(),
        pattern: Some(format!("{}, {} warehouses", case.workload.name(), args.warehouses)),
        workload: Some(case.workload.name().to_owned()),
        variant: Some(case.variant.name().to_owned()),
        batch: Some(case.batch),
        warehouses: Some(args.warehouses.into()),
        suppliers: is_tpcch.then_some(case.suppliers),
        isolation: Some(
            if case.isolation == Isolation::Serializable { "SSN" } else { "SI" }.into(),
        ),
        durable: Some(args.durable),
        driver: "memory".to_owned(),
        device: "DRAM".to_owned(),
        threads: case.threads,
        depth: case.batch,
        repetitions,
        seconds: run.seconds,
        txn_per_s: Some(run.rate()),
        txn_per_processor_s: Some(run.processor_rate()),
        new_orders_per_minute: (run.commits(Kind::NewOrder) > 0)
            .then(|| run.new_orders_per_minute()),
        aborts: Some(aborts),
        latency_us: Some(latency),
        answer: Some("correct".to_owned()),
        ..Point::default()
    }
}

/// Bytes of coroutines: of the engine's operations, and of each kind of transaction.
fn frames(database: &Database) -> Result<Vec<Point>, BenchError> {
    let (transactions, operations) = frame_bytes(database)?;
    let transactions =
        transactions.into_iter().map(|frame| (frame.kind.name(), frame.flat, frame.boxed));
    let of = |name: &str, variant: &str, bytes: usize| Point {
        experiment: "tpcc".to_owned(),
        pattern: Some(format!("frame: {name}")),
        variant: Some(variant.to_owned()),
        driver: "memory".to_owned(),
        device: "DRAM".to_owned(),
        threads: 1,
        repetitions: 1,
        frame_bytes: Some(bytes as u64),
        ..Point::default()
    };
    let frames = operations.into_iter().chain(transactions).flat_map(|(name, flat, boxed)| {
        [of(name, "corobase", flat), of(name, "corobase-fn", boxed)]
    });
    Ok(frames.collect())
}

/// Fills in how many times the transactions of *naive* each point has per second of processor time.
pub(super) fn compare_with_naive(points: &mut [Point]) {
    for index in 0..points.len() {
        let point = &points[index];
        let naive = points.iter().find(|other| {
            other.variant.as_deref() == Some("naive")
                && other.pattern == point.pattern
                && other.suppliers == point.suppliers
                && other.isolation == point.isolation
                && other.threads == point.threads
                && other.driver == point.driver
        });
        let rates = naive.and_then(|naive| naive.txn_per_processor_s);
        let rates = rates.zip(point.txn_per_processor_s);
        points[index].ratio_to_naive = rates.map(|(naive, own)| own / naive);
    }
}
