//! What these tests run over: a runtime, a small database, a time limit.

use std::sync::mpsc;
use std::time::Duration;

use weft_rt::io::DriverKind;
use weft_rt::memory::{Ledger, slab};
use weft_rt::{Runtime, RuntimeOptions};
use weft_tpcc::{
    Database, Measured, RunOptions, Scale, Storage, TpccError, Variant, Workload, check,
};
use weft_txn::{Durability, Isolation, TransactionOptions};

/// Far more than any test takes, so that a lost wake-up is a failure and not a hang.
const LIMIT: Duration = Duration::from_secs(300);
const MEMORY_BYTES: u64 = 512 << 20;

pub fn runtime(driver: DriverKind, workers: usize) -> Runtime {
    // Versions lie in cells.
    slab::keep_blocks(16 << 20);
    Runtime::new(&RuntimeOptions { workers, pin: false, driver, io_depth: 16 }).unwrap()
}

/// An empty database, or what a log has of it.
pub fn open(
    runtime: &Runtime,
    scale: Scale,
    seed: u64,
    storage: Storage,
) -> Result<Database, TpccError> {
    let ledger = Ledger::new(MEMORY_BYTES);
    let open = move || async move { Database::open(scale, seed, storage, ledger).await };
    runtime.block_on(open).unwrap()
}

/// A database in memory with its first rows.
pub fn loaded(runtime: &Runtime, scale: Scale, seed: u64) -> Database {
    let database = open(runtime, scale, seed, Storage::Memory).unwrap();
    weft_tpcc::load(runtime, &database, 1, TransactionOptions::default()).unwrap();
    database
}

/// A short run of the standard mix by coroutines on one worker.
pub fn options(seed: u64) -> RunOptions {
    RunOptions {
        variant: Variant::CoroBase,
        workload: Workload::Tpcc,
        threads: 1,
        batch: 8,
        isolation: Isolation::Snapshot,
        durability: Durability::Durable,
        time: Duration::from_millis(300),
        seed,
    }
}

pub fn run(
    runtime: &Runtime,
    database: &Database,
    options: &RunOptions,
) -> Result<Measured, TpccError> {
    weft_tpcc::run(runtime, database, options)
}

pub fn checked(runtime: &Runtime, database: &Database) -> Result<(), TpccError> {
    let database = database.clone();
    runtime.block_on(move || async move { check(&database).await }).unwrap()
}

/// Runs `test` on a thread of its own.
///
/// # Panics
/// If it panics, or has not ended after five minutes.
pub fn within_limit(test: impl FnOnce() + Send + 'static) {
    let (ended, end) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        ended.send(()).ok();
    });
    match end.recv_timeout(LIMIT) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("hangs: a wake-up was lost"),
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}
