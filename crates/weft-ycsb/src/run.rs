//! Runs: workers that execute transactions for some time, in one of the variants.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use weft_index::{Boxed, Coroutines, Mode, Naive, Prefetching};
use weft_rt::{Batch, Runtime};
use weft_txn::{Context, Isolation, TransactionOptions};

use crate::database::Database;
use crate::error::{Result, YcsbError};
use crate::operations::{Key, OPERATIONS_MAX, is_by_key, operate};
use crate::random::Zipf;
use crate::variant::{Variant, Workload};

/// Longest latency that is told apart, in nanoseconds.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// How transactions wait for memory.
    pub variant: Variant,
    /// What they do.
    pub workload: Workload,
    /// Operations of a transaction, 1 to [`OPERATIONS_MAX`].
    pub operations: usize,
    /// Skew of the keys: 0 is uniform; below 1.
    pub theta: f64,
    /// Workers: at most those of the runtime.
    pub threads: usize,
    /// Transactions of a worker at a time, 1 to [`weft_rt::BATCH_DEPTH_MAX`]; sequential variants have one.
    pub batch: usize,
    /// What transactions see of each other.
    pub isolation: Isolation,
    /// How long no transaction more is begun after.
    pub time: Duration,
    /// Seed of all keys.
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
    /// Transactions that have committed.
    pub commits: u64,
    /// How often a transaction was rolled back because of others, and run again.
    pub aborts: u64,
}

impl Measured {
    fn new() -> Measured {
        let latency_ns = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("bounds");
        Measured { seconds: 0.0, processor_seconds: 0.0, latency_ns, commits: 0, aborts: 0 }
    }

    /// Transactions per second.
    pub fn rate(&self) -> f64 {
        self.commits as f64 / self.seconds
    }

    /// Transactions per second of processor time: what counts on a machine that others use, too.
    pub fn processor_rate(&self) -> f64 {
        self.commits as f64 / self.processor_seconds
    }

    fn add(&mut self, other: &Measured) {
        self.commits += other.commits;
        self.aborts += other.aborts;
        self.latency_ns.add(&other.latency_ns).expect("the same bounds");
    }
}

/// Runs transactions for some time on the workers of a runtime, from outside of it.
///
/// # Errors
/// [`YcsbError`] if a transaction fails for another reason than that of others, which ends the run.
pub fn run(
    runtime: &Runtime,
    database: &Database,
    options: &RunOptions,
) -> std::result::Result<Measured, YcsbError> {
    if !(1..=OPERATIONS_MAX).contains(&options.operations) {
        let message = format!("a transaction has 1 to {OPERATIONS_MAX} operations");
        return Err(YcsbError::Form(message));
    }
    let zipf = Zipf::new(database.form.rows, options.theta);
    let (start, processor) = (Instant::now(), weft_rt::process_time());
    let workers: Vec<_> = (0..options.threads)
        .map(|worker| {
            let (database, mut options) = (database.clone(), *options);
            options.seed ^= (worker as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let work = move || async move { work_in_variant(database, options, zipf).await };
            runtime.spawn_on(worker, work)
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
    let updates = all.commits * options.workload.updates(options.operations) as u64;
    database.updates.fetch_add(updates, Ordering::Relaxed);
    failed.map_or(Ok(all), Err)
}

async fn work_in_variant(database: Database, options: RunOptions, zipf: Zipf) -> Result<Measured> {
    match options.variant {
        Variant::Naive => work(database, options, zipf, Naive).await,
        Variant::Ermia | Variant::AmacMk => work(database, options, zipf, Prefetching).await,
        Variant::CoroFnMk | Variant::CoroBaseFn => {
            work(database, options, zipf, Boxed(Coroutines)).await
        }
        Variant::CoroMk | Variant::CoroBase | Variant::CoroBaseHard => {
            work(database, options, zipf, Coroutines).await
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
    zipf: Zipf,
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
    let next = || {
        let began = Instant::now();
        if began - start >= options.time {
            return None;
        }
        let seed = random.u64(..);
        let worker = of_batch.clone();
        Some(async move {
            let context = worker.contexts.borrow_mut().pop();
            let mut context = context.expect("there are as many as coroutines");
            let Worker { database, options, measured, .. } = &*worker;
            let Database { table, form, .. } = database;
            let RunOptions { workload, isolation, operations, .. } = *options;
            let of_transaction = TransactionOptions { isolation, ..TransactionOptions::default() };
            let (lookups, updates) = (options.variant.lookups(), workload.updates(operations));
            // Outside of the coroutine, whose frames stay in the caches.
            let mut random = fastrand::Rng::with_seed(seed);
            let keys: Vec<Key> =
                (0..operations).map(|_| Key::new(*form, zipf.next(&mut random))).collect();
            loop {
                let mut transaction = context.begin_in(mode, of_transaction);
                let operated: Result<()> = if !is_by_key(workload, lookups) {
                    operate(&mut transaction, database, &keys, (workload, lookups)).await
                } else {
                    // No function stands between, as it would be gone through whenever the transaction goes on.
                    'operations: {
                        for (at, key) in keys.iter().enumerate() {
                            if workload != Workload::Update {
                                let seen = match transaction.get(table, key.as_ref()).await {
                                    Ok(row) => key.see(row.as_deref()),
                                    Err(error) => Err(error.into()),
                                };
                                if seen.is_err() {
                                    break 'operations seen;
                                }
                            }
                            if at < updates {
                                let change = |row: &[u8], changed: &mut Vec<u8>| {
                                    form.increment(row, changed);
                                    true
                                };
                                match transaction.update_with(table, key.as_ref(), change).await {
                                    Ok(true) => {}
                                    Ok(false) => break 'operations key.see(None),
                                    Err(error) => break 'operations Err(error.into()),
                                }
                            }
                        }
                        Ok(())
                    }
                };
                let ended = match operated {
                    Ok(()) => transaction.commit().await.map(|_| ()).map_err(YcsbError::from),
                    Err(error) => {
                        transaction.rollback().await;
                        Err(error)
                    }
                };
                match ended {
                    Ok(()) => break,
                    Err(YcsbError::Transaction(error)) if error.is_retryable() => {
                        measured.borrow_mut().aborts += 1;
                    }
                    Err(error) => return Err(error),
                }
                context.wait_for_conflict().await;
            }
            worker.contexts.borrow_mut().push(context);
            let mut measured = worker.measured.borrow_mut();
            measured.commits += 1;
            measured.latency_ns.saturating_record(began.elapsed().as_nanos() as u64);
            Ok::<(), YcsbError>(())
        })
    };
    Batch::new(batching.depth, batching.boundary, next).await?;
    drop(of_batch);
    let worker = Rc::into_inner(worker).expect("all coroutines have ended");
    Ok(worker.measured.into_inner())
}
