//! YCSB over one table of 8-byte keys and values in memory (CoroBase, section 5): transactions of some operations each,
//! in the variants of its section 5.1, run in turn so that all of them have the same machine.
//!
//! `ycsb --rows 20000000 --workload read --variants naive,ermia,amac-mk,coro-fn,coro,coro-hard --batch 8 --rounds 3`

use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use hdrhistogram::Histogram;
use weft_buffer::{BufferPool, Devices, PageId, PoolOptions};
use weft_index::{
    Boxed, BulkLoad, Coroutines, Direction, IndexError, Mode, Naive, Prefetching, Space, TreeForm,
};
use weft_rt::io::{DriverKind, File};
use weft_rt::memory::Ledger;
use weft_rt::{Boundary, Runtime, RuntimeOptions};
use weft_txn::{
    Batching, Context, Engine, EngineOptions, Isolation, Result, RowKeys, Table, TableForm,
    Transaction, TransactionOptions, run_batch,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// Reads.
    Read,
    /// Blind updates.
    Update,
    /// Reads of a row, and then an update of it.
    Rmw,
    /// Two read-modify-writes and eight reads.
    Mixed,
    /// One scan of as many rows as there are operations.
    Scan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Variant {
    Naive,
    Ermia,
    AmacMk,
    CoroFn,
    Coro,
    CoroHard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Level {
    ReadCommitted,
    Snapshot,
    Serializable,
}

/// YCSB on weft-txn.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// Rows.
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Operations of a transaction.
    #[arg(long, default_value_t = 10)]
    operations: usize,
    #[arg(long, value_enum, default_value = "read")]
    workload: Workload,
    /// Skew of a Zipfian distribution below 1; 0 is uniform.
    #[arg(long, default_value_t = 0.0)]
    theta: f64,
    /// Workers.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Transactions at a time of the variants with coroutines.
    #[arg(long, default_value_t = 8)]
    batch: usize,
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["naive", "ermia", "coro"])]
    variants: Vec<Variant>,
    #[arg(long, value_enum, default_value = "snapshot")]
    isolation: Level,
    /// Seconds of each run.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Runs of each variant; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Memory for all of it, in MiB.
    #[arg(long, default_value_t = 6144)]
    memory: u64,
    /// Print a line of JSON for each variant.
    #[arg(long)]
    json: bool,
}

#[derive(Default)]
struct Places(Mutex<u64>);

impl Space for Places {
    fn allocate(&self, bytes: usize) -> std::result::Result<PageId, IndexError> {
        let mut end = self.0.lock().expect("nobody panics");
        *end += bytes as u64;
        Ok(PageId::new(0, *end - bytes as u64, bytes))
    }

    fn release(&self, _: PageId) {}
}

struct Keys;

impl RowKeys for Keys {
    fn append_key(&self, _: usize, row: &[u8], key: &mut Vec<u8>) {
        key.extend_from_slice(&row[..8]);
    }
}

/// Numbers of a Zipfian distribution (Gray and others, "Quickly generating billion-record synthetic databases", 1994),
/// scattered over the keys.
#[derive(Clone, Copy)]
struct Zipf {
    rows: u64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    fn new(rows: u64, theta: f64) -> Zipf {
        let zeta_of = |count: u64| (1..=count).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        let zeta = if theta > 0.0 { zeta_of(rows) } else { 0.0 };
        let eta = (1.0 - (2.0 / rows as f64).powf(1.0 - theta)) / (1.0 - zeta_of(2) / zeta);
        Zipf { rows, theta, alpha: 1.0 / (1.0 - theta), zeta, eta }
    }

    fn next(&self, random: &mut fastrand::Rng) -> u64 {
        if self.theta == 0.0 {
            return random.u64(..self.rows);
        }
        let uniform = random.f64();
        let scaled = uniform * self.zeta;
        let rank = if scaled < 1.0 {
            0
        } else if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            1
        } else {
            (self.rows as f64 * (self.eta * uniform - self.eta + 1.0).powf(self.alpha)) as u64
        };
        rank.min(self.rows - 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) % self.rows
    }
}

fn row_of(key: u64, value: u64) -> [u8; 16] {
    let mut row = [0; 16];
    row[..8].copy_from_slice(&key.to_be_bytes());
    row[8..].copy_from_slice(&value.to_le_bytes());
    row
}

async fn load(arguments: &Arguments, ledger: Ledger) -> Result<(Engine, Arc<Table>)> {
    let file = File::unnamed(&std::env::temp_dir()).map_err(IndexError::from)?;
    let pool =
        BufferPool::dynamic(Devices::new(vec![file]), ledger.clone(), PoolOptions::default())
            .map_err(IndexError::from)?;
    let mut tree = BulkLoad::new(pool, Arc::new(Places::default()), TreeForm::new(true));
    for row in 0..arguments.rows {
        tree.push(&row.to_be_bytes(), row, &[]).await?;
    }
    let form = TableForm {
        id: 1,
        primary: Some(tree.finish().await?),
        secondary: Vec::new(),
        keys: Arc::new(Keys),
        frozen: None,
        row_end: arguments.rows,
    };
    let engine = Engine::new(ledger, &EngineOptions::default());
    let table = engine.add_table(Table::new(form)?)?;
    let mut context = engine.context()?;
    for first in (0..arguments.rows).step_by(1000) {
        let mut transaction = context.begin(TransactionOptions::default());
        for key in first..arguments.rows.min(first + 1000) {
            transaction.insert(&table, &row_of(key, key)).await?;
        }
        transaction.commit().await?;
    }
    drop(context);
    Ok((engine, table))
}

