//! Runs: workers that execute a mix of transactions for some time, in one of the variants.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use weft_index::{Boxed, Coroutines, Mode, Naive, Prefetching};
use weft_rt::{Batch, Runtime};
use weft_txn::{Context, Durability, Isolation, TransactionOptions};

use crate::database::Database;
use crate::error::{Result, TpccError};
use crate::inputs::{Input, Kind};
use crate::transactions::{
    Outcome, delivery, new_order, order_status, payment, query2, stock_level,
};
use crate::variant::{Variant, Workload};

/// Longest latency that is told apart, in nanoseconds.
const LATENCY_NS_MAX: u64 = 600_000_000_000;
const KINDS: usize = Kind::ALL.len();

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// How transactions wait for memory.
    pub variant: Variant,
    /// The mix.
    pub workload: Workload,
    /// Workers: at most those of the runtime.
    pub threads: usize,
    /// Transactions of a worker at a time, 1 to [`weft_rt::BATCH_DEPTH_MAX`]; sequential variants have one.
    pub batch: usize,
    /// What transactions see of each other.
    pub isolation: Isolation,
    /// When a commit is reported, if the database has a log.
    pub durability: Durability,
    /// How long no transaction more is begun after.
    pub time: Duration,
    /// Seed of all inputs.
    pub seed: u64,
}

/// What a run has done.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Its time.
    pub seconds: f64,
    /// Processor time of all threads of the process meanwhile.
    pub processor_seconds: f64,
    /// Nanoseconds from the first begin of a transaction to its end, over all times that it was run.
    pub latency_ns: Histogram<u64>,
    commits: [u64; KINDS],
    aborts: [u64; KINDS],
    refused: u64,
}

impl Measured {
    fn new() -> Measured {
        let latency_ns = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("bounds");
        Measured {
            seconds: 0.0,
            processor_seconds: 0.0,
            latency_ns,
            commits: [0; KINDS],
            aborts: [0; KINDS],
            refused: 0,
        }
    }

    /// Transactions of a kind that have committed.
    pub fn commits(&self, kind: Kind) -> u64 {
        self.commits[kind as usize]
    }

    /// How often a transaction of a kind was rolled back because of others, and run again.
    pub fn aborts(&self, kind: Kind) -> u64 {
        self.aborts[kind as usize]
    }

    /// New-Orders that were rolled back as their input demands.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Transactions per second of all kinds that have ended, committed or as their input demands.
    pub fn rate(&self) -> f64 {
        self.ended() as f64 / self.seconds
    }

    /// The same per second of processor time: what counts on a machine that others use, too.
    pub fn processor_rate(&self) -> f64 {
        self.ended() as f64 / self.processor_seconds
    }

    /// New-Orders that have committed per minute. It is no tpmC: there are neither terminals nor think times.
    pub fn new_orders_per_minute(&self) -> f64 {
        self.commits(Kind::NewOrder) as f64 * 60.0 / self.seconds
    }

    fn ended(&self) -> u64 {
        self.commits.iter().sum::<u64>() + self.refused
    }

    fn add(&mut self, other: &Measured) {
        let both = self.commits.iter_mut().zip(other.commits);
        both.for_each(|(sum, count)| *sum += count);
        let both = self.aborts.iter_mut().zip(other.aborts);
        both.for_each(|(sum, count)| *sum += count);
        self.refused += other.refused;
        self.latency_ns.add(&other.latency_ns).expect("the same bounds");
    }
}

/// Runs transactions for some time on the workers of a runtime, from outside of it.
///
/// # Errors
/// [`TpccError`] if a transaction fails for another reason than that of others, which ends the run.
pub fn run(
    runtime: &Runtime,
    database: &Database,
    options: &RunOptions,
) -> std::result::Result<Measured, TpccError> {
    run_until(runtime, database, options, &Arc::default())
}

