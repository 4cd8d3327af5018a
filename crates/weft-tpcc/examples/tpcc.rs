//! TPC-C, TPC-CR and TPC-CH in the variants of CoroBase (section 5.8), run in turn so that all of them have the same machine.
//!
//! `tpcc --warehouses 16 --workload tpcc --variants ermia,corobase,hybrid --batch 8 --rounds 3`

use std::time::{Duration, Instant};

use clap::Parser;
use weft_rt::io::DriverKind;
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, RuntimeOptions};
use weft_tpcc::{
    Database, Kind, Measured, RunOptions, Scale, Storage, TpccError, Variant, Workload, check,
    frame_bytes, load, run,
};
use weft_txn::{Durability, Isolation, LogDirectory, LogOptions, TransactionOptions};

/// TPC-C on weft-txn.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    #[arg(long, default_value_t = 8)]
    warehouses: u16,
    /// Suppliers that Q2* looks at.
    #[arg(long, default_value_t = 100)]
    suppliers: u32,
    #[arg(long, default_value = "tpcc")]
    workload: String,
    /// Workers.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Transactions at a time of the variants with coroutines.
    #[arg(long, default_value_t = 8)]
    batch: usize,
    #[arg(long, value_delimiter = ',', default_values = ["naive", "ermia", "corobase", "hybrid"])]
    variants: Vec<String>,
    #[arg(long)]
    serializable: bool,
    /// A directory for a log: commits are durable.
    #[arg(long)]
    log: Option<std::path::PathBuf>,
    /// Seconds of each run.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Runs of each variant; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Memory for all of it, in MiB.
    #[arg(long, default_value_t = 8192)]
    memory: u64,
}

fn main() -> Result<(), TpccError> {
    let arguments = Arguments::parse();
    weft_rt::memory::slab::keep_blocks(16 << 20);
    let is_logged = arguments.log.is_some();
    let driver = if is_logged { DriverKind::Uring } else { DriverKind::Blocking };
    let options = RuntimeOptions { workers: arguments.threads, pin: false, driver, io_depth: 16 };
    let runtime = Runtime::new(&options)?;
    let scale = Scale::of(arguments.warehouses, arguments.suppliers);
    let ledger = Ledger::new(arguments.memory << 20);
    let storage = match &arguments.log {
        None => Storage::Memory,
        Some(path) => Storage::Logged(LogOptions::new(LogDirectory::Os(path.clone()))),
    };
    let start = Instant::now();
    let open = move || async move { Database::open(scale, 1, storage, ledger).await };
    let database = runtime.block_on(open)??;
    load(&runtime, &database, arguments.threads, TransactionOptions::default())?;
    let memory = database.memory_bytes() >> 20;
    eprintln!(
        "{database:?} loaded in {:?}, {memory} MiB, {} expected",
        start.elapsed(),
        scale.bytes() >> 20
    );
    let (frames, operations) = frame_bytes(&database)?;
    eprintln!("{frames:?} {operations:?}");
    let variants: Vec<Variant> =
        arguments.variants.iter().map(|name| Variant::named(name).expect("a variant")).collect();
    let mut runs: Vec<Vec<Measured>> = variants.iter().map(|_| Vec::new()).collect();
    for round in 0..arguments.rounds {
        for (runs, &variant) in runs.iter_mut().zip(&variants) {
            let isolation = match arguments.serializable {
                true => Isolation::Serializable,
                false => Isolation::Snapshot,
            };
            let options = RunOptions {
                variant,
                workload: Workload::named(&arguments.workload).expect("a workload"),
                threads: arguments.threads,
                batch: arguments.batch,
                isolation,
                durability: Durability::Durable,
                time: Duration::from_secs_f64(arguments.seconds),
                seed: 1 + round as u64,
            };
            runs.push(run(&runtime, &database, &options)?);
        }
    }
    let mut baseline = None;
    for (mut runs, variant) in runs.into_iter().zip(variants) {
        runs.sort_by(|left, right| left.processor_rate().total_cmp(&right.processor_rate()));
        let median = &runs[runs.len() / 2];
        let baseline = *baseline.get_or_insert(median.processor_rate());
        let us = |quantile| median.latency_ns.value_at_quantile(quantile) as f64 / 1000.0;
        let aborts: Vec<_> = Kind::ALL
            .into_iter()
            .filter(|&kind| median.aborts(kind) > 0)
            .map(|kind| format!("{} {}/{}", kind.name(), median.aborts(kind), median.commits(kind)))
            .collect();
        println!(
            "{:13} {:8.0} per s, {:8.0} per processor second {:5.2}x ({:.0}-{:.0}), {:9.0} new orders per minute, p50 {:.1} us, p99 {:.1} us; aborts {aborts:?}",
            variant.name(),
            median.rate(),
            median.processor_rate(),
            median.processor_rate() / baseline,
            runs[0].processor_rate(),
            runs[runs.len() - 1].processor_rate(),
            median.new_orders_per_minute(),
            us(0.5),
            us(0.99),
        );
    }
    let start = Instant::now();
    let checked = database.clone();
    runtime.block_on(move || async move { check(&checked).await })??;
    eprintln!(
        "consistent, checked in {:?}; {} MiB",
        start.elapsed(),
        database.memory_bytes() >> 20
    );
    Ok(())
}