/// The operations of one transaction.
async fn operate<M: Mode>(
    transaction: &mut Transaction<'_, M>,
    table: &Arc<Table>,
    arguments: &Arguments,
    keys: &[[u8; 8]],
    is_many: bool,
) -> Result<()> {
    let update = |row: &[u8], changed: &mut Vec<u8>| {
        changed.extend_from_slice(&row[..8]);
        let value = u64::from_le_bytes(row[8..].try_into().expect("8 bytes"));
        changed.extend_from_slice(&value.wrapping_add(1).to_le_bytes());
        true
    };
    match arguments.workload {
        Workload::Read if is_many => {
            for row in transaction.multi_get(table, keys, keys.len()).await? {
                black_box(row.expect("all keys have rows")[15]);
            }
        }
        Workload::Read => {
            for key in keys {
                let row = transaction.get(table, key).await?.expect("all keys have rows");
                assert!(row[..8] == *key, "the row of another key");
                black_box(row[15]);
            }
        }
        Workload::Update => {
            for key in keys {
                assert!(transaction.update_with(table, key, update).await?);
            }
        }
        Workload::Rmw | Workload::Mixed => {
            let changes = if arguments.workload == Workload::Rmw { keys.len() } else { 2 };
            for (at, key) in keys.iter().enumerate() {
                black_box(transaction.get(table, key).await?.expect("all keys have rows")[15]);
                if at < changes {
                    assert!(transaction.update_with(table, key, update).await?);
                }
            }
        }
        Workload::Scan => {
            let mut left = keys.len();
            let visit = |_, row: &[u8]| {
                black_box(row[15]);
                left -= 1;
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let scan = transaction.scan(table, 0, Some(&keys[0]), None, Direction::Forwards, visit);
            scan.await?;
        }
    }
    Ok(())
}

/// What a worker has done.
struct Done {
    commits: u64,
    retries: u64,
    latency: Histogram<u64>,
    /// Processor time of all threads.
    processor_s: f64,
}

impl Done {
    /// Transactions per second of processor time: on a machine that others use, too, this is what counts.
    fn processor_rate(&self) -> f64 {
        self.commits as f64 / self.processor_s
    }
}

async fn work<M: Mode + 'static>(
    engine: Engine,
    table: Arc<Table>,
    arguments: Arguments,
    zipf: Zipf,
    seed: u64,
    (mode, batching, is_many): (M, Batching, bool),
) -> Result<Done> {
    let isolation = match arguments.isolation {
        Level::ReadCommitted => Isolation::ReadCommitted,
        Level::Snapshot => Isolation::Snapshot,
        Level::Serializable => Isolation::Serializable,
    };
    let options = TransactionOptions { isolation, ..TransactionOptions::default() };
    let mut random = fastrand::Rng::with_seed(seed);
    let (start, time) = (Instant::now(), Duration::from_secs_f64(arguments.seconds));
    let latency = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("bounds");
    let done = std::rc::Rc::new(std::cell::RefCell::new(Done {
        commits: 0,
        retries: 0,
        latency,
        processor_s: 0.0,
    }));
    let shared = (&table, &arguments);
    let (count, next_done) = (arguments.operations, done.clone());
    let next = || {
        let began = Instant::now();
        if began - start >= time {
            return None;
        }
        let seed = random.u64(..);
        let done = next_done.clone();
        Some(async move |context: &mut Context| {
            let (table, arguments) = shared;
            let mut random = fastrand::Rng::with_seed(seed);
            let mut keys = [[0; 8]; 64];
            for key in &mut keys[..count] {
                *key = zipf.next(&mut random).to_be_bytes();
            }
            loop {
                let mut transaction = context.begin_in(mode, options);
                let operated =
                    operate(&mut transaction, table, arguments, &keys[..count], is_many).await;
                let committed = match operated {
                    Ok(()) => transaction.commit().await.map(|_| ()),
                    Err(error) => {
                        transaction.rollback().await;
                        Err(error)
                    }
                };
                match committed {
                    Ok(()) => break,
                    Err(error) if error.is_retryable() => done.borrow_mut().retries += 1,
                    Err(error) => return Err(error),
                }
                weft_rt::yield_now().await;
            }
            let mut done = done.borrow_mut();
            done.commits += 1;
            done.latency.saturating_record(began.elapsed().as_nanos() as u64);
            Ok(())
        })
    };
    run_batch(&engine, batching, next).await?;
    drop(next_done);
    Ok(std::rc::Rc::into_inner(done).expect("all have ended").into_inner())
}