/// As [`run`]; no transaction is begun any more once `stop` is true.
///
/// # Errors
/// As [`run`].
pub fn run_until(
    runtime: &Runtime,
    database: &Database,
    options: &RunOptions,
    stop: &Arc<AtomicBool>,
) -> std::result::Result<Measured, TpccError> {
    let (start, processor) = (Instant::now(), weft_rt::process_time());
    let workers: Vec<_> = (0..options.threads)
        .map(|worker| {
            let (database, mut options) = (database.clone(), *options);
            let stop = Arc::clone(stop);
            options.seed ^= (worker as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            runtime.spawn_on(worker, move || async move {
                work_in_variant(database, options, stop).await
            })
        })
        .collect();
    let mut all = Measured::new();
    let mut failed = None;
    for worker in workers {
        match worker.wait()? {
            Ok(measured) => all.add(&measured),
            Err(error) => _ = failed.get_or_insert(error),
        }
    }
    all.seconds = start.elapsed().as_secs_f64();
    all.processor_seconds = (weft_rt::process_time() - processor).as_secs_f64();
    failed.map_or(Ok(all), Err)
}

async fn work_in_variant(
    database: Database,
    options: RunOptions,
    stop: Arc<AtomicBool>,
) -> Result<Measured> {
    match options.variant {
        Variant::Naive => work(database, options, &stop, Naive).await,
        Variant::Ermia | Variant::CoroMk => work(database, options, &stop, Prefetching).await,
        Variant::CoroBaseFn => work(database, options, &stop, Boxed(Coroutines)).await,
        Variant::CoroBase | Variant::CoroBaseHard | Variant::Hybrid => {
            work(database, options, &stop, Coroutines).await
        }
    }
}

/// What the coroutines of a worker share.
struct Worker {
    database: Database,
    options: RunOptions,
    contexts: RefCell<Vec<Context>>,
    measured: RefCell<Measured>,
}

/// Runs batches of transactions until the time is over.
async fn work<M: Mode + 'static>(
    database: Database,
    options: RunOptions,
    stop: &AtomicBool,
    mode: M,
) -> Result<Measured> {
    let batching = options.variant.batching(options.batch);
    let contexts: weft_txn::Result<Vec<Context>> =
        (0..batching.depth).map(|_| database.engine.context()).collect();
    let worker = Rc::new(Worker {
        database,
        options,
        contexts: RefCell::new(contexts?),
        measured: RefCell::new(Measured::new()),
    });
    let mut random = fastrand::Rng::with_seed(options.seed);
    let (start, of_batch) = (Instant::now(), worker.clone());
    let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let next = || {
        let began = Instant::now();
        let elapsed = began - start;
        if elapsed >= options.time || stop.load(Ordering::Relaxed) {
            return None;
        }
        let now = (epoch + elapsed).as_micros() as u64;
        let (kind, input) = of_batch.database.draw(options.workload, &mut random, now);
        let worker = of_batch.clone();
        Some(async move {
            let context = worker.contexts.borrow_mut().pop();
            let mut context = context.expect("there are as many as coroutines");
            let ended = transact(&worker, &mut context, mode, kind, &input).await?;
            worker.contexts.borrow_mut().push(context);
            let mut measured = worker.measured.borrow_mut();
            match ended {
                Outcome::Done => measured.commits[kind as usize] += 1,
                Outcome::Refused => measured.refused += 1,
            }
            measured.latency_ns.saturating_record(began.elapsed().as_nanos() as u64);
            Ok::<(), TpccError>(())
        })
    };
    Batch::new(batching.depth, batching.boundary, next).await?;
    drop(of_batch);
    let worker = Rc::into_inner(worker).expect("all coroutines have ended");
    Ok(worker.measured.into_inner())
}

fn done((): ()) -> Outcome {
    Outcome::Done
}

/// Runs a transaction, again and again if others are in its way.
async fn transact<M: Mode>(
    worker: &Worker,
    context: &mut Context,
    mode: M,
    kind: Kind,
    input: &Input,
) -> Result<Outcome> {
    let Worker { database, options, measured, .. } = worker;
    let RunOptions { isolation, durability, variant, .. } = *options;
    let of_transaction = TransactionOptions { isolation, durability, retries: 0 };
    loop {
        let mut transaction = context.begin_in(mode, of_transaction);
        let of = &mut transaction;
        let is_multi_key = variant.is_multi_key();
        // No function between, as for `see`.
        let executed = match input {
            Input::NewOrder(order) => new_order::run(database, of, order, is_multi_key).await,
            Input::Payment(pay) => payment::run(database, of, pay).await.map(done),
            Input::OrderStatus { w, d, whom } => {
                order_status::run(database, of, (*w, *d), *whom).await.map(done)
            }
            Input::Delivery { w, carrier, now } => {
                delivery::run(database, of, *w, *carrier, *now).await.map(done)
            }
            Input::StockLevel { w, d, threshold } => {
                let of_district = (*w, *d);
                stock_level::run(database, of, of_district, *threshold, is_multi_key)
                    .await
                    .map(done)
            }
            Input::Query2 { region } => {
                query2::run(database, of, *region, is_multi_key).await.map(done)
            }
        };
        let ended = match executed {
            Ok(Outcome::Done) => match transaction.commit().await {
                Ok(_) => Ok(Outcome::Done),
                Err(error) => Err(error.into()),
            },
            Ok(Outcome::Refused) => {
                transaction.rollback().await;
                Ok(Outcome::Refused)
            }
            Err(error) => {
                transaction.rollback().await;
                Err(error)
            }
        };
        match ended {
            Err(TpccError::Transaction(error)) if error.is_retryable() => {
                measured.borrow_mut().aborts[kind as usize] += 1;
            }
            ended => return ended,
        }
        context.wait_for_conflict().await;
    }
}
