//! What coroutines coordinate by, without ever blocking a worker.
//!
//! Everything here needs only `std::task`: it works with any executor, between executors, and (by the
//! `blocking_…` functions) with plain threads. A future may be dropped at any time: what it was
//! waiting for goes to the next in line.
//!
//! The types with shared atomics are written against the names below, which are the standard
//! library's, or loom's when it model-checks them (`RUSTFLAGS="--cfg loom"`).

mod block_on;
pub mod channel;
pub mod latch;
pub mod oneshot;
pub mod parking_lot;
pub mod ready_set;
pub mod sleep;
pub(crate) mod turnstile;
mod wait_queue;
pub(crate) mod wake_list;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
pub(crate) mod testing;

pub use block_on::block_on;
pub use latch::HybridLatch;
pub use parking_lot::ParkingLot;

#[cfg(not(loom))]
pub(crate) mod primitives {
    //! The standard library's primitives.
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
    pub(crate) use std::sync::{Mutex, MutexGuard};
}

#[cfg(loom)]
pub(crate) mod primitives {
    //! Loom's primitives.
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

/// Locks `mutex`, whether or not a thread has panicked while it held it: what our locks protect is
/// consistent between any two statements that can panic.
pub(crate) fn lock<T>(mutex: &primitives::Mutex<T>) -> primitives::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