/// Transactions per second of one run, and what it took.
fn run(
    runtime: &Runtime,
    engine: &Engine,
    table: &Arc<Table>,
    arguments: &Arguments,
    zipf: Zipf,
    variant: Variant,
) -> (f64, Done) {
    let one = Batching { depth: 1, boundary: Boundary::Weak };
    let depth = arguments.batch;
    let many = move |boundary| Batching { depth, boundary };
    let (start, processor) = (Instant::now(), weft_rt::process_time());
    let tasks: Vec<_> = (0..arguments.threads)
        .map(|worker| {
            let (engine, table, arguments) = (engine.clone(), table.clone(), arguments.clone());
            runtime.spawn_on(worker, move || async move {
                let seed = 1237 + worker as u64;
                match variant {
                    Variant::Naive => {
                        work(engine, table, arguments, zipf, seed, (Naive, one, false)).await
                    }
                    Variant::Ermia => {
                        work(engine, table, arguments, zipf, seed, (Prefetching, one, false)).await
                    }
                    Variant::AmacMk => {
                        work(engine, table, arguments, zipf, seed, (Prefetching, one, true)).await
                    }
                    Variant::CoroFn => {
                        let how = (Boxed(Coroutines), many(Boundary::Weak), false);
                        work(engine, table, arguments, zipf, seed, how).await
                    }
                    Variant::Coro => {
                        let how = (Coroutines, many(Boundary::Weak), false);
                        work(engine, table, arguments, zipf, seed, how).await
                    }
                    Variant::CoroHard => {
                        let how = (Coroutines, many(Boundary::Hard), false);
                        work(engine, table, arguments, zipf, seed, how).await
                    }
                }
            })
        })
        .collect();
    let mut all: Option<Done> = None;
    for task in tasks {
        let done = task.wait().expect("no panic").expect("no error");
        match &mut all {
            None => all = Some(done),
            Some(all) => {
                all.commits += done.commits;
                all.retries += done.retries;
                all.latency.add(&done.latency).expect("the same bounds");
            }
        }
    }
    let mut all = all.expect("a worker");
    all.processor_s = (weft_rt::process_time() - processor).as_secs_f64();
    (all.commits as f64 / start.elapsed().as_secs_f64(), all)
}

fn main() {
    let arguments = Arguments::parse();
    weft_rt::memory::slab::keep_blocks(16 << 20);
    assert!((1..=64).contains(&arguments.operations), "1 to 64 operations");
    let options = RuntimeOptions {
        workers: arguments.threads,
        pin: false,
        driver: DriverKind::Blocking,
        io_depth: 16,
    };
    let runtime = Runtime::new(&options).expect("a runtime");
    let ledger = Ledger::new(arguments.memory << 20);
    let (to_load, budget) = (arguments.clone(), ledger.clone());
    let start = Instant::now();
    let loaded = runtime.block_on(move || async move { load(&to_load, budget).await });
    let (engine, table) = loaded.expect("no panic").expect("memory for all rows");
    eprintln!("{table:?} loaded in {:?}, {} MiB", start.elapsed(), ledger.used() >> 20);
    let zipf = Zipf::new(arguments.rows, arguments.theta);
    let mut rates: Vec<Vec<(f64, Done)>> = arguments.variants.iter().map(|_| Vec::new()).collect();
    for _ in 0..arguments.rounds {
        for (rates, &variant) in rates.iter_mut().zip(&arguments.variants) {
            rates.push(run(&runtime, &engine, &table, &arguments, zipf, variant));
        }
    }
    let mut baselines = None;
    for (rates, variant) in rates.iter_mut().zip(&arguments.variants) {
        rates.sort_by(|left, right| left.1.processor_rate().total_cmp(&right.1.processor_rate()));
        let (rate, done) = &rates[rates.len() / 2];
        let (baseline, processor_baseline) =
            *baselines.get_or_insert((*rate, done.processor_rate()));
        let us = |quantile| done.latency.value_at_quantile(quantile) as f64 / 1000.0;
        let name = variant.to_possible_value().expect("a name");
        if arguments.json {
            let point = serde_json::json!({
                "variant": name.get_name(), "workload": format!("{:?}", arguments.workload).to_lowercase(),
                "rows": arguments.rows, "operations": arguments.operations, "theta": arguments.theta,
                "isolation": format!("{:?}", arguments.isolation), "threads": arguments.threads,
                "batch": arguments.batch, "txn_per_s": rate, "txn_per_processor_s": done.processor_rate(), "retries": done.retries,
                "latency_us_p50": us(0.5), "latency_us_p99": us(0.99), "latency_us_p999": us(0.999),
            });
            println!("{point}");
        } else {
            println!(
                "{:10} {rate:9.0} transactions/s {:5.2}x, {:9.0} per processor second {:5.2}x  p50 {:7.1} us  p99 {:7.1} us  {} retries",
                name.get_name(),
                rate / baseline,
                done.processor_rate(),
                done.processor_rate() / processor_baseline,
                us(0.5),
                us(0.99),
                done.retries
            );
        }
    }
}
