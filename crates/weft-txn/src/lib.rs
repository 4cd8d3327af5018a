//! Transactions: coroutines over versions of rows, of which a worker runs a batch at a time.
//!
//! A [`Table`] has rows of bytes with 64-bit ids, and B+trees that lead from keys to ids. Changed rows lie in
//! memory as chains of versions; a row that was never changed since it was frozen has none, and its bytes come
//! from [`FrozenRows`]. An [`Engine`] runs [`Transaction`]s on tables: snapshot isolation, on top of it the
//! serial safety net for serializable ones, and read committed. Every pointer that may miss the caches is
//! prefetched while other transactions of the batch run ([`Batching`]), and every other wait (a device, a latch, another
//! transaction, the log) is a suspension point too. (He, Lu, Wang, "CoroBase", 2020; the thesis of 2021, chapters 3 to 5.)
//!
//! Read in this order: `slots`, `cells`, `version`, `chain`, `limbo` (what is free of locks, and model-checked), `row_map`,
//! `table`, `context`, `transaction`, `change`, `scan`, `serial`, `collect`, `redo`, `log`, `engine`, `batching`.

#[cfg(any(not(loom), test))]
mod chain;
#[cfg(any(not(loom), test))]
mod limbo;
#[cfg(any(not(loom), test))]
mod slots;
#[cfg(any(not(loom), test))]
mod version;

#[cfg(not(loom))]
mod batching;
#[cfg(not(loom))]
mod cells;
#[cfg(not(loom))]
mod change;
#[cfg(not(loom))]
mod collect;
#[cfg(not(loom))]
mod context;
#[cfg(not(loom))]
mod engine;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod log;
#[cfg(not(loom))]
mod memory;
#[cfg(all(test, loom))]
mod models;
#[cfg(not(loom))]
mod redo;
#[cfg(not(loom))]
mod row_map;
#[cfg(not(loom))]
mod scan;
#[cfg(not(loom))]
mod serial;
#[cfg(not(loom))]
mod snapshot;
#[cfg(not(loom))]
mod table;
#[cfg(not(loom))]
mod transaction;

#[cfg(not(loom))]
pub use {
    batching::{Batching, run_batch},
    change::Savepoint,
    context::Context,
    engine::{Engine, EngineOptions},
    error::{Result, TxnError},
    log::{LogDirectory, LogOptions},
    row_map::CHUNK_ROWS,
    snapshot::Snapshot,
    table::{FrozenError, FrozenRow, FrozenRows, RowKeys, Table, TableForm},
    transaction::{Durability, Isolation, RowBytes, Transaction, TransactionOptions},
};

/// Atomics and locks: the standard library's, or loom's when it model-checks them.
#[cfg(any(not(loom), test))]
mod primitives {
    #[cfg(loom)]
    pub(crate) use loom::sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence},
    };
    #[cfg(not(loom))]
    pub(crate) use std::sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence},
    };

    /// Locks `mutex`, whether or not a thread has panicked while it held it: what our locks protect is
    /// consistent between any two statements that can panic.
    pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
