//! The coroutine runtime: every wait is a suspension point.
//!
//! A cache miss, a device request, a full memory budget, a busy latch and an empty channel are all
//! awaited by the same kind of coroutine on the same kind of worker, so that a few threads keep the
//! memory bus, the devices' queues and the cores busy at once. Coroutines are plain Rust futures;
//! nested ones compile into one flat state machine, so nest freely and box only where a type has to
//! be erased.
//!
//! - [`Runtime`] starts workers; [`Runtime::run_morsels`] runs a pipeline with a coroutine per
//!   morsel, [`Runtime::spawn`] a single task.
//! - [`io`] has files and buffers, and the drivers that reach the devices.
//! - [`prefetch`], [`yield_now`] and [`sleep`] are the waits that need no device; [`sync`] has those
//!   on other coroutines, [`memory`] those on the memory budget.
//! - [`background`] runs what blocks on threads of its own.
//!
//! **Architecture invariant:** nothing blocks a worker. No lock is held across an await, no system
//! call on the hot path waits, and whoever has to wait parks its coroutine, never its thread.

pub mod background;
pub mod cancel;
#[cfg(not(loom))]
mod exec;
#[cfg(not(loom))]
pub mod io;
pub mod memory;
#[cfg(not(loom))]
mod process_time;
pub mod progress;
pub mod sync;

#[cfg(not(loom))]
pub use exec::{
    batch::{BATCH_DEPTH_MAX, Batch, Boundary},
    lookahead::{Ahead, announce, announced},
    morsel::{MorselError, MorselOptions, MorselQueue, MorselRun},
    prefetch::{YieldNow, prefetch, prefetch_line, yield_now},
    runtime::{
        IO_DEPTH_DEFAULT, IO_DEPTH_MAX, Runtime, RuntimeError, RuntimeOptions, io_stats, now,
        spawn_begun, spawn_local, transfers, try_worker_index, woke_at, worker_index,
    },
    share::Share,
    task::{JoinError, JoinHandle},
    timer::{Sleep, sleep},
    worker_ref::WorkerRef,
};
#[cfg(not(loom))]
pub use process_time::process_time;
